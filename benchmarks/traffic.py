"""The bytes that the CUDA kernels have to move, the time that this implies on known cards, and how near a GPU
comes to it.

    python benchmarks/traffic.py --device cuda    # time each operator and compare with the bounds

What a layer launches and costs, without a GPU, is in benchmarks/gpu_model.py.

Traffic has two bounds. Low: every word counts once, as if all accesses to neighbouring words met in a cache.
High: an access to an unpredictable place costs a memory sector of 32 bytes. A time far above that of the high
bound is worth a look with a profiler.
"""

from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

import common
import torch
from torch import Tensor

import gpn_ops

# Peak memory bandwidth in GB/s, as the vendor publishes it.
CARDS = {"RTX 3090": 936, "RTX 4090": 1008, "A100 80GB PCIe": 1935, "A100 80GB SXM": 2039, "H100 SXM": 3350}
DRIVER_NAMES = {"A100-SXM4-80GB": "A100 80GB SXM", "H100 80GB HBM3": "H100 SXM"}  # as torch reports them
SECTOR = 32
SCORE = 4  # bytes of a score or feature: float32


class Size(NamedTuple):
    nodes: int
    edges: int
    clusters: int
    channels: int


class Step(NamedTuple):
    """One kernel, or one call of CUB. Bytes of words read and written once, and the scattered ones among
    them."""

    name: str
    per_edge: float = 0
    per_node: float = 0
    scattered_per_edge: float = 0  # accesses
    scattered_per_node: float = 0
    launches: int = 1

    def low(self, size: Size) -> float:
        return self.per_edge * size.edges + self.per_node * size.nodes

    def high(self, size: Size) -> float:
        """A scattered word of 4 bytes costs a sector."""
        scattered = self.scattered_per_edge * size.edges + self.scattered_per_node * size.nodes
        return self.low(size) + (SECTOR - 4) * scattered


# Half of the nodes choose a larger one; a hook reads two parents and swaps one.
LABELS = [
    Step("flag_roots", per_node=4 + 4),
    Step("cub::DeviceScan", per_node=4 + 4, launches=2),
    Step("mark_roots", per_node=4 + 4 + 2),
    Step("settle_labels", per_node=4 + 4 + 4 + 8, scattered_per_node=1),
]


def dominant_steps(decode_per_node: float, scattered: float) -> list[Step]:
    return [
        Step("fill", per_node=8),
        # A run of equal rows ends in one load and one atomic maximum of 8 bytes.
        Step("raise_packed", per_edge=8 + 8 + SCORE, per_node=8 + 16),
        Step("decode_packed", per_node=decode_per_node, scattered_per_node=scattered),
    ]


def sort_steps(bits: int, key_bytes: int, value_bytes: int) -> Step:
    """CUB's radix sort: eight bits a pass, each item read and written once, after one look at all keys."""
    passes = ceil(bits / 8)
    return Step(
        "cub::DeviceRadixSort",
        per_edge=key_bytes + 2 * passes * (key_bytes + value_bytes),
        launches=2 + passes,
    )


