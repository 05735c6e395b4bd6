# `make demo` and `make test` are the two commands of a cold start: each makes .venv on first use and installs
# what it needs. Only Python 3.11 or newer and make are required; no Java (the analysis brings its own).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# How many tests run at once. The process tests want a core each; of the fast ones, some wait for sockets.
WORKERS ?= 2
FAST_WORKERS ?= 3
PYTEST_ARGS ?=
# How long `make fuzz` spends on each decoder, and how many examples `make machines` tries of each machine.
SECONDS ?= 60
TARGETS ?=
EXAMPLES ?= 2000
# Which groups of modules `make mutants` changes (none: all), how many changes of each, and the seed that draws them.
MODULES ?=
SAMPLE ?= 100
SEED ?= 1
# How many seeds `make swarm` plays, from which on (without it from one drawn anew), for how many minutes at most, and
# where failures go.
SEEDS ?= 200
FIRST ?=
MINUTES ?= 60
OUT ?= swarm-out

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all check format lint types architecture docs-check fuzz machines mutants swarm bench build docs pictures clean distclean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 22

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $(PYTHON) is older: run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras, so that `make demo` need not install what only tests use.
$(VENV)/.demo-installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[analysis]'
	@touch $@

$(VENV)/.all-installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,docs]'
	@touch $@ $(VENV)/.demo-installed

install: $(VENV)/.all-installed ## make .venv with everything in it

demo: $(VENV)/.demo-installed ## five brokers, two faults, a verdict: the whole line in 90 seconds
	$(BIN)/mesh demo

# pytest keeps what it makes of the asserts of 550 files as bytecode. Without that each worker makes it anew in each
# run: 12 s of its processor's time.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(BIN)/python -m pytest --dist loadgroup

test: lint types ## before each commit: format, lint, types, architecture and the fast tests; minutes
	$(PYTEST) -n $(FAST_WORKERS) -m "not long" $(PYTEST_ARGS)

test-all: $(VENV)/.all-installed ## all tests that `make test` leaves out: processes, NNG, Spark, fuzzing; CI runs both
	$(PYTEST) -n $(WORKERS) -m long $(PYTEST_ARGS)

check: lint types architecture ## what `make test` finds within a minute

lint: $(VENV)/.all-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.all-installed
	$(BIN)/mypy
	$(BIN)/mypy docs/examples/*.py docs/site/*.py

architecture: $(VENV)/.all-installed
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_architecture.py

format: $(VENV)/.all-installed ## format, and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs-check: $(VENV)/.all-installed ## run the code blocks of README and docs, and check their links
	$(BIN)/python -m pytest tests/docs $(PYTEST_ARGS)

pictures: $(VENV)/.all-installed ## draw the pictures of README and docs again, in docs/pictures
	$(BIN)/python -m tests.docs.pictures

docs: $(VENV)/.all-installed ## the site of the documentation, in build/site; needs no network
	$(BIN)/python docs/site/build.py

fuzz: $(VENV)/.all-installed ## look for bytes that break a decoder: SECONDS each, TARGETS to choose
	$(BIN)/python -m tests.fuzz $(TARGETS) --seconds $(SECONDS)

machines: $(VENV)/.all-installed ## patterns and pipes against their models, EXAMPLES of each
	MANGROVE_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests/protocols/machines --timeout 0 $(PYTEST_ARGS)

# One bug at a time in a module, and its tests must fail. MODULES: groups or paths; SAMPLE: as many of each.
mutants: $(VENV)/.all-installed ## how many small bugs the tests notice: MODULES, SAMPLE (0: all), SEED
	nice $(BIN)/python -m tests.mutants $(MODULES) --sample $(SAMPLE) --seed $(SEED)

# A report and no gate: what fresh seeds find is mended, shrunk and kept, and stops nobody else meanwhile.
swarm: $(VENV)/.all-installed ## SEEDS fresh seeds of the simulator; failures go to OUT
	-$(BIN)/mesh simulate swarm --seeds $(SEEDS) $(if $(FIRST),--first $(FIRST)) --jobs $(WORKERS) --minutes $(MINUTES) $(if $(OUT),--out $(OUT))

bench: $(VENV)/.all-installed ## our figures beside pynng's and pyzmq's, in the same run
	$(BIN)/mesh bench sockets
	$(BIN)/mesh bench broker
	$(BIN)/mesh bench durable

build: | $(BIN)/python ## the wheel, in dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## caches and build output
	rm -rf build dist demo-out swarm-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find protocols mesh simulations tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## and the virtual environment
	rm -rf $(VENV)
