# `make train` and `make test` do all the set-up themselves; `make help` lists the rest.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
# One arena of memory for all threads: what compiling took is given back, and not kept in holes of many of them.
PYTEST := MALLOC_ARENA_MAX=1 $(BIN)/python -m pytest -n $(WORKERS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Some images of containers ask Python to write no bytecode: then each of the many processes of tests compiles every module.
unexport PYTHONDONTWRITEBYTECODE
# Modules are compiled when they are first imported: most never are.
PIP := bin/python -m pip install --quiet --quiet --no-compile
# Install packages into an environment, both given: with uv, which takes a small part of pip's time, and with pip where uv
# cannot, as behind a mirror that only pip is told of.
install = $(BIN)/uv pip install --quiet --python $(1)/bin/python --constraint constraints.txt $(2) || \
	$(1)/$(PIP) --constraint constraints.txt $(2)

.PHONY: help train test learn trainers slurm slurm-packages check format docs package pictures newest clean cli-page

help:           ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/$(PIP) --constraint constraints.txt uv
	$(call install,.venv,--editable .)
	@touch $@

.venv/dev: .venv/core
	$(call install,.venv,--editable '.[dev]')
	@touch $@

train: .venv/core   ## train a population on Pendulum and say what to look at
	$(BIN)/shoal train experiments/pendulum.yaml

# Most tests compile longer than they run, so that compiling less thoroughly saves half of the time. These do not:
LONG := tests/learn tests/faults tests/contract/test_same_bits.py
QUICK := JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(PYTEST)

# In two parts with workers of their own: what libraries keep for good, such as Procgen's pictures, ends with the first.
FIRST := tests/agents tests/commands tests/contract
# XLA's older emitters take 40 % less to compile. With them the last bits of two programs depend on the order of tests, so
# that tests which compare bits keep it.
OLDER := XLA_FLAGS=--xla_cpu_use_fusion_emitters=false
IN_ORDER := $(OLDER) $(QUICK) --dist loadfile --no-loadscope-reorder
# One worker more than cores, as tests wait a fifth of their time: for processes, for files and for a browser.
ONE_MORE := -n $(shell expr $(WORKERS) + 1)

test: .venv/dev     ## the tests, in eight minutes on two cores (on slow ones fifteen), with 6 GB of memory
	$(IN_ORDER) $(ONE_MORE) -m 'not slow' $(FIRST)
	$(IN_ORDER) $(ONE_MORE) -m 'not slow' $(FIRST:%=--ignore=%)

# The other slow cases take more than an hour: PART=3/10 is the third tenth of them. Unless it is given, the commit chooses,
# so that CI runs all of them in the course of time.
PART ?= $(shell expr $$(git rev-parse HEAD | cksum | cut -d ' ' -f 1) % 10 + 1)/10

learn: .venv/dev    ## long training, long faults, the benchmarks and a tenth of the other slow cases: half an hour; PART=1/1: all of them
	$(PYTEST) --dist worksteal -m slow $(LONG)
	$(OLDER) $(QUICK) --dist worksteal tests/test_benchmarks.py
	SHOAL_TESTS_PART=$(PART) $(IN_ORDER) -m slow $(LONG:%=--ignore=%) --ignore=tests/test_benchmarks.py

# Packages that other people's trainers need, and Ray, in environments of their own: they pin what Shoal does not.
# PyBullet is ready-made for Python 3.11 alone; elsewhere its test is skipped.
.venv/trainers: .venv/dev
	$(PYTHON) -m venv .venv/trainers
	.venv/trainers/$(PIP) --constraint constraints.txt torch stable-baselines3 sb3-contrib gymnasium
	.venv/trainers/$(PIP) rl-games==1.6.5 'psutil<6' gymnasium==1.3.0
	-.venv/trainers/$(PIP) --only-binary :all: pybullet==3.2.7 pybullet_envs_gymnasium==0.6.0

.venv/ray: .venv/dev
	$(PYTHON) -m venv .venv/ray
	$(call install,.venv/ray,--editable '.[ray]')

CASES ?= not slow
EXTERNAL := sb3 own_trainer rl_games evo external_exchanges
# With one thread each: more of PyTorch's would wait busily for cores that the other test has.
trainers: .venv/trainers .venv/ray ## the tests of what needs packages of its own: trainers, Ray; CASES='slow or not slow': all of them
	OMP_NUM_THREADS=1 SHOAL_RAY_PYTHON=$(CURDIR)/.venv/ray/bin/python SHOAL_TRAINERS_PYTHON=$(CURDIR)/.venv/trainers/bin/python \
		$(PYTEST) $(ONE_MORE) -m '$(CASES)' $(EXTERNAL:%=tests/trainers/test_%.py) tests/test_docs.py::test_yaml_is_an_experiment \
		tests/launch/test_ray.py 'tests/test_examples.py::test_example[own_trainer]'

slurm-packages:
	which slurmctld munged >/dev/null || (timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		timeout 300 apt-get install -y -qq --no-install-recommends slurm-wlm munge)

slurm: .venv/dev slurm-packages ## workers as jobs of Slurm, for real: installs Debian's slurm-wlm where it is missing, as root
	$(PYTEST) -n 0 -m slow tests/launch/test_slurm.py

check: .venv/dev    ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/dev   ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

cli-page: .venv/dev ## docs/reference/cli.md from --help
	$(BIN)/python website/cli_page.py

docs: .venv/dev     ## the docs as a site, at http://127.0.0.1:8000, and in dist/site
	$(BIN)/mkdocs build --strict -f website/mkdocs.yml
	$(BIN)/mkdocs serve -f website/mkdocs.yml

# Whoever has a later Python than the oldest that Shoal runs on gets later packages: JAX 0.11 wants 3.12.
LATER = $(shell for python in python3.14 python3.13 python3.12 $(HOME)/.pyenv/versions/3.1[2-9]*/bin/python3; do \
	$$python -c 'import sys; print(sys.executable)' 2>/dev/null && break; done)

package: .venv/dev  ## sdist and wheel in dist/, and with that wheel, where nothing else is, what README and the tutorials show a newcomer
	rm -rf dist/shoal-* dist/newcomer*
	$(BIN)/python -m build --outdir dist
	mkdir dist/newcomer dist/newcomer-later
	cd dist/newcomer && $(PYTHON) ../../tests/support/newcomer.py ../shoal-*.whl ../../constraints.txt
	cd dist/newcomer-later && if [ -n "$(LATER)" ]; then $(LATER) ../../tests/support/newcomer.py ../shoal-*.whl; fi

PICTURES := dist/pictures
pictures: .venv/dev ## the pictures of README: the run of `make train`, and the same members without copies
	rm -rf $(PICTURES)
	$(BIN)/shoal train experiments/pendulum.yaml --run-dir $(PICTURES)/pbt
	$(BIN)/shoal train experiments/pendulum.yaml --run-dir $(PICTURES)/independent --method independent
	for method in pbt independent; do \
		$(BIN)/shoal play $(PICTURES)/$$method --population --video docs/images/$$method.gif; done
	chromium --headless --no-sandbox --hide-scrollbars --window-size=1280,900 \
		--screenshot=docs/images/report.png file://$(CURDIR)/$(PICTURES)/pbt/report.html

newest:         ## the tests with the newest versions that pyproject.toml allows
	$(PYTHON) -m venv .venv/newest
	.venv/newest/$(PIP) --upgrade --editable '.[test]'
	JAX_DISABLE_MOST_OPTIMIZATIONS=1 .venv/newest/bin/python -m pytest -n $(WORKERS) --dist loadfile -m 'not slow'

clean:          ## remove the environment and caches, not the runs
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
