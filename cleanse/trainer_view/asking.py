"""How a tokenizer and a trainer are asked for, on the command line and in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cleanse.errors import UsageError

if TYPE_CHECKING:
    from cleanse.trainer_view.context import TokenSource


def token_source(
    tokenizer: str | None, chat_template: str | None = None, training: Mapping[str, Any] | None = None
) -> TokenSource | None:
    """What ``--tokenizer`` and the options beside it come to; None where no tokenizer is named.

    Args:
        tokenizer: path or hub id.
        chat_template: a template, or the file of one, instead of the tokenizer's own.
        training: arguments of ``TrainerSettings.of``; None where the user said nothing.

    Raises UsageError where options make no sense, or nothing without a tokenizer.
    """
    chosen = {name: value for name, value in (training or {}).items() if value is not None}
    if tokenizer is None:
        if chosen or chat_template is not None:
            needless = ", ".join(sorted([*chosen, *(["chat_template"] if chat_template else [])]))
            raise UsageError(f"{needless} can only be judged with a tokenizer: add --tokenizer PATH_OR_ID")
        return None
    from cleanse.trainer_view.context import TokenSource  # noqa: PLC0415 - numba and tokenizers, only where asked for
    from cleanse.trainer_view.settings import TrainerSettings  # noqa: PLC0415

    try:
        return TokenSource(tokenizer, TrainerSettings.of(**chosen), chat_template)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
