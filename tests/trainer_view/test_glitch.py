"""Under-trained tokens are found from lists and from an embedding in which some rows were never trained."""

import numpy as np
import pytest
from safetensors.numpy import save_file
from toy_tokenizer import toy

from cleanse.tokenizers_io import TokenizerError
from cleanse.trainer_view.glitch import embedding_of, read_glitch_list, undertrained


def model(loaded, untrained, extra=40, width=48):
    """Trained rows point anywhere; untrained ones stay near one direction. ``extra`` rows have no token."""
    rng = np.random.default_rng(5)
    rows = loaded.vocab_size + extra
    matrix = rng.normal(size=(rows, width)).astype(np.float32)
    still = np.array([*untrained, *range(loaded.vocab_size, rows)])
    never = [loaded.tokenizer.token_to_id(chr(b)) for b in (0xC0, 0xC1, *range(0xF5, 0x100))]
    for i in [*still, *never]:
        matrix[i] = 0.1 * np.eye(width)[0] + rng.normal(size=width) * 0.003
    return matrix


def test_rows_like_the_unreachable_ones_are_found_and_no_others():
    loaded = toy()
    planted = [loaded.tokenizer.token_to_id(c) for c in "zQ~"]
    assert undertrained(model(loaded, planted), loaded) == tuple(sorted(planted))
    assert undertrained(model(loaded, []), loaded) == ()


def test_nothing_is_said_without_reference_rows():
    loaded = toy()
    assert undertrained(model(loaded, [3])[:100], loaded) == ()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_only_the_embedding_is_read(tmp_path, dtype):
    matrix = np.arange(12, dtype=dtype).reshape(4, 3)
    save_file({"model.embed_tokens.weight": matrix, "other": np.ones(5, np.float32)}, tmp_path / "model.safetensors")
    assert np.array_equal(embedding_of(str(tmp_path)), matrix.astype(np.float32))


def test_bfloat16(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save

    save({"lm_head.weight": torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16)}, tmp_path / "m.safetensors")
    assert embedding_of(str(tmp_path)).tolist() == [[1.5, -2.0]]


def test_bad_models_are_named(tmp_path):
    with pytest.raises(TokenizerError, match="no safetensors file"):
        embedding_of(str(tmp_path))
    (tmp_path / "x.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(TokenizerError, match="not a safetensors file"):
        embedding_of(str(tmp_path))


def test_lists(tmp_path):
    loaded = toy()
    path = tmp_path / "glitch.txt"
    path.write_text("z\n7\n\n", "utf-8")
    assert read_glitch_list(str(path), loaded) == tuple(sorted({7, loaded.tokenizer.token_to_id("z")}))
    path.write_text("z\nnot a token\n", "utf-8")
    with pytest.raises(TokenizerError, match=r"line 2: 'not a token' is no token"):
        read_glitch_list(str(path), loaded)
