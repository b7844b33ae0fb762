"""Which tokenizer a scan uses, and what it is told about the model to be trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from toy_tokenizer import toy

from cleanse.errors import UsageError
from cleanse.probing.settings import ProbeSettings
from cleanse.tokenizers_io import EMBEDDED, load_tokenizer
from cleanse.trainer_view.asking import token_source


def model_folder(path: Path, *, glitch: str | None = None) -> Path:
    """A folder with the toy tokenizer and an embedding in which untrained rows, and ``glitch``, lie together."""
    loaded = toy()
    path.mkdir(exist_ok=True)
    loaded.tokenizer.save(str(path / "tokenizer.json"))
    random = np.random.default_rng(0)
    size = loaded.vocab_size + 8
    matrix = random.normal(size=(size, 32)).astype(np.float32)
    untrained = np.zeros(32, np.float32)
    untrained[0] = 1e-2
    matrix[loaded.vocab_size :] = untrained + random.normal(size=(8, 32)).astype(np.float32) * 1e-5
    if glitch is not None:
        matrix[loaded.tokenizer.token_to_id(glitch)] = untrained
    save_file({"lm_head.weight": matrix}, path / "model.safetensors")
    return path


def test_without_a_tokenizer_the_embedded_one_stands_in_and_says_so() -> None:
    source = token_source(None, probe=ProbeSettings())
    assert source is not None
    context = source.load()
    assert context.loaded.vocab_size == load_tokenizer(EMBEDDED).vocab_size == 8192
    assert len(context.warnings) == 1
    assert "no --tokenizer given" in context.warnings[0]


def test_no_probe_or_none_means_no_token_checks() -> None:
    assert token_source(None, probe=None) is None
    assert token_source("none", probe=ProbeSettings()) is None


@pytest.mark.parametrize("training", [{"max_length": 5}, {"trainer": "trl"}])
def test_a_stand_in_does_not_judge_lengths(training: dict[str, object]) -> None:
    source = token_source("embedded", training=training)
    assert source is not None  # asked for by name: the user knows whose lengths they are
    with pytest.raises(UsageError, match="add --tokenizer"):
        token_source(None, training=training, probe=ProbeSettings())


def test_a_model_folder_brings_tokenizer_and_embedding(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", glitch="z")
    source = token_source(None, training={"max_length": 9}, probe=ProbeSettings(model=str(folder)))
    assert source is not None
    context = source.load()
    assert context.settings.max_length == 9
    assert context.settings.model_vocab_size == toy().vocab_size + 8
    assert toy().tokenizer.token_to_id("z") in context.glitch


def test_listed_and_measured_glitch_tokens_count_both(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", glitch="z")
    listed = tmp_path / "glitch.txt"
    listed.write_text("a\n")
    source = token_source(str(folder), glitch_list=str(listed))
    assert source is not None
    ids = {toy().tokenizer.token_to_id(text) for text in "az"}
    assert ids <= set(source.load().glitch)


def test_a_missing_list_is_an_error_that_names_it(tmp_path: Path) -> None:
    source = token_source("embedded", glitch_list=str(tmp_path / "none.txt"))
    assert source is not None
    with pytest.raises(Exception, match=r"none\.txt"):
        source.load()
