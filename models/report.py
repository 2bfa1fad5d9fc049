"""Tables of finished runs, beside the paper's figures.

    python -m models.report results
    python -m models.report results --markdown results/report.md --runs
    python -m models.report models/results --markdown docs/results.md --readme README.md

Reads every runs.jsonl below the folder, as written by models.train. Runs with different settings never share
a cell: the main tables contain the runs of the presets, further tables those with changed settings.

A cell is mean ± standard deviation (number of runs). For graph tasks the deviation is over the means of the
seeds, as in the paper. With a single complete seed it is over the folds, which is much larger, and marked.
For node tasks it is over the splits, each averaged over its seeds. Unfinished seeds are left out if there is
a complete one; otherwise the cell says what is missing.

A result of GPN reaches the paper's if its mean is below the paper's by at most the paper's deviation (graph
tasks) or by at most its own standard error over the splits (node tasks).
"""

import argparse
import math
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from . import config as configs
from . import files, jsonl
from .common import attempt, fail, table
from .config import NAMES
from .data import MOLECULES, NUM_FOLDS, ORDER, position
from .jsonl import NUMBER

PAPER = Path(__file__).with_name("paper.yaml")
TITLES = {"graph": "Graph classification", "node": "Node classification", "molecule": "Molecules"}
ABLATED = ("conv", "multiset", "complete", "max_height", "scores", "mask")
NEEDED = {
    **dict.fromkeys(("dataset", "model", "metric", "digest"), str),
    **dict.fromkeys(("fold", "seed"), int),
    **dict.fromkeys(("test", "epochs", "seconds"), NUMBER),
    "changed": dict,
}

# Runs that are neither of a preset nor an ablation, and what is to be known of them.
OTHER = {
    "Authors' scoring": "Both directions of an edge are scored in training, as in the code of the paper.",
    "Tuned on validation": "Chosen on validation sets: no reproduction of the paper's figures.",
    "Other settings": "",
}

Record = dict[str, Any]
Figure = list[float] | str
"""Mean and deviation, or words in their place."""


# ------------------------------------------------------------------------------------------------------------
# Reading
# ------------------------------------------------------------------------------------------------------------


def read(folder: Path) -> list[Record]:
    """All runs below a folder, in the order of the files. Contradicting lines are reported."""
    found = []
    for path in sorted(folder.rglob("runs.jsonl")):
        records = jsonl.read(path, NEEDED)
        seen: dict[tuple[Any, ...], Record] = {}
        for record in records:
            key = tuple(record[each] for each in ("dataset", "model", "digest", "seed", "fold"))
            if key in seen and seen[key]["test"] != record["test"]:
                files.warn(
                    path,
                    f"seed {record['seed']} fold {record['fold']} is there twice, with test "
                    f"{seen[key]['test']} and {record['test']}: the last one counts",
                )
            seen[key] = record
        found += records
    return found


class Group(NamedTuple):
    """The runs of one cell: one data set, one model, one digest of settings."""

    dataset: str
    model: str
    changed: str
    """What differs from the preset, as ``--set`` takes it."""
    records: list[Record]
    stale: bool = False
    """Whether other runs claim the same settings under another digest, as after a change of the preset, and
    are more."""

    @property
    def task(self) -> str:
        return task_of(self.records[0])

    @property
    def name(self) -> str:
        """The data set's name, as a heading."""
        metric = self.records[0]["metric"]
        return configs.short_name(self.dataset) + ("" if metric == "accuracy" else f" ({metric})")


