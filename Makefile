# The two commands of the README, and their parts. Everything else is `invoke --list`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: plan test lint install packages clean

plan: install ## an embedded AWS on this machine, and the plan of a hybrid cluster on it
	$(BIN)/invoke plan

test: install packages lint ## everything that CI runs
	$(BIN)/pytest --cov --cov-report=term:skip-covered

lint: install ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(VENV)/.installed ## a virtual environment with all that is needed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable . --group dev
	touch $@

packages: ## system packages that tests need, where they may be installed
	@tests/packages.sh

clean: ## take the virtual environment away; build/ stays, it holds state
	rm -rf $(VENV)
