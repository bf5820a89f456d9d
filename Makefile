# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# PyTorch is only a second opinion in the tests; on x86-64 the package index has this release with CUDA, 5 GB, which no test needs: a CPU build that is installed before is kept.
TORCH ?= torch==2.13.0
# Processes that run the tests, a file each at a time; many wait for others, so there is one more than the cores of a small machine.
JOBS ?= 3

.PHONY: demo test test-all attack faults lint format bench docs clean

demo: $(VENV)/.demo
	@$(BIN)/openaclnn demo
	@mkdir -p build
	@echo "\nThe same from C: examples/c/ten_mistakes.c, compiled against our headers, and what it is told"
	@$(CC) examples/c/ten_mistakes.c $$($(BIN)/openaclnn-config --cflags --libs) -o build/ten_mistakes
	@build/ten_mistakes
	@echo "\nSpeed on this machine, beside NumPy (and PyTorch, where it is installed)"
	@$(BIN)/openaclnn bench --headline

# What is skipped says why: the explorer's page, for one, needs a Chromium with its driver.
# A process that crashes ends the run: another in its place would begin with the test that crashed, and another after it.
# Modules that one process has compiled serve the many that tests start, even where the environment is against it.
test: export PYTHONDONTWRITEBYTECODE =
test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -rs

# Every case, dtype and width where `make test` tries some of each in turns.
test-all: export OPENACLNN_TEST_ALL = 1
test-all: test

# Random calls through Python and C for ATTACK_SECONDS (300), from ATTACK_SEED on.
attack: $(VENV)/.test
	cd tests && ../$(BIN)/python -m attack

# A lack of memory, threads or disk, and signals, at every point of a call (some hours).
faults: $(VENV)/.test
	cd tests && ../$(BIN)/python -m faults

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m tools.stubs
	$(BIN)/python -m tools.tables

$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# Of what is installed most is never imported: what is, Python compiles then.
$(VENV)/.test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile "$(TORCH)" --editable ".[test,lint]"
	@touch $(VENV)/.demo $@

bench: $(VENV)/.test
	$(BIN)/openaclnn bench --quick

# The site, into build/site: open build/site/index.html.
docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
