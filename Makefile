# Everything a fresh machine needs: Python 3.10 to 3.12, pip and a C compiler.
PYTHON ?= python3
VENV   ?= .venv
LOWEST ?= .venv-lowest
MINDSPORE ?= .venv-mindspore
BIN    := $(VENV)/bin

.PHONY: demo test lint types unit browser lowest mindspore docs clean

# demo: install, make a small dirty sample, scan it, show what was found.
demo: $(VENV)/.installed
	$(BIN)/python scripts/make_sample.py demo/sample.jsonl
	rm -rf demo/out
	$(BIN)/cleanse scan demo/sample.jsonl -o demo/out
	@echo
	@echo "clean records:       demo/out/clean        (datasets.load_from_disk)"
	@echo "quarantined records: demo/out/quarantine   (the same, with the reasons)"
	@echo "every reason:        demo/out/findings.parquet"

# test: all that must hold before a change lands.
test: lint types unit mindspore

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

unit: $(VENV)/.installed browser
	$(BIN)/python -m pytest -n 2 --dist loadfile

# browser: Debian's Chromium for the tests of the report's page, where it can be installed; elsewhere they are skipped.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk >/dev/null; } \
	  || echo "no chromium, and no right to install it: the tests of the page are skipped"

# lowest: the tests with the lower bounds of pyproject.toml, each exactly. Not yet part of `test`: some bounds are
# still to be raised until it passes.
lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile -q tests --ignore=tests/test_packaging.py

# mindspore: its tests in an environment of NumPy 1, with torch beside it as the reference.
mindspore: $(MINDSPORE)/.installed
	$(MINDSPORE)/bin/python -m pytest -q tests/probes_mindspore tests/replay/test_mindspore_orders.py tests/plug/test_mindspore_filter.py \
	  tests/guard/test_mindspore_guard.py tests/replay/test_half_replay.py

# docs: the pages that are made from rules and code.
docs: $(VENV)/.installed
	$(BIN)/python -m scripts.rules_page
	$(BIN)/python -m scripts.api_page

$(VENV)/.installed: pyproject.toml constraints/tested.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -U pip
	$(BIN)/python -m pip install -q -c constraints/tested.txt -e '.[torch,review,ray,references,notebooks,dev]'
	touch $@

$(LOWEST)/.installed: pyproject.toml constraints/lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install -q -U pip
	$(LOWEST)/bin/python -m pip install -q -c constraints/lowest.txt -e '.[review,dev]'
	touch $@

$(MINDSPORE)/.installed: pyproject.toml constraints/mindspore.txt
	$(PYTHON) -m venv $(MINDSPORE)
	$(MINDSPORE)/bin/python -m pip install -q -U pip
	$(MINDSPORE)/bin/python -m pip install -q -c constraints/mindspore.txt -e '.[mindspore,torch,dev]'
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) $(MINDSPORE) demo build dist *.egg-info
