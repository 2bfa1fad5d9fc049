"""Tables of the results of ``benchmarks/static.py``."""

from typing import Any

import common

DATASETS = ("PROTEINS", "NCI1")

NOTES = """\
Nodes and edges are padded together, to steps of one eighth, so the one that needs the larger step determines
the padding of a batch. The last batch of an epoch is smaller than the others and has its own size. The static
form also computes on padding and on graphs that have stopped shrinking. Compiling fuses the operations
between the matrix products, and keeps up to 64 MiB per MLP for backward; the dynamic form keeps 4. Two scores
that differ only by rounding may compare differently, so a few graphs can get a different tree, as they can in
another dtype. They are excluded from the comparison of outputs and gradients. On a GPU the static form saves
launches and waits; [a model](cuda.md) says how many."""


def _added(buckets: list[dict[str, Any]], what: str) -> str:
    """In per cent of what there was before."""
    padded = sum(bucket["batches"] * bucket[what] for bucket in buckets)
    return f"{padded / sum(bucket[f'real_{what}'] for bucket in buckets) - 1:.1%}"


def report(content: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    rows, times = [], []
    for result in content["results"]:
        buckets = result["buckets"]
        for bucket in buckets:
            size = f"{bucket['nodes']:,} nodes, {bucket['edges']:,} edges"
            added = [_added([bucket], what) for what in ("nodes", "edges")]
            rows.append([result["dataset"], size, bucket["batches"], *added])
        total = [_added(buckets, what) for what in ("nodes", "edges")]
        rows.append([result["dataset"], "all", sum(bucket["batches"] for bucket in buckets), *total])
        if "seconds" in result:
            seconds = result["seconds"]
            name = f"{result['dataset']}, {result['batch_size']} graphs, {result['hidden']} channels"
            of_each = [f"{1e3 * seconds[form]:.0f}" for form in ("dynamic", "static", "static, compiled")]
            times.append([name, *of_each, f"{seconds['dynamic'] / seconds['static, compiled']:.2f}"])
    header = ["batch", "dynamic (ms)", "static (ms)", "static, compiled (ms)", "dynamic / compiled"]
    parts = ["Forward and backward of a batch:", common.table(header, times)] if times else []
    parts += [
        "Padding, of the batches of ten epochs:",
        common.table(["data set", "padded to", "batches", "nodes added", "edges added"], rows),
    ]
    return "\n\n".join(parts)
