# Every target sets up what it needs: a fresh machine with Python >= 3.11 and make is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
MUTANT := build/mutants/venv
DOJO   := build/agentdojo/venv

.PHONY: help test retest check format house demo crash govern mutants agentdojo bench bench-peers bench-models bench-page clean
help:            ## what each target does
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  +##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/' | expand -t 16

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Nine Lives needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

test: check      ## lint, types, layers and every test but the long forms
	$(BIN)/pytest -n 2 --dist loadfile

retest: $(READY) ## the tests that failed last time, one after the other
	$(BIN)/pytest --last-failed --last-failed-no-failures none

check: $(READY)  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## let ruff format the code and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

house: $(READY)  ## modules, cycles, words, walks: the source in numbers, beside their limits (docs/house.md)
	$(BIN)/python -m tests.house --page docs/house.md

demo: $(READY)   ## watch a support agent being killed -9 and going on
	$(BIN)/python -m ninelives.demo

crash: $(READY)  ## the whole fault programme, up to an hour (build/proof, docs/proof.md)
	$(BIN)/python -m tests.proof --page docs/proof.md

govern: $(READY) ## what governing promises, at full length, some hours (build/govern, docs/governance-proof.md)
	$(BIN)/python -m tests.governance.proof --page docs/governance-proof.md

# mutmut 3.8 asks pytest for what pytest 9 no longer has: it gets a place of its own.
$(MUTANT)/.ready: pyproject.toml
	$(PYTHON) -m venv $(MUTANT)
	$(MUTANT)/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(MUTANT)/bin/pip install --quiet --disable-pip-version-check mutmut==3.8.0 pytest==8.4.2
	@touch $@

mutants: $(MUTANT)/.ready ## small changes of the load-bearing rooms, each to be noticed by a unit test (docs/mutants.md)
	$(MUTANT)/bin/python -m tests.mutation --page docs/mutants.md

# AgentDojo needs half a hundred other packages: it gets a place of its own.
$(DOJO)/.ready: pyproject.toml
	$(PYTHON) -m venv $(DOJO)
	$(DOJO)/bin/pip install --quiet --disable-pip-version-check -e . agentdojo==0.1.35
	@touch $@

agentdojo: $(DOJO)/.ready ## AgentDojo's injected tasks, with a model that obeys all it reads (docs/agentdojo.md)
	$(DOJO)/bin/python -m tests.governance.agentdojo

bench: $(READY)  ## every workload on every store, against the raw stores (build/bench.json)
	$(BIN)/python -m benchmarks --out build/bench.json

bench-peers: $(READY) ## the same beside DBOS, LangGraph, Absurd, Restate, Temporal (build/bench-peers.json)
	$(BIN)/python -m benchmarks --peers --out build/bench-peers.json

bench-models: $(READY) ## hedges and breakers with the real clients, against a server of heavy tails
	$(BIN)/python -m benchmarks.model_calls

bench-page: $(READY) ## write docs/benchmarks.md and its plots from what both have measured
	$(BIN)/python -m benchmarks report

clean:           ## remove what the targets made
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
