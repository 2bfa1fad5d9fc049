"""The operators as typed functions, and what torch has to know of them beside their kernels.

The kernels live in csrc/ (schemas in csrc/schema.cpp). Here are the fake kernels, which compute shapes for
``torch.compile`` and ``torch.export``, and the plain-PyTorch path for devices that have no kernel.
"""

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from .. import _library, reference
from .._checks import check_metadata


def parse(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    r"""Parses a graph into clusters, as Algorithm 1 of `"Graph Parsing Networks"
    <https://arxiv.org/abs/2402.14393>`_ does.

    Every node takes the edge of its own row with the highest score; among equal scores the lowest edge id
    wins. The clusters are the weakly connected components of the chosen edges. A node that neither chooses
    nor is chosen is a cluster of its own.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`: ``edge_index[0]`` chooses among
            ``edge_index[1]``. Undirected graphs store both directions. Edges may come in any order; sorted
            by row, as PyG stores them, is fastest.
        scores (torch.Tensor): A score per edge, :math:`[m]`: float32, float64, float16 or bfloat16.
            Zero and negative scores count like any other; :obj:`-inf` is the lowest. Scores get no gradient
            from this function.
        num_nodes (int, optional): The number of nodes :math:`n`. If :obj:`None`, the largest id plus one;
            this reads the data, so it waits for the device on CUDA. (default: :obj:`None`)

    Returns:
        torch.Tensor: The cluster of every node, int64 :math:`[n]`, numbered from 0 in the order of each
        cluster's smallest node. The same bits for any number of threads, on any device.

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


def dominant(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    r"""The dominant edge of every node: the edge of its own row with the highest score, the lowest edge id
    among equal ones.

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


def components(edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
    r"""The weakly connected components of any edge list.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`, in any order, in one direction or
            both.
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


# ------------------------------------------------------------------------------------------------------------
# Fake kernels
# ------------------------------------------------------------------------------------------------------------


def _per_node(edge_index: Tensor, scores: Tensor | None, num_nodes: int | None) -> Tensor:
    check_metadata(edge_index, scores, num_nodes)
    size = torch.library.get_ctx().new_dynamic_size() if num_nodes is None else num_nodes
    return edge_index.new_empty(size, dtype=torch.int64)


@torch.library.register_fake("gpn::parse")
@torch.library.register_fake("gpn::dominant")
def _(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    return _per_node(edge_index, scores, num_nodes)


@torch.library.register_fake("gpn::components")
def _(edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
    return _per_node(edge_index, None, num_nodes)


@torch.library.register_fake("gpn::_dominant")
def _(edge_index: Tensor, scores: Tensor, num_nodes: int, form: str, first_edge: int = 0) -> Tensor:
    return _per_node(edge_index, scores, num_nodes)


# ------------------------------------------------------------------------------------------------------------
# Devices without a kernel
# ------------------------------------------------------------------------------------------------------------


@functools.cache
def _warn_of_missing_cuda_kernels() -> None:
    warnings.warn(
        f"gpn_ops runs without its CUDA kernels, on slower plain PyTorch: {_library.cuda_status()}",
        stacklevel=4,
    )


def _in_plain_pytorch(name: str) -> None:
    function: Callable[..., Tensor] = getattr(reference, name)

    @torch.library.impl(f"gpn::{name}", "CompositeExplicitAutograd")
    def _(edge_index: Tensor, *arguments: Tensor | int | None) -> Tensor:
        if edge_index.is_cuda:
            _warn_of_missing_cuda_kernels()
        return function(edge_index, *arguments)


for _name in ("parse", "dominant", "components"):
    _in_plain_pytorch(_name)
