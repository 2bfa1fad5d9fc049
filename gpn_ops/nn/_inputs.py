"""Checks and conversions of the layers' arguments."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from gpn_ops.checks import (
    MOST_NODES_LOG2,
    check_batch,
    check_batch_values,
    check_device,
    check_floating,
    check_metadata,
    check_shape,
    check_tensor,
    dtype_name,
)
from gpn_ops.ops import waits


def checked_edges(edge_index: Tensor) -> Tensor:
    """The edges as an ordinary tensor; the operators do not use the metadata of an ``EdgeIndex``.

    Raises:
        TypeError: If they are not a strided tensor, such as a ``SparseTensor``, a sparse tensor or the
            dictionary of a ``HeteroData``.
        RuntimeError: If they are not int64 or int32 :math:`[2, m]`; also under :func:`torch.jit.trace`.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        raise RuntimeError(
            "torch.jit.trace would fix the sizes of this graph and the number of its levels; "
            "use torch.export.export or torch.compile"
        )
    if isinstance(edge_index, Mapping):
        raise TypeError(
            "edge_index: expected the edges of one type, int64 [2, num_edges], got a dictionary of edge "
            "types; convert the graph by HeteroData.to_homogeneous() first"
        )
    if edge_index is not None and (
        not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided
    ):
        came = (
            f"a {edge_index.layout} tensor" if isinstance(edge_index, Tensor) else type(edge_index).__name__
        )
        raise TypeError(
            f"edge_index: expected an int64 tensor [2, num_edges], got {came}; a transposed adjacency matrix "
            "(adj_t) has its edges reversed, so use "
            "edge_index, edge_weight = torch_geometric.utils.to_edge_index(adj_t), then edge_index.flip(0)"
        )
    edge_index = edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
    check_metadata(edge_index, None, None)
    return edge_index


def check_features(name: str, x: Tensor, channels: int | None = None) -> None:
    """Checks for floating features with a row per node, of ``channels`` channels if given.

    Raises:
        RuntimeError: If they are not.
    """
    check_floating(name, x)
    if channels is None:
        check_shape(name, x, ("num_nodes", None), ("...", None))
    else:
        check_shape(name, x, ("num_nodes", None), ("in_channels", channels))


def graph_of_node(batch: Tensor | None, x: Tensor) -> Tensor:
    """The graph of every node; the first graph if ``batch`` is ``None``.

    Raises:
        RuntimeError: If ``batch`` is not int64 with an entry for every row of ``x``.
    """
    check_tensor("x", x)
    check_shape("x", x, ("num_nodes", None), ("...", None))
    if batch is None:
        return torch.zeros(x.size(0), dtype=torch.int64, device=x.device)
    check_batch(batch, x.size(0), "x", x)
    return batch


def number_of_graphs(lowest: int, highest: int, batch_size: int | None) -> int:
    """The number of graphs; the largest number in ``batch`` plus one if ``batch_size`` is ``None``.

    Raises:
        RuntimeError: If ``batch`` has a number that is out of range.
    """
    if lowest < 0:
        raise RuntimeError(f"batch: expected non-negative numbers of graphs, got {lowest}")
    if batch_size is None:
        if highest >= 2**MOST_NODES_LOG2:
            raise RuntimeError(f"batch: expected numbers below 2^{MOST_NODES_LOG2}, got {highest}")
        batch_size = highest + 1
    if highest >= batch_size:
        raise RuntimeError(f"batch: expected numbers below batch_size = {batch_size}, got {highest}")
    return batch_size


def check_edges_inside_graphs(edge_index: Tensor, batch: Tensor) -> None:
    """The check of :func:`gpn_ops.coarsen`: an edge between two graphs is an error on the CPU, and elsewhere
    trips a device-side assertion."""
    if waits.is_host(batch.device) and not torch.compiler.is_compiling():
        check_batch_values(edge_index, batch)
    else:
        graph = batch.index_select(0, edge_index.flatten()).view(2, -1)
        torch._assert_async((graph[0] == graph[1]).all(), "batch: expected every edge inside one graph")


def check_at_least(name: str, least: int, value: int) -> None:
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")


def check_channels(channels: int, has_norm: bool, where: str, instead: str) -> None:
    """Checks for at least two channels if there is a LayerNorm: on one channel its output is constant."""
    check_at_least("in_channels", 1, channels)
    if channels == 1 and has_norm:
        raise ValueError(
            f"in_channels: expected at least 2 for {where}, whose LayerNorm would make one channel constant, "
            f"got 1; {instead} works"
        )


def attributes_to_score(edge_attr: Tensor | None, edge_dim: int, edge_index: Tensor) -> Tensor:
    """The attributes of edges as rows of ``edge_dim`` numbers.

    Raises:
        RuntimeError: If they are missing or have another shape.
    """
    if edge_attr is None:
        raise RuntimeError(f"edge_attr: expected attributes because edge_dim = {edge_dim}, got None")
    check_tensor("edge_attr", edge_attr)
    if edge_attr.is_complex():
        raise RuntimeError(f"edge_attr: expected real numbers, got {dtype_name(edge_attr.dtype)}")
    if edge_attr.dim() == 1 and edge_dim == 1:
        edge_attr = edge_attr.unsqueeze(-1)
    check_shape("edge_attr", edge_attr, ("num_edges", edge_index.size(1)), ("edge_dim", edge_dim))
    check_device("edge_attr", edge_attr, "edge_index", edge_index)
    return edge_attr


def check_probability(name: str, p: float) -> None:
    if not isinstance(p, int | float) or not 0 <= p <= 1:
        raise ValueError(f"{name}: expected a probability, got {p!r}")


def check_recompute(recompute: bool | str) -> None:
    if not isinstance(recompute, bool) and recompute != "auto":
        raise ValueError(f"recompute: expected True, False or 'auto', got {recompute!r}")
