"""What users hand over, made uniform."""

import torch
from torch import Tensor
from torch_geometric import EdgeIndex


def plain(edge_index: Tensor) -> Tensor:
    """The edges as an ordinary tensor: the operators have no use for what an ``EdgeIndex`` knows besides."""
    return edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index


def graph_of_node(batch: Tensor | None, x: Tensor) -> Tensor:
    """The graph of every node: the first one where ``batch`` does not tell.

    Raises:
        ValueError: if ``batch`` does not have a number for every row of ``x``.
    """
    if batch is None:
        return torch.zeros(x.size(0), dtype=torch.int64, device=x.device)
    if batch.dim() != 1 or batch.size(0) != x.size(0):
        raise ValueError(f"batch: expected shape [{x.size(0)}], got {list(batch.shape)}")
    return batch
