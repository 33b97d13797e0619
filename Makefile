# Every target sets up what it needs: a fresh machine with Python 3.11 or 3.12 and this checkout is enough.
#   make demo [ARGS=--exit]   the main job: a real SIP call, spoken and understood
#   make test [ARGS=...]      the whole test suite, pytest's own summary last
#   make serve                the server on config/demo.toml
#   make check                format, lint, types, layers
#   make bench                every benchmark, short form; results in bench/results/

SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
BIN := .venv/bin
ARGS ?=

.PHONY: demo test serve check bench format clean

.venv/bin/python:
	@.ci/system-packages python $(PYTHON)
	$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ .venv/.demo

demo: .venv/.demo
	$(BIN)/mediaserver demo $(ARGS)

serve: .venv/.demo
	$(BIN)/mediaserver serve --config config/demo.toml $(ARGS)

test: .venv/.dev
	@.ci/system-packages sipp=sip-tester baresip chromium npm pg_ctlcluster=postgresql sox flite java=default-jre-headless \
		/usr/share/asterisk/sounds/en_US_f_Allison=asterisk-core-sounds-en-wav
	$(BIN)/python -m pytest $(ARGS)

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_repo_*.py

bench: .venv/.dev
	@.ci/system-packages sox flite /usr/share/asterisk/sounds/en_US_f_Allison=asterisk-core-sounds-en-wav
	$(BIN)/python -m bench all --short $(ARGS)

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
