from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = (
    "torch",
    "transformers",
    "datasets",
    "numba",
    "mindspore",
    "pyarrow",
    "numpy",
    "polars",
    "tokenizers",
    "click",
    "rich",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built without touching the tree or the network."""
    work = tmp_path_factory.mktemp("wheel")
    code = (
        "import os, shutil, sys; from setuptools import build_meta\n"
        "ignore = shutil.ignore_patterns('__pycache__', '*.egg-info', '.*')\n"
        "for name in ('cleanse', 'rules', 'probes'):\n"
        "    shutil.copytree(os.path.join(sys.argv[1], name), name, ignore=ignore)\n"
        "for name in ('pyproject.toml', 'README.md', 'LICENSE'): shutil.copy(os.path.join(sys.argv[1], name), name)\n"
        "print(build_meta.build_wheel('dist'))"
    )
    subprocess.run([sys.executable, "-c", code, str(ROOT)], cwd=work, check=True, capture_output=True)
    (built,) = (work / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    expected = set()
    for folder, package in (("cleanse", "cleanse"), ("rules", "cleanse/rules"), ("probes", "cleanse/probes")):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".toml", ".typed"} or (
                path.is_file() and "data" in path.parts[len(ROOT.parts) :]
            ):
                expected.add(f"{package}/{path.relative_to(ROOT / folder).as_posix()}")
    missing = {name for name in expected - inside if "__pycache__" not in name}
    assert not missing
    assert not [name for name in inside if name.startswith(("rules/", "probes/", "tests/"))]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and nothing else of this tree; what it requires comes from the environment."""
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with the installed wheel before the environment's packages, and without the editable tree."""
    libraries = sysconfig.get_paths()
    paths = os.pathsep.join([str(installed), libraries["purelib"], libraries["platlib"]])
    # -S leaves out site, and with it the hook of an editable install: only what is on the path can be imported
    done = subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_wheel_scans(installed: Path, tmp_path: Path) -> None:
    lines = b"".join(b'{"text": "Sentence %d about rivers and boats."}\n' % i for i in range(400))
    (tmp_path / "d.jsonl").write_bytes(lines + b'{"text": "It\x92s foo"}\n')
    command = [
        "-m",
        "cleanse",
        "scan",
        "d.jsonl",
        "-o",
        "o",
        "--probe",
        "none",
        "--workers",
        "2",
        "--shard-bytes",
        "9KB",
    ]
    answer = json.loads(run(installed, tmp_path, *command, "--json").stdout)
    assert (answer["counts"]["read"], answer["counts"]["quarantined"]) == (401, 1)
    where = run(
        installed, tmp_path, "-c", "import cleanse, cleanse.rules; print(cleanse.__file__, cleanse.rules.__file__)"
    )
    assert all(place.startswith(str(installed)) for place in where.stdout.split())


def test_the_wheels_rules_keep_their_promises(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(run(installed, tmp_path, "-m", "cleanse", "rules", "list", "--json").stdout)["rules"]
    assert len(listed) > 20


def test_importing_the_package_loads_nothing_heavy(installed: Path, tmp_path: Path) -> None:
    code = f"import sys, cleanse; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(installed, tmp_path, "-c", code).stdout.strip() == "[]"


def test_workers_do_not_load_datasets_or_torch(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sys, cleanse.engines.worker, cleanse.inspection, cleanse.splitting\n"
        "from cleanse.rulepacks import load_packs; load_packs()\n"
        "print([m for m in ('datasets', 'torch', 'transformers', 'polars', 'click') if m in sys.modules])"
    )
    assert run(installed, tmp_path, "-c", code).stdout.strip() == "[]"


def test_public_names_exist_and_others_do_not() -> None:
    import cleanse

    for name in cleanse.__all__:
        assert getattr(cleanse, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        cleanse.nonsense  # noqa: B018 - the access is the test
