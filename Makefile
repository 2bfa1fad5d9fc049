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
.PHONY: help demo test test-all test-torch-2.10 lint format build cpp-test sanitize mutants mutants-quick \
    cuda cuda-link compute-sanitizer wheel bench guard docs clean

help:
	@echo "make demo             parse a graph, time the operator, train a small GPN, draw its trees (minutes)"
	@echo "make test             build and test (what one runs after a change)"
	@echo "make lint             ruff, mypy, clang-format; 'make format' repairs what it can"
	@echo "make cpp-test         C++ tests of the torch-free headers"
	@echo "make sanitize         the same under AddressSanitizer, UBSan and ThreadSanitizer"
	@echo "make mutants          plant bugs in a copy of the sources: the C++ tests must catch each of them"
	@echo "make cuda             compile and link the CUDA library, check it (needs nvcc, no GPU)"
	@echo "make cuda-link        link it against the CUDA build of torch and load it there (downloads that torch)"
	@echo "make compute-sanitizer  the GPU tests under NVIDIA's compute-sanitizer (needs a GPU)"
	@echo "make wheel            a wheel in dist/ (with CUDA where nvcc is found)"
	@echo "make test-torch-2.10  that wheel, tested beside the oldest torch it serves"
	@echo "make test-all         everything, the slow tests included"
	@echo "make bench            the benchmarks, and the pages that show them"
	@echo "make docs             the documentation site, in build/docs"
	@echo "make guard            fails where a hot path needs 5 % more instructions or bytes"

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
	@echo
	@$(BIN)/python -m models.demo

test: build cpp-test
	@echo "== test: Python"
	@$(BIN)/pytest -q

# Order matters for reading the output, not for the result.
test-all: build
	@GPN_OPS_SEEDS=5000 $(MAKE) --no-print-directory cpp-test
	@GPN_OPS_SEEDS=500 $(MAKE) --no-print-directory sanitize
	@$(MAKE) --no-print-directory mutants
	@echo "== test: Python, all tiers"
	@$(BIN)/pytest -q -m ""
	@$(MAKE) --no-print-directory test-torch-2.10
	@if command -v nvcc > /dev/null; then $(MAKE) --no-print-directory cuda cuda-link; \
	    else echo "!! CUDA NOT CHECKED: nvcc was not found"; fi

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

mutants:
	@echo "== planted bugs"
	@$(PYTHON) tests/cpp/mutants.py

mutants-quick:
	@echo "== planted bugs (quick)"
	@$(PYTHON) tests/cpp/mutants.py --quick

cuda:
	@$(MAKE) --no-print-directory build GPN_OPS_CUDA=1
	@$(BIN)/python tests/check_ptxas.py build/cmake
	@$(BIN)/pytest -q tests/test_build.py tests/test_cuda_library.py

# The CUDA build of torch with what it needs, in an environment of its own: several GB, once. Three equals
# signs: not a build with a local version, such as the CPU's.
CUDA_TORCH ?= torch===2.13.0
.venv-cuda/.ready:
	@echo "== environment: .venv-cuda ($(CUDA_TORCH))"
	@$(PYTHON) -m venv .venv-cuda
	@.venv-cuda/bin/python -m pip -qq --no-input install "$(CUDA_TORCH)" "cmake>=3.26" ninja numpy
	@touch $@

cuda-link: .venv-cuda/.ready
	@echo "== CUDA library, linked and loaded beside $(CUDA_TORCH)"
	@PATH=$(abspath .venv-cuda/bin):$$PATH .venv-cuda/bin/python tests/cuda_link.py

# memcheck: accesses; racecheck: shared memory; synccheck: barriers and shuffles; initcheck: memory never written.
compute-sanitizer:
	@$(MAKE) --no-print-directory build GPN_OPS_CUDA=1
	@for tool in memcheck racecheck synccheck initcheck; do \
	    echo "== compute-sanitizer: $$tool"; \
	    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool $$tool --error-exitcode 1 \
	        --target-processes application-only $(BIN)/pytest -q --device cuda \
	        -k "not capture and not peak_memory and not out_of_range" tests/test_parse.py tests/test_cuda.py || exit 1; \
	done

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
	@.venv-torch-2.10/bin/python -m pip -qq --no-input install "$$(ls dist/*.whl)[models,pyg,test]"
	@GPN_OPS_TEST_INSTALLED=1 .venv-torch-2.10/bin/pytest -q --pyargs tests gpn_ops

# ------------------------------------------------------------------------------------------- the rest

bench: build
	@for benchmark in "parse.py --instructions" coarsen.py layer.py memory.py "memory.py --backward" time.py; do \
	    echo "== benchmark: $$benchmark"; \
	    PATH=$(abspath $(BIN)):$$PATH $(BIN)/python benchmarks/$$benchmark || exit 1; \
	done
	@$(BIN)/python benchmarks/report.py

guard: build
	@echo "== guard: instructions and bytes of the hot paths"
	@PATH=$(abspath $(BIN)):$$PATH $(BIN)/python benchmarks/guard.py

.venv/.docs: .venv/.ready
	@$(PIP) install --no-build-isolation --editable '.[docs]'
	@touch $@

# Warnings are errors: a page that nobody links, a link that leads nowhere, a docstring that does not parse.
docs: build .venv/.docs
	@echo "== documentation"
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo build/docs/index.html

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
