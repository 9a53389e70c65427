# The two commands of the README, and their parts. Everything else is `invoke --list`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Tests start hundreds of processes: each would compile all of infra again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: plan test coverage lint policy install packages clean

plan: install ## an embedded AWS on this machine, and the plan of a hybrid cluster on it
	$(BIN)/invoke plan

# The network lab's daemons keep time by seconds, so nothing else runs beside it. What fails is tried once more, and
# listed as RERUN where it passes then: hundreds of real daemons share two cores.
test: install packages lint policy ## everything that CI runs
	$(BIN)/pytest --numprocesses 4 --durations=15 --reruns 1 --rerun-show-tracebacks -rfExX --ignore=tests/network
	$(BIN)/pytest --numprocesses 2 --durations=5 --reruns 1 --rerun-show-tracebacks -rfExX tests/network

coverage: install packages ## which lines of infra no test runs
	$(BIN)/pytest --numprocesses 4 --cov --cov-report=term:skip-covered

lint: install ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

policy: install $(VENV)-checkov/.installed ## the rendered Terraform against checkov's rules
	$(BIN)/invoke render --env research
	$(VENV)-checkov/bin/checkov --config-file .checkov.yaml --directory build/research/terraform \
	  --var-file build/research/terraform/terraform.tfvars.json

install: $(VENV)/.installed ## a virtual environment with all that is needed

$(VENV)/.installed: pyproject.toml client/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable . --editable client --group dev
	touch $@

# checkov pins much of what it needs, so it has a virtual environment of its own.
$(VENV)-checkov/.installed:
	$(PYTHON) -m venv $(VENV)-checkov
	$(VENV)-checkov/bin/pip install --quiet --prefer-binary 'checkov==3.3.30'
	touch $@

packages: install $(VENV)-tensorflow/.installed ## what tests need: kubectl, helm, TensorFlow, system packages where they may be installed
	@tests/tools.sh $(VENV)-tools $(BIN)/python
	@tests/packages.sh

# 1.5 GB, so it has a virtual environment of its own. tf-keras asks for `tensorflow`, which is the same with CUDA.
$(VENV)-tensorflow/.installed:
	$(PYTHON) -m venv $(VENV)-tensorflow
	$(VENV)-tensorflow/bin/pip install --quiet 'tensorflow-cpu==2.21.0' \
	  && $(VENV)-tensorflow/bin/pip install --quiet --no-deps 'tf-keras==2.21.0' \
	  || echo "no tensorflow-cpu 2.21 for this Python: its tests are skipped" >&2
	touch $@

clean: ## take the virtual environment away; build/ stays, it holds state
	rm -rf $(VENV) $(VENV)-checkov $(VENV)-tensorflow $(VENV)-tools
