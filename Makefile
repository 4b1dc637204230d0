# Two commands do everything on a fresh machine: `make run` and `make test`.
#   make run TORCH_INDEX=URL    take torch from that index (a CPU build, say)
#   make run PYTHON=python3.12  make the environment with that interpreter
# Suites of a real engine need its environment as well:
#   make sglang VERSION=0.5.18  that release, 3 GB, two minutes
#   make sglang SOURCE=PATH     what that checkout of SGLang depends on

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
# What `make run` runs; `make run SUITES="'dcp/parity_*'" RUN_FLAGS=` for another choice.
SUITES ?= 'dcp/*'
RUN_FLAGS ?= --tags smoke
# What `make sglang` builds; neither: the release that harness knows best.
VERSION =
SOURCE =

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test lint sglang mutation clean help

run: $(VENV)/.run  ## install, then run the smoke suites
	$(BIN)/harness run $(SUITES) $(RUN_FLAGS)

test: $(VENV)/.test  ## install with test extras, Triton and NIXL, then run all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal \
	  --cov harness.topology --cov harness.suites --cov harness.verdict --cov-branch --cov-fail-under 90

lint: $(VENV)/.test  ## style, types, import arrows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(BIN)/python:
	$(PYTHON) tools/check_python.py
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	@$(BIN)/python tools/torch_hint.py "$(TORCH_INDEX)"
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	$(PIP) --editable '.[test,triton,nixl]'
	@touch $@

sglang: $(VENV)/.run  ## build the environment of a real SGLang (VERSION=0.5.18 or SOURCE=PATH) in .envs
	@$(BIN)/python -m harness.environments sglang $(if $(VERSION),--version "$(VERSION)") \
	  $(if $(SOURCE),--source "$(SOURCE)") $(if $(TORCH_INDEX),--torch-index "$(TORCH_INDEX)")

# Not part of `make test`: minutes on a whole machine, so it runs nightly. See docs/mutation.md.
mutation: $(VENV)/.test  ## change the code of harness/topology in small ways; do its tests notice each?
	$(PIP) --editable '.[mutation]'
	HARNESS_HYPOTHESIS_PROFILE=mutation $(BIN)/python -m mutmut run
	$(BIN)/python tools/mutation_report.py

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage* mutants

help:  ## show this help
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/'
