"""The graph between clusters."""

from typing import NamedTuple, overload

import torch
from torch import Tensor

from ..checks import (
    INTEGERS,
    check_batch,
    check_batch_values,
    check_cluster,
    check_cluster_values,
    check_count,
    check_device,
    check_dtype,
    check_edge_attr,
    check_metadata,
    check_reduction,
    check_shape,
    check_values,
)
from . import waits
from .plain import padded, plain_form
from .reduce import reduce as _reduce


class Coarse(NamedTuple):
    """The coarse graph of a clustering."""

    edge_index: Tensor
    """int64 ``[2, num_coarse_edges]``, sorted by row then column, without duplicates."""
    edge_attr: Tensor | None
    """``[num_coarse_edges, ...]``, or ``None`` if none was given."""
    representative: Tensor
    """int64 ``[num_clusters]``: the smallest node of each cluster."""


class OrderedCoarse(NamedTuple):
    """The coarse graph of a clustering, and the order of its edges, for a pooling layer."""

    edge_index: Tensor
    edge_attr: Tensor | None
    representative: Tensor
    order: Tensor | None
    """The edges inside clusters in the order in which coarsening sorted them, for the mask of the same edges;
    ``None`` if nothing was sorted."""


class PaddedCoarse(NamedTuple):
    """The coarse graph of a clustering, padded to a given number of clusters and edges."""

    edge_index: Tensor
    """int64 ``[2, max_edges]``: the edges as in :class:`Coarse`, then -1."""
    edge_attr: Tensor | None
    """``[max_edges, ...]``: their attributes, then zeros."""
    representative: Tensor
    """int64 ``[max_clusters]``: the smallest node of each cluster, then -1."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    """int64 ``[2]``, on the device: the numbers of clusters and edges, even if they do not fit."""


@overload
def coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None = None,
    reduce: str = "sum",
    self_loops: bool = False,
    batch: Tensor | None = None,
) -> Coarse: ...


@overload
def coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None = None,
    reduce: str = "sum",
    self_loops: bool = False,
    batch: Tensor | None = None,
    *,
    capacity: tuple[int, int],
) -> PaddedCoarse: ...


def coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None = None,
    reduce: str = "sum",
    self_loops: bool = False,
    batch: Tensor | None = None,
    *,
    capacity: tuple[int, int] | None = None,
) -> Coarse | PaddedCoarse:
    r"""The graph between clusters: :math:`\mathbf{S}^{\top} \mathbf{A} \mathbf{S}` as an edge list.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`, in any order.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`. Every id from 0 to the largest
            must occur.
        edge_attr (torch.Tensor, optional): Weights or attributes of the edges, :math:`[m, \ldots]`: float32,
            float64, float16 or bfloat16; with the reduction :obj:`"max"`, integers too.
            (default: :obj:`None`)
        reduce (str, optional): How the attributes of edges that merge into one are combined: :obj:`"sum"`,
            :obj:`"mean"` or :obj:`"max"`. (default: :obj:`"sum"`)
        self_loops (bool, optional): If :obj:`True`, the edges inside a cluster become its self-loop.
            Otherwise they are dropped. (default: :obj:`False`)
        batch (torch.Tensor, optional): The graph of each node, int64 :math:`[n]`. If given, an edge between
            two graphs is an error. (default: :obj:`None`)
        capacity (tuple, optional): How many clusters and edges the results have room for. If given, output
            shapes depend on input shapes only, and CUDA does not wait. (default: :obj:`None`)

    Returns:
        Coarse: ``edge_index``, int64 :math:`[2, k]`, sorted by row then column, without duplicates;
        ``edge_attr``, :math:`[k, \ldots]`, differentiable, or :obj:`None`; and ``representative``, int64
        :math:`[c]`, the smallest node of each cluster, so that ``batch[representative]`` is the batch vector
        of the coarse graph. Their sizes depend on the data, so CUDA waits for the device once.

        With ``capacity``, a :class:`PaddedCoarse`: the same, padded with -1 (ids) and 0 (attributes), and
        ``count``, on the device, the numbers of clusters and edges. If they do not fit, ``count`` still holds
        these numbers, but all ids are -1 and all attributes NaN, so that nobody takes them for a graph.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape, device or value; on CUDA, an id out of range
            trips a device-side assertion.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])  # a path of 4 nodes
        >>> coarse = gpn_ops.coarsen(edge_index, torch.tensor([0, 0, 1, 1]), torch.ones(6))
        >>> coarse.edge_index
        tensor([[0, 1],
                [1, 0]])
        >>> coarse.edge_attr, coarse.representative
        (tensor([1., 1.]), tensor([0, 2]))
        >>> gpn_ops.coarsen(edge_index, torch.tensor([0, 0, 1, 1]), capacity=(3, 4)).edge_index
        tensor([[ 0,  1, -1, -1],
                [ 1,  0, -1, -1]])
    """
    if capacity is not None:
        check_coarsen(edge_index, cluster, batch)
        given = capacity if isinstance(capacity, (tuple, list)) else ()
        if len(given) != 2 or not all(isinstance(size, (int, torch.SymInt)) for size in given):
            raise RuntimeError(f"capacity: expected (max_clusters, max_edges), got {capacity!r}")
        for size in capacity:
            check_count("capacity", size)
        if edge_attr is not None:
            check_edge_attr(edge_attr, edge_index, reduce)
            check_reduction(reduce)
        return coarsen_padded(edge_index, cluster, edge_attr, reduce, self_loops, batch, capacity)[0]
    if edge_attr is None:
        edges, _, representative, _ = torch.ops.gpn.coarsen(edge_index, cluster, self_loops, False, batch)
        return Coarse(edges, None, representative)
    # Checked before the work, under the name that the caller knows.
    check_coarsen(edge_index, cluster, batch)
    check_reduction(reduce)
    check_edge_attr(edge_attr, edge_index, reduce)
    edges, slot, representative, _ = torch.ops.gpn.coarsen(edge_index, cluster, self_loops, True, batch)
    return Coarse(edges, joined(edge_attr, slot, edges.size(1), reduce), representative)


def joined(attr: Tensor, slot: Tensor, size: int, reduce: str) -> Tensor:
    """The combined attributes of edges that merge. The maximum of integers has no rounding and no gradient,
    so torch's own operator does."""
    if attr.dtype not in INTEGERS:
        return _reduce(attr, slot, size, reduce)
    slot = torch.where(slot < 0, size, slot)  # Edges without a slot share an additional row.
    slot = slot.view(-1, *[1] * (attr.dim() - 1)).expand_as(attr)
    out = attr.new_zeros(size + 1, *attr.shape[1:])
    return out.scatter_reduce(0, slot, attr, "amax", include_self=False)[:size]


