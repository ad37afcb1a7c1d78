# `make run` and `make test` need only Python 3.11+ and make; the rest is installed into .venv.

PYTHON ?= python3
PYTEST_ARGS ?=

BIN := .venv/bin
# Stamps: what .venv holds. It is rebuilt when the dependencies change.
RUNTIME := .venv/.runtime
DEV := .venv/.dev
# And what the tests and benches need of Node: the real AG-UI client, React; CopilotKit for its example.
NODE := tests/node/node_modules/.installed
COPILOTKIT := examples/copilotkit/node_modules/.installed
# A uv on PATH, else our own.
UV := $(or $(shell command -v uv 2>/dev/null),.boot/bin/uv)

# Only interpreters that are already here: closed networks cannot download one.
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv
# Another active environment is not ours, and uv would warn about it.
unexport VIRTUAL_ENV
# The tests start hundreds of Pythons, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# No notes about newer versions: uv.lock decides.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SYNC = $(UV) sync --quiet --frozen --python $(PYTHON)

.PHONY: run quick test soak check bench samples format clean

run: $(RUNTIME)
	@$(BIN)/python examples/serve_samples.py

# Unit and property tests: no browser, no Postgres, no Node, nothing that takes seconds.
QUICK := $(addprefix tests/,core agui audit channels dialects documents evidence extraction librarian rendering threadlog verification)

quick: $(DEV)
	@$(BIN)/pytest -q -n auto --dist worksteal -m "not external and not slow and not soak" $(QUICK) $(PYTEST_ARGS)

test: check $(NODE) $(COPILOTKIT)
	@echo "pytest"
	@$(BIN)/pytest -q -n auto --dist worksteal $(PYTEST_ARGS)

# The random and fault runs at full size: those marked `soak`, which `make test` runs at a small size.
soak: $(DEV) $(NODE)
	@CITEWIRE_SOAK=1 $(BIN)/pytest -q -m soak --timeout=3600 $(PYTEST_ARGS)

check: $(DEV)
	@echo "uv lock --check"
	@$(UV) lock --quiet --check --offline 2>/dev/null \
	  || { echo "uv.lock is behind pyproject.toml: run $(UV) lock"; exit 1; }
	@echo "ruff check"
	@$(BIN)/ruff check --quiet
	@echo "ruff format --check"
	@$(BIN)/ruff format --quiet --check
	@echo "pyright"
	@$(BIN)/pyright
	@echo "lint-imports"
	@report=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$report"; exit 1; }

bench: $(DEV) $(NODE)
	@$(SYNC) --group bench
	@$(BIN)/python -m bench

samples:
	@$(PYTHON) samples/make.py

format: $(DEV)
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet

clean:
	@rm -rf .boot .venv .hypothesis .import_linter_cache .pytest_cache .ruff_cache dist \
	  tests/node/node_modules examples/copilotkit/node_modules examples/copilotkit/dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without uv, `make run` still works from pip, with versions that are not locked.
$(RUNTIME): pyproject.toml uv.lock
	@echo "install"
	@$(MAKE) -s $(UV) && $(SYNC) --inexact --no-dev --extra office \
	  || { echo "uv cannot do it: installing with pip"; $(PYTHON) -m venv .venv && $(BIN)/pip install --quiet -e '.[office]'; }
	@touch $@

$(DEV): pyproject.toml uv.lock | $(UV)
	@echo "install, with the tools for development"
	@$(SYNC)
	@touch $(RUNTIME) $@

# Without npm there is no stamp, and what needs the packages is skipped.
%/node_modules/.installed: %/package-lock.json
	@if command -v npm >/dev/null; then \
	  echo "npm ci in $*"; npm ci --loglevel=error --prefix $* >/dev/null && touch $@; \
	else echo "no npm: what needs $* is skipped"; fi

.boot/bin/uv:
	@echo "get uv"
	@$(PYTHON) -m venv .boot
	@.boot/bin/pip install --quiet uv
