"""Tables and plots of the results of ``benchmarks/training.py``."""

from collections.abc import Sequence
from typing import Any

import common

DATASETS = ("PROTEINS", "NCI1", "DD")
NOTES = """\
Dropout stores no mask in any of these models, including the baselines. GPN computes large results of its MLPs
again in backward (`recompute=auto`), and its convolutions keep only their input. The baselines use PyG's
convolutions, which gather a row of features per edge. TopK and SAG drop half of the nodes at every level, so
they do less work and are faster."""


OURS = "GPN"
SUMMARY = """\
A training step of whole models, with the presets on the same batches: peak memory and time of GPN, and both
divided by those of the other models ({how}). **Bold: the other model needs less.** TopK and SAG drop half of
the nodes at every level, and GCN pools once."""


def preset_peaks(content: dict[str, Any], what: str) -> dict[str, int | str]:
    """Bytes of every model with the preset's batch, or why there is no figure: a model that fails with a
    smaller batch is not tried with this one."""
    found: dict[str, int | str] = {}
    for result in content["results"]:
        if result["share"] == 1 or (result["share"] < 1 and isinstance(result[what], str)):
            found[result["method"]] = result[what]
    return found


def summary(contents: Sequence[dict[str, Any]]) -> list[str]:
    """What README.md shows: a line a data set."""
    if not contents:
        return []
    names = dict.fromkeys(
        name
        for content in contents
        for name in preset_peaks(content, "training")
        if not name.startswith(OURS)
    )
    rows = []
    for content in contents:
        peaks = preset_peaks(content, "training")
        seconds = {name: timing["median"] for name, timing in content["seconds"]["training"].items()}
        row = [content["dataset"], f"{mebibytes(peaks[OURS])} MiB, {1000 * seconds[OURS]:,.0f} ms"]
        for name in names:
            peak = peaks.get(name, "-")
            ratios = [peak if isinstance(peak, str) else peaks[OURS] / peak]
            ratios += [seconds[OURS] / seconds[name]] if name in seconds else []
            row.append(", ".join(map(common.cell, ratios)))
        rows.append(row)
    ways = dict.fromkeys(common.how(content["machine"]) for content in contents)
    return [
        SUMMARY.format(how=" or ".join(ways)),
        common.table(["memory, time", OURS, *names], rows),
    ]


def mebibytes(peak: int | str | None) -> str:
    return "-" if peak is None else peak if isinstance(peak, str) else f"{peak / 2**20:,.0f}"


def report(content: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    timed = content["seconds"]["training"]
    methods = dict.fromkeys([*(result["method"] for result in content["results"]), *timed])
    grown = common.curves(content["results"], "training")
    rows = []
    for name in methods:
        cells = [name]
        for what in ("training", "forward"):
            timing = content["seconds"][what].get(name)
            cells += [
                mebibytes(preset_peaks(content, what).get(name)),
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


def plots(content: dict[str, Any]) -> dict[str, common.Plot]:
    title = f"Peak memory of a training step, {content['dataset']}"
    found = (read(content["results"], "training") for read in (common.curves, common.exhausted))
    return {"": common.Plot(title, "nodes of the batch", "bytes", *found)}
