"""Other pooling methods for graph classification, built from the layers of PyTorch Geometric."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    ASAPooling,
    DenseGCNConv,
    EdgePooling,
    GCNConv,
    GINConv,
    GraphMultisetTransformer,
    MeanAggregation,
    SAGPooling,
    SumAggregation,
    TopKPooling,
    dense_diff_pool,
    dense_mincut_pool,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.utils import remove_self_loops, to_dense_adj, to_dense_batch

from gpn_ops.nn import Dropout

from .blocks import MLP
from .gpn import Prediction
from .molecules import MoleculeEncoder

SPARSE = ("topk", "sag", "asap", "edgepool")
DENSE = ("mincut", "diffpool")
FLAT = ("gcn", "gin", "gmt")
BASELINES: tuple[str, ...] = (*SPARSE, *DENSE, *FLAT)
MOLECULE_BASELINES = ("gcn", "gin")


class GraphBaseline(nn.Module):
    """Linear, levels of convolution and pooling, output MLP.

    Every level convolves, pools, and reads out the pooled graph. The sum of all read-outs is the vector of
    the graph. Methods that keep or contract nodes read out mean and maximum, the dense ones the mean.
    ``gcn``, ``gin`` and ``gmt`` convolve ``num_levels`` times and pool once, all nodes into the vector of the
    graph.

    Args:
        in_channels: Size of each node's features.
        out_channels: The number of classes.
        pool: One of :data:`BASELINES`.
        hidden: Size of all hidden features.
        num_levels: The number of levels.
        ratio: The share of nodes that a level keeps. Edge contraction has no such setting.
        dropout: Dropout probability after every convolution and in the output MLP.
        max_nodes: A typical number of nodes, such as the average of the data set. The dense methods and
            ``gmt`` have parameters for each of ``ratio * max_nodes`` clusters, whatever the size of the
            graph. For the dense ones, each further level has ``ratio`` times as many clusters, at least 2.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        pool: str = "topk",
        hidden: int = 128,
        num_levels: int = 3,
        ratio: float = 0.5,
        dropout: float = 0.1,
        max_nodes: int = 100,
    ) -> None:
        super().__init__()
        if pool not in BASELINES:
            raise ValueError(f"pool: expected one of {', '.join(BASELINES)}, got {pool!r}")
        if num_levels < 1:
            raise ValueError(f"num_levels: expected at least 1, got {num_levels}")
        if not 0 < ratio < 1:
            raise ValueError(f"ratio: expected a number between 0 and 1, got {ratio}")
        if max_nodes < 1:
            raise ValueError(f"max_nodes: expected at least 1, got {max_nodes}")
        self.num_levels = 0 if pool in FLAT else num_levels
        self.encoder = nn.Linear(in_channels, hidden)
        self.levels: nn.Module
        if pool in SPARSE:
            self.levels = SparseLevels(hidden, pool, num_levels, ratio, dropout)
        elif pool in DENSE:
            self.levels = DenseLevels(hidden, pool, clusters(max_nodes, ratio, num_levels), dropout)
        else:
            self.levels = FlatLevels(hidden, pool, num_levels, math.ceil(ratio * max_nodes), dropout)
        self.head = MLP(2 * hidden if pool in SPARSE else hidden, hidden, out_channels, 2, dropout)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Prediction:
        """``batch`` must be sorted. No method uses ``edge_attr``."""
        if batch is None:
            batch = torch.zeros(x.size(0), dtype=torch.int64, device=x.device)
        # Graphs without nodes stay out: attention and the auxiliary losses would divide by zero.
        present, batch = batch.unique_consecutive(return_inverse=True)
        if batch_size is None:
            batch_size = int(present[-1]) + 1 if present.numel() > 0 else 1
        out = x.new_zeros(batch_size, self.head[0].in_features)
        extra_loss: Tensor | float = 0.0
        if present.numel() > 0:
            vectors, extra_loss = self.levels(self.encoder(x), edge_index, batch)
            out = out.index_copy(0, present, vectors)
        height = torch.full((batch_size,), self.num_levels, device=x.device) if self.num_levels > 0 else None
        return Prediction(self.head(out), height, extra_loss)


