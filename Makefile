# Commands of the study. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
PROFILE ?= default
TASKS ?=
MACHINE ?= same
COMMA := ,
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

# Installing is a file, so that it happens once and again only when the lock changes.
$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than 3.11; set PYTHON=python3.11 or newer"; exit 2; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "installing locked packages into $(VENV) (some minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

# The optional task, which the tests and `make textworld` need: a study that uses it installs the
# extra itself.
$(VENV)/.textworld: $(VENV)/.installed requirements-textworld.lock
	@echo "installing the optional task textworld into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -c requirements.lock -r requirements-textworld.lock
	@touch $@

.PHONY: setup
setup: $(VENV)/.installed ## make .venv with the locked packages

.PHONY: params
params: setup ## write params.yaml from configs/ (PROFILE=smoke|default|full, TASKS=babyai,sqlqa)
	@python -m agent_rl.stages.params profile=$(PROFILE) tasks=$(TASKS)

.PHONY: repro
repro: params ## run the study: every stage that is not up to date (PROFILE=, TASKS= as params)
	@test -d .git || dvc config --local core.no_scm true
	@dvc repro
	@if [ "$(PROFILE)" = default ]; then \
	  python -m agent_rl.stages.report --readme README.md --only-readme; fi
	@echo "done: read reports/index.md or open reports/report.html"

.PHONY: smoke
smoke: setup ## the whole pipeline on toy sizes, in a copy; this checkout stays as it is
	@python -m agent_rl.stages.smoke

.PHONY: textworld
textworld: setup $(VENV)/.textworld ## one run on the optional TextWorld family, for the report -> results/showcase/
	@python -m agent_rl.stages.showcase --task textworld

.PHONY: test
test: lint $(VENV)/.textworld ## lint, layer check and all tests, the smoke pipeline included
	@AGENT_RL_REQUIRE_EXTRAS=1 python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: test-slow
test-slow: setup ## put known faults into copies of the package: the tests must catch each
	@python -m pytest -m mutation -n 2

.PHONY: lint
lint: setup ## style, types, layers
	@ruff check src tests examples benchmarks
	@ruff format --check src tests examples benchmarks
	@mypy
	@lint-imports --no-cache > /dev/null || { lint-imports --no-cache; exit 1; }

.PHONY: report
report: setup ## figures, Markdown and HTML from results/ alone
	@python -m agent_rl.stages.report --readme README.md

.PHONY: tune
tune: setup ## equal-budget search of each arm's learning rate, on validation instances
	@python -m agent_rl.stages.tune

.PHONY: bench
bench: setup ## speed and memory of rollouts and training -> results/bench.csv
	@python -m benchmarks

.PHONY: verify
verify: setup ## run the study again in another folder, compare with results/ (PROFILE=, TASKS=, MACHINE=other)
	@python -m agent_rl.stages.verify --profile $(PROFILE) --machine $(MACHINE) \
	  $(addprefix --task ,$(subst $(COMMA), ,$(TASKS)))

.PHONY: licences
licences: setup $(VENV)/.textworld ## the licence of every locked package
	@python -m agent_rl.stages.licences

.PHONY: audit-packages
audit-packages: setup ## known vulnerabilities of the locked packages, where a database can be reached
	@python -m agent_rl.stages.audit_packages

# Parts of the study that are not there yet say so, rather than do half of it.
.PHONY: ablation
ablation: ## factorial ablations (ABLATION=name JOBS=n): not built yet
	@echo "error: make ablation is not built yet; one cell is: python -m agent_rl run ..." >&2; exit 2
