# Works from a bare Python 3.11 or newer with pip. `make help` lists what there is.

SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tried in this order; give one of your own by `make demo PYTHON=/path/to/python`.
PYTHON ?= python3.13 python3.12 python3.11 python3 python

# Programs we start find those of the environment first.
# Hundreds of interpreters start during the tests: each would compile Airflow anew where the caller forbids to keep it.
RUN := env -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/$(VENV)"
# What the recorded environment was made from: any change of it installs again, anything else does not.
MADE_FROM = cksum pyproject.toml constraints.txt
FLOORS := .venv-floors
# Some days after Airflow 3.3.0: what went with it then, as whoever still runs it has it.
FLOORS_DATE := 2026-07-15
FLOORS_FROM = cksum pyproject.toml constraints-floors.txt

# How many processes share the fast tests; 0 runs them in one, where a debugger works. One more than there are cores, as
# each waits for servers and disks at times.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# tests/tiers.py says which test belongs where. SEED=7 runs the fast tests in a random order, the same for the same seed.
FAST = -m "not slow and not system" -n $(WORKERS) --dist loadfile $(if $(SEED),--random-order-seed=$(SEED))
# Hundreds of small databases are made: in memory, where that can be had, a commit does not wait for a disk.
IN_MEMORY = TMPDIR=$(shell test -w /dev/shm && echo /dev/shm || echo $${TMPDIR:-/tmp})
RECORDED = .tiers

.PHONY: help setup demo demo-stop test test-slow test-system test-all test-tiers slowest test-floors bench-journal bench-campaign bench-rate bench-million bench-waiting bench-receiver docs pictures lint format types check torture constraints constraints-floors clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## Run the campaign on a real Airflow against the sandbox (KEEP=1 leaves both up)
	@$(RUN) $(BIN)/python -m tests.system.demo run

demo-stop: ## End what `make demo KEEP=1` left running
	@if [ -x $(BIN)/python ]; then $(RUN) $(BIN)/python -m tests.system.demo stop; fi

test: setup ## Run the fast tests, in minutes (ARGS="-k sms" narrows them)
	@$(RUN) $(IN_MEMORY) $(BIN)/python -m pytest $(FAST) --write-durations=$(RECORDED)/fast.json $(ARGS)

test-slow: setup ## What is not fast: whole programs, browsers, builds, larger samples of generated input
	@$(RUN) EXAMPLES=sample $(BIN)/python -m pytest -m "slow or generated" \
	  --write-durations=$(RECORDED)/slow.json $(ARGS)

test-system: setup ## Real Airflow processes: the demo, kills, delivery
	@$(RUN) $(BIN)/python -m pytest -m system --write-durations=$(RECORDED)/system.json $(ARGS)

test-all: test test-slow test-system ## All tests, short of `make torture`

test-tiers: setup ## Whether the last `make test` had a test that is not fast
	@$(RUN) $(IN_MEMORY) $(BIN)/python -m tests.tiers check $(RECORDED)/fast.json

slowest: setup ## The slowest tests of the last runs
	@$(RUN) $(BIN)/python -m tests.tiers slowest $(RECORDED)/fast.json $(RECORDED)/slow.json $(RECORDED)/system.json

test-floors: setup ## The fast tests at the lowest versions pyproject.toml accepts, in an environment of their own
	@$(FLOORS_FROM) | cmp -s - $(FLOORS)/.installed || $(MAKE) --no-print-directory install-floors
	@env -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/$(FLOORS)/bin:$$PATH" VIRTUAL_ENV="$(CURDIR)/$(FLOORS)" \
	  $(IN_MEMORY) $(FLOORS)/bin/python -m pytest $(FAST) $(ARGS)

bench-journal: setup ## What the journal costs a single send, beside the same send without it
	@$(RUN) $(BIN)/python -m tests.benchmarks.journal_cost

bench-campaign: setup ## How fast campaigns send, beside their peers (ARGS="--rounds 3" shortens it)
	@$(PIP) --no-deps --upgrade --target $(VENV)/peers -r tests/benchmarks/campaign/peers.txt
	@$(RUN) $(BIN)/python -m tests.benchmarks.campaign $(ARGS)

bench-rate: setup ## How well campaigns keep to requests_per_second, in one task and in four partitions
	@$(RUN) $(BIN)/python -m tests.benchmarks.rate_limit

bench-million: setup ## Time and memory of a million recipients from every kind of source, planned and sent
	@for work in dry_run send; do \
	  $(RUN) $(BIN)/python -m tests.benchmarks.campaign.memory \
	    tests.benchmarks.campaign.in_process:$$work .bench $(ARGS) || exit 1; \
	done

