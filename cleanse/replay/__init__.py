"""From a step to its rows, from the rows' figures to a diagnosis, and the way out."""

from __future__ import annotations

from cleanse.replay.order import Order, order
from cleanse.replay.runfiles import RunFiles, read_settings
from cleanse.replay.settings import TRAINERS, RunSettings
from cleanse.replay.steps import OrderUnknown, RowId, StepRows

__all__ = [
    "TRAINERS",
    "Order",
    "OrderUnknown",
    "RowId",
    "RunFiles",
    "RunSettings",
    "StepRows",
    "order",
    "read_settings",
]
