"""Rebuilds docs/benchmarks.md, the tables of README.md and all plots from saved results.

    python benchmarks/report.py

Only the benchmarks write figures, into benchmarks/results; this turns them into pages. `--check` writes
nothing and fails if a page does not match the results.
"""

import argparse
import sys
from pathlib import Path

import common
from pages import memory, speed, training
from pages.sections import Saved, machine_line, saved

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
START, END = "<!-- measured: python benchmarks/report.py -->", "<!-- end of measured -->"


def page() -> str:
    measured = list(saved())
    if any(each.device != "cpu" for each in measured):
        devices = "Figures of a GPU stand beside the CPU's, under the same title."
    else:
        devices = (
            "**All of these are CPU figures**: nobody has measured a GPU yet. Every benchmark takes "
            "`--device cuda`, and its results then appear here too."
        )
    parts = [
        "# Benchmarks",
        "Written by `python benchmarks/report.py` from the results in `benchmarks/results`; each section "
        f"names the command that made its figures. {devices}",
    ]
    if any(each.content["machine"].get("clock") == common.PROCESSOR for each in measured):
        parts.append(OTHER_WORK)
    for section, device, path, content in measured:
        parts += [
            f"## {section.title}" + ("" if device == "cpu" else f" ({device.upper()})"),
            f"`python benchmarks/{content.get('command', f'{section.command} --device {device}')}`",
            machine_line(content),
            section.module.report(content),
        ]
        for ending, plot in Saved(section, device, path, content).plots().items():
            parts += [f"![{plot.title}](../benchmarks/results/{path.stem}{ending}.svg)"]
        parts += [section.notes] if section.notes else []
    return "\n\n".join(parts) + "\n"


def better(columns: dict[str, dict[str, float | str]]) -> str:
    """The peers that need less than ours in some column, and the largest factor."""
    best: dict[str, float] = {}
    for name, ratio in ((name, ratio) for cells in columns.values() for name, ratio in cells.items()):
        if not isinstance(ratio, str) and ratio > 1:
            best[name] = max(ratio, best.get(name, ratio))
    ranked = sorted(best.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {common.times(most)}" for name, most in ranked) or "none"


# What README.md shows of the layer beside others: of all columns the four that tell most of who does better.
SHOWN = {
    "memory, n = 100,000": "forward and backward, n = 100,000",
    "time, one graph, n = 100,000": "forward, large graph, n = 100,000",
    "time, sparse batch, n = 1,000": "forward, sparse batch, n = 1,000",
    "time, dense batch, n = 1,000": "forward, dense batch, n = 1,000",
}


def peers(measured: list[Saved]) -> list[str]:
    """Every other layer beside ours: those that do better in words, all of them in a table."""
    columns: dict[str, dict[str, float | str]] = {}
    words = []
    for module in (memory, speed):
        found = [each for each in measured if each.section.module is module]
        ways = dict.fromkeys(common.how(each.content["machine"]) for each in found)
        beside = {name: cells for each in found for name, cells in module.beside(each.content).items()}
        columns |= beside
        words.append(f"{module.MEASURE.lower()} ({' or '.join(ways)}): {better(beside)}")
    shown = {title: columns[column] for title, column in SHOWN.items() if column in columns}
    names = dict.fromkeys(name for cells in shown.values() for name in cells)
    return [
        "Peak memory (forward and backward) and time (forward) of `ParsePooling`, divided by those of other "
        f"layers on the same input, {memory.CHANNELS} channels. **Bold: the other layer needs less.** Over "
        "all sizes measured, forward and with backward, these need less by a factor of up to: "
        f"{'; '.join(words)}.",
        common.table(
            ["", *shown],
            [[name, *(common.cell(cells.get(name, "-")) for cells in shown.values())] for name in names],
        ),
    ]


def readme() -> str:
    """README.md with its tables of ratios updated."""
    measured = list(saved(("cpu",)))
    rows = [
        row
        for each in measured
        if hasattr(each.section.module, "highlights")
        for row in each.section.module.highlights(each.content)
    ]
    machine = measured[0].content["machine"]
    more = "" if any(each.device != "cpu" for each in saved()) else "; no GPU figures yet"
    text = [
        f"{machine['processor']}, {common.how(machine)}, CPU{more}. All figures and the commands that "
        "made them: [docs/benchmarks.md](docs/benchmarks.md).",
        common.table(["time", "ratio"], rows),
        *peers(measured),
        WHY,
        *training.summary([each.content for each in measured if each.section.module is training]),
    ]
    before, rest = README.read_text().split(START)
    _, after = rest.split(END)
    return before + START + "\n" + "\n\n".join(text) + "\n" + END + after


OTHER_WORK = """\
Sections that say "processor time" were measured on one thread while the machine had other work: the methods
took turns, and the time is that of the process alone. Their ratios mean more than their milliseconds, which
other processes lengthen through the caches and the memory that all share."""


WHY = """\
TopKPooling and SAGPooling score nodes, of which there are fewer than edges, and drop half of them. KMIS
scores nodes as well, and Graclus scores nothing. MinCutPool and DiffPool multiply dense matrices, which pays
while graphs are small. GMT reads a graph out and makes no coarse graph. The ratio of all of these is a
setting or follows from the graph alone; ours is learnt."""


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
    if not options.check:
        for each in saved():
            common.save_plots(each.path, each.plots())


if __name__ == "__main__":
    main()
