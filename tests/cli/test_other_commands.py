from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cleanse.cli import main
from cleanse.commands.scan import parse_size
from cleanse.errors import UsageError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_rules_list_has_every_rule_and_its_action() -> None:
    listed = json.loads(run("rules", "list", "--json").stdout)["rules"]
    by_id = {rule["id"]: rule for rule in listed}
    assert by_id["reader.invalid-utf8"]["action"] == "reject"
    shown = run("rules", "list")
    assert shown.exit_code == 0
    assert all(rule in shown.stdout for rule in by_id)


def test_rules_show_explains_one_rule() -> None:
    shown = run("rules", "show", "encoding.bidi-override")
    assert shown.exit_code == 0
    for words in ("why it hurts", "matches", "passes", "encoding.toml"):
        assert words in shown.stdout
    assert "\u202e" not in shown.stdout  # its examples are shown as escapes
    unknown = run("rules", "show", "encoding.bidi")
    assert (unknown.exit_code, "encoding.bidi-override" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(("example", "code"), [("has a tab\\u202e", 0), ("has none", 1)])
def test_rules_check_runs_the_examples_of_a_users_pack(tmp_path: Path, example: str, code: int) -> None:
    pack = tmp_path / "mine.toml"
    pack.write_text(
        f'[[rule]]\nid = "mine.bidi"\nsummary = "s"\nwhy = "w"\nmeasure = "bidi_overrides"\nlimit = {{ max = 0 }}\n'
        f'action = "reject"\nshould_match = ["{example}"]\nshould_pass = ["plain"]\nsince = "0.1"\n'
    )
    checked = run("rules", "check", pack)
    assert checked.exit_code == code, checked.output
    answer = json.loads(run("rules", "check", pack, "--json").stdout)
    assert (answer["rules"], bool(answer["problems"])) == (1, code == 1)


def test_doctor_names_versions_and_rules() -> None:
    answer = json.loads(run("doctor", "--json").stdout)
    assert answer["problems"] == []
    assert answer["libraries"]["pyarrow"]
    assert answer["processors"] >= 1
    assert answer["memory_bytes"] > 1 << 20
    assert "processors" in run("doctor").stdout


def test_a_missing_requirement_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    from cleanse.commands import doctor

    real = doctor.metadata.requires
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: [*real(name), "no-such-library>=2"])
    result = run("doctor")
    assert result.exit_code == 1
    assert "pip install 'no-such-library>=2'" in result.stdout


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("64MB", 64_000_000), ("64MiB", 64 << 20), ("1.5 G", 1_500_000_000), ("12", 12), ("3kib", 3072)],
)
def test_sizes(text: str, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "MB", "0", "-3MB", "3TB", "3 M B"])
def test_not_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_size(text)


def test_help_is_fast_and_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom cleanse.cli import main\n"
        "try: main(['scan', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('pyarrow', 'numba', 'numpy', 'datasets', 'torch') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "--fail-on" in done.stdout
