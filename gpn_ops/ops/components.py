"""Connected components of any edge list."""

import torch
from torch import Tensor

from ..checks import check_metadata, check_values
from .plain import plain_form


def components(edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
    r"""The weakly connected components of any edge list.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`, in any order, in one or both
            directions.
        num_nodes (int, optional): The number of nodes :math:`n`; see :func:`parse`. (default: :obj:`None`)

    Returns:
        torch.Tensor: The component of every node, int64 :math:`[n]`, numbered from 0 in the order of each
        component's smallest node.

    Raises:
        RuntimeError: As :func:`parse`.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> gpn_ops.components(torch.tensor([[0, 3], [2, 4]]), num_nodes=6)
        tensor([0, 1, 0, 2, 2, 3])
    """
    return torch.ops.gpn.components(edge_index, num_nodes)


@plain_form("components")
def plain_components(edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
    """As :func:`components`, in at most log2(num_nodes) rounds of log2(num_nodes) + 1 pointer jumps."""
    num_nodes = checked_num_nodes(edge_index, None, num_nodes)
    return components_of_ends(edge_index[0].long(), edge_index[1].long(), num_nodes)


def checked_num_nodes(edge_index: Tensor, scores: Tensor | None, num_nodes: int | None) -> int:
    check_metadata(edge_index, scores, num_nodes)
    check_values(edge_index, scores, num_nodes)
    if num_nodes is not None:
        return num_nodes
    return int(edge_index.max()) + 1 if edge_index.numel() > 0 else 0


def components_of_ends(row: Tensor, col: Tensor, num_nodes: int) -> Tensor:
    # Boruvka's rounds. Every tree hooks itself along the lowest edge that leaves it. If tree a hooks onto
    # tree b, the edge of a leaves b too, so b's edge is as low or lower. Around a cycle of hooks, all edges
    # are therefore the same one, and the cycle is a pair. Undoing one hook of each pair leaves a forest,
    # which pointer jumping flattens. Every tree with a leaving edge merges, so their number at least halves
    # per round.
    node = torch.arange(num_nodes, device=row.device)
    root = node
    while True:
        leaves = (row != col).nonzero().squeeze(1)
        if leaves.numel() == 0:
            return _number_by_smallest_node(root)
        row, col = row.index_select(0, leaves), col.index_select(0, leaves)

        edge = torch.arange(row.numel(), device=row.device)
        lowest = edge.new_full((num_nodes,), row.numel())
        lowest.scatter_reduce_(0, row, edge, "amin").scatter_reduce_(0, col, edge, "amin")
        tree = (lowest < row.numel()).nonzero().squeeze(1)
        hook = lowest.index_select(0, tree)
        other_end = row.index_select(0, hook) + col.index_select(0, hook) - tree
        parent = node.index_copy(0, tree, other_end)
        is_pair = parent.index_select(0, parent) == node
        parent = torch.where(is_pair & (node < parent), node, parent)

        parent = _flatten(parent)
        root, row, col = (parent.index_select(0, ids) for ids in (root, row, col))


def _flatten(parent: Tensor) -> Tensor:
    # Each jump halves the depth of every node.
    while True:
        grandparent = parent.index_select(0, parent)
        if torch.equal(grandparent, parent):
            return parent
        parent = grandparent


def _number_by_smallest_node(root: Tensor) -> Tensor:
    node = torch.arange(root.numel(), device=root.device)
    smallest_of_root = torch.full_like(root, root.numel()).scatter_reduce_(0, root, node, "amin")
    smallest = smallest_of_root.index_select(0, root)
    return ((smallest == node).cumsum(0) - 1).index_select(0, smallest)


def fake_per_node(edge_index: Tensor, scores: Tensor | None, num_nodes: int | None) -> Tensor:
    check_metadata(edge_index, scores, num_nodes)
    size = torch.library.get_ctx().new_dynamic_size() if num_nodes is None else num_nodes
    return edge_index.new_empty(size, dtype=torch.int64)


@torch.library.register_fake("gpn::components")
def _(edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
    return fake_per_node(edge_index, None, num_nodes)
