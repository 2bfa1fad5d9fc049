"""Fails when a hot path gets more than 5 % worse: `make guard`.

It compares figures that do not depend on the load of the machine: instructions of the CPU kernels on one
thread, counted by callgrind, and peak bytes of the layer and its operators. The baseline is in baseline.json
beside this file; `--update` rewrites it, for a commit that says why.

Instructions depend on the compiler. They are compared only if it is the compiler of the baseline and valgrind
is installed.
"""

import argparse
import json
import shutil
import subprocess
import sys

import common
import torch
from instructions import BASELINE, count_instructions

import gpn_ops
from gpn_ops.nn import ParsePooling

MOST = 1.05
NODES = 20_000
KERNELS = ("parse", "unsorted", "components", "coarsen")


def compiler() -> str:
    """The C++ compiler that cmake picks: name and major version."""
    run = subprocess.run(
        ["c++", "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=False
    )
    name = "clang" if "clang" in subprocess.getoutput("c++ --version") else "gcc"
    return f"{name} {run.stdout.split('.')[0].strip()}"


def measure_bytes() -> dict[str, int]:
    """Peak bytes at a fixed size. One thread, because scratch memory may depend on their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cpu = torch.device("cpu")
    edge_index, scores = common.random_graph(NODES, 2 * NODES)
    cluster = gpn_ops.parse(edge_index, scores, NODES)
    num_clusters = int(cluster.max()) + 1
    x, pool = torch.randn(NODES, 128), ParsePooling(128)

    def forward() -> None:
        with torch.no_grad():
            pool(x, edge_index)

    def forward_and_backward() -> None:
        pool(x.requires_grad_(), edge_index).x.sum().backward()

    calls = {
        "parse": lambda: gpn_ops.parse(edge_index, scores, NODES),
        "coarsen": lambda: gpn_ops.coarsen(edge_index, cluster),
        "mask": lambda: gpn_ops.mask(edge_index, scores, cluster, num_clusters),
        "reduce": lambda: gpn_ops.reduce(x, cluster, num_clusters),
        "undirected": lambda: gpn_ops.undirected(edge_index, NODES),
        "ParsePooling, forward": forward,
        "ParsePooling, forward and backward": forward_and_backward,
    }
    peaks = {name: common.peak_bytes(call, cpu) for name, call in calls.items()}
    torch.set_num_threads(threads)
    return peaks


def compare(kind: str, now: dict[str, int], then: dict[str, int]) -> list[str]:
    """The names of the figures that got worse or have no baseline."""
    worse = []
    for name, figure in now.items():
        ratio = figure / then[name] if name in then else float("inf")
        mark = "WORSE" if ratio > MOST else "ok" if ratio > 1 / MOST else "better: record it with --update"
        print(f"{kind:13} {name:36} {figure:14,} {ratio:7.3f} x baseline   {mark}")
        if ratio > MOST:
            worse.append(f"{kind} of {name}")
    return worse


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update", action="store_true", help="record the figures as the new baseline")
    options = parser.parse_args()
    figures = {"bytes": measure_bytes()}
    baseline = (
        json.loads(BASELINE.read_text()) if BASELINE.exists() else {"compiler": compiler(), "bytes": {}}
    )

    if not shutil.which("valgrind"):
        print("!! INSTRUCTIONS NOT COMPARED: valgrind was not found")
    elif not options.update and baseline["compiler"] != compiler():
        print(f"!! INSTRUCTIONS NOT COMPARED: recorded with {baseline['compiler']}, this is {compiler()}")
    else:
        figures["instructions"] = {kernel: count_instructions(kernel, NODES) for kernel in KERNELS}

    if options.update:
        BASELINE.write_text(json.dumps({**baseline, "compiler": compiler(), **figures}, indent=1) + "\n")
        print(f"recorded in {BASELINE}")
        return
    worse = [name for kind, now in figures.items() for name in compare(kind, now, baseline.get(kind, {}))]
    if worse:
        sys.exit(f"more than {MOST - 1:.0%} worse than {BASELINE.name}: {', '.join(worse)}")


if __name__ == "__main__":
    main()
