"""The graph between clusters."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import (
    INTEGERS,
    check_batch,
    check_batch_values,
    check_cluster,
    check_cluster_values,
    check_edge_attr,
    check_metadata,
    check_reduction,
    check_values,
)
from .plain import plain_form
from .reduce import reduce as _reduce


class Coarse(NamedTuple):
    """The coarse graph of a clustering."""

    edge_index: Tensor
    """int64 ``[2, num_coarse_edges]``, sorted by row then column, without duplicates."""
    edge_attr: Tensor | None
    """``[num_coarse_edges, ...]``, or ``None`` where none was given."""
    representative: Tensor
    """int64 ``[num_clusters]``: the smallest node of each cluster."""


def coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None = None,
    reduce: str = "sum",
    self_loops: bool = False,
    batch: Tensor | None = None,
) -> Coarse:
    r"""The graph between clusters: :math:`\mathbf{S}^{\top} \mathbf{A} \mathbf{S}` as an edge list.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`, in any order.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`: every id from 0 to the largest
            occurs.
        edge_attr (torch.Tensor, optional): Weights or attributes of the edges, :math:`[m, \ldots]`: float32,
            float64, float16 or bfloat16; with the reduction :obj:`"max"`, integers too.
            (default: :obj:`None`)
        reduce (str, optional): How the attributes of the edges that become one are joined: :obj:`"sum"`,
            :obj:`"mean"` or :obj:`"max"`. (default: :obj:`"sum"`)
        self_loops (bool, optional): If :obj:`True`, the edges inside a cluster are kept as its self-loop;
            else they are dropped. (default: :obj:`False`)
        batch (torch.Tensor, optional): The graph of each node, int64 :math:`[n]`: then an edge between two
            graphs is an error. (default: :obj:`None`)

    Returns:
        Coarse: ``edge_index``, int64 :math:`[2, k]`, sorted by row then column, every edge once;
        ``edge_attr``, :math:`[k, \ldots]`, differentiable, or :obj:`None`; and ``representative``, int64
        :math:`[c]`, the smallest node of each cluster, so that ``batch[representative]`` is the batch vector
        of the coarse graph. Their sizes depend on the data: CUDA waits for the device once.

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
    """
    if edge_attr is None:
        edges, _, representative = torch.ops.gpn.coarsen(edge_index, cluster, self_loops, False, batch)
        return Coarse(edges, None, representative)
    # Checked before the work, and under the name that the caller knows.
    check_coarsen(edge_index, cluster, batch)
    check_reduction(reduce)
    check_edge_attr(edge_attr, edge_index, reduce)
    edges, slot, representative = torch.ops.gpn.coarsen(edge_index, cluster, self_loops, True, batch)
    join = _largest if edge_attr.dtype in INTEGERS else _reduce
    return Coarse(edges, join(edge_attr, slot, edges.size(1), reduce), representative)


def _largest(attr: Tensor, slot: Tensor, size: int, _: str) -> Tensor:
    """The maximum of integers: no rounding and no gradient, so torch's own is as good as a kernel."""
    slot = torch.where(slot < 0, size, slot)  # Edges in no slot meet in one row more, without a wait.
    slot = slot.view(-1, *[1] * (attr.dim() - 1)).expand_as(attr)
    out = attr.new_zeros(size + 1, *attr.shape[1:])
    return out.scatter_reduce(0, slot, attr, "amax", include_self=False)[:size]


def check_coarsen(edge_index: Tensor, cluster: Tensor, batch: Tensor | None = None) -> None:
    check_metadata(edge_index, None, None)
    check_cluster(cluster, edge_index)
    if batch is not None:
        check_batch(batch, cluster.size(0), "edge_index", edge_index)


@plain_form("coarsen")
def plain_coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    self_loops: bool = False,
    with_slot: bool = False,
    batch: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The edges of the coarse graph, the coarse edge of every edge, the smallest node of every cluster."""
    check_coarsen(edge_index, cluster, batch)
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
    kept = (row != col) | self_loops
    edges, position = torch.unique(torch.stack([row, col])[:, kept], dim=1, return_inverse=True)
    slot = torch.full_like(row if with_slot else row[:0], -1)
    if with_slot:
        slot[kept] = position
    return edges, slot, smallest


@torch.library.register_fake("gpn::coarsen")
def _(
    edge_index: Tensor,
    cluster: Tensor,
    self_loops: bool = False,
    with_slot: bool = False,
    batch: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    check_coarsen(edge_index, cluster, batch)
    num_edges, num_clusters = (torch.library.get_ctx().new_dynamic_size() for _ in range(2))
    return (
        cluster.new_empty((2, num_edges)),
        cluster.new_empty(edge_index.size(1) if with_slot else 0),
        cluster.new_empty(num_clusters),
    )
