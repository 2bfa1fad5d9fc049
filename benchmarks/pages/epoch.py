"""Tables and plots of the results of ``benchmarks/epoch.py``."""

from typing import Any

import common

NOTES = """\
Apart from its products, an epoch is memory traffic: normalisation, dropout, activations and message passing
read and write a row of features for a few operations each. This matters more for narrow features, because a
product performs as many operations per number as there are channels: 128 for PROTEINS and 256 for the others.
High levels of the trees are small, and calls dominate their cost."""


def report(content: dict[str, Any]) -> str:
    """The table, in Markdown."""
    rows = [
        [
            result["dataset"],
            f"{result['seconds']:.2f}",
            f"{result['limit']:.2f}",
            f"{result['ratio']:.2f} ({result['lowest_ratio']:.2f} to {result['highest_ratio']:.2f})",
            f"{result['products']:,}",
            f"{result['operations'] / 1e9:,.0f}",
        ]
        for result in content["results"]
    ]
    header = [
        "data set",
        "epoch (s)",
        "its matrix products alone (s)",
        "ratio",
        "products",
        "10^9 operations",
    ]
    return common.table(header, rows)


def highlights(content: dict[str, Any]) -> list[list[str]]:
    """What README.md shows."""
    title = "training epoch" + (" on one thread" if content["machine"]["threads"] == 1 else "")
    names = " / ".join(result["dataset"] for result in content["results"])
    ratios = " / ".join(f"{result['ratio']:.2f}" for result in content["results"])
    return [[f"{title}, {names}: ours / its matrix products alone", ratios]]
