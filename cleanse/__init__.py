"""cleanse: finds the records that would break a fine-tuning run, and writes the corpus without them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cleanse.api import release, scan
    from cleanse.errors import CleanseError, NoRecordsError, UsageError
    from cleanse.guard import Guard, Ledger
    from cleanse.plug.collator import FilterCollator
    from cleanse.plug.filter import Filter
    from cleanse.plug.mindspore import mindspore_filter
    from cleanse.plug.torch import FilteredIterable
    from cleanse.replaying import OrderUnknown, SkipCollator, WithRowIds, order
    from cleanse.replaying.call import replay
    from cleanse.replaying.result import ReplayResult
    from cleanse.reviewing.release import Released
    from cleanse.summary import ScanResult

__version__ = "0.1.0"

_HOMES = {
    "CleanseError": "cleanse.errors",
    "Filter": "cleanse.plug.filter",
    "FilterCollator": "cleanse.plug.collator",
    "FilteredIterable": "cleanse.plug.torch",
    "Guard": "cleanse.guard",
    "Ledger": "cleanse.guard",
    "NoRecordsError": "cleanse.errors",
    "OrderUnknown": "cleanse.replaying",
    "ScanResult": "cleanse.summary",
    "SkipCollator": "cleanse.replaying",
    "UsageError": "cleanse.errors",
    "WithRowIds": "cleanse.replaying",
    "Released": "cleanse.reviewing.release",
    "ReplayResult": "cleanse.replaying.result",
    "mindspore_filter": "cleanse.plug.mindspore",
    "order": "cleanse.replaying",
    "release": "cleanse.api",
    "replay": "cleanse.replaying.call",
    "scan": "cleanse.api",
}
"""Where each public name lives. Importing the package loads none of these modules: that waits for the first use."""

__all__ = [
    "CleanseError",
    "Filter",
    "FilterCollator",
    "FilteredIterable",
    "Guard",
    "Ledger",
    "NoRecordsError",
    "OrderUnknown",
    "Released",
    "ReplayResult",
    "ScanResult",
    "SkipCollator",
    "UsageError",
    "WithRowIds",
    "__version__",
    "mindspore_filter",
    "order",
    "release",
    "replay",
    "scan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cleanse' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
