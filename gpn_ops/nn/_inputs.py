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


def numbered_graphs(batch: Tensor | None, batch_size: int | None, x: Tensor) -> tuple[Tensor, int]:
    """As :func:`graph_of_node`, and the number of graphs: one where neither argument tells.

    Raises:
        ValueError: if, besides, ``batch`` is not int64, or has a number that no graph has.
    """
    if batch is None and batch_size is None:
        batch_size = 1
    batch = graph_of_node(batch, x)
    if batch.dtype != torch.int64:
        raise ValueError(f"batch: expected an int64 tensor, got {str(batch.dtype).removeprefix('torch.')}")
    lowest, highest = map(int, batch.aminmax()) if batch.numel() > 0 else (0, -1)
    if lowest < 0:
        raise ValueError(f"batch: expected non-negative numbers of graphs, got {lowest}")
    if batch_size is None:
        batch_size = highest + 1
    if highest >= batch_size:
        raise ValueError(f"batch: expected numbers below batch_size = {batch_size}, got {highest}")
    return batch, batch_size


def check_edges_inside_graphs(edge_index: Tensor, batch: Tensor) -> None:
    """As :func:`gpn_ops.coarsen` checks them.

    Raises:
        RuntimeError: on the CPU; elsewhere an edge between two graphs trips a device-side assertion.
    """
    row, col = (batch.index_select(0, end) for end in edge_index)
    joins = row != col
    if joins.device.type != "cpu":
        torch._assert_async(~joins.any())
    elif bool(joins.any()):
        edge = int(joins.nonzero()[0])
        raise RuntimeError(
            "batch: expected every edge inside one graph, got an edge from graph "
            f"{int(row[edge])} to graph {int(col[edge])} at edge_index[:, {edge}]"
        )


def check_num_layers(name: str, num_layers: int) -> None:
    if num_layers < 1:
        raise ValueError(f"{name}: expected at least 1, got {num_layers}")


def check_probability(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: expected a probability, got {p}")


def check_reduction(name: str, reduce: str) -> None:
    if reduce not in ("sum", "mean", "max"):
        raise ValueError(f"{name}: expected 'sum', 'mean' or 'max', got {reduce!r}")