bench-waiting: setup ## What 10,000 waiting triggers cost, beside one poll each (ARGS="--waiters 1000" narrows it)
	@$(RUN) $(BIN)/python -m tests.benchmarks.waiting $(ARGS)

bench-receiver: setup ## How fast delivery reports are taken, beside a bare route (ARGS="--rounds 1 --body webhook" narrows it)
	@$(RUN) $(BIN)/python -m tests.benchmarks.receiver $(ARGS)

docs: setup ## Build the documentation site into build/docs; warnings are errors
	@$(RUN) $(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet -d build/doctrees docs build/docs
	@echo "The site is in build/docs. Open build/docs/index.html."

pictures: setup ## Make the pictures of README and docs from a run of the demo; needs chromium and chromedriver
	@$(RUN) $(BIN)/python -m tests.system.pictures

lint: setup ## Style, formatting and which part may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: setup ## Put the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: setup ## Static types, strict
	$(BIN)/mypy
	MYPYPATH=provider:docs/_ext $(BIN)/mypy -p cpaas_docs

check: lint types test ## Style, types and the fast tests

torture: setup ## The long tests, whole instead of a sample
	@$(RUN) TORTURE=1 $(BIN)/python -m pytest $(ARGS)

setup: ## Make .venv and install what is pinned; does nothing when that is done
	@$(MADE_FROM) | cmp -s - $(STAMP) || $(MAKE) --no-print-directory install

.PHONY: install
install: $(BIN)/python
	@rm -f $(STAMP)
	@echo "Installing what constraints.txt pins into $(VENV) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@$(BIN)/python -m uv --version >/dev/null 2>&1 \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv \
	  || echo "uv cannot be had here; going on with pip, which is slower."
	@if $(BIN)/python -m uv --version >/dev/null 2>&1 && $(UV) hatchling editables --group dev -r pyproject.toml \
	    && $(UV) --no-build-isolation --no-deps --editable .; then :; else \
	  $(PIP) --upgrade 'pip>=25.1' \
	  && $(PIP) hatchling editables \
	  && $(PIP) --no-build-isolation --group dev --editable . ; \
	fi
	@$(MADE_FROM) > $(STAMP)

.PHONY: install-floors
install-floors:
	@echo "Installing the lowest versions into $(FLOORS) ..."
	@rm -rf $(FLOORS) && $(BIN)/python -m venv --without-pip $(FLOORS)
	@$(BIN)/python -m uv pip install --quiet --python $(FLOORS)/bin/python --constraint constraints-floors.txt \
	  hatchling editables --group test -r pyproject.toml
	@$(BIN)/python -m uv pip install --quiet --python $(FLOORS)/bin/python --no-build-isolation --no-deps --editable .
	@$(FLOORS_FROM) > $(FLOORS)/.installed

UV = $(BIN)/python -m uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

$(BIN)/python:
	@for python in $(PYTHON); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' >/dev/null 2>&1 || continue; \
	  if ! "$$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then lacking="$$python"; continue; fi; \
	  echo "Making $(VENV) with $$("$$python" --version) ..."; \
	  "$$python" -m venv $(VENV) && exit 0; \
	  rm -rf $(VENV); \
	done; \
	if [ -n "$$lacking" ]; then \
	  echo "$$lacking has no venv module. Install it (Debian and Ubuntu: the package python3-venv) and try again." >&2; \
	else \
	  echo "No Python 3.11 or newer found among: $(PYTHON). Install one, or say where it is:" >&2; \
	  echo "  make PYTHON=/path/to/python3.12" >&2; \
	fi; \
	exit 1

constraints: setup ## Pin the newest versions that go together, for all Pythons we support
	@printf 'hatchling\neditables\nuv\n' \
	  | $(BIN)/python -m uv pip compile --quiet --upgrade --universal --fork-strategy fewest --python-version 3.11 \
	      --no-annotate --no-header --group dev pyproject.toml - \
	  | sed 's/ *;.*//' | sort > constraints.new
	@twice=$$(cut -d= -f1 constraints.new | uniq -d); \
	if [ -n "$$twice" ]; then echo "No single version fits all Pythons: $$twice" >&2; exit 1; fi
	@mv constraints.new constraints.txt
	@echo "constraints.txt holds $$(wc -l < constraints.txt) pins. 'make setup' installs them."

constraints-floors: setup ## Pin the lowest versions pyproject.toml accepts, and what goes with them
	@$(BIN)/python -m uv pip compile --quiet --python-version 3.11 \
	  --all-extras --resolution lowest-direct --exclude-newer $(FLOORS_DATE) --no-annotate --no-header pyproject.toml \
	  | sed 's/ *;.*//' | sort > constraints-floors.txt

clean: demo-stop ## Remove everything that was made here, .venv included
	rm -rf $(VENV) $(FLOORS) .demo .bench .airflow build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache $(RECORDED)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
