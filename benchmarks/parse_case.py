"""One graph to parse: the operator, its peers and the limit, compared with each other and timed."""

from collections.abc import Callable

import common
import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

import gpn_ops
from gpn_ops import reference

ALGORITHM1_NODES = 1_000


REFERENCE_NODES = 1_000_000


def numpy_and_scipy(row: np.ndarray, col: np.ndarray, scores: np.ndarray, num_nodes: int) -> np.ndarray:
    """The code that a user would write without this operator: the components, numbered by scipy."""
    start = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    highest = np.maximum.reduceat(scores, start)
    reaches = np.flatnonzero(scores == np.repeat(highest, np.diff(np.r_[start, row.size])))
    first = reaches[np.r_[True, row[reaches[1:]] != row[reaches[:-1]]]]
    chosen = coo_array((np.ones(first.size, np.int8), (row[first], col[first])), shape=(num_nodes, num_nodes))
    return connected_components(chosen, directed=False)[1]


def scipy_components(row: np.ndarray, col: np.ndarray, num_nodes: int) -> np.ndarray:
    """The components of all edges. Converting them to scipy's format counts."""
    edges = coo_array((np.ones(row.size, np.int8), (row, col)), shape=(num_nodes, num_nodes))
    return connected_components(edges, directed=False)[1]


def same_partition(cluster: Tensor, label: np.ndarray) -> bool:
    """Whether scipy's numbers name the same clusters."""
    _, first = np.unique(label, return_index=True)
    return bool((cluster.cpu().numpy()[first][label] == cluster.cpu().numpy()).all())


class Case:
    """One graph and every method on it."""

    def __init__(self, edge_index: Tensor, scores: Tensor, num_nodes: int, device: torch.device):
        self.num_nodes, self.device = num_nodes, device
        self.edge_index, self.scores = edge_index.to(device), scores.to(device)
        self.num_edges = scores.numel()
        random = torch.Generator().manual_seed(1)
        order = torch.randperm(self.num_edges, generator=random).to(device)
        self.shuffled_index = self.edge_index[:, order].contiguous()
        self.shuffled_scores = self.scores[order].contiguous()
        self.table = torch.arange(num_nodes, device=device)
        self.places = torch.randperm(num_nodes, generator=random).to(device)
        self.gathered = torch.empty_like(self.table)

    def limit(self) -> None:
        self.edge_index.amax(), self.scores.amax()
        torch.index_select(self.table, 0, self.places, out=self.gathered)

    def methods(self) -> dict[str, Callable[[], object]]:
        n = self.num_nodes
        methods: dict[str, Callable[[], object]] = {
            "limit": self.limit,
            "parse": lambda: gpn_ops.parse(self.edge_index, self.scores, n),
            "unsorted": lambda: gpn_ops.parse(self.shuffled_index, self.shuffled_scores, n),
            "components": lambda: gpn_ops.components(self.edge_index, n),
        }
        if self.device.type == "cpu":
            row, col, scores = self.edge_index[0].numpy(), self.edge_index[1].numpy(), self.scores.numpy()
            methods["numpy + scipy"] = lambda: numpy_and_scipy(row, col, scores, n)
            methods["components, scipy"] = lambda: scipy_components(row, col, n)
        if n <= REFERENCE_NODES:
            methods["reference"] = lambda: reference.parse(self.edge_index, self.scores, n)
        if n <= ALGORITHM1_NODES:
            methods["algorithm 1"] = lambda: reference.algorithm1(self.edge_index, self.scores, n)
        return methods

    def validate(self) -> None:
        methods = self.methods()
        cluster = methods["parse"]()
        assert torch.equal(methods["unsorted"](), cluster)
        for name in ("reference", "algorithm 1"):
            assert name not in methods or torch.equal(methods[name](), cluster), name
        if "numpy + scipy" in methods:
            assert same_partition(cluster, methods["numpy + scipy"]())
            assert same_partition(methods["components"](), methods["components, scipy"]())

    def measure(self) -> dict[str, object]:
        self.validate()
        runs = common.timed(self.methods(), self.device, seconds=1.0 if self.num_nodes < 5_000_000 else 4.0)
        scratch = common.peak_bytes(self.methods()["parse"], self.device) - 8 * self.num_nodes
        return {
            "num_nodes": self.num_nodes,
            "num_edges": self.num_edges,
            "seconds": {name: run._asdict() for name, run in runs.items()},
            "scratch_bytes_per_node": scratch / self.num_nodes,
        }
