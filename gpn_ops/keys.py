"""Scores as integers with the same order, which sharded and streamed parsing compare.

A dominant edge is a maximum, and a maximum can be taken part by part. For each node, a part reports the code
of its best score: a signed integer in the order of csrc/core/dominance.h. It need not report the edge id.
Within a part, the lowest id has already won; and parts come in the order of the edges, so among equal codes
the first part wins.
"""

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .checks import SCORE_DTYPES

# The most that the functions here hold per node of a tile (for float64, where a code takes 8 bytes).
TILE_BYTES_PER_NODE = 64


def count(name: str, value: Any) -> int:
    """Checks for a non-negative integer; the operators also accept None and other kinds of numbers."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise RuntimeError(f"{name}: expected a non-negative integer, got {value}")
    return number


def code_dtype(scores: torch.dtype) -> torch.dtype:
    """The integer dtype of the codes of such scores."""
    assert scores in SCORE_DTYPES
    return torch.int64 if scores == torch.float64 else torch.int32


def no_edge(code: torch.dtype) -> int:
    """A value below every code."""
    return torch.iinfo(code).min


def codes(scores: Tensor) -> Tensor:
    """Signed integers in the order of the scores: NaN < -inf < ... < -0.0 == 0.0 < ... < inf.

    Example:
        >>> import torch
        >>> codes(torch.tensor([float("-inf"), -1.0, -0.0, 0.0, 1.0])).argsort(stable=True)
        tensor([0, 1, 2, 3, 4])
        >>> codes(torch.tensor([-0.0, 0.0, 1.0]))
        tensor([         0,          0, 1065353216], dtype=torch.int32)
    """
    code = code_dtype(scores.dtype)
    wide = scores.detach().to(torch.float64 if code == torch.int64 else torch.float32)
    # Bit operations only: under torch.set_flush_denormal() arithmetic would flush subnormal scores.
    bits = wide.view(code)
    magnitude = bits & torch.iinfo(code).max
    return torch.where(bits < 0, -magnitude, magnitude).masked_fill_(wide.isnan(), no_edge(code) + 1)


def best_of_part(
    edge_index: Tensor, scores: Tensor, dominant: Tensor, node: slice
) -> tuple[Tensor, Tensor, Tensor]:
    """The best edges of a tile of nodes among a part of the edges.

    Args:
        edge_index: the part, ``[2, num_edges]``.
        scores: its scores, ``[num_edges]``.
        dominant: the dominant edge of every node within the part, ``[num_nodes]``, -1 where there is none.
        node: the tile.

    Returns:
        The code of the best score, the column of that edge, and whether there is an edge, each ``[tile]``.
        Without an edge, the code is :func:`no_edge` and the column is undefined.
    """
    edge = dominant[node]
    has_edge = edge >= 0
    code = code_dtype(scores.dtype)
    if scores.numel() == 0:
        return torch.full_like(edge, no_edge(code), dtype=code), torch.zeros_like(edge), has_edge
    edge = edge.clamp(min=0)
    best = codes(scores.detach().index_select(0, edge)).masked_fill_(~has_edge, no_edge(code))
    return best, edge_index[1].index_select(0, edge).to(torch.int64), has_edge


def tiles(num_nodes: int, tile_bytes: int) -> Iterator[slice]:
    """The nodes in tiles of at least one node, for which the functions here hold at most so many bytes."""
    step = max(1, tile_bytes // TILE_BYTES_PER_NODE)
    return (slice(begin, min(begin + step, num_nodes)) for begin in range(0, num_nodes, step))


def self_choices(num_nodes: int, device: torch.device) -> Tensor:
    """An edge list in which every node chooses itself: int64 ``[2, num_nodes]``. The caller overwrites the
    second row for nodes with an edge; the others stay alone."""
    choices = torch.empty(2, num_nodes, dtype=torch.int64, device=device)
    torch.arange(num_nodes, out=choices[0])
    choices[1] = choices[0]
    return choices
