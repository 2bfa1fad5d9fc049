"""Dropout that keeps no mask."""

from typing import Any

import torch
from torch import Tensor

from ..checks import (
    check,
    check_contiguous,
    check_count,
    check_device,
    check_dtype,
    check_floating,
    sum_dtype,
)
from . import derivatives
from .plain import plain_form

LANE = 2**16  # Four elements share a random word of 64 bits.


def dropout(x: Tensor, seed: Tensor, p: float, relu: bool = False, first: int = 0) -> Tensor:
    r"""Sets elements to zero with probability :math:`p`, rounded to a multiple of :math:`2^{-16}`, and scales
    the others so that the mean is preserved.

    The seed and the position of an element alone decide whether it is dropped. So the result is the same on
    any device, for any number of threads and for any division into tiles, and backward draws again instead of
    storing a mask. If a ReLU comes first, backward only needs the output, which the next layer stores anyway.

    Args:
        x (torch.Tensor): Any shape: float32, float64, float16 or bfloat16.
        seed (torch.Tensor): An int64 scalar on the device of :obj:`x`.
        p (float): The probability with which an element is dropped.
        relu (bool, optional): If :obj:`True`, applies a ReLU to :obj:`x` first. (default: :obj:`False`)
        first (int, optional): The position of the first element, for a tile of a larger tensor.
            (default: :obj:`0`)

    Returns:
        torch.Tensor: A tensor of the shape of :obj:`x`, differentiable in :obj:`x`.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape, device or value.

    Example:
        >>> import torch
        >>> from gpn_ops import ops
        >>> ops.dropout(torch.ones(8), torch.tensor(3), 0.5)
        tensor([2., 2., 0., 0., 2., 0., 0., 2.])
    """
    return torch.ops.gpn.dropout(x, seed, p, relu, first)


def dropout_(x: Tensor, seed: Tensor, p: float, relu: bool = False, first: int = 0) -> Tensor:
    r"""As :func:`dropout`, in place and without a gradient.

    Args:
        x (torch.Tensor): Contiguous.
        seed, p, relu, first: As in :func:`dropout`.

    Returns:
        torch.Tensor: :obj:`x`

    Raises:
        RuntimeError: As :func:`dropout`; :obj:`x` is then unchanged.

    Example:
        >>> import torch
        >>> from gpn_ops import ops
        >>> ops.dropout_(torch.tensor([-1.0, 1.0]), torch.tensor(0), 0.0, relu=True)
        tensor([0., 1.])
    """
    torch.ops.gpn.dropout_(x, seed, p, relu, first)
    return x


def scale_of_kept(p: float) -> float:
    """The factor by which kept elements are multiplied."""
    dropped = round(p * LANE) / LANE
    return 0.0 if dropped == 1 else 1 / (1 - dropped)


def check_seed(seed: Tensor, other_name: str, other: Tensor) -> None:
    check_dtype("seed", seed, torch.int64)
    check(seed.dim() == 0, lambda: f"seed: expected a scalar, got shape {list(seed.shape)}")
    check_device("seed", seed, other_name, other)


def check_dropout(x: Tensor, seed: Tensor, p: float, first: int | torch.SymInt) -> None:
    check_floating("x", x)
    check_seed(seed, "x", x)
    if not 0 <= p <= 1:
        raise RuntimeError(f"p: expected a probability, got {p:g}")
    check_count("first", first)


def random_words(seed: Tensor, place: Tensor) -> Tensor:
    """SplitMix64, as in csrc/core/random.h."""

    def mixed(z: Tensor, shift: int, factor: int) -> Tensor:
        return (z ^ ((z >> shift) & (2 ** (64 - shift) - 1))) * factor

    z = seed + (place + 1) * -0x61C8864680B583EB
    z = mixed(mixed(z, 30, -0x40A7B892E31B1A47), 27, -0x6B2FB644ECCEEE15)
    return mixed(z, 31, 1)


@plain_form("dropout")
def plain_dropout(x: Tensor, seed: Tensor, p: float, relu: bool = False, first: int = 0) -> Tensor:
    """As :func:`dropout`; gradients come from autograd."""
    check_dropout(x, seed, p, first)
    place = torch.arange(first, first + x.numel(), device=x.device)
    lane = (random_words(seed, place >> 2) >> (16 * (place & 3))) & (LANE - 1)
    wide = x.to(sum_dtype(x))
    factor = (lane >= round(p * LANE)).to(wide.dtype) * scale_of_kept(p)
    return ((wide.relu() if relu else wide) * factor.view(x.shape)).to(x.dtype)


@plain_form("dropout_")
def plain_dropout_(x: Tensor, seed: Tensor, p: float, relu: bool = False, first: int = 0) -> None:
    """As :func:`dropout_`."""
    _check_in_place(x, seed, p, first)
    x.copy_(plain_dropout(x, seed, p, relu, first))


def _check_in_place(x: Tensor, seed: Tensor, p: float, first: int) -> None:
    check_dropout(x, seed, p, first)
    check_contiguous("x", x)


@torch.library.register_fake("gpn::dropout")
def _(x: Tensor, seed: Tensor, p: float, relu: bool = False, first: int = 0) -> Tensor:
    check_dropout(x, seed, p, first)
    return x.new_empty(x.shape)


@torch.library.register_fake("gpn::dropout_")
def _(x: Tensor, seed: Tensor, p: float, relu: bool = False, first: int = 0) -> None:
    _check_in_place(x, seed, p, first)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, seed, ctx.p, ctx.relu, ctx.first = inputs
    ctx.save_for_backward(*((output,) if ctx.relu else (seed,)))


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (saved,) = ctx.saved_tensors
    if ctx.relu:  # Positive elements were kept.
        grad = torch.ops.aten.threshold_backward(grad, saved, 0)
        scale = scale_of_kept(ctx.p)
        return grad * scale if torch.is_grad_enabled() else grad.mul_(scale), None, None, None, None
    return dropout(grad, saved, ctx.p, False, ctx.first), None, None, None, None


derivatives.register("dropout", _backward, _save)
derivatives.register_none("dropout_")