# From so many edges on, coarsening gives no order.
_MOST_ORDERED = 2**32 - 1


def gives_order(edge_index: Tensor, self_loops: bool) -> bool:
    """Whether coarsening can give the mask its order of the edges. On the CPU it does not sort them."""
    if self_loops or waits.is_host(edge_index.device):
        return False
    # A compiled program would be tied to that many; the operator names the bound where it is passed.
    return torch.compiler.is_compiling() or edge_index.size(1) < _MOST_ORDERED


def coarsen_ordered(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None,
    reduce: str,
    self_loops: bool,
    batch: Tensor | None,
    takes_part: Tensor | None,
) -> OrderedCoarse:
    """:func:`coarsen` on the edges that ``takes_part`` marks (all if None), with their order for the mask.
    If ``edge_attr`` has fewer rows than there are edges, the edges after those rows are self-loops."""
    with_slot, with_order = edge_attr is not None, gives_order(edge_index, self_loops)
    edges, slot, representative, order = torch.ops.gpn.coarsen(
        edge_index, cluster, self_loops, with_slot, batch, with_order, takes_part
    )
    if edge_attr is not None:
        edge_attr = joined(edge_attr, slot[: edge_attr.size(0)], edges.size(1), reduce)
    return OrderedCoarse(edges, edge_attr, representative, order if with_order else None)


def coarsen_padded(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None,
    reduce: str,
    self_loops: bool,
    batch: Tensor | None,
    capacity: tuple[int, int],
    with_order: bool = False,
    takes_part: Tensor | None = None,
) -> tuple[PaddedCoarse, Tensor | None]:
    """:func:`coarsen_ordered` with a capacity; also returns the order."""
    max_clusters, max_edges = capacity
    edges, slot, representative, count, order = torch.ops.gpn.coarsen_padded(
        edge_index, cluster, *capacity, self_loops, edge_attr is not None, batch, with_order, takes_part
    )
    if edge_attr is not None:
        # If they do not fit, every slot is -1 and the sums would be zeros, which look like valid values.
        fits = (count[0] <= max_clusters) & (count[1] <= max_edges)
        bad = torch.iinfo(edge_attr.dtype).min if edge_attr.dtype in INTEGERS else torch.nan
        attr = joined(edge_attr, slot[: edge_attr.size(0)], max_edges, reduce)
        edge_attr = torch.where(fits, attr, bad)
    return PaddedCoarse(edges, edge_attr, representative, count), order if with_order else None


def check_coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    batch: Tensor | None = None,
    order_of_loops: bool = False,
    takes_part: Tensor | None = None,
) -> None:
    check_metadata(edge_index, None, None)
    check_cluster(cluster, edge_index)
    if batch is not None:
        check_batch(batch, cluster.size(0), "edge_index", edge_index)
    if order_of_loops:
        raise RuntimeError("with_order: expected no self_loops")
    check_takes_part(takes_part, edge_index)


def check_takes_part(takes_part: Tensor | None, edge_index: Tensor) -> None:
    if takes_part is not None:
        check_dtype("takes_part", takes_part, torch.bool)
        check_shape("takes_part", takes_part, ("num_edges", edge_index.size(1)))
        check_device("takes_part", takes_part, "edge_index", edge_index)


