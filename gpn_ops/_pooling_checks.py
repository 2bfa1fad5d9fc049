"""Argument checks of the pooling operators that need no data, in the manner of :mod:`gpn_ops._checks`.

The texts and their order are those of csrc/pooling_checks.h.
"""

import torch
from torch import Tensor

from ._checks import SCORE_DTYPES, _check, _name, check_metadata

Size = tuple[str, int | torch.SymInt | None]


def check_floating(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in SCORE_DTYPES:
        raise RuntimeError(
            f"{name}: expected a float32, float64, float16 or bfloat16 tensor, got {_name(tensor.dtype)}"
        )


def check_dtype(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    if tensor.dtype != dtype:
        article = "an" if dtype == torch.int64 else "a"
        raise RuntimeError(f"{name}: expected {article} {_name(dtype)} tensor, got {_name(tensor.dtype)}")


def check_shape(name: str, tensor: Tensor, *sizes: Size) -> None:
    """Check a shape given as (name, value or None) a dimension; ``("...", None)`` at the end allows more."""

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
            _check(tensor.size(d) == value, wrong)


def check_device(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    if tensor.device != other.device:
        raise RuntimeError(
            f"{name}: expected on the same device as {other_name} ({other.device}), got {tensor.device}"
        )


def check_count(name: str, count: int | torch.SymInt) -> None:
    _check(count >= 0, lambda: f"{name}: expected a non-negative integer, got {count}")


def check_reduction(reduce: str) -> None:
    if reduce not in ("sum", "mean", "max"):
        raise RuntimeError(f"reduce: expected 'sum', 'mean' or 'max', got '{reduce}'")


def check_cluster(cluster: Tensor, edge_index: Tensor | None = None) -> None:
    check_dtype("cluster", cluster, torch.int64)
    check_shape("cluster", cluster, ("num_nodes", None))
    if edge_index is not None:
        check_device("cluster", cluster, "edge_index", edge_index)


def check_coarsen(edge_index: Tensor, cluster: Tensor) -> None:
    check_metadata(edge_index, None, None)
    check_cluster(cluster, edge_index)


def check_mask(edge_index: Tensor, scores: Tensor, cluster: Tensor, num_clusters: int | torch.SymInt) -> None:
    check_metadata(edge_index, scores, None)
    check_cluster(cluster, edge_index)
    check_count("num_clusters", num_clusters)


def check_x_and_cluster(x: Tensor, cluster: Tensor) -> None:
    check_floating("x", x)
    check_cluster(cluster)
    check_shape("x", x, ("num_nodes", cluster.size(0)), ("...", None))
    check_device("cluster", cluster, "x", x)


def check_lift(x: Tensor, cluster: Tensor) -> None:
    check_floating("x", x)
    check_shape("x", x, ("num_clusters", None), ("...", None))
    check_cluster(cluster)
    check_device("cluster", cluster, "x", x)


def sum_dtype(tensor: Tensor) -> torch.dtype:
    """In what dtype values are summed: half precision in float32, rounded once at the end."""
    return torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype


def check_accumulate(out: Tensor, x: Tensor, cluster: Tensor) -> None:
    check_x_and_cluster(x, cluster)
    check_dtype("out", out, sum_dtype(x))

    def wrong() -> str:
        return (
            f"out: expected shape [num_clusters, ...] with the row shape of x {list(x.shape)}, "
            f"got {list(out.shape)}"
        )

    if out.dim() != x.dim():
        raise RuntimeError(wrong())
    for d in range(1, x.dim()):
        _check(out.size(d) == x.size(d), wrong)
    check_device("out", out, "x", x)


def check_pairs(h: Tensor, pairs: Tensor) -> None:
    check_floating("h", h)
    check_shape("h", h, ("num_nodes", None), ("channels", None))
    check_dtype("pairs", pairs, torch.int64)
    check_shape("pairs", pairs, ("2", 2), ("num_pairs", None))
    check_device("pairs", pairs, "h", h)


def check_pair_dot(h: Tensor, weight: Tensor, pairs: Tensor) -> None:
    check_pairs(h, pairs)
    check_dtype("weight", weight, h.dtype)
    check_shape("weight", weight, ("channels", h.size(1)))
    check_device("weight", weight, "h", h)


def check_product_backward(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> None:
    check_pairs(h, pairs)
    check_dtype("grad_h", grad_h, sum_dtype(h))
    check_shape("grad_h", grad_h, ("num_nodes", h.size(0)), ("channels", h.size(1)))
    check_device("grad_h", grad_h, "h", h)
    check_dtype("grad_product", grad_product, h.dtype)
    check_shape("grad_product", grad_product, ("num_pairs", pairs.size(1)), ("channels", h.size(1)))
    check_device("grad_product", grad_product, "h", h)