def groups(records: Iterable[Record]) -> list[Group]:
    """The runs, by data set, model and settings. If a run was repeated, the last one counts."""
    found: dict[tuple[str, ...], dict[tuple[int, int], Record]] = {}
    for record in records:
        key = (record["dataset"], record["model"], settings(record["changed"]), record["digest"])
        found.setdefault(key, {})[record["seed"], record["fold"]] = record
    most: dict[tuple[str, ...], tuple[str, ...]] = {}
    for key, runs in found.items():
        if key[:3] not in most or len(runs) >= len(found[most[key[:3]]]):
            most[key[:3]] = key

    def place(key: tuple[str, ...]) -> tuple[Any, ...]:
        dataset, model, *settings_and_digest = key
        return (position(ORDER, dataset), dataset, position([*NAMES], model), model, *settings_and_digest)

    return [
        Group(key[0], key[1], key[2], list(found[key].values()), stale=most[key[:3]] != key)
        for key in sorted(found, key=place)
    ]


def settings(changed: dict[str, Any]) -> str:
    """Changed settings, as ``--set`` takes them."""

    def text(value: Any) -> str:
        return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return ", ".join(f"{key}={text(value)}" for key, value in changed.items())


def task_of(record: Record) -> str:
    """graph, node or molecule."""
    if "task" in record["changed"]:
        return str(record["changed"]["task"])
    try:
        return configs.load(record["dataset"]).task
    except ValueError:
        return "graph"


# ------------------------------------------------------------------------------------------------------------
# Summing up
# ------------------------------------------------------------------------------------------------------------


class Summary(NamedTuple):
    """The results of a group."""

    mean: float
    deviation: float | None
    over: str
    """What the deviation is over: seeds, folds or splits."""
    error: float | None
    """The standard error over the splits (node tasks)."""
    runs: int
    note: str
    """What is missing, or was left out."""
    complete: bool
    epochs: float
    seconds: float
    height: float | None

    def cell(self) -> str:
        deviation = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        over = " over folds" if self.over == "folds" and self.deviation is not None else ""
        return f"{self.mean:.2f}{deviation}{over} ({self.note or self.runs})"


def summary(group: Group) -> Summary:
    """Mean and deviation of a group."""
    word = "splits" if group.task == "node" else "folds"
    seeds: dict[int, list[Record]] = {}
    for record in group.records:
        seeds.setdefault(record["seed"], []).append(record)
    expected = num_folds(group, max(len(runs) for runs in seeds.values()))
    finished = {seed: runs for seed, runs in seeds.items() if len(runs) >= expected}
    used = [record for runs in (finished or seeds).values() for record in runs]
    note = ""
    if not finished:
        note = f"{len(used)} of {expected} {word}"
        if len(seeds) > 1:
            note = f"{len(used)} runs, no seed with all {expected} {word}"
    elif len(used) < len(group.records):
        note = f"{len(used)}; {len(group.records) - len(used)} of unfinished seeds left out"

    if group.task == "node":
        splits: dict[int, list[float]] = {}
        for record in used:
            splits.setdefault(record["fold"], []).append(record["test"])
        over, values = "splits", [statistics.fmean(tests) for tests in splits.values()]
    elif len(finished) > 1 or expected == 1:
        over = "seeds"
        values = [statistics.fmean(run["test"] for run in runs) for runs in finished.values()]
    else:
        over, values = "folds", [record["test"] for record in used]
    deviation = statistics.stdev(values) if len(values) > 1 else None
    heights = [record["height"] for record in used if "height" in record]
    return Summary(
        mean=statistics.fmean(values),
        deviation=deviation,
        over=over,
        error=deviation / math.sqrt(len(values)) if over == "splits" and deviation is not None else None,
        runs=len(used),
        note=note,
        complete=bool(finished),
        epochs=statistics.fmean(record["epochs"] for record in used),
        seconds=statistics.fmean(record["seconds"] for record in used),
        height=statistics.fmean(heights) if heights else None,
    )


def num_folds(group: Group, seen: int) -> int:
    """The number of folds or splits per seed: those that come with the data, else ten. The splits of a user's
    own node task are not known here; the largest number that a seed has is taken."""
    if group.dataset.startswith("ogbg-") or group.dataset in MOLECULES:
        return 1
    return seen if group.task == "node" and group.dataset not in ORDER else NUM_FOLDS


