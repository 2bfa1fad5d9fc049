"""What edge scores are made of: undirected edges, and products of the features of their two nodes."""

from typing import Any

import torch
from torch import Tensor

from .._checks import check_metadata
from .._pooling_checks import check_pair_dot, check_pairs, check_product_backward, sum_dtype
from ..reference.pooling import Undirected


def undirected(edge_index: Tensor, num_nodes: int) -> Undirected:
    r"""The undirected edges of an edge list, and which of them each edge is.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`, in any order, in one direction or
            both.
        num_nodes (int): The number of nodes.

    Returns:
        Undirected: ``pairs``, int64 :math:`[2, u]` with ``pairs[0] <= pairs[1]``, every pair once, sorted by
        first then second node; and ``slot``, int64 :math:`[m]`, the pair of each edge. An edge, its reverse
        and its duplicates share a slot, so a value per pair that is looked up by slot is the same for all of
        them. CUDA waits for the device once.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape, device or value; on CUDA, an id out of range
            trips a device-side assertion.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.undirected(torch.tensor([[0, 2, 1, 1], [1, 1, 0, 1]]), num_nodes=3)
        Undirected(pairs=tensor([[0, 1, 1],
                [1, 1, 2]]), slot=tensor([0, 2, 0, 1]))
    """
    return Undirected(*torch.ops.gpn.undirected(edge_index, num_nodes))


def pair_dot(h: Tensor, weight: Tensor, pairs: Tensor) -> Tensor:
    r"""A weighted inner product per pair of nodes: a one-layer edge scorer before its bias.

    .. math::
        \mathrm{out}_p = \sum_k h_{ik} \, w_k \, h_{jk}, \qquad (i, j) = \mathrm{pairs}_p

    Never holds a value per pair and channel, in neither direction.

    Args:
        h (torch.Tensor): Features of the nodes, :math:`[n, d]`: float32, float64, float16 or bfloat16.
        weight (torch.Tensor): A weight per channel, :math:`[d]`, taken in the dtype of ``h``.
        pairs (torch.Tensor): int64 :math:`[2, u]`.

    Returns:
        torch.Tensor: :math:`[u]`, differentiable in ``h`` and ``weight``.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape, device or value; on CUDA, an id out of range
            trips a device-side assertion.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> h = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> gpn_ops.pair_dot(h, torch.tensor([1.0, 10.0]), torch.tensor([[0], [1]]))
        tensor([83.])
    """
    return torch.ops.gpn.pair_dot(h, weight.to(h.dtype), pairs)


def pair_product(h: Tensor, pairs: Tensor) -> Tensor:
    r"""The product of the features of two nodes, :math:`\mathbf{h}_i \odot \mathbf{h}_j`, for some pairs.

    Args:
        h (torch.Tensor): Features of the nodes, :math:`[n, d]`: float32, float64, float16 or bfloat16.
        pairs (torch.Tensor): int64 :math:`[2, t]`.

    Returns:
        torch.Tensor: :math:`[t, d]`, differentiable in ``h``.

    Raises:
        RuntimeError: As :func:`pair_dot`.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.pair_product(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0], [1]]))
        tensor([[3., 8.]])
    """
    return torch.ops.gpn.pair_product(h, pairs)


def pair_product_backward_(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> Tensor:
    r"""Adds what a tile of :func:`pair_product` gives to the gradient of ``h``: pair after pair, in place.

    Tiles that follow each other give the same bits as one call on all pairs.

    Args:
        grad_h (torch.Tensor): :math:`[n, d]`, contiguous, of the dtype of ``h``; float32 where ``h`` is in
            half precision.
        grad_product (torch.Tensor): The gradient of the tile, :math:`[t, d]`.
        h (torch.Tensor): :math:`[n, d]`.
        pairs (torch.Tensor): int64 :math:`[2, t]`.

    Returns:
        torch.Tensor: ``grad_h``

    Raises:
        RuntimeError: As :func:`pair_dot`; ``grad_h`` is then unchanged.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> h = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> gpn_ops.pair_product_backward_(torch.zeros(2, 2), torch.ones(1, 2), h, torch.tensor([[0], [1]]))
        tensor([[3., 4.],
                [1., 2.]])
    """
    torch.ops.gpn.pair_product_backward_(grad_h, grad_product, h, pairs)
    return grad_h


# ------------------------------------------------------------------------------------------------------------
# Fake kernels
# ------------------------------------------------------------------------------------------------------------


@torch.library.register_fake("gpn::undirected")
def _(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    check_metadata(edge_index, None, num_nodes)
    num_pairs = torch.library.get_ctx().new_dynamic_size()
    return (
        edge_index.new_empty((2, num_pairs), dtype=torch.int64),
        edge_index.new_empty(edge_index.size(1), dtype=torch.int64),
    )


@torch.library.register_fake("gpn::pair_dot")
def _(h: Tensor, weight: Tensor, pairs: Tensor) -> Tensor:
    check_pair_dot(h, weight, pairs)
    return h.new_empty(pairs.size(1))


@torch.library.register_fake("gpn::pair_dot_backward")
def _(grad: Tensor, h: Tensor, weight: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    check_pair_dot(h, weight, pairs)
    return h.new_empty(h.shape), weight.new_empty(weight.shape)


@torch.library.register_fake("gpn::pair_product")
def _(h: Tensor, pairs: Tensor) -> Tensor:
    check_pairs(h, pairs)
    return h.new_empty((pairs.size(1), h.size(1)))


@torch.library.register_fake("gpn::pair_product_backward_")
def _(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> None:
    check_product_backward(grad_h, grad_product, h, pairs)


# ------------------------------------------------------------------------------------------------------------
# Gradients
# ------------------------------------------------------------------------------------------------------------


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _pair_dot_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *torch.ops.gpn.pair_dot_backward(grad, *ctx.saved_tensors), None


def _pair_product_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    h, pairs = ctx.saved_tensors
    grad_h = pair_product_backward_(h.new_zeros(h.shape, dtype=sum_dtype(h)), grad, h, pairs)
    return grad_h.to(h.dtype), None


torch.library.register_autograd("gpn::pair_dot", _pair_dot_backward, setup_context=_save)
torch.library.register_autograd("gpn::pair_product", _pair_product_backward, setup_context=_save)
