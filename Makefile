# The two commands of the README, and their parts. Everything else is `invoke --list`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Tests start hundreds of processes: each would compile all of infra again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: plan test nightly coverage lint site policy install dev packages clean

plan: install ## an embedded AWS on this machine, and the plan of a hybrid cluster on it
	$(BIN)/invoke plan

# The network lab's daemons keep time by seconds, so nothing else runs beside it. What fails is tried once more, and
# listed as RERUN where it passes then: hundreds of real daemons share two cores.
test: dev packages lint policy ## everything that CI runs
	$(BIN)/pytest --numprocesses 4 --durations=15 --reruns 1 --rerun-show-tracebacks -rfExX --ignore=tests/network
	$(BIN)/pytest --numprocesses 2 --durations=5 --reruns 1 --rerun-show-tracebacks -rfExX tests/network

# Files that are heavy run whole: some tests of theirs go on with what those before them made.
nightly: dev packages ## what takes minutes of CPU: machines that boot, a whole cluster, all of the reference spec
	$(BIN)/pytest -m "nightly or heavy" --numprocesses 2 --durations=15 --reruns 1 --rerun-show-tracebacks \
	  --ignore=tests/cluster --ignore=tests/network
	$(BIN)/pytest -m "nightly or not nightly" --numprocesses 2 --durations=5 --reruns 1 --rerun-show-tracebacks tests/network
	$(BIN)/pytest -m nightly --durations=15 tests/cluster

coverage: dev packages ## which lines of infra no test runs
	$(BIN)/pytest --numprocesses 4 --cov --cov-report=term:skip-covered

lint: dev site ## style, types, layers, and links of the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

site: $(VENV)/.docs ## the documentation as a site, in docs/.site/; a broken link or anchor is an error
	$(BIN)/zensical build --config-file docs/zensical.toml --strict

policy: install $(VENV)-checkov/.installed ## the rendered Terraform against checkov's rules
	$(BIN)/invoke render --env research
	$(VENV)-checkov/bin/checkov --config-file .checkov.yaml --directory build/research/terraform \
	  --var-file build/research/terraform/terraform.tfvars.json

install: $(VENV)/.installed ## a virtual environment with all that is needed to use it

dev: $(VENV)/.dev ## and what tests and linters need

$(VENV)/.installed: pyproject.toml client/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[local,plots]' --editable 'client[board,search]'
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --group dev
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --group docs
	touch $@

# checkov pins much of what it needs, so it has a virtual environment of its own.
$(VENV)-checkov/.installed:
	$(PYTHON) -m venv $(VENV)-checkov
	$(VENV)-checkov/bin/pip install --quiet --prefer-binary 'checkov==3.3.30'
	touch $@

packages: install $(VENV)-tensorflow/.installed $(VENV)-frameworks/.installed $(VENV)-mlflow/.installed $(VENV)-jupyter/.installed ## what tests need: kubectl, helm, frameworks, MLflow, system packages where they may be installed
	@tests/tools.sh $(VENV)-tools $(BIN)/python
	@tests/packages.sh

# 1.5 GB, so it has a virtual environment of its own. tf-keras asks for `tensorflow`, which is the same with CUDA.
$(VENV)-tensorflow/.installed:
	$(PYTHON) -m venv $(VENV)-tensorflow
	$(VENV)-tensorflow/bin/pip install --quiet 'tensorflow-cpu==2.21.0' \
	  && $(VENV)-tensorflow/bin/pip install --quiet --no-deps 'tf-keras==2.21.0' \
	  || echo "no tensorflow-cpu 2.21 for this Python: its tests are skipped" >&2
	touch $@

# torch without CUDA, which PyPI does not have; 1.2 GB all the same.
$(VENV)-frameworks/.installed:
	$(PYTHON) -m venv $(VENV)-frameworks
	$(VENV)-frameworks/bin/pip install --quiet --index-url https://download.pytorch.org/whl/cpu 'torch==2.13.0' \
	  && $(VENV)-frameworks/bin/pip install --quiet 'lightning==2.6.6' 'transformers==5.24.0' 'accelerate==1.15.0' 'numpy==2.*' \
	  || echo "no torch 2.13 for this Python: the tests of Lightning and transformers are skipped" >&2
	touch $@

# What the image of tracking/Dockerfile has. The plugins ask for Python 3.12, and run on 3.11.
$(VENV)-mlflow/.installed: tracking/requirements.txt
	$(PYTHON) -m venv $(VENV)-mlflow
	$(VENV)-mlflow/bin/pip install --quiet $$(grep -v -e '^#' -e plugins $<) \
	  && $(VENV)-mlflow/bin/pip install --quiet --no-deps --ignore-requires-python $$(grep '^mlflow.*plugins' $<) \
	  || echo "no MLflow for this Python: its tests are skipped" >&2
	touch $@

# What an image for notebooks has.
$(VENV)-jupyter/.installed:
	$(PYTHON) -m venv $(VENV)-jupyter
	$(VENV)-jupyter/bin/pip install --quiet 'jupyterlab==4.6.6' \
	  || echo "no JupyterLab 4.6 for this Python: its tests are skipped" >&2
	touch $@

clean: ## take the virtual environment away; build/ stays, it holds state
	rm -rf $(VENV) $(VENV)-checkov $(VENV)-tensorflow $(VENV)-frameworks $(VENV)-mlflow $(VENV)-jupyter $(VENV)-tools
