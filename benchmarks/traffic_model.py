"""Bytes that the CUDA kernels move, step by step, as sums over the sizes of a graph."""

from math import ceil
from typing import NamedTuple

# Peak memory bandwidth in GB/s, as the vendor publishes it.
CARDS = {"RTX 3090": 936, "RTX 4090": 1008, "A100 80GB PCIe": 1935, "A100 80GB SXM": 2039, "H100 SXM": 3350}
SECTOR = 32
SCORE = 4  # bytes of a score or feature: float32


class Size(NamedTuple):
    nodes: int
    edges: int
    clusters: int
    channels: int


class Step(NamedTuple):
    """One kernel, or one call of CUB: the bytes of words read and written once, and of the scattered ones
    among them."""

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


# Half of the nodes choose a larger one; a hook reads two parents and swaps one. Half are roots, and marked.
LABELS = [
    Step("cub::DeviceScan", per_node=4 + 2, launches=2),
    Step("settle_labels", per_node=4 + 4 + 8, scattered_per_node=1),
]


def dominant_steps(start: Step, decode_per_node: float, scattered: float) -> list[Step]:
    return [
        start,
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
        return dominant_steps(Step("fill", per_node=8), 8 + 8, 0)
    if operator == "parse":
        return [
            *dominant_steps(Step("start_nodes", per_node=8 + 4), 8 + 8 + 4 + 4 + 4, 2),
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
            Step("start_counts", per_node=8),
            Step("make_keys", 16 + 8 + 8 + 8, 8 + 8, scattered_per_edge=1, scattered_per_node=1),
            sort_steps(2 * id_bits + 1, 8, 0),
            Step("cub::DeviceScan", per_edge=8 + 8, launches=2),
            Step("copy (counts)"),
            Step("write_distinct", per_edge=8 + 16, per_node=2 * 8 * size.clusters / size.nodes),
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
        row = SCORE * size.channels
        return [Step("pair_dot", per_edge=16 + row + SCORE, per_node=row)]
    raise ValueError(f"operator: expected a known one, got {operator!r}")
