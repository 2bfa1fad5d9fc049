"""The pooling layer of Graph Parsing Networks."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn.inits import reset

from gpn_ops import ops
from gpn_ops.checks import check_device, check_edge_attr, check_floating, check_reduction, check_shape

from ._inputs import (
    check_at_least,
    check_channels,
    check_features,
    check_probability,
    checked_edges,
    graph_of_node,
)
from .connect import ConnectClusters
from .multiset import DeepSets, Reduce
from .pad import Room
from .scorer import check_scored_dtype
from .select import SelectParse


class PoolOutput(NamedTuple):
    """The result of :class:`ParsePooling`, in the order of PyG's ``TopKPooling``."""

    x: Tensor
    """``[c, d]``: the features of the clusters."""
    edge_index: Tensor
    """int64 ``[2, k]``: the edges between clusters, sorted by row then column, each once."""
    edge_attr: Tensor | None
    """``[k, ...]``: their attributes."""
    batch: Tensor
    """int64 ``[c]``: the graph of every cluster."""
    cluster: Tensor
    """int64 ``[n]``: the cluster of every node. Stands where ``TopKPooling`` returns ``perm``."""
    score: Tensor
    """``[c]``: the mask of equation 4, by which ``x`` was multiplied."""


class Pooled(NamedTuple):
    """The full record of :class:`ParsePooling`: the fields of :class:`PoolOutput`, and those that trees need
    besides."""

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    batch: Tensor
    cluster: Tensor
    score: Tensor
    inner_edges: Tensor
    """int64 ``[c]``: the number of edges that ``score`` sums over, 1 if there are none."""
    representative: Tensor
    """int64 ``[c]``: the smallest node of every cluster."""
    progress: ops.Progress | None = None
    """What happened to each graph, if their number was given."""


