"""Pieces of text: nothing is lost, nothing hidden stays hidden, long texts stay short."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cleanse import safe_text
from cleanse.report.shown_text import Span, of_bytes, of_excerpt, pieces

ODD = st.text(st.sampled_from("ab \n\t\x00\x1b\r\u200b\u202e\u00ad\u0301\U000e0041\u3164\u4f60<>&"), max_size=80)


def length(some: list) -> int:
    """Characters that pieces stand for."""
    total = 0
    for piece in some:
        if isinstance(piece, str):
            total += len(piece)
        elif "m" in piece:
            total += length(piece["m"])
        else:
            total += piece.get("n", 0) + piece.get("e", 0)
    return total


def plain(some: list) -> str:
    return "".join(p if isinstance(p, str) else plain(p["m"]) if "m" in p else "" for p in some)


@given(ODD, st.lists(st.tuples(st.integers(0, 90), st.integers(0, 40)), max_size=4), st.sampled_from([20, 1200]))
@example("\u200b" * 300, [], 1200)
@example("a" * 5000, [(2500, 10)], 300)
def test_every_character_is_shown_named_or_counted(text: str, places: list, width: int) -> None:
    spans = [Span(start, start + n, "r") for start, n in places]
    assert length(pieces(text, spans, width)) == len(text)


@given(ODD)
def test_what_is_shown_as_it_is_can_be_seen(text: str) -> None:
    shown = plain(pieces(text))
    assert safe_text.escape(shown.replace("\n", "").replace("\t", "")) == shown.replace("\n", "").replace("\t", "")


def test_names() -> None:
    assert pieces("a\u200b\u200bb\u202e") == [
        "a",
        {"h": "ZERO WIDTH SPACE", "c": "U+200B", "n": 2},
        "b",
        {"h": "RIGHT-TO-LEFT OVERRIDE", "c": "U+202E", "n": 1},
    ]
    assert [p["h"] for p in pieces("\x1b\x00\r") if isinstance(p, dict)] == ["ESCAPE", "NUL", "CARRIAGE RETURN"]


def test_what_has_no_name_has_its_number() -> None:
    assert [p["h"] for p in pieces("\x9d\ue000\u0378")] == [
        "U+009D control character",
        "U+E000 private use",
        "U+0378 unassigned",
    ]


def test_white_space_alone_is_named() -> None:
    assert pieces(" \n\n") == [{"h": "SPACE", "c": "U+0020", "n": 1}, {"h": "LINE FEED", "c": "U+000A", "n": 2}]


def test_places_are_marked_with_all_rules_that_speak_of_them() -> None:
    shown = pieces("0123456789", [Span(2, 6, "a"), Span(4, 8, "b")])
    assert shown == [
        "01",
        {"m": ["23"], "r": ["a"]},
        {"m": ["45"], "r": ["a", "b"]},
        {"m": ["67"], "r": ["b"]},
        "89",
    ]


def test_a_long_text_shows_its_start_its_end_and_its_place() -> None:
    text = "S" + "x" * 100_000 + "here" + "y" * 100_000 + "E"
    shown = pieces(text, [Span(100_001, 100_005, "r")], 600)
    assert plain(shown).startswith("S")
    assert plain(shown).endswith("E")
    assert {"m": ["here"], "r": ["r"]} in shown
    assert len(plain(shown)) < 900
    assert length(shown) == len(text)


def test_bytes_that_are_no_text_are_named() -> None:
    assert of_bytes(b"It\x92s") == ["It", {"h": "BYTE 92", "c": "", "n": 1}, "s"]


def test_escapes_of_what_cannot_be_seen_become_names() -> None:
    assert of_excerpt(safe_text.escape("a\u200bb\U000e0041")) == [
        "a",
        {"h": "ZERO WIDTH SPACE", "c": "U+200B", "n": 1},
        "b",
        {"h": "TAG LATIN CAPITAL LETTER A", "c": "U+E0041", "n": 1},
    ]
    assert of_excerpt(r"C:\users \u0041 \ud800 \Uffffffff") == [r"C:\users \u0041 \ud800 \Uffffffff"]
