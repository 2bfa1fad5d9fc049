"""Sums, means and maxima over the nodes of a cluster."""

from typing import Any

import torch
from torch import Tensor

from ..checks import (
    check,
    check_apart,
    check_cluster,
    check_cluster_values,
    check_contiguous,
    check_count,
    check_device,
    check_dtype,
    check_reduction,
    check_rows,
    check_shape,
    check_x_and_cluster,
    sum_dtype,
)
from . import derivatives
from .lift import lift
from .plain import plain_form


def reduce(x: Tensor, cluster: Tensor, num_clusters: int, reduce: str = "sum") -> Tensor:
    r"""Sum, mean or maximum over the nodes of each cluster, elementwise.

    .. math::
        \mathbf{x}^{\prime}_c = \bigoplus_{i \,:\, \mathrm{cluster}_i = c} \mathbf{x}_i

    The order of summation depends on the cluster alone: nodes are added in ascending order, on CUDA in pieces
    of 256. So results are bit-equal for any number of threads, whatever other clusters there are. Half
    precision is summed in float32 and rounded once.

    Args:
        x (torch.Tensor): A row per node, :math:`[n, \ldots]`: float32, float64, float16 or bfloat16.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`. A node of cluster -1 is in none.
        num_clusters (int): The number of clusters :math:`c`.
        reduce (str, optional): :obj:`"sum"`, :obj:`"mean"` or :obj:`"max"`. (default: :obj:`"sum"`)

    Returns:
        torch.Tensor: :math:`[c, \ldots]`, 0 for a cluster without nodes. Differentiable in ``x``; among equal
        maxima, the lowest node gets the gradient.

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
    r"""``out[cluster[i]] += x[i]``, in place and without a gradient.

    On the CPU, a sum taken tile by tile with this function is bit-equal to one :func:`reduce` of all rows. On
    CUDA, clusters of more than 256 nodes may differ by rounding, because they are summed in pieces.

    Args:
        out (torch.Tensor): :math:`[c, \ldots]`, contiguous, with the dtype of ``x``, or float32 if ``x`` is
            in half precision.
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


