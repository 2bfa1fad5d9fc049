"""Tables and plots of the results of ``benchmarks/memory.py``."""

from typing import Any

import common
from methods import COLUMNS, METHODS

CHANNELS = 128
NOTES = """\
Our layer holds tiles of edges and nodes instead of a row of features per edge, so its peak consists of the
result, the scores and the coarse graph. At 1,000 nodes the tiles themselves are the larger part. The figures
with backward are for `recompute=True`. The present default, "auto", keeps small results: at 1,000 nodes this
makes 8,034 bytes per node in all (measured separately, later). From 10,000 nodes on it keeps nothing.

EdgePooling calls torch for every edge. On the CPU, the record of its calls exceeds the memory beyond 10,000
nodes, so its peak there is unknown.

A complete model has a convolution before the pool, which may take more memory than the pool: PyG's `GCNConv`
gathers a row of features per edge, our `UndirectedGCNConv` does not."""


MEASURE = "Peak memory"


def beside(content: dict[str, Any]) -> dict[str, dict[str, float | str]]:
    """What README.md shows of each peer: a column a size."""
    return {
        f"{content['step']}, n = {size:,}": common.beside(content["results"], "peak", size)
        for size in (1_000, 100_000)
    }


def report(content: dict[str, Any]) -> str:
    """The table, in Markdown."""
    title = f"Peak bytes per node, {content['step']}, {content['channels']} channels:"
    cells = common.comparison(
        content["results"], "peak", METHODS, COLUMNS, lambda peak, n: f"{peak / n:,.0f}"
    )
    words = common.better_and_worse(content["results"], "peak", "Less memory", "More")
    return f"{title}\n\n{cells}\n\n{words}"


def plots(content: dict[str, Any]) -> dict[str, common.Plot]:
    title = f"Peak memory of one pooling step ({content['step']}, {content['machine']['device']})"
    found = (read(content["results"], "peak") for read in (common.curves, common.exhausted))
    return {"": common.Plot(title, "nodes (2n undirected edges)", "bytes", *found)}