# ------------------------------------------------------------------------------------------------------------
# Methods that keep nodes (topk, sag, asap) or contract edges (edgepool)
# ------------------------------------------------------------------------------------------------------------


class SparseLevels(nn.Module):
    """Levels on edge lists."""

    def __init__(self, channels: int, pool: str, num_levels: int, ratio: float, dropout: float) -> None:
        super().__init__()
        self.pool = pool
        self.convs = nn.ModuleList(GCNConv(channels, channels) for _ in range(num_levels))
        self.pools = nn.ModuleList(sparse_pool(pool, channels, ratio) for _ in range(num_levels))
        self.dropout = Dropout(dropout, relu=True)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, float]:
        num_graphs = int(batch[-1]) + 1
        out = x.new_zeros(num_graphs, 2 * x.size(1))
        for conv, pool in zip(self.convs, self.pools, strict=True):
            x = self.dropout(conv(x, edge_index))
            if self.pool == "edgepool":
                # A contracted edge is a self-loop of the next level, where a node would contract with itself.
                x, edge_index, batch, _ = pool(x, remove_self_loops(edge_index)[0], batch)
            else:
                x, edge_index, _, batch, *_ = pool(x, edge_index, batch=batch)
            mean, largest = (read(x, batch, num_graphs) for read in (global_mean_pool, global_max_pool))
            out = out + torch.cat([mean, largest], dim=1)
        return out, 0.0


def sparse_pool(pool: str, channels: int, ratio: float) -> nn.Module:
    """One of PyG's pooling layers, by the name that it has here."""
    if pool == "edgepool":
        return EdgePooling(channels)
    return {"topk": TopKPooling, "sag": SAGPooling, "asap": ASAPooling}[pool](channels, ratio)


# ------------------------------------------------------------------------------------------------------------
# Methods that mix all nodes into a fixed number of clusters
# ------------------------------------------------------------------------------------------------------------


class DensePooled(NamedTuple):
    """What the dense methods return, for ``b`` graphs of up to ``n`` nodes and ``k`` clusters."""

    x: Tensor
    """``[b, k, d]``: the features of the clusters."""
    adj: Tensor
    """``[b, k, k]``: the weights between clusters."""
    logits: Tensor
    """``[b, n, k]``: their softmax over the last dimension is how much of a node belongs to a cluster."""
    extra_loss: Tensor
    """The auxiliary losses."""


class DensePool(nn.Module):
    """MinCut pooling, assigned by a linear layer, or DiffPool, assigned by a graph convolution.

    Args:
        pool: One of :data:`DENSE`.
        channels: Size of each node's features.
        num_clusters: The number of clusters.
        assign: A function for the assignment instead of these, called as ``assign(x)``.

    MinCut's loss divides by the weight of all edges, so a graph without edges needs :func:`with_self_loops`.
    """

    def __init__(self, pool: str, channels: int, num_clusters: int, assign: nn.Module | None = None) -> None:
        super().__init__()
        self.pool = pool
        if assign is None:
            layer = {"mincut": nn.Linear, "diffpool": DenseGCNConv}[pool]
            assign = layer(channels, num_clusters)
        self.assign = assign

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor | None = None) -> DensePooled:
        by_graph = isinstance(self.assign, DenseGCNConv)
        logits = self.assign(x, adj, mask) if by_graph else self.assign(x)
        function = {"mincut": dense_mincut_pool, "diffpool": dense_diff_pool}[self.pool]
        x, adj, first_loss, second_loss = function(x, adj, logits, mask)
        return DensePooled(x, adj, logits, first_loss + second_loss)


