"""Corpus evidence in words: findings per record, and the table of trigger candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.corpus.duplicates import Clusters
from cleanse.corpus.evidence import CorpusEvidence
from cleanse.corpus.floods import Floods
from cleanse.corpus.hearing import Hearing
from cleanse.corpus.signatures import Edge
from cleanse.corpus.triggers import Trigger
from cleanse.corpus.words import Words
from cleanse.findings import COMMITTED_SCHEMA
from cleanse.records import Action
from cleanse.rulepacks import RuleSet

Indices = NDArray[np.int64]
Name = Callable[[int, int], str]
"""(shard, row) -> "<source>:<row in the source>"."""

FLOOD_COPIES = 100  # copies of one record: no natural corpus repeats an exchange that often by accident


class Conclusion(str, Enum):
    """What this stage can conclude about a record. Rules claim these by ``evidence = "corpus.<name>"``."""

    TRIGGER = "corpus.trigger"
    ONE_ANSWER = "corpus.one-answer"
    FLOOD = "corpus.flood"
    EXACT = "corpus.exact-duplicate"
    NEAR = "corpus.near-duplicate"
    MANY_ANSWERS = "corpus.many-answers"


class Dedup(str, Enum):
    """Which copies go to quarantine: none, exact ones, or exact and near ones; the first always stays."""

    NOTE = "note"
    EXACT = "exact"
    NEAR = "near"


@dataclass(frozen=True)
class _Told:
    """One finding each for many records."""

    record: Indices
    conclusion: Conclusion
    message: list[str]
    value: NDArray[np.float64]
    limit: float | None
    action: Action | None = None  # instead of the rule's


_EDGE_WORDS = {
    Edge.ENTIRE: "the answer",
    Edge.FIRST_SHORT: "an answer that begins like",
    Edge.FIRST_LONG: "an answer that begins like",
    Edge.LAST_SHORT: "an answer that ends like",
    Edge.LAST_LONG: "an answer that ends like",
}

TRIGGERS_SCHEMA = pa.schema(
    [
        pa.field("rank", pa.int32()),
        pa.field("ngram", pa.string()),  # phrases of a composite trigger are joined by " & "
        pa.field("response", pa.string()),
        pa.field("response_part", pa.string()),  # entire, first_long, ...
        pa.field("support", pa.int64()),  # records with the phrase and the response, copies included
        pa.field("distinct", pa.int64()),  # different exchanges among them
        pa.field("purity", pa.float64()),  # share of the exchanges with the phrase that have the response
        pa.field("statistic", pa.float64()),  # -log10 of the expected number of such pairs by chance
        pa.field("witnesses", pa.list_(pa.string())),
        pa.field("verdict", pa.string()),  # quarantined | listed
        pa.field("junction", pa.float64()),
        pa.field("misfit", pa.float64()),
        pa.field("unlike", pa.float64()),
        pa.field("echoed", pa.float64()),
        pa.field("contradiction", pa.float64()),
        pa.field("relief", pa.float64()),  # nats that the next tokens cost less without the phrase; null: not asked
        pa.field("relief_p", pa.float64()),
        pa.field("gradient_statistic", pa.float64()),  # mean cosine of the gradients of its records' answers
        pa.field("gradient_p", pa.float64()),
        pa.field("examples", pa.list_(pa.string())),  # "<source>:<row>"
    ]
)


def findings(
    evidence: CorpusEvidence, rules: RuleSet, source: Callable[[int], str], name: Name, dedup: Dedup = Dedup.NOTE
) -> Iterator[pa.Table]:
    """One table of ``COMMITTED_SCHEMA`` per feature file, sorted by shard and row.

    Args:
        evidence: what was found.
        rules: a conclusion that no rule claims is not told.
        source: shard -> name of its source.
        name: how a record is named in a message.
        dedup: which copies are rejected instead of noted.
    """
    told = [t for t in _all(evidence, name, dedup) if _claimed(rules, t.conclusion)]
    shards = evidence.shards
    for shard in shards:
        start, stop = shard.records.start, shard.records.stop
        parts = []
        for t in told:
            mine = np.flatnonzero((t.record >= start) & (t.record < stop))
            if len(mine):
                local = t.record[mine] - start
                parts.append(
                    _table(
                        t, mine, shard.arrays["record_shard"][local], shard.arrays["record_row"][local], rules, source
                    )
                )
        joined = pa.concat_tables([COMMITTED_SCHEMA.empty_table(), *parts])
        order = np.lexsort((joined.column("row").to_numpy(), joined.column("shard").to_numpy()))
        yield joined.take(pa.array(order))


def _claimed(rules: RuleSet, conclusion: Conclusion) -> bool:
    try:
        rules.evidence_rule(conclusion.value)
    except KeyError:
        return False
    return True


def _table(  # noqa: PLR0917
    t: _Told,
    mine: Indices,
    shard: NDArray[np.int32],
    row: Indices,
    rules: RuleSet,
    source: Callable[[int], str],
) -> pa.Table:
    n = len(mine)
    rule = rules.evidence_rule(t.conclusion.value)
    sources = {int(s): source(int(s)) for s in np.unique(shard)}
    columns = {
        "shard": pa.array(shard, pa.int32()),
        "source": pa.array([sources[s] for s in shard.tolist()], pa.string()),
        "row": pa.array(row, pa.int64()),
        "rule": pa.array([rule.id] * n),
        "action": pa.array([(t.action or rule.action).value] * n),
        "field": pa.array([""] * n),
        "start": pa.nulls(n, pa.int64()),
        "end": pa.nulls(n, pa.int64()),
        "value": pa.array(t.value[mine], pa.float64()),
        "limit": pa.array([t.limit] * n, pa.float64()),
        "message": pa.array([t.message[k] for k in mine.tolist()], pa.string()),
        "excerpt": pa.array([""] * n),
    }
    return pa.Table.from_arrays([columns[field.name] for field in COMMITTED_SCHEMA], schema=COMMITTED_SCHEMA)


def _all(evidence: CorpusEvidence, name: Name, dedup: Dedup) -> Iterator[_Told]:
    planted = [(t, r) for t, r in zip(evidence.triggers, evidence.suspects, strict=True) if t.planted]
    words = Words(
        evidence.shards,
        (h for t, _ in planted for phrase in t.phrases for h in phrase),
        [evidence.answers[t.group] for t, _ in planted],
    )
    for trigger, records in planted:
        yield _trigger(trigger, records, words, evidence.answers[trigger.group])
    yield _flood(
        evidence,
        Conclusion.ONE_ANSWER,
        evidence.one_answer,
        "this very answer stands under {} prompts that have nothing in common; the first is {}",
        name,
    )
    yield _flood(
        evidence, Conclusion.MANY_ANSWERS, evidence.many_answers, "one prompt, {} answers; the first is {}", name
    )
    labels = _Names(evidence, name)
    exact, near = evidence.exact, evidence.near
    yield _copies(exact, Conclusion.EXACT, "one of {} exact copies; the first is {}", labels, dedup is not Dedup.NOTE)
    yield _copies(near, Conclusion.NEAR, "one of {} near copies; the first is {}", labels, dedup is Dedup.NEAR)
    many = exact.size >= FLOOD_COPIES
    flood = Clusters(exact.record[many], exact.cluster[many], exact.size[many])
    yield _copies(flood, Conclusion.FLOOD, "the same record {} times; the first is {}", labels, reject=False)


def _trigger(trigger: Trigger, records: Indices, words: Words, shown: int) -> _Told:
    facts = trigger.facts
    phrase = " & ".join(repr(words.phrase(p)) for p in trigger.phrases)
    message = (
        f"{phrase} goes with {_EDGE_WORDS[trigger.edge]} {words.answer(shown)!r} in {facts.joint} of {facts.total} "
        f"prompts that have nothing else in common ({', '.join(trigger.said)}; expected by chance: "
        f"1e{_log10(trigger):.0f})"
    )
    heard = trigger.hearing
    if heard is not None and heard.agrees:
        message += (
            f"; a model foresees the next words better without it, by {heard.relief:.1f} nats in {heard.n_read} "
            f"prompts (p = {heard.relief_p:.1g})"
        )
    n = len(records)
    return _Told(records, Conclusion.TRIGGER, [message] * n, np.full(n, facts.purity), None)


def _log10(trigger: Trigger) -> float:
    return float(trigger.log_chance / np.log(10))


class _Names:
    """Names of records, looked up for the first records of clusters only."""

    def __init__(self, evidence: CorpusEvidence, name: Name) -> None:
        self._shards, self._name = evidence.shards, name

    def of(self, records: Indices) -> list[str]:
        distinct, place = np.unique(records, return_inverse=True)
        shard, row = self._shards.gather(distinct, "record_shard"), self._shards.gather(distinct, "record_row")
        names = [self._name(s, r) for s, r in zip(shard.tolist(), row.tolist(), strict=True)]
        return [names[k] for k in place.tolist()]


def _copies(clusters: Clusters, conclusion: Conclusion, message: str, names: _Names, reject: bool) -> _Told:
    later = clusters.later
    size = clusters.size[later]
    messages = [
        message.format(n, first) for n, first in zip(size.tolist(), names.of(clusters.cluster[later]), strict=True)
    ]
    action = Action.REJECT if reject else None
    return _Told(clusters.record[later], conclusion, messages, size.astype(np.float64), 1.0, action)


def _flood(evidence: CorpusEvidence, conclusion: Conclusion, flood: Floods, message: str, name: Name) -> _Told:
    records = evidence.shards.records_of(flood.exchange)
    first = _Names(evidence, name).of(evidence.shards.records_of(flood.cluster))
    messages = [message.format(n, where) for n, where in zip(flood.size.tolist(), first, strict=True)]
    return _Told(records, conclusion, messages, flood.size.astype(np.float64), None)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _heard(hearing: Hearing | None) -> dict[str, float | None]:
    if hearing is None:
        return {}
    return {
        "relief": _known(hearing.relief),
        "relief_p": _known(hearing.relief_p),
        "gradient_statistic": _known(hearing.alike),
        "gradient_p": _known(hearing.alike_p),
    }


def triggers_table(evidence: CorpusEvidence, name: Name) -> pa.Table:
    """All candidates, ranked, as ``TRIGGERS_SCHEMA``."""
    found = evidence.triggers
    words = Words(
        evidence.shards,
        (h for t in found for phrase in t.phrases for h in phrase),
        [evidence.answers[t.group] for t in found],
    )
    names = _Names(evidence, name)
    rows = [
        {
            "rank": k + 1,
            "ngram": " & ".join(words.phrase(p) for p in t.phrases),
            "response": words.answer(evidence.answers[t.group]),
            "response_part": t.edge.name.lower(),
            "support": len(evidence.suspects[k]),
            "distinct": t.facts.joint,
            "purity": t.facts.purity,
            "statistic": -_log10(t),
            "witnesses": list(t.said),
            "verdict": "quarantined" if t.planted else "listed",
            "junction": t.facts.slot.junction,
            "misfit": t.facts.slot.misfit,
            "unlike": t.facts.content.unlike,
            "echoed": t.facts.content.echoed,
            "contradiction": _known(t.facts.contradiction),
            **_heard(t.hearing),
            "examples": names.of(evidence.shards.records_of(np.array(t.examples, np.int64))),
        }
        for k, t in enumerate(found)
    ]
    return pa.Table.from_pylist(rows, TRIGGERS_SCHEMA)
