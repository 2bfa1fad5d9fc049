"""The operators as typed functions, one file each: contract, fake kernels, gradients."""

from .parsing import components, dominant, parse

__all__ = ["components", "dominant", "parse"]
