"""Parses a graph into the clusters that dominant edges connect."""

import torch
from torch import Tensor

from ..checks import check_tensor
from .components import checked_num_nodes, components_of_ends, fake_per_node
from .dominant import dominant_of_rows
from .plain import plain_form


def parse(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    r"""Parses a graph into clusters, as Algorithm 1 of `"Graph Parsing Networks"
    <https://arxiv.org/abs/2402.14393>`_ does.

    Every node takes the edge of its own row with the highest score; among equal scores the lowest edge id
    wins. The clusters are the weakly connected components of the chosen edges. A node that neither chooses
    nor is chosen is a cluster of its own.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`: ``edge_index[0]`` chooses among
            ``edge_index[1]``. Undirected graphs store both directions. Any order is legal; edges sorted by
            row, as in PyG, are fastest.
        scores (torch.Tensor): A score per edge, :math:`[m]`: float32, float64, float16 or bfloat16.
            Zero and negative scores count like any other; :obj:`-inf` is the lowest. Scores get no gradient
            from this function.
        num_nodes (int, optional): The number of nodes :math:`n`. If :obj:`None`, the largest id plus one;
            reading it waits for the device on CUDA. (default: :obj:`None`)

    Returns:
        torch.Tensor: The cluster of every node, int64 :math:`[n]`, numbered from 0 in the order of each
        cluster's smallest node. It is bit-equal on any device and for any number of threads.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape, device or value. The message names the
            argument, what was expected and what came. On CUDA, values are not read back: an id out of range
            trips a device-side assertion, and NaN counts as lower than :obj:`-inf`.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])  # a path of 4 nodes
        >>> scores = torch.tensor([0.9, 0.9, 0.1, 0.1, 0.8, 0.8])
        >>> gpn_ops.parse(edge_index, scores, num_nodes=4)
        tensor([0, 0, 1, 1])
    """
    return torch.ops.gpn.parse(edge_index, scores, num_nodes)


@plain_form("parse")
def plain_parse(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    """As :func:`parse`; values are checked on every device."""
    check_tensor("scores", scores)
    num_nodes = checked_num_nodes(edge_index, scores, num_nodes)
    chosen_edge = dominant_of_rows(edge_index[0].long(), scores.detach(), num_nodes)
    chooser = (chosen_edge >= 0).nonzero().squeeze(1)
    chosen = edge_index[1].long().index_select(0, chosen_edge.index_select(0, chooser))
    return components_of_ends(chooser, chosen, num_nodes)


@torch.library.register_fake("gpn::parse")
def _(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    check_tensor("scores", scores)
    return fake_per_node(edge_index, scores, num_nodes)
