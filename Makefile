# `make train` and `make test` do all the set-up themselves; `make help` lists the rest.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)
FAST := --dist loadfile -m 'not slow'
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help train test test-fast check format clean

help:           ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

.venv/dev: .venv/core
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

train: .venv/core   ## train a population on CartPole and say what to look at
	$(BIN)/shoal train experiments/cartpole.yaml

test: .venv/dev     ## all tests, the slow ones included
	$(PYTEST) $(FAST)
	$(PYTEST) --dist load -m slow

test-fast: .venv/dev ## the tests that take a few minutes
	$(PYTEST) $(FAST)

check: .venv/dev    ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/dev   ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:          ## remove the environment and caches, not the runs
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
