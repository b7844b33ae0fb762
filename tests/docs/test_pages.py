"""The pages say what rules and code say, and lead where they say they do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cleanse
from cleanse.rulepacks import load_packs
from scripts import api_page, rules_page

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def test_every_built_in_rule_is_explained() -> None:
    text = rules_page.TARGET.read_text("utf-8")
    for rule in load_packs(("default",)).rules:
        assert f"\n### {rule.id}\n" in text
    assert text == rules_page.page(), "a rule changed: make docs"


def test_every_public_name_has_its_entry() -> None:
    text = api_page.TARGET.read_text("utf-8")
    for name in cleanse.__all__:
        assert name == "__version__" or f"\n### {name}\n" in text, name


def test_the_entries_are_what_the_code_says() -> None:
    pytest.importorskip("torch", reason="cleanse.FilteredIterable is a class of torch's")
    assert api_page.TARGET.read_text("utf-8") == api_page.page(), "a signature or docstring changed: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file) if file else page
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", there.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}, target


def commands(text: str) -> list[str]:
    """The lines of a page's code blocks without their comments: commands and Python."""
    blocks = re.findall(r"^```(?:console|python|toml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = (re.sub(r"\s*#.*$", "", line).rstrip() for block in blocks for line in block.splitlines())
    return [line for line in lines if line]


def test_the_chinese_readme_has_the_same_commands() -> None:
    english, chinese = (ROOT / name for name in ("README.md", "README.zh-CN.md"))
    assert commands(chinese.read_text("utf-8")) == commands(english.read_text("utf-8"))
    levels = [re.findall(r"^(#+) ", page.read_text("utf-8"), re.MULTILINE) for page in (english, chinese)]
    assert levels[0] == levels[1]


def test_a_command_that_the_readme_shows_exists() -> None:
    from cleanse.cli import main

    shown = re.findall(r"\$ cleanse (\w+)", (ROOT / "README.md").read_text("utf-8"))
    assert shown
    assert set(shown) <= set(main.commands)
