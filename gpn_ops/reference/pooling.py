r"""What a pooling layer needs beside parsing, in plain PyTorch: formulas to read, and to test against.

Nothing here saves memory or time. Every function has the name, the signature and the results of its compiled
counterpart; gradients come from autograd.

Half precision: sums are taken in float32 and rounded once, products of two features are rounded to their
dtype.
"""

from typing import NamedTuple

import torch
from torch import Tensor

REDUCTIONS = ("sum", "mean", "max")


class Coarse(NamedTuple):
    """The coarse graph of a clustering."""

    edge_index: Tensor
    """int64 ``[2, num_coarse_edges]``, sorted by row then column, without duplicates."""
    edge_attr: Tensor | None
    """``[num_coarse_edges, ...]``, or ``None`` where none was given."""
    representative: Tensor
    """int64 ``[num_clusters]``: the smallest node of each cluster."""


class Mask(NamedTuple):
    """What the edges inside each cluster add up to."""

    mask: Tensor
    """``[num_clusters]``: the sum of their scores, 1 where there are none."""
    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    """int64 ``[num_clusters]``: their number, 1 where there are none."""


class Undirected(NamedTuple):
    """The undirected edges of an edge list."""

    pairs: Tensor
    """int64 ``[2, num_pairs]``, ``pairs[0] <= pairs[1]``, sorted by first then second node, unique."""
    slot: Tensor
    """int64 ``[num_edges]``: the pair of each edge. An edge, its reverse and its duplicates share one."""


# ------------------------------------------------------------------------------------------------------------
# Structure
# ------------------------------------------------------------------------------------------------------------


def dense_adjacency(edge_index: Tensor, num_nodes: int, weight: Tensor | None = None) -> Tensor:
    r"""The matrix :math:`\mathbf{A}`: ``A[i, j]`` sums the weights (default 1) of the edges from i to j."""
    if weight is None:
        weight = torch.ones(edge_index.size(1), device=edge_index.device)
    A = weight.new_zeros(num_nodes * num_nodes, *weight.shape[1:])
    cell = edge_index[0].long() * num_nodes + edge_index[1].long()
    return A.index_add(0, cell, weight).view(num_nodes, num_nodes, *weight.shape[1:])


def dense_coarsen(A: Tensor, S: Tensor) -> Tensor:
    r"""Equation 2: :math:`\mathbf{S}^{\top} \mathbf{A} \mathbf{S}`. Inner edges end up on the diagonal."""
    return S.t() @ A @ S


def coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None = None,
    reduce: str = "sum",
    self_loops: bool = False,
) -> Coarse:
    """The edges between clusters, each once.

    Args:
        edge_index: int64 or int32 ``[2, num_edges]``, in any order.
        cluster: int64 ``[num_nodes]``, consecutive from 0.
        edge_attr: ``[num_edges, ...]``, reduced over the edges that become one.
        reduce: ``"sum"``, ``"mean"`` or ``"max"``.
        self_loops: keep the edges inside a cluster, as its self-loop, in place of dropping them.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> reference.coarsen(edge_index, torch.tensor([0, 0, 1]), torch.ones(4)).edge_index
        tensor([[0, 1],
                [1, 0]])
    """
    num_clusters = int(cluster.max()) + 1 if cluster.numel() > 0 else 0
    node = torch.arange(cluster.numel(), device=cluster.device)
    representative = torch.full_like(node, cluster.numel())[:num_clusters].scatter_reduce(
        0, cluster, node, "amin"
    )

    row, col = cluster.index_select(0, edge_index[0].long()), cluster.index_select(0, edge_index[1].long())
    kept = torch.ones_like(row, dtype=torch.bool) if self_loops else row != col
    edges, position = torch.unique(torch.stack([row, col])[:, kept], dim=1, sorted=True, return_inverse=True)
    if edge_attr is not None:
        edge_attr = _reduce(edge_attr[kept], position, edges.size(1), reduce)
    return Coarse(edges, edge_attr, representative)


def undirected(edge_index: Tensor, num_nodes: int) -> Undirected:
    """The undirected edges of an edge list, and which of them each edge is.

    Args:
        edge_index: int64 or int32 ``[2, num_edges]``, in any order, in one direction or both.
        num_nodes: how many nodes there are.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> reference.undirected(torch.tensor([[0, 2, 1, 1], [1, 1, 0, 1]]), num_nodes=3)
        Undirected(pairs=tensor([[0, 1, 1],
                [1, 1, 2]]), slot=tensor([0, 2, 0, 1]))
    """
    low, high = edge_index.long().min(dim=0).values, edge_index.long().max(dim=0).values
    pairs, slot = torch.unique(torch.stack([low, high]), dim=1, sorted=True, return_inverse=True)
    return Undirected(pairs, slot)


# ------------------------------------------------------------------------------------------------------------
# Sums over clusters
# ------------------------------------------------------------------------------------------------------------


def mask(edge_index: Tensor, scores: Tensor, cluster: Tensor, num_clusters: int) -> Mask:
    r"""Equation 4: :math:`y_c`, the sum of the scores of the edges inside cluster c, and their number.

    Both directions and self-loops count. Both are 1 for a cluster without inner edges.

    Args:
        edge_index: int64 or int32 ``[2, num_edges]``.
        scores: ``[num_edges]``; gets a gradient.
        cluster: int64 ``[num_nodes]``.
        num_clusters: how many clusters there are.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> reference.mask(edge_index, torch.tensor([0.5, 0.5, 0.1, 0.1]), torch.tensor([0, 0, 1]), 2)
        Mask(mask=tensor([1., 1.]), count=tensor([2, 1]))
    """
    row, col = cluster.index_select(0, edge_index[0].long()), cluster.index_select(0, edge_index[1].long())
    inner = row == col
    total = reduce(scores[inner], row[inner], num_clusters)
    count = torch.zeros(num_clusters, dtype=torch.int64, device=cluster.device)
    count = count.index_add(0, row, inner.long())
    return Mask(torch.where(count == 0, torch.ones_like(total), total), count.clamp(min=1))


