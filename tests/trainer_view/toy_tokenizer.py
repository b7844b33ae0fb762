"""A tokenizer small enough to count by hand: one id per byte, ChatML control tokens, a chat template."""

import cleanse.rules  # noqa: F401 - registers the measures
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from cleanse.formats import detect, view
from cleanse.tokenizers_io import LoadedTokenizer
from cleanse.trainer_view import TokenContext, TrainerSettings

MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{{ '\\n' }}"
    "{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
UNMARKED = MARKED.replace("{% generation %}", "").replace("{% endgeneration %}", "")
STRICT = (
    "{% for m in messages %}"
    "{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('Unknown role: ' + m.role) }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)


def toy(template=MARKED, **named):
    """One id per byte (ids below 256), then <|im_start|> 256, <|im_end|> 257."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(t, normalized=False, special=True) for t in ("<|im_start|>", "<|im_end|>")]
    )
    templates = {} if template is None else {"default": template}
    return LoadedTokenizer(tokenizer, "toy", {"eos_token": "<|im_end|>", **named}, templates)


def context(template=MARKED, loaded=None, glitch=(), **settings):
    """A context of the toy tokenizer (or another)."""
    trainer = settings.pop("trainer", "generic")
    return TokenContext(loaded or toy(template), TrainerSettings.of(trainer, **settings), glitch)


def seen(rows, ctx):
    """The texts of some records, with the context attached."""
    import pyarrow as pa

    found = view(detect(rows), pa.RecordBatch.from_pylist(rows))
    ctx.attach(found.texts)
    return found


def talk(*said):
    """A messages record from alternating user and assistant texts."""
    return {"messages": [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]}
