"""Guards every Hugging Face Trainer of a process, for programs that make their Trainer themselves.

ms-swift: ``--external_plugins`` with the path of this file. Anything else: ``import cleanse.guard.plugin`` and
``cleanse.guard.plugin.install()`` before the training starts, or nothing but this in a ``sitecustomize``.

Settings come from the environment: ``CLEANSE_GUARD`` (folder, default ``cleanse-guard``), ``CLEANSE_GUARD_ACTION``
(``go_on``, ``skip``, ``stop``), ``CLEANSE_SKIP`` (path of a ``skip.json``).
"""

from __future__ import annotations

import logging
import os
from typing import Any

from transformers import Trainer

from cleanse.guard.core import Guard
from cleanse.replaying.skipping import SkipList

log = logging.getLogger("cleanse.guard")

_plain_train = Trainer.train


def _guarded_train(self: Any, *args: Any, **kwargs: Any) -> Any:
    if not getattr(self, "_cleanse_guarded", False):
        self._cleanse_guarded = True
        skip = os.environ.get("CLEANSE_SKIP")
        guard = Guard(
            os.environ.get("CLEANSE_GUARD", "cleanse-guard"), action=os.environ.get("CLEANSE_GUARD_ACTION", "go_on")
        )
        skip_list = SkipList.read(skip) if skip else None
        try:
            guard.attach(self, skip_list)
        except TypeError as error:
            if skip_list is not None:
                raise  # rows that were to be skipped would be trained on
            log.warning("this training runs without a guard: %s", error)
    return _plain_train(self, *args, **kwargs)


def install() -> None:
    """Guard every Trainer whose ``train`` is called from now on."""
    _set(_guarded_train)


def uninstall() -> None:
    """Leave Trainers alone again; those already guarded stay so."""
    _set(_plain_train)


def _set(train: Any) -> None:
    trainer: Any = Trainer
    trainer.train = train


if __name__ != "cleanse.guard.plugin":  # loaded by its path, as ms-swift loads external plugins
    install()
