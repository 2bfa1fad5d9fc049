"""Sums, means and maxima over the nodes of a cluster, and back from clusters to nodes."""

from typing import Any

import torch
from torch import Tensor

from .._pooling_checks import (
    check_accumulate,
    check_cluster,
    check_count,
    check_lift,
    check_reduction,
    check_x_and_cluster,
)


def reduce(x: Tensor, cluster: Tensor, num_clusters: int, reduce: str = "sum") -> Tensor:
    r"""Sum, mean or maximum over the nodes of each cluster, elementwise.

    .. math::
        \mathbf{x}^{\prime}_c = \bigoplus_{i \,:\, \mathrm{cluster}_i = c} \mathbf{x}_i

    Nodes are added up in ascending order, so the bits are the same for any number of threads. Half precision
    is added up in float32 and rounded once.

    Args:
        x (torch.Tensor): A row per node, :math:`[n, \ldots]`: float32, float64, float16 or bfloat16.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`. A node of cluster -1 is in none.
        num_clusters (int): The number of clusters :math:`c`.
        reduce (str, optional): :obj:`"sum"`, :obj:`"mean"` or :obj:`"max"`. (default: :obj:`"sum"`)

    Returns:
        torch.Tensor: :math:`[c, \ldots]`, 0 for a cluster without nodes. Differentiable in ``x``; of several
        equal maxima, the lowest node gets the gradient.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape, device or value; on CUDA, a cluster out of
            range trips a device-side assertion.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.reduce(torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]), 2, "mean")
        tensor([[1.5000],
                [5.0000]])
    """
    return torch.ops.gpn.reduce(x, cluster, num_clusters, reduce)


def accumulate_(out: Tensor, x: Tensor, cluster: Tensor) -> Tensor:
    r"""``out[cluster[i]] += x[i]`` in ascending ``i``, in place and without a gradient.

    A sum that is taken tile by tile with this function has the bits of one :func:`reduce` of all rows.

    Args:
        out (torch.Tensor): :math:`[c, \ldots]`, contiguous, of the dtype of ``x``; float32 where ``x`` is in
            half precision.
        x (torch.Tensor): :math:`[n, \ldots]`.
        cluster (torch.Tensor): int64 :math:`[n]`; rows of cluster -1 are left out.

    Returns:
        torch.Tensor: ``out``

    Raises:
        RuntimeError: As :func:`reduce`; ``out`` is then unchanged.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.accumulate_(torch.ones(2), torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0, 0, 1]))
        tensor([4., 6.])
    """
    torch.ops.gpn.accumulate_(out, x, cluster)
    return out


def lift(x: Tensor, cluster: Tensor) -> Tensor:
    r"""Every node gets the row of its cluster: ``x[cluster]``, with a gradient of reproducible bits.

    Args:
        x (torch.Tensor): A row per cluster, :math:`[c, \ldots]`.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`. A node of cluster -1 gets 0.

    Returns:
        torch.Tensor: :math:`[n, \ldots]`, differentiable in ``x``.

    Raises:
        RuntimeError: As :func:`reduce`.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.lift(torch.tensor([3.0, 4.0]), torch.tensor([0, 1, 0]))
        tensor([3., 4., 3.])
    """
    return torch.ops.gpn.lift(x, cluster)


def cluster_sizes(cluster: Tensor, num_clusters: int) -> Tensor:
    r"""How many nodes each cluster has.

    Args:
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`; -1 is not counted.
        num_clusters (int): The number of clusters :math:`c`.

    Returns:
        torch.Tensor: int64 :math:`[c]`.

    Raises:
        RuntimeError: As :func:`reduce`.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.cluster_sizes(torch.tensor([0, 1, 0]), 3)
        tensor([2, 1, 0])
    """
    return torch.ops.gpn.cluster_sizes(cluster, num_clusters)


# ------------------------------------------------------------------------------------------------------------
# Fake kernels
# ------------------------------------------------------------------------------------------------------------


@torch.library.register_fake("gpn::reduce")
def _(x: Tensor, cluster: Tensor, num_clusters: int, reduce: str = "sum") -> Tensor:
    check_x_and_cluster(x, cluster)
    check_count("num_clusters", num_clusters)
    check_reduction(reduce)
    return x.new_empty((num_clusters, *x.shape[1:]))


@torch.library.register_fake("gpn::reduce_max_backward")
def _(grad: Tensor, x: Tensor, maximum: Tensor, cluster: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake("gpn::accumulate_")
def _(out: Tensor, x: Tensor, cluster: Tensor) -> None:
    check_accumulate(out, x, cluster)


@torch.library.register_fake("gpn::lift")
def _(x: Tensor, cluster: Tensor) -> Tensor:
    check_lift(x, cluster)
    return x.new_empty((cluster.size(0), *x.shape[1:]))


@torch.library.register_fake("gpn::cluster_sizes")
def _(cluster: Tensor, num_clusters: int) -> Tensor:
    check_cluster(cluster)
    check_count("num_clusters", num_clusters)
    return cluster.new_empty(num_clusters)


# ------------------------------------------------------------------------------------------------------------
# Gradients
# ------------------------------------------------------------------------------------------------------------


def _save_reduce(ctx: Any, inputs: tuple[Tensor, Tensor, int, str], output: Tensor) -> None:
    x, cluster, ctx.num_clusters, ctx.reduce = inputs
    ctx.save_for_backward(cluster, *((x, output) if ctx.reduce == "max" else ()))


def _reduce_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    cluster, *x_and_maximum = ctx.saved_tensors
    if ctx.reduce == "max":
        return torch.ops.gpn.reduce_max_backward(grad, *x_and_maximum, cluster), None, None, None
    if ctx.reduce == "mean":
        sizes = cluster_sizes(cluster, ctx.num_clusters).clamp(min=1)
        grad = grad / sizes.view(-1, *[1] * (grad.dim() - 1)).to(grad.dtype)
    return lift(grad, cluster), None, None, None


def _save_lift(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    x, cluster = inputs
    ctx.num_clusters = x.size(0)
    ctx.save_for_backward(cluster)


def _lift_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (cluster,) = ctx.saved_tensors
    return reduce(grad, cluster, ctx.num_clusters), None


torch.library.register_autograd("gpn::reduce", _reduce_backward, setup_context=_save_reduce)
torch.library.register_autograd("gpn::lift", _lift_backward, setup_context=_save_lift)
