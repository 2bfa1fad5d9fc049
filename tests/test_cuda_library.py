"""The CUDA library where there is no GPU: it loads, its kernels are registered and fit their registers.

What the kernels compute is tested by tests/cpp (on the CPU) and by the ``cuda`` runs of the other tests.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import check_ptxas
import pytest
import torch

from gpn_ops import library

ROOT = Path(__file__).resolve().parent.parent

needs_library = pytest.mark.skipif(
    not library.CUDA_LIBRARY.exists(),
    reason="the CUDA library was not built (`make cuda` builds and tests it)",
)

# ------------------------------------------------------------------------------------------------- loading

LOAD = """
import ctypes, sys
if sys.argv[1]:
    ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
import torch
from gpn_ops import library
assert library.cuda_loaded(), library.cuda_status()
schemas = {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("gpn::")}
for name in sorted(schemas):
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"):
        print(name)
"""


def undefined_symbols(library: Path) -> set[str]:
    output = subprocess.run(
        ["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True
    )
    return {line.split()[-1] for line in output.stdout.splitlines()}


def stub_of_torch_cuda(directory: Path) -> Path:
    """A library with the symbols that only CUDA builds of torch have; nothing here calls them."""
    lib = Path(torch.__file__).parent / "lib"
    given = subprocess.run(
        ["nm", "-D", "--defined-only", lib / "libtorch_cpu.so"], capture_output=True, text=True, check=True
    ).stdout
    defined = {line.split()[-1] for line in given.splitlines()}
    missing = {
        name for name in undefined_symbols(library.CUDA_LIBRARY) if re.match("(aoti_)?torch_", name)
    } - defined
    source, stub = directory / "stub.c", directory / "libstub.so"
    source.write_text("".join(f"int {name}(void) {{ return 1; }}\n" for name in sorted(missing)))
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", stub], check=True)
    return stub


@needs_library
@pytest.mark.skipif(not (shutil.which("nm") and shutil.which("cc")), reason="nm and cc are not installed")
def test_loads_without_cuda_in_torch(tmp_path, monkeypatch):
    stub = "" if torch.version.cuda else stub_of_torch_cuda(tmp_path)
    monkeypatch.setenv("GPN_OPS_LOAD_CUDA", "1")
    command = [sys.executable, "-c", LOAD, str(stub)]
    # Not from the root, where Python would prefer the checkout's package to the installed one.
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    registered = set(done.stdout.split())
    on_cpu = {
        schema.name
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("gpn::")
        and torch._C._dispatch_has_kernel_for_dispatch_key(schema.name, "CPU")
    }
    assert on_cpu, "the CPU kernels were not found"
    assert registered == on_cpu


# ------------------------------------------------------------------------------------------------ registers

SOURCE = """
// Sums up.
// Registers: 32.
template <class T>
__global__ void __launch_bounds__(1024)
    add(const T* x) {
}

__global__ void __maxnreg__(40) bare(int64_t n) {
}
"""


def log_of(
    entry: str, architecture: str = "sm_90", registers: int = 30, stack: int = 0, spilled: int = 0
) -> str:
    return (
        f"ptxas info    : Compiling entry function '{entry}' for '{architecture}'\n"
        f"ptxas info    : Function properties for {entry}\n"
        f"    {stack} bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 0 barriers\n"
    )


ADD = "_ZN3gpn4cuda3addIfEEvPKT_"
needs_filt = pytest.mark.skipif(not shutil.which("c++filt"), reason="c++filt (binutils) is not installed")


def problems(log: str) -> list[str]:
    return check_ptxas.problems({"add": 32}, check_ptxas.usages(log), ["sm_90"])


def test_budgets_are_read():
    assert check_ptxas.budgets([SOURCE]) == {"add": 32, "bare": None}
    for kernel in ("extern __global__ void add(int x) {", "__global__ inline void add(int x) {"):
        with pytest.raises(ValueError, match="does not read"):
            check_ptxas.budgets([kernel])


@needs_filt
def test_a_kernel_within_its_budget_passes():
    assert problems(log_of(ADD, registers=32)) == []
    assert problems(log_of(ADD) + log_of("_ZN3cub6SortItEvv", registers=200, stack=8)) == []


@needs_filt
@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (log_of(ADD, registers=33), "33 registers, expected at most 32"),
        (log_of(ADD, stack=8), "8 bytes of stack"),
        (log_of(ADD, spilled=4), "8 bytes spilled"),
        (log_of(ADD, architecture="sm_80"), "add: not compiled for sm_90"),
        (log_of(ADD) + log_of("_ZN3gpn4cuda5otherEv"), "not found in the sources"),
    ],
)
def test_a_kernel_beyond_its_budget_fails(log, problem):
    found = problems(log)
    assert len(found) == 1
    assert problem in found[0]


@needs_filt
def test_a_missing_budget_fails():
    assert check_ptxas.problems({"add": None}, check_ptxas.usages(log_of(ADD)), ["sm_90"]) == [
        "add: no line '// Registers: N.' above it"
    ]


@needs_filt
def test_a_log_of_mixed_lines_is_refused():
    lines = log_of(ADD).splitlines(keepends=True)
    with pytest.raises(ValueError, match="one block of lines"):
        check_ptxas.usages("".join([lines[0], *log_of(ADD).splitlines(keepends=True), *lines[1:]]))


def test_every_kernel_has_a_budget():
    sources = (file.read_text() for file in sorted((ROOT / "csrc" / "cuda").glob("*.cu*")))
    budget = check_ptxas.budgets(sources)
    assert len(budget) > 10, "the kernels were not found"
    assert {name for name, most in budget.items() if most is None} == set()
