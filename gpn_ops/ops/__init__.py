"""The operators as typed functions, one subject a file: contract, fake kernels, gradients."""

from ..reference.pooling import Coarse, Mask, Undirected
from . import _plain  # noqa: F401
from .coarsening import coarsen
from .masking import mask
from .parsing import components, dominant, parse
from .reducing import accumulate_, cluster_sizes, lift, reduce
from .scoring import pair_dot, pair_product, pair_product_backward_, undirected

__all__ = [
    "Coarse",
    "Mask",
    "Undirected",
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
    "reduce",
    "undirected",
]
