# The two commands of the README, and their parts. Everything else is `invoke --list`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Tests start hundreds of processes: each would compile all of infra again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: plan test integration stale coverage lint site install dev tools clean

plan: install ## an embedded AWS on this machine, and the plan of a hybrid cluster on it
	$(BIN)/invoke plan

test: lint tools ## style, types, layers, and every test that takes seconds and needs neither a VM nor a cluster
	$(BIN)/pytest --numprocesses 4 --durations=10
	@-$(BIN)/python tests/integration.py --stale

# AREA=network runs that area, ALL=1 all of them; else those whose files have changed since they last passed.
# MINUTES=45 leaves an area stale that would not end by then.
integration: dev ## the stale areas: real daemons, VMs, clusters; Terraform from apply to destroy
	$(BIN)/python tests/integration.py $(if $(AREA),--area $(AREA)) $(if $(ALL),--all) $(if $(MINUTES),--minutes $(MINUTES))

stale: dev ## which areas `make integration` would run, and their minutes
	@$(BIN)/python tests/integration.py --stale

# What an area needs beyond `make dev`. `make integration` asks for it before it runs the area.
setup-%: dev
	@tests/packages.sh $*
setup-packages: dev
	@tests/packages.sh
setup-terraform: $(VENV)-checkov/.installed
setup-kubernetes setup-autoscaler setup-kubelet setup-client: tools
setup-kubernetes setup-client setup-runs: $(VENV)-mlflow/.installed
setup-client setup-kubelet setup-runs: $(VENV)-jupyter/.installed
setup-runs: $(VENV)-tensorflow/.installed $(VENV)-frameworks/.installed

coverage: dev ## which lines of infra no test runs
	$(BIN)/pytest --numprocesses 4 --cov --cov-report=term:skip-covered

lint: dev site ## style, types, layers, and links of the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

site: $(VENV)/.docs ## the documentation as a site, in docs/.site/; a broken link or anchor is an error
	$(BIN)/zensical build --config-file docs/zensical.toml --strict

install: $(VENV)/.installed ## a virtual environment with all that is needed to use it

dev: $(VENV)/.dev ## and what tests and linters need

$(VENV)/.installed: pyproject.toml client/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[local,plots]' --editable 'client[board,search]'
	$(BIN)/invoke schema > environments/spec.schema.json
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

tools: install ## kubectl and Helm
	@tests/tools.sh $(VENV)-tools $(BIN)/python

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
