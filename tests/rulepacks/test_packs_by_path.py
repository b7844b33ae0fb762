"""Packs of one's own: what is accepted, what is refused and in which words."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from cleanse import measures
from cleanse.measures import Measure, TextBatch
from cleanse.records import Role
from cleanse.rulepacks import PackError, check, load_packs

RULE = """
[[rule]]
id = "{id}"
summary = "Too long"
why = "It is longer than the trainer takes."
since = "1"
{body}
"""
BODY = """
measure = "chars"
limit = { max = 5 }
action = "suspect"
should_match = ["abcdefg"]
should_pass = ["abc"]
"""


@pytest.fixture
def pack(tmp_path: Path):
    """Writes a pack of one rule and gives its path."""

    def write(body: str = BODY, rule_id: str = "mine.long", name: str = "mine.toml") -> str:
        path = tmp_path / name
        path.write_text(RULE.replace("{id}", rule_id).replace("{body}", body), "utf-8")
        return str(path)

    return write


def batch(*parts: tuple[Role, str | None, bool]) -> TextBatch:
    texts = TextBatch.from_texts([text for _, text, _ in parts])
    return TextBatch(
        texts.data,
        texts.offsets,
        np.zeros(len(parts), np.int64),
        np.array([role for role, _, _ in parts], np.uint8),
        np.array([supervised for _, _, supervised in parts]),
        texts.is_null,
        1,
    )


def test_a_pack_by_path(pack) -> None:
    rules = load_packs([pack()])
    assert [rule.id for rule in rules.rules] == ["mine.long"]
    assert check(rules) == []
    hits = rules.evaluate(TextBatch.from_texts(["abc", "abcdefgh"]))
    assert hits.segment.tolist() == [1]
    assert hits.value.tolist() == [8]
    assert hits.limit.tolist() == [5]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("action", "actoin"), "no such key"),
        (('"suspect"', '"delete"'), "expected one of note, repair, suspect, reject"),
        (('measure = "chars"', 'measure = "charz"'), "no measure is called 'charz'.*chars"),
        (("limit = { max = 5 }", ""), "a measure needs a limit"),
        (("{ max = 5 }", "{ max = 5, Latn = { max = 3 } }"), "mixes bounds and scripts"),
        (("{ max = 5 }", "{ latin = { max = 3 } }"), "ISO 15924"),
        (("{ max = 5 }", "{ max = true }"), "expected numbers"),
        (("{ max = 5 }", "{ min = 6, max = 5 }"), "above"),
        (('measure = "chars"', 'measure = "chars"\npattern = "a"'), "exactly one"),
        (("action", 'repair = "ftfy"\naction'), "belong together"),
        (('"suspect"', '"repair"\nrepair = "nonsense"'), "no repair is called"),
        (('action = "suspect"', 'action = "suspect"\nroles = ["boss"]'), "expected roles out of"),
        (('action = "suspect"', 'action = "suspect"\nstrength = 101'), "0 to 100"),
        (('action = "suspect"', 'action = "suspect"\nwhere = { nothing = { max = 1 } }'), "no measure is called"),
        (('["abc"]', "[3]"), "expected a text or a table"),
        (("measure", "= measure"), "not valid TOML"),
    ],
)
def test_mistakes_are_named(pack, change: tuple[str, str], words: str) -> None:
    path = pack(BODY.replace(*change, 1))
    with pytest.raises(PackError, match=words) as raised:
        load_packs([path])
    assert "mine.toml" in str(raised.value)


def test_unknown_names_and_repeated_ids(pack) -> None:
    with pytest.raises(PackError, match="no rule pack is called 'nonsense'.*encoding"):
        load_packs(["nonsense"])
    with pytest.raises(PackError, match="already used in"):
        load_packs([pack(name="one.toml"), pack(name="two.toml")])
    with pytest.raises(PackError, match="cannot be read"):
        load_packs(["/nowhere/at/all.toml"])


def test_check_finds_broken_promises(pack) -> None:
    body = BODY.replace('["abcdefg"]', '["abc"]').replace('should_pass = ["abc"]', 'should_pass = ["abcdefg"]')
    said = [str(problem) for problem in check(load_packs([pack(body)]))]
    assert len(said) == 2
    assert 'should_match: example 1 ("abc") does not match' in said[0]
    assert 'should_pass: example 1 ("abcdefg") matches' in said[1]
    none = BODY.replace('should_match = ["abcdefg"]', "")
    assert "expected at least one example" in str(check(load_packs([pack(none)]))[0])


def test_a_pattern_that_runs_away_is_refused(pack) -> None:
    body = """
