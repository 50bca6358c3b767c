# GNU make. `make` alone lists the targets. Another Python: make PYTHON=python3.12 test

VENV := .venv
PY := $(VENV)/bin/python
export PROMPT ?= What is gravity?
PYTEST_ARGS ?=
ARGS ?=

# The first Python that is new enough, unless one is named.
ifndef PYTHON
PYTHON := $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; print("$(name)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)) python3)
endif
VERSION := $(shell "$(PYTHON)" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)

# Stamps: a new Python makes a new environment; changed sources or metadata rebuild the extension.
MADE := $(VENV)/.made-$(VERSION)
INSTALLED := $(VENV)/.installed
ORACLE := $(VENV)/.oracle
BROWSER := $(VENV)/.browser
SOURCES := pyproject.toml CMakeLists.txt $(shell find csrc -type f)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test oracle browser check docs pages bench bench-check clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

setup: $(INSTALLED)  ## create .venv, build the extension, install offramp and what its tests need

demo: $(INSTALLED)  ## get the default model and stream an answer (PROMPT="...")
	$(VENV)/bin/offramp generate --chat "$$PROMPT"

test: $(INSTALLED)  ## run the default tests; needs no torch (PYTEST_ARGS="...")
	$(PY) -m pytest -n auto --maxprocesses 4 --dist worksteal $(PYTEST_ARGS)

oracle: $(ORACLE)  ## compare with torch and transformers, live; and with Gemma 3 270M where it was fetched
	$(PY) -m pytest -m "oracle or gemma" $(PYTEST_ARGS)

browser: $(BROWSER)  ## try the server's page and the report in the system's Chromium, where there is one
	$(PY) -m pytest -m browser -rs tests/page $(PYTEST_ARGS)

check: $(INSTALLED)  ## lint, format, types, generated pages
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) scripts/cli_reference.py --check

docs: $(INSTALLED)  ## regenerate docs/cli.md
	$(PY) scripts/cli_reference.py

pages: $(INSTALLED)  ## write pages and numbers of kept results again, without measuring
	$(PY) -m benchmarks.pages

bench: $(INSTALLED)  ## time one step of the default model
	$(VENV)/bin/offramp bench step

bench-check: $(INSTALLED)  ## is anything slower than the kept ratios say? (ARGS=--store keeps new ones)
	$(PY) -m benchmarks.check $(ARGS)

clean:  ## remove .venv, build output and caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find offramp tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: offramp needs Python 3.11 or newer; $(PYTHON) is $(or $(VERSION),not to be found)" >&2; \
	  echo "hint: name one, as in: make PYTHON=python3.12 $(or $(MAKECMDGOALS),setup)" >&2; exit 1; }
	@echo 'int main() { return []<class T>(T x) { return x; }(0); }' \
	  | $${CXX:-c++} -std=c++20 -x c++ -fsyntax-only - || { \
	  echo "error: no C++20 compiler ($${CXX:-c++})" >&2; \
	  echo "hint: install g++ 11 or newer, or name a compiler in CXX" >&2; exit 1; }
	@test "$$($(PY) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)" = "$(VERSION)" || { \
	  rm -rf $(VENV); "$(PYTHON)" -m venv $(VENV); } || { rm -rf $(VENV); \
	  echo "hint: some systems package venv and the headers apart (Debian: python3-venv, python3-dev)" >&2; exit 1; }
	@touch $@

# Build tools live in .venv (no build isolation), so that a changed source recompiles alone.
$(INSTALLED): $(MADE) $(SOURCES)
	@$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  > $(VENV)/build-requires.txt
	$(PY) -m pip install -q cmake ninja -r $(VENV)/build-requires.txt
	$(PY) -m pip install -q --no-build-isolation -e '.[test]'
	@touch $@

# torch first and alone: resolved together with the rest, pip may choose another build of it.
$(ORACLE): $(INSTALLED)
	$(PY) -m pip install -q torch==2.13.0
	$(PY) -m pip install -q --no-build-isolation -e '.[dev]'
	@touch $@

# Playwright alone: it drives a Chromium of the system's, and fetches none.
$(BROWSER): $(INSTALLED)
	$(PY) -m pip install -q --no-build-isolation -e '.[browser]'
	@touch $@