def cluster_sizes(cluster: Tensor, num_clusters: int) -> Tensor:
    r"""The number of nodes in each cluster.

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


def check_accumulate(out: Tensor, x: Tensor, cluster: Tensor) -> None:
    check_x_and_cluster(x, cluster)
    check_dtype("out", out, sum_dtype(x))

    def wrong() -> str:
        return (
            f"out: expected shape [num_clusters, ...] with the row shape of x {list(x.shape)}, "
            f"got {list(out.shape)}"
        )

    if out.dim() != x.dim():
        raise RuntimeError(wrong())
    for d in range(1, x.dim()):
        check(out.size(d) == x.size(d), wrong)
    check_device("out", out, "x", x)
    check_contiguous("out", out)


def check_reduce_max_backward(grad: Tensor, x: Tensor, maximum: Tensor, cluster: Tensor) -> None:
    check_x_and_cluster(x, cluster)
    check_shape("maximum", maximum, ("num_clusters", None), ("...", None))
    check_rows("maximum", maximum, x, maximum.size(0))
    check_rows("grad", grad, x, maximum.size(0))


@plain_form("reduce")
def plain_reduce(x: Tensor, cluster: Tensor, num_clusters: int, reduce: str = "sum") -> Tensor:
    """As :func:`reduce`; gradients come from autograd."""
    check_x_and_cluster(x, cluster)
    check_count("num_clusters", num_clusters)
    check_reduction(reduce)
    check_cluster_values(cluster, -1, "num_clusters", num_clusters)
    x, cluster = x[cluster >= 0], cluster[cluster >= 0]
    if reduce == "max":
        return _maximum(x, cluster, num_clusters)
    total = x.new_zeros(num_clusters, *x.shape[1:], dtype=sum_dtype(x))
    total = total.index_add(0, cluster, x.to(total.dtype))
    if reduce == "mean":
        size = torch.bincount(cluster, minlength=num_clusters).clamp(min=1)
        total = total / size.to(total.dtype).view(-1, *[1] * (x.dim() - 1))
    return total.to(x.dtype)


def _maximum(x: Tensor, cluster: Tensor, num_clusters: int) -> Tensor:
    num_nodes = x.size(0)
    index = cluster.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    shape = (num_clusters, *x.shape[1:])
    highest = x.detach().new_zeros(shape).scatter_reduce(0, index, x.detach(), "amax", include_self=False)
    node = torch.arange(num_nodes, device=x.device).view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    candidate = torch.where(x.detach() == highest.gather(0, index), node, num_nodes)
    first = node.new_full(shape, num_nodes).scatter_reduce(0, index, candidate, "amin")
    padded = torch.cat([x, x.new_zeros(1, *x.shape[1:])])  # the row for clusters without nodes
    return padded.gather(0, first)


@plain_form("reduce_max_backward")
def plain_reduce_max_backward(grad: Tensor, x: Tensor, maximum: Tensor, cluster: Tensor) -> Tensor:
    """The gradient of ``x`` under a maximum."""
    check_reduce_max_backward(grad, x, maximum, cluster)
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        again = plain_reduce(x, cluster, maximum.size(0), "max")
    return torch.autograd.grad(again, x, grad)[0]


@plain_form("accumulate_")
def plain_accumulate_(out: Tensor, x: Tensor, cluster: Tensor) -> None:
    """As :func:`accumulate_`."""
    check_accumulate(out, x, cluster)
    check_apart("out", out, "x", x)
    check_cluster_values(cluster, -1, "num_clusters", out.size(0))
    kept = cluster >= 0
    out.index_add_(0, cluster[kept], x[kept].to(out.dtype))


@plain_form("cluster_sizes")
def plain_cluster_sizes(cluster: Tensor, num_clusters: int) -> Tensor:
    """As :func:`cluster_sizes`."""
    check_cluster(cluster)
    check_count("num_clusters", num_clusters)
    check_cluster_values(cluster, -1, "num_clusters", num_clusters)
    kept = cluster[cluster >= 0]
    return cluster.new_zeros(num_clusters).index_add_(0, kept, torch.ones_like(kept))


@torch.library.register_fake("gpn::reduce")
def _(x: Tensor, cluster: Tensor, num_clusters: int, reduce: str = "sum") -> Tensor:
    check_x_and_cluster(x, cluster)
    check_count("num_clusters", num_clusters)
    check_reduction(reduce)
    return x.new_empty((num_clusters, *x.shape[1:]))


@torch.library.register_fake("gpn::reduce_max_backward")
def _(grad: Tensor, x: Tensor, maximum: Tensor, cluster: Tensor) -> Tensor:
    check_reduce_max_backward(grad, x, maximum, cluster)
    return x.new_empty(x.shape)


@torch.library.register_fake("gpn::accumulate_")
def _(out: Tensor, x: Tensor, cluster: Tensor) -> None:
    check_accumulate(out, x, cluster)


@torch.library.register_fake("gpn::cluster_sizes")
def _(cluster: Tensor, num_clusters: int) -> Tensor:
    check_cluster(cluster)
    check_count("num_clusters", num_clusters)
    return cluster.new_empty(num_clusters)


def _save_reduce(ctx: Any, inputs: tuple[Tensor, Tensor, int, str], output: Tensor) -> None:
    x, cluster, ctx.num_clusters, ctx.reduce = inputs
    ctx.save_for_backward(cluster, *((x, output) if ctx.reduce == "max" else ()))


def _reduce_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    cluster, *x_and_maximum = ctx.saved_tensors
    if ctx.reduce == "max":
        x, maximum = (part.detach() for part in x_and_maximum)  # The node of the maximum is a constant.
        if not torch.is_grad_enabled():
            return torch.ops.gpn.reduce_max_backward(grad, x, maximum, cluster), None, None, None
        # Backward is itself differentiated.
        chosen = torch.ops.gpn.reduce_max_backward(torch.ones_like(maximum), x, maximum, cluster)
        return lift(grad, cluster) * chosen, None, None, None
    if ctx.reduce == "mean":
        sizes = cluster_sizes(cluster, ctx.num_clusters).clamp(min=1)
        grad = grad / sizes.view(-1, *[1] * (grad.dim() - 1)).to(grad.dtype)
    return lift(grad, cluster), None, None, None


derivatives.register("reduce", _reduce_backward, _save_reduce)
derivatives.register_none("accumulate_")
