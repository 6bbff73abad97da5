# Every target sets up .venv by itself, from pyproject.toml and constraints.txt alone,
# and again only when one of the two changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
FILES := pyproject.toml constraints.txt
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist worksteal

.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE  # processes of tests start sooner if the first one keeps it
.PHONY: help setup demo test test-slow test-all suites check bench docs pictures soak nightly branches mutants wheel clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

setup: $(VENV)/.everything  ## install everything, all extras, into .venv

demo: $(VENV)/.base  ## pack the standard library's sources, show rows, write a report
	@$(BIN)/quire demo

test: $(VENV)/.everything  ## run the quick tests (minutes)
	QUIRE_HYPOTHESIS=quick $(PYTEST) -m 'not slow'

test-slow: $(VENV)/.everything  ## run the tests that `make test` leaves out
	$(PYTEST) -m slow

test-all: $(VENV)/.everything  ## run all tests, with all their examples
	$(PYTEST)

suites: $(VENV)/.everything  ## time both suites, count the branches they take (two hours)
	$(BIN)/python -m tools.suites docs/reliability/suites.json $(ONLY)

check: $(VENV)/.everything  ## lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.everything  ## measure against peers, write docs/benchmarks.md
	$(BIN)/python -m benchmarks $(ONLY)

docs: $(VENV)/.everything  ## build the site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "the site: site/index.html"

pictures: $(VENV)/.everything  ## make the pictures of the docs again (needs chromium)
	$(BIN)/python -m tools.pictures

soak: $(VENV)/.everything  ## pack and stream under random kills and faults for MINUTES (10)
	$(BIN)/python -m tests.faults.soak --minutes $(or $(MINUTES),10) --json docs/reliability/soak.json

nightly: $(VENV)/.everything  ## try every property 10,000 times (hours); ONLY=tests/... for a part
	$(BIN)/python -m tools.properties --json docs/reliability/properties.json $(ONLY)

branches: $(VENV)/.everything  ## which branches of the core the quick tests take (some minutes)
	$(BIN)/python -m tools.branches docs/reliability/branches.json

mutants: $(VENV)/.everything  ## mutation testing of the core (hours; or interrupt it); ONLY="quire.labels.*" for a part
	@$(INSTALL) --editable '.[mutation]'
	QUIRE_HYPOTHESIS=mutants $(BIN)/python -m tools.mutmut_in_random_order run $(ONLY)

wheel: | $(BIN)/python  ## build the wheel of quire-pack into dist/
	$(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/*.whl

clean:  ## remove .venv and caches
	rm -rf $(VENV) dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache mutants

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "quire needs Python 3.11 or newer; say make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(FILES) | $(BIN)/python
	@echo "Installing quire's base into $(VENV) (seconds, once) ..."
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.everything: $(FILES) | $(BIN)/python
	@echo "Installing quire with all extras into $(VENV) (some minutes, once) ..."
	@$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.base
