"""Argument checks of the operators, for fake tensors and plain PyTorch.

The functions, their texts and their order are those of csrc/checks.h and csrc/core/errors.h, so a user reads
the same message whichever implementation ran. Most read only dtypes, shapes and devices, and so work on fake
tensors and symbolic sizes. Those that end in ``_values`` read the data, and so wait for an accelerator.
"""

from collections.abc import Callable

import torch
from torch import Tensor

INDEX_DTYPES = (torch.int64, torch.int32)
SCORE_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
MOST_NODES_LOG2 = 58  # more than any memory holds

Size = tuple[str, int | torch.SymInt | None]


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check(condition: bool | torch.SymBool, message: Callable[[], str]) -> None:
    # Not an if statement: for a size that is only known at run time, this becomes a run-time assertion.
    # Dynamo accepts no message that mentions such a size.
    if torch.compiler.is_dynamo_compiling():
        torch._check(condition)
    else:
        torch._check(condition, message)


def check_tensor(name: str, tensor: Tensor | None) -> None:
    if not isinstance(tensor, Tensor):
        came = "None" if tensor is None else f"a value of type {type(tensor).__name__}"
        raise RuntimeError(f"{name}: expected a tensor, got {came}")
    if tensor.layout is not torch.strided:
        layout = str(tensor.layout).removeprefix("torch.")
        raise RuntimeError(f"{name}: expected a dense tensor, got one of layout {layout}")


def check_floating(name: str, tensor: Tensor) -> None:
    check_tensor(name, tensor)
    if tensor.dtype not in SCORE_DTYPES:
        raise RuntimeError(
            f"{name}: expected a float32, float64, float16 or bfloat16 tensor, got {dtype_name(tensor.dtype)}"
        )


