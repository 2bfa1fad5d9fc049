"""The graph-parsing operator of Graph Parsing Networks (ICLR 2024) for PyTorch."""

from . import _library  # noqa: F401
from ._version import __version__

__all__ = ["__version__"]
