# Penstock: set-up, run, test, check, measure. `make` alone lists the targets.
# Only what the machine is configured for is used: no package index is named here.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.SUFFIXES:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.penstock-setup
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet

# What `make run` starts, on fixed ports, its data and the pipeline's tables beside the code.
UP := $(BIN)/penstock up --listen 127.0.0.1:5672 --management 127.0.0.1:15672 --data data

# More words for pytest, the comparison or the broker: make test ARGS="-k credit".
ARGS ?=

# What the tests' JVMs share of Spark, made once.
CLASSES := $(VENV)/spark-classes.jsa

NODE_DIR := tests/wire/node
NODE_STAMP := $(NODE_DIR)/node_modules/.package-lock.json

# What mypyc compiles: the code without I/O. Not the methods: it takes class attributes of dataclasses for fields.
COMPILABLE := $(filter-out %/__init__.py %/method.py %/session.py, \
    $(wildcard $(addprefix src/penstock/,amqp/*.py credit/*.py runtime/*.py broker/*.py)) src/penstock/net/reader.py src/penstock/store/store.py)

.PHONY: help setup run test random check format compile interpreted fresh differential bench overload backlog slowdisk managementbench eventsbench sparkbench pipelinebench twinbench advisebench fuzz lock node clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## build the environment in .venv (nothing to do when it is up to date)
	@:

$(STAMP): pyproject.toml requirements.lock
	@set -eu; \
	new_enough='import sys; sys.exit(sys.version_info < (3, 11))'; \
	if ! $(BIN)/python -c "$$new_enough" 2>/dev/null || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    python=; \
	    for candidate in "$(PYTHON)" python3 python3.14 python3.13 python3.12 python3.11; do \
	        if "$$candidate" -c "$$new_enough" 2>/dev/null; then python=$$candidate; break; fi; \
	    done; \
	    if [ -z "$$python" ]; then echo "setup: Python 3.11 or newer is needed; name one: make setup PYTHON=…" >&2; exit 1; fi; \
	    if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	        package=$$("$$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	        if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	            echo "setup: this Python has no venv yet: apt-get install $$package"; \
	            export DEBIAN_FRONTEND=noninteractive; \
	            apt-get install -y -qq --no-install-recommends "$$package" >/dev/null 2>&1 \
	            || { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$$package" >/dev/null; }; \
	        else \
	            echo "setup: this Python cannot make an environment. On Debian or Ubuntu type:" >&2; \
	            echo "    sudo apt-get install -y $$package" >&2; \
	            exit 1; \
	        fi; \
	    fi; \
	    echo "setup: making $(VENV) with $$("$$python" --version)"; \
	    "$$python" -m venv --clear $(VENV); \
	fi
	@echo "setup: installing requirements.lock and penstock into $(VENV)"
	@$(PIP) install -r requirements.lock
	@# The build tool is in the lock too, so the build needs nothing from outside it.
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

run: setup fresh ## start the broker on 127.0.0.1:5672, its page on 127.0.0.1:15672 and the flow pipeline (ARGS=--demo: a load)
	@exec $(UP) $(ARGS)

test: setup fresh node $(CLASSES) ## run all tests (ARGS="…" goes to pytest)
	@$(BIN)/python -m pytest -q -n 3 --dist loadgroup $(ARGS)

$(CLASSES): $(STAMP)
	@$(BIN)/python -m tests.spark.classes $@

random: setup fresh ## the property tests, schemathesis and the pipeline's slices with new random examples: what they find becomes a named test
	@PENSTOCK_RANDOM=1 PENSTOCK_OPENAPI_EXAMPLES=$${PENSTOCK_OPENAPI_EXAMPLES:-50} SLICES_ROUNDS=$${SLICES_ROUNDS:-10} \
	    $(BIN)/python -m pytest -q tests/property tests/management/test_openapi.py \
	    tests/spark/pipeline/test_tables.py tests/spark/pipeline/test_flowjob_slices.py $(ARGS)

check: setup ## lint, layout and types: ruff, mypy strict
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check src tests bench fuzz examples
	@$(BIN)/mypy --no-error-summary
	@echo "check: ruff and mypy have nothing to say"

format: setup ## let ruff lay out the code and sort imports
	@$(BIN)/ruff check --quiet --select I --fix .
	@$(BIN)/ruff format --quiet .

# Optional: about twice as fast where messages differ. Needs a C compiler and Python's headers. Same source, same tests.
compile: setup interpreted ## compile the code without I/O with mypyc (back: make interpreted)
	@set -eu; \
	if ! command -v cc >/dev/null; then echo "compile: a C compiler is needed: sudo apt-get install -y gcc python3-dev" >&2; exit 1; fi; \
	log=$$(mktemp); trap 'rm -rf "$$log" src/build src/.mypy_cache' EXIT; \
	echo "compile: $(words $(COMPILABLE)) modules, about half a minute"; \
	(cd src && MYPYPATH=. ../$(BIN)/mypyc $(patsubst src/%,%,$(COMPILABLE))) >"$$log" 2>&1 || { tail -20 "$$log" >&2; exit 1; }; \
	echo "compile: done"

interpreted: ## remove what make compile built
	@find src \( -name '*.so' -o -name '*__mypyc.*' \) -delete

# Compiled modules hide the source they came from: when it has changed, they must go.
fresh:
	@one=$$(find src -name '*.so' | head -n 1); \
	if [ -n "$$one" ] && [ -n "$$(find src -name '*.py' -newer "$$one" | head -n 1)" ]; then \
	    echo "fresh: the compiled modules are older than the source: removing them"; $(MAKE) interpreted; \
	fi

differential: setup fresh ## play one script of methods to Penstock and to RabbitMQ, if it is installed, and compare
	@$(BIN)/python -m pytest -q tests/differential $(ARGS)

bench: setup fresh ## compare with RabbitMQ on this machine, in turns
	@$(BIN)/python bench/compare.py $(ARGS)

overload: setup fresh ## the same with publishers that send more than is taken
	@$(BIN)/python bench/overload.py $(ARGS)

backlog: setup fresh ## ten million messages in a queue and out again, and the memory that takes
	@$(BIN)/python bench/backlog.py $(ARGS)

slowdisk: setup fresh ## a publisher outruns a slow store: who is held
	@$(BIN)/python bench/slowdisk.py $(ARGS)

managementbench: setup fresh ## does the HTTP API answer at full load and with 10,000 queues, and what does a scrape cost
	@$(BIN)/python bench/management.py $(ARGS)

eventsbench: setup fresh ## what the event stream costs, with it and without in turns; fails above 2 % of CPU (ARGS="acks --seconds 60")
	@$(BIN)/python bench/events.py $(ARGS)

sparkbench: setup fresh ## rows per second into Spark and out of it, against Spark's own source and the naive way
	@$(BIN)/python bench/spark.py $(ARGS)

pipelinebench: setup fresh ## does the flow pipeline keep up with a broker at full load, how late are its rows, what do ten million events cost
	@$(BIN)/python bench/pipeline.py $(ARGS)

twinbench: setup fresh ## what the twin predicts against what the broker does, for twelve loads at three settings each
	@$(BIN)/python bench/twin.py $(ARGS)

advisebench: setup fresh ## badly set brokers, what advice makes of them, and what that changed as clients measure it
	@$(BIN)/python bench/advise.py $(ARGS)

# What is found becomes a file in fuzz/corpus and a failing test. Interpreted, because compiled code shows no coverage.
SECONDS ?= 60
fuzz: setup interpreted ## look for bytes that break the broker, guided by coverage (SECONDS=60)
	@$(BIN)/python -m fuzz --seconds $(SECONDS) $(ARGS)

# amqplib for the wire test with Node. Optional: without it that test is skipped, and pytest's summary says so.
node:
	@if [ $(NODE_STAMP) -nt $(NODE_DIR)/package.json ] && [ $(NODE_STAMP) -nt $(NODE_DIR)/package-lock.json ]; then :; \
	elif ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	    echo "node: node or npm is not here; the test with amqplib will be skipped"; \
	elif (cd $(NODE_DIR) && npm ci --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=30000) >/dev/null 2>&1; then \
	    touch $(NODE_STAMP); \
	else \
	    rm -rf $(NODE_DIR)/node_modules; \
	    echo "node: npm could not install amqplib; its test will be skipped (cd $(NODE_DIR) && npm ci tells why)"; \
	fi

# Resolves pyproject.toml anew in an environment of its own and freezes exact versions: no hosts, no paths.
lock: setup ## refresh requirements.lock from pyproject.toml's bounds
	@set -eu; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(BIN)/python -m venv "$$scratch/venv"; \
	"$$scratch/venv/bin/python" -m pip --disable-pip-version-check -qq install --upgrade "setuptools>=77,<85"; \
	"$$scratch/venv/bin/python" -m pip --disable-pip-version-check -qq install --no-build-isolation --editable ".[spark,test,dev]"; \
	"$$scratch/venv/bin/python" -m pip --disable-pip-version-check freeze --all --exclude pip --exclude penstock \
	    --exclude-editable >"$$scratch/versions"; \
	if grep -nE '@|/' "$$scratch/versions"; then echo "lock: these lines name a place, not a version" >&2; exit 1; fi; \
	{ sed -n '/^#/p' requirements.lock; cat "$$scratch/versions"; } >"$$scratch/lock"; \
	cp "$$scratch/lock" requirements.lock; \
	echo "lock: $$(wc -l <"$$scratch/versions") versions in requirements.lock"

clean: interpreted ## remove caches and build output (not .venv, not data)
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info $(NODE_DIR)/node_modules
	@find src tests bench fuzz examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## clean, and remove .venv
	@rm -rf $(VENV)
