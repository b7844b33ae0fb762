"""``cleanse.Filter``: the scan's verdicts for ``datasets.filter`` and ``datasets.map``, and for anything like them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cleanse.config import ALWAYS
from cleanse.errors import UsageError
from cleanse.formats import Format, detect
from cleanse.mending import mend, wanted
from cleanse.plug.batches import Batch, batch_of
from cleanse.plug.judging import HEAD, Judge, Judged, Settings, restore
from cleanse.plug.telling import columns_of
from cleanse.probing.recipes import settle
from cleanse.reviewing.allow import AllowList
from cleanse.rulepacks import PackText, load_packs
from cleanse.sources import ReadOptions
from cleanse.trainer_view.asking import token_source
from cleanse.verdicts import Policy

SUSPECTS = ("keep", "quarantine")


class Filter:
    """Says which records of a batch a scan would keep.

    ``ds.filter(Filter(), batched=True)`` keeps what ``cleanse scan --no-corpus --probe none`` puts in clean/;
    ``ds.map(Filter().annotate, batched=True)`` adds verdict, reasons and findings as columns;
    ``ds.map(Filter().repair, batched=True)`` mends text where a repair rule can. All work on ``Dataset``,
    ``DatasetDict`` and ``IterableDataset``, with ``num_proc`` and with every ``with_format``.

    A filter pickles, and its fingerprint covers rules, measures, tokenizer and versions: ``datasets`` finds its cache
    again in a second run, and not after a rule changed.
    """

    def __init__(
        self,
        rules: str | Sequence[str] = ("default",),
        *,
        format: str = "auto",  # noqa: A002 - named as the command line's option is
        text_column: str | None = None,
        tokenizer: str | None = None,
        chat_template: str | None = None,
        training: Mapping[str, Any] | None = None,
        glitch_tokens: str | None = None,
        probe: str = "none",
        probe_options: Mapping[str, Any] | None = None,
        suspects: str = "keep",
        allow: Sequence[str | os.PathLike[str]] = (),
        max_record_bytes: int = 64 << 20,
    ) -> None:
        """Loads rules and tokenizer; the probe's model waits for the first suspect.

        Args:
            rules: rule packs: names or paths of TOML files.
            format: how columns make a training record; "auto" looks at the first records of each batch (``like``
                looks at those of a dataset once).
            text_column: judge this column as plain text instead.
            tokenizer: path or hub id of the tokenizer whose view of the data is to be checked; "none" for no such
                checks. Without it the embedded model's is used where the probe runs with it.
            chat_template: a template, or the file of one, instead of the tokenizer's own.
            training: the trainer's settings, arguments of ``cleanse.trainer_view.TrainerSettings.of``.
            glitch_tokens: file of under-trained tokens, one a line, as text or as id.
            probe: "none", "auto", or a recipe: suspects of a batch are replayed beside its other records.
            probe_options: settings of ``cleanse.probing.settings.ProbeSettings``; ``{"scope": "all"}`` measures
                every record.
            suspects: "keep" or "quarantine" them.
            allow: allow lists of ``cleanse release``: what people released stays.
            max_record_bytes: longer records are not kept.

        Raises:
            UsageError: an option, the tokenizer or the probe cannot be used.
            PackError: a rule pack cannot be used.
        """
        if suspects not in SUSPECTS:
            raise UsageError(f"suspects is {suspects!r}: expected one of {', '.join(SUSPECTS)}")
        asked, remark = settle(probe, probe_options or {})
        if remark:
            warnings.warn(remark, stacklevel=2)
        settings = Settings(
            format=format,
            text_column=text_column,
            tokens=token_source(tokenizer, chat_template, training, glitch_list=glitch_tokens, probe=asked),
            probe=asked,
            policy=Policy(hold_suspects=suspects == "quarantine"),
            allow=AllowList.read(map(Path, allow)),
            read=ReadOptions(max_record_bytes=max_record_bytes),
        )
        packs = (rules,) if isinstance(rules, str) else rules
        self._judge = Judge(settings, load_packs(tuple(dict.fromkeys((*packs, *ALWAYS)))))

    @classmethod
    def _of(cls, judge: Judge) -> Filter:
        made = cls.__new__(cls)
        made._judge = judge  # noqa: SLF001 - its own class
        return made

    def like(self, records: Iterable[Mapping[str, Any]]) -> Filter:
        """The same filter with the format of a dataset's first records, for every batch of it.

        Worth it where the first records of a batch may look unlike the others: columns that are empty for long
        stretches. Reads 100 records of ``records``, a dataset or any iterable of them.

        Raises FormatError where their columns fit no format, or not the one that was asked for.
        """
        settings = self._judge.settings
        if isinstance(settings.format, Format):
            return self
        found = detect(list(islice(records, HEAD)), name=settings.format, text_column=settings.text_column)
        return self._of(Judge(replace(settings, format=found), self._judge.rules))

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of everything that can change a verdict."""
        return self._judge.fingerprint

    def __call__(self, batch: Any) -> list[bool]:
        """Which records of a batch to keep.

        Args:
            batch: a mapping of columns, an Arrow table, a pandas or polars frame, or a list of records.

        Raises:
            UsageError: this is no batch.
            FormatError: its columns fit no format, or not the one that was asked for.
        """
        taken, judged = self._judged(batch)
        kept = np.ones(taken.n_records, np.bool_)
        kept[judged.verdicts.held] = False
        return kept.tolist()

    def annotate(self, batch: Any) -> pa.Table | dict[str, list[Any]]:
        """A batch with ``cleanse_verdict``, ``cleanse_reasons`` and ``cleanse_findings``; it loses no record.

        The verdict is "keep", "repair" (kept, and ``repair`` would change it), "suspect" (kept, and under suspicion),
        "release" (kept, because an allow list says so) or "quarantine". Reasons are ids of the rules that speak against
        the record, strongest first; findings have the columns of findings.parquet without source and row. With a
        probe, ``cleanse_loss`` (nats per token), ``cleanse_grad_norm`` and ``cleanse_p_value`` tell what was measured,
        null where nothing was.

        Takes what a call takes and raises what it raises; UsageError too where columns of these names are there.
        """
        taken, judged = self._judged(batch)
        added = columns_of(judged, taken.n_records, probed=self._judge.settings.probe is not None)
        there = sorted(set(added.column_names) & set(taken.names))
        if there:
            raise UsageError(f"the data has columns {', '.join(there)} already: remove or rename them first")
        return taken.with_columns(added)

    def repair(self, batch: Any) -> pa.Table | dict[str, list[Any]]:
        """A batch in which repair rules mended the text of the records that stay; it loses no record.

        ``ds.filter(f, batched=True).map(f.repair, batched=True)`` has the records of a scan's clean/.
        Takes what a call takes and raises what it raises.
        """
        taken, judged = self._judged(batch)
        return taken.with_texts(self._edits(taken, judged))

    def _judged(self, given: Any) -> tuple[Batch, Judged]:
        taken = batch_of(given, self._judge.settings.read)
        return taken, self._judge.judge(taken.block)

    def _edits(self, taken: Batch, judged: Judged) -> dict[int, Mapping[str, str]]:
        """Position in the batch -> field -> new text."""
        rules, rows = self._judge.rules, taken.block.rows
        asked = wanted(judged.findings, rows, judged.verdicts.mended, lambda rule: rules.get(rule).repair is not None)
        edits = mend(taken.block.batch, asked, rules.mend).edits
        return {int(rows[position]): fields for position, fields in edits.items()}

    def __reduce__(self) -> tuple[Callable[..., Filter], tuple[Settings, tuple[PackText, ...], str]]:
        return _restore, (self._judge.settings, self._judge.rules.packs, self.fingerprint)


def _restore(settings: Settings, packs: tuple[PackText, ...], fingerprint: str) -> Filter:
    return Filter._of(restore(settings, packs, fingerprint))  # noqa: SLF001 - its own class
