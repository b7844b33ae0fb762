"""The page in headless Chromium: it loads and asks for nothing, and does what a reviewer expects of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import hostile_records as hostile
import pytest

from cleanse.report import page as page_file
from cleanse.report import write_report
from cleanse.report.decisions import load, parse

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: extra [dev]")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium (make browser)")


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Seen:
    """A page, with all that went wrong in it and all that it asked for."""

    def __init__(self, browser, address: str, *, waits_for: str = "article.record", **options) -> None:
        self.context = browser.new_context(accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type in {"error", "warning"} else None)
        self.page.on("pageerror", lambda e: self.wrong.append(str(e)))
        self.page.on("dialog", lambda d: (self.wrong.append("dialog"), d.dismiss()))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(address)
        self.page.wait_for_selector(waits_for)

    def count(self) -> str:
        return self.page.inner_text("#count")


@pytest.fixture
def see(browser) -> Iterator:
    opened: list[Seen] = []

    def see_(address: str | Path, **options) -> Seen:
        url = address.as_uri() if isinstance(address, Path) else address
        opened.append(Seen(browser, url, **options))
        return opened[-1]

    yield see_
    for seen in opened:
        seen.context.close()


@pytest.fixture
def see_plain(see):
    """For pages without a list of records."""
    return lambda address, **options: see(address, waits_for="h1", **options)


@pytest.fixture
def html(hostile_out: Path) -> Path:
    return hostile_out / page_file.FILE


def test_it_loads_without_an_error_and_asks_for_nothing(see, html: Path) -> None:
    seen = see(html)
    seen.page.wait_for_timeout(300)
    assert seen.wrong == []
    assert seen.asked == [html.as_uri()]


def test_hostile_records_are_shown_and_do_nothing(see, html: Path) -> None:
    seen = see(html)
    seen.page.select_option("#f-state", "any")
    while seen.page.is_visible("#more"):
        n = seen.page.locator("article.record").count()
        seen.page.click("#more")
        seen.page.wait_for_function("n => document.querySelectorAll('article.record').length > n", arg=n)
    for details in seen.page.locator("details").all():
        details.evaluate("node => node.open = true")
    assert seen.page.evaluate("window.owned") is None
    assert seen.page.evaluate("document.querySelectorAll('img, iframe, object, embed').length") == 0
    assert seen.page.evaluate("document.querySelectorAll('script').length") == 2
    assert seen.page.evaluate("[...document.querySelectorAll('*')].filter(e => e.onerror || e.onload).length") == 0
    text = seen.page.evaluate("document.querySelector('#list').textContent")
    assert f"<script>{hostile.OWNED}</script>" in text
    assert not {"\u202e", "\u2066", "\x1b", "\u200b"} & set(seen.page.evaluate("document.body.innerText"))
    assert "RIGHT-TO-LEFT OVERRIDE" in text
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert seen.wrong == []


def test_filter_and_search(see, html: Path) -> None:
    seen = see(html)
    everything = seen.count()
    seen.page.select_option("#f-rule", label="encoding.bidi-override")
    seen.page.wait_for_function("text => document.querySelector('#count').textContent !== text", arg=everything)
    assert seen.count() == "1 record"
    assert "RIGHT-TO-LEFT OVERRIDE" in seen.page.inner_text("article.record")
    seen.page.select_option("#f-rule", "")
    seen.page.fill("#q", "GNP.exe")
    sync_api.expect(seen.page.locator("article.record")).to_have_count(1)
    seen.page.fill("#q", "no such words anywhere")
    sync_api.expect(seen.page.locator("article.record")).to_have_count(0)
    assert "Loosen the filters" in seen.count()


def test_a_rule_of_the_picture_leads_to_its_records(see, html: Path) -> None:
    seen = see(html)
    seen.page.locator(".reasons a").first.click()
    name = seen.page.locator(".reasons a").first.inner_text()
    seen.page.wait_for_function(
        "name => [...document.querySelectorAll('article.record')].every(a => a.innerText.includes(name))", arg=name
    )
    assert seen.page.evaluate("document.querySelector('#f-rule').selectedOptions[0].textContent") == name


def test_a_point_leads_to_its_record(see, probed_out: Path, tmp_path: Path) -> None:
    seen = see(write_report(probed_out, tmp_path / "probed.html"))
    point = seen.page.locator("#fig-scatter-t ~ g .convicted a").first
    point.focus()
    name = point.get_attribute("aria-label").partition(": convicted")[0]
    seen.page.keyboard.press("Enter")
    sync_api.expect(seen.page.locator("article.record")).to_have_count(1)
    assert seen.page.locator("article.record").get_attribute("aria-label") == name
    assert seen.page.locator("article.record .k3").count() == 1  # its tokens are shaded
    assert seen.page.evaluate("document.activeElement.closest('article') !== null")
    assert seen.wrong == []


def test_a_replay_is_read_in_the_same_way(see_plain, tmp_path: Path) -> None:
    from test_replay_page import HOSTILE, figures

    from cleanse.replaying.capsule import write_capsule
    from cleanse.report import write_replay_report

    folder = write_capsule(
        tmp_path / "c",
        step=41,
        rows=[3, 7],
        history=[{"step": s, "loss": 2.0 + s / 100} for s in range(30, 42)],
        records={3: {"text": HOSTILE}, 7: {"text": "the quick \u202ezzz fox"}},
        figures=figures(),
    )
    seen = see_plain(write_replay_report(folder), locale="zh-CN", color_scheme="dark")
    assert seen.page.evaluate("window.owned") is None
    assert seen.page.evaluate("document.documentElement.lang") == "zh-Hans"
    seen.page.click("#language")
    assert seen.page.inner_text("h1") == "The data did it."
    seen.page.locator("#ranking a").first.click()
    assert seen.page.evaluate("location.hash") == "#row-7"
    assert seen.page.locator("mark .pill").count() >= 1
    assert seen.wrong == []


def test_decisions_are_kept_exported_and_read_back(see, html: Path, tmp_path: Path) -> None:
    seen = see(html)
    first = seen.page.locator("article.record").nth(0)
    first.get_by_role("button", name="Release").click()
    seen.page.locator("article.record").nth(1).get_by_role("button", name="Agree").click()
    seen.page.locator("article.record").nth(0).locator("input").fill("it is <fine>")
    seen.page.locator("article.record").nth(0).locator("input").press("Tab")
    assert "1 to release, 1 agreed" in seen.page.inner_text("#decided-count")
    with seen.page.expect_download() as download:
        seen.page.click("#export")
    assert download.value.suggested_filename == "decisions.json"
    path = tmp_path / "decisions.json"
    download.value.save_as(path)
    exported = parse(path.read_bytes(), "decisions.json")
    assert sorted(d.decision for d in exported.values()) == ["agree", "release"]
    assert {d.note for d in exported.values()} == {"", "it is <fine>"}
    assert set(exported) <= {
        r["id"] for r in seen.page.evaluate("JSON.parse(document.querySelector('#data').text).records")
    }
    seen.page.reload()
    seen.page.wait_for_selector("#decided:not([hidden])")
    assert "1 to release" in seen.page.inner_text("#decided-count")
    seen.page.click("#clear")
    assert not seen.page.is_visible("#decided")
    seen.page.set_input_files("#import", path)
    seen.page.wait_for_selector("#decided:not([hidden])")
    seen.page.select_option("#f-decision", "release")
    sync_api.expect(seen.page.locator("article.record")).to_have_count(1)
    assert seen.wrong == []


def test_another_file_is_no_decisions(see, html: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"format": "other", "decisions": []}))
    seen = see(html)
    seen.page.set_input_files("#import", tmp_path / "x.json")
    sync_api.expect(seen.page.locator("#count")).to_contain_text("cleanse-decisions/1")


def test_a_keyboard_is_enough(see, html: Path) -> None:
    seen = see(html)
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    seen.page.locator("article.record button.release").first.focus()
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    seen.page.keyboard.press("Space")
    assert seen.page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "false"


def test_everything_has_a_name_for_a_screen_reader(see, html: Path) -> None:
    seen = see(html)
    nameless = """[...document.querySelectorAll('button, input, select, svg[role], section, nav, article')].filter(e =>
      !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.innerText?.trim() ||
        e.closest('label'))).map(e => e.outerHTML.slice(0, 80))"""
    assert seen.page.evaluate(nameless) == []
    broken = """[...document.querySelectorAll('[aria-labelledby]')].flatMap(e =>
      e.getAttribute('aria-labelledby').split(' ').filter(id => !document.getElementById(id)))"""
    assert seen.page.evaluate(broken) == []
    levels = seen.page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(e => +e.tagName[1])")
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(see, html: Path, scheme: str) -> None:
    seen = see(html, color_scheme=scheme)
    contrast = """() => {
      const rgb = (text) => { const c = document.createElement('canvas').getContext('2d'); c.fillStyle = text;
        c.fillRect(0, 0, 1, 1); return c.getImageData(0, 0, 1, 1).data; };
      const light = (text) => { const [r, g, b] = [...rgb(text)].map(v => { v /= 255;
        return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
      const paper = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (c !== 'rgba(0, 0, 0, 0)') return c; } };
      const bad = [];
      for (const e of document.querySelectorAll('main *')) {
        const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
        if (!own || !e.offsetParent || e.closest('svg')) continue;
        const [a, b] = [light(getComputedStyle(e).color), light(paper(e))].sort((x, y) => y - x);
        if ((a + .05) / (b + .05) < 4.5) bad.push(e.outerHTML.slice(0, 90) + ' ' + ((a + .05) / (b + .05)).toFixed(2));
      }
      return bad; }"""
    assert seen.page.evaluate(contrast) == []  # WCAG 2.2 AA for text
    before = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    seen.page.click("#theme")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    seen.page.reload()
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_chinese_browsers_read_chinese_and_may_switch(see, html: Path) -> None:
    seen = see(html, locale="zh-CN")
    assert seen.page.evaluate("document.documentElement.lang") == "zh-Hans"
    assert "\u8bfb\u53d6" in seen.page.inner_text("h1")
    assert seen.page.inner_text("article.record button.release") == "\u653e\u884c"
    seen.page.click("#language")
    assert "records were read" in seen.page.inner_text("h1")
    assert seen.page.inner_text("article.record button.release") == "Release"
    assert seen.page.inner_text("#f-state option") == "Quarantined"


def test_on_a_narrow_screen_nothing_sticks_out(see, html: Path) -> None:
    seen = see(html, viewport={"width": 360, "height": 700})
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_print_leaves_the_controls_out(see, html: Path) -> None:
    seen = see(html)
    seen.page.emulate_media(media="print")
    assert not seen.page.is_visible("nav")
    assert not seen.page.is_visible("#filters")
    assert seen.page.is_visible("article.record")


def test_review_on_localhost(see, hostile_out: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(hostile_out, out)
    command = [sys.executable, "-m", "cleanse", "review", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            seen = see(address)
            card = seen.page.locator("article.record").first
            name = card.get_attribute("aria-label")
            card.get_by_role("button", name="Release").click()
            sync_api.expect(seen.page.locator("#decided-count")).to_contain_text("saved")
            (decision,) = load(out / "decisions.json").values()
            assert decision.decision == "release"
            assert decision.id.replace("\u202e", "\\u202e") == name
            seen.page.fill("#q", "gnp.exe")
            sync_api.expect(seen.page.locator("article.record")).to_have_count(1)
            seen.page.goto(address)
            seen.page.wait_for_selector("#decided:not([hidden])")
            assert all(url.startswith(address) for url in seen.asked)
            assert seen.wrong == []
        finally:
            server.terminate()
            server.wait(20)
