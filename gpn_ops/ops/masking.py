"""What the edges inside a cluster add up to."""

from typing import Any

import torch
from torch import Tensor

from .._pooling_checks import check_mask
from ..reference.pooling import Mask


def mask(edge_index: Tensor, scores: Tensor, cluster: Tensor, num_clusters: int) -> Mask:
    r"""The cluster mask, equation 4 of the paper: the sum of the scores of the edges inside each cluster.

    .. math::
        y_c = \sum_{(i, j) \,:\, \mathrm{cluster}_i = \mathrm{cluster}_j = c} s_{ij}

    This is how scores get a gradient, as :func:`gpn_ops.parse` gives them none. Both directions of an edge
    and self-loops count. Edges are added up in ascending order, so the bits are the same for any number of
    threads.

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


@torch.library.register_fake("gpn::mask")
def _(edge_index: Tensor, scores: Tensor, cluster: Tensor, num_clusters: int) -> tuple[Tensor, Tensor]:
    check_mask(edge_index, scores, cluster, num_clusters)
    return scores.new_empty(num_clusters), cluster.new_empty(num_clusters)


@torch.library.register_fake("gpn::mask_backward")
def _(grad: Tensor, edge_index: Tensor, cluster: Tensor) -> Tensor:
    return grad.new_empty(edge_index.size(1))


def _save(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: tuple[Tensor, Tensor]) -> None:
    edge_index, _, cluster, _ = inputs
    ctx.save_for_backward(edge_index, cluster)


def _backward(ctx: Any, grad: Tensor, _grad_count: Tensor | None) -> tuple[Tensor | None, ...]:
    return None, torch.ops.gpn.mask_backward(grad, *ctx.saved_tensors), None, None


torch.library.register_autograd("gpn::mask", _backward, setup_context=_save)
