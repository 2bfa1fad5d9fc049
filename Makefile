# Every target makes the environment it needs (.venv). What one needs by hand: Python, a C++ compiler, make.
#
#   TORCH         what `pip install` gets as torch, with further pip arguments if need be
#   GPN_OPS_CUDA  1 also builds the CUDA library (needs nvcc): `make test GPN_OPS_CUDA=1` on a GPU machine
#   WHEEL_CUDA    the same for the wheel, where the default is auto: with CUDA where nvcc is found

PYTHON ?= python3
TORCH ?= torch==2.13.0
GPN_OPS_CUDA ?= 0
WHEEL_CUDA ?= auto
export GPN_OPS_CUDA
export GPN_OPS_WERROR ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

# ninja would take MAKEFLAGS of `make -j` for an offer of job slots that it cannot reach.
unexport MAKEFLAGS

BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --no-input
SANITIZERS := address undefined thread
CPP_FILES = $(shell find csrc tests/cpp -name '*.h' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu')
CTEST = $(BIN)/ctest --output-on-failure --no-tests=error

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-torch-2.10 lint format build cpp-test sanitize cuda wheel bench clean

help:
	@echo "make demo             parse a graph, draw its clusters, time the operator"
	@echo "make test             build and test (what one runs after a change)"
	@echo "make lint             ruff, mypy, clang-format; 'make format' repairs what it can"
	@echo "make cpp-test         C++ tests of the torch-free headers"
	@echo "make sanitize         the same under AddressSanitizer, UBSan and ThreadSanitizer"
	@echo "make cuda             compile and link the CUDA library, check it (needs nvcc, no GPU)"
	@echo "make wheel            a wheel in dist/ (with CUDA where nvcc is found)"
	@echo "make test-torch-2.10  that wheel, tested beside the oldest torch it serves"
	@echo "make test-all         everything, the slow tests included"
	@echo "make bench            the benchmarks"

# ------------------------------------------------------------------------------ environment and build

# torch comes first and on its own: the build runs without isolation, against this very torch.
.venv/.ready: pyproject.toml
	@echo "== environment: .venv ($(TORCH))"
	@$(PYTHON) -m venv .venv
	@$(PIP) install $(TORCH)
	@$(PIP) install "cmake>=3.26" ninja "setuptools>=77"
	@$(PIP) install --no-build-isolation --editable '.[dev]'
	@touch $@

build: .venv/.ready
	@echo "== build: libraries (CUDA: $(GPN_OPS_CUDA))"
	@$(BIN)/python setup.py --quiet build_libraries --inplace

# ------------------------------------------------------------------------------------------- testing

demo: build
	@$(BIN)/python benchmarks/demo.py

test: build cpp-test
	@echo "== test: Python"
	@$(BIN)/pytest -q

# Order matters for reading the output, not for the result.
test-all: build
	@$(MAKE) --no-print-directory sanitize
	@echo "== test: Python, all tiers"
	@$(BIN)/pytest -q -m ""
	@$(MAKE) --no-print-directory test-torch-2.10

cpp-test: build/cpp-plain.tested
sanitize: $(SANITIZERS:%=build/cpp-%.tested)

# The stamps are never written: ninja knows best what is out of date.
build/cpp-%.tested: .venv/.ready
	@echo "== test: C++ ($*)"
	@mkdir -p build
	@PATH=$(abspath $(BIN)):$$PATH $(BIN)/cmake -S . -B build/cpp-$* -G Ninja --log-level=NOTICE \
	    -DGPN_OPS_LIBRARIES=OFF -DGPN_OPS_TESTS=ON -DGPN_OPS_WERROR=ON \
	    -DGPN_OPS_SANITIZE=$(filter $*,$(SANITIZERS)) > build/cpp-$*.log || { cat build/cpp-$*.log; exit 1; }
	@$(BIN)/cmake --build build/cpp-$* -- --quiet
	@$(CTEST) --test-dir build/cpp-$*

cuda:
	@$(MAKE) --no-print-directory build GPN_OPS_CUDA=1
	@$(BIN)/pytest -q tests/test_build.py

# ------------------------------------------------------------------------------------------ packaging

wheel: .venv/.ready
	@echo "== wheel"
	@rm -rf dist build/lib* build/bdist.*
	@GPN_OPS_CUDA=$(WHEEL_CUDA) $(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	@ls dist/*.whl

.venv-torch-2.10/.ready: pyproject.toml
	@echo "== environment: .venv-torch-2.10"
	@$(PYTHON) -m venv .venv-torch-2.10
	@.venv-torch-2.10/bin/python -m pip -qq --no-input install torch==2.10.0
	@touch $@

# The checkout's own package must not be tested in place of the wheel: tests/test_build.py checks.
test-torch-2.10: wheel .venv-torch-2.10/.ready
	@echo "== test: the wheel, beside torch 2.10"
	@.venv-torch-2.10/bin/python -m pip -qq --no-input install --force-reinstall --no-deps dist/*.whl
	@.venv-torch-2.10/bin/python -m pip -qq --no-input install "$$(ls dist/*.whl)[test,pyg]"
	@GPN_OPS_TEST_INSTALLED=1 .venv-torch-2.10/bin/pytest -q --pyargs tests gpn_ops

# ------------------------------------------------------------------------------------------- the rest

bench: build
	@$(BIN)/python benchmarks/parse.py --device cpu

lint: .venv/.ready
	@echo "== lint: ruff, mypy, clang-format"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)

format: .venv/.ready
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/clang-format -i $(CPP_FILES)

clean:
	rm -rf build dist *.egg-info gpn_ops/*.so gpn_ops/_build_info.json .pytest_cache .mypy_cache .ruff_cache
