"""The format of every source of a plan, from its first records."""

from __future__ import annotations

from cleanse.config import ScanConfig
from cleanse.formats import Format, FormatError, detect
from cleanse.sources import Plan, Source
from cleanse.sources.places import together

_HEAD_RECORDS = 100


def detect_formats(plan: Plan, config: ScanConfig) -> tuple[Format | None, ...]:
    """One format per source, None for a source without a single record that can be parsed.

    Raises FormatError naming the source whose columns fit no format, or not the one that was asked for.
    """
    paths = [source.path for source in plan.sources]
    return tuple(together(lambda source: _detect(plan, source, config), plan.sources, paths))


def _detect(plan: Plan, source: Source, config: ScanConfig) -> Format | None:
    head = plan.head(source, _HEAD_RECORDS)
    if not head:
        return None
    try:
        return detect(head, name=config.format, text_column=config.text_column)
    except FormatError as error:
        raise FormatError(f"{source.name}: {error}") from None
