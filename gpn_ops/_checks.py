"""Argument checks of the operators, on the Python side.

The compiled kernels raise the same texts in the same order, so a user reads one message whichever
implementation ran. The checks come in two functions because they differ in what they may touch:
:func:`check_metadata` reads dtypes, shapes and devices only and so works on fake tensors and symbolic sizes;
:func:`check_values` reads the data, which on an accelerator waits for the device.
"""

from collections.abc import Callable

import torch
from torch import Tensor

INDEX_DTYPES = (torch.int64, torch.int32)
SCORE_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check(condition: bool | torch.SymBool, message: Callable[[], str]) -> None:
    # Not an if statement: on a size that is only known at run time this becomes a run-time assertion. Dynamo
    # takes no message that speaks of such a size.
    if torch.compiler.is_dynamo_compiling():
        torch._check(condition)
    else:
        torch._check(condition, message)


def check_metadata(edge_index: Tensor, scores: Tensor | None, num_nodes: int | torch.SymInt | None) -> None:
    """Check everything that can be known without reading data.

    Args:
        edge_index: expected int64 or int32 ``[2, num_edges]``.
        scores: expected floating ``[num_edges]`` on the device of ``edge_index``; ``None`` for an operator
            that takes no scores.
        num_nodes: expected ``None`` or non-negative.

    Raises:
        RuntimeError: for the first expectation, in the order above, that does not hold.
    """
    if edge_index.dtype not in INDEX_DTYPES:
        raise RuntimeError(f"edge_index: expected an int64 or int32 tensor, got {_name(edge_index.dtype)}")
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise RuntimeError(f"edge_index: expected shape [2, num_edges], got {list(edge_index.shape)}")

    if scores is not None:
        _check_scores_metadata(edge_index, scores)

    if num_nodes is not None:
        _check(num_nodes >= 0, lambda: f"num_nodes: expected a non-negative integer, got {num_nodes}")


def _check_scores_metadata(edge_index: Tensor, scores: Tensor) -> None:
    if scores.dtype not in SCORE_DTYPES:
        raise RuntimeError(
            f"scores: expected a float32, float64, float16 or bfloat16 tensor, got {_name(scores.dtype)}"
        )

    def wrong_shape() -> str:
        return f"scores: expected shape [num_edges] = [{edge_index.size(1)}], got {list(scores.shape)}"

    if scores.dim() != 1:
        raise RuntimeError(wrong_shape())
    _check(scores.size(0) == edge_index.size(1), wrong_shape)

    if scores.device != edge_index.device:
        raise RuntimeError(
            f"scores: expected on the same device as edge_index ({edge_index.device}), got {scores.device}"
        )


def check_values(edge_index: Tensor, scores: Tensor | None, num_nodes: int | None) -> None:
    """Check the node ids, then the scores, of arguments that passed :func:`check_metadata`.

    Raises:
        RuntimeError: if a node id is out of range, naming the id at the lowest edge position
            (``edge_index[0]`` before ``edge_index[1]`` at the same position); else if a score is NaN, naming
            the first.
    """
    num_edges = edge_index.size(1)
    if num_edges == 0:
        return
    if num_nodes == 0:
        raise RuntimeError(f"edge_index: expected no edges because num_nodes is 0, got {num_edges} edges")

    lowest, highest = (int(bound) for bound in torch.aminmax(edge_index))
    if lowest < 0 or (num_nodes is not None and highest >= num_nodes):
        raise RuntimeError(_wrong_id(edge_index, num_nodes))

    if scores is not None:
        is_nan = torch.isnan(scores.detach())
        if bool(is_nan.any()):
            raise RuntimeError(f"scores: expected no NaN, got NaN at scores[{int(is_nan.nonzero()[0, 0])}]")


def _wrong_id(edge_index: Tensor, num_nodes: int | None) -> str:
    ids = edge_index.to(torch.int64)  # num_nodes may be past the range of int32
    wrong = ids < 0 if num_nodes is None else (ids < 0) | (ids >= num_nodes)
    # Transposed, so that nonzero lists positions edge by edge.
    position, row = wrong.t().nonzero()[0].tolist()
    got = f"got {int(ids[row, position])} at edge_index[{row}, {position}]"
    if num_nodes is None:
        return f"edge_index: expected non-negative node ids, {got}"
    return f"edge_index: expected node ids from 0 to num_nodes - 1 = {num_nodes - 1}, {got}"
