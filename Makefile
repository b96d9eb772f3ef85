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
# Environments with other versions, .venv-NAME, have those of constraints-NAME.txt.
OTHERS = .venv-floors .venv-prerelease
OTHER_FROM = cksum pyproject.toml constraints-$*.txt
# Some days after Airflow 3.3.0: what went with it then, as whoever still runs it has it.
FLOORS_DATE := 2026-07-15
# Where no pre-release is newer than the newest release, this is that release.
PRERELEASE = hatchling editables 'apache-airflow>=3.4.0a0' 'apache-airflow-core>=3.4.0a0' 'apache-airflow-task-sdk>=1.4.0a0'

# How many processes share the tests; 0 runs them in one, where a debugger works. More than there are cores, as each
# waits for servers and disks at times. The slow tests wait most of their time; .ci/run has the lowest versions beside.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + $(WAITING))))
WAITING = 1
test-slow: WAITING = 3
test-floors: WAITING = 0
# Files run in the order of their names: those of real tasks, which take longest, come first, so that no process is left
# with one of them at the end. tests/tiers.py says which test belongs where. SEED=7 runs the fast tests in a random order, the same for the same seed.
SHARED = -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(if $(SEED),--random-order-seed=$(SEED))
FAST = -m "not slow and not system and not torture" $(SHARED)
# Hundreds of small databases are made: in memory, where that can be had, a commit does not wait for a disk.
IN_MEMORY = TMPDIR=$(shell test -w /dev/shm && echo /dev/shm || echo $${TMPDIR:-/tmp})
RECORDED = .tiers

.PHONY: help setup demo demo-stop cluster-demo test test-slow test-system test-all test-tiers slowest test-floors test-prerelease bench-journal bench-campaign bench-contacts bench-rate bench-million bench-end-to-end bench-waiting bench-outage bench-receiver bench-pages docs reference pictures lint format types check mutants torture constraints constraints-floors constraints-prerelease clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## Run two campaigns on a real Airflow against the sandbox (KEEP=1 leaves both running)
	@$(RUN) $(BIN)/python -m tests.system.demo run

demo-stop: ## Stop Airflow and the sandbox after `make demo KEEP=1`
	@if [ -x $(BIN)/python ]; then $(RUN) $(BIN)/python -m tests.system.demo stop; fi

cluster-demo: setup ## Kill a worker of a Celery cluster in the middle of a campaign (ARGS="--recipients 100000 --kill-after 20")
	@$(RUN) $(BIN)/python -m tests.system.cluster $(ARGS)

test: setup ## Run the fast tests, in minutes (ARGS="-k sms" selects some)
	@$(RUN) $(IN_MEMORY) $(BIN)/python -m pytest $(FAST) --write-durations=$(RECORDED)/fast.json $(ARGS)

test-slow: setup ## Run the slow tests: programs, browsers, builds, larger samples of generated input
	@$(RUN) EXAMPLES=sample $(BIN)/python -m pytest -m "(slow or generated) and not torture" $(SHARED) \
	  --write-durations=$(RECORDED)/slow.json $(ARGS)

test-system: setup ## Run the tests with real Airflow processes: demo, kills, delivery
	@$(RUN) $(BIN)/python -m pytest -m system --write-durations=$(RECORDED)/system.json $(ARGS)

test-all: test test-slow test-system ## Run the fast, slow and system tests

test-tiers: setup ## Check that every test of the last `make test` was fast
	@$(RUN) $(IN_MEMORY) $(BIN)/python -m tests.tiers check $(RECORDED)/fast.json

slowest: setup ## Show the slowest tests of the last runs
	@$(RUN) $(BIN)/python -m tests.tiers slowest $(RECORDED)/fast.json $(RECORDED)/slow.json $(RECORDED)/system.json

