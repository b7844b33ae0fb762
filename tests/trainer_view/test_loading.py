"""Every kind of tokenizer file gives the ids of its reference encoder."""

import base64
import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_tokenizers import path_of, real
from toy_tokenizer import toy

from cleanse.tokenizers_io import TokenizerError, load_tokenizer
from cleanse.tokenizers_io.ranks import CL100K, from_ranks
from cleanse.tokenizers_io.sentencepiece import parse_model

ODD = [
    "Hello w\u00f6rld 12345",
    "",
    " ",
    "  two  spaces \n\n\n end\t",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "cafe\u0301 \u1e9b\u0323",
    " " * 17 + "x",
    "\u12a0\u121b\u122d\u129b \u10e5\u10d0\u10e0\u10d7",
    "def f(x):\n\treturn x**2  # \u00bd",
]


@pytest.fixture(scope="module")
def documents(shared_data):
    lines = (shared_data / "clean" / "corpus.jsonl").read_bytes().splitlines()
    return ODD + [json.loads(line)["text"] for line in lines[::40]]


def test_sentencepiece_agrees_with_its_library(documents):
    spm = pytest.importorskip("sentencepiece")
    reference = spm.SentencePieceProcessor(str(path_of("mistral")))
    loaded = real("mistral")
    assert (loaded.vocab_size, loaded.family, loaded.pieces.unk, len(loaded.pieces.bytes)) == (32000, "llama2", 0, 256)
    controls = list(loaded.special)
    for text in documents:
        if not any(c in text for c in controls):  # there transformers' behaviour is wanted: control ids
            assert loaded.tokenizer.encode(text, add_special_tokens=False).ids == reference.encode(text)
    assert loaded.tokenizer.encode("<s>x</s>", add_special_tokens=False).ids[0] == 1


def test_tiktoken_ranks_agree_with_tiktoken(documents):
    tiktoken = pytest.importorskip("tiktoken")
    import unicodedata

    from cleanse.tokenizers_io.ranks import QWEN

    ranks = {}
    for line in path_of("qwen").read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    reference = tiktoken.Encoding("q", pat_str=QWEN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 151643})
    loaded = real("qwen")
    for text in documents:
        wanted = reference.encode(unicodedata.normalize("NFC", text), disallowed_special=())
        assert loaded.tokenizer.encode(text, add_special_tokens=False).ids == wanted
    assert loaded.special["<|im_start|>"] == 151644


def test_tekken_puts_control_tokens_first(documents):
    loaded = real("tekken")
    assert (loaded.vocab_size, loaded.special["</s>"], loaded.pieces.lossless) == (131072, 2, True)
    for text in documents[: len(ODD)]:
        ids = loaded.tokenizer.encode(text, add_special_tokens=False).ids
        assert loaded.tokenizer.decode(ids) == text


def test_a_model_folder_with_its_configuration():
    loaded = load_tokenizer(str(path_of("deepseek").parent))
    assert loaded.named["eos_token"] == "<\uff5cend\u2581of\u2581sentence\uff5c>"
    assert loaded.family == "deepseek"
    assert loaded.id_of("eos_token") == 1
    assert loaded.tokenizer.encode("hi").ids == loaded.tokenizer.encode("hi", add_special_tokens=False).ids


@pytest.fixture
def folder(tmp_path):
    toy(None).tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def write(folder, name, value):
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")


def test_configuration_gives_names_templates_ends_and_limit(folder):
    write(
        folder,
        "tokenizer_config.json",
        {
            "bos_token": {"content": "<|im_start|>"},
            "eos_token": "<|im_end|>",
            "pad_token": "<pad>",
            "add_bos_token": True,
            "add_eos_token": True,
            "model_max_length": 77,
            "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}],
            "added_tokens_decoder": {"258": {"content": "<x>", "special": False}},
        },
    )
    loaded = load_tokenizer(str(folder))
    assert loaded.named == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<pad>"}
    assert loaded.model_max_length == 77
    assert (loaded.template(), loaded.template(tools=True)) == ("D", "T")
    assert loaded.tokenizer.encode("a").tokens == ["<|im_start|>", "a", "<|im_end|>"]
    assert loaded.tokenizer.encode("<x>", add_special_tokens=False).ids == [258]
    assert "<x>" not in loaded.special
    write(folder, "chat_template.jinja", "J")
    assert load_tokenizer(str(folder)).template() == "J"
    assert load_tokenizer(str(folder), chat_template="{{ 1 }}").template() == "{{ 1 }}"
    assert load_tokenizer(str(folder / "tokenizer.json")).template() == "J"


def test_no_limit_is_no_limit(folder):
    write(folder, "tokenizer_config.json", {"model_max_length": 1e30})
    assert load_tokenizer(str(folder)).model_max_length is None


def test_fingerprint_tells_templates_apart(folder):
    plain = load_tokenizer(str(folder))
    assert plain.fingerprint == load_tokenizer(str(folder)).fingerprint
    assert plain.fingerprint != load_tokenizer(str(folder), chat_template="{{ 1 }}").fingerprint


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer.json", b"{}", "not a tokenizer.json"),
        ("x.model", b"\x00\x01garbage", "not a SentencePiece model"),
        ("x.model", b"", "has no pieces"),
        ("x.tiktoken", b"IQ== 0\nIg==", "line 2: expected a base64 token and its rank"),
        ("x.tiktoken", b"IQ== 0\n", "1 ranks, and how such a vocabulary splits text is not known"),
        ("tekken.json", b"{}", "not a tekken file"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TokenizerError, match=said):
        load_tokenizer(str(tmp_path / name))


def test_missing_things_are_named(tmp_path, monkeypatch):
    with pytest.raises(TokenizerError, match="none of the files of a tokenizer"):
        load_tokenizer(str(tmp_path))
    with pytest.raises(TokenizerError, match="not a hub id"):
        load_tokenizer(str(tmp_path / "no such file"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub

    def refuse(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(TokenizerError, match=r"owner/name: .*the hub gave none \(no route to host\)"):
        load_tokenizer("owner/name")
    toy_path = tmp_path / "tokenizer.json"
    toy(None).tokenizer.save(str(toy_path))
    with pytest.raises(TokenizerError, match="no chat template at"):
        load_tokenizer(str(toy_path), chat_template=str(tmp_path / "none.jinja"))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_model_or_refused(data):
    with contextlib.suppress(TokenizerError):
        parse_model(data, "bytes")


def test_ranks_merge_as_tiktoken_does():
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([b]): b for b in range(256)}
    for token in (b"ab", b"bc", b"abc", b"bcd", b"abcd", b" ab"):
        ranks[token] = len(ranks)
    ours = from_ranks(ranks, CL100K, ["<|e|>"])
    theirs = tiktoken.Encoding("t", pat_str=CL100K, mergeable_ranks=ranks, special_tokens={"<|e|>": len(ranks)})
    for text in ("abcd", "abc ab bcd", "aabbccdd", "bcbcd abab", "dcba"):
        assert ours.encode(text).ids == theirs.encode(text)
    assert ours.token_to_id("<|e|>") == len(ranks)
