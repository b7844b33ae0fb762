"""Chat templates render as transformers renders them, and cannot do harm."""

import json

import pytest
from toy_tokenizer import MARKED

from cleanse.trainer_view import ChatTemplate, TemplateRefusedError

TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 < 3 & \u00e4?"},
    {"role": "assistant", "content": "Yes.", "reasoning_content": "small"},
    {"role": "user", "content": "and?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": "\u00e9", "b": 1}}}],
    },
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "Four.", "tool_calls": None},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<d>", "parameters": {"type": "object"}}}]
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def trl_templates():
    trl = pytest.importorskip("trl")
    from pathlib import Path

    return sorted((Path(trl.__file__).parent / "chat_templates").glob("*.jinja"))


def test_every_template_of_trl_renders_as_in_transformers():
    pytest.importorskip("transformers")
    from transformers.utils.chat_template_utils import render_jinja_template

    agreed = refused = 0
    for path in trl_templates():
        source = path.read_text("utf-8")
        for turns, tools in ((TURNS, None), (TURNS, TOOLS), (TURNS[1:3], None), (TURNS[:2], None)):
            for prompt in (False, True):
                given = [{k: v for k, v in turn.items() if v is not None} for turn in turns]
                try:
                    wanted = render_jinja_template(
                        conversations=[given],
                        tools=tools,
                        chat_template=source,
                        return_assistant_tokens_mask="generation" in source,
                        add_generation_prompt=prompt,
                        **NAMES,
                    )
                except Exception:  # noqa: BLE001 - whatever the template does there, it must be refused here too
                    with pytest.raises(TemplateRefusedError):
                        ChatTemplate(source, NAMES).render(turns, tools=tools, add_generation_prompt=prompt)
                    refused += 1
                    continue
                found = ChatTemplate(source, NAMES).render(turns, tools=tools, add_generation_prompt=prompt)
                if "strftime_now" not in source:
                    assert found.text == wanted[0][0], path.name
                    if "generation" in source:
                        assert found.generated == [tuple(s) for s in wanted[1][0]], path.name
                agreed += 1
    assert agreed > 200
    assert refused < agreed


def test_generation_marks_give_spans():
    template = ChatTemplate(MARKED, {})
    found = template.render([{"role": "user", "content": "q"}, {"role": "assistant", "content": "ab"}])
    assert template.marks_generation
    assert [found.text[a:b] for a, b in found.generated] == ["ab<|im_end|>"]
    assert not ChatTemplate("{{ messages }} generation", {}).marks_generation


def test_refusals_carry_the_templates_own_words():
    with pytest.raises(TemplateRefusedError, match="^roles must alternate$"):
        ChatTemplate("{{ raise_exception('roles must alternate') }}", {}).render(TURNS)
    with pytest.raises(TemplateRefusedError, match="TypeError"):
        ChatTemplate("{{ 'a' + messages[0].content }}", {}).render([{"role": "user", "content": 5}])
    with pytest.raises(TemplateRefusedError, match="empty"):
        ChatTemplate("x", {}).render([])
    with pytest.raises(TemplateRefusedError, match="not a template"):
        ChatTemplate("{% if %}", {})


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ dict.__class__ }}{{ dict.__init__.__globals__ }}",
        "{% for i in range(10**9) %}{% endfor %}",
    ],
)
def test_the_sandbox_holds(attack):
    turns = [{"role": "user", "content": "q"}]
    with pytest.raises(TemplateRefusedError):
        ChatTemplate(attack, {}).render(turns)
    assert turns == [{"role": "user", "content": "q"}]


def test_tojson_keeps_characters():
    found = ChatTemplate("{{ messages[0].content | tojson }}", {}).render([{"role": "user", "content": "<\u00e4&'>"}])
    assert found.text == json.dumps("<\u00e4&'>", ensure_ascii=False)