def steps_of(operator: str, size: Size) -> list[Step]:
    """The launches of an operator, in order, for edges sorted by row."""
    if operator == "dominant":
        return dominant_steps(8 + 8, 0)
    if operator == "parse":
        return [
            *dominant_steps(8 + 8 + 8, 1),
            Step("start_from_choices", per_node=8 + 4),
            Step("hook_choices", per_node=8 + 0.5 * 12, scattered_per_node=0.5 * 3),
            *LABELS,
        ]
    if operator == "components":
        return [
            Step("start_alone", per_node=4),
            Step("hook_edges", per_edge=8 + 8 + 4, per_node=8, scattered_per_edge=1, scattered_per_node=1),
            *LABELS,
        ]
    id_bits = max(size.nodes - 1, 1).bit_length()
    if operator == "coarsen":
        return [
            Step("fill (counts)"),
            Step("raise_largest", per_node=8),
            Step("make_keys", per_edge=16 + 8 + 8 + 8, scattered_per_edge=1),
            sort_steps(2 * id_bits + 1, 8, 0),
            Step("flag_first", per_edge=8 + 8),
            Step("cub::DeviceScan", per_edge=8 + 8, launches=2),
            Step("finish_counts"),
            Step("write_distinct", per_edge=8 + 8 + 16),
            Step("smallest_nodes", per_node=8 + 8, scattered_per_node=1, launches=3),
        ]
    if operator == "mask":
        cluster_bits = size.clusters.bit_length()
        return [
            Step("own_edges", per_edge=16 + 8 + 8 + 4 + 4, scattered_per_edge=1),
            sort_steps(cluster_bits, 4, 4),
            Step("fill", per_node=(SCORE + 8) * size.clusters / size.nodes, launches=2),
            Step("sum_runs", per_edge=4 + 4 + SCORE, scattered_per_edge=1),
        ]
    if operator == "reduce":
        cluster_bits = size.clusters.bit_length()
        sort = sort_steps(cluster_bits, 4, 4)
        row = SCORE * size.channels
        return [
            Step("own_rows", per_node=8 + 4 + 4),
            Step(sort.name, per_node=sort.per_edge, launches=sort.launches),
            Step("fill", per_node=row * size.clusters / size.nodes),
            Step("sum_runs", per_node=4 + 4 + row + row * size.clusters / size.nodes),
        ]
    if operator == "pair_dot":
        return [Step("pair_dot", per_edge=16 + 2 * SCORE * size.channels + SCORE)]
    raise ValueError(f"operator: expected a known one, got {operator!r}")


OPERATORS = ("dominant", "parse", "components", "coarsen", "mask", "reduce", "pair_dot")

DOCUMENTED = Size(nodes=1_000_000, edges=10_000_000, clusters=400_000, channels=64)


def calls(size: Size, device: torch.device) -> tuple[Size, dict[str, Callable[[], object]]]:
    """The operators on a random graph of about this size; the sizes that came out."""
    edge_index, scores = (part.to(device) for part in common.random_graph(size.nodes, size.edges // 2))
    cluster = gpn_ops.parse(edge_index, scores, size.nodes)
    clusters = int(cluster.max()) + 1
    x = torch.randn(size.nodes, size.channels, device=device)
    weight = torch.randn(size.channels, device=device)
    pairs: Tensor = edge_index
    return Size(size.nodes, edge_index.size(1), clusters, size.channels), {
        "dominant": lambda: gpn_ops.dominant(edge_index, scores, size.nodes),
        "parse": lambda: gpn_ops.parse(edge_index, scores, size.nodes),
        "components": lambda: gpn_ops.components(edge_index, size.nodes),
        "coarsen": lambda: gpn_ops.coarsen(edge_index, cluster),
        "mask": lambda: gpn_ops.mask(edge_index, scores, cluster, clusters),
        "reduce": lambda: gpn_ops.reduce(x, cluster, clusters),
        "pair_dot": lambda: gpn_ops.pair_dot(x, weight, pairs),
    }


def peak_bandwidth(name: str) -> float | None:
    """GB/s of a card by the name that torch reports, if it is a known one."""
    names = {card: card for card in CARDS} | DRIVER_NAMES
    return next((CARDS[card] for reported, card in names.items() if reported in name), None)


def measure(size: Size, device: torch.device, bandwidth: float | None) -> dict[str, Any]:
    """Seconds of every operator, and the bytes that the prediction says it moves."""
    size, functions = calls(size, device)
    results = []
    for operator, timing in common.timed(functions, device).items():
        steps = steps_of(operator, size)
        low, high = (sum(getattr(step, bound)(size) for step in steps) for bound in ("low", "high"))
        results.append({"operator": operator, "seconds": timing.median, "low": low, "high": high})
    return {"size": size._asdict(), "bandwidth": bandwidth, "results": results}


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


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument(
        "--bandwidth", type=float, help="peak GB/s of this device (default: that of a known card)"
    )
    options = parser.parse_args()
    device = common.prepare(options)
    bandwidth = options.bandwidth
    if bandwidth is None and device.type != "cpu":
        bandwidth = peak_bandwidth(common.card(device)["name"])
    size = DOCUMENTED if not options.quick else Size(10_000, 100_000, 4_000, 16)
    content = measure(size, device, bandwidth)
    print(report(content))
    common.save(options.output / f"traffic_{device.type}.json", device, **content)


if __name__ == "__main__":
    main()
