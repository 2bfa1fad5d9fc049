"""The operators under :func:`torch.func.vmap`, which call the kernel for each element of the batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

# All except in-place operators, which users do not call under vmap.
_OPERATORS = (
    "parse dominant components coarsen coarsen_padded undirected undirected_padded sorted_pairs partition "
    "progress mask mask_backward reduce reduce_max_backward cluster_sizes lift pair_dot pair_dot_backward "
    "pair_product dropout edge_logits edge_logits_backward _edge_logits_backward_tiles "
    "residual residual_backward"
)


def register_vmap(lib: torch.library.Library) -> None:
    """Lets :func:`torch.func.vmap` call each operator once per element of the batch."""
    for name in _OPERATORS.split():
        torch.library.register_vmap(f"gpn::{name}", _one_by_one(name), lib=lib)


def _one_by_one(name: str) -> Callable[..., tuple[Any, Any]]:
    operator = getattr(torch.ops.gpn, name).default

    def rule(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
        leaves, spec = pytree.tree_flatten(args)
        dims = pytree._broadcast_to_and_flatten(in_dims, spec)
        assert dims is not None

        def element(k: int) -> list[Any]:
            chosen = [
                leaf if dim is None else leaf.select(dim, k) for leaf, dim in zip(leaves, dims, strict=True)
            ]
            return operator(*pytree.tree_unflatten(chosen, spec))

        outs = [element(k) for k in range(info.batch_size)]
        if isinstance(outs[0], Tensor):
            return _stacked(name, outs), 0
        stacked = [_stacked(name, parts) for parts in zip(*outs, strict=True)]
        kind = type(outs[0])
        return kind(stacked), kind([0] * len(stacked))

    return rule


def _stacked(name: str, outs: Any) -> Tensor:
    if len({out.shape for out in outs}) > 1:
        raise RuntimeError(
            f"gpn::{name}: expected results of one size under torch.func.vmap, got sizes that depend on the "
            "data (with a capacity they do not, see gpn_ops.nn.pad)"
        )
    return torch.stack(list(outs))
