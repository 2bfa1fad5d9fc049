"""The graph-parsing operator of Graph Parsing Networks (ICLR 2024) for PyTorch."""

from . import _library, reference  # noqa: F401
from ._version import __version__
from .ops import components, dominant, parse

__all__ = ["__version__", "components", "dominant", "parse", "reference"]
