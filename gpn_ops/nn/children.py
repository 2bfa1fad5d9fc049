"""Decides whether an operator may replace the children of a layer, and calls them if it may not."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import LayerNorm, Linear, Module, Parameter

from gpn_ops.ops.tiles import LAYER_NORM_EPS, autocast_off, wide_dtype


def are_plain(modules: Iterable[Module], channels: int) -> bool:
    """Whether calling these modules only applies their parameters: each is torch's own Linear, or a LayerNorm
    over ``channels`` as the layers create it, without hooks of its own."""
    return all(_is_plain(module, channels) for module in modules)


def _is_plain(module: Module, channels: int) -> bool:
    if type(module) is LayerNorm:
        if module.eps != LAYER_NORM_EPS or module.normalized_shape != (channels,):
            return False
    elif type(module) is not Linear:
        return False
    return (
        # A layer without a bias has None; a subclass of Tensor (quantised, sharded) has its own products.
        type(module.weight) in (Parameter, Tensor)
        and type(module.bias) in (Parameter, Tensor)
        and is_untouched(module)
    )


def is_untouched(module: Module) -> bool:
    """Whether calling a module only calls the forward of its class: no hooks of its own, no replaced
    forward."""
    return (
        not module._forward_hooks
        and not module._forward_pre_hooks
        and not module._backward_hooks
        and not module._backward_pre_hooks
        and module._compiled_call_impl is None
        and "forward" not in module.__dict__
    )


# The most that recompute="auto" keeps for backward: little beside the features of a large graph.
KEPT_BYTES = 2**22
# Of one that is compiled for its size. It computes padding too, which keeping more makes up for.
KEPT_BYTES_COMPILED = 2**26


def keeps_nothing(recompute: bool | str, kept_values: int) -> bool:
    """Whether an MLP that could keep ``kept_values`` for backward should keep none."""
    if not torch.is_grad_enabled():
        return True
    if recompute == "auto":
        if not torch.compiler.is_compiling():
            return kept_values * 4 > KEPT_BYTES
        # A layer that is compiled for all sizes serves large ones too; what is exported has no backward.
        known = statically_known_true(kept_values * 4 <= KEPT_BYTES_COMPILED)
        return torch.compiler.is_exporting() or not known
    return bool(recompute)


def parameters_of(modules: Iterable[Any]) -> list[Tensor]:
    """Weight and bias of plain modules, in order."""
    return [parameter for module in modules for parameter in (module.weight, module.bias)]


def call_wide(module: Module, x: Tensor) -> Tensor:
    """``module(x)`` in float32 where features or parameters are in half precision, without autocast."""
    x = x.to(wide_dtype(x.dtype))
    named = chain(module.named_parameters(), module.named_buffers())
    half = {name: t.to(x.dtype) for name, t in named if t.dtype in (torch.float16, torch.bfloat16)}
    with autocast_off(x.device):
        return torch.func.functional_call(module, half, (x,)) if half else module(x)
