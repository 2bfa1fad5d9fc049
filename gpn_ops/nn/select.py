"""The select step: the assignment of nodes to clusters."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn.inits import reset
from torch_geometric.nn.pool.select import Select, SelectOutput

from gpn_ops import ops
from gpn_ops.checks import check_batch, check_device
from gpn_ops.ops import waits

from ._inputs import attributes_to_score, check_edges_inside_graphs, check_features, checked_edges
from .pad import Room
from .scorer import EdgeScorer, check_scored_dtype


class Parsed(NamedTuple):
    """The clusters of a parsed graph, and the edges that took part in parsing."""

    cluster: Tensor
    """int64 ``[num_nodes]``: the cluster of every node."""
    edge_index: Tensor
    """``[2, m]``: the edges that took part: the given edges without dropped ones, and competing
    self-loops."""
    scores: Tensor
    """``[m]``: their scores."""
    kept: Tensor | None
    """bool, one per given edge: whether it took part. ``None`` if none was dropped."""
    took_part: Tensor | None = None
    """bool ``[m]``: which edges of :obj:`edge_index` took part. On a GPU all edges are listed, because
    leaving out the others would need a wait. ``None`` if all took part."""

    def mask(self, num_clusters: int, order: Tensor | None = None) -> ops.Mask:
        """:func:`gpn_ops.mask` of the edges that took part. ``order``: what coarsening found for
        :obj:`edge_index`, which spares a sort."""
        return ops.Mask(
            *torch.ops.gpn.mask(
                self.edge_index, self.scores, self.cluster, num_clusters, order, self.took_part
            )
        )


class SelectParse(Select):
    r"""Parses a graph into clusters. Scores the edges with an :class:`EdgeScorer`, and merges every node with
    the neighbour across its highest-scored edge (:func:`gpn_ops.parse`).

    Args:
        in_channels (int): Size of each node's features.
        num_layers (int, optional): The number of layers of the scorer. (default: :obj:`2`)
        dropout (float, optional): Dropout probability in the scorer. (default: :obj:`0.0`)
        self_loops (bool, optional): If :obj:`True`, each node without a self-loop gets one, which competes
            with its edges. A node whose self-loop scores highest chooses no neighbour.
            (default: :obj:`False`)
        recompute (bool or str, optional): As in :class:`EdgeScorer`. (default: :obj:`"auto"`)
        directed_scores (bool, optional): If :obj:`True`, the two directions of an edge are scored separately
            in training, so that dropout in the scorer makes them differ, as in the code of the paper. The
            scorer then has twice as many rows. (default: :obj:`False`)
        edge_dim (int, optional): Size of the attributes of an edge, if its score should depend on them, as in
            :class:`EdgeScorer`. Added self-loops have attributes 0. (default: :obj:`None`)

    Example:
        >>> import torch
        >>> from gpn_ops.nn import SelectParse
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> SelectParse(16)(torch.randn(4, 16), edge_index).cluster_index
        tensor([0, 0, 1, 1])
    """

    def __init__(
        self,
        in_channels: int,
        num_layers: int = 2,
        dropout: float = 0.0,
        self_loops: bool = False,
        recompute: bool | str = "auto",
        directed_scores: bool = False,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.self_loops = self_loops
        self.directed_scores = directed_scores
        self.edge_dim = edge_dim
        self.scorer = EdgeScorer(in_channels, num_layers, dropout, recompute, edge_dim)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        reset(self.scorer)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        *,
        edge_attr: Tensor | None = None,
        drop_edge: float = 0.0,
        undirected: ops.Undirected | None = None,
        record: bool = False,
        room: Room | None = None,
    ) -> SelectOutput | Parsed:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The node features, :math:`[n, d]`.
            edge_index (torch.Tensor): The edges, :math:`[2, m]`.
            batch (torch.Tensor, optional): The graph of every node, :math:`[n]`. (default: :obj:`None`)
            edge_attr (torch.Tensor, optional): The attributes of the edges, :math:`[m, d_e]`. Scores depend
                on them if :obj:`edge_dim` is set. (default: :obj:`None`)
            drop_edge (float, optional): The probability with which an undirected edge (an edge together with
                its reverse) is dropped before edges are scored. (default: :obj:`0.0`)
            undirected (Undirected, optional): The result of :func:`gpn_ops.undirected` for these edges, if
                you have it. On the CPU it is ignored if self-loops compete. (default: :obj:`None`)
            record (bool, optional): If :obj:`True`, returns the record that :class:`ParsePooling` uses. It
                does not include the number of clusters, because reading that would wait for a GPU.
                (default: :obj:`False`)
            room (Room, optional): Where the padding of a batch begins (:func:`pad`). The padding becomes the
                last cluster, and output shapes depend on input shapes only. Requires :obj:`undirected`.
                (default: :obj:`None`)

        Returns:
            SelectOutput or Parsed: All nodes in order, their clusters, and as :obj:`weight` the mask of each
            node's cluster (equation 4), through which the scorer gets its gradient. With :obj:`record`, the
            clusters, and the edges that took part with their scores.
        """
        edge_index = checked_edges(edge_index)
        check_features("x", x, self.in_channels)
        check_device("x", x, "edge_index", edge_index)
        check_scored_dtype("x", x, self.scorer)
        if batch is not None:
            check_batch(batch, x.size(0), "x", x)
        num_given = edge_index.size(1)
        scored_attr = None
        if self.edge_dim is not None:
            scored_attr = attributes_to_score(edge_attr, self.edge_dim, edge_index)
        # The numbers of remaining edges and of missing self-loops are on the device. Where reading them would
        # wait, all edges are listed, and those that take no part are marked.
        listed = room is not None or not waits.reads_are_free(x.device)
        took_part = None
        if self.self_loops:
            if listed:
                if undirected is None:
                    undirected = ops.undirected(edge_index, x.size(0))
                edge_index, undirected, took_part = _with_all_self_loops(edge_index, x.size(0), undirected)
            else:
                edge_index, undirected = _with_self_loops(edge_index, x.size(0)), None
            if scored_attr is not None:
                loops = scored_attr.new_zeros(edge_index.size(1) - num_given, scored_attr.size(1))
                scored_attr = torch.cat([scored_attr, loops])
        pairs, slot = ops.undirected(edge_index, x.size(0)) if undirected is None else undirected

        kept = None
        if drop_edge > 0:
            if batch is not None:  # Coarsening checks only the edges that are kept.
                check_edges_inside_graphs(edge_index, batch)
            keep_pair = torch.rand(pairs.size(1), device=x.device) >= drop_edge
            keep = keep_pair.index_select(0, slot)
            kept = keep[:num_given]
            if listed:
                took_part = keep if took_part is None else keep & took_part
            else:
                edge_index, slot = edge_index[:, keep], slot[keep]
                scored_attr = None if scored_attr is None else scored_attr[keep]
                pairs = pairs[:, keep_pair]
                slot = (keep_pair.cumsum(0) - 1).index_select(0, slot)

        directed = self.directed_scores and self.training
        scored = {} if scored_attr is None else {"edge_attr": scored_attr}
        scores = self.scorer(x, edge_index, ops.Undirected(pairs, slot), directed, **scored)
        cluster = ops.parse(*_competing(edge_index, _settled(scores), took_part), x.size(0))
        if room is not None:
            cluster = torch.minimum(cluster, cluster.index_select(0, room.first))
        parsed = Parsed(cluster, edge_index, scores, kept, took_part)
        return parsed if record else _select_output(parsed, x.dtype)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, scorer={self.scorer}, "
            f"self_loops={self.self_loops})"
        )


