"""Tables and plots of the results of ``benchmarks/traffic.py``."""

from typing import Any

import common


def report(content: dict[str, Any]) -> str:
    """The table, in Markdown: what was measured beside what was predicted."""
    bandwidth = content["bandwidth"]
    rows = []
    for result in content["results"]:
        seconds = result["seconds"]
        predicted = result["high"] / (bandwidth * 1e9) if bandwidth else None
        rows.append(
            [
                f"`{result['operator']}`",
                f"{seconds * 1e3:.3f}",
                f"{result['low'] / seconds / 1e9:.0f}",
                f"{predicted * 1e3:.3f}" if predicted else "-",
                f"{seconds / predicted:.2f}" if predicted else "-",
            ]
        )
    header = ["operator", "ms", "GB/s at the low bound", "predicted ms (high bound)", "times the prediction"]
    return common.table(header, rows)
