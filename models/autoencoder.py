"""A graph auto-encoder around one pooling layer: how much of the node features does pooling preserve?"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_dense_adj

from gpn_ops.nn import ParsePooling

from .baselines import DENSE, DensePool, sparse_pool

DROPPING = ("topk", "sag", "asap")
HELD = "gpn-held"
POOLS: tuple[str, ...] = ("gpn", HELD, *DROPPING, *DENSE)


class Pooled(NamedTuple):
    """A pooled graph, and the way back."""

    x: Tensor
    """``[c, d]``: the features of the nodes left."""
    unpool: Callable[[Tensor], Tensor]
    """Features of the nodes left to features of all nodes."""
    extra_loss: Tensor | float = 0.0


class Reconstruction(NamedTuple):
    """What :class:`AutoEncoder` returns."""

    x: Tensor
    """``[n, in_channels]``: the features again."""
    num_kept: int
    """The number of nodes after pooling."""
    extra_loss: Tensor | float
    """Added to the loss."""


class AutoEncoder(nn.Module):
    """Two convolutions, pooling, un-pooling, two convolutions, Linear, on a single graph.

    Only the features of the pooled nodes, and how to un-pool them, pass from the first half to the second.
    The convolutions are those of the MinCutPool paper's auto-encoder.

    Args:
        num_nodes: The number of nodes of the graph.
        pool: One of :data:`POOLS`.
        channels: Size of each node's features.
        hidden: Size of all hidden features.
        ratio: The share of the nodes to keep. Parsing has no such setting.
    """

    def __init__(
        self, num_nodes: int, *, pool: str = "gpn", channels: int = 2, hidden: int = 64, ratio: float = 0.3
    ) -> None:
        super().__init__()
        self.before = nn.ModuleList([Convolution(channels, hidden), Convolution(hidden, hidden)])
        self.pool = pooling(pool, hidden, num_nodes, ratio)
        self.after = nn.ModuleList([Convolution(hidden, hidden), Convolution(hidden, hidden)])
        self.head = nn.Linear(hidden, channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Reconstruction:
        for conv in self.before:
            x = conv(x, edge_index)
        pooled = self.pool(x, edge_index)
        x = pooled.unpool(pooled.x)
        for conv in self.after:
            x = conv(x, edge_index)
        return Reconstruction(self.head(x), pooled.x.size(0), pooled.extra_loss)


class Convolution(nn.Module):
    """tanh of a linear function of the node plus one of the normalised sum of its neighbours."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.node = nn.Linear(in_channels, out_channels)
        self.neighbours = GCNConv(in_channels, out_channels, add_self_loops=False, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return (self.node(x) + self.neighbours(x, edge_index)).tanh()


def pooling(pool: str, channels: int, num_nodes: int, ratio: float) -> nn.Module:
    """A pooling layer by name. It is called as ``layer(x, edge_index)`` and returns :class:`Pooled`."""
    if pool not in POOLS:
        raise ValueError(f"pool: expected one of {', '.join(POOLS)}, got {pool!r}")
    if not 0 < ratio < 1:
        raise ValueError(f"ratio: expected a number between 0 and 1, got {ratio}")
    if pool in ("gpn", HELD):
        return Parsing(channels, held=pool == HELD)
    if pool in DROPPING:
        return Dropping(sparse_pool(pool, channels, ratio))
    return Mixing(DensePool(pool, channels, math.ceil(ratio * num_nodes)))


class Parsing(nn.Module):
    """Parses; every node gets back the features of its cluster, divided by the number of the cluster's inner
    edges, because the mask is a sum over them.

    If features are positions, scores hardly change from one edge to the next, and a cluster contains all
    nodes that lead to the same maximum of the scores: a ring would parse into two halves. Dropout in the
    scorer roughens the scores, so a third of a ring is kept and two sevenths of a grid. Evaluation has no
    dropout.

    Args:
        channels: Size of each node's features.
        dropout: Dropout probability in the scorer.
        held: Whether the dropout mask is drawn once and stays the same in every pass.
    """

    def __init__(self, channels: int, dropout: float = 0.1, held: bool = False) -> None:
        super().__init__()
        self.layer = ParsePooling(channels, dropout=dropout)
        self.draw = int(torch.randint(2**31, ())) if held else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Pooled:
        with torch.random.fork_rng(enabled=self.draw is not None):
            if self.draw is not None:
                torch.manual_seed(self.draw)
            out = self.layer(x, edge_index, record=True)
        inner_edges = out.inner_edges.unsqueeze(1).to(x.dtype)
        return Pooled(out.x, lambda z: self.layer.unpool(z / inner_edges, out.cluster))


class Dropping(nn.Module):
    """Keeps some nodes; un-pooling gives zeros to the dropped ones, as in Graph U-Nets.

    ASAP is also of this kind: PyG's layer returns the nodes that represent the clusters, not their members.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Pooled:
        pooled, _, _, _, kept, *_ = self.layer(x, edge_index)
        return Pooled(pooled, lambda z: z.new_zeros(x.size(0), z.size(1)).index_copy(0, kept, z))


class Mixing(nn.Module):
    """Assigns all nodes softly to clusters; un-pooling gives every node the same mixture of its clusters."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, edge_index: Tensor) -> Pooled:
        adj = to_dense_adj(edge_index, torch.zeros(x.size(0), dtype=torch.int64, device=x.device))
        out = self.layer(x.unsqueeze(0), adj.to(x.dtype))
        return Pooled(out.x.squeeze(0), lambda z: out.logits.squeeze(0).softmax(dim=-1) @ z, out.extra_loss)
