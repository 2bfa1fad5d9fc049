"""The pooling methods to compare, each from its own library and used as a user would.

A method makes its module for a number of channels and of nodes per graph, and is called with (x, edge_index,
batch). Its entry also says what it keeps, learns and needs, because figures alone would compare unlike
methods.
"""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import common  # noqa: F401 (which finds models)
import torch
from torch import Tensor
from torch_geometric.nn import ASAPooling, ClusterPooling, EdgePooling, GCNConv, SAGPooling, TopKPooling
from torch_geometric.nn.aggr import GraphMultisetTransformer
from torch_geometric.utils import to_dense_adj, to_dense_batch

from gpn_ops import reference
from gpn_ops.nn import ParsePooling, UndirectedGCNConv
from models.baselines import DensePool

Call = Callable[[Tensor, Tensor, Tensor], Any]


class WithNetwork(torch.nn.Module):
    """A convolution whose output is pooled, as in a user's model."""

    def __init__(self, conv: torch.nn.Module, pool: torch.nn.Module) -> None:
        super().__init__()
        self.conv, self.pool = conv, pool

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return self.pool(self.conv(x, edge_index).relu_(), edge_index, batch=batch)


class LiteralAlgorithm(torch.nn.Module):
    """The layer as the paper writes it: features gathered to the edges, Algorithm 1 as listed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = ParsePooling(channels)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        scorer, sets = self.pool.select.scorer, self.pool.multiset
        hidden = scorer.norms[0](scorer.lins[0](x[edge_index[0]] * x[edge_index[1]])).relu()
        scores = scorer.lins[1](hidden).sigmoid().squeeze(1)
        cluster = reference.algorithm1(edge_index, scores, x.size(0))
        coarse = reference.coarsen(edge_index, cluster)
        num_clusters = coarse.representative.numel()
        sums = reference.reduce(sets.norm1(x + sets.lins1[0](x)), cluster, num_clusters)
        mask = reference.mask(edge_index, scores, cluster, num_clusters).mask
        return sets.norm2(sums + sets.lins2[0](sums)) * mask[:, None], coarse.edge_index, cluster


class DensePooling(torch.nn.Module):
    """MinCutPool and DiffPool: half as many clusters as a graph has nodes, a dense adjacency matrix."""

    def __init__(self, channels: int, num_nodes: int, pool: str) -> None:
        super().__init__()
        self.pool = DensePool(pool, channels, num_nodes // 2, torch.nn.Linear(channels, num_nodes // 2))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        dense, mask = to_dense_batch(x, batch)
        return self.pool(dense, to_dense_adj(edge_index, batch), mask)


class Multiset(torch.nn.Module):
    """GMT's read-out: attention between all nodes of a graph and its seeds."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = GraphMultisetTransformer(channels, k=10, heads=4)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return self.pool(x, batch)


class InPyGManner(torch.nn.Module):
    """Calls layers as pool(x, edge_index, batch=batch)."""

    def __init__(self, pool: torch.nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return self.pool(x, edge_index, batch=batch)


class InTGPManner(torch.nn.Module):
    """Poolers of torch-geometric-pool, which is imported only here."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__()
        from tgp import poolers

        self.pool = getattr(poolers, name)(**settings)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return self.pool(x=x, adj=edge_index, batch=batch)


@dataclass(frozen=True)
class Method:
    """One way to pool."""

    name: str
    make: Callable[[int, int], torch.nn.Module]
    keeps_all_nodes: bool
    learns_ratio: bool
    dense: bool
    largest: int = 10**9  # nodes; beyond, a point would only ever run out of time
    profiled: int = 10**9  # nodes; beyond, torch's profiler would need more memory than the method
    needs: tuple[str, ...] = ()  # modules of the extra bench-peers

    def properties(self) -> list[str]:
        flags = (self.keeps_all_nodes, self.learns_ratio, self.dense)
        return ["yes" if flag else "no" for flag in flags]

    def missing(self) -> str:
        """Why it cannot be measured here; empty if it can."""
        for module in self.needs:
            try:
                importlib.import_module(module)
            except ImportError as error:
                return (
                    f"{self.name} is left out: {error}. "
                    "In the root of the checkout, install gpn_ops with its extra 'bench-peers': "
                    "pip install --no-build-isolation -e '.[bench-peers]'"
                )
        return ""

    def __reduce__(self) -> tuple[Any, ...]:
        # To a spawned process a method goes by its name: what makes its module cannot be pickled.
        return named, (self.name,)


METHODS = [
    Method("ParsePooling", lambda c, n: InPyGManner(ParsePooling(c)), True, True, False),
    Method(
        "UndirectedGCN + ParsePooling",
        lambda c, n: WithNetwork(UndirectedGCNConv(c, c), ParsePooling(c)),
        True,
        True,
        False,
    ),
    Method(
        "UndirectedGCN + TopKPooling",
        lambda c, n: WithNetwork(UndirectedGCNConv(c, c), TopKPooling(c)),
        False,
        False,
        False,
    ),
    Method(
        "GCN + ParsePooling",
        lambda c, n: WithNetwork(GCNConv(c, c), ParsePooling(c)),
        True,
        True,
        False,
    ),
    Method("Algorithm 1", lambda c, n: LiteralAlgorithm(c), True, True, False, largest=20_000),
    Method("EdgePooling", lambda c, n: InPyGManner(EdgePooling(c)), True, False, False, profiled=10_000),
    Method("ClusterPooling", lambda c, n: InPyGManner(ClusterPooling(c)), True, True, False),
    Method("TopKPooling", lambda c, n: InPyGManner(TopKPooling(c)), False, False, False),
    Method("SAGPooling", lambda c, n: InPyGManner(SAGPooling(c)), False, False, False),
    Method("ASAPooling", lambda c, n: InPyGManner(ASAPooling(c)), False, False, False),
    Method("MinCutPool", lambda c, n: DensePooling(c, n, "mincut"), True, False, True),
    Method("DiffPool", lambda c, n: DensePooling(c, n, "diffpool"), True, False, True),
    Method("GMT", lambda c, n: Multiset(c), True, False, True),
    Method(
        "tgp EdgeContraction",
        lambda c, n: InTGPManner("EdgeContractionPooling", in_channels=c),
        True,
        False,
        False,
        needs=("tgp.poolers",),
    ),
    Method(
        "tgp Graclus",
        lambda c, n: InTGPManner("GraclusPooling"),
        True,
        False,
        False,
        needs=("tgp.poolers", "torch_cluster"),
    ),
    Method(
        "tgp KMIS",
        lambda c, n: InTGPManner("KMISPooling", in_channels=c),
        True,
        False,
        False,
        needs=("tgp.poolers",),
    ),
]
COLUMNS = ["keeps all nodes", "learns the ratio", "dense"]


def outputs(result: Any) -> list[Tensor]:
    """The tensors of a result that carry a gradient, at any depth."""
    if isinstance(result, Tensor):
        return [result] if result.requires_grad else []
    if isinstance(result, tuple | list):
        return [tensor for part in result for tensor in outputs(part)]
    features = getattr(result, "x", None)
    return outputs(features) if isinstance(features, Tensor) else []


def named(name: str) -> Method:
    """The method with this name."""
    return next(method for method in METHODS if method.name == name)


def available() -> list[Method]:
    """The methods that can be measured here; prints which cannot, and why."""
    reasons = {method.name: method.missing() for method in METHODS}
    for reason in filter(None, reasons.values()):
        print(f"!! {reason}", file=sys.stderr)
    return [method for method in METHODS if not reasons[method.name]]
