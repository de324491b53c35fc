# Every target sets up .venv by itself, once; it is set up again when pyproject.toml changes.
#   make demo ARGS="--serve"     make test ARGS="-k simpool"     make bench ARGS="--json"

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
PACKAGE := .venv/.package
DEV := .venv/.dev

.PHONY: test test-slow test-survey test-all test-machines test-machine coverage soak demo lint docs docs-check site names bench clean

# The tests are many and small: two processes of one thread each. tests/conftest.py decides which tests share a process.
# bf16 matrix products can die with SIGILL on virtual machines whose CPU flags promise more than the CPU has:
# AVX512_CORE keeps oneDNN below those instructions.
native := OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE
PYTEST := $(BIN)/python -m pytest -q -n 2

test: $(DEV)
	$(native) $(PYTEST) $(ARGS)

# The tests that take more than about ten seconds each.
test-slow: $(DEV)
	$(native) $(PYTEST) -m "slow and not net and not gpu" $(ARGS)

# Every family of timm, and a cell of every table of the papers: half an hour.
test-survey: $(DEV)
	$(native) $(PYTEST) -m "survey and not net and not gpu" $(ARGS)

test-all: test
	$(MAKE) test-slow test-survey

# The same tests on simulated machines: other kernels in PyTorch, oneDNN, MKL, NumPy, OpenBLAS and numba, and another
# number of threads. MKL obeys MKL_ENABLE_INSTRUCTIONS on Intel CPUs only, MKL_CBWR=COMPATIBLE everywhere.
MACHINES := native avx2 sse41 threads
avx2 := OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 \
	OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES=X86_V4 NUMBA_CPU_NAME=haswell
sse41 := OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE \
	OPENBLAS_CORETYPE=Nehalem NPY_DISABLE_CPU_FEATURES=X86_V3 NUMBA_CPU_NAME=generic
threads := OMP_NUM_THREADS=4 ONEDNN_MAX_CPU_ISA=AVX512_CORE

test-machines: $(DEV)
	@failed=; \
	for machine in $(MACHINES); do $(MAKE) test-machine MACHINE=$$machine || failed="$$failed $$machine"; done; \
	test -z "$$failed" || { echo "failed on:$$failed" >&2; exit 1; }

test-machine: $(DEV)
	@test -n "$($(MACHINE))" || { echo "MACHINE must be one of: $(MACHINES)" >&2; exit 1; }
	$($(MACHINE)) $(PYTEST) $(ARGS)

# Line coverage of cenote/, processes that tests start included.
coverage: $(DEV)
	$(BIN)/coverage erase
	$(native) $(BIN)/coverage run -m pytest -q -n 2 $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

# The page under mixed load for 20 minutes, while workers are killed and the index is written.
soak: $(DEV)
	$(native) $(BIN)/python benchmarks/soak.py $(ARGS)

demo: $(PACKAGE)
	$(BIN)/cenote demo $(ARGS)

lint: $(DEV) docs-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DEV)
	$(BIN)/python docs/generate.py

docs-check: $(DEV)
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/check_names.py

# The documents with search and an API reference, in build/site. A warning is an error.
site: $(DEV)
	$(BIN)/python docs/site.py

# The checked-in list of exported names: regenerate it when one was changed on purpose.
names: $(DEV)
	$(BIN)/python -m tests.public_names

bench: $(PACKAGE)
	$(BIN)/cenote bench pools $(ARGS)

clean:
	rm -rf .venv .coverage* .pytest_cache .mypy_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The package with the `web` extra, which is all the demo needs. torchvision pins the torch it was built with, so one plain install
# brings two that fit; importing it is the proof.
$(PACKAGE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Cenote needs Python 3.11 or newer, and '$(PYTHON)' is not: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up .venv; the first time takes some minutes, PyTorch is large."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv || \
		{ echo "'$(PYTHON) -m venv' failed: install your system's python3-venv package and try again." >&2; exit 1; }
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[web]'
	@$(BIN)/python -c 'import torchvision' || \
		{ echo "torch and torchvision do not fit each other: see Troubleshooting in README.md." >&2; exit 1; }
	@touch $@

# Everything else that the tests and `make lint` need.
$(DEV): $(PACKAGE)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	@touch $@
