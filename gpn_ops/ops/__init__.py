"""The operators, one per file: function, plain-PyTorch form, fake kernel and gradient."""

from .coarsen import (
    Coarse,
    OrderedCoarse,
    PaddedCoarse,
    coarsen,
    coarsen_ordered,
    coarsen_padded,
    gives_order,
)
from .components import components
from .dominant import dominant
from .dropout import dropout, dropout_
from .edge_logits import edge_logits
from .lift import lift
from .mask import Mask, mask
from .pair_dot import pair_dot
from .pair_product import pair_product, pair_product_backward_
from .parse import parse
from .partition import partition
from .progress import Progress, Sizes, coarsen_batch, progress
from .reduce import accumulate_, cluster_sizes, reduce
from .residual import residual, residual_sum
from .sorted_pairs import sorted_pairs
from .undirected import Undirected, undirected

__all__ = [
    "Coarse",
    "Mask",
    "OrderedCoarse",
    "PaddedCoarse",
    "Progress",
    "Sizes",
    "Undirected",
    "accumulate_",
    "cluster_sizes",
    "coarsen",
    "coarsen_batch",
    "coarsen_ordered",
    "coarsen_padded",
    "components",
    "dominant",
    "dropout",
    "dropout_",
    "edge_logits",
    "gives_order",
    "lift",
    "mask",
    "pair_dot",
    "pair_product",
    "pair_product_backward_",
    "parse",
    "partition",
    "progress",
    "reduce",
    "residual",
    "residual_sum",
    "sorted_pairs",
    "undirected",
]
