"""The undirected edges of an edge list."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_count, check_metadata, check_values
from .plain import padded, plain_form


class Undirected(NamedTuple):
    """The undirected edges of an edge list."""

    pairs: Tensor
    """int64 ``[2, num_pairs]``, ``pairs[0] <= pairs[1]``, sorted by first then second node, unique."""
    slot: Tensor
    """int64 ``[num_edges]``: the pair of each edge. An edge, its reverse and its duplicates share one."""


def undirected(edge_index: Tensor, num_nodes: int) -> Undirected:
    r"""The undirected edges of an edge list, and the undirected edge that each edge belongs to.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`, in any order, in one or both
            directions.
        num_nodes (int): The number of nodes.

    Returns:
        Undirected: ``pairs``, int64 :math:`[2, u]` with ``pairs[0] <= pairs[1]``, unique and sorted by first
        then second node; and ``slot``, int64 :math:`[m]`, the pair of each edge. An edge, its reverse and its
        duplicates share a slot, so ``value_per_pair[slot]`` is the same for all of them. CUDA waits for the
        device once.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape, device or value; on CUDA, an id out of range
            trips a device-side assertion.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.undirected(torch.tensor([[0, 2, 1, 1], [1, 1, 0, 1]]), num_nodes=3)
        Undirected(pairs=tensor([[0, 1, 1],
                [1, 1, 2]]), slot=tensor([0, 2, 0, 1]))
    """
    return Undirected(*torch.ops.gpn.undirected(edge_index, num_nodes))


@plain_form("undirected")
def plain_undirected(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """As :func:`undirected`."""
    check_metadata(edge_index, None, num_nodes)
    check_values(edge_index, None, num_nodes)
    low, high = edge_index.long().min(dim=0).values, edge_index.long().max(dim=0).values
    return torch.unique(torch.stack([low, high]), dim=1, sorted=True, return_inverse=True)


@plain_form("undirected_padded")
def plain_undirected_padded(
    edge_index: Tensor, num_nodes: int, num_pairs: int
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`undirected`, padded to ``num_pairs``; the last result holds 0 and the number of pairs."""
    check_metadata(edge_index, None, num_nodes)
    check_count("num_pairs", num_pairs)
    pairs, slot = plain_undirected(edge_index, num_nodes)
    fits = pairs.size(1) <= num_pairs
    count = torch.tensor([0, pairs.size(1)], device=pairs.device)
    return padded(pairs, num_pairs, fits), slot if fits else torch.full_like(slot, -1), count


@torch.library.register_fake("gpn::undirected")
def _(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    check_metadata(edge_index, None, num_nodes)
    num_pairs = torch.library.get_ctx().new_dynamic_size()
    return (
        edge_index.new_empty((2, num_pairs), dtype=torch.int64),
        edge_index.new_empty(edge_index.size(1), dtype=torch.int64),
    )


@torch.library.register_fake("gpn::undirected_padded")
def _(edge_index: Tensor, num_nodes: int, num_pairs: int) -> tuple[Tensor, Tensor, Tensor]:
    check_metadata(edge_index, None, num_nodes)
    check_count("num_pairs", num_pairs)
    shapes = ((2, num_pairs), (edge_index.size(1),), (2,))
    pairs, slot, count = (edge_index.new_empty(shape, dtype=torch.int64) for shape in shapes)
    return pairs, slot, count
