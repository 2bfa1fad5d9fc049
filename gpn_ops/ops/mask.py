"""Sums of scores over the edges inside clusters."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..checks import (
    check_cluster,
    check_cluster_values,
    check_count,
    check_device,
    check_dtype,
    check_floating,
    check_metadata,
    check_shape,
    check_tensor,
    check_values,
)
from . import derivatives
from .coarsen import check_takes_part, order_size
from .lift import lift
from .plain import plain_form
from .reduce import plain_reduce


class Mask(NamedTuple):
    """The sum and the number of the edges inside each cluster."""

    mask: Tensor
    """``[num_clusters]``: the sum of their scores, 1 if there are none."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    """int64 ``[num_clusters]``: their number, 1 if there are none."""


def mask(edge_index: Tensor, scores: Tensor, cluster: Tensor, num_clusters: int) -> Mask:
    r"""The cluster mask, equation 4 of the paper: the sum of the scores of the edges inside each cluster.

    .. math::
        y_c = \sum_{(i, j) \,:\, \mathrm{cluster}_i = \mathrm{cluster}_j = c} s_{ij}

    Scores get their gradient through the mask, because :func:`gpn_ops.parse` gives them none. Both directions
    of an edge and self-loops count. The order of summation depends on the cluster alone, as in
    :func:`gpn_ops.reduce`, so results are bit-equal for any number of threads.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`, in any order.
        scores (torch.Tensor): A score per edge, :math:`[m]`: float32, float64, float16 or bfloat16.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`.
        num_clusters (int): The number of clusters :math:`c`.

    Returns:
        Mask: ``mask`` :math:`[c]`, differentiable in ``scores``, and ``count``, int64 :math:`[c]`, the number
        of edges inside each cluster. Both are 1 for a cluster without inner edges.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape, device or value; on CUDA, an id out of range
            trips a device-side assertion.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> gpn_ops.mask(edge_index, torch.tensor([0.5, 0.5, 0.1, 0.1]), torch.tensor([0, 0, 1]), 2)
        Mask(mask=tensor([1., 1.]), count=tensor([2, 1]))
    """
    return Mask(*torch.ops.gpn.mask(edge_index, scores, cluster, num_clusters))


def check_mask(
    edge_index: Tensor,
    scores: Tensor,
    cluster: Tensor,
    num_clusters: int | torch.SymInt,
    order: Tensor | None = None,
    takes_part: Tensor | None = None,
) -> None:
    check_tensor("scores", scores)
    check_metadata(edge_index, scores, None)
    check_cluster(cluster, edge_index)
    check_count("num_clusters", num_clusters)
    if order is not None:
        check_dtype("order", order, torch.int32)
        check_shape("order", order, ("2 num_edges + num_nodes + 1", order_size(edge_index, cluster)))
        check_device("order", order, "edge_index", edge_index)
    check_takes_part(takes_part, edge_index)


def check_mask_backward(
    grad: Tensor, edge_index: Tensor, cluster: Tensor, takes_part: Tensor | None = None
) -> None:
    check_metadata(edge_index, None, None)
    check_cluster(cluster, edge_index)
    check_floating("grad", grad)
    check_shape("grad", grad, ("num_clusters", None))
    check_device("grad", grad, "edge_index", edge_index)
    check_takes_part(takes_part, edge_index)


@plain_form("mask")
def plain_mask(
    edge_index: Tensor,
    scores: Tensor,
    cluster: Tensor,
    num_clusters: int,
    order: Tensor | None = None,
    takes_part: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As :func:`mask`, over the edges that take part. ``order`` is checked but not used."""
    check_mask(edge_index, scores, cluster, num_clusters, order, takes_part)
    check_cluster_values(cluster, 0, "num_clusters", num_clusters)
    check_values(edge_index, None, cluster.size(0))
    row, col = (cluster.index_select(0, end.long()) for end in edge_index)
    inner = row == col if takes_part is None else (row == col) & takes_part
    total = plain_reduce(scores[inner], row[inner], num_clusters)
    count = torch.zeros(num_clusters, dtype=torch.int64, device=cluster.device)
    count = count.index_add(0, row, inner.long())
    return torch.where(count == 0, torch.ones_like(total), total), count.clamp(min=1)


@plain_form("mask_backward")
def plain_mask_backward(
    grad: Tensor, edge_index: Tensor, cluster: Tensor, takes_part: Tensor | None = None
) -> Tensor:
    """The gradient of the scores: for an inner edge that takes part that of its cluster, else 0."""
    check_mask_backward(grad, edge_index, cluster, takes_part)
    check_cluster_values(cluster, 0, "num_clusters", grad.size(0))
    check_values(edge_index, None, cluster.size(0))
    row, col = (cluster.index_select(0, end.long()) for end in edge_index)
    inner = row == col if takes_part is None else (row == col) & takes_part
    return torch.where(inner, grad.index_select(0, row), 0)


@torch.library.register_fake("gpn::mask")
def _(
    edge_index: Tensor,
    scores: Tensor,
    cluster: Tensor,
    num_clusters: int,
    order: Tensor | None = None,
    takes_part: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    check_mask(edge_index, scores, cluster, num_clusters, order, takes_part)
    return scores.new_empty(num_clusters), cluster.new_empty(num_clusters)


@torch.library.register_fake("gpn::mask_backward")
def _(grad: Tensor, edge_index: Tensor, cluster: Tensor, takes_part: Tensor | None = None) -> Tensor:
    check_mask_backward(grad, edge_index, cluster, takes_part)
    return grad.new_empty(edge_index.size(1))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    edge_index, _, cluster, _, _, takes_part = inputs
    ctx.save_for_backward(edge_index, cluster, takes_part)


def _backward(ctx: Any, grad: Tensor, _grad_count: Tensor | None) -> tuple[Tensor | None, ...]:
    edge_index, cluster, takes_part = ctx.saved_tensors
    if not torch.is_grad_enabled():
        grad_scores = torch.ops.gpn.mask_backward(grad, edge_index, cluster, takes_part)
        return None, grad_scores, None, None, None, None
    # Backward is differentiated in its turn.
    row, col = (cluster.index_select(0, end) for end in edge_index)
    inner = row == col if takes_part is None else (row == col) & takes_part
    return None, lift(grad, torch.where(inner, row, -1)), None, None, None, None


derivatives.register("mask", _backward, _save)
