"""Rebuilds docs/benchmarks.md and the table of README.md from saved results: `python benchmarks/report.py`.

Figures are only ever written by the benchmarks themselves, into benchmarks/results; this puts them into
words. `--check` writes nothing and fails if a page is not what the results say.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import coarsen
import common
import epoch
import layer
import memory
import parse

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
START, END = "<!-- measured: python benchmarks/report.py -->", "<!-- end of measured -->"


class Section(NamedTuple):
    """One benchmark: its file of results, how it is made, and what a reader should know."""

    stem: str
    title: str
    command: str
    module: Any
    plots: tuple[str, ...]
    notes: str


def time_module() -> Any:
    """benchmarks/time.py. Not by import: that name belongs to Python's own module."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("benchmark_time", Path(__file__).with_name("time.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sections() -> list[Section]:
    time = time_module()
    kinds = [kind.replace(" ", "_") for kind in time.KINDS]
    return [
        Section("parse", "Parsing", "parse.py --instructions", parse, ("",), parse.NOTES),
        Section("coarsen", "Coarsening", "coarsen.py", coarsen, ("",), coarsen.NOTES),
        Section("layer", "The layer beside its own matrix products", "layer.py", layer, (), layer.NOTES),
        Section("memory_forward", "Memory, forward", "memory.py", memory, ("",), memory.NOTES),
        Section("memory_backward", "Memory, forward and backward", "memory.py --backward", memory, ("",), ""),
        Section("epoch", "A training epoch", "epoch.py --threads 1", epoch, (), epoch.NOTES),
        Section("time_forward", "Time, forward", "time.py", time, tuple(kinds), time.NOTES),
    ]


def machine_line(machine: dict[str, Any]) -> str:
    where = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    return (
        f"Measured on {where}, {machine['threads']} threads, torch {machine['torch']}, "
        f"Python {machine['python']}, commit {machine['commit']}, {machine['date']}."
    )


def page() -> str:
    parts = [
        "# Benchmarks",
        "Written by `python benchmarks/report.py` from the results in `benchmarks/results`; each section "
        "names the command that made its figures. **All of these are CPU figures**: nobody has measured a "
        "GPU yet. Every benchmark takes `--device cuda`, and its results then appear here too.",
    ]
    for device in ("cpu", "cuda"):
        for section in sections():
            path = common.RESULTS / f"{section.stem}_{device}.json"
            if not path.exists():
                continue
            content = json.loads(path.read_text())
            parts += [f"## {section.title}" + ("" if device == "cpu" else " (CUDA)")]
            parts += [
                f"`python benchmarks/{section.command} --device {device}`",
                machine_line(content["machine"]),
            ]
            parts += [section.module.report(content)]
            for plot in section.plots:
                name = "_".join(part for part in (section.stem, device, plot) if part)
                parts += [f"![{section.title}](../benchmarks/results/{name}.svg)"]
            parts += [section.notes] if section.notes else []
    return "\n\n".join(parts) + "\n"


def readme() -> str:
    """README.md with its table of ratios made anew."""
    rows, machine = [], {}
    for section in sections():
        path = common.RESULTS / f"{section.stem}_cpu.json"
        if path.exists() and hasattr(section.module, "highlights"):
            content = json.loads(path.read_text())
            rows += section.module.highlights(content)
            machine = machine or content["machine"]
    where = f"{machine['processor']}, {machine['threads']} threads, CPU; no GPU figures yet"
    text = f"{where}. All figures and the commands that made them: [docs/benchmarks.md](docs/benchmarks.md)."
    before, rest = README.read_text().split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n{text}\n\n{common.table(['what', 'ratio'], rows)}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    options = parser.parse_args()
    for path, text in ((PAGE, page()), (README, readme())):
        if options.check and (not path.exists() or path.read_text() != text):
            sys.exit(f"{path.name} is not what benchmarks/results say: run `python benchmarks/report.py`")
        if not options.check:
            path.write_text(text)
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
