"""One block of JSON texts into one RecordBatch: whole-block parsing, and single texts only where it fails."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from cleanse.blocks import RawLines, RecordBlock
from cleanse.records import EventKind, ReadEvent
from cleanse.sources.candidates import Candidates, check_shape, check_utf8, set_oversized_apart
from cleanse.sources.coerce import coerce, dump, holds_texts
from cleanse.sources.decide import decide
from cleanse.sources.diagnose import MAX_NESTING, diagnose
from cleanse.sources.errors import SourceError
from cleanse.sources.fastjson import cast_columns, doubtful_rows, empty, parse, parse_pieces
from cleanse.sources.jsontext import quoted
from cleanse.sources.large import note_large
from cleanse.sources.lines import Lines
from cleanse.sources.model import ShardFacts, Source
from cleanse.sources.observe import observe_batch, observe_record, prune
from cleanse.sources.types import MAX_COLUMNS, Types

_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')
_KEY = re.compile(rb'"[ \t\r\n]*:')
_PROBED = 64  # first records of a shard that show the parser which columns to expect
_SAFE = float(1 << 53)
Places = NDArray[np.int64]


class JsonParser:
    """Parses the blocks of one shard in order.

    Without ``types`` the kinds of values are learnt on the way, into ``facts.types`` (pass 1). With ``types``
    every batch has ``types.schema()``, and values of an unusual kind raise events (pass 2).
    """

    def __init__(self, source: Source, types: Types | None, facts: ShardFacts) -> None:
        self.source, self.facts = source, facts
        self.learning = types is None
        self._use(facts.types if types is None else types)
        self.schema = self.types.schema() if types is not None else None

    def parse(self, lines: Lines) -> tuple[RecordBlock, Candidates]:
        """The records of one block (blank texts are left out), and the state it was parsed in."""
        block = Candidates(lines)
        set_oversized_apart(block)
        check_shape(block)
        check_utf8(block)
        if self.target.has_json:
            batch = self._texts_apart(block) if self.target.json_is_mostly_text else None
        else:
            batch = self._at_once(block)
            if batch is None and self._drop_unparseable(block):
                batch = self._at_once(block)
        if batch is None:
            batch = self._one_by_one(block)
        batch = self.in_schema(batch)
        return self._finished(block, batch), block

    def in_schema(self, batch: pa.RecordBatch | None = None) -> pa.RecordBatch:
        """A batch (of no rows by default) with the schema of pass 2, or in pass 1 with the schema so far."""
        batch = empty(self.target.plain_schema) if batch is None else batch
        return cast_columns(batch, self.target.schema if self.schema is None else self.schema)

    def _use(self, types: Types) -> None:
        self.types = types
        self.target = decide(types)

    def _finished(self, block: Candidates, batch: pa.RecordBatch) -> RecordBlock:
        lines, index = block.lines, block.index()
        rows = index + lines.first_row
        self.facts.n_read += len(index) + len(block.strays)
        note_large(self.facts, batch, rows)
        return RecordBlock(
            batch=batch,
            rows=rows,
            strays=sorted(block.strays, key=lambda stray: stray.row),
            events=sorted(block.events, key=lambda event: event.row),
            raw=RawLines(np.frombuffer(lines.data, np.uint8), block.starts[index], lines.ends[index]),
            n_bytes=lines.n_bytes,
        )

    def _at_once(self, block: Candidates) -> pa.RecordBatch | None:
        """The whole block in one call; None when something in it needs a closer look."""
        n_good = int(block.good.sum())
        if n_good == 0:
            return empty(self.target.plain_schema)
        trial = self._probe(block) if self.learning and not self.types.root.fields else None
        target = decide(trial) if trial else self.target
        if target.has_json:
            return None
        batch = parse(block.buffer(), target.plain_schema, n_good)
        if batch is None or not self._numbers_hold(block, batch):
            return None
        if self.learning:
            if trial:
                trial.root.reset_counts()
                self.types.root.join(trial.root, limit=MAX_COLUMNS)
                self.target = target
            observe_batch(self.types, batch)
        return batch

    def _probe(self, block: Candidates) -> Types | None:
        """Types of the first few records: enough, mostly, to parse all others at once."""
        trial = Types()
        for i in block.index()[:_PROBED].tolist():
            text = block.text(i)
            try:
                value = orjson.loads(text)
            except orjson.JSONDecodeError:
                value = None
            if not self._is_plain(value, text, spaced=True):
                verdict = diagnose(text, last=False)
                value = verdict.value if verdict.kind is None else None
            if value is not None:
                self._learn(trial, value, block, i)
        return trial if trial.root.fields else None

    def _numbers_hold(self, block: Candidates, batch: pa.RecordBatch) -> bool:
        """Judges doubles that the block parser took without a word: NaN literals, integers beyond 2**53."""
        index, fine = block.index(), True
        for row in doubtful_rows(batch):
            i = int(index[row])
            if i in block.values:
                continue
            verdict = block.judge(i)
            fine &= verdict.kind is None and not (verdict.has_big and self.learning)
        return fine

    def _drop_unparseable(self, block: Candidates) -> bool:
        """Sets texts apart that are no JSON; whether there were any."""
        before = int(block.good.sum()) + len(block.values)
        for i in block.index().tolist():
            if i in block.values:
                continue
            try:
                orjson.loads(block.text(i))
            except orjson.JSONDecodeError:
                block.judge(i)
        return int(block.good.sum()) + len(block.values) != before

    def _texts_apart(self, block: Candidates) -> pa.RecordBatch | None:
        """The records with strings where JSON text is wanted at once, the others one by one.

        Worth it where such columns mostly hold strings. None where every record needs a closer look.
        """
        target, texts = self.target, block.good.copy()
        for i in block.index().tolist():
            value = block.values.get(i)
            try:
                texts[i] = value is None and holds_texts(orjson.loads(block.text(i)), target)
            except orjson.JSONDecodeError:
                texts[i] = False
        everything, block.good = block.good, texts
        n_texts = int(texts.sum())
        batch = parse(block.buffer(), target.plain_schema, n_texts) if n_texts else empty(target.plain_schema)
        held = batch is not None and self._numbers_hold(block, batch)
        block.good = everything & (block.good | ~texts)  # without those that were judged to be no records
        if batch is None or not held:
            return None
        others = self._records(block, block.index()[~texts[block.good]])
        if self.learning:
            observe_batch(self.types, batch)
            self._learn_all(block, others)
        if self.target.plain_schema != target.plain_schema:  # the others had something new
            return self._rewritten(block, self._records(block, block.index()))
        batch = quoted(batch, target)
        if not others:
            return batch
        rest = self._rewritten(block, others)
        order = np.argsort(np.concatenate([np.flatnonzero(texts), [i for i, _ in others if block.good[i]]]))
        joined = pa.Table.from_batches([batch, rest]).combine_chunks().to_batches()[0]
        return joined.take(pa.array(order))

    def _one_by_one(self, block: Candidates) -> pa.RecordBatch:
        """Every record on its own: learns types, rewrites what does not fit, then parses all of them again."""
        records = self._records(block, block.index())
        if self.learning:
            self._learn_all(block, records)
        return self._rewritten(block, records)

    def _records(self, block: Candidates, index: Places) -> list[tuple[int, dict[str, Any]]]:
        """Records as Python values; what is none after all is set apart."""
        spaced = _SPACED_COLON.search(block.lines.data) is not None
        loaded = ((i, self._load(block, i, spaced=spaced)) for i in index.tolist())
        return [(i, value) for i, value in loaded if value is not None]

    def _learn_all(self, block: Candidates, records: list[tuple[int, dict[str, Any]]]) -> None:
        for i, value in records:
            self._learn(self.types, value, block, i)
        prune(self.types)
        self.target = decide(self.types)

    def _rewritten(self, block: Candidates, records: list[tuple[int, dict[str, Any]]]) -> pa.RecordBatch:
        """The records with JSON text where their columns want it."""
        pieces = [self._fitted(block, i, value) for i, value in records]
        batch, refused = parse_pieces(pieces, self.target.plain_schema)
        for at, words in refused:
            if not self.learning and "unexpected field" in words:
                raise SourceError(
                    f"{self.source.name}: a record has a column that it did not have before; expected a file that "
                    "does not change during a scan"
                )
            i = records[at][0]
            block.set_apart(i, ReadEvent(EventKind.UNPARSEABLE, block.row(i), words))
        return batch

    def _load(self, block: Candidates, i: int, *, spaced: bool) -> dict[str, Any] | None:
        """One record as Python values; None (set apart) for a key that stands twice, or too large a number."""
        if i in block.values:
            return block.values[i]
        text = block.text(i)
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = None
        if self._is_plain(value, text, spaced=spaced):
            plain: dict[str, Any] = value
            return plain
        verdict = block.judge(i)
        return verdict.value if verdict.kind is None else None

    @staticmethod
    def _is_plain(value: Any, text: bytes, *, spaced: bool) -> bool:
        """Whether orjson surely lost nothing: as many keys as ``":`` in the text, no double beyond 2**53, not too deep.

        Every key is followed by a colon, so a key that was dropped as a duplicate leaves a colon too many.
        Strings may hold such pairs too: then the answer is no although nothing was lost.
        """
        if not isinstance(value, dict):
            return False
        n_keys, doubtful = _census(value)
        return not doubtful and n_keys == (len(_KEY.findall(text)) if spaced else text.count(b'":'))

    def _learn(self, types: Types, value: dict[str, Any], block: Candidates, i: int) -> None:
        lines, known = block.lines, len(types.root.fields)
        observe_record(types, value, (self.source.index, lines.base + int(lines.starts[i])))
        if len(types.root.fields) != known:
            for name in list(types.root.fields)[known:]:
                self.facts.first_rows.setdefault(name, block.row(i))

    def _fitted(self, block: Candidates, i: int, value: dict[str, Any]) -> bytes:
        """The text of a record, rewritten where its values do not have the types of their columns."""
        events: list[ReadEvent] = []
        made = coerce(value, self.target, block.row(i), events)
        if not self.learning:
            block.events += events
        return block.text(i) if made is value else dump(made)


def _census(value: Any, depth: int = 1) -> tuple[int, bool]:
    """How many keys a value has, nested ones included, and whether it needs a closer look.

    Doubtful are a double beyond 2**53, NaN, and nesting below which nothing is counted any more.
    """
    if depth > MAX_NESTING:
        return 0, True
    n_keys, doubtful = 0, False
    if type(value) is dict:
        n_keys, children = len(value), value.values()
    else:
        children = value
    for child in children:
        kind = type(child)
        if kind is str or kind is int:
            continue
        if kind is dict or kind is list:
            below, odd = _census(child, depth + 1)
            n_keys += below
            doubtful |= odd
        elif kind is float:
            doubtful |= not abs(child) < _SAFE
    return n_keys, doubtful