@plain_form("coarsen")
def plain_coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    self_loops: bool = False,
    with_slot: bool = False,
    batch: Tensor | None = None,
    with_order: bool = False,
    takes_part: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The edges of the coarse graph, the coarse edge of every edge, the smallest node of every cluster, and
    the edges inside clusters, sorted by cluster. Only edges that take part count."""
    check_coarsen(edge_index, cluster, batch, self_loops and with_order, takes_part)
    num_nodes = cluster.size(0)
    check_cluster_values(cluster, 0, "num_nodes", num_nodes)
    num_clusters = int(cluster.max()) + 1 if num_nodes > 0 else 0
    node = torch.arange(num_nodes, device=cluster.device)
    smallest = torch.full_like(node, num_nodes)[:num_clusters].scatter_reduce(0, cluster, node, "amin")
    gap = (smallest == num_nodes).nonzero()
    if gap.numel() > 0:
        raise RuntimeError(
            f"cluster: expected every id from 0 to {num_clusters - 1}, got no node with id {int(gap[0, 0])}"
        )
    check_values(edge_index, None, num_nodes)
    if batch is not None:
        check_batch_values(edge_index.long(), batch)
    row, col = (cluster.index_select(0, end.long()) for end in edge_index)
    listed = torch.ones_like(row, dtype=torch.bool) if takes_part is None else takes_part
    kept = ((row != col) | self_loops) & listed
    edges, position = torch.unique(torch.stack([row, col])[:, kept], dim=1, return_inverse=True)
    slot = torch.full_like(row if with_slot else row[:0], -1)
    if with_slot:
        slot[kept] = position
    order = _new_order(edge_index, cluster, with_order).fill_(-1)
    if with_order:
        inner = ((row == col) & listed).nonzero().view(-1)
        owner, place = row.index_select(0, inner).sort(stable=True)
        owners, items, begins = order.split([row.size(0), row.size(0), num_nodes + 1])
        owners[: inner.numel()], items[: inner.numel()] = owner, inner.index_select(0, place)
        node = torch.arange(num_nodes + 1, device=cluster.device)
        begins.copy_(torch.searchsorted(owner, node))
    return edges, slot, smallest, order


@plain_form("coarsen_padded")
def plain_coarsen_padded(
    edge_index: Tensor,
    cluster: Tensor,
    num_clusters: int,
    num_edges: int,
    self_loops: bool = False,
    with_slot: bool = False,
    batch: Tensor | None = None,
    with_order: bool = False,
    takes_part: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """As :func:`plain_coarsen`, padded to ``num_clusters`` and ``num_edges``, with the numbers of clusters
    and edges before the order."""
    check_coarsen(edge_index, cluster, batch, self_loops and with_order, takes_part)
    check_room(num_clusters, num_edges)
    edges, slot, smallest, order = plain_coarsen(
        edge_index, cluster, self_loops, with_slot, batch, with_order, takes_part
    )
    count = torch.tensor([smallest.size(0), edges.size(1)], device=cluster.device)
    fits = edges.size(1) <= num_edges and smallest.size(0) <= num_clusters
    if not fits:
        slot, order = torch.full_like(slot, -1), torch.full_like(order, -1)
    return padded(edges, num_edges, fits), slot, padded(smallest, num_clusters, fits), count, order


def _new_order(edge_index: Tensor, cluster: Tensor, wanted: bool) -> Tensor:
    size = order_size(edge_index, cluster) if wanted else 0
    return edge_index.new_empty(size, dtype=torch.int32)


def order_size(edge_index: Tensor, cluster: Tensor) -> int:
    """The size of the order that coarsening gives to :func:`gpn_ops.mask` (csrc/core/edges.h,
    ``InnerEdges``)."""
    return 2 * edge_index.size(1) + cluster.size(0) + 1


def check_room(num_clusters: int, num_edges: int) -> None:
    check_count("num_clusters", num_clusters)
    check_count("num_edges", num_edges)


@torch.library.register_fake("gpn::coarsen_padded")
def _(
    edge_index: Tensor,
    cluster: Tensor,
    num_clusters: int,
    num_edges: int,
    self_loops: bool = False,
    with_slot: bool = False,
    batch: Tensor | None = None,
    with_order: bool = False,
    takes_part: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    check_coarsen(edge_index, cluster, batch, self_loops and with_order, takes_part)
    check_room(num_clusters, num_edges)
    return (
        cluster.new_empty((2, num_edges)),
        cluster.new_empty(edge_index.size(1) if with_slot else 0),
        cluster.new_empty(num_clusters),
        cluster.new_empty(2),
        _new_order(edge_index, cluster, with_order),
    )


@torch.library.register_fake("gpn::coarsen")
def _(
    edge_index: Tensor,
    cluster: Tensor,
    self_loops: bool = False,
    with_slot: bool = False,
    batch: Tensor | None = None,
    with_order: bool = False,
    takes_part: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    check_coarsen(edge_index, cluster, batch, self_loops and with_order, takes_part)
    num_edges, num_clusters = (torch.library.get_ctx().new_dynamic_size() for _ in range(2))
    return (
        cluster.new_empty((2, num_edges)),
        cluster.new_empty(edge_index.size(1) if with_slot else 0),
        cluster.new_empty(num_clusters),
        _new_order(edge_index, cluster, with_order),
    )