def check_dtype(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    check_tensor(name, tensor)
    if tensor.dtype != dtype:
        article = "an" if dtype == torch.int64 else "a"
        raise RuntimeError(
            f"{name}: expected {article} {dtype_name(dtype)} tensor, got {dtype_name(tensor.dtype)}"
        )


def check_shape(name: str, tensor: Tensor, *sizes: Size) -> None:
    """Checks a shape given as (name, value or None) per dimension; ``("...", None)`` at the end allows
    more."""

    def wrong() -> str:
        names = ", ".join(size_name for size_name, _ in sizes)
        values = ", ".join(size_name if value is None else str(value) for size_name, value in sizes)
        expected = f"[{names}]" if names == values else f"[{names}] = [{values}]"
        return f"{name}: expected shape {expected}, got {list(tensor.shape)}"

    is_open = sizes[-1][0] == "..."
    dims = len(sizes) - is_open
    if tensor.dim() < dims or (tensor.dim() > dims and not is_open):
        raise RuntimeError(wrong())
    for d, (_, value) in enumerate(sizes):
        if value is not None:
            check(tensor.size(d) == value, wrong)


def check_device(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    if tensor.device != other.device:
        raise RuntimeError(
            f"{name}: expected on the same device as {other_name} ({other.device}), got {tensor.device}"
        )


def check_contiguous(name: str, tensor: Tensor) -> None:
    if not tensor.is_contiguous():
        raise RuntimeError(f"{name}: expected a contiguous tensor, which is written in place")


def _extent(tensor: Tensor) -> tuple[int, int]:
    if tensor.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def check_apart(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Checks that a tensor written in place shares no memory with one that is read. Not for fake tensors."""
    begin, end = _extent(tensor)
    other_begin, other_end = _extent(other)
    if begin < other_end and other_begin < end:
        raise RuntimeError(
            f"{name}: expected a tensor of its own, which is written in place, got memory of {other_name}"
        )


def check_count(name: str, count: int | torch.SymInt) -> None:
    check(count >= 0, lambda: f"{name}: expected a non-negative integer, got {count}")


def check_reduction(reduce: str, name: str = "reduce") -> None:
    if reduce not in ("sum", "mean", "max"):
        raise RuntimeError(f"{name}: expected 'sum', 'mean' or 'max', got '{reduce}'")


def check_cluster(cluster: Tensor, edge_index: Tensor | None = None) -> None:
    check_dtype("cluster", cluster, torch.int64)
    check_shape("cluster", cluster, ("num_nodes", None))
    if edge_index is not None:
        check_device("cluster", cluster, "edge_index", edge_index)


def check_edge_attr(edge_attr: Tensor, edge_index: Tensor, reduce: str) -> None:
    check_tensor("edge_attr", edge_attr)
    if edge_attr.dtype in INTEGERS:
        if reduce != "max":
            raise RuntimeError(
                "edge_attr: expected a float32, float64, float16 or bfloat16 tensor, got "
                f"{dtype_name(edge_attr.dtype)}, which only the reduction 'max' takes"
            )
    else:
        check_floating("edge_attr", edge_attr)
    check_shape("edge_attr", edge_attr, ("num_edges", edge_index.size(1)), ("...", None))
    check_device("edge_attr", edge_attr, "edge_index", edge_index)


def check_batch(batch: Tensor, num_nodes: int | torch.SymInt | None, other_name: str, other: Tensor) -> None:
    check_dtype("batch", batch, torch.int64)
    check_shape("batch", batch, ("num_nodes", num_nodes))
    check_device("batch", batch, other_name, other)


def check_metadata(edge_index: Tensor, scores: Tensor | None, num_nodes: int | torch.SymInt | None) -> None:
    """Checks everything that can be known without reading data.

    Args:
        edge_index: expected int64 or int32 ``[2, num_edges]``.
        scores: expected floating ``[num_edges]`` on the device of ``edge_index``; ``None`` for operators
            without scores.
        num_nodes: expected ``None`` or non-negative.

    Raises:
        RuntimeError: For the first of these expectations that does not hold.
    """
    check_tensor("edge_index", edge_index)
    if edge_index.dtype not in INDEX_DTYPES:
        raise RuntimeError(
            f"edge_index: expected an int64 or int32 tensor, got {dtype_name(edge_index.dtype)}"
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise RuntimeError(f"edge_index: expected shape [2, num_edges], got {list(edge_index.shape)}")

    if scores is not None:
        check_floating("scores", scores)
        check_shape("scores", scores, ("num_edges", edge_index.size(1)))
        check_device("scores", scores, "edge_index", edge_index)

    if num_nodes is not None:
        check_count("num_nodes", num_nodes)


def check_values(edge_index: Tensor, scores: Tensor | None, num_nodes: int | None) -> None:
    """Checks the node ids, then the scores, of arguments that passed :func:`check_metadata`.

    Raises:
        RuntimeError: If a node id is out of range, naming the first in order of edges (``edge_index[0]``
            before ``edge_index[1]``); else if a score is NaN, naming the first.
    """
    num_edges = edge_index.size(1)
    if num_edges == 0:
        return
    if num_nodes == 0:
        raise RuntimeError(f"edge_index: expected no edges because num_nodes is 0, got {num_edges} edges")

    _check_ends("edge_index", edge_index, num_nodes)
    if scores is not None:
        is_nan = torch.isnan(scores.detach())
        if bool(is_nan.any()):
            raise RuntimeError(f"scores: expected no NaN, got NaN at scores[{int(is_nan.nonzero()[0, 0])}]")


def _check_ends(name: str, ids: Tensor, num_nodes: int | None) -> None:
    ids = ids.to(torch.int64)  # num_nodes may be past the range of int32
    bound = 2**MOST_NODES_LOG2 if num_nodes is None else num_nodes
    # Transposed, so that nonzero lists positions edge by edge.
    bad = ((ids < 0) | (ids >= bound)).t().nonzero()
    if bad.numel() == 0:
        return
    position, end = bad[0].tolist()
    got = int(ids[end, position])
    expected = f"node ids from 0 to num_nodes - 1 = {bound - 1}"
    if num_nodes is None:
        expected = "non-negative node ids" if got < 0 else f"node ids below 2^{MOST_NODES_LOG2}"
    raise RuntimeError(f"{name}: expected {expected}, got {got} at {name}[{end}, {position}]")


def check_x_and_cluster(x: Tensor, cluster: Tensor) -> None:
    check_floating("x", x)
    check_cluster(cluster)
    check_shape("x", x, ("num_nodes", cluster.size(0)), ("...", None))
    check_device("cluster", cluster, "x", x)


def check_rows(name: str, tensor: Tensor, x: Tensor, rows: int | torch.SymInt) -> None:
    """Checks for the dtype and device of ``x``, and for ``rows`` rows of its shape."""

    def wrong() -> str:
        return f"{name}: expected {rows} rows like those of x, {list(x.shape)}, got {list(tensor.shape)}"

    check_dtype(name, tensor, x.dtype)
    if tensor.dim() != x.dim():
        raise RuntimeError(wrong())
    for d, size in enumerate((rows, *x.shape[1:])):
        check(tensor.size(d) == size, wrong)
    check_device(name, tensor, "x", x)


def sum_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype in which values are summed: float32 for half precision, which is rounded once at the end."""
    return torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype


def check_pairs(h: Tensor, pairs: Tensor) -> None:
    check_floating("h", h)
    check_shape("h", h, ("num_nodes", None), ("channels", None))
    check_dtype("pairs", pairs, torch.int64)
    check_shape("pairs", pairs, ("2", 2), ("num_pairs", None))
    check_device("pairs", pairs, "h", h)


def check_cluster_values(cluster: Tensor, lowest: int, what: str, size: int) -> None:
    """Checks that clusters lie in ``[lowest, size)``, where ``what`` is the name of ``size``."""
    bad = ((cluster < lowest) | (cluster >= size)).nonzero()
    if bad.numel() > 0:
        at = int(bad[0, 0])
        raise RuntimeError(
            f"cluster: expected ids from {lowest} to {what} - 1 = {size - 1}, got {int(cluster[at])} "
            f"at cluster[{at}]"
        )


def check_batch_values(edge_index: Tensor, batch: Tensor) -> None:
    """Checks that no edge joins two graphs."""
    row, col = batch.index_select(0, edge_index[0]), batch.index_select(0, edge_index[1])
    differ = (row != col).nonzero()
    if differ.numel() > 0:
        at = int(differ[0, 0])
        raise RuntimeError(
            f"batch: expected every edge inside one graph, got an edge from graph {int(row[at])} "
            f"to graph {int(col[at])} at edge_index[:, {at}]"
        )


def check_pair_values(pairs: Tensor, num_nodes: int) -> None:
    """Checks that the nodes of all pairs exist."""
    _check_ends("pairs", pairs, num_nodes)
