"""When an operator may stand in for the children of a layer, and how they are called when it may not."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import LayerNorm, Linear, Module, Parameter

from gpn_ops.ops.tiles import LAYER_NORM_EPS, autocast_off, wide_dtype


def are_plain(modules: Iterable[Module], channels: int) -> bool:
    """Whether calling these modules does no more than apply their parameters: each is a Linear of torch
    itself, or a LayerNorm of so many channels, as the layers make them, without hooks of its own."""
    return all(_is_plain(module, channels) for module in modules)


def _is_plain(module: Module, channels: int) -> bool:
    if type(module) is LayerNorm:
        if module.eps != LAYER_NORM_EPS or module.normalized_shape != (channels,):
            return False
    elif type(module) is not Linear:
        return False
    return (
        # None is a layer without a bias; a subclass of Tensor (quantised, sharded) has products of its own.
        type(module.weight) in (Parameter, Tensor)
        and type(module.bias) in (Parameter, Tensor)
        and is_untouched(module)
    )


def is_untouched(module: Module) -> bool:
    """Whether a call of a module is a call of its class: no hooks of its own, no other forward."""
    return (
        not module._forward_hooks
        and not module._forward_pre_hooks
        and not module._backward_hooks
        and not module._backward_pre_hooks
        and module._compiled_call_impl is None
        and "forward" not in module.__dict__
    )


# What a layer may keep for backward where that is left to us: little beside the features of a large graph.
KEPT_BYTES = 2**22
# Of one that is compiled for its size. It computes padding too, which keeping more makes up for.
KEPT_BYTES_COMPILED = 2**26


def keeps_nothing(recompute: bool | str, kept_values: int) -> bool:
    """Whether an MLP that could keep so many values for backward is to keep none."""
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
    """Weight and bias of plain modules, in their order."""
    return [parameter for module in modules for parameter in (module.weight, module.bias)]


def call_wide(module: Module, x: Tensor) -> Tensor:
    """``module(x)`` with half precision widened to float32: features, parameters, and autocast off."""
    x = x.to(wide_dtype(x.dtype))
    named = chain(module.named_parameters(), module.named_buffers())
    half = {name: t.to(x.dtype) for name, t in named if t.dtype in (torch.float16, torch.bfloat16)}
    with autocast_off(x.device):
        return torch.func.functional_call(module, half, (x,)) if half else module(x)
