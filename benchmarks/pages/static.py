"""Tables of the results of ``benchmarks/static.py``."""

from typing import Any

import common

DATASETS = ("PROTEINS", "NCI1")

NOTES = """\
Nodes and edges are padded together, to steps of one eighth, so that a batch gets as much padding as the
scarcer of the two needs. The last batch of an epoch is smaller than the others and has a size of its own. The
static form also has the work of the padding and of the graphs that have stopped shrinking; compiling joins
what lies between the matrix products, and keeps up to 64 MiB an MLP for backward where the dynamic form keeps
4. Two scores that rounding alone sets apart may compare differently, so a few graphs can have another tree,
as they can in another dtype; they are left out where outputs and gradients are compared. What a GPU saves by
the static form, launches and waits, is [modelled](cuda.md)."""


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
