"""The operators in plain PyTorch: what the compiled ones are tested against, and what other devices run."""

from .parsing import algorithm1, components, dominant, gen, parse
from .pooling import (
    Coarse,
    Mask,
    Undirected,
    accumulate_,
    coarsen,
    dense_adjacency,
    dense_coarsen,
    mask,
    pair_dot,
    pair_product,
    pair_product_backward_,
    reduce,
    undirected,
)

__all__ = [
    "Coarse",
    "Mask",
    "Undirected",
    "accumulate_",
    "algorithm1",
    "coarsen",
    "components",
    "dense_adjacency",
    "dense_coarsen",
    "dominant",
    "gen",
    "mask",
    "pair_dot",
    "pair_product",
    "pair_product_backward_",
    "parse",
    "reduce",
    "undirected",
]
