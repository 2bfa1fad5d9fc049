"""References for the compiled operators.

:func:`algorithm1` is Algorithm 1 of "Graph Parsing Networks", written down literally to be read beside the
paper. It is slow, and everything else is tested against it. The other functions are the plain-PyTorch forms
of the operators, defined beside them in :mod:`gpn_ops.ops`. They are vectorised, run on every device of torch
and get their gradients from autograd. On every device they check values (node ids in range, no NaN), which
waits for an accelerator.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .ops.coarsen import Coarse, plain_coarsen
from .ops.components import checked_num_nodes
from .ops.components import plain_components as components
from .ops.dominant import plain_dominant as dominant
from .ops.lift import plain_lift as lift
from .ops.mask import Mask, plain_mask
from .ops.pair_dot import plain_pair_dot as pair_dot
from .ops.pair_product import plain_pair_product as pair_product
from .ops.pair_product import plain_pair_product_backward_
from .ops.parse import plain_parse as parse
from .ops.reduce import plain_accumulate_
from .ops.reduce import plain_reduce as reduce
from .ops.undirected import Undirected, plain_undirected

__all__ = [
    "Coarse",
    "Mask",
    "Undirected",
    "accumulate_",
    "algorithm1",
    "coarsen",
    "components",
    "dense_adjacency",
    "dense_coarsen",
    "dominant",
    "gen",
    "lift",
    "mask",
    "pair_dot",
    "pair_product",
    "pair_product_backward_",
    "parse",
    "reduce",
    "undirected",
]


class Edge(NamedTuple):
    """One stored edge: node ``row`` may choose node ``col``, and values that choice at ``score``."""

    row: int
    col: int
    score: float


# The sparse edge score matrix C: edge id -> edge. An edge exists if its id is a key, whatever its score. Two
# edges between the same nodes are two keys.
EdgeScores = dict[int, Edge]


def dom(C: EdgeScores) -> EdgeScores:
    """DOM: keeps the highest-scored edge of every row; among equal scores, the one with the lowest id."""
    idx: dict[int, int] = {}
    for e, edge in sorted(C.items()):
        if edge.row not in idx or edge.score > C[idx[edge.row]].score:
            idx[edge.row] = e
    return {e: C[e] for e in idx.values()}


def argmax(C_hat: EdgeScores) -> int:
    """The highest-scored edge; among equal scores, the one with the lowest id."""
    return max(C_hat, key=lambda e: (C_hat[e].score, -e))


def exp(idx: set[int], C_hat: EdgeScores) -> tuple[set[int], set[int]]:
    """EXP: the nodes of the edges ``idx`` (the paper's l), and all edges of ``C_hat`` at these nodes."""
    nodes = {C_hat[e].row for e in idx} | {C_hat[e].col for e in idx}
    idx_prime = {e for e, edge in C_hat.items() if edge.row in nodes or edge.col in nodes}
    return nodes, idx_prime


def gen(cluster: Tensor) -> Tensor:
    r"""GEN: the assignment matrix :math:`\mathbf{S}` of a cluster vector, ``S[i, cluster[i]] = 1``.

    Args:
        cluster: int64 ``[num_nodes]``, numbered as by :func:`parse`.

    Returns:
        float32 ``[num_nodes, num_clusters]``, with a single 1 in every row and at least one in every column.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> reference.gen(torch.tensor([0, 1, 0]))
        tensor([[1., 0.],
                [0., 1.],
                [1., 0.]])
    """
    num_clusters = int(cluster.max()) + 1 if cluster.numel() > 0 else 0
    S = torch.zeros(cluster.numel(), num_clusters, dtype=torch.float32, device=cluster.device)
    S[torch.arange(cluster.numel(), device=cluster.device), cluster] = 1
    return S


def algorithm1(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    """Algorithm 1 of the paper, line by line, with two corrections that its text implies.

    * Lines 6 to 10: the loop runs *while* the edge set still grows (the listing has the test inverted).
    * "Nonzero" means "the edge exists", so edges with a score of zero or below count.

    Arguments, result and errors are those of :func:`parse`. Takes quadratic time: it is meant for reading and
    for testing.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> reference.algorithm1(edge_index, torch.tensor([0.9, 0.9, 0.1, 0.1, 0.8, 0.8]))
        tensor([0, 0, 1, 1])
    """
    num_nodes = checked_num_nodes(edge_index, scores, num_nodes)
    edges = zip(*edge_index.tolist(), scores.detach().tolist(), strict=True)
    C = {e: Edge(*edge) for e, edge in enumerate(edges)}

    C_hat = dom(C)  # line 1
    s: set[tuple[int, int]] = set()  # line 2
    p = 0  # line 3
    while C_hat:  # line 4, repaired: while an edge is left, whatever its score
        idx = {argmax(C_hat)}  # line 5
        while True:  # line 6
            q = len(idx)  # line 7
            nodes, idx_prime = exp(idx, C_hat)  # line 8
            idx = idx | idx_prime  # line 9
            if not len(idx) > q:  # line 10, repaired: again while the edge set has grown
                break
        s = s | {(i, p) for i in nodes}  # line 11
        C_hat = {e: edge for e, edge in C_hat.items() if e not in idx}  # line 12
        p = p + 1  # line 13

    # "If the graph has isolated nodes, we generate a separate cluster for each isolated node."
    assigned = {i for i, _ in s}
    for i in range(num_nodes):
        if i not in assigned:
            s.add((i, p))
            p = p + 1

    # Clusters in the order of their smallest nodes. gen() makes the matrix of lines 15 and 16.
    cluster_of = dict(s)
    number: dict[int, int] = {}
    for i in range(num_nodes):
        number.setdefault(cluster_of[i], len(number))
    cluster = [number[cluster_of[i]] for i in range(num_nodes)]
    return torch.tensor(cluster, dtype=torch.int64, device=edge_index.device)


def dense_adjacency(edge_index: Tensor, num_nodes: int, weight: Tensor | None = None) -> Tensor:
    r"""The matrix :math:`\mathbf{A}`: ``A[i, j]`` is the sum of the weights (default 1) of all edges from i
    to j."""
    if weight is None:
        weight = torch.ones(edge_index.size(1), device=edge_index.device)
    A = weight.new_zeros(num_nodes * num_nodes, *weight.shape[1:])
    cell = edge_index[0].long() * num_nodes + edge_index[1].long()
    return A.index_add(0, cell, weight).view(num_nodes, num_nodes, *weight.shape[1:])


def dense_coarsen(A: Tensor, S: Tensor) -> Tensor:
    r"""Equation 2: :math:`\mathbf{S}^{\top} \mathbf{A} \mathbf{S}`. Inner edges end up on the diagonal."""
    return S.t() @ A @ S


# ------------------------------------------------------------------------------------------------------------
# Returning what the public functions return
# ------------------------------------------------------------------------------------------------------------

_reduce = reduce  # for those whose argument has the same name


def coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None = None,
    reduce: str = "sum",
    self_loops: bool = False,
) -> Coarse:
    """As :func:`gpn_ops.coarsen`."""
    edges, slot, representative, _ = plain_coarsen(edge_index, cluster, self_loops, True)
    if edge_attr is not None:
        edge_attr = _reduce(edge_attr, slot, edges.size(1), reduce)
    return Coarse(edges, edge_attr, representative)


def undirected(edge_index: Tensor, num_nodes: int) -> Undirected:
    """As :func:`gpn_ops.undirected`."""
    return Undirected(*plain_undirected(edge_index, num_nodes))


def mask(edge_index: Tensor, scores: Tensor, cluster: Tensor, num_clusters: int) -> Mask:
    """As :func:`gpn_ops.mask`."""
    return Mask(*plain_mask(edge_index, scores, cluster, num_clusters))


def accumulate_(out: Tensor, x: Tensor, cluster: Tensor) -> Tensor:
    """As :func:`gpn_ops.accumulate_`."""
    plain_accumulate_(out, x, cluster)
    return out


def pair_product_backward_(grad_h: Tensor, grad_product: Tensor, h: Tensor, pairs: Tensor) -> Tensor:
    """As :func:`gpn_ops.pair_product_backward_`."""
    plain_pair_product_backward_(grad_h, grad_product, h, pairs)
    return grad_h
