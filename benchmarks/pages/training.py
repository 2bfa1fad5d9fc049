"""Tables and plots of the results of ``benchmarks/training.py``."""

from typing import Any

import common

DATASETS = ("PROTEINS", "NCI1", "DD")
NOTES = """\
Dropout keeps no mask in any of these models, the baselines included. GPN computes anew what its MLPs give
where that is much (`recompute=auto`), and its convolutions keep nothing but their input; those of the
baselines are PyG's, which gather a row of features per edge. TopK and SAG drop half of the nodes at every
level: they do less work, and are faster."""


PEERS = ("TopK", "SAG", "GCN", "EdgePool")


def highlights(content: dict[str, Any]) -> list[list[str]]:
    """What README.md shows."""
    peak = {
        result["method"]: result["training"]
        for result in content["results"]
        if result["share"] == 1 and not isinstance(result["training"], str)
    }
    peers = [peer for peer in PEERS if peer in peak]
    title = f"training step of a GPN, {content['dataset']}: peak memory / that of {', '.join(peers)}"
    return [[title, ", ".join(f"{peak['GPN'] / peak[peer]:.2f}" for peer in peers)]] if peers else []


def mebibytes(peak: int | str | None) -> str:
    return "-" if peak is None else peak if isinstance(peak, str) else f"{peak / 2**20:,.0f}"


def report(content: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    timed = content["seconds"]["training"]
    methods = dict.fromkeys([*(result["method"] for result in content["results"]), *timed])
    grown = curves(content)
    rows = []
    for name in methods:
        at_preset = next(
            (
                result
                for result in content["results"]
                if result["method"] == name
                and (result["share"] == 1 or (result["share"] < 1 and isinstance(result["training"], str)))
            ),
            {},
        )
        cells = [name]
        for what in ("training", "forward"):
            timing = content["seconds"][what].get(name)
            cells += [
                mebibytes(at_preset.get(what)),
                "-" if timing is None else f"{1000 * timing['median']:,.0f}",
            ]
        points = grown.get(name, [])
        rows.append([*cells, f"{common.exponent(points):.2f}" if len(points) > 1 else "-"])
    header = ["model", "step (MiB)", "step (ms)", "forward (MiB)", "forward (ms)", "peak grows as nodes^"]
    parts = [common.table(header, rows)]
    rows = [
        [name, each["runs"], *(f"{each[key]:.1f}" for key in ("accuracy", "epochs", "seconds"))]
        for name, each in content["accuracy"].items()
    ]
    if rows:
        header = ["model", "runs", "accuracy", "epochs to it", "seconds to it"]
        parts += [
            "The committed runs, of earlier commits and timed when they were made: epochs and seconds until "
            "the epoch whose accuracy is reported.",
            common.table(header, rows),
        ]
    return "\n\n".join(parts)


def curves(content: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """(nodes, peak bytes of a training step) of every model."""
    found: dict[str, list[tuple[float, float]]] = {}
    for result in content["results"]:
        if not isinstance(result["training"], str):
            found.setdefault(result["method"], []).append((result["num_nodes"], result["training"]))
    return found


def plots(content: dict[str, Any]) -> dict[str, common.Plot]:
    title = f"Peak memory of a training step, {content['dataset']}"
    return {"": common.Plot(title, "nodes of the batch", "bytes", curves(content), {})}
