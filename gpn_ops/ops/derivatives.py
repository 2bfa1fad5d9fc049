"""Which derivatives the operators have: those of first order, in reverse mode, and those of higher order
where backward is made of operators again. All others raise: torch alone would give zeros, at most with a
warning.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .transforms import check_not_grad, register_vmap


class _WithoutForwardMode(torch.library.Library):
    """A library whose kernels for autograd refuse tensors that carry a tangent."""

    def impl(self, op_name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        def kernel(*inputs: Any, **keywords: Any) -> Any:
            # The level first: outside of forward mode this costs next to nothing.
            if forward_ad._current_level >= 0 and any(map(_has_tangent, _tensors(inputs))):
                raise RuntimeError(
                    f"gpn::{op_name}: forward-mode derivatives (torch.func.jvp, dual tensors) are not "
                    "implemented; use reverse mode"
                )
            check_not_grad(f"gpn::{op_name}")
            return fn(*inputs, **keywords)

        super().impl(op_name, kernel, *args, **kwargs)


def _tensors(args: Iterable[Any]) -> Iterable[Tensor]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from _tensors(arg)


def _has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None


_LIBRARY = _WithoutForwardMode("gpn", "FRAGMENT")
register_vmap(_LIBRARY)


def register(name: str, backward: Callable[..., Any], setup_context: Callable[..., Any]) -> None:
    """Gives an operator its gradient, as :func:`torch.library.register_autograd`; forward mode raises."""
    torch.library.register_autograd(f"gpn::{name}", backward, setup_context=setup_context, lib=_LIBRARY)


def register_last(name: str, instead: str) -> None:
    """For an operator that is a gradient and has none itself: a derivative of it raises, saying what to do
    instead."""

    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(f"gpn::{name}: second derivatives are not implemented; {instead}")

    register(name, backward, lambda ctx, inputs, output: None)


def register_none(name: str) -> None:
    """For an operator that works in place and has no gradient: it raises where one would be recorded."""
    operator = getattr(torch.ops.gpn, name).default

    def kernel(keyset: Any, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in _tensors(args)):
            raise RuntimeError(f"gpn::{name}: has no gradient; detach its arguments")
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *args)

    _LIBRARY.impl(name, kernel, "Autograd", with_keyset=True)
