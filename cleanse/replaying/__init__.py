"""From a step to its rows, from the rows' figures to a diagnosis, and the way out."""

from __future__ import annotations

from cleanse.replaying.capsule import resume_recipe, write_capsule
from cleanse.replaying.diagnosis import Diagnosis, Kind, diagnose, suspects
from cleanse.replaying.figures import LeftOut, RowFigures, RunLog, StepFigures
from cleanse.replaying.order import Order, order
from cleanse.replaying.ranking import Ranked, rank
from cleanse.replaying.runfiles import RunFiles, read_settings
from cleanse.replaying.settings import TRAINERS, RunSettings
from cleanse.replaying.skipping import SkipCollator, SkipList, WithRowIds
from cleanse.replaying.steps import OrderUnknown, RowId, StepRows

__all__ = [
    "TRAINERS",
    "Diagnosis",
    "Kind",
    "LeftOut",
    "Order",
    "OrderUnknown",
    "Ranked",
    "RowFigures",
    "RowId",
    "RunFiles",
    "RunLog",
    "RunSettings",
    "SkipCollator",
    "SkipList",
    "StepFigures",
    "StepRows",
    "WithRowIds",
    "diagnose",
    "order",
    "rank",
    "read_settings",
    "resume_recipe",
    "suspects",
    "write_capsule",
]
