"""A capsule: everything about one step in a folder, so that someone else can replay it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cleanse.replaying.skipping import SkipList, write_atomically
from cleanse.replaying.steps import RowId

_README = """# The rows of {step}

`rows.jsonl`: the rows as they were in the data, one JSON object per line: `row`, `record`.
`capsule.json`: which step, which settings, what was measured.
{skip}
Replay it:

    cleanse replay rows.jsonl --ids capsule.json --model CHECKPOINT{options}

{recipe}
"""


def write_capsule(
    folder: str | Path,
    *,
    step: int | None,
    rows: Sequence[RowId],
    rows_before: Sequence[RowId] = (),
    micro_batches: Sequence[Sequence[Sequence[RowId]]] = (),
    history: Sequence[Mapping[str, float]] = (),
    records: Mapping[RowId, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    figures: Mapping[str, Any] | None = None,
    skip: SkipList | None = None,
    recipe: str = "",
    options: str = "",
) -> Path:
    """Write the folder and give its path.

    Args:
        folder: made if missing; files in it are replaced, each whole or not at all.
        step: the global step.
        rows: row ids of the step.
        rows_before: those of the step before: what the step is compared with.
        micro_batches: ``[rank][k]`` the rows of that rank's k-th forward pass, where it is known.
        history: what the run logged around the step.
        records: the rows' content, as JSON has it, where it is at hand.
        settings: of the run: trainer, seeds, batch sizes, precision, loss scale.
        figures: what was measured: loss, gradient norm, a diagnosis.
        skip: written as ``skip.json`` beside it.
        recipe: how to go on, in words (see ``resume_recipe``).
        options: of ``cleanse replay``, to replay it as it was.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"row": row, "record": json_safe(records[row])}, ensure_ascii=True)
        for row in dict.fromkeys((*rows, *rows_before))
        if records is not None and row in records
    ]
    write_atomically(folder / "rows.jsonl", "".join(f"{line}\n" for line in lines))
    content = {
        "format": 1,
        "step": step,
        "rows": list(rows),
        "rows_before": list(rows_before),
        "micro_batches": [[list(micro) for micro in rank] for rank in micro_batches],
        "history": json_safe(list(history)),
        "settings": json_safe(dict(settings or {})),
        "figures": json_safe(dict(figures or {})),
    }
    write_atomically(folder / "capsule.json", json.dumps(content, indent=1, ensure_ascii=True, allow_nan=False) + "\n")
    if skip is not None:
        skip.write(folder / "skip.json")
    note = "`skip.json`: the rows to skip when the run goes on.\n" if skip is not None else ""
    write_atomically(
        folder / "README.md",
        _README.format(
            step=f"step {step}" if step is not None else "a batch", options=options, skip=note, recipe=recipe
        ),
    )
    return folder


def resume_recipe(
    step: int | None, skip: Sequence[RowId], *, checkpoint_step: int | None = None, trainer: str = "hf"
) -> str:
    """How to go on, in words: which checkpoint, which steps, what not to do.

    Args:
        step: the step that spiked; None where it is not known.
        skip: the rows to skip; empty where no row is at fault.
        checkpoint_step: global step of the newest checkpoint before it, where it is known.
        trainer: as in ``cleanse.order``.
    """
    name = f"step {step}" if step is not None else "these rows were fed"
    at = f"checkpoint of step {checkpoint_step}" if checkpoint_step is not None else f"newest checkpoint before {name}"
    replayed = f"the steps up to {step}" if step is not None else "the steps after it"
    if checkpoint_step is not None and step is not None:
        replayed = f"steps {checkpoint_step + 1} to {step}"
    same = "with the same seeds, batch sizes, accumulation and world size"
    parts = [f"Resume from the {at}, {same}: {replayed} are then fed the same rows again."]
    if trainer in {"hf", "trl", "llama-factory", "ms-swift"}:
        parts.append("Leave ignore_data_skip off.")
    if skip:
        parts.append(
            "Wrap the collator in cleanse.SkipCollator(collator, 'skip.json') and the dataset in "
            "cleanse.WithRowIds. Do not delete the rows: that changes the order of all others."
        )
    else:
        parts.append("Skip no rows: none is at fault.")
    return " ".join(parts)


def json_safe(value: Any) -> Any:
    """The value with what JSON cannot hold as text: NaN and infinities, bytes, tuples, objects."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, str | int) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(k): json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_safe(v) for v in value]
    if isinstance(value, bytes):
        return value.hex()
    tolist = getattr(value, "tolist", None)
    return json_safe(tolist()) if callable(tolist) else str(value)
