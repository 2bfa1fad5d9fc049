"""Tables of the results of ``benchmarks/distributed.py``."""

from typing import Any

import common


def rank_table(results: list[dict[str, Any]]) -> str:
    """Time, CPU time and bytes by nodes and ranks, beside the fewest ranks."""
    fewest = min(result["ranks"] for result in results)
    alone = {result["num_nodes"]: result for result in results if result["ranks"] == fewest}

    def milliseconds(call: dict[str, float]) -> str:
        return f"{1e3 * call['seconds']:.1f} ms"

    rows = []
    for result in results:
        parse, coarsen, base = result["parse"], result["coarsen"], alone[result["num_nodes"]]
        ring = 2 * (result["ranks"] - 1) / result["ranks"] * parse["payload_bytes_per_node"]
        rows.append(
            [
                f"{result['num_nodes']:,}",
                result["ranks"],
                milliseconds(parse),
                f"{parse['seconds'] / base['parse']['seconds']:.2f}",
                f"{parse['cpu_seconds'] / base['parse']['cpu_seconds']:.2f}",
                f"{parse['payload_bytes_per_node']:.2f}",
                f"{parse['wire_bytes_per_node']:.1f} ({ring:.1f})",
                milliseconds(coarsen),
                f"{coarsen['seconds'] / base['coarsen']['seconds']:.2f}",
                f"{coarsen['wire_bytes_per_node']:.1f}",
            ]
        )
    first = f"{fewest} rank" + "s" * (fewest > 1)
    header = [
        "nodes",
        "ranks",
        "parse",
        f"/ {first}",
        f"cpu / {first}",
        "payload B/node",
        "wire B/node (ring)",
    ]
    return common.table([*header, "coarsen", f"/ {first}", "wire B/node"], rows)