test-floors: ## Run the fast tests that depend on versions, at the lowest versions that pyproject.toml accepts
test-prerelease: ## Run the fast tests, and "Clear task", on the newest pre-release of Airflow
test-floors: OF_FAST = -m "versioned and not slow and not system" $(SHARED)
test-prerelease: OF_FAST = $(FAST)
test-prerelease: OF_SYSTEM = tests/system/test_cleared.py
test-floors test-prerelease: OTHER_RUN = env -u PYTHONDONTWRITEBYTECODE PATH="$(CURDIR)/.venv-$*/bin:$$PATH" \
  VIRTUAL_ENV="$(CURDIR)/.venv-$*" $(IN_MEMORY)
test-floors test-prerelease: test-%: setup
	@$(OTHER_FROM) | cmp -s - .venv-$*/.installed || $(MAKE) --no-print-directory install-$*
	@$(OTHER_RUN) .venv-$*/bin/python -m pytest $(OF_FAST) $(ARGS)
	@$(if $(OF_SYSTEM),$(OTHER_RUN) .venv-$*/bin/python -m pytest $(OF_SYSTEM))

bench-journal: setup ## Measure a single send with and without the journal
	@$(RUN) $(BIN)/python -m tests.benchmarks.journal_cost

bench-campaign: setup ## Measure the throughput of campaigns (ARGS="--rounds 3" shortens it)
	@$(PIP) --no-deps --upgrade --target $(VENV)/peers -r tests/benchmarks/campaign/peers.txt
	@$(RUN) $(BIN)/python -m tests.benchmarks.campaign $(ARGS)

bench-contacts: setup ## Measure contact syncs beside a bare loop and peers (ARGS="--rows 100000" shortens it)
	@$(PIP) --no-deps --upgrade --target $(VENV)/peers -r tests/benchmarks/campaign/peers.txt
	@$(RUN) $(BIN)/python -m tests.benchmarks.contacts $(ARGS)

bench-rate: setup ## Measure the rate limit of campaigns, in one task and in four partitions
	@$(RUN) $(BIN)/python -m tests.benchmarks.rate_limit

bench-million: setup ## Measure time and memory of a million recipients from every kind of source
	@for work in dry_run send; do \
	  $(RUN) $(BIN)/python -m tests.benchmarks.campaign.memory \
	    tests.benchmarks.campaign.in_process:$$work .bench $(ARGS) || exit 1; \
	done

bench-end-to-end: setup ## Measure a campaign to a million on a real Airflow, from trigger to success (ARGS="--recipients 100000")
	@$(RUN) $(BIN)/python -m tests.benchmarks.campaign.end_to_end $(ARGS)

bench-waiting: setup ## Measure 10,000 waiting triggers (ARGS="--waiters 1000" takes fewer)
	@$(RUN) $(BIN)/python -m tests.benchmarks.waiting $(ARGS)

bench-outage: setup ## Measure 10,000 waits through an outage of the database (ARGS="--away 300" takes longer)
	@$(RUN) $(BIN)/python -m tests.benchmarks.outage $(ARGS)

bench-pages: setup ## Measure the pages in Airflow's UI (ARGS="--reports 100000" takes fewer)
	@$(RUN) $(BIN)/python -m tests.benchmarks.pages $(ARGS)

bench-receiver: setup ## Measure the rate of delivery reports (ARGS="--rounds 1 --body webhook" takes fewer)
	@$(RUN) $(BIN)/python -m tests.benchmarks.receiver $(ARGS)