def needed(group: Group, result: Summary, paper: Figure | None) -> float | None:
    """The lowest mean that counts as reaching the paper's figure."""
    if paper is None or isinstance(paper, str):
        return None
    if group.task == "node":
        return None if result.error is None else paper[0] - result.error
    return paper[0] - paper[1]


# ------------------------------------------------------------------------------------------------------------
# Tables
# ------------------------------------------------------------------------------------------------------------


def matrix(
    corner: str,
    members: list[Group],
    row_of: dict[str, str],
    key: str,
    paper: dict[str, dict[str, Figure]],
    estimates: dict[str, dict[str, float]] | None = None,
) -> str:
    """A column per data set and a row per value of ``key``, with the paper's rows below.

    ``row_of`` maps each value to the title of its row, in the order of the rows. ``estimates`` maps value and
    data set to the hours that a cell would take; empty cells show them.
    """
    datasets = list(dict.fromkeys((group.dataset, group.name) for group in members))
    cells = {
        (value, dataset): f"not run: about {hours:g} h"
        for value, of_value in (estimates or {}).items()
        for dataset, hours in of_value.items()
    }
    cells |= {(getattr(group, key), group.dataset): summary(group).cell() for group in members}
    rows = []
    for value, title in row_of.items():
        rows.append([title, *(cells.get((value, dataset), "") for dataset, _ in datasets)])
        figures = [_figure(paper.get(value, {}).get(dataset)) for dataset, _ in datasets]
        if any(figures):
            rows.append([f"{title}, paper", *figures])
    return table([corner, *(name for _, name in datasets)], rows)


def _published_rows(members: list[Group], published: dict[str, dict[str, Figure]]) -> list[str]:
    datasets = list(dict.fromkeys(group.dataset for group in members))
    rows = [[title, *(_figure(of.get(dataset)) for dataset in datasets)] for title, of in published.items()]
    return table([], rows).splitlines()[2:]


def _figure(figure: Figure | None) -> str:
    if figure is None or isinstance(figure, str):
        return figure or ""
    return f"{figure[0]:.2f} ± {figure[1]:.2f}"


COSTS = ("epochs", "seconds a run", "tree height")


def _costs(result: Summary) -> list[str]:
    return [f"{result.epochs:.0f}", f"{result.seconds:.0f}", _number(result.height)]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _reached(group: Group, result: Summary, paper: dict[str, dict[str, Figure]]) -> list[str]:
    """The mean that GPN needs to reach the paper's, and whether it does."""
    limit = needed(group, result, paper.get(group.model, {}).get(group.dataset))
    if group.model != "gpn" or limit is None:
        return ["", ""]
    reached = "yes" if result.mean >= limit - 1e-9 else "no"
    return [_number(limit), reached + ("" if result.complete else ", so far")]


def main_tables(
    members: list[Group],
    paper: dict[str, dict[str, Figure]],
    published: dict[str, dict[str, Figure]],
    estimates: dict[str, dict[str, float]],
) -> list[str]:
    """The paper's table of a task, and notes on every cell."""
    datasets = {group.dataset for group in members}
    wanted = {model for model, of_model in estimates.items() if datasets & set(of_model)}
    found = wanted | {group.model for group in members}
    models = sorted(found, key=lambda model: (position([*NAMES], model), model))
    methods = {model: NAMES.get(model, model) for model in models}
    # By others, on sets that the paper has not: rows without runs of ours.
    others = {title: figures for title, figures in published.items() if datasets & set(figures)}
    rows = []
    node = members[0].task == "node"
    for group in members:
        result = summary(group)
        rows.append(
            [
                group.name,
                NAMES.get(group.model, group.model),
                *([_number(result.error)] if node else []),
                *_reached(group, result, paper),
                *_costs(result),
            ]
        )
    error = ["standard error over the splits"] if node else []
    return [
        matrix("method", members, methods, "model", paper, estimates)
        + "".join(f"\n{line}" for line in _published_rows(members, others)),
        table(["data set", "method", *error, "needed", "reached", *COSTS], rows),
    ]


