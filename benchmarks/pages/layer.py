"""Tables and plots of the results of ``benchmarks/layer.py``."""

from typing import Any

import common

DENSE = "10 dense graphs"
NOT_LAYERS = ("bare products", "Algorithm 1")
NOTES = """\
The parts are timed separately, each on the results of those before it. `score` contains the matrix products,
and also products of features, a LayerNorm and a ReLU for every undirected edge. On small graphs the number of
calls determines the time, not their work. TopKPooling and SAGPooling score nodes; even at n = 100 there are
ten times fewer nodes than edges."""


def report(content: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    results = content["results"]
    layers, parts = list(results[0]["seconds"]), list(results[0]["parts"])
    rows, part_rows = [], []
    for result in results:
        seconds = result["seconds"]
        shown = [f"{1e3 * seconds[name]:,.3g}" if name in seconds else "-" for name in layers]
        ratio = seconds["ParsePooling"] / seconds["bare products"]
        name = f"{result.get('kind', DENSE)}, n = {result['num_nodes']:,}"
        rows.append([name, *shown, f"{ratio:.2f}"])
        part_rows.append([name, *(f"{1e3 * result['parts'][name]:,.3g}" for name in parts)])
    table = common.table(["", *(f"{name} (ms)" for name in layers), "ParsePooling / bare products"], rows)
    points = [
        {
            "kind": result.get("kind", DENSE),
            "method": name,
            "num_nodes": result["num_nodes"],
            "seconds": seconds,
        }
        for result in results
        for name, seconds in result["seconds"].items()
        if name not in NOT_LAYERS
    ]
    for kind in dict.fromkeys(point["kind"] for point in points):
        part = [point for point in points if point["kind"] == kind]
        table += f"\n\n{kind[0].upper() + kind[1:]}:\n\n" + common.better_and_worse(
            part, "seconds", "Faster", "Slower"
        )
    return f"{table}\n\nThe layer's parts:\n\n" + common.table(
        ["", *(f"{name} (ms)" for name in parts)], part_rows
    )


def highlights(content: dict[str, Any]) -> list[list[str]]:
    """What README.md shows."""
    dense = [result for result in content["results"] if result.get("kind", DENSE) == DENSE]
    shown = dense[:1] + dense[1:][-1:]
    if not shown:
        return []
    nodes = " / ".join(str(result["num_nodes"]) for result in shown)
    ratios = (
        f"{result['seconds']['ParsePooling'] / result['seconds']['bare products']:.2f}" for result in shown
    )
    title = (
        f"`ParsePooling`, 10 dense graphs of {nodes} nodes: ours / bare matrix products of its edge scorer"
    )
    return [[title, " / ".join(ratios)]]
