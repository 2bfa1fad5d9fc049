"""Registers the derivatives of the operators.

Operators have first derivatives in reverse mode, and higher ones if their backward consists of operators with
derivatives. All other derivatives raise; torch alone would return zeros, at most with a warning.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function, unwrap_dead_wrappers
from torch.autograd import forward_ad
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction

from .vmap import register_vmap


class _Library(torch.library.Library):
    """A library whose autograd kernels raise for tensors that carry a tangent."""

    def __init__(self) -> None:
        super().__init__("gpn", "FRAGMENT")

    def impl(self, op_name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        def kernel(*inputs: Any, **keywords: Any) -> Any:
            # Test the level first: outside forward mode this costs next to nothing.
            if forward_ad._current_level >= 0 and any(map(_has_tangent, _tensors(inputs))):
                raise RuntimeError(
                    f"gpn::{op_name}: forward-mode derivatives (torch.func.jvp, dual tensors) are not "
                    "implemented; use reverse mode"
                )
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


_LIBRARY = _Library()
register_vmap(_LIBRARY)


def register(name: str, backward: Callable[..., Any], setup_context: Callable[..., Any]) -> None:
    """Registers the gradient of an operator. Unlike :func:`torch.library.register_autograd`, this works
    inside ``torch.func`` and needs less work per call, which matters for small graphs. Forward mode
    raises."""
    _LIBRARY.impl(name, _with_gradient(name, backward, setup_context), "Autograd", with_keyset=True)


def _with_gradient(
    name: str, backward: Callable[..., Any], setup_context: Callable[..., Any]
) -> Callable[..., Any]:
    """The autograd kernel. A transform of ``torch.func`` calls it with one level of tensors unwrapped: only
    this level gets the gradient."""
    operator = getattr(torch.ops.gpn, name).default
    schema = operator._schema
    defaults = [argument.default_value for argument in schema.arguments]
    returns_list = isinstance(schema.returns[0].type, torch.ListType)

    def below(keyset: Any, args: Sequence[Any]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *args)

    def forward(ctx: Any, keyset: Any, lengths: list[int | None], *flat: Any) -> Any:
        args = _restored(flat, lengths)
        if torch._C._are_functorch_transforms_active():
            # The levels below may have gradients and tangents of their own, which torch turns off in here.
            with torch.enable_grad(), _set_fwd_grad_enabled(True):
                output = below(keyset, args)
        else:
            output = below(keyset, args)
        setup_context(ctx, (*args, *defaults[len(args) :]), output)  # The dispatcher leaves defaults out.
        ctx.lengths = lengths
        # Of a list, torch would take no gradient.
        return tuple(output) if isinstance(output, list) else output

    def flat_backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *_flattened(backward(ctx, *grads)[: len(ctx.lengths)])

    methods = {"forward": staticmethod(forward), "backward": staticmethod(flat_backward)}
    function: Any = type(f"Gradient of gpn::{name}", (_SingleLevelFunction,), methods)

    def kernel(keyset: Any, *args: Any) -> Any:
        if not (torch.is_grad_enabled() and torch._C._any_requires_grad(*args)):
            return below(keyset, args)
        lengths = [len(arg) if isinstance(arg, list) else None for arg in args]
        flat = unwrap_dead_wrappers(_flattened(args))
        if torch._C._are_functorch_transforms_active():
            with enable_single_level_autograd_function():
                output = function.apply(keyset, lengths, *flat)
        else:
            output = function.apply(keyset, lengths, *flat)
        return list(output) if returns_list else output

    return kernel


def _flattened(args: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments, with lists replaced by their items."""
    return tuple(item for arg in args for item in (arg if isinstance(arg, list) else (arg,)))


def _restored(flat: Sequence[Any], lengths: Sequence[int | None]) -> list[Any]:
    items = iter(flat)
    return [next(items) if length is None else list(itertools.islice(items, length)) for length in lengths]


def register_last(name: str, instead: str) -> None:
    """For an operator that is a gradient and has none itself: taking its derivative raises an error that
    names the alternative."""

    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(f"gpn::{name}: second derivatives are not implemented; {instead}")

    register(name, backward, lambda ctx, inputs, output: None)


def register_none(name: str) -> None:
    """For an in-place operator without a gradient: raises if autograd would record it."""
    operator = getattr(torch.ops.gpn, name).default

    def kernel(keyset: Any, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in _tensors(args)):
            raise RuntimeError(f"gpn::{name}: has no gradient; detach its arguments")
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset & torch._C._after_autograd_keyset, *args)

    _LIBRARY.impl(name, kernel, "Autograd", with_keyset=True)
