# Every target sets up .venv by itself, once; it is set up again when pyproject.toml changes.
#   make demo ARGS="--serve"     make test ARGS="-k simpool"     make test ARGS="-m slow"     make bench ARGS="--json"

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready

.PHONY: test demo lint docs docs-check names bench clean

# Two processes of one thread each: the tests are many and small, and two cores are all CI has. tests/conftest.py says
# which of them stay together.
# bf16 matrix products can die with SIGILL on virtual machines whose CPU flags promise more than they hold:
# AVX512_CORE keeps oneDNN below those instructions.
test: $(READY)
	OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE $(BIN)/python -m pytest -q -n 2 $(ARGS)

demo: $(READY)
	$(BIN)/cenote demo $(ARGS)

lint: $(READY) docs-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python docs/generate.py

docs-check: $(READY)
	$(BIN)/python docs/generate.py --check

# The checked-in list of public names: regenerate it when a public name was changed on purpose.
names: $(READY)
	$(BIN)/python tests/public_names.py

bench: $(READY)
	$(BIN)/cenote bench pools $(ARGS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torchvision pins the torch it was built with, so one plain install brings two that fit; importing it is the proof.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Cenote needs Python 3.11 or newer, and '$(PYTHON)' is not: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up .venv; the first time takes some minutes, PyTorch is large."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv || \
		{ echo "'$(PYTHON) -m venv' failed: install your system's python3-venv package and try again." >&2; exit 1; }
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -c 'import torchvision' || \
		{ echo "torch and torchvision do not fit each other: see Troubleshooting in README.md." >&2; exit 1; }
	@touch $@
