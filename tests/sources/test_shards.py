"""What is read does not depend on how the input is cut into shards and blocks, nor on which parser read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanse.records import EventKind
from cleanse.sources import jsonblock

from .reading import Read, read
from .test_json_lines import BAD

TEXTS = st.text(max_size=6) | st.sampled_from(['a": ', "\\", "\u2028", "\x85", "{", "2020-01-01"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=True)
    | st.sampled_from([0, 1, 1 << 53, (1 << 53) + 1, 1.0, -0.0, 1e16])
    | TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from("xyz"), v, max_size=3), max_leaves=6
)
PARTS = st.lists(st.fixed_dictionaries({"type": TEXTS}, optional={"n": st.floats(allow_nan=True)}), max_size=2)
TYPICAL = st.fixed_dictionaries(
    {"text": TEXTS, "n": st.integers(0, 9)},
    optional={
        "m": st.lists(st.fixed_dictionaries({"role": TEXTS, "content": TEXTS | TEXTS | st.none() | PARTS}), max_size=2)
    },
)
RECORDS = TYPICAL | st.dictionaries(st.sampled_from(["text", "n", "m", "q"]), VALUES, max_size=3)
SHORT_BAD = [bad if isinstance(bad, bytes) else bad.encode() for bad, _ in BAD if len(bad) < 100]
GROUPS_OF_RECORDS = st.lists(RECORDS, max_size=10)
LINES = (
    st.builds(lambda r, spaced: json.dumps(r, ensure_ascii=spaced, indent=None).encode(), RECORDS, st.booleans())
    | st.sampled_from([b"", b"  ", b"\r"])
    | st.sampled_from(SHORT_BAD)
    | st.just(b'\xef\xbb\xbf{"text": "marked"}')
    | st.binary(max_size=8).map(lambda b: b.replace(b"\n", b""))
)
QUIET = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def same(one: Read, other: Read) -> None:
    assert repr(one.second.records) == repr(other.second.records)  # repr: NaN equals itself there
    assert one.second.strays == other.second.strays
    assert one.second.raw == other.second.raw
    assert one.second.events == other.second.events
    assert one.types == other.types
    assert one.schema.equals(other.schema, check_metadata=True)


@QUIET
@given(
    lines=st.lists(LINES, max_size=20), ended=st.booleans(), sizes=st.tuples(st.integers(1, 200), st.integers(1, 200))
)
def test_any_cut_gives_the_same(tmp_path: Path, lines: list[bytes], ended: bool, sizes: tuple[int, int]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" + b"\n".join(lines) + (b"\n" if ended else b""))  # no magic number of another format
    whole = read(path, input_format="jsonl", max_record_bytes=120)
    same(whole, read(path, input_format="jsonl", max_record_bytes=120, shard_bytes=sizes[0], block_bytes=sizes[1]))


@QUIET
@given(lines=st.lists(LINES, max_size=20))
def test_fast_and_slow_path_agree(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" + b"\n".join(lines))
    mixed = read(path, input_format="jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonblock.JsonParser, "_at_once", lambda self, block: None)
        patch.setattr(jsonblock.JsonParser, "_texts_apart", lambda self, block: None)
        slow = read(path, input_format="jsonl")
    same(mixed, slow)


@QUIET
@given(records=st.lists(RECORDS, max_size=12))
def test_no_value_is_lost_or_changed(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(json.dumps(r).encode() + b"\n" for r in records))
    got = read(path)
    changed = {event.row for event in got.found(EventKind.MIXED_TYPE) + got.found(EventKind.NOT_A_NUMBER)}
    for (_, row), made in got.second.records.items():
        if row not in changed:
            for name, value in records[row].items():
                assert holds(made[name], value), (made[name], value)
    for (_, row), stray in got.second.strays.items():
        assert stray.raw == json.dumps(records[row]).encode()
        assert stray.event.kind is EventKind.LONE_SURROGATE
    assert len(got.second.records) + len(got.second.strays) == len(records)


def holds(made: Any, value: Any) -> bool:
    """Whether an Arrow value is the JSON value: as it is, or as its JSON text; absent keys are null."""
    if isinstance(made, dict) and isinstance(value, dict):
        return set(value) <= set(made) and all(holds(made[k], value.get(k)) for k in made)
    if isinstance(made, list) and isinstance(value, list):
        return len(made) == len(value) and all(map(holds, made, value))
    if isinstance(made, str) and (not isinstance(value, str) or made != value):
        return bool(json.loads(made) == value)
    return bool(made == value)
