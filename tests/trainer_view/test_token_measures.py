"""Measures of the token pack, each on both sides of its limit."""

import functools

import numpy as np
import pytest
from real_tokenizers import real
from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from toy_tokenizer import context, seen, talk, toy

from cleanse import measures
from cleanse.rulepacks import load_packs
from cleanse.tokenizers_io import LoadedTokenizer


def of(name, text, ctx):
    return measures.get(name).compute(seen([talk("q", text)], ctx).texts)[1]


@functools.cache
def packs():
    return load_packs()


def rules_on(text, ctx):
    rules = packs()
    texts = seen([talk("q", text)], ctx).texts
    return {rules.rules[i].id for i in rules.evaluate(texts).rule}


@pytest.mark.parametrize("name", ["qwen", "deepseek"])
def test_density_is_measured_against_the_script(name):
    ctx = context(loaded=real(name))
    plain = "The committee will meet again on Thursday to discuss the budget for the coming year. " * 3
    amharic = "\u12e8\u1230\u12cd \u120d\u1305 \u1201\u1209 \u1232\u12c8\u1208\u12f5 \u1290\u133b \u1290\u12cd " * 6
    garbage = plain.encode().hex()
    misread = ("\u0567\u0576\u057f\u0565\u0580 " * 40).encode().decode("latin-1")
    assert of("token_density", plain, ctx) < 1.2
    assert of("token_density", amharic, ctx) < 1.6
    assert of("token_density", misread, ctx) > 2.3
    assert of("token_density", garbage, ctx) > of("token_density", plain, ctx)
    assert "tokens.dense" in rules_on(misread, ctx)
    assert "tokens.dense" not in rules_on(amharic, ctx)


def test_density_that_decides_is_exact():
    ctx = context(loaded=real("deepseek"))
    text = ("\u00c3\u00a9\u00c2\u00b7 " * 60) + "   1   2"
    batch_ids = ctx.loaded.tokenizer.encode(text, add_special_tokens=False).ids
    usual = ctx.__dict__
    density = of("token_density", text, ctx)
    assert density == pytest.approx(len(batch_ids) / len(text) / usual["_usual_density"]["Latn"])


def test_repeats_count_tokens_not_words():
    ctx = context(loaded=real("qwen"))
    assert of("token_repeats", "ab" * 400, ctx) >= 32
    assert of("token_repeats", "spam and eggs " * 40, ctx) >= 32
    assert of("token_repeats", "spam and eggs " * 20, ctx) < 32
    assert "tokens.repeats" in rules_on("one two three four five six " * 60, ctx)
    assert "tokens.repeats" not in rules_on("Each sentence says something else, as this one does. " * 3, ctx)


def unknowing():
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "the": 1, "cat": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken("[UNK]", special=True)])
    return LoadedTokenizer(tokenizer, "words", {"unk_token": "[UNK]"})


def test_unknown_share_and_changed_words():
    ctx = context(loaded=unknowing())
    assert of("unknown_token_share", "the cat " * 20 + "dog", ctx) < 0.1
    assert of("unknown_token_share", "the dog ran " * 20, ctx) > 0.5
    assert "tokens.unknown" in rules_on("the dog ran " * 20, ctx)
    assert np.isnan(of("unknown_token_share", "dog", ctx))  # too short to say


def test_changed_words_by_a_normaliser():
    ctx = context(loaded=real("qwen"))
    assert of("changed_words", "cafe\u0301 and cafe\u0301", ctx) == 2
    assert of("changed_words", "caf\u00e9", ctx) == 0
    assert of("changed_words", "cafe\u0301", context(loaded=real("deepseek"))) == 0  # byte-level, no normaliser
    assert of("changed_words", "two  spaces, \u4f60\u597d", context(loaded=real("mistral"))) == 0


def test_byte_share():
    ctx = context(loaded=real("mistral"))
    assert of("byte_token_share", "plain words only, and many of them, " * 3, ctx) == 0
    assert of("byte_token_share", "\U00012000\U00012001" * 20, ctx) > 0.9
    assert "tokens.bytes" in rules_on("\U00012000\U00012001" * 20, ctx)


def test_glitch_tokens_and_ids_beyond_the_embedding():
    letter = toy().tokenizer.token_to_id("z")
    assert of("glitch_tokens", "zebra", context(glitch=[letter])) == 1
    assert of("glitch_tokens", "horse", context(glitch=[letter])) == 0
    assert np.isnan(of("glitch_tokens", "zebra", context()))
    assert of("tokens_beyond_embedding", "a\u00e4", context(model_vocab_size=120)) > 0
    assert of("tokens_beyond_embedding", "abc", context(model_vocab_size=120)) == 0
    assert "tokens.beyond-embedding" in rules_on("a\u00e4", context(model_vocab_size=120))


def test_warnings_about_tokenizer_and_template():
    assert context().warnings == ()
    assert "no chat template" in context(None).warnings[0]
    assert "257 rows" in context(model_vocab_size=257).warnings[0]
    silent = "{% for m in messages %}<|im_start|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    silent += "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>{% endfor %}"
    assert "end-of-turn token" in context(silent).warnings[0]


def test_estimates_do_not_depend_on_what_came_before():
    rows = [talk("q" * n, "a" * 5) for n in range(40, 70)]
    fresh = [measures.get("tokens_over_length").compute(seen([row], context(max_length=64)).texts)[0] for row in rows]
    together = measures.get("tokens_over_length").compute(seen(rows, context(max_length=64)).texts)[::2]
    exact = [max(n + 5 + 24 - 64, 0) for n in range(40, 70)]
    assert list(together) == fresh
    assert [x > 0 for x in fresh] == [x > 0 for x in exact]
