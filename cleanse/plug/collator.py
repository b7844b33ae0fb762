"""A collator that leaves bad examples out of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

from cleanse.errors import CleanseError, UsageError
from cleanse.plug.filter import Filter

HELD = ("drop", "substitute")


class FilterCollator:
    """Wraps a collator: examples that a scan would quarantine do not reach it.

    For examples that still are text, as where the collator tokenizes. A batch that loses all its examples gets the
    last good one instead, so that no rank of a distributed run is without a batch.

    Args:
        collate: the collator to wrap: a list of examples -> a batch.
        filter: what to leave out; ``cleanse.Filter()`` by default.
        held: "drop" makes the batch smaller; "substitute" puts good examples of the same batch in the places of the
            held ones, so that batches keep their size.

    Raises:
        UsageError: on construction, for another ``held``.
        CleanseError: in a call, when the first batch of all holds no good example.
    """

    def __init__(
        self,
        collate: Callable[[list[Any]], Any],
        filter: Filter | None = None,  # noqa: A002 - what it is
        *,
        held: str = "drop",
    ) -> None:
        if held not in HELD:
            raise UsageError(f"held is {held!r}: expected one of {', '.join(HELD)}")
        self._collate = collate
        self._filter = filter or Filter()
        self._substitute = held == "substitute"
        self._last_good: Mapping[str, Any] | None = None

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> Any:
        """Collates the examples that stay."""
        keep = self._filter(list(features))
        good = [feature for feature, stays in zip(features, keep, strict=True) if stays]
        if not good:
            if self._last_good is None:
                raise CleanseError(
                    f"all {len(features)} examples of the first batch would be quarantined: scan the data first, or "
                    "give the filter the format of the data (Filter(...).like(dataset))"
                )
            good = [self._last_good]
        self._last_good = good[-1]
        if self._substitute and len(good) < len(features):
            spare = islice(cycle(good), len(features))
            good = [feature if stays else next(spare) for feature, stays in zip(features, keep, strict=True)]
        return self._collate(good)
