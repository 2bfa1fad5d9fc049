"""Un-pooling: every node takes the features of its cluster."""

from typing import Any

import torch
from torch import Tensor

from . import _ops as ops


def unpool(x: Tensor, cluster: Tensor) -> Tensor:
    r"""Lifts features back to the finer graph: :math:`\mathbf{S} \mathbf{X}`, row by row
    :math:`\mathbf{x}_{\mathrm{cluster}[i]}`.

    Unlike plain indexing, its gradient (a sum over every cluster) has the same bits on every run.

    Args:
        x (torch.Tensor): The features of the clusters, :math:`[c, \ldots]`.
        cluster (torch.Tensor): The cluster of every node, int64 :math:`[n]`.

    Returns:
        torch.Tensor: :math:`[n, \ldots]`

    Example:
        >>> import torch
        >>> from gpn_ops.nn import unpool
        >>> unpool(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1, 0]))
        tensor([[1.],
                [2.],
                [1.]])
    """
    out: Tensor = _Unpool.apply(x, cluster)
    return out


class _Unpool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cluster: Tensor) -> Tensor:
        ctx.save_for_backward(cluster)
        ctx.num_clusters = x.size(0)
        return x.index_select(0, cluster)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (cluster,) = ctx.saved_tensors
        return ops.reduce(grad, cluster, ctx.num_clusters), None
