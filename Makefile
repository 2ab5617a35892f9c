# Every target makes its own set-up: a virtual environment in .venv, renewed when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
RUNS := .venv/runs
READY := .venv/ready
SAMPLE ?= captures/samples/rxe-nfs-all.pcap.zst
# The tests start the program some thousand times, and it has 200 modules: none may be compiled twice.
export PYTHONDONTWRITEBYTECODE :=

# $(call apt,PACKAGE): install it where that is possible, that is for root on Debian.  Fails where it is not.
apt = test "$$(id -u)" = 0 && command -v apt-get >/dev/null && export DEBIAN_FRONTEND=noninteractive && \
	{ apt-get -qq install -y --no-install-recommends $(1) || \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends $(1); }; } >/dev/null 2>&1 </dev/null

# $(call install,WHAT): into .venv, with uv, which takes a fifth of the time, or, where it fails, with pip.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
install = $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) 2>/dev/null || $(PIP) $(1)

.PHONY: help demo test quick bench bench-large lint format types check clean layouts tshark verify fuzz soak walk docs lab lab-smoke
help:
	@echo 'make demo    the report on a recorded capture (SAMPLE=FILE for another)'
	@echo 'make test    the tests, why any is skipped, and which take longest'
	@echo 'make quick   the tests of what changed since main (BASE=REV for another), in less than 20 s'
	@echo 'make bench   speed and memory, beside tshark (minutes; about 1.5 GB in bench/work)'
	@echo 'make bench-large  memory and time on 20 GB (GIGABYTES=2 for others; DELETE=1: delete the capture afterwards)'
	@echo 'make lint    ruff, rules and format        make format  rewrite the files in that format'
	@echo 'make types   mypy, strict                  make check   test, lint and types'
	@echo 'make layouts after a change to a layer: note its field widths anew'
	@echo 'make verify  Wireshark as a second opinion on every sample'
	@echo 'make fuzz    every decoder, conversation and command under a fuzzer (SECONDS=60 each, TARGET="NAME…" for some)'
	@echo 'make docs    the pages of docs/ as a site in build/docs, with its links checked'
	@echo 'make soak    every writing command, ended by signals and on full disks (RUNS_OF_SOAK=200)'
	@echo 'make walk    a newcomer on a bare Debian 12, in a chroot: README as typed, a wheel (root)'
	@echo 'make lab     real kernels over rxe and siw, in guests (SCENARIO="NAME…" TRANSPORT=rxe for some; root, Debian 12)'
	@echo 'make lab-smoke  the few scenarios that CI runs'
	@echo 'make clean   remove everything that was made here'

demo: $(RUNS)
	$(BIN)/rdmascope report $(SAMPLE)

# One worker more than processors: each waits now and then, for a disk, a child, a deadline.
test: $(READY) tshark
	@rm -rf .scratch && mkdir -p .scratch
	TMPDIR="$(CURDIR)/.scratch" $(BIN)/pytest -n $$(( $$(nproc) + 1 )) --dist worksteal -rs --durations=60 --durations-min=2
	@rm -rf .scratch

quick: $(READY)
	$(BIN)/python tests/quick.py $(BASE)

bench: $(READY) tshark
	$(BIN)/python -m bench; status=$$?; $(BIN)/python -m bench.browse && exit $$status

bench-large: $(READY)
	$(BIN)/python -m bench.large $(GIGABYTES) $(if $(DELETE),--delete)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/mypy

check: test lint types

verify: $(READY) tshark
	@command -v tshark >/dev/null || { echo 'without tshark there is no second opinion' >&2; exit 0; } && \
		for sample in captures/samples/*.zst; do $(BIN)/rdmascope verify --limit 3 $$sample || exit 1; done

fuzz: $(READY)
	$(call install,--editable '.[fuzz]')
	PYTHONPATH=tests $(BIN)/python -m fuzz $(addprefix --seconds=,$(SECONDS)) $(TARGET)

docs: $(READY)
	$(call install,--editable '.[docs]')
	$(BIN)/zensical build --strict --clean

soak: $(READY)
	PYTHONPATH=tests $(BIN)/python -m fuzz.soak $(addprefix --runs=,$(RUNS_OF_SOAK))

walk: $(READY)
	PYTHONPATH=tests $(BIN)/python -m lab.walk

lab: $(READY) tshark
	PYTHONPATH=tests $(BIN)/python -m lab $(addprefix --transport=,$(TRANSPORT)) $(SCENARIO)

lab-smoke: $(READY) tshark
	PYTHONPATH=tests $(BIN)/python -m lab --smoke

layouts: $(READY)
	$(BIN)/python tests/layouts.py

clean:
	rm -rf .venv .scratch .cache build dist *.egg-info bench/work tests/fuzz/work tests/lab/work .pytest_cache .mypy_cache .ruff_cache .hypothesis

tshark:
	@command -v tshark >/dev/null || { $(call apt,tshark); } || \
		echo 'tshark is not installed and could not be: the tests that want it are skipped' >&2

# What running needs, and what testing needs besides.
$(RUNS): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { $(call apt,python3-venv); } || \
		{ echo 'Python is not installed: apt install python3-venv' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or later is needed: make PYTHON=/path/to/python3' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(call apt,python3-venv); } || \
		{ echo 'Python cannot make virtual environments here: apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(PIP) uv || true
	$(call install,--editable .)
	@touch $@

$(READY): $(RUNS)
	$(call install,--editable '.[test]')
	@touch $@
