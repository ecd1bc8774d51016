# Two commands matter: `make demo` (compile a model, train it, check it) and `make test`.
# Everything runs in .venv, made on first use; nothing needs to be installed by hand but Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: help demo test check bless fuzz fuzz-all fuzz-verify fuzz-verdicts fuzz-text fuzz-hints fuzz-artifact fuzz-reshards bench wheel-test clean

help:  ## what the targets do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e '.[dev]'
	touch $(READY)

demo: $(READY)  ## compile samples/gpt-tiny.wsl, train it on a text, compare with one device
	$(BIN)/wscc compile samples/gpt-tiny.wsl -o out/gpt-tiny
	$(BIN)/wscc run out/gpt-tiny --steps 60
	$(BIN)/wscc run samples/gpt-tiny.wsl --check --steps 2 --dtype f64

test: $(READY)  ## the test suite (5 to 6 minutes on 2 cores)
	@# Tests start processes: each compiles all modules again where the environment forbids to keep what is compiled.
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2 --dist worksteal

check: $(READY)  ## ruff, mypy --strict, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# The folders as one package, as they are installed, for a type checker that reads files.
	rm -rf build/types && mkdir -p build/types/wscc
	for part in $(CURDIR)/wscc/* $(CURDIR)/grammar $(CURDIR)/passes $(CURDIR)/backends; do ln -s $$part build/types/wscc/; done
	cd build/types && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p wscc
	$(BIN)/python -m pytest tests/test_architecture.py

bless: $(READY)  ## rewrite what docs show, the reference and the hashes of programs, after a change that is meant
	$(BIN)/python -m tests.bless

wheel-test: $(READY)  ## build the wheel, install it in a fresh environment, train from it
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/pip wheel --quiet --no-deps -w build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet build/wheel/wscc-*.whl
	cp samples/gpt-tiny.wsl samples/tiny-text.txt build/wheel/
	cd build/wheel && venv/bin/wscc run gpt-tiny.wsl --steps 2 --check

fuzz: $(READY)  ## random programs against one device; SECONDS=600 sets how long, SEED where from
	$(BIN)/python -m tests.fuzz $${SECONDS:-600} $${SEED}

fuzz-all: $(READY)  ## every composition of the axes by kind of model, every dp, tp, tatp in f64 and f32, every preset (an hour)
	$(BIN)/python -m tests.fuzz.compositions
	for kind in experts images encoder graphs; do $(BIN)/python -m tests.fuzz.kind_compositions $$kind || exit 1; done
	$(BIN)/python -m tests.fuzz.strategies
	$(BIN)/python -m tests.machine.every_preset

fuzz-verify: $(READY)  ## a thousand corruptions of compiled programs and what catches each (COUNT, SEED)
	$(BIN)/python -m tests.fuzz.artifacts $${COUNT:-1000} $${SEED:-0}

fuzz-verdicts: $(READY)  ## what --check says of a hundred programs in all types, and of mistakes in them (COUNT, SEED)
	$(BIN)/python -m tests.fuzz.verdicts $${COUNT:-100} $${SEED:-0}
	$(BIN)/python -m tests.fuzz.types

fuzz-text: $(READY)  ## mistakes in textual IR at every level, each refused in its place (COUNT, SEED)
	$(BIN)/python -m tests.fuzz.texts $${COUNT:-3000} $${SEED:-0}

fuzz-hints: $(READY)  ## programs with a mistake: what their refusals propose is followed (COUNT, SEED)
	$(BIN)/python -m tests.fuzz.hints $${COUNT:-500} $${SEED:-0}

fuzz-artifact: $(READY)  ## artifacts edited at random with right hashes, in all commands that read one (COUNT, SEED)
	$(BIN)/python -m tests.fuzz.hostile $${COUNT:-10000} $${SEED:-0}

fuzz-reshards: $(READY)  ## reshards that stand alone, on drawn meshes and links: none slower than its ring (SECONDS, SEED)
	$(BIN)/python -m tests.passes.lower_collectives.drawn_reshards $${SECONDS:-600} $${SEED}

bench: $(READY)  ## medians and ratios of what is measured, as a table
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python -m tests.bench

clean:
	rm -rf $(VENV) build out *.egg-info
