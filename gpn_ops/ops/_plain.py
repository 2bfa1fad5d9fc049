"""The pooling operators in plain PyTorch, signatures as in csrc/schema.cpp: for devices without a kernel.

Slower, and float sums are as reproducible as torch's own. Integer results are the same.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _pooling_checks as checks
from .._checks import check_metadata
from ..reference import pooling
from .parsing import _warn_of_missing_cuda_kernels


def coarsen(
    edge_index: Tensor, cluster: Tensor, self_loops: bool = False, with_slot: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    checks.check_coarsen(edge_index, cluster)
    row, col = (cluster.index_select(0, end.long()) for end in edge_index)
    kept = (row != col) | self_loops
    pairs, position = torch.unique(torch.stack([row, col])[:, kept], dim=1, return_inverse=True)
    slot = torch.full_like(row if with_slot else row[:0], -1)
    if with_slot:
        slot[kept] = position
    no_edges = edge_index[:, :0]
    return pairs, slot, pooling.coarsen(no_edges, cluster).representative


def undirected(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    check_metadata(edge_index, None, num_nodes)
    return tuple(pooling.undirected(edge_index, num_nodes))  # type: ignore[return-value]


def mask(edge_index: Tensor, scores: Tensor, cluster: Tensor, num_clusters: int) -> tuple[Tensor, Tensor]:
    checks.check_mask(edge_index, scores, cluster, num_clusters)
    return tuple(pooling.mask(edge_index, scores, cluster, num_clusters))  # type: ignore[return-value]


def mask_backward(grad: Tensor, edge_index: Tensor, cluster: Tensor) -> Tensor:
    row, col = (cluster.index_select(0, end.long()) for end in edge_index)
    return torch.where(row == col, grad.index_select(0, row), 0)


def reduce(x: Tensor, cluster: Tensor, num_clusters: int, reduce: str = "sum") -> Tensor:
    checks.check_x_and_cluster(x, cluster)
    checks.check_count("num_clusters", num_clusters)
    checks.check_reduction(reduce)
    kept = cluster >= 0
    return pooling.reduce(x[kept], cluster[kept], num_clusters, reduce)


def reduce_max_backward(grad: Tensor, x: Tensor, maximum: Tensor, cluster: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        again = reduce(x, cluster, maximum.size(0), "max")
    return torch.autograd.grad(again, x, grad)[0]


def accumulate_(out: Tensor, x: Tensor, cluster: Tensor) -> None:
    checks.check_accumulate(out, x, cluster)
    kept = cluster >= 0
    pooling.accumulate_(out, x[kept], cluster[kept])


def lift(x: Tensor, cluster: Tensor) -> Tensor:
    checks.check_lift(x, cluster)
    out = x.new_zeros(cluster.size(0), *x.shape[1:])
    kept = cluster >= 0
    out[kept] = x.index_select(0, cluster[kept])
    return out


def cluster_sizes(cluster: Tensor, num_clusters: int) -> Tensor:
    checks.check_cluster(cluster)
    checks.check_count("num_clusters", num_clusters)
    kept = cluster[cluster >= 0]
    return cluster.new_zeros(num_clusters).index_add_(0, kept, torch.ones_like(kept))


def pair_dot(h: Tensor, weight: Tensor, pairs: Tensor) -> Tensor:
    checks.check_pair_dot(h, weight, pairs)
    return pooling.pair_dot(h, weight, pairs)


def pair_dot_backward(grad: Tensor, h: Tensor, weight: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    h, weight = h.detach().requires_grad_(), weight.detach().requires_grad_()
    with torch.enable_grad():
        out = pooling.pair_dot(h, weight, pairs)
    return torch.autograd.grad(out, (h, weight), grad)  # type: ignore[return-value]


def pair_product(h: Tensor, pairs: Tensor) -> Tensor:
    checks.check_pairs(h, pairs)
    return pooling.pair_product(h, pairs)


def pair_product_backward_(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> None:
    checks.check_product_backward(grad_h, grad_product, h, pairs)
    pooling.pair_product_backward_(grad_h, grad_product, h, pairs)


OPERATORS = (
    coarsen,
    undirected,
    mask,
    mask_backward,
    reduce,
    reduce_max_backward,
    accumulate_,
    lift,
    cluster_sizes,
    pair_dot,
    pair_dot_backward,
    pair_product,
    pair_product_backward_,
)


def _register(function: Callable[..., Any]) -> None:
    @torch.library.impl(f"gpn::{function.__name__}", "CompositeExplicitAutograd")
    def _(first: Tensor, *arguments: Any) -> Any:
        if first.is_cuda:
            _warn_of_missing_cuda_kernels()
        return function(first, *arguments)


for _function in OPERATORS:
    _register(_function)
