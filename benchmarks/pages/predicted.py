"""Tables of the results of ``benchmarks/predicted.py``."""

from typing import Any

import common

NOTES = (
    "Times measured on a card, beside those that the cost model of [CUDA](cuda.md) predicts for it; "
    "above 1, the card took longer than predicted."
)


def report(content: dict[str, Any]) -> str:
    """A table a form, in Markdown."""
    parts = []
    for form in dict.fromkeys(result["form"] for result in content["results"]):
        rows = []
        for result in content["results"]:
            if result["form"] != form:
                continue
            seconds, predicted = result.get("seconds"), result["predicted"]
            rows.append(
                [
                    result["method"],
                    result["workload"],
                    result.get("outcome") or f"{1e3 * seconds:.3f}",
                    "-" if seconds is None else f"{result['peak_bytes'] / 2**20:,.1f}",
                    "-" if predicted is None else f"{1e3 * predicted:.3f}",
                    "-" if predicted is None or seconds is None else f"{seconds / predicted:.2f}",
                ]
            )
        header = ["method", "workload", "ms", "peak, MiB", "predicted ms", "times the prediction"]
        parts.append(f"{form.capitalize()}, forward and backward:\n\n{common.table(header, rows)}")
    loads = "; ".join(f"({name}) {text}" for name, text in content["workloads"].items())
    return "\n\n".join([*parts, f"Workloads: {loads}."])
