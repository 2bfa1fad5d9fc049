"""The dominant edge of every node."""

import torch
from torch import Tensor

from .. import keys
from ..checks import check_tensor
from .components import checked_num_nodes, fake_per_node
from .plain import plain_form


def dominant(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    r"""The dominant edge of every node: the edge of its own row with the highest score. Among equal scores,
    the lowest edge id wins.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`, in any order.
        scores (torch.Tensor): A score per edge, :math:`[m]`: float32, float64, float16 or bfloat16.
        num_nodes (int, optional): The number of nodes :math:`n`; see :func:`parse`. (default: :obj:`None`)

    Returns:
        torch.Tensor: An edge id per node, int64 :math:`[n]`; -1 for a node without an edge in its row.

    Raises:
        RuntimeError: As :func:`parse`.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> gpn_ops.dominant(edge_index, torch.tensor([0.5, 0.5, 0.7, 0.7]), num_nodes=4)
        tensor([ 0,  2,  3, -1])
    """
    return torch.ops.gpn.dominant(edge_index, scores, num_nodes)


@plain_form("dominant")
def plain_dominant(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    """As :func:`dominant`; values are checked on every device."""
    check_tensor("scores", scores)
    num_nodes = checked_num_nodes(edge_index, scores, num_nodes)
    return dominant_of_rows(edge_index[0].long(), scores.detach(), num_nodes)


def dominant_of_rows(row: Tensor, scores: Tensor, num_nodes: int) -> Tensor:
    # Two exact reductions instead of an argmax: the highest score of each row, then the lowest id with it.
    # Both are of integers, so the order in which a device applies them does not matter.
    num_edges = row.numel()
    codes = keys.codes(scores)
    highest = codes.new_full((num_nodes,), keys.no_edge(codes.dtype)).scatter_reduce_(0, row, codes, "amax")
    edge = torch.arange(num_edges, device=row.device)
    candidate = torch.where(codes == highest.index_select(0, row), edge, num_edges)
    lowest = edge.new_full((num_nodes,), num_edges).scatter_reduce_(0, row, candidate, "amin")
    return torch.where(lowest < num_edges, lowest, -1)


@torch.library.register_fake("gpn::dominant")
def _(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    check_tensor("scores", scores)
    return fake_per_node(edge_index, scores, num_nodes)


@torch.library.register_fake("gpn::_dominant")
def _(edge_index: Tensor, scores: Tensor, num_nodes: int, form: str, first_edge: int = 0) -> Tensor:
    check_tensor("scores", scores)
    return fake_per_node(edge_index, scores, num_nodes)