def _with_self_loops(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Appends a self-loop for every node that has none."""
    missing = _without_self_loop(edge_index, num_nodes).nonzero().view(1, -1).to(edge_index.dtype)
    return torch.cat([edge_index, missing.expand(2, -1)], dim=1)


def _with_all_self_loops(
    edge_index: Tensor, num_nodes: int, undirected: ops.Undirected
) -> tuple[Tensor, ops.Undirected, Tensor]:
    """Appends a self-loop and its pair for every node. The last result marks the edges that count, which
    excludes a second self-loop of a node."""
    pairs, slot = undirected
    node = torch.arange(num_nodes, device=edge_index.device)
    loops = node.expand(2, -1)
    missing = _without_self_loop(edge_index, num_nodes)
    return (
        torch.cat([edge_index, loops.to(edge_index.dtype)], dim=1),
        ops.Undirected(torch.cat([pairs, loops], dim=1), torch.cat([slot, node + pairs.size(1)])),
        torch.cat([missing.new_ones(edge_index.size(1)), missing]),
    )


def _without_self_loop(edge_index: Tensor, num_nodes: int) -> Tensor:
    row, col = edge_index.to(torch.int64)
    # Map an id out of range to a spare node; the next operator will report it.
    node = torch.where((row == col) & (row >= 0), row, num_nodes).clamp(max=num_nodes)
    looped = torch.zeros(num_nodes + 1, dtype=torch.bool, device=edge_index.device)
    return looped.index_fill(0, node, True)[:-1].logical_not()


def _competing(edge_index: Tensor, scores: Tensor, took_part: Tensor | None) -> tuple[Tensor, Tensor]:
    """The edges and scores to parse. Edges that take no part become self-loops with the lowest score: a node
    that chooses one stays alone."""
    if took_part is None:
        return edge_index, scores
    return torch.where(took_part, edge_index, edge_index[0]), torch.where(took_part, scores, -torch.inf)


def _select_output(parsed: Parsed, dtype: torch.dtype) -> SelectOutput:
    cluster = parsed.cluster
    num_nodes = cluster.size(0)
    num_clusters = int(cluster.max()) + 1 if num_nodes > 0 else 0
    mask = parsed.mask(num_clusters).mask
    node = torch.arange(num_nodes, device=cluster.device)
    return SelectOutput(node, num_nodes, cluster, num_clusters, ops.lift(mask.to(dtype), cluster))


# The low bits of a score, which depend on the order of summation and so on the rest of the batch.
_UNSETTLED_BITS = {torch.float32: (4, torch.int32), torch.float64: (33, torch.int64)}


def _settled(scores: Tensor) -> Tensor:
    """The scores for comparison, rounded to nearest without these bits. Edges that look alike then tie, and
    the lowest edge id decides, whatever other graphs are in the batch."""
    bits, integer = _UNSETTLED_BITS[scores.dtype]
    half = 1 << (bits - 1)
    return scores.detach().view(integer).add(half).bitwise_and_(-2 * half).view(scores.dtype)
