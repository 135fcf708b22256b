# Blindsight: `make` alone lists the targets.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= out
REQUIREMENTS := pyproject.toml constraints.txt
# Bytecode is written, or every process of every test would compile the library again.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help adversaries demo federated-demo test test-all test-faults test-portable test-python test-wheel test-wheel-newest test-notebooks check lock bench bench-all coverage papers reference notebooks docs clean

help:  ## list the targets
	@echo "Blindsight: learn from, search through and share images that nobody may see."
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(VENV)/.base  ## set up, run the whole story on bundled data, write out/report.html
	$(BIN)/blindsight demo --out $(OUT)

federated-demo: $(VENV)/.federated  ## five owners and a key generator learn over loopback: real processes, TLS, Flower
	$(BIN)/python -m apps.federated.demo --out $(OUT)/federated

test: $(VENV)/.all  ## set up with every extra; lint, types, import contract and the fast tests
	@tools/browser.sh
	@tools/test.sh $(BIN)/python

test-all: $(VENV)/.all  ## the same with the slow tests
	@tools/browser.sh
	@tools/test.sh $(BIN)/python -m "slow or not slow"

test-faults: $(VENV)/.all  ## kill parties of a real deployment over loopback: the short part of its slow tests
	$(BIN)/python -m pytest -m slow tests/federated/faults/test_faults_short.py

test-portable: $(VENV)/.all  ## the numeric tests as on other CPUs: make test-portable [MACHINES="Haswell Sandybridge"]
	$(BIN)/python tools/portable.py $(MACHINES)

test-python:  ## the fast tests of what installs on another interpreter: make test-python PYTHON=python3.13
	tools/other_python.sh $(PYTHON) $(ARGS)

test-wheel: $(BIN)/python  ## the wheel in empty environments, with the newest versions tried and the oldest: first steps, demo [PYTHONS=...]
	$(BIN)/python tools/wheel.py $(PYTHONS)

test-wheel-newest: $(BIN)/python  ## the same with the newest versions there are today, noted in tools/tried.txt if it works [PYTHONS=...]
	$(BIN)/python tools/wheel.py --newest $(PYTHONS)

test-notebooks: $(VENV)/.all  ## make the notebooks in examples/ from the tutorials and execute them
	$(BIN)/python tools/notebooks.py --run

adversaries: $(VENV)/.all  ## play every attack on its weakness and on the repair, write the table of docs/audit.md
	$(BIN)/python tools/adversaries.py

check: $(VENV)/.all  ## lint, types, import contracts, limits of walks, lock file, generated reference
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/walk.py --check
	$(BIN)/python tools/lock.py --check
	$(BIN)/python tools/cli_reference.py --check
	$(BIN)/python tools/notebooks.py --check
	$(BIN)/python tools/papers_map.py --check

bench: $(VENV)/.all  ## one benchmark: make bench NAME=attributes [ARGS="--data-dir ..."]; without NAME lists them
	$(BIN)/python benchmarks/run.py $(if $(NAME),$(NAME),--list) $(ARGS)

bench-all: $(VENV)/.all  ## every benchmark measured with this commit; says how long each takes, goes on where it stopped [ARGS=--force]
	$(BIN)/python benchmarks/run.py --all $(ARGS)

coverage: $(VENV)/.all  ## the fast tests with branch coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest -n auto --dist=worksteal
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered

lock: $(VENV)/.all  ## resolve and pin every dependency in constraints.txt
	$(BIN)/python tools/lock.py

papers: $(VENV)/.all  ## write src/blindsight/papers/README.md from papers/items.toml and the benchmarks' tables
	$(BIN)/python tools/papers_map.py

reference: $(VENV)/.all  ## write docs/cli.md from the command line's own help
	$(BIN)/python tools/cli_reference.py

notebooks: $(VENV)/.all  ## write the notebooks in examples/ from docs/tutorials
	$(BIN)/python tools/notebooks.py

docs: $(VENV)/.all  ## the documentation and the reference of the Python interface as a site, without dead links
	$(BIN)/python tools/docs.py $(OUT)/site

clean:  ## remove the virtual environment, caches and output
	rm -rf $(VENV) .venv-* $(OUT) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Blindsight needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(REQUIREMENTS) | $(BIN)/python
	@echo "Installing Blindsight into $(VENV) ..."
	$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.federated: $(REQUIREMENTS) | $(BIN)/python
	@echo "Installing Blindsight with Flower into $(VENV) ..."
	$(PIP_INSTALL) --editable '.[federated,he]'
	@touch $@ $(VENV)/.base

$(VENV)/.all: $(REQUIREMENTS) | $(BIN)/python
	@echo "Installing Blindsight with every extra into $(VENV) (about 2 GB) ..."
	$(PIP_INSTALL) --editable '.[all,dev]'
	@touch $@ $(VENV)/.base $(VENV)/.federated
