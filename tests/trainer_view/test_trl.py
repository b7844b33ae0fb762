"""Supervised tokens left equal those of TRL's own preparation, record by record."""

import json
import logging
import random
import types
from pathlib import Path

import pytest
from real_tokenizers import path_of

from cleanse.formats import conversation, detect
from cleanse.tokenizers_io import load_tokenizer
from cleanse.trainer_view import Trainer, TrainerSettings

trl = pytest.importorskip("trl")
pytest.importorskip("transformers")

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
MODELS = [
    ("qwen", "qwen3_training.jinja"),
    ("deepseek", "deepseekv3_training.jinja"),
    ("mistral", "phi3_training.jinja"),
]
ODD = [
    *("", " ", "\n\n", "  lead", "trail  \n", "a<|im_end|>b", "</s><s>[INST]", "x\u0000y", "e\u0301" * 40),
    *("\U0001f468\u200d\U0001f469\u200d\U0001f467" * 5, "\u4f60\u597d\uff0c\u4e16\u754c", "<think>hm</think>answer"),
    *("tab\tend\t", "\r\n", "\ufb01 ligature \u00bd"),
]


@pytest.fixture(scope="module")
def talks(shared_data):
    """A few hundred conversations: real ones joined to several turns, and odd ones."""
    rows = [json.loads(line) for line in (shared_data / "clean" / "sft.jsonl").read_bytes().splitlines()]
    rng = random.Random(3)
    found = []
    for row in rng.sample(rows, 140):
        turns = [{"role": "system", "content": "You are terse."}] if rng.random() < 0.3 else []
        for other in [row, *rng.sample(rows, rng.choice([0, 0, 1, 2]))]:
            turns.append({"role": "user", "content": f"{other['instruction']}\n{other['input']}".strip("\n")})
            turns.append({"role": "assistant", "content": other["output"]})
        found.append(turns)
    for odd in ODD:
        for other in ODD[::4]:
            found.append([{"role": "user", "content": other}, {"role": "assistant", "content": odd}])
            found.append(
                [
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": odd},
                    {"role": "user", "content": other},
                    {"role": "assistant", "content": "fin"},
                ]
            )
    return found


def trl_counts(rows, loaded, mode, side, limit):
    """Supervised tokens left of each row, by SFTTrainer's preparation (rows that it drops have none)."""
    import datasets
    from transformers import PreTrainedTokenizerFast
    from trl.trainer.sft_trainer import SFTTrainer

    datasets.disable_progress_bars()
    logging.getLogger("trl").setLevel(logging.ERROR)
    theirs = PreTrainedTokenizerFast(tokenizer_object=loaded.tokenizer, **loaded.named, chat_template=loaded.template())
    settings = types.SimpleNamespace(
        max_length=limit,
        truncation_mode=side,
        assistant_only_loss=mode == "assistant",
        dataset_text_field="text",
        dataset_num_proc=None,
        shuffle_dataset=False,
        seed=0,
    )
    trainer = types.SimpleNamespace(
        _tokenizer=theirs, chat_template=None, completion_only_loss=mode == "completion", _is_vision_dataset=False
    )
    data = datasets.Dataset.from_list([{**row, "number": i} for i, row in enumerate(rows)])
    out = SFTTrainer._prepare_dataset(trainer, data, theirs, settings, False, None, "train")  # noqa: FBT003
    return {row["number"]: sum(label != -100 for label in row["labels"]) for row in out}


@pytest.mark.parametrize("side", ["keep_start", "keep_end"])
@pytest.mark.parametrize("mode", ["assistant", "completion"])
@pytest.mark.parametrize(("name", "template"), MODELS)
def test_counts_equal_trls(name, template, mode, side, talks):
    loaded = load_tokenizer(str(path_of(name)), chat_template=str(TEMPLATES / template))
    rows = [
        {"messages": turns} if mode == "assistant" else {"prompt": turns[:-1], "completion": turns[-1:]}
        for turns in talks
    ]
    fmt = detect(rows[:1])
    wanted = trl_counts(rows, loaded, mode, side, 96)
    trainer = Trainer(loaded, TrainerSettings.of("trl", max_length=96, truncation=side, loss=mode))
    found = [trainer.prepare(conversation(fmt, row)).n_trained_left for row in rows]
    assert len(rows) > 250
    assert found == [wanted.get(i, 0) for i in range(len(rows))]
    assert any(n == 0 for n in found) or side == "keep_end"


@pytest.mark.parametrize("name", ["qwen", "mistral"])
def test_plain_strings_equal_trls(name, talks):
    loaded = load_tokenizer(str(path_of(name)))
    rows = [{"prompt": turns[-2]["content"], "completion": turns[-1]["content"]} for turns in talks]
    wanted = trl_counts(rows, loaded, "completion", "keep_start", 48)
    trainer = Trainer(loaded, TrainerSettings.of("trl", max_length=48))
    found = [trainer.prepare(conversation(detect(rows[:1]), row)).n_trained_left for row in rows]
    assert found == [wanted.get(i, 0) for i in range(len(rows))]


def test_documents_equal_trls(talks):
    loaded = load_tokenizer(str(path_of("qwen")))
    rows = [{"text": turns[-1]["content"]} for turns in talks]
    wanted = trl_counts(rows, loaded, "all", "keep_start", 48)
    trainer = Trainer(loaded, TrainerSettings.of("trl", max_length=48))
    found = [trainer.prepare(conversation(detect(rows[:1]), row)).n_trained_left for row in rows]
    assert found == [wanted.get(i, 0) for i in range(len(rows))]
