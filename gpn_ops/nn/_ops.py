"""TEMPORARY: where the layers take their operators from."""

from gpn_ops.ops import parse
from gpn_ops.reference import (
    accumulate_,
    coarsen,
    mask,
    pair_dot,
    pair_product,
    pair_product_backward_,
    reduce,
    undirected,
)

__all__ = [
    "accumulate_",
    "coarsen",
    "mask",
    "pair_dot",
    "pair_product",
    "pair_product_backward_",
    "parse",
    "reduce",
    "undirected",
]
