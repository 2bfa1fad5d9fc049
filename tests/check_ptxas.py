"""Registers and stack of every CUDA kernel, as ptxas gave them, against the budgets in the sources.

A budget is written right above each kernel in csrc/cuda/*.cuh, as ``// Registers: 32.`` The build keeps what
ptxas printed beside each object (csrc/cuda/keep_ptxas.sh). The check fails on a kernel that takes more on any
architecture, that uses stack or spills, that has no budget, or that was not compiled for every architecture.

    python tests/check_ptxas.py build/cmake [--table]
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

KERNEL = re.compile(
    r"(?P<above>(?:^//.*\n)*)(?:^template <[^\n]*>\n)?"
    r"^__global__ void\s+(?:__\w+__\([^)]*\)\s+)*(?P<name>\w+)\(",
    re.MULTILINE,
)
BUDGET = re.compile(r"^// Registers: (\d+)\.$", re.MULTILINE)
USAGE = re.compile(
    r"Compiling entry function '(?P<entry>\w+)' for '(?P<architecture>sm_\w+)'\n"
    r".*Function properties for (?P<same>\w+)\n"
    r"\s*(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r".*Used (?P<registers>\d+) registers"
)


class Usage(NamedTuple):
    kernel: str  # as in the sources: without namespace and template arguments
    instance: str  # the full name
    architecture: str
    registers: int
    stack: int
    spilled: int


def budgets(sources: Iterable[str]) -> dict[str, int | None]:
    """The budget of every kernel; None where none is written."""
    found: dict[str, int | None] = {}
    for text in sources:
        for kernel in KERNEL.finditer(text):
            budget = BUDGET.search(kernel["above"])
            found[kernel["name"]] = int(budget[1]) if budget else None
        if text.count("__global__") != len(KERNEL.findall(text)):
            raise ValueError("a kernel is written in a way that this script does not read")
    return found


def demangled(names: list[str]) -> list[str]:
    tool = shutil.which("c++filt")
    if tool is None:
        raise SystemExit("c++filt (binutils) is not installed")
    return subprocess.run(
        [tool], input="\n".join(names), capture_output=True, text=True, check=True
    ).stdout.splitlines()


def usages(log: str) -> list[Usage]:
    """What the log says of the kernels of this project; those of libraries have budgets of their own."""
    found = [match for match in USAGE.finditer(log) if match["entry"].startswith("_ZN3gpn4cuda")]
    # ptxas runs for several architectures at once: lines must not have got mixed up.
    if any(match["entry"] != match["same"] for match in found) or log.count("Compiling entry") != len(
        USAGE.findall(log)
    ):
        raise ValueError("the log is not one block of lines per kernel")
    result = []
    for match, name in zip(found, demangled([match["entry"] for match in found]), strict=True):
        kernel = re.search(r"gpn::cuda::(?:\(anonymous namespace\)::)?(\w+)", name)
        assert kernel is not None, name
        spilled = int(match["stores"]) + int(match["loads"])
        registers, stack = int(match["registers"]), int(match["stack"])
        result.append(Usage(kernel[1], name, match["architecture"], registers, stack, spilled))
    return result


def problems(
    budget: dict[str, int | None], used: list[Usage], architectures: Iterable[str] = ARCHITECTURES
) -> list[str]:
    found = [f"{name}: no line '// Registers: N.' above it" for name, most in budget.items() if most is None]
    for name in budget:
        seen = {usage.architecture for usage in used if usage.kernel == name}
        if missing := [architecture for architecture in architectures if architecture not in seen]:
            found.append(f"{name}: not compiled for {', '.join(missing)}")
    for usage in used:
        where = f"{usage.instance} on {usage.architecture}"
        most = budget.get(usage.kernel)
        if usage.kernel not in budget:
            found.append(f"{where}: not found in the sources")
        elif most is not None and usage.registers > most:
            found.append(f"{where}: {usage.registers} registers, expected at most {most}")
        if usage.stack or usage.spilled:
            found.append(
                f"{where}: {usage.stack} bytes of stack, {usage.spilled} bytes spilled, expected none"
            )
    return found


def table(used: list[Usage]) -> str:
    """The most registers that any instance of a kernel takes, by architecture."""
    lines = ["kernel " + " ".join(ARCHITECTURES)]
    for name in sorted({usage.kernel for usage in used}):
        most = [
            max((u.registers for u in used if u.kernel == name and u.architecture == architecture), default=0)
            for architecture in ARCHITECTURES
        ]
        lines.append(f"{name} {' '.join(map(str, most))}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the registers of the CUDA kernels.")
    parser.add_argument("build", type=Path, help="the build directory of CMake")
    parser.add_argument("--table", action="store_true", help="also print what each kernel takes")
    arguments = parser.parse_args()
    sources = sorted((ROOT / "csrc" / "cuda").glob("*.cu"))
    # By name: a source that is gone may have left its log.
    logs = [log for source in sources for log in arguments.build.rglob(f"{source.name}.o.ptxas")]
    if not logs:
        print(f"{arguments.build}: no *.ptxas file, so the CUDA library was not built here")
        return 1
    budget = budgets(file.read_text() for file in sorted((ROOT / "csrc" / "cuda").glob("*.cu*")))
    used = [usage for log in logs for usage in usages(log.read_text())]
    if arguments.table:
        print(table(used))
    found = problems(budget, used)
    print(
        "\n".join(found) if found else f"{len(budget)} kernels within their budgets ({len(used)} instances)"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
