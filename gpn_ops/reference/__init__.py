"""The operators in plain PyTorch: what the compiled ones are tested against, and what serves other devices."""

from .parsing import algorithm1, components, dominant, gen, parse

__all__ = ["algorithm1", "components", "dominant", "gen", "parse"]
