# Every target makes the environment it needs (.venv). What one needs by hand: Python, a C++ compiler, make.
#
#   TORCH         what `pip install` gets as torch, with further pip arguments if need be
#   GPN_OPS_CUDA  1 also builds the CUDA library (needs nvcc): `make test GPN_OPS_CUDA=1` on a GPU machine
#   WHEEL_CUDA    the same for the wheel; the default is auto: where nvcc is found and torch has CUDA
#   WHEEL_PLATFORM  what the wheel promises to run on; "auto" takes the widest that the build machine allows

PYTHON ?= python3
TORCH ?= torch==2.13.0
GPN_OPS_CUDA ?= 0
WHEEL_CUDA ?= auto
WHEEL_PLATFORM ?= manylinux_2_28_$(shell uname -m)
# The newest torch that this version was tested with.
TORCH_LATEST ?= 2.15
export GPN_OPS_CUDA
export GPN_OPS_WERROR ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

# ninja would take MAKEFLAGS of `make -j` for an offer of job slots that it cannot reach.
unexport MAKEFLAGS

BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --no-input
SANITIZERS := address undefined thread
CPP_FILES = $(shell find csrc tests/cpp -name '*.h' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.cu')
CTEST = $(BIN)/ctest --output-on-failure --no-tests=error --parallel $(shell nproc)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-torch-2.10 test-torch-latest lint format build cpp-test sanitize mutants \
    mutants-quick cuda cuda-link cuda-old-ptxas compute-sanitizer standin standin-all gpu wheel test-wheel bench guard docs clean

help:
	@echo "make demo             parse a graph, time the operator, train a small GPN, draw its trees (minutes)"
	@echo "make test             build and test (what one runs after a change)"
	@echo "make lint             ruff, mypy, clang-format; 'make format' repairs what it can"
	@echo "make cpp-test         C++ tests of the torch-free headers"
	@echo "make sanitize         the same under AddressSanitizer, UBSan and ThreadSanitizer"
	@echo "make mutants          plant bugs in a copy of the sources: the tests must catch each of them"
	@echo "make cuda             compile and link the CUDA library, check it (needs nvcc, no GPU)"
	@echo "make cuda-link        link it beside CUDA builds of torch and load it there (downloads three of them)"
	@echo "make cuda-old-ptxas   assemble the kernels with the ptxas of CUDA 12 (downloads it)"
	@echo "make standin          what only a GPU's user reaches, on a device made for tests; standin-all: all such tests"
	@echo "make gpu              for the owner of a GPU: build, test, measure, and a report in gpu-report/"
	@echo "make compute-sanitizer  the GPU tests under NVIDIA's compute-sanitizer (needs a GPU)"
	@echo "make wheel            a wheel in dist/ that PyPI takes (with CUDA where nvcc is found and torch has it)"
	@echo "make test-wheel       that wheel, installed into a fresh environment and tried"
	@echo "make test-torch-2.10  that wheel, tested beside the oldest torch it serves (downloads it: several GB)"
	@echo "make test-torch-latest  the same beside the newest, $(TORCH_LATEST)"
	@echo "make test-all         everything, the slow tests included; stop it at any time, it goes on from there"
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

# Hours: goes on where it was stopped, and says at the end what came of each step.
test-all: build
	@$(BIN)/python tests/long_tier.py

# The tests that take a device, on one made for them in host memory (tests/standin): the first is a part of
# them and every line that only a GPU's user reaches, the second all of them.
STANDIN_FILES := tests/test_standin.py tests/test_accelerator.py tests/models/test_commands_on_accelerator.py \
    tests/test_cuda.py tests/test_nn_hierarchy.py tests/test_predicted_benchmark.py
PATCHED_FILES := tests/test_accelerator.py tests/models/test_commands_on_accelerator.py tests/test_build.py
LINES := build/lines.json
standin: build
	@echo "== test: a part of the tests on the stand-in for a GPU"
	@rm -f $(LINES)
	@$(BIN)/pytest -q --device standin --record-lines $(LINES) $(STANDIN_FILES) \
	    -k "not peak_memory and not at_size and not jobs and not baselines and not dies and not forked and not killed"
	@$(BIN)/pytest -q --device cpu --record-lines $(LINES) $(PATCHED_FILES) \
	    -k "accelerator or plain_path"
	@$(BIN)/python tests/accelerator_lines.py $(LINES)

standin-all: build
	@echo "== test: the stand-in for a GPU"
	@$(BIN)/pytest -q -m "" --device standin

# A warning of a compiler that we have not tried must not end it. The check builds what it needs itself.
gpu: GPN_OPS_WERROR = 0
gpu: .venv/.ready
	@$(MAKE) --no-print-directory .venv/.peers \
	    || echo "!! peers from other libraries could not be built, see above: benchmarks leave them out"
	@PATH=$(abspath $(BIN)):$$PATH $(BIN)/python benchmarks/gpu_check.py $(GPU)

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

mutants mutants-quick: build
	@echo "== planted bugs: C++ and CUDA"
	@$(PYTHON) tests/cpp/mutants.py $(if $(filter mutants-quick,$@),--quick)
	@echo "== planted bugs: Python"
	@$(BIN)/python tests/mutants.py $(if $(filter mutants-quick,$@),--quick)

cuda:
	@$(MAKE) --no-print-directory build GPN_OPS_CUDA=1
	@$(BIN)/python tests/check_ptxas.py build/cmake
	@$(BIN)/pytest -q tests/test_build.py tests/test_cuda_library.py

# Builds of torch as PyPI has them, with CUDA: several GB each, once. Three equals signs: not a build with a local
# version, such as the CPU's.
.venv-torch-%/.ready:
	@echo "== environment: .venv-torch-$* (torch===$*.0)"
	@$(PYTHON) -m venv .venv-torch-$*
	@.venv-torch-$*/bin/python -m pip -qq --no-input install "torch===$*.0" numpy
	@touch $@

LINK_TORCHES := 2.10 2.13 $(TORCH_LATEST)
cuda-link: .venv/.ready $(LINK_TORCHES:%=.venv-torch-%/.ready)
	@echo "== CUDA library, linked and loaded beside torch $(LINK_TORCHES)"
	@$(BIN)/python tests/cuda_link.py $(LINK_TORCHES:%=.venv-torch-%/bin/python)

OLD_PTXAS := 12.0.140 12.6.85
build/ptxas-%/.ready: .venv/.ready
	@mkdir -p build/ptxas-$*
	@$(PIP) install --no-deps --target build/ptxas-$* nvidia-cuda-nvcc-cu12==$*
	@touch $@

cuda-old-ptxas: $(OLD_PTXAS:%=build/ptxas-%/.ready)
	@echo "== CUDA kernels, assembled by ptxas $(OLD_PTXAS)"
	@for version in $(OLD_PTXAS); do \
	    $(BIN)/python tests/cuda_old_ptxas.py build/ptxas-$$version/nvidia/cuda_nvcc/bin/ptxas || exit 1; \
	done

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

# auditwheel puts the platform into the name if the libraries keep its promise. What they need of torch stays
# torch's; the second audit reads from their symbols that it is the stable interface alone.
wheel: .venv/.ready
	@echo "== wheel"
	@rm -rf dist build/lib* build/bdist.* build/wheel
	@GPN_OPS_CUDA=$(WHEEL_CUDA) $(PIP) wheel --no-build-isolation --no-deps --wheel-dir build/wheel .
	@PATH=$(abspath $(BIN)):$$PATH $(BIN)/auditwheel repair --plat $(WHEEL_PLATFORM) --only-plat \
	    --exclude 'libtorch*.so' --wheel-dir dist build/wheel/*.whl 2> build/wheel/audit.log \
	    || { cat build/wheel/audit.log; exit 1; }
	@$(BIN)/twine check --strict dist/*.whl
	@$(BIN)/python -m zipfile -e dist/*.whl build/wheel/unpacked
	@$(BIN)/torch-abi-audit --check torch build/wheel/unpacked/gpn_ops
	@ls dist/*.whl

# Nothing of the checkout may help: neither its environment nor its package, which tests/test_build.py checks.
test-wheel: wheel
	@echo "== test: the wheel, in a fresh environment"
	@rm -rf build/venv-wheel
	@$(PYTHON) -m venv build/venv-wheel
	@build/venv-wheel/bin/python -m pip -qq --no-input install $(TORCH)
	@build/venv-wheel/bin/python -m pip -qq --no-input install "$$(ls dist/*.whl)[pyg,test]"
	@GPN_OPS_TEST_INSTALLED=1 build/venv-wheel/bin/pytest -q tests/test_wheel.py tests/test_build.py \
	    tests/test_readme.py

# $(1): a version of torch. All tests, with the wheel in the place of the checkout's package.
define test_wheel_beside
	@echo "== test: the wheel, beside torch $(1)"
	@.venv-torch-$(1)/bin/python -m pip -qq --no-input install --force-reinstall --no-deps dist/*.whl
	@.venv-torch-$(1)/bin/python -m pip -qq --no-input install "$$(ls dist/*.whl)[models,pyg,test]" "cmake>=3.26" ninja
	@GPN_OPS_TEST_INSTALLED=1 .venv-torch-$(1)/bin/pytest -q --pyargs tests gpn_ops
endef

test-torch-2.10: wheel .venv-torch-2.10/.ready
	$(call test_wheel_beside,2.10)

test-torch-latest: wheel .venv-torch-$(TORCH_LATEST)/.ready
	$(call test_wheel_beside,$(TORCH_LATEST))

# ------------------------------------------------------------------------------------------- the rest

# Peers from other libraries, one of them built from source: minutes, once.
.venv/.peers: .venv/.ready
	@echo "== environment: peers for the benchmarks"
	@PATH=$(abspath $(BIN)):$$PATH $(PIP) install --no-build-isolation --editable '.[bench-peers]'
	@touch $@

bench: build .venv/.peers
	@for benchmark in "parse.py --instructions" "parse.py --hubs" coarsen.py "coarsen.py --hubs" \
	    layer.py "layer.py --hubs" memory.py "memory.py --backward" \
	    speed.py "speed.py --backward" "speed.py --paper"; do \
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
	@echo "== lint: ruff, mypy, clang-format, workflows"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/zizmor --quiet --offline --no-progress .github/workflows
	@if command -v actionlint > /dev/null; then actionlint; \
	    else echo "!! actionlint was not found: .github/workflows NOT CHECKED by it"; fi

format: .venv/.ready
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/clang-format -i $(CPP_FILES)

clean:
	rm -rf build dist *.egg-info gpn_ops/*.so gpn_ops/_build_info.json .pytest_cache .mypy_cache .ruff_cache
