"""The page of a replay, made from a capsule as ``write_capsule`` leaves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cleanse.cli import main
from cleanse.errors import CleanseError
from cleanse.replaying.capsule import write_capsule
from cleanse.report.page import FILE
from cleanse.report.replay_page import build_replay, write_replay_report

HOSTILE = "</script><script>window.owned=1</script>"


def ranked(row: int, loss: Any, share: Any, **more: Any) -> dict[str, Any]:
    found = {
        "row": row,
        "score": 2.0,
        "loss": loss,
        "grad_norm": None,
        "loss_share": share,
        "grad_share": None,
        "n_supervised": 12,
        "rules": [],
        "reasons": [],
        "worst_token": None,
        "source": f"d.jsonl:{row}",
        "problem": None,
    }
    return {**found, **more}


def figures(kind: str = "data") -> dict[str, Any]:
    worst = {"index": 3, "loss": 14.25, "before": "the quick ", "text": "\u202ezzz", "after": " fox"}
    reason = {"rule": "encoding.bidi-override", "action": "reject", "message": f"Override {HOSTILE}"}
    return {
        "diagnosis": kind,
        "culprits": [7],
        "ranking": [
            ranked(7, "nan", "nan", worst_token=worst, rules=["encoding.bidi-override"], reasons=[reason]),
            ranked(3, 2.5, 0.25, problem="12 tokens, above the maximum length"),
        ],
        "evidence": f"Row 7 is not finite. {HOSTILE}",
        "remedy": "Skip row 7.",
        "resume": "Resume from checkpoint 40.",
        "known_from": "ledger",
        "replayed": {"loss": "nan", "grad_norm": 3.5, "n_supervised": 24},
        "replayed_in_precision": {"loss": "inf", "grad_norm": None},
        "replayed_before": {"loss": 2.125, "grad_norm": 1.5, "n_supervised": 24},
        "left_out": [{"rows": [7], "loss": 2.0625, "grad_norm": 1.25}],
        "logged": {"step": 41, "loss": 9.75},
        "precision": "fp16",
        "loss_scale": 65536.0,
        "safe_loss_scale": 1024.0,
        "bf16_finite": True,
        "model": {"model": "embedded", "device": "cpu"},
        "checkpoint_step": 40,
        "notes": ["the order follows torch's seed"],
    }


@pytest.fixture
def capsule(tmp_path: Path) -> Path:
    text = "Once the quick \u202ezzz fox slept."
    return write_capsule(
        tmp_path / "capsule",
        step=41,
        rows=[3, 7],
        history=[{"step": s, "loss": 2.0 + s / 100} for s in range(30, 42)],
        records={3: {"text": HOSTILE}, 7: {"text": text, "n": 5}},
        settings={"trainer": "hf", "seed": 42},
        figures=figures(),
    )


def test_everything_of_the_replay_is_there(capsule: Path) -> None:
    write_replay_report(capsule)
    html = (capsule / FILE).read_text("utf-8")
    for said in (
        "The data did it.",
        "Skip row 7.",
        "Resume from checkpoint 40.",
        "most surprising token, 14.25 nats",
        '<mark><span class="pill" title="U+202E">RIGHT-TO-LEFT OVERRIDE</span>zzz</mark>',
        "without row 7",
        "2.062",
        "replayed in fp16, as in the run",
        "the largest at which nothing overflows is 1024.0",
        "In bf16 everything stays finite.",
        "the order follows torch&#39;s seed",
        'id="fig-history-t"',
        "above the maximum length",
    ):
        assert said in html, said
    assert html.count("<script") == 2
    assert "\u202e" not in html
    assert build_replay(capsule) == html.encode()


@pytest.mark.parametrize("kind", ["data", "masked", "precision", "optimisation", "not_reproduced"])
def test_every_diagnosis_has_its_words(capsule: Path, kind: str) -> None:
    content = json.loads((capsule / "capsule.json").read_text())
    content["figures"] = figures(kind)
    (capsule / "capsule.json").write_text(json.dumps(content))
    assert b'<h1 id="h-verdict"><span class="l-en"' in build_replay(capsule)


def test_report_knows_a_capsule(capsule: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(capsule)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("cleanse: wrote")
    assert "data: Row 7 is not finite." in done.output
    assert (capsule / FILE).exists()


def test_a_folder_without_figures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CleanseError, match="holds no capsule"):
        build_replay(tmp_path)
    write_capsule(tmp_path / "guard", step=3, rows=[1, 2])
    with pytest.raises(CleanseError, match="no replay's figures"):
        build_replay(tmp_path / "guard")


def test_the_page_of_a_real_replay(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the replay needs torch")
    import cleanse

    lines = [{"text": f"Rain fell on village number {i} for the whole day."} for i in range(8)]
    lines[5] = {"text": "qzx vkj wpf " * 20}
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "ids.txt").write_text("".join(f"{i}\n" for i in range(8)))
    result = cleanse.replay(
        str(tmp_path / "d.jsonl"), model="embedded", ids=tmp_path / "ids.txt", out=tmp_path / "capsule", device="cpu"
    )
    html = (tmp_path / "capsule" / FILE).read_text("utf-8")
    assert f'id="row-{result.ranking[0].row}"' in html
    assert "qzx vkj wpf" in html
