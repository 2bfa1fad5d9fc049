"""Lifts rows of clusters to nodes."""

from typing import Any

import torch
from torch import Tensor

from ..checks import check_cluster, check_cluster_values, check_device, check_floating, check_shape
from . import derivatives
from .plain import plain_form


def lift(x: Tensor, cluster: Tensor) -> Tensor:
    r"""Gives every node the row of its cluster: ``x[cluster]``, with a bit-reproducible gradient.

    Args:
        x (torch.Tensor): A row per cluster, :math:`[c, \ldots]`.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`. A node of cluster -1 gets 0.

    Returns:
        torch.Tensor: :math:`[n, \ldots]`, differentiable in ``x``.

    Raises:
        RuntimeError: As :func:`gpn_ops.reduce`.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.lift(torch.tensor([3.0, 4.0]), torch.tensor([0, 1, 0]))
        tensor([3., 4., 3.])
    """
    return torch.ops.gpn.lift(x, cluster)


def check_lift(x: Tensor, cluster: Tensor) -> None:
    check_floating("x", x)
    check_shape("x", x, ("num_clusters", None), ("...", None))
    check_cluster(cluster)
    check_device("cluster", cluster, "x", x)


@plain_form("lift")
def plain_lift(x: Tensor, cluster: Tensor) -> Tensor:
    """As :func:`lift`."""
    check_lift(x, cluster)
    check_cluster_values(cluster, -1, "num_clusters", x.size(0))
    out = x.new_zeros(cluster.size(0), *x.shape[1:])
    kept = cluster >= 0
    out[kept] = x.index_select(0, cluster[kept])
    return out


@torch.library.register_fake("gpn::lift")
def _(x: Tensor, cluster: Tensor) -> Tensor:
    check_lift(x, cluster)
    return x.new_empty((cluster.size(0), *x.shape[1:]))


def _save_lift(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    x, cluster = inputs
    ctx.num_clusters = x.size(0)
    ctx.save_for_backward(cluster)


def _lift_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (cluster,) = ctx.saved_tensors
    return torch.ops.gpn.reduce(grad, cluster, ctx.num_clusters), None


derivatives.register("lift", _lift_backward, _save_lift)
