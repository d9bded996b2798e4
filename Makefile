# iothub: one verb each. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
QUEUES := services/iothub_services/queues
COMPILED := iothub/engine iothub/peers services/iothub_services services/iothub_services/hbase $(QUEUES) $(foreach folder,hbase journal redis remote sqlite,$(QUEUES)/$(folder)) services/iothub_services/quota services/iothub_services/retained $(foreach folder,broker control,tenants/iothub_tenants/$(folder))
SOURCES := $(wildcard $(foreach folder,$(COMPILED),$(folder)/*.py $(folder)/*.pxd $(folder)/*.pyx))
PORT ?= 1883
WORKERS ?= 1
DIST ?= dist
export PYTHONDONTWRITEBYTECODE :=  # where it is set, every start compiles all modules again: 0.6 s of CPU for each hub that a test starts

.PHONY: help install run test check bench fuzz mutants nightly dist dist-arm64 deb docs services services-stop coprocessor fmt clean

help:  ## show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(STAMP)  ## create .venv, compile the message plane, install the iothub command into it

$(STAMP): setup.cfg setup.py pyproject.toml $(SOURCES)
	@$(PYTHON) ops/check_python.py
	@$(PYTHON) ops/install.py $(EXTRAS)
	@touch $@

$(DEV_STAMP): EXTRAS := dev  # of the installation before it, too: what the tests need is downloaded while the message plane is compiled
$(DEV_STAMP): $(STAMP)
	@echo "installing what the tests need into $(VENV) ..."
	@$(BIN)/python ops/requirements.py dev > $(VENV)/dev-requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/dev-requirements.txt
	@touch $@

run: install  ## start a hub with tenant "demo" on the embedded default and print how to connect (PORT=1883 WORKERS=1)
	@exec $(BIN)/python ops/demo.py --port='$(PORT)' --workers='$(WORKERS)'

test:  ## install what the tests need (real services included) and run all of them
	@PYTHON='$(PYTHON)' bash ops/test.sh

check: $(DEV_STAMP)  ## the inner loop: format, lint, types, import contracts, unit and architecture tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@PYTHONPATH=. $(BIN)/lint-imports --config setup.cfg
	@$(BIN)/python -m pytest -q tests/unit tests/architecture

bench: $(DEV_STAMP)  ## compare the hub with Mosquitto, paired, and compaction with a plain fold (results in bench-results/)
	@bash ops/bench.sh

fuzz: $(DEV_STAMP)  ## fuzz every decoder for a while (SECONDS_EACH=20)
	@$(BIN)/python tests/fuzz/run.py --seconds $${SECONDS_EACH:-20}

mutants: $(DEV_STAMP)  ## does a test fail for every small change of who may do what? (ONLY=part of a path)
	@$(BIN)/python -m tests.nightly.mutation $(ONLY)

nightly:  ## the long tests: kill -9 scenarios, soak, chaos, mutants
	@PYTHON='$(PYTHON)' bash ops/test.sh --nightly

dist: install  ## build sdist and wheel into dist/ (DIST=another folder)
	@bash ops/dist.sh '$(DIST)'

dist-arm64: install  ## build the wheel for arm64 on another Debian machine (DIST=another folder)
	@bash ops/dist_arm64.sh '$(DIST)'

deb: install  ## build the Debian package of the hub into dist/ (DIST=another folder; for the Debian release it is built on)
	@bash ops/debian/build.sh '$(DIST)'

docs: $(DEV_STAMP)  ## build the documentation site into build/site
	@$(BIN)/python docs/build.py

services:  ## start Kafka, HBase, Redis, MariaDB and PostgreSQL here, wait until they answer, print their addresses (SHIFT=100: other ports)
	@$(PYTHON) ops/check_python.py
	@$(PYTHON) -m ops.services $(if $(SHIFT),--shift $(SHIFT)) up

services-stop:  ## stop them; their data stays in .services/
	@$(PYTHON) -m ops.services down

coprocessor:  ## build the jar for HBase (ops/hbase) into build/hbase
	@$(PYTHON) -m ops.services build

fmt: $(DEV_STAMP)  ## format and sort imports
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix --select I .

clean:  ## remove everything that was built or installed here (not .demo)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage bench-results
	rm -rf tests/scenarios/node_modules tests/bench/load/mqttload tests/bench/load/mqttfloor
	find iothub services \( -name '*.so' -o -name compiled.sha256 \) -delete; find . -name __pycache__ -type d -prune -exec rm -rf {} +