pattern = "(a|aa)+$"
engine = "regex"
action = "note"
should_match = ["aaa"]
should_pass = ["b"]
"""
    said = [str(problem) for problem in check(load_packs([pack(body)]))]
    assert any("runs away" in text for text in said)
    safe = body.replace('engine = "regex"', "")
    assert check(load_packs([pack(safe)])) == []


@pytest.mark.parametrize("bad", ["(unclosed", "a*"])
def test_patterns_that_make_no_sense_are_refused(pack, bad: str) -> None:
    body = f'pattern = "{bad}"\naction = "note"\nshould_match = ["a"]\nshould_pass = ["b"]\n'
    assert "pattern:" in str(check(load_packs([pack(body)]))[0])


def test_limits_by_script(pack) -> None:
    body = BODY.replace("{ max = 5 }", "{ Hani = { max = 2 }, Latn = { max = 8 }, default = { max = 4 } }")
    body = body.replace('["abcdefg"]', '["abcdefghi"]')
    rules = load_packs([pack(body)])
    texts = TextBatch.from_texts(
        ["abcdefgh", "\u4e2d\u6587\u5b57", "\u0430\u0431\u0432\u0433\u0434", "12345", "abcdefghi"]
    )
    hits = rules.evaluate(texts)
    assert hits.segment.tolist() == [1, 2, 3, 4]
    assert hits.limit.tolist() == [2, 4, 4, 8]
    assert check(rules) == []


def test_roles_and_supervision(pack) -> None:
    body = BODY.replace('action = "suspect"', 'action = "suspect"\nroles = ["assistant"]\nsupervised = true')
    body = body.replace('["abcdefg"]', '[{ text = "abcdefg", role = "assistant" }]')
    rules = load_packs([pack(body)])
    long = "abcdefgh"
    hits = rules.evaluate(batch((Role.USER, long, False), (Role.ASSISTANT, long, False), (Role.ASSISTANT, long, True)))
    assert hits.segment.tolist() == [2]


def test_guards(pack) -> None:
    body = BODY.replace('action = "suspect"', 'action = "suspect"\nwhere = { digit_share = { min = 0.5 } }')
    body = body.replace('["abcdefg"]', '["1234567"]')
    hits = load_packs([pack(body)]).evaluate(TextBatch.from_texts(["abcdefg", "1234567"]))
    assert hits.segment.tolist() == [1]


def test_a_measure_without_a_value_crosses_nothing(pack) -> None:
    nowhere = Measure("test_nowhere", "", "NaN", lambda texts: np.full(len(texts), np.nan))
    measures.register(nowhere)
    body = BODY.replace('"chars"', '"test_nowhere"').replace("{ max = 5 }", "{ min = 1, max = 5 }")
    assert len(load_packs([pack(body)]).evaluate(TextBatch.from_texts(["a", "b" * 50]))) == 0


def test_fingerprint_tells_what_can_change_a_verdict(pack) -> None:
    one = load_packs([pack()])
    assert one.fingerprint == load_packs([pack()]).fingerprint
    assert one.fingerprint != load_packs([pack(BODY.replace("max = 5", "max = 6"))]).fingerprint
    other_words = BODY.replace('should_pass = ["abc"]', 'should_pass = ["ab"]')
    assert one.fingerprint == load_packs([pack(other_words)]).fingerprint


def test_pickling_keeps_everything(pack) -> None:
    rules = load_packs(["default", pack()])
    again = pickle.loads(pickle.dumps(rules))
    assert again.fingerprint == rules.fingerprint
    assert again.rules == rules.rules


def test_hits_are_ordered_by_record_segment_and_rule() -> None:
    rules = load_packs()
    hits = rules.evaluate(TextBatch.from_texts(["a\u202eb\0\u200bc", "fine", "x\0\u200by"]))
    keys = list(zip(hits.record.tolist(), hits.segment.tolist(), hits.rule.tolist(), strict=True))
    assert keys == sorted(keys)
    assert len(hits) >= 5