def kind(group: Group) -> str:
    """The title of :data:`OTHER` to which a group belongs."""
    authors, tuned, others = OTHER
    if group.model != "gpn" or group.stale:
        return others
    changed = group.records[0]["changed"]
    if changed == {"directed_scores": True}:
        return authors
    for name in configs.presets():
        if name.startswith(f"{group.dataset}-"):
            plain, own = configs.load(group.dataset).to_dict(), configs.load(name).to_dict()
            changes = {key: value for key, value in own.items() if value != plain.get(key)}
            if changes.items() <= changed.items():  # Trials went on from there.
                return tuned
    return others


def ablation_table(members: list[Group], original: list[Group], paper: dict[str, Any]) -> str:
    """GPN and its ablations."""
    known = [key for key in paper["ablation"] if any(group.changed == key for group in members)]
    rows = {"": "GPN", **{key: key for key in [*known, *(group.changed for group in members)]}}
    datasets = {group.dataset for group in members}
    both = [group for group in original if group.model == "gpn" and group.dataset in datasets] + members
    both.sort(key=lambda group: position(ORDER, group.dataset))
    figures = {"": paper["methods"]["gpn"], **paper["ablation"]}
    return matrix("settings", both, rows, "changed", figures)


def other_table(members: list[Group], paper: dict[str, dict[str, Figure]] | None = None) -> str:
    """A row for each group with its own settings; with ``paper``, compared with the paper's figures."""
    rows = []
    for group in members:
        result = summary(group)
        changed = f"`{group.changed}`" if group.changed else "none"
        if group.stale:
            changed += f" (another version of the preset, {group.records[0]['digest']})"
        method = NAMES.get(group.model, group.model)
        reached = [] if paper is None else _reached(group, result, paper)
        rows.append([group.name, method, changed, result.cell(), *reached, *_costs(result)])
    reached = [] if paper is None else ["needed", "reached"]
    return table(["data set", "method", "changed settings", "result", *reached, *COSTS], rows)


def runs_table(everything: list[Group]) -> str:
    """A row for every run."""
    keys = ("seed", "fold", "test", "val", "epoch", "epochs", "height", "seconds")
    rows = []
    for group in everything:
        for record in sorted(group.records, key=lambda record: (record["seed"], record["fold"])):
            cells = [record.get(key, "") for key in keys]
            shown = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells]
            rows.append([group.name, NAMES.get(group.model, group.model), group.changed, *shown])
    return table(["data set", "method", "changed settings", *keys], rows)


def commands(everything: list[Group]) -> str:
    """The commands, and the machine that ran them."""
    lines: dict[str, int] = {}
    for group in everything:
        for record in group.records:
            facts = [
                f"commit {record['commit']}" if record.get("commit") else "",
                f"torch {record['torch']}" if "torch" in record else "",
                str(record.get("device", "")),
                f"processes: {record['processes']}" if record.get("processes", 1) > 1 else "",
                f"threads: {record['threads']}" if "threads" in record else "",
            ]
            line = f"`{record.get('command', 'unknown command')}`: {', '.join(filter(None, facts))}"
            lines[line] = lines.get(line, 0) + 1
    return "\n".join(f"- {line}, runs: {count}" for line, count in lines.items())


def sort_out(everything: list[Group]) -> tuple[list[Group], list[Group], dict[str, list[Group]]]:
    """The groups of the presets, the ablations, and the others by their title."""
    plain: list[Group] = []
    ablation: list[Group] = []
    other: dict[str, list[Group]] = {title: [] for title in OTHER}
    for group in everything:
        changed = set(group.records[0]["changed"]) - {"task"}
        if group.stale or (changed and (group.model != "gpn" or not changed & set(ABLATED))):
            other[kind(group)].append(group)
        else:
            (ablation if changed else plain).append(group)
    return plain, ablation, other


