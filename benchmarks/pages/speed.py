"""Tables and plots of the results of ``benchmarks/speed.py``."""

from typing import Any

import common
from methods import COLUMNS, METHODS

CHANNELS = 128
README_NODES = 400_000  # README.md shows the largest graphs of each kind up to here
NOTES = """\
The columns show how the methods differ. TopKPooling and SAGPooling score nodes, which are fewer than edges,
and drop half of them. Our layer spends most of its time in the matrix products of the edge scorer."""


def kinds_of(content: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(result["kind"] for result in content["results"]))


def report(content: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    parts = []
    for kind in kinds_of(content):
        part = [result for result in content["results"] if result["kind"] == kind]
        title = f"Milliseconds, {content['step']}, {kind}, {content['channels']} channels:"
        cells = common.comparison(
            part, "seconds", METHODS, COLUMNS, lambda seconds, _: f"{1e3 * seconds:,.3g}"
        )
        words = common.better_and_worse(part, "seconds", "Faster", "Slower")
        parts.append(f"{title}\n\n{cells}\n\n{words}")
    return "\n\n".join(parts)


MEASURE = "Time"


def beside(content: dict[str, Any]) -> dict[str, dict[str, float | str]]:
    """What README.md shows of each peer: a column a kind of input."""
    columns = {}
    for kind in kinds_of(content):
        part = [result for result in content["results"] if result["kind"] == kind]
        size = max(result["num_nodes"] for result in part if result["num_nodes"] <= README_NODES)
        columns[f"{content['step']}, {kind}, n = {size:,}"] = common.beside(part, "seconds", size)
    return columns


def plots(content: dict[str, Any]) -> dict[str, common.Plot]:
    found = {}
    for kind in kinds_of(content):
        if kind == common.HUBS:
            continue  # one size: nothing to draw
        part = [result for result in content["results"] if result["kind"] == kind]
        title = f"Time of one pooling step ({kind}, {content['step']}, {content['machine']['device']})"
        figures = (read(part, "seconds") for read in (common.curves, common.exhausted))
        found["_" + kind.replace("'s", "").replace(" ", "_")] = common.Plot(
            title, "nodes a graph", "seconds", *figures
        )
    return found
