"""Elementwise products of the features of two nodes."""

from typing import Any

import torch
from torch import Tensor

from ..checks import (
    check_apart,
    check_contiguous,
    check_device,
    check_dtype,
    check_pair_values,
    check_pairs,
    check_shape,
    sum_dtype,
)
from . import derivatives
from .lift import lift
from .plain import plain_form
from .reduce import reduce


def pair_product(h: Tensor, pairs: Tensor) -> Tensor:
    r"""The product of the features of two nodes, :math:`\mathbf{h}_i \odot \mathbf{h}_j`, for each pair.

    Args:
        h (torch.Tensor): Features of the nodes, :math:`[n, d]`: float32, float64, float16 or bfloat16.
        pairs (torch.Tensor): int64 :math:`[2, t]`.

    Returns:
        torch.Tensor: :math:`[t, d]`, differentiable in ``h``.

    Raises:
        RuntimeError: As :func:`gpn_ops.pair_dot`.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.pair_product(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0], [1]]))
        tensor([[3., 8.]])
    """
    return torch.ops.gpn.pair_product(h, pairs)


def pair_product_backward_(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> Tensor:
    r"""Adds the contribution of a tile of :func:`pair_product` to the gradient of ``h``, in place.

    On the CPU, consecutive tiles give the same bits as one call on all pairs. On CUDA, nodes with more than
    256 pairs may differ by rounding, because their pairs are summed in pieces.

    Args:
        grad_h (torch.Tensor): :math:`[n, d]`, contiguous, with the dtype of ``h``, or float32 if ``h`` is in
            half precision.
        grad_product (torch.Tensor): The gradient of the tile, :math:`[t, d]`.
        h (torch.Tensor): :math:`[n, d]`.
        pairs (torch.Tensor): int64 :math:`[2, t]`.

    Returns:
        torch.Tensor: ``grad_h``

    Raises:
        RuntimeError: As :func:`gpn_ops.pair_dot`; ``grad_h`` is then unchanged.

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


def check_product_backward(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> None:
    check_pairs(h, pairs)
    check_dtype("grad_h", grad_h, sum_dtype(h))
    check_shape("grad_h", grad_h, ("num_nodes", h.size(0)), ("channels", h.size(1)))
    check_device("grad_h", grad_h, "h", h)
    check_contiguous("grad_h", grad_h)
    check_dtype("grad_product", grad_product, h.dtype)
    check_shape("grad_product", grad_product, ("num_pairs", pairs.size(1)), ("channels", h.size(1)))
    check_device("grad_product", grad_product, "h", h)


@plain_form("pair_product")
def plain_pair_product(h: Tensor, pairs: Tensor) -> Tensor:
    """As :func:`pair_product`; gradients come from autograd."""
    check_pairs(h, pairs)
    check_pair_values(pairs, h.size(0))
    return h.index_select(0, pairs[0]) * h.index_select(0, pairs[1])


@plain_form("pair_product_backward_")
def plain_pair_product_backward_(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> None:
    """As :func:`pair_product_backward_`."""
    check_product_backward(grad_h, grad_product, h, pairs)
    check_apart("grad_h", grad_h, "h", h)
    check_apart("grad_h", grad_h, "grad_product", grad_product)
    check_pair_values(pairs, h.size(0))
    g, wide = grad_product.to(grad_h.dtype), h.to(grad_h.dtype)
    at_i, at_j = g * wide.index_select(0, pairs[1]), g * wide.index_select(0, pairs[0])
    # Interleaved: i and j of the first pair, i and j of the second, ...
    grad_h.index_add_(0, pairs.t().flatten(), torch.stack([at_i, at_j], dim=1).flatten(0, 1))


@torch.library.register_fake("gpn::pair_product")
def _(h: Tensor, pairs: Tensor) -> Tensor:
    check_pairs(h, pairs)
    return h.new_empty((pairs.size(1), h.size(1)))


@torch.library.register_fake("gpn::pair_product_backward_")
def _(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> None:
    check_product_backward(grad_h, grad_product, h, pairs)


def differentiable_backward(grad_product: Tensor, h: Tensor, pairs: Tensor) -> Tensor:
    """The gradient of h, itself differentiable; it stores rows per pair."""
    at_i, at_j = grad_product * lift(h, pairs[1]), grad_product * lift(h, pairs[0])
    return reduce(at_i, pairs[0], h.size(0)) + reduce(at_j, pairs[1], h.size(0))


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _pair_product_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    h, pairs = ctx.saved_tensors
    if torch.is_grad_enabled():
        return differentiable_backward(grad, h, pairs), None
    grad_h = pair_product_backward_(h.new_zeros(h.shape, dtype=sum_dtype(h)), grad, h, pairs)
    return grad_h.to(h.dtype), None


derivatives.register("pair_product", _pair_product_backward, _save)
derivatives.register_none("pair_product_backward_")
