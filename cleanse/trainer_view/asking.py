"""How a tokenizer and a trainer are asked for, on the command line and in Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanse.errors import UsageError

if TYPE_CHECKING:
    from cleanse.probing.settings import ProbeSettings
    from cleanse.trainer_view.context import TokenSource


NONE, EMBEDDED = "none", "embedded"


def token_source(
    tokenizer: str | None,
    chat_template: str | None = None,
    training: Mapping[str, Any] | None = None,
    *,
    glitch_list: str | None = None,
    probe: ProbeSettings | None = None,
) -> TokenSource | None:
    """What ``--tokenizer`` and the options beside it come to; None where no tokenizer is to be used.

    Args:
        tokenizer: path or hub id, "embedded", or "none". None: that of the probe's model, be it a folder or
            the embedded one.
        chat_template: a template, or the file of one, instead of the tokenizer's own.
        training: arguments of ``TrainerSettings.of``; None where the user said nothing.
        glitch_list: file of under-trained tokens, one a line.
        probe: settings of the probe; a model folder there is taken for the model to be trained.

    Raises UsageError where options make no sense, or nothing without a tokenizer.
    """
    chosen = {name: value for name, value in (training or {}).items() if value is not None}
    given = {**chosen, "chat_template": chat_template, "glitch_tokens": glitch_list}
    tokenizer = tokenizer or _of_model(probe)
    if tokenizer in {None, NONE}:
        needless = ", ".join(sorted(name for name, value in given.items() if value is not None))
        if needless:
            raise UsageError(f"{needless} can only be judged with a tokenizer: add --tokenizer PATH_OR_ID")
        if tokenizer == NONE or probe is None or probe.model != EMBEDDED:
            return None
    from cleanse.trainer_view.context import TokenSource  # noqa: PLC0415 - numba and tokenizers, only where asked for
    from cleanse.trainer_view.settings import TrainerSettings  # noqa: PLC0415

    try:
        settings = TrainerSettings.of(**chosen)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    if tokenizer is None:
        return TokenSource(EMBEDDED, settings, stand_in=True)
    return TokenSource(tokenizer, settings, chat_template, glitch_list, _trained(tokenizer, probe))


def _of_model(probe: ProbeSettings | None) -> str | None:
    """The model folder that the probe was given, where a tokenizer lies in it: the user's own model, as a rule."""
    has_one = probe is not None and any(Path(probe.model).glob("tokenizer*"))
    return probe.model if probe and has_one else None


def _trained(tokenizer: str, probe: ProbeSettings | None) -> str | None:
    """The folder whose weights show what the model to be trained has learnt; None where there is none."""
    for folder in (probe.model if probe else "", tokenizer):
        if folder and any(Path(folder).glob("*.safetensors")):
            return folder
    return None