docs: setup ## Build the documentation site into build/docs; warnings are errors
	@$(RUN) $(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet -d build/doctrees docs build/docs
	@echo "The site is in build/docs. Open build/docs/index.html."

reference: setup ## Write the generated parts of the documentation anew, after a change of signatures or docstrings
	@$(RUN) PYTHONPATH=docs/_ext:. $(BIN)/python -m cpaas_docs.pages

pictures: setup ## Make the pictures of README and docs from a demo run (those of pages need chromium and chromedriver)
	@$(RUN) $(BIN)/python -m tests.system.pictures

lint: setup ## Check style, formatting and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: setup ## Check the static types
	$(BIN)/mypy
	MYPYPATH=provider:docs/_ext $(BIN)/mypy -p cpaas_docs

check: lint types test ## Run lint, types and the fast tests

mutants: setup ## Change the code line by line, and show what no test notices (ARGS="--files guards --most 20 --seed 3")
	@$(RUN) $(IN_MEMORY) $(BIN)/python -m tests.mutants $(ARGS)

torture: setup ## Run the slow and system tests whole instead of a sample (hours)
	@$(RUN) TORTURE=1 $(BIN)/python -m pytest $(ARGS)

setup: ## Make .venv and install the pinned versions, if not done yet
	@$(MADE_FROM) | cmp -s - $(STAMP) || $(MAKE) --no-print-directory install

.PHONY: install
install: $(BIN)/python
	@rm -f $(STAMP)
	@echo "Installing the versions of constraints.txt into $(VENV) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@$(BIN)/python -m uv --version >/dev/null 2>&1 \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv \
	  || echo "uv is not available. Continuing with pip, which is slower."
	@if $(BIN)/python -m uv --version >/dev/null 2>&1 && $(UV) hatchling editables --group dev -r pyproject.toml \
	    && $(UV) --no-build-isolation --no-deps --editable .; then :; else \
	  $(PIP) --upgrade 'pip>=25.1' \
	  && $(PIP) hatchling editables \
	  && $(PIP) --no-build-isolation --group dev --editable . ; \
	fi
	@$(MADE_FROM) > $(STAMP)

.PHONY: install-floors install-prerelease
install-floors install-prerelease: install-%:
	@echo "Installing the versions of constraints-$*.txt into .venv-$* ..."
	@rm -rf .venv-$* && $(BIN)/python -m venv --without-pip .venv-$*
	@$(BIN)/python -m uv pip install --quiet --python .venv-$*/bin/python --constraint constraints-$*.txt \
	  hatchling editables --group test -r pyproject.toml
	@$(BIN)/python -m uv pip install --quiet --python .venv-$*/bin/python --no-build-isolation --no-deps --editable .
	@$(OTHER_FROM) > .venv-$*/.installed

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
	  echo "No Python 3.11 or newer found among: $(PYTHON). Install one, or give its path:" >&2; \
	  echo "  make PYTHON=/path/to/python3.12" >&2; \
	fi; \
	exit 1

constraints: setup ## Pin the newest versions for all supported Pythons
	@printf 'hatchling\neditables\nuv\n' \
	  | $(BIN)/python -m uv pip compile --quiet --upgrade --universal --fork-strategy fewest --python-version 3.11 \
	      --no-annotate --no-header --group dev pyproject.toml - \
	  | sed 's/ *;.*//' | sort > constraints.new
	@twice=$$(cut -d= -f1 constraints.new | uniq -d); \
	if [ -n "$$twice" ]; then echo "No single version fits all Pythons: $$twice" >&2; exit 1; fi
	@mv constraints.new constraints.txt
	@echo "constraints.txt holds $$(wc -l < constraints.txt) pins. 'make setup' installs them."

constraints-floors: setup ## Pin the lowest versions that pyproject.toml accepts
	@$(BIN)/python -m uv pip compile --quiet --python-version 3.11 \
	  --all-extras --resolution lowest-direct --exclude-newer $(FLOORS_DATE) --no-annotate --no-header pyproject.toml \
	  | sed 's/ *;.*//' | sort > constraints-floors.txt

# Other packages stay at the versions of constraints.txt, unless the pre-release needs another.
constraints-prerelease: setup ## Pin the newest pre-release of Airflow
	@cp constraints.txt constraints-prerelease.new
	@printf '%s\n' $(PRERELEASE) | $(BIN)/python -m uv pip compile --quiet --python-version 3.11 \
	  --upgrade-package apache-airflow --upgrade-package apache-airflow-core --upgrade-package apache-airflow-task-sdk \
	  --no-annotate --no-header --output-file constraints-prerelease.new --group test pyproject.toml - > /dev/null
	@sed 's/ *;.*//' constraints-prerelease.new | sort > constraints-prerelease.txt
	@rm constraints-prerelease.new

clean: demo-stop ## Remove all build results, environments and caches
	rm -rf $(VENV) $(OTHERS) .demo .bench .airflow build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache $(RECORDED)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