def with_self_loops(adj: Tensor) -> Tensor:
    """Adds self-loops to graphs without edges."""
    edgeless = (adj.sum(dim=(1, 2), keepdim=True) == 0).to(adj.dtype)
    return adj + edgeless * torch.eye(adj.size(1), dtype=adj.dtype, device=adj.device)


def clusters(max_nodes: int, ratio: float, num_levels: int) -> list[int]:
    """The number of clusters of every level."""
    sizes = []
    for _ in range(num_levels):
        # A single cluster has no edges, and MinCut divides by the weight of those between clusters.
        max_nodes = max(math.ceil(ratio * max_nodes), 2)
        sizes.append(max_nodes)
    return sizes


class DenseLevels(nn.Module):
    """Levels on dense adjacency matrices, padded to the largest graph of the batch."""

    def __init__(self, channels: int, pool: str, num_clusters: list[int], dropout: float) -> None:
        super().__init__()
        self.convs = nn.ModuleList(DenseGCNConv(channels, channels) for _ in num_clusters)
        self.pools = nn.ModuleList(DensePool(pool, channels, size) for size in num_clusters)
        self.dropout = Dropout(dropout, relu=True)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        x, mask = to_dense_batch(x, batch)
        adj = to_dense_adj(edge_index, batch, max_num_nodes=x.size(1)).to(x.dtype)
        out, extra_loss = x.new_zeros(x.size(0), x.size(2)), x.new_zeros(())
        for conv, pool in zip(self.convs, self.pools, strict=True):
            x = self.dropout(conv(x, adj, mask))
            x, adj, _, loss = pool(x, with_self_loops(adj) if pool.pool == "mincut" else adj, mask)
            mask = None
            out, extra_loss = out + x.mean(dim=1), extra_loss + loss
        return out, extra_loss


# ------------------------------------------------------------------------------------------------------------
# Methods that pool once, all nodes into one vector
# ------------------------------------------------------------------------------------------------------------


class FlatLevels(nn.Module):
    """Convolutions, then a mean (``gcn``), a sum (``gin``) or a multiset transformer (``gmt``)."""

    def __init__(self, channels: int, pool: str, num_layers: int, num_seeds: int, dropout: float) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            GINConv(MLP(channels, channels, channels, 2), train_eps=True)
            if pool == "gin"
            else GCNConv(channels, channels)
            for _ in range(num_layers)
        )
        self.dropout = Dropout(dropout, relu=True)
        self.readout: nn.Module = SumAggregation() if pool == "gin" else MeanAggregation()
        if pool == "gmt":
            heads = math.gcd(channels, 4)
            self.readout = GraphMultisetTransformer(channels, num_seeds, heads=heads, dropout=dropout)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, float]:
        for conv in self.convs:
            x = self.dropout(conv(x, edge_index))
        return self.readout(x, batch), 0.0


# ------------------------------------------------------------------------------------------------------------
# Molecules
# ------------------------------------------------------------------------------------------------------------


class MoleculeBaseline(nn.Module):
    """The encoder of :class:`~models.gpn.MoleculeClassifier`, the mean over the atoms, output MLP: that model
    without pooling.

    Args:
        atom_sizes: The number of values of every feature of an atom.
        bond_sizes: The same for bonds.
        out_channels: The number of tasks.
        conv: One of :data:`MOLECULE_BASELINES`.
        hidden, encoder_layers, mlp_layers, dropout: As in :class:`~models.gpn.MoleculeClassifier`.
    """

    def __init__(
        self,
        atom_sizes: list[int],
        bond_sizes: list[int],
        out_channels: int,
        *,
        conv: str,
        hidden: int,
        encoder_layers: int,
        mlp_layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.encoder = MoleculeEncoder(atom_sizes, bond_sizes, hidden, encoder_layers, dropout, conv)
        self.readout = MeanAggregation()
        self.head = MLP(hidden, hidden, out_channels, mlp_layers, dropout)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Prediction:
        x = self.encoder(x, edge_index, edge_attr)
        return Prediction(self.head(self.readout(x, batch, dim_size=batch_size)))
