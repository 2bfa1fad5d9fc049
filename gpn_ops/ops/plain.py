"""Registers plain-PyTorch forms as kernels for devices that have none.

They are slower, and their float sums are only as reproducible as torch's own. Integer results are the same.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from .. import library

Function = TypeVar("Function", bound=Callable[..., Any])

PLAIN_FORMS: dict[str, Callable[..., Any]] = {}
"""The plain form of every operator, by name."""


@functools.cache
def _warn_of_missing_cuda_kernels() -> None:
    warnings.warn(
        f"gpn_ops runs without its CUDA kernels, on slower plain PyTorch: {library.cuda_status()}",
        stacklevel=4,
    )


def plain_form(name: str) -> Callable[[Function], Function]:
    """Registers a function with the signature of csrc/schema.cpp as the plain form of ``gpn::name``."""

    def register(function: Function) -> Function:
        @torch.library.impl(f"gpn::{name}", "CompositeExplicitAutograd")
        def _(first: Tensor | None, *arguments: Any) -> Any:
            if first is not None and first.is_cuda:
                _warn_of_missing_cuda_kernels()
            return function(first, *arguments)

        PLAIN_FORMS[name] = function
        return function

    return register


def padded(ids: Tensor, size: int, fits: bool = True) -> Tensor:
    """Ids, padded with -1 to ``size`` in the last dimension; if they do not fit, -1 only."""
    out = ids.new_full((*ids.shape[:-1], size), -1)
    if fits:
        out[..., : ids.size(-1)] = ids
    return out
