# Everything a checkout can do. Needs Python 3.11+ and make; a C compiler, Java and Mosquitto are used when present.

PYTHON ?= python3
JOBS ?= 2
PURE_JOBS ?= $(JOBS)
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/all.txt

# The outcome asked for is part of the stamp's name, so that asking for another one builds again.
ifneq ($(filter-out 0,$(EDGEBROKER_PURE)),)
OUTCOME := pure
else ifneq ($(filter-out 0,$(EDGEBROKER_REQUIRE_EXT)),)
OUTCOME := required
else
OUTCOME := default
endif
INSTALLED := $(VENV)/.installed-packages
BUILT := $(VENV)/.built-$(OUTCOME)

# The compiled modules, as pyproject.toml lists them, and the .pxd files that any of them may read.
KERNELS := $(shell $(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['tool']['edgebroker']['compiled'])" 2>/dev/null)
KERNEL_SOURCES := $(KERNELS) $(wildcard $(addsuffix *.pxd,$(sort $(dir $(KERNELS)))))

# The suite starts hundreds of processes: without byte code each would compile what it imports again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo check test lint pure-test fuzz bench simulate lock clean

help: ## this list
	@$(PYTHON) tools/makehelp.py Makefile

setup: $(BUILT) ## create .venv and install edgebroker with everything it can use

demo: setup ## nine gateways at three sites, one of them killed, one publisher moved, and the audit, in 90 seconds
	$(BIN)/python -m edgebroker demo --sites 3 --gateways 3

# Lint and the pure run come first: the last thing printed is the summary of the whole suite. They go at once, because
# mypy has use for one core only.
test: setup ## everything that must pass: ruff, mypy, the quick suite in pure Python, the whole suite
	$(MAKE) --no-print-directory -j2 lint pure-test
	EDGEBROKER_EXPECT=$$($(BIN)/python tools/puretree.py --kind) $(BIN)/pytest -n $(JOBS) --dist worksteal

# What to run before each commit. The tests are those that `make test` runs in pure Python, here with what was built.
check: setup ## in about five minutes: ruff, mypy and the quick part of the suite
	$(MAKE) --no-print-directory lint
	EDGEBROKER_EXPECT=$$($(BIN)/python tools/puretree.py --kind) EDGEBROKER_TEST_PROFILE=brief \
		$(BIN)/pytest -q -n $(JOBS) --dist worksteal -m "not live and not slow" tests/test_*.py tests/spec tests/laws tests/stories

lint: setup ## ruff and strict mypy over every package
	$(BIN)/ruff check .
	$(BIN)/mypy

# The same suite without its live and slow tests and without the files that no kernel takes part in, with fewer examples,
# in a copy of the tree that has no compiled module in it.
pure-test: setup ## the quick part of the suite in pure Python
	$(BIN)/python tools/puretree.py build/pure
	cd build/pure && EDGEBROKER_EXPECT=pure EDGEBROKER_TEST_PROFILE=brief PYTHONPATH=$$($(CURDIR)/$(BIN)/python tools/puretree.py --path) \
		$(CURDIR)/$(BIN)/pytest -q -n $(PURE_JOBS) --dist worksteal -m "not live and not slow" $$($(CURDIR)/$(BIN)/python tools/kernelless.py)

# Inputs depend on the seed alone: that of the commit, so that every commit is given others, and always the same.
FUZZ_SECONDS ?= 600
FUZZ_KIND ?= 120
FUZZ_SEED ?= $(shell printf %d 0x$$(git rev-parse --short=8 HEAD 2>/dev/null || echo 1))
fuzz: setup ## everything that reads bytes, on every core, for FUZZ_SECONDS=600 in all
	$(BIN)/python -m tests.fuzz.frame --budget $(FUZZ_SECONDS) --seconds $(FUZZ_KIND) --seed $(FUZZ_SEED)

bench: setup ## throughput, latency and memory beside Mosquitto, where it is installed
	$(BIN)/python -m edgebroker bench mqtt --against mosquitto

STORMS ?= 2000
simulate: setup ## storms over simulated federations, every promise judged; STORMS=2000 of them
	$(BIN)/python -m edgebroker simulate --scenarios $(STORMS) --jobs $(JOBS)

lock: ## resolve the dependencies anew (needs uv); commit what changes
	UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--upgrade --no-emit-index-url --no-annotate --all-extras pyproject.toml --output-file $(LOCK)
	UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --extra fast --constraint $(LOCK) pyproject.toml --output-file requirements/gateway.txt
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' | \
		UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --constraint $(LOCK) - --output-file requirements/build.txt

clean: ## remove .venv and everything that was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find edgebroker bridge firmware-sim analytics tests -name '*.so' -delete -o -name '__pycache__' -prune -exec rm -rf {} +

# Byte code is made of what is imported, when it is imported: of everything at once it takes 24 s, mostly for what never is.
$(INSTALLED): $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "edgebroker needs Python 3.11 or newer, and '$(PYTHON)' is" \
		     "$$($(PYTHON) --version 2>&1 || true). Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); \
		echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r $(LOCK)
	@touch $@

# A failed compilation in the default outcome is no failure; the last line says which outcome it became.
$(BUILT): $(INSTALLED) pyproject.toml setup.py $(KERNEL_SOURCES)
	@rm -f $(VENV)/.built-*
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo "edgebroker is installed: $$(cat build/outcome.txt)"
	@touch $@