def reduce(x: Tensor, cluster: Tensor, num_clusters: int, reduce: str = "sum") -> Tensor:
    """Sum, mean or maximum over the nodes of each cluster, elementwise; 0 for a cluster without nodes.

    Args:
        x: ``[num_nodes, ...]``; gets a gradient. Of several equal maxima, the lowest node gets it.
        cluster: int64 ``[num_nodes]``.
        num_clusters: how many clusters there are.
        reduce: ``"sum"``, ``"mean"`` or ``"max"``.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> reference.reduce(torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]), 2, "mean")
        tensor([[1.5000],
                [5.0000]])
    """
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce: expected one of {REDUCTIONS}, got {reduce!r}")
    if reduce == "max":
        return _maximum(x, cluster, num_clusters)
    total = accumulate_(x.new_zeros(num_clusters, *x.shape[1:], dtype=_sum_dtype(x)), x, cluster)
    if reduce == "mean":
        size = torch.bincount(cluster, minlength=num_clusters).clamp(min=1)
        total = total / size.to(total.dtype).view(-1, *[1] * (x.dim() - 1))
    return total.to(x.dtype)


_reduce = reduce  # for those whose argument has the same name


def accumulate_(out: Tensor, x: Tensor, cluster: Tensor) -> Tensor:
    """``out[cluster[i]] += x[i]`` in ascending i, in place, in the dtype of ``out``.

    So the sums of a tensor taken tile by tile have the bits of one :func:`reduce` (which rounds its float32
    sums to half precision at the end).

    Args:
        out: ``[num_clusters, ...]``.
        x: ``[num_nodes, ...]``.
        cluster: int64 ``[num_nodes]``.

    Returns:
        ``out``
    """
    return out.index_add_(0, cluster, x.to(out.dtype))


def _sum_dtype(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def _maximum(x: Tensor, cluster: Tensor, num_clusters: int) -> Tensor:
    num_nodes = x.size(0)
    index = cluster.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    shape = (num_clusters, *x.shape[1:])
    highest = x.detach().new_zeros(shape).scatter_reduce(0, index, x.detach(), "amax", include_self=False)
    node = torch.arange(num_nodes, device=x.device).view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    candidate = torch.where(x.detach() == highest.gather(0, index), node, num_nodes)
    first = node.new_full(shape, num_nodes).scatter_reduce(0, index, candidate, "amin")
    padded = torch.cat([x, x.new_zeros(1, *x.shape[1:])])  # the row that clusters without nodes take
    return padded.gather(0, first)


# ------------------------------------------------------------------------------------------------------------
# Products over pairs of nodes
# ------------------------------------------------------------------------------------------------------------


def pair_dot(h: Tensor, weight: Tensor, pairs: Tensor) -> Tensor:
    r"""A one-layer scorer before its bias: :math:`\sum_k h_{ik} w_k h_{jk}` for every pair (i, j).

    Args:
        h: ``[num_nodes, channels]``; gets a gradient.
        weight: ``[channels]``; gets a gradient.
        pairs: int64 ``[2, num_pairs]``.

    Returns:
        ``[num_pairs]``, in the dtype of ``h``.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> h = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> reference.pair_dot(h, torch.tensor([1.0, 10.0]), torch.tensor([[0], [1]]))
        tensor([83.])
    """
    wide = h.to(_sum_dtype(h))
    product = wide.index_select(0, pairs[0]) * weight.to(wide.dtype) * wide.index_select(0, pairs[1])
    return product.sum(dim=1).to(h.dtype)


def pair_product(h: Tensor, pairs: Tensor) -> Tensor:
    r""":math:`\mathbf{h}_i \odot \mathbf{h}_j` for every pair (i, j): ``[num_pairs, channels]``.

    Args:
        h: ``[num_nodes, channels]``; gets a gradient.
        pairs: int64 ``[2, num_pairs]``.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> reference.pair_product(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0], [1]]))
        tensor([[3., 8.]])
    """
    return h.index_select(0, pairs[0]) * h.index_select(0, pairs[1])


def pair_product_backward_(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> Tensor:
    """Adds what a tile of :func:`pair_product` gives to the gradient of ``h``, in place, pair after pair.

    Args:
        grad_h: ``[num_nodes, channels]``, float32 where ``h`` is in half precision.
        grad_product: ``[num_pairs, channels]``: the gradient of the tile.
        h: ``[num_nodes, channels]``.
        pairs: int64 ``[2, num_pairs]``.

    Returns:
        ``grad_h``
    """
    g, wide = grad_product.to(grad_h.dtype), h.to(grad_h.dtype)
    at_i, at_j = g * wide.index_select(0, pairs[1]), g * wide.index_select(0, pairs[0])
    # Interleaved: i and j of the first pair, i and j of the second, ...
    return grad_h.index_add_(0, pairs.t().flatten(), torch.stack([at_i, at_j], dim=1).flatten(0, 1))
