"""What users hand over, made uniform."""

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
    """The edges as an ordinary tensor: the operators have no use for what an ``EdgeIndex`` knows besides.

    Raises:
        TypeError: if they are no strided tensor: a ``SparseTensor``, a sparse tensor, the dictionary of a
            ``HeteroData``.
        RuntimeError: if they are not int64 or int32 :math:`[2, m]`; or under :func:`torch.jit.trace`.
    """
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        raise RuntimeError(
            "torch.jit.trace would fix the sizes of this one graph, and how often it shrinks; "
            "use torch.export.export or torch.compile"
        )
    if isinstance(edge_index, Mapping):
        raise TypeError(
            "edge_index: expected the edges of one type, int64 [2, num_edges], got a dictionary of edge "
            "types; pool a homogeneous graph, as HeteroData.to_homogeneous() makes one"
        )
    if edge_index is not None and (
        not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided
    ):
        came = (
            f"a {edge_index.layout} tensor" if isinstance(edge_index, Tensor) else type(edge_index).__name__
        )
        raise TypeError(
            f"edge_index: expected an int64 tensor [2, num_edges], got {came}; a transposed adjacency matrix "
            "(adj_t) has its edges the other way round: "
            "edge_index, edge_weight = torch_geometric.utils.to_edge_index(adj_t), then edge_index.flip(0)"
        )
    edge_index = edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
    check_metadata(edge_index, None, None)
    return edge_index


def check_features(name: str, x: Tensor, channels: int | None = None) -> None:
    """Checks for floating features, a row for every node: of so many channels, or of any shape.

    Raises:
        RuntimeError: if they are something else.
    """
    check_floating(name, x)
    if channels is None:
        check_shape(name, x, ("num_nodes", None), ("...", None))
    else:
        check_shape(name, x, ("num_nodes", None), ("in_channels", channels))


def graph_of_node(batch: Tensor | None, x: Tensor) -> Tensor:
    """The graph of every node: the first one where ``batch`` does not tell.

    Raises:
        RuntimeError: if ``batch`` is not int64 with a number for every row of ``x``.
    """
    check_tensor("x", x)
    check_shape("x", x, ("num_nodes", None), ("...", None))
    if batch is None:
        return torch.zeros(x.size(0), dtype=torch.int64, device=x.device)
    check_batch(batch, x.size(0), "x", x)
    return batch


def number_of_graphs(lowest: int, highest: int, batch_size: int | None) -> int:
    """How many graphs there are: those up to the highest in ``batch`` where ``batch_size`` does not tell.

    Raises:
        RuntimeError: if ``batch`` has a number that no graph has.
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
    """As :func:`gpn_ops.coarsen` checks them: on the CPU an edge between two graphs is an error, elsewhere it
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
    """A LayerNorm of one channel gives its bias, whatever goes in."""
    check_at_least("in_channels", 1, channels)
    if channels == 1 and has_norm:
        raise ValueError(
            f"in_channels: expected at least 2 for {where}, whose LayerNorm would make one channel constant, "
            f"got 1; {instead} works"
        )


def attributes_to_score(edge_attr: Tensor | None, edge_dim: int, edge_index: Tensor) -> Tensor:
    """The attributes of edges as rows of ``edge_dim`` numbers.

    Raises:
        RuntimeError: if there are none, or others.
    """
    if edge_attr is None:
        raise RuntimeError(f"edge_attr: expected attributes, as edge_dim = {edge_dim}, got None")
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
