"""Registers the derivatives of the operators.

They have first derivatives in reverse mode, and higher ones if backward consists of operators with
derivatives. All others raise; without this, torch would return zeros, at most with a warning.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from .vmap import register_vmap


class _Library(torch.library.Library):
    """A library whose autograd kernels reject tensors with a tangent and work inside the transforms of
    ``torch.func``, unlike those of ``torch.library``."""

    def __init__(self) -> None:
        super().__init__("gpn", "FRAGMENT")
        self.in_transforms: dict[str, Callable[..., Any]] = {}

    def impl(self, op_name: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        def kernel(*inputs: Any, **keywords: Any) -> Any:
            # Test the level first: outside forward mode this costs next to nothing.
            if forward_ad._current_level >= 0 and any(map(_has_tangent, _tensors(inputs))):
                raise RuntimeError(
                    f"gpn::{op_name}: forward-mode derivatives (torch.func.jvp, dual tensors) are not "
                    "implemented; use reverse mode"
                )
            if op_name in self.in_transforms and _takes_gradients():
                return self.in_transforms[op_name](*inputs, **keywords)
            return fn(*inputs, **keywords)

        super().impl(op_name, kernel, *args, **kwargs)


def _tensors(args: Iterable[Any]) -> Iterable[Tensor]:
    for arg in args:
        if isinstance(arg, Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from _tensors(arg)


def _takes_gradients() -> bool:
    """Whether the innermost active transform of ``torch.func`` is a gradient, not ``vmap``."""
    if not torch._C._are_functorch_transforms_active():
        return False
    innermost = torch._C._functorch.peek_interpreter_stack()
    return innermost is not None and innermost.key() == TransformType.Grad


def _has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None


_LIBRARY = _Library()
register_vmap(_LIBRARY)


def register(name: str, backward: Callable[..., Any], setup_context: Callable[..., Any]) -> None:
    """Registers a gradient, as :func:`torch.library.register_autograd` does; forward mode raises."""
    _LIBRARY.in_transforms[name] = _in_transforms(name, backward, setup_context)
    torch.library.register_autograd(f"gpn::{name}", backward, setup_context=setup_context, lib=_LIBRARY)


def _in_transforms(
    name: str, backward: Callable[..., Any], setup_context: Callable[..., Any]
) -> Callable[..., Any]:
    """The autograd kernel for calls from a transform of ``torch.func``, which has unwrapped one level of
    tensors: that of :func:`torch.library.register_autograd`, for this level only."""
    operator = getattr(torch.ops.gpn, name).default
    returns_list = isinstance(operator._schema.returns[0].type, torch.ListType)

    def forward(ctx: Any, keyset: Any, spec: Any, *flat: Any) -> Any:
        args = tree_unflatten(list(flat), spec)
        # The levels below may have their own gradients and tangents, which torch disables here.
        with torch.enable_grad(), _set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
            output = operator.redispatch(keyset & torch._C._after_autograd_keyset, *args)
        rest = operator._schema.arguments[len(args) :]  # The dispatcher omits defaults.
        setup_context(ctx, (*args, *(argument.default_value for argument in rest)), output)
        ctx.num_args = len(args)
        # torch takes no gradients of lists.
        return tuple(output) if isinstance(output, list) else output

    def flat_backward(ctx: Any, *grads: Any) -> Any:
        return None, None, *tree_leaves(backward(ctx, *grads)[: ctx.num_args])

    methods = {"forward": staticmethod(forward), "backward": staticmethod(flat_backward)}
    function: Any = type(f"Gradient of gpn::{name}", (_SingleLevelFunction,), methods)

    def kernel(keyset: Any, *args: Any) -> Any:
        flat, spec = tree_flatten(args)
        with enable_single_level_autograd_function():
            output = function.apply(keyset, spec, *flat)
        return list(output) if returns_list else output

    return kernel


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
