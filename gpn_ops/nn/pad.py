"""Batches of fixed sizes, padded with one graph that influences nothing."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from gpn_ops import ops
from gpn_ops.checks import check_edge_attr

from ._inputs import checked_edges, graph_of_node, number_of_graphs
from .tree import Level, ParseTree

STEPS = 8


class Capacity(NamedTuple):
    """How many nodes, edges and undirected edges there is room for."""

    nodes: int
    """The number of nodes, at least one of which is padding."""
    edges: int
    """The number of edges."""
    pairs: int | None = None
    """The number of undirected edges. The default, ``edges // 2 + 1``, is enough if every edge has its
    reverse and there are no self-loops. ``edges`` is always enough."""

    @property
    def num_pairs(self) -> int:
        return self.edges // 2 + 1 if self.pairs is None else self.pairs


class PaddedBatch(NamedTuple):
    """A padded batch, as :func:`pad` returns it."""

    x: Tensor
    """``[capacity.nodes, d]``: the features, then zeros."""
    edge_index: Tensor
    """``[2, capacity.edges]``: the edges, then self-loops on the padding, two per node in turn."""
    edge_attr: Tensor | None
    """``[capacity.edges, ...]``: their attributes, then ones (zeros for integers)."""
    batch: Tensor
    """int64 ``[capacity.nodes]``: the graph of every node. The padding is one additional graph."""


class Room(NamedTuple):
    """The largest size of the next level of a padded batch, and where the padding of this level begins."""

    nodes: int
    edges: int
    first: Tensor
    """int64 ``[1]``: the first node of the padding, which extends to the last node."""


def pad(
    x: Tensor,
    edge_index: Tensor,
    edge_attr: Tensor | None,
    batch: Tensor | None,
    capacity: Capacity | tuple[int, int],
    batch_size: int | None = None,
) -> PaddedBatch:
    r"""Pads a batch to given sizes by appending one graph.

    The padding consists of nodes with zero features and of self-loops on them. It changes no result for the
    other graphs and gets no gradient, as long as the model treats each graph separately. Layers that combine
    all nodes do see the padding: a mean over all nodes, and ``BatchNorm``, ``GraphNorm`` and ``PairNorm``
    without a batch. PyG's ``LayerNorm`` needs :obj:`mode="node"` or the batch. Degree normalisation is safe.

    Args:
        x (torch.Tensor): The node features, :math:`[n, d]`, of any dtype.
        edge_index (torch.Tensor): The edges, :math:`[2, m]`.
        edge_attr (torch.Tensor, optional): Their attributes, :math:`[m, \ldots]`.
        batch (torch.Tensor, optional): The graph of every node, :math:`[n]`. If :obj:`None`, there is one
            graph.
        capacity (Capacity): The number of nodes, more than :math:`n`, and of edges, at least :math:`m`.
        batch_size (int, optional): The number of graphs without the padding. The last ones may have no nodes.
            If :obj:`None`, the host waits for the GPU to read it. (default: :obj:`None`)

    Raises:
        ValueError: If the batch does not fit.

    Example:
        >>> import torch
        >>> from gpn_ops.nn import pad
        >>> out = pad(torch.ones(2, 1), torch.tensor([[0, 1], [1, 0]]), None, None, (4, 5))
        >>> out.edge_index
        tensor([[0, 1, 2, 2, 3],
                [1, 0, 2, 2, 3]])
        >>> out.batch
        tensor([0, 0, 1, 1])
    """
    edge_index = checked_edges(edge_index)
    if batch is None and batch_size is None:
        batch_size = 1
    batch = graph_of_node(batch, x)
    if edge_attr is not None:
        check_edge_attr(edge_attr, edge_index, "max")
    if batch_size is None:
        lowest, highest = torch.stack(batch.aminmax()).tolist() if batch.numel() > 0 else (0, -1)
        batch_size = number_of_graphs(lowest, highest, None)
    (num_nodes, num_edges), room = (x.size(0), edge_index.size(1)), Capacity(*capacity)
    if num_nodes >= room.nodes or num_edges > room.edges:
        raise ValueError(
            f"capacity: expected room for more than {num_nodes} nodes and for {num_edges} edges, got "
            f"{room.nodes} and {room.edges}"
        )
    more_nodes, more_edges = room.nodes - num_nodes, room.edges - num_edges
    loops = num_nodes + torch.arange(more_edges, device=x.device).div(2, rounding_mode="floor") % more_nodes
    if edge_attr is not None:
        shape = (more_edges, *edge_attr.shape[1:])
        edge_attr = torch.cat([edge_attr, edge_attr.new_full(shape, padding_attribute(edge_attr))])
    return PaddedBatch(
        torch.cat([x, x.new_zeros(more_nodes, *x.shape[1:])]),
        torch.cat([edge_index, loops.to(edge_index.dtype).expand(2, -1)], dim=1),
        edge_attr,
        torch.cat([batch, batch.new_full((more_nodes,), batch_size)]),
    )


def padding_attribute(edge_attr: Tensor) -> int:
    """The attribute of the padding's self-loops. A weight must not be 0: GNNs normalise by sums of
    weights."""
    return int(edge_attr.is_floating_point())


def padded_edges(edges: Tensor, num_edges: Tensor, first: Tensor, num_nodes: int) -> Tensor:
    """Replaces all edges from ``num_edges`` on by self-loops of the nodes from ``first`` on, distributed as
    in :func:`pad`."""
    edge = torch.arange(edges.size(1), device=edges.device)
    spread = (edge - num_edges).clamp(min=0).div(2, rounding_mode="floor")
    loops = first + spread % (num_nodes - first).clamp(min=1)
    return torch.where(edge < num_edges, edges, loops)


class Buckets:
    r"""Chooses the sizes to which batches are padded, in steps of one eighth of a large batch.

    Nodes and edges share the step, so a training run needs few shapes. Each is compiled or captured once.

    Args:
        num_nodes (int): The number of nodes of a large batch. The steps continue above it.
        num_edges (int): The number of its edges.
        pairs (int, optional): The number of its undirected edges. Required if edges lack their reverse or if
            there are self-loops. (default: half the edges)

    Example:
        >>> from gpn_ops.nn import Buckets
        >>> Buckets(800, 1600)(620, 1300)
        Capacity(nodes=700, edges=1400, pairs=None)
    """

    def __init__(self, num_nodes: int, num_edges: int, pairs: int | None = None) -> None:
        for name, size in (("num_nodes", num_nodes), ("num_edges", num_edges)):
            if size < 1:
                raise ValueError(f"{name}: expected at least 1, got {size}")
        self.largest = Capacity(num_nodes, num_edges, pairs)

    @classmethod
    def of(cls, sizes: Iterable[tuple[int, int]]) -> "Buckets":
        """Buckets for batches with these numbers of nodes and edges."""
        sizes = list(sizes)
        if not sizes:
            raise ValueError("sizes: expected the sizes of at least one batch, got none")
        return cls(max(n for n, _ in sizes) + 1, max(max(m for _, m in sizes), 1))

    def __call__(self, num_nodes: int, num_edges: int) -> Capacity:
        """The smallest step that holds these nodes, one node of padding, and these edges."""
        nodes, edges, pairs = self.largest
        steps = max(-(-STEPS * (num_nodes + 1) // nodes), -(-STEPS * num_edges // edges))
        return Capacity(
            max(steps * nodes // STEPS, num_nodes + 1),
            max(steps * edges // STEPS, num_edges),
            None if pairs is None else -(-steps * pairs // STEPS),
        )

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.largest.nodes}, {self.largest.edges})"


def halving(capacity: Capacity, batch_size: int, height: int) -> tuple[Capacity, ...]:
    r"""Capacities for the levels of a hierarchy that always suffice for connected graphs, without drop-edge
    and competing self-loops.

    Every graph that still shrinks then has at most half as many nodes at the next level. So level :math:`k`
    has at most :math:`n / 2^k` nodes, plus one per graph. The number of edges is only known not to grow, so
    every level has room for all of them.

    Args:
        capacity (Capacity): The capacity of the batch.
        batch_size (int): The number of graphs.
        height (int): The number of levels.

    Returns:
        tuple: :obj:`height + 1` capacities. The first is :obj:`capacity`.
    """
    shapes = [Capacity(*capacity)]
    for level in range(1, height + 1):
        nodes = min(capacity[0], (capacity[0] >> level) + batch_size + 1)
        shapes.append(Capacity(nodes, min(shapes[0].edges, max(nodes * (nodes - 1), 1)), shapes[0].pairs))
    return tuple(shapes)


def measured(capacity: Capacity, tree: ParseTree, num_nodes: int) -> tuple[Capacity, ...]:
    r"""Capacities for the levels of a hierarchy, measured on one batch in dynamic form.

    They are scaled to :obj:`capacity` and have one eighth to spare. Another batch may still need more; its
    tree then has :obj:`overflow` set.

    Args:
        capacity (Capacity): The capacity of the coming batches.
        tree (ParseTree): The tree of a similar batch.
        num_nodes (int): The number of nodes of that batch.

    Returns:
        tuple: One capacity more than the tree has levels. The first is :obj:`capacity`.
    """
    first = Capacity(*capacity)
    # An edge without a reverse, or a self-loop, is a pair alone; coarse graphs have no more such than these.
    if first.pairs is None and any(map(_has_lone_edges, tree.levels)):
        first = first._replace(pairs=first.edges)
    shapes, nodes = [first], num_nodes
    num_edges = max((level.edge_index.size(1) for level in tree.levels), default=0)
    for height, level in enumerate(tree.levels, start=1):
        nodes -= level.x.size(0) - level.pooled.size(0)  # The roots of finished graphs stay.
        # The tree does not record the edges that are left above the top level.
        edges = tree.levels[min(height, len(tree.levels) - 1)].edge_index.size(1)
        room = Capacity(
            min(_share(first.nodes, nodes, num_nodes), shapes[-1].nodes),
            min(_share(first.edges, edges, num_edges), shapes[-1].edges),
        )
        shapes.append(room if first.pairs is None else room._replace(pairs=first.pairs))
    return tuple(shapes)


def _has_lone_edges(level: Level) -> bool:
    edge_index = level.edge_index
    return 2 * ops.undirected(edge_index, level.x.size(0)).pairs.size(1) > edge_index.size(1)


def _share(capacity: int, part: int, whole: int) -> int:
    return -(-capacity * part * (STEPS + 1) // (max(whole, 1) * STEPS)) + STEPS
