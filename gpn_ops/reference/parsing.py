"""The operators in plain PyTorch, twice.

:func:`algorithm1` is Algorithm 1 of "Graph Parsing Networks" written down literally, to be read beside the
paper; it is slow and is what everything else is compared with. :func:`dominant`, :func:`components` and
:func:`parse` are vectorised: they use torch operators only, so they run on every device torch has, also where
no compiled kernel exists.

All four keep the contract of the compiled operators (docs/contract.md), with one difference in their favour:
values (node ids in range, no NaN) are checked on every device, which reads data and so waits for an
accelerator.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gpn_ops._checks import check_metadata, check_values

# ------------------------------------------------------------------------------------------------------------
# Algorithm 1, literally
# ------------------------------------------------------------------------------------------------------------


class Edge(NamedTuple):
    """One stored edge: node ``row`` may choose node ``col``, and values that choice at ``score``."""

    row: int
    col: int
    score: float


# The edge score matrix C, sparse: edge id -> edge. An edge exists because it is a key, whatever its score,
# and two edges between the same nodes are two keys.
EdgeScores = dict[int, Edge]


def dom(C: EdgeScores) -> EdgeScores:
    """DOM: keep the highest-scored edge of every row, the lowest edge id among equals."""
    idx: dict[int, int] = {}
    for e, edge in sorted(C.items()):
        if edge.row not in idx or edge.score > C[idx[edge.row]].score:
            idx[edge.row] = e
    return {e: C[e] for e in idx.values()}


def argmax(C_hat: EdgeScores) -> int:
    """The highest-scored edge, the lowest edge id among equals."""
    return max(C_hat, key=lambda e: (C_hat[e].score, -e))


def exp(idx: set[int], C_hat: EdgeScores) -> tuple[set[int], set[int]]:
    """EXP: the nodes of the edges ``idx`` (the paper's l), and the edges of ``C_hat`` at one of them."""
    nodes = {C_hat[e].row for e in idx} | {C_hat[e].col for e in idx}
    idx_prime = {e for e, edge in C_hat.items() if edge.row in nodes or edge.col in nodes}
    return nodes, idx_prime


def gen(cluster: Tensor) -> Tensor:
    r"""GEN: the assignment matrix :math:`\mathbf{S}` of a cluster vector, ``S[i, cluster[i]] = 1``.

    Args:
        cluster: int64 ``[num_nodes]``, numbered as :func:`parse` numbers.

    Returns:
        float32 ``[num_nodes, num_clusters]``, one 1 in every row, at least one in every column.

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
    """Algorithm 1 of the paper, line by line, with the two repairs that its text calls for.

    * Lines 6 to 10: the loop runs *while* the edge set still grows (the listing prints the test inverted).
    * "Nonzero" means "the edge exists", so edges of score zero and below count.

    Arguments, result and errors are those of :func:`parse`. Takes quadratic time: meant for reading and for
    testing.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> reference.algorithm1(edge_index, torch.tensor([0.9, 0.9, 0.1, 0.1, 0.8, 0.8]))
        tensor([0, 0, 1, 1])
    """
    num_nodes = _checked_num_nodes(edge_index, scores, num_nodes)
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


# ------------------------------------------------------------------------------------------------------------
# Vectorised
# ------------------------------------------------------------------------------------------------------------


def dominant(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    """The dominant edge of every node: the edge of its row with the highest score.

    Among equal scores the lowest edge id wins. ``-0.0`` equals ``0.0``, ``-inf`` is the lowest score and
    ``inf`` the highest.

    Args:
        edge_index: int64 or int32 ``[2, num_edges]``; ``edge_index[0]`` chooses among ``edge_index[1]``. Any
            order, any strides.
        scores: float32, float64, float16 or bfloat16 ``[num_edges]``. Receives no gradient.
        num_nodes: how many nodes there are; ``None`` for the largest id in ``edge_index`` plus one.

    Returns:
        int64 ``[num_nodes]``, an edge id (a column of ``edge_index``) per node; -1 for a node without an edge
        in its row.

    Raises:
        RuntimeError: if an argument breaks the contract; the text names the argument, what was expected and
            what came.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> reference.dominant(edge_index, torch.tensor([0.5, 0.5, 0.7, 0.7]), num_nodes=4)
        tensor([ 0,  2,  3, -1])
    """
    num_nodes = _checked_num_nodes(edge_index, scores, num_nodes)
    return _dominant(edge_index[0].long(), scores.detach(), num_nodes)


def components(edge_index: Tensor, num_nodes: int | None = None) -> Tensor:
    """The weakly connected components of an edge list, numbered in the order of their smallest nodes.

    Takes at most log2(num_nodes) rounds of at most log2(num_nodes) + 1 pointer jumps each, whatever the
    graph.

    Args:
        edge_index: int64 or int32 ``[2, num_edges]``; directions are ignored. Any order, any strides.
        num_nodes: how many nodes there are; ``None`` for the largest id in ``edge_index`` plus one.

    Returns:
        int64 ``[num_nodes]``, the component of each node: consecutive from 0, never above the node's own
        index.

    Raises:
        RuntimeError: if an argument breaks the contract; the text names the argument, what was expected and
            what came.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> reference.components(torch.tensor([[4, 1], [2, 3]]), num_nodes=6)
        tensor([0, 1, 2, 1, 2, 3])
    """
    num_nodes = _checked_num_nodes(edge_index, None, num_nodes)
    return _components(edge_index[0].long(), edge_index[1].long(), num_nodes)


def parse(edge_index: Tensor, scores: Tensor, num_nodes: int | None = None) -> Tensor:
    """Parse a graph into clusters: the weakly connected components of its dominant edges.

    Args:
        edge_index: int64 or int32 ``[2, num_edges]``; ``edge_index[0]`` chooses among ``edge_index[1]``. An
            undirected graph stores both directions. Any order, any strides.
        scores: float32, float64, float16 or bfloat16 ``[num_edges]``. Receives no gradient.
        num_nodes: how many nodes there are; ``None`` for the largest id in ``edge_index`` plus one.

    Returns:
        int64 ``[num_nodes]``, the cluster of each node: consecutive from 0 in the order of the clusters'
        smallest nodes, so never above the node's own index.

    Raises:
        RuntimeError: if an argument breaks the contract; the text names the argument, what was expected and
            what came.

    Example:
        >>> import torch
        >>> from gpn_ops import reference
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> reference.parse(edge_index, torch.tensor([0.9, 0.9, 0.1, 0.1, 0.8, 0.8]))
        tensor([0, 0, 1, 1])
    """
    num_nodes = _checked_num_nodes(edge_index, scores, num_nodes)
    chosen_edge = _dominant(edge_index[0].long(), scores.detach(), num_nodes)
    chooser = (chosen_edge >= 0).nonzero().squeeze(1)
    chosen = edge_index[1].long().index_select(0, chosen_edge.index_select(0, chooser))
    return _components(chooser, chosen, num_nodes)


def _checked_num_nodes(edge_index: Tensor, scores: Tensor | None, num_nodes: int | None) -> int:
    check_metadata(edge_index, scores, num_nodes)
    check_values(edge_index, scores, num_nodes)
    if num_nodes is not None:
        return num_nodes
    return int(edge_index.max()) + 1 if edge_index.numel() > 0 else 0


def _dominant(row: Tensor, scores: Tensor, num_nodes: int) -> Tensor:
    # Two exact reductions in place of one argmax: the highest score of each row, then the lowest id that has
    # it. Both are free of rounding, so the order in which a device applies them cannot show. Half precision
    # is exact in float32.
    num_edges = row.numel()
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    highest = scores.new_full((num_nodes,), -torch.inf).scatter_reduce_(0, row, scores, "amax")
    edge = torch.arange(num_edges, device=row.device)
    candidate = torch.where(scores == highest.index_select(0, row), edge, num_edges)
    lowest = edge.new_full((num_nodes,), num_edges).scatter_reduce_(0, row, candidate, "amin")
    return torch.where(lowest < num_edges, lowest, -1)


def _components(row: Tensor, col: Tensor, num_nodes: int) -> Tensor:
    # Boruvka's rounds. Every tree hooks itself along the lowest edge that leaves it. If tree a hooks onto
    # tree b, the edge of a leaves b too, so b's edge is as low or lower; around a cycle of hooks all edges
    # are then the same one, and the cycle is a pair. Undoing one hook of each pair leaves a forest, which
    # pointer jumping flattens. Every tree that still has a leaving edge has merged, so their number at least
    # halves in a round.
    node = torch.arange(num_nodes, device=row.device)
    root = node
    while True:
        leaves = (row != col).nonzero().squeeze(1)
        if leaves.numel() == 0:
            return _number_by_smallest_node(root)
        row, col = row.index_select(0, leaves), col.index_select(0, leaves)

        edge = torch.arange(row.numel(), device=row.device)
        lowest = edge.new_full((num_nodes,), row.numel())
        lowest.scatter_reduce_(0, row, edge, "amin").scatter_reduce_(0, col, edge, "amin")
        tree = (lowest < row.numel()).nonzero().squeeze(1)
        hook = lowest.index_select(0, tree)
        other_end = row.index_select(0, hook) + col.index_select(0, hook) - tree
        parent = node.index_copy(0, tree, other_end)
        is_pair = parent.index_select(0, parent) == node
        parent = torch.where(is_pair & (node < parent), node, parent)

        parent = _flatten(parent)
        root, row, col = (parent.index_select(0, ids) for ids in (root, row, col))


def _flatten(parent: Tensor) -> Tensor:
    # Each jump halves the depth of every node.
    while True:
        grandparent = parent.index_select(0, parent)
        if torch.equal(grandparent, parent):
            return parent
        parent = grandparent


def _number_by_smallest_node(root: Tensor) -> Tensor:
    node = torch.arange(root.numel(), device=root.device)
    smallest_of_root = torch.full_like(root, root.numel()).scatter_reduce_(0, root, node, "amin")
    smallest = smallest_of_root.index_select(0, root)
    return ((smallest == node).cumsum(0) - 1).index_select(0, smallest)
