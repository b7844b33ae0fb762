"""Records by script: what was read, and what of it is quarantined."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from cleanse.distributions import scripts
from cleanse.formats import FormatError, detect, view
from cleanse.report.rows import ADDED
from cleanse.report.scan_facts import ScanFacts

_HEAD = 100
_UNREADABLE = "Zzzz"  # ISO 15924 for what is not coded: records that could not be parsed

_NAMES = {
    "Arab": "Arabic",
    "Armn": "Armenian",
    "Beng": "Bengali",
    "Cyrl": "Cyrillic",
    "Deva": "Devanagari",
    "Ethi": "Ethiopic",
    "Geor": "Georgian",
    "Grek": "Greek",
    "Gujr": "Gujarati",
    "Guru": "Gurmukhi",
    "Hang": "Hangul",
    "Hani": "Han",
    "Hebr": "Hebrew",
    "Hira": "Hiragana",
    "Kana": "Katakana",
    "Khmr": "Khmer",
    "Knda": "Kannada",
    "Laoo": "Lao",
    "Latn": "Latin",
    "Mlym": "Malayalam",
    "Mymr": "Myanmar",
    "Sinh": "Sinhala",
    "Taml": "Tamil",
    "Telu": "Telugu",
    "Thai": "Thai",
    "Tibt": "Tibetan",
    "Zyyy": "no letters",
    "Zzzz": "could not be read",
}


def by_script(facts: ScanFacts) -> list[dict[str, Any]]:
    """A row per script, most records first; empty where the scan did not count scripts."""
    read: dict[str, int] = dict(facts.summary.get("distributions", {}).get("scripts", {}))
    if not read:
        return []
    held = _quarantined(facts)
    read[_UNREADABLE] = max(0, facts.counts["read"] - sum(read.values()))
    return [
        {
            "code": code,
            "name": _NAMES.get(code, code),
            "read": n,
            "quarantined": held.get(code, 0),
            "share": f"{100 * held.get(code, 0) / n:.2f} %",
        }
        for code, n in sorted(read.items(), key=lambda item: (-item[1], item[0]))
        if n
    ]


def _quarantined(facts: ScanFacts) -> dict[str, int]:
    """Scripts of the quarantined records that have a form; the others are counted as not readable."""
    counts: dict[str, int] = {}
    asked = facts.summary["configuration"]
    _ = facts.known_rules  # brings the measure that tells scripts
    for batch in facts.rows.quarantine_batches():
        parsed = batch.filter(pc.is_null(batch.column("cleanse_raw")))
        counts[_UNREADABLE] = counts.get(_UNREADABLE, 0) + batch.num_rows - parsed.num_rows
        if not parsed.num_rows:
            continue
        parsed = parsed.select([name for name in parsed.schema.names if name not in ADDED])
        try:
            fmt = detect(
                parsed.slice(0, _HEAD).to_pylist(),
                name=asked.get("format", "auto"),
                text_column=asked.get("text_column"),
            )
        except FormatError:
            continue
        for code, n in scripts(view(fmt, parsed).texts).items():
            counts[code] = counts.get(code, 0) + n
    return counts
