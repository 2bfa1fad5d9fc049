"""The undirected edges of a sorted edge list."""

import torch
from torch import Tensor

from ..checks import check_count, check_metadata, check_values
from .plain import plain_form
from .undirected import Undirected


def sorted_pairs(edge_index: Tensor, num_nodes: int, num_pairs: int) -> Undirected:
    r"""The result of :func:`gpn_ops.undirected`, without a sort and without waiting for the device.

    The edges must be like those of :func:`gpn_ops.coarsen`: sorted by row then column, without duplicates,
    and each with its reverse.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`.
        num_nodes (int): The number of nodes.
        num_pairs (int): The number of undirected edges: half the number of edges, counting self-loops twice.

    Raises:
        RuntimeError: If the edges are not of this form; on CUDA, an edge without its reverse trips a
            device-side assertion.

    Example:
        >>> import torch
        >>> from gpn_ops.ops import sorted_pairs
        >>> sorted_pairs(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3, num_pairs=2)
        Undirected(pairs=tensor([[0, 1],
                [1, 2]]), slot=tensor([0, 0, 1, 1]))
    """
    return Undirected(*torch.ops.gpn.sorted_pairs(edge_index, num_nodes, num_pairs))


def check_sorted_pairs(edge_index: Tensor, num_nodes: int, num_pairs: int) -> None:
    check_metadata(edge_index, None, num_nodes)
    check_count("num_pairs", num_pairs)


@plain_form("sorted_pairs")
def plain_sorted_pairs(edge_index: Tensor, num_nodes: int, num_pairs: int) -> tuple[Tensor, Tensor]:
    """As :func:`sorted_pairs`."""
    check_sorted_pairs(edge_index, num_nodes, num_pairs)
    check_values(edge_index, None, num_nodes)
    edges = edge_index.long()
    key, reverse = edges[0] * num_nodes + edges[1], edges[1] * num_nodes + edges[0]
    bad = (key[1:] <= key[:-1]).nonzero()
    if bad.numel() > 0:
        raise RuntimeError(
            "edge_index: expected edges sorted by row then column, each once, got others at "
            f"edge_index[:, {int(bad[0, 0]) + 1}]"
        )
    at = torch.searchsorted(key, reverse).clamp(max=max(key.size(0) - 1, 0))
    missing = (key[at] != reverse).nonzero()
    if missing.numel() > 0:
        raise RuntimeError(
            "edge_index: expected the reverse of every edge, got none of "
            f"edge_index[:, {int(missing[-1, 0])}]"
        )
    ascends = edges[0] <= edges[1]
    rank = ascends.cumsum(0) - 1
    pairs = edges[:, ascends]
    if pairs.size(1) != num_pairs:
        raise RuntimeError(f"num_pairs: expected {pairs.size(1)}, got {num_pairs}")
    return pairs, torch.where(ascends, rank, rank[at])


@torch.library.register_fake("gpn::sorted_pairs")
def _(edge_index: Tensor, num_nodes: int, num_pairs: int) -> tuple[Tensor, Tensor]:
    check_sorted_pairs(edge_index, num_nodes, num_pairs)
    return (
        edge_index.new_empty((2, num_pairs), dtype=torch.int64),
        edge_index.new_empty(edge_index.size(1), dtype=torch.int64),
    )
