"""Watches a training run: a ledger of rows per step, spike rules, capsules. Imports no framework."""

from __future__ import annotations

from cleanse.guard.core import Answer, Guard, Judgement
from cleanse.guard.ledger import Ledger, LedgerWriter
from cleanse.guard.rules import SpikeDetector, SpikeRules

__all__ = ["Answer", "Guard", "Judgement", "Ledger", "LedgerWriter", "SpikeDetector", "SpikeRules"]
