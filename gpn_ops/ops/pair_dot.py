"""A weighted inner product of the features of two nodes."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ..checks import (
    check_device,
    check_dtype,
    check_floating,
    check_pair_values,
    check_pairs,
    check_shape,
    sum_dtype,
)
from . import derivatives
from .pair_product import differentiable_backward, pair_product
from .plain import plain_form


def pair_dot(h: Tensor, weight: Tensor, pairs: Tensor) -> Tensor:
    r"""A weighted inner product for each pair of nodes: a one-layer edge scorer before its bias.

    .. math::
        \mathrm{out}_p = \sum_k h_{ik} \, w_k \, h_{jk}, \qquad (i, j) = \mathrm{pairs}_p

    Neither forward nor backward stores a value per pair and channel.

    Args:
        h (torch.Tensor): Features of the nodes, :math:`[n, d]`: float32, float64, float16 or bfloat16.
        weight (torch.Tensor): A weight per channel, :math:`[d]`, converted to the dtype of ``h``.
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
    check_floating("weight", weight)
    return torch.ops.gpn.pair_dot(h, weight.to(h.dtype), pairs)


def check_pair_dot(h: Tensor, weight: Tensor, pairs: Tensor) -> None:
    check_pairs(h, pairs)
    check_floating("weight", weight)
    check_dtype("weight", weight, h.dtype)
    check_shape("weight", weight, ("channels", h.size(1)))
    check_device("weight", weight, "h", h)


def check_pair_dot_backward(grad: Tensor, h: Tensor, weight: Tensor, pairs: Tensor) -> None:
    check_pair_dot(h, weight, pairs)
    check_dtype("grad", grad, h.dtype)
    check_shape("grad", grad, ("num_pairs", pairs.size(1)))
    check_device("grad", grad, "h", h)


@plain_form("pair_dot")
def plain_pair_dot(h: Tensor, weight: Tensor, pairs: Tensor) -> Tensor:
    """As :func:`pair_dot`; gradients come from autograd."""
    check_pair_dot(h, weight, pairs)
    check_pair_values(pairs, h.size(0))
    wide = h.to(sum_dtype(h))
    product = wide.index_select(0, pairs[0]) * weight.to(wide.dtype) * wide.index_select(0, pairs[1])
    return product.sum(dim=1).to(h.dtype)


@plain_form("pair_dot_backward")
def plain_pair_dot_backward(grad: Tensor, h: Tensor, weight: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of ``h`` and ``weight``."""
    check_pair_dot_backward(grad, h, weight, pairs)
    h, weight = h.detach().requires_grad_(), weight.detach().requires_grad_()
    with torch.enable_grad():
        out = plain_pair_dot(h, weight, pairs)
    return torch.autograd.grad(out, (h, weight), grad)  # type: ignore[return-value]


@torch.library.register_fake("gpn::pair_dot")
def _(h: Tensor, weight: Tensor, pairs: Tensor) -> Tensor:
    check_pair_dot(h, weight, pairs)
    return h.new_empty(pairs.size(1))


@torch.library.register_fake("gpn::pair_dot_backward")
def _(grad: Tensor, h: Tensor, weight: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    check_pair_dot_backward(grad, h, weight, pairs)
    return h.new_empty(h.shape), weight.new_empty(weight.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _pair_dot_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    h, weight, pairs = ctx.saved_tensors
    if not torch.is_grad_enabled():
        return *torch.ops.gpn.pair_dot_backward(grad, h, weight, pairs), None
    grad_h = differentiable_backward(torch.outer(grad, weight), h, pairs)
    return grad_h, grad @ pair_product(h, pairs), None


derivatives.register("pair_dot", _pair_dot_backward, _save)


# What FlopCounterMode counts: the products of a Linear layer with one output, in each direction.
@register_flop_formula(torch.ops.gpn.pair_dot)
def _(h: torch.Size, weight: torch.Size, pairs: torch.Size, **_: Any) -> int:
    return 2 * pairs[1] * h[1]


@register_flop_formula(torch.ops.gpn.pair_dot_backward)
def _(grad: torch.Size, h: torch.Size, weight: torch.Size, pairs: torch.Size, **_: Any) -> int:
    return 4 * pairs[1] * h[1]
