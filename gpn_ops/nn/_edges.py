"""Edge lists as users hand them over."""

from torch import Tensor
from torch_geometric import EdgeIndex


def plain(edge_index: Tensor) -> Tensor:
    """The edges as an ordinary tensor: the operators have no use for what an ``EdgeIndex`` knows besides."""
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
