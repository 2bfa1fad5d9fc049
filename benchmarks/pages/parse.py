"""Tables and plots of the results of ``benchmarks/parse.py``."""

import itertools
from typing import Any

import common

NOTES = """\
- On sparse graphs, the time above the limit is spent on random accesses beyond the first: joining a node to
  its choice and looking up its label take one each, a quarter of the nodes need a compare-and-swap, and the
  accesses of one thread hit cache lines that the other has just written. On one thread, the sweep over the
  edges takes two fifths of the time; it is bound by its chain of comparisons, not by memory.
- Unsorted edges cost one random access per edge instead of one per node. With several threads they also cost
  two locked operations per node, which prevent the processor from overlapping other accesses.
- Small graphs are bound by the call, which takes about 20 microseconds through torch's dispatcher."""

BUSY = """\
Work is divided into several pieces per thread, and each thread takes the next piece when it is free. Waiting
remains at the end of each of the six steps: a thread that the other process has displaced must run again
before the step can end, and schedulers switch every few milliseconds."""


def highlights(content: dict[str, Any]) -> list[list[str]]:
    """What README.md shows."""
    at = {(result["kind"], result["num_nodes"]): result for result in content["results"]}
    median = {
        key: {name: run["median"] for name, run in value["seconds"].items()} for key, value in at.items()
    }
    for (kind, _), seconds in median.items():
        if kind == common.HUBS and "numpy + scipy" in seconds:
            title = (
                f"`parse`, a real graph with hubs ({common.how(content['machine'])}): numpy + scipy / ours"
            )
            return [[title, times(seconds, "numpy + scipy", "parse")]]
    sparse = median["sparse", 1_000_000]
    graph = "10^6 nodes, 4 * 10^6 edges"
    if busy := content.get("busy"):
        graph += f", while {busy} other process is busy"
    return [[f"`parse`, {graph}: numpy + scipy / ours", times(sparse, "numpy + scipy", "parse")]]


def times(median: dict[str, float], peer: str, ours: str) -> str:
    """How many times as long the peer takes."""
    return f"{median[peer] / median[ours]:.1f}" if peer in median and ours in median else "-"


def report(content: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    results = content["results"]
    names = list(dict.fromkeys(itertools.chain.from_iterable(result["seconds"] for result in results)))
    rows = []
    for result in results:
        median = {name: run["median"] for name, run in result["seconds"].items()}
        rows.append(
            [
                f"{result['kind']} {result['num_nodes']:,}",
                *(f"{1e3 * median[name]:.3g}" if name in median else "-" for name in names),
                f"{median['parse'] / median['limit']:.2f}",
                f"{median['unsorted'] / median['parse']:.2f}",
                times(median, "numpy + scipy", "parse"),
                *([times(median, "components, scipy", "components")] if "components, scipy" in names else []),
                f"{result['scratch_bytes_per_node']:.1f}",
            ]
        )
    ratios = ["parse / limit", "unsorted / parse", "numpy + scipy / parse"]
    ratios += ["scipy / components"] if "components, scipy" in names else []
    text = common.table(["nodes", *(f"{name} (ms)" for name in names), *ratios, "scratch bytes / node"], rows)
    if counted := content.get("instructions_per_edge"):
        rows = [[f"{int(size):,}", f"{count:.1f}"] for size, count in counted.items()]
        text += "\n\n" + common.table(["nodes", "instructions per edge, one thread"], rows)
    return text


def plots(content: dict[str, Any]) -> dict[str, common.Plot]:
    machine = content["machine"]
    title = f"Parsing a sparse graph ({machine['device']}, {machine['threads']} threads)"
    sparse = [result for result in content["results"] if result["kind"] == "sparse"]
    if not sparse:
        return {}  # two graphs of one size: nothing to draw
    return {"": common.Plot(title, "nodes (2n undirected edges)", "seconds", common.medians(sparse), {})}
