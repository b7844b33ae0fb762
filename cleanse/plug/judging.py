"""The scan's judgement of one batch: the same rules, the same witnesses, the same verdicts, and no files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from cleanse import findings, inspection
from cleanse.blocks import RecordBlock
from cleanse.errors import CleanseError
from cleanse.formats import Format, detect
from cleanse.inspection import Inspector
from cleanse.probing.settings import ProbeSettings
from cleanse.reviewing.allow import AllowList
from cleanse.reviewing.releasing import hear
from cleanse.rulepacks import PackText, RuleSet, rules_from
from cleanse.sources import ReadOptions
from cleanse.splitting import ranks
from cleanse.verdicts import Policy, Rows, Verdicts, decide

if TYPE_CHECKING:
    from cleanse.trainer_view import TokenSource

HEAD = 100
"""Records that tell the format, as in a scan."""


@dataclass(frozen=True)
class Settings:
    """What a judge was told. Everything here can change a verdict."""

    format: str | Format = "auto"
    text_column: str | None = None
    tokens: TokenSource | None = None
    probe: ProbeSettings | None = None
    policy: Policy = field(default_factory=Policy)
    allow: AllowList = field(default_factory=AllowList)
    read: ReadOptions = field(default_factory=ReadOptions)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "format": self.format.to_json() if isinstance(self.format, Format) else self.format,
            "text_column": self.text_column,
            "tokenizer": self.tokens.tokenizer if self.tokens else None,
            "probe": self.probe.identity() if self.probe else None,
            "policy": vars(self.policy),
            "allow": self.allow.digest,
            "max_record_bytes": self.read.max_record_bytes,
        }


@dataclass(frozen=True)
class Judged:
    """What is known about the records of one block. Rows are positions in the batch."""

    findings: pa.Table  # ``FINDINGS_SCHEMA``, by row
    verdicts: Verdicts
    released: Rows  # held by rules, and kept by a person's decision
    doubted: Verdicts  # the same, as if every suspicion held its record: the reasons of those that stay too
    probe: pa.Table | None  # the columns of OUT/probe.parquet; None where nothing was measured


class Judge:
    """Judges blocks of records by fixed settings."""

    def __init__(self, settings: Settings, rules: RuleSet) -> None:
        """Raises UsageError where the tokenizer, PackError where a rule pack cannot be used."""
        self.settings, self.rules = settings, rules
        self._tokens = inspection.context_of(settings.tokens) if settings.tokens else None
        self._rank = ranks(rules)

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of everything that can change a verdict: settings, rules, measures, tokenizer, versions."""
        parts = [self.rules.fingerprint, self.settings.to_json(), self._tokens.fingerprint if self._tokens else None]
        return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()

    def format_of(self, block: RecordBlock) -> Format | None:
        """The format of a block; None where no record of it could be parsed.

        Raises FormatError where its columns fit no format, or not the one that was asked for.
        """
        if isinstance(self.settings.format, Format):
            return self.settings.format
        if block.batch.num_rows == 0:
            return None
        head = block.batch.slice(0, HEAD).to_pylist()
        return detect(head, name=self.settings.format, text_column=self.settings.text_column)

    def judge(self, block: RecordBlock) -> Judged:
        """Findings and verdicts for the records of a block. Raises FormatError; see ``format_of``."""
        fmt = self.format_of(block)
        found = Inspector(self.rules, fmt, self._tokens).inspect(block, "")
        probed = None
        if self.settings.probe is not None and fmt is not None:
            from cleanse.plug.witness import witness  # noqa: PLC0415 - only where a model is asked for

            told, probed = witness(block, fmt, found, self.rules, self.settings.probe)
            found = findings.merged([found, told])
        rows = np.fromiter((stray.row for stray in block.strays), np.int64, len(block.strays))
        policy = self.settings.policy
        doubted = decide(found, rows, Policy(hold_suspects=True, repair=policy.repair), self._rank)
        reviewed = hear(
            self.settings.allow,
            block.batch,
            block.rows,
            fmt=fmt,
            found=found,
            verdicts=decide(found, rows, policy, self._rank),
            rules=self.rules,
            source="",
        )
        return Judged(reviewed.findings, reviewed.verdicts, reviewed.released, doubted, probed)


def restore(settings: Settings, packs: tuple[PackText, ...], fingerprint: str) -> Judge:
    """The judge that was pickled. Raises CleanseError where this installation judges otherwise."""
    judge = _restored(settings, packs)
    if judge.fingerprint != fingerprint:
        raise CleanseError(
            "the filter was made with another version of cleanse, of its rules or of its tokenizer: make it again here"
        )
    return judge


@lru_cache(maxsize=4)
def _restored(settings: Settings, packs: tuple[PackText, ...]) -> Judge:
    return Judge(settings, rules_from(packs))
