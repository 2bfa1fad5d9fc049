"""Independent answers, and properties that any answer must have. Nothing here uses gpn_ops."""

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor


def numbered_by_smallest_node(label: np.ndarray) -> Tensor:
    """Rename labels to 0, 1, ... in the order in which they first occur."""
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return torch.from_numpy(np.argsort(np.argsort(first))[inverse].astype(np.int64))


def dominant_by_numpy(edge_index: Tensor, scores: Tensor, num_nodes: int) -> Tensor:
    """The dominant edges from one sort: by row, then falling score, then rising edge id."""
    row = edge_index[0].long().numpy()
    score = scores.detach().double().numpy()
    order = np.lexsort((np.arange(row.size), -score, row))
    choosers, first = np.unique(row[order], return_index=True)
    dominant = np.full(num_nodes, -1, dtype=np.int64)
    dominant[choosers] = order[first]
    return torch.from_numpy(dominant)


def components_by_scipy(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Weakly connected components, numbered by their smallest nodes."""
    if num_nodes == 0:
        return torch.zeros(0, dtype=torch.int64)
    row, col = edge_index.long().numpy()
    adjacency = coo_array((np.ones(row.size, dtype=np.int8), (row, col)), shape=(num_nodes, num_nodes))
    return numbered_by_smallest_node(connected_components(adjacency, directed=True, connection="weak")[1])


def dominant_edges(edge_index: Tensor, scores: Tensor, num_nodes: int) -> Tensor:
    """The edge list that only keeps dominant edges, int64 [2, number of choosers]."""
    dominant = dominant_by_numpy(edge_index, scores, num_nodes)
    return edge_index.long()[:, dominant[dominant >= 0]]


def parse_by_scipy(edge_index: Tensor, scores: Tensor, num_nodes: int) -> Tensor:
    """The clusters of parse."""
    return components_by_scipy(dominant_edges(edge_index, scores, num_nodes), num_nodes)


def assert_numbered(cluster: Tensor) -> None:
    """Consecutive from 0 in the order of each cluster's smallest node."""
    assert cluster.dtype == torch.int64
    assert torch.equal(cluster, numbered_by_smallest_node(cluster.numpy()))
    assert bool((cluster <= torch.arange(cluster.numel())).all())


def assert_same_partition(left: Tensor, right: Tensor) -> None:
    """The same clusters, whatever their numbers."""
    assert torch.equal(numbered_by_smallest_node(left.numpy()), numbered_by_smallest_node(right.numpy()))


def assert_connectivity_kept(edge_index: Tensor, cluster: Tensor) -> None:
    """Two nodes are connected in the graph exactly if their clusters are connected in the coarse graph."""
    num_clusters = int(cluster.max()) + 1 if cluster.numel() > 0 else 0
    fine = components_by_scipy(edge_index, cluster.numel())
    coarse = components_by_scipy(cluster[edge_index.long()], num_clusters)
    assert_same_partition(fine, coarse[cluster])


def assert_every_component_shrinks(edge_index: Tensor, cluster: Tensor) -> None:
    """Each component with an edge is at least halved. Both directions stored, no self-loops."""
    component = components_by_scipy(edge_index, cluster.numel())
    for members in (component == c for c in component[edge_index[0].long()].unique()):
        assert 2 * cluster[members].unique().numel() <= int(members.sum())


def cycle_lengths(edge_index: Tensor, scores: Tensor, num_nodes: int) -> list[tuple[int, int]]:
    """(smallest node, length) of every cycle among the dominant edges; a mutual pair has length 2."""
    chooser, chosen = dominant_edges(edge_index, scores, num_nodes)
    choice = dict(zip(chooser.tolist(), chosen.tolist(), strict=True))
    found = set()
    for start in choice:
        walk = [start]
        while (after := choice.get(walk[-1])) is not None and after not in walk:
            walk.append(after)
        if after is not None:
            cycle = walk[walk.index(after) :]
            found.add((min(cycle), len(cycle)))
    return sorted(found)
