"""Tables and plots of the results of ``benchmarks/coarsen.py``."""

from typing import Any

import common

SPARSE = "sparse"
# method: what it is compared with
PEERS = {
    "coarsen": "coalesce",
    "self-loops": "coalesce, self-loops",
    "weighted": "coalesce, weighted",
}


NOTES = """\
Scratch memory is that of the unweighted form. With attributes, the operator also records the coarse edge of
each edge, in random order, and reduces by it. This bounds the weighted form."""


def sparse(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The results on random graphs. Older ones have no others."""
    return [result for result in content["results"] if result.get("kind", SPARSE) == SPARSE]


def report(content: dict[str, Any]) -> str:
    """The table, in Markdown."""
    rows = []
    names = list(content["results"][0]["seconds"])
    for result in content["results"]:
        median = {name: run["median"] for name, run in result["seconds"].items()}
        rows.append(
            [
                f"{result.get('kind', SPARSE)} {result['num_nodes']:,}",
                *(f"{1e3 * median[name]:.3g}" for name in names),
                *(f"{median[peer] / median[name]:.1f}" for name, peer in PEERS.items()),
                f"{result['scratch_bytes_per_node']:.1f}",
            ]
        )
    ratios = [f"coalesce / {name}" for name in PEERS]
    return common.table(["nodes", *(f"{name} (ms)" for name in names), *ratios, "scratch bytes / node"], rows)


def highlights(content: dict[str, Any]) -> list[list[str]]:
    """What README.md shows."""
    if random := sparse(content):
        shown, graph = random[-1], f"{random[-1]['num_nodes']:,} nodes"
    else:
        shown = content["results"][0]
        graph = f"a real graph with hubs ({common.how(content['machine'])})"
    median = {name: run["median"] for name, run in shown["seconds"].items()}
    title = f"`coarsen`, {graph}: PyG's `coalesce` alone / ours"
    return [[title, f"{median['coalesce'] / median['coarsen']:.1f}"]]


def plots(content: dict[str, Any]) -> dict[str, common.Plot]:
    if not sparse(content):
        return {}  # two graphs of one size: nothing to draw
    machine = content["machine"]
    title = f"Coarsening a sparse graph ({machine['device']}, {machine['threads']} threads)"
    curves = common.medians(sparse(content))
    return {"": common.Plot(title, "nodes (2n undirected edges)", "seconds", curves, {})}