class ParsePooling(torch.nn.Module):
    r"""The graph-parsing pooling operator from the `"Graph Parsing Networks"
    <https://arxiv.org/abs/2402.14393>`_ paper. It scores the edges, parses the graph into clusters, and pools
    each cluster into one node,

    .. math::
        C_{ij} &= \sigma \left( \mathrm{MLP} \left( \mathbf{h}_i \odot \mathbf{h}_j \right) \right)

        \mathbf{S} &= \mathcal{A}(\mathbf{C})

        \mathbf{A}' &= \mathbf{S}^{\top} \mathbf{A} \mathbf{S}

        \mathbf{X}' &= \mathrm{DeepSets}(\mathbf{X}, \mathbf{S}) \odot \mathbf{y} \mathbf{1}^{\top},
        \quad y_c = \sum_{(i, j) \text{ inside } c} C_{ij}.

    The number of clusters follows from the graph; there is no ratio to set. A node without edges becomes a
    cluster of its own.

    The layer replaces ``TopKPooling``: it takes the same arguments and returns its results in the same order,
    with :obj:`cluster` in place of :obj:`perm`. It stores no row of features per edge, except if
    :obj:`recompute` is off, or if a child of the scorer was replaced, subclassed or has hooks, because such a
    child is called like any module. Second derivatives need :obj:`recompute=False`. Forward-mode derivatives
    raise an error.

    Args:
        in_channels (int): Size of the features of each node and of each cluster.
        multiset (str or torch.nn.Module, optional): How the features of a cluster's nodes become those of the
            cluster: :obj:`"deepsets"`, :obj:`"sum"`, :obj:`"mean"`, :obj:`"max"`, or a module called as
            :obj:`multiset(x, cluster, num_clusters)`. (default: :obj:`"deepsets"`)
        scorer_layers (int, optional): The number of layers of the MLP that scores edges. One layer is
            fastest. (default: :obj:`2`)
        multiset_layers (int, optional): The number of layers of each MLP of DeepSets. (default: :obj:`1`)
        dropout (float, optional): Dropout probability in the hidden layers of these MLPs.
            (default: :obj:`0.0`)
        drop_edge (float, optional): The probability with which an undirected edge is dropped in training. It
            is then missing from parsing, the mask and the coarse graph. (default: :obj:`0.0`)
        self_loops (bool, optional): If :obj:`True`, each node gets a self-loop that competes with its edges.
            A node whose self-loop scores highest chooses no neighbour. (default: :obj:`False`)
        weighted (bool, optional): If :obj:`True`, edges without :obj:`edge_attr` count as having weight 1, so
            that the coarse graph carries the weights of equation 2. (default: :obj:`False`)
        edge_reduce (str, optional): How the attributes of edges that merge into one are reduced:
            :obj:`"sum"`, :obj:`"mean"` or :obj:`"max"`. Only :obj:`"max"` takes integers.
            (default: :obj:`"sum"`)
        recompute (bool or str, optional): If :obj:`True`, backward computes the hidden layers of the MLPs
            again. If :obj:`False`, they are stored, which takes several rows of features per node and edge.
            If :obj:`"auto"`, on the CPU they are stored if small (4 MiB per MLP; 64 MiB, if the layer is
            compiled for one size), which is fastest in models whose upper levels are small. Results are the
            same. (default: :obj:`"auto"`)
        directed_scores (bool, optional): If :obj:`True`, the two directions of an edge are scored separately
            in training, so that dropout in the scorer makes them differ, as in the code of the paper. The
            scorer then has twice as many rows. (default: :obj:`False`)
        edge_dim (int, optional): Size of the attributes of an edge, if its score should depend on them. The
            MLP then reads :math:`[ \mathbf{h}_i \odot \mathbf{h}_j \, \Vert \, \mathbf{e}_{ij} ]`, as in
            :class:`EdgeScorer`. (default: :obj:`None`)

    Example:
        >>> import torch
        >>> from gpn_ops.nn import ParsePooling
        >>> pool = ParsePooling(16)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> out = pool(x, edge_index)
        >>> out.x.shape, out.cluster
        (torch.Size([2, 16]), tensor([0, 0, 1, 1]))
        >>> pool.unpool(out.x, out.cluster).shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        in_channels: int,
        *,
        multiset: str | torch.nn.Module = "deepsets",
        scorer_layers: int = 2,
        multiset_layers: int = 1,
        dropout: float = 0.0,
        drop_edge: float = 0.0,
        self_loops: bool = False,
        weighted: bool = False,
        edge_reduce: str = "sum",
        recompute: bool | str = "auto",
        directed_scores: bool = False,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__()
        # Checked here, where they have the names that the caller wrote.
        check_at_least("scorer_layers", 1, scorer_layers)
        check_probability("drop_edge", drop_edge)
        check_reduction(edge_reduce, "edge_reduce")
        check_channels(
            in_channels,
            scorer_layers > 1 or multiset == "deepsets",
            f"scorer_layers={scorer_layers} and multiset={multiset!r}",
            "scorer_layers=1 with multiset='sum', 'mean' or 'max'",
        )
        self.in_channels = in_channels
        self.drop_edge = drop_edge
        self.edge_dim = edge_dim
        self.select = SelectParse(
            in_channels, scorer_layers, dropout, self_loops, recompute, directed_scores, edge_dim
        )
        self.connect = ConnectClusters(edge_reduce, weighted)
        self.multiset: torch.nn.Module
        if isinstance(multiset, torch.nn.Module):
            self.multiset = multiset
        elif multiset == "deepsets":
            check_at_least("multiset_layers", 1, multiset_layers)
            self.multiset = DeepSets(in_channels, multiset_layers, dropout, recompute)
        elif multiset in ("sum", "mean", "max"):
            self.multiset = Reduce(multiset)
        else:
            raise ValueError(
                f"multiset: expected 'deepsets', 'sum', 'mean', 'max' or a module, got {multiset!r}"
            )

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for child in self.children():
            reset(child)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        attn: Tensor | None = None,
        *,
        undirected: ops.Undirected | None = None,
        num_graphs: int | None = None,
        record: bool = False,
        room: Room | None = None,
    ) -> PoolOutput | Pooled:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The node features, :math:`[n, d]`.
            edge_index (torch.Tensor): The edges, :math:`[2, m]`, or an ``EdgeIndex``. Undirected graphs store
                both directions.
            edge_attr (torch.Tensor, optional): The attributes of the edges, :math:`[m, \ldots]`.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): The graph of every node, :math:`[n]`. No edge may join two graphs.
                (default: :obj:`None`)
            attn (torch.Tensor, optional): The features :math:`\mathbf{h}` that edges are scored on, if these
                are not :obj:`x`. A model can score on the features of one network and pool those of another.
                (default: :obj:`None`)
            undirected (Undirected, optional): The result of :func:`gpn_ops.undirected` for
                :obj:`edge_index`, if you have it. It saves a sort of the edges, and one of the two waits for
                a GPU. (default: :obj:`None`)
            num_graphs (int, optional): The number of graphs in :obj:`batch`. The record then also tells what
                happened to each of them. (default: :obj:`None`)
            record (bool, optional): If :obj:`True`, returns a :class:`Pooled`, which also has the number of
                inner edges and the representative node of each cluster. (default: :obj:`False`)
            room (Room, optional): For a padded batch (:func:`pad`), where the padding begins and the sizes of
                the result, which is padded too. Output shapes then depend on input shapes only. It requires
                :obj:`record`, :obj:`undirected`, and :obj:`num_graphs` including the padding.
                (default: :obj:`None`)
        """
        edge_index = checked_edges(edge_index)
        check_features("x", x, self.in_channels)
        check_device("x", x, "edge_index", edge_index)
        graph = graph_of_node(batch, x)
        if attn is None:
            attn = x
        else:
            check_floating("attn", attn)
            check_shape("attn", attn, ("num_nodes", x.size(0)), ("in_channels", self.in_channels))
            check_device("attn", attn, "x", x)
        check_scored_dtype("x" if attn is x else "attn", attn, getattr(self.select, "scorer", None))
        if edge_attr is not None:
            check_edge_attr(edge_attr, edge_index, "max")  # The connect step checks for integers.

        drop_edge = self.drop_edge if self.training else 0.0
        scored = {} if self.edge_dim is None else {"edge_attr": edge_attr}
        padded = {} if room is None else {"room": room}
        if room is not None and (not record or num_graphs is None or undirected is None or batch is None):
            raise ValueError("room: expected together with record, batch, num_graphs and undirected")
        parsed = self.select(
            attn,
            edge_index,
            batch,
            drop_edge=drop_edge,
            undirected=undirected,
            record=True,
            **scored,
            **padded,
        )
        progress = None
        if record and num_graphs is not None:
            coarse, progress = self.connect(
                parsed, edge_index, edge_attr, graph, num_graphs=num_graphs, **padded
            )
        else:
            coarse = self.connect(parsed, edge_index, edge_attr, batch)
        num_clusters = coarse.representative.size(0)
        if room is not None:  # If there is no room for all clusters, their ids must still be valid.
            parsed = parsed._replace(cluster=parsed.cluster.clamp(max=num_clusters - 1))
        # None of a connect step of the user's own, which may give just the coarse graph.
        score, inner_edges = parsed.mask(num_clusters, getattr(coarse, "order", None))
        score = score.to(x.dtype)
        weight = coarse.edge_attr
        if edge_attr is None and weight is not None:  # The layer's own; a GNN expects the dtype of x.
            weight = weight.to(x.dtype)
        pooled = Pooled(
            x=self.multiset(x, parsed.cluster, num_clusters) * score.unsqueeze(-1),
            edge_index=coarse.edge_index,
            edge_attr=weight,
            batch=graph.index_select(0, coarse.representative),
            cluster=parsed.cluster,
            score=score,
            inner_edges=inner_edges,
            representative=coarse.representative,
            progress=progress,
        )
        return pooled if record else PoolOutput(*pooled[:6])

    def unpool(self, x: Tensor, cluster: Tensor) -> Tensor:
        r"""Lifts features back to the finer graph: every node takes the features of its cluster.

        Args:
            x (torch.Tensor): The features of the clusters, :math:`[c, \ldots]`.
            cluster (torch.Tensor): The :obj:`cluster` that pooling returned, :math:`[n]`.
        """
        return ops.lift(x, cluster)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, select={self.select}, connect={self.connect}, "
            f"multiset={self.multiset}, drop_edge={self.drop_edge})"
        )
