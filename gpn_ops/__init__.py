"""The graph-parsing operator of Graph Parsing Networks (ICLR 2024) for PyTorch."""

from . import library, reference  # noqa: F401
from ._version import __version__
from .chunks import parse_chunks
from .ops import (
    Coarse,
    Mask,
    PaddedCoarse,
    Undirected,
    accumulate_,
    cluster_sizes,
    coarsen,
    components,
    dominant,
    lift,
    mask,
    pair_dot,
    pair_product,
    pair_product_backward_,
    parse,
    reduce,
    undirected,
)

__all__ = [
    "Coarse",
    "Mask",
    "PaddedCoarse",
    "Undirected",
    "__version__",
    "accumulate_",
    "cluster_sizes",
    "coarsen",
    "components",
    "dominant",
    "lift",
    "mask",
    "pair_dot",
    "pair_product",
    "pair_product_backward_",
    "parse",
    "parse_chunks",
    "reduce",
    "reference",
    "undirected",
]
