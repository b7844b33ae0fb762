"""What stands beside a diagnosis: rules, bf16, the worst tokens in their text, and what the answer relies on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cleanse.replaying.content import DataRow
from cleanse.replaying.diagnosis import Diagnosis, Kind
from cleanse.replaying.locating import Located
from cleanse.replaying.measuring import Measured, Worst
from cleanse.replaying.result import WorstToken, finite
from cleanse.replaying.steps import RowId
from cleanse.replaying.tokens import Encoded
from cleanse.tokenizers_io import LoadedTokenizer

_AROUND = 12  # tokens shown on each side of the worst


def finite_in_bf16(
    diagnosis: Diagnosis, measured: Measured, probe: Any, module: Any, encoded: Mapping[RowId, Encoded]
) -> bool | None:
    """Whether the rows that overflow would not in bf16; None where that is no question or cannot be tried here."""
    if diagnosis.kind is not Kind.PRECISION or measured.step.precision != "fp16":
        return None
    rows = diagnosis.culprits or tuple(r.row for r in measured.step.rows if r.n_supervised)
    scale = measured.step.loss_scale or 1.0
    try:
        tried = [
            probe.half(
                module.ProbeRecord(ids=encoded[row].ids, supervised=encoded[row].supervised),
                weight=max(measured.step.weight(r) for r in measured.step.rows if r.row == row),
                loss_scale=scale,
                dtype="bfloat16",
            )
            for row in rows
        ]
    except (ValueError, RuntimeError):
        return None
    return all(finite(x.loss) and finite(x.grad_norm) for x in tried)


def about_bf16(found: bool | None) -> str:
    """Whether bf16 ends an overflow, in words."""
    if found is None:
        return ""
    return "Replayed in bf16 it is finite." if found else "Replayed in bf16 it is not finite either."


def about_rules(diagnosis: Diagnosis, content: Mapping[RowId, DataRow]) -> str:
    """Which rule stands beside the figures of the rows that are accused; where none is, of those of the step."""
    rows = diagnosis.culprits or tuple(r.row for r in diagnosis.ranking)
    rejected = [(row, r.rule) for row in rows for r in content[row].reasons[:1] if r.action == "reject"]
    said = [f"row {row} ({rule})" for row, rule in rejected[:3]]
    return f"By the rules alone {', '.join(said)} would be rejected." if said else ""


def remarks(located: Located, checkpoint: int | None, problems: Mapping[RowId, str]) -> list[str]:
    """Rows that took no part, and a checkpoint that is not the one before the step."""
    said = [f"row {row} took no part in the replay: {why}" for row, why in list(problems.items())[:5]]
    if located.step is None or checkpoint is None or checkpoint == located.step - 1:
        return said
    if checkpoint >= located.step:
        return [*said, f"the checkpoint is of step {checkpoint}: it has already learnt from step {located.step}"]
    apart = located.step - 1 - checkpoint
    return [*said, f"the checkpoint is {apart} steps older than the step: figures are those of its weights"]


def worst_tokens_of(
    worst: Mapping[RowId, Worst], encoded: Mapping[RowId, Encoded], loaded: LoadedTokenizer | None
) -> dict[RowId, WorstToken]:
    """The worst token of each row in its text; its number, where there is no tokenizer to read it."""
    made = {}
    for row, found in worst.items():
        ids, i = encoded[row].ids, found.index
        parts = (ids[max(0, i - _AROUND) : i], ids[i : i + 1], ids[i + 1 : i + 1 + _AROUND])
        before, text, after = (_decoded(part.tolist(), loaded) for part in parts)
        made[row] = WorstToken(i, found.loss, before, text, after)
    return made


def _decoded(ids: list[int], loaded: LoadedTokenizer | None) -> str:
    if loaded is None:
        return " ".join(map(str, ids))
    return str(loaded.tokenizer.decode(ids, skip_special_tokens=False))