def headline(records: list[Record]) -> str:
    """The table of README.md: GPN with the paper's presets, beside the paper's figures."""
    paper = yaml.safe_load(PAPER.read_text())["methods"]
    rows = []
    for group in sort_out(groups(records))[0]:
        figure = _figure(paper["gpn"].get(group.dataset))
        if group.model == "gpn" and figure:
            result = summary(group)
            rows.append([group.name, result.cell(), figure, _reached(group, result, paper)[1]])
    return table(["data set", "here", "paper", "reached"], rows)


START, END = "<!-- accuracy: python -m models.report -->", "<!-- end of accuracy -->"


def readme(text: str, records: list[Record]) -> str:
    """README.md with its table of accuracies updated."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n{headline(records)}\n{END}{after}"


def read_estimates(folder: Path) -> dict[str, dict[str, float]]:
    """Core hours that cells without runs would take, by model and data set, if the folder has them."""
    path = folder / "estimates.yaml"
    return yaml.safe_load(path.read_text()) or {} if path.exists() else {}


def report(
    records: list[Record], with_runs: bool = False, estimates: dict[str, dict[str, float]] | None = None
) -> str:
    """All tables, as Markdown."""
    paper = yaml.safe_load(PAPER.read_text())
    everything = groups(records)
    plain, ablation, other = sort_out(everything)
    sections = []
    for task, title in TITLES.items():
        members = [group for group in plain if group.task == task]
        if members:
            sections += [
                f"## {title}",
                *main_tables(members, paper["methods"], paper["published"], estimates or {}),
            ]
    if ablation:
        sections += ["## Ablation", ablation_table(ablation, plain, paper), other_table(ablation)]
    for title, members in other.items():
        if members:
            words = [OTHER[title]] if OTHER[title] else []
            sections += [f"## {title}", *words, other_table(members, paper["methods"])]
    sections += ["## Commands", commands(everything)]
    if with_runs:
        sections += ["## Runs", runs_table(everything)]
    explanation = (
        "Test results in per cent: mean ± standard deviation (number of runs). The deviation is over seeds "
        "for graph tasks, unless marked, and over splits for node tasks. *Needed* is the paper's mean less "
        "its deviation (graph tasks) or less our standard error over the splits (node tasks)."
    )
    if estimates:
        explanation += " *Not run*: the hours of one core that a first epoch leads to expect."
    return "\n\n".join(["# Results", explanation, *sections]) + "\n"


# ------------------------------------------------------------------------------------------------------------
# The command
# ------------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    manual = argparse.ArgumentParser(
        prog="python -m models.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    manual.add_argument("folder", type=Path, help="the folder that models.train wrote to (its --output)")
    manual.add_argument("--markdown", type=Path, default=None, metavar="FILE", help="also write to this file")
    manual.add_argument(
        "--readme",
        type=Path,
        default=None,
        metavar="FILE",
        help="write accuracies between the marks of this file",
    )
    manual.add_argument("--runs", action="store_true", help="list every run, too")
    return manual


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if not options.folder.is_dir():
        return fail(f"there is no folder {options.folder}", 2)
    return attempt(lambda: _write(options))


def _write(options: argparse.Namespace) -> int:
    records = read(options.folder)
    if not records:
        raise ValueError(
            f"no finished runs in {options.folder}: expected <data set>/<model>/runs.jsonl in it, "
            "as python -m models.train writes them"
        )
    text = report(records, options.runs, read_estimates(options.folder))
    print(text, end="")
    if options.markdown is not None:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        with files.named(options.markdown):
            options.markdown.write_text(text)
    if options.readme is not None:
        with files.named(options.readme):
            old = options.readme.read_text()
            if old.count(START) != 1 or old.count(END) != 1:
                raise ValueError(f"{options.readme}: expected the marks {START} and {END}, each once")
            options.readme.write_text(readme(old, records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
