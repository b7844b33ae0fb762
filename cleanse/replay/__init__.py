"""From a step to its rows, from the rows' figures to a diagnosis, and the way out."""

from __future__ import annotations

from cleanse.replay.capsule import resume_recipe, write_capsule
from cleanse.replay.diagnosis import Diagnosis, Kind, diagnose, suspects
from cleanse.replay.figures import LeftOut, RowFigures, RunLog, StepFigures
from cleanse.replay.order import Order, order
from cleanse.replay.ranking import Ranked, rank
from cleanse.replay.runfiles import RunFiles, read_settings
from cleanse.replay.settings import TRAINERS, RunSettings
from cleanse.replay.skipping import SkipCollator, SkipList, WithRowIds
from cleanse.replay.steps import OrderUnknown, RowId, StepRows

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
