"""The state of the graphs of a batch: all that a level of pooling needs to know, at once."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import (
    check_batch,
    check_cluster,
    check_count,
    check_device,
    check_dtype,
    check_metadata,
    check_shape,
)
from . import waits
from .coarsen import OrderedCoarse, coarsen_ordered, gives_order, joined
from .plain import plain_form


class Sizes(NamedTuple):
    """The sizes that a level of pooling needs on the host, in the order of csrc/core/progress.h."""

    nodes: int
    """Nodes of graphs that shrink, which means that two of their nodes are in one cluster."""
    edges: int
    """Their edges."""
    clusters: int
    """Their clusters."""
    coarse_edges: int
    """The edges between these clusters, self-loops included."""
    clusters_on: int
    """Clusters of graphs that go on: they shrink and still have an edge between two clusters."""
    coarse_edges_on: int
    """The edges of these graphs."""
    loops_on: int
    """Those of these edges that are self-loops."""
    one_way_on: int
    """Those of these edges that have no reverse."""
    all_clusters: int
    """Clusters of all graphs."""
    all_coarse_edges: int
    """Edges of the coarse graph."""


class Progress(NamedTuple):
    """The state of the graphs of a batch."""

    sizes: Tensor
    """int64 ``[10]``: :class:`Sizes`."""
    shrinks: Tensor
    """int64 ``[num_graphs]``: 1 for a graph with two nodes in one cluster, else 0."""
    goes_on: Tensor
    """int64 ``[num_graphs]``: 1 for one that shrinks and still has an edge between two clusters, else 0."""


def progress(
    edge_index: Tensor,
    batch: Tensor,
    num_graphs: int,
    cluster: Tensor | None = None,
    coarse: Tensor | None = None,
    representative: Tensor | None = None,
    count: Tensor | None = None,
) -> Progress:
    """The state of the graphs of a batch, without waiting for the device.

    Args:
        edge_index: The edges, ``[2, m]``.
        batch: The graph of each node, int64 ``[n]``. Nodes whose graph is out of range are not counted.
        num_graphs: The number of graphs.
        cluster: The cluster of each node, int64 ``[n]``. If ``None``, every node is a cluster, all graphs
            count as shrinking, and neither self-loops nor edges without a reverse are counted.
        coarse: The edges between clusters, ``[2, k]``, sorted, optionally padded with -1.
        representative: A node of each cluster, ``[c]``, optionally padded with -1.
        count: The numbers of clusters and coarse edges, int64 ``[2]``. If ``None``, there is no padding.
    """
    out = torch.ops.gpn.progress(edge_index, batch, num_graphs, cluster, coarse, representative, count)
    num_sizes = len(Sizes._fields)
    return Progress(out[:num_sizes], out[num_sizes : num_sizes + num_graphs], out[num_sizes + num_graphs :])


def coarsen_batch(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None,
    reduce: str,
    self_loops: bool,
    batch: Tensor,
    takes_part: Tensor | None,
    num_graphs: int,
    all_edges: Tensor,
) -> tuple[OrderedCoarse, Progress]:
    """:func:`coarsen_ordered`, and what became of the graphs of the batch: one wait for both on CUDA, after
    which :obj:`sizes` is on the host.

    Args:
        all_edges: The edges that count as those of the graphs; ``edge_index`` may have fewer, and more
            self-loops.
    """
    if waits.reads_are_free(edge_index.device):
        coarse = coarsen_ordered(edge_index, cluster, edge_attr, reduce, self_loops, batch, takes_part)
        return coarse, progress(
            all_edges, batch, num_graphs, cluster, coarse.edge_index, coarse.representative
        )
    room, with_order = (cluster.size(0), edge_index.size(1)), gives_order(edge_index, self_loops)
    edges, slot, representative, count, order = torch.ops.gpn.coarsen_padded(
        edge_index, cluster, *room, self_loops, edge_attr is not None, batch, with_order, takes_part
    )
    found = progress(all_edges, batch, num_graphs, cluster, edges, representative, count)
    found = found._replace(sizes=found.sizes.cpu())
    *_, num_clusters, num_edges = found.sizes.tolist()
    if edge_attr is not None:
        edge_attr = joined(edge_attr, slot[: edge_attr.size(0)], num_edges, reduce)
    # Not a view, which would hold the memory of all that there was room for.
    edges = edges[:, :num_edges].contiguous()
    order = order if with_order else None
    return OrderedCoarse(edges, edge_attr, representative[:num_clusters], order), found


def check_progress(
    edge_index: Tensor,
    batch: Tensor,
    num_graphs: int,
    cluster: Tensor | None,
    coarse: Tensor | None,
    representative: Tensor | None,
    count: Tensor | None,
) -> None:
    check_metadata(edge_index, None, None)
    check_batch(batch, None, "edge_index", edge_index)
    check_count("num_graphs", num_graphs)
    if cluster is None:
        return
    check_cluster(cluster, edge_index)
    check_shape("cluster", cluster, ("num_nodes", batch.size(0)))
    if coarse is None or representative is None:
        raise RuntimeError("coarse, representative: expected tensors where there is a cluster")
    check_dtype("coarse", coarse, torch.int64)
    check_shape("coarse", coarse, ("2", 2), ("num_edges", None))
    check_device("coarse", coarse, "edge_index", edge_index)
    check_dtype("representative", representative, torch.int64)
    check_shape("representative", representative, ("num_clusters", None))
    check_device("representative", representative, "edge_index", edge_index)
    if count is not None:
        check_dtype("count", count, torch.int64)
        check_shape("count", count, ("2", 2))
        check_device("count", count, "edge_index", edge_index)


@plain_form("progress")
def plain_progress(
    edge_index: Tensor,
    batch: Tensor,
    num_graphs: int,
    cluster: Tensor | None = None,
    coarse: Tensor | None = None,
    representative: Tensor | None = None,
    count: Tensor | None = None,
) -> Tensor:
    """As :func:`progress`, in one tensor: the sizes, which graphs shrink, which go on. Does not wait."""
    check_progress(edge_index, batch, num_graphs, cluster, coarse, representative, count)
    # An additional graph holds the nodes that are in none.
    nowhere = batch.new_full((1,), num_graphs)
    graph = torch.where((batch >= 0) & (batch < num_graphs), batch, num_graphs)
    row, col = edge_index.long()
    if cluster is None or coarse is None or representative is None:
        coarse, graph_of_cluster = edge_index.long(), torch.cat([graph, nowhere])
        shrinks = batch.new_ones(num_graphs + 1)
        all_sizes = batch.new_tensor([graph.size(0), coarse.size(1)])
    else:
        graph_of_cluster = torch.cat([graph, nowhere]).index_select(
            0, torch.where(representative < 0, graph.size(0), representative)
        )
        graph_of_cluster = torch.cat([graph_of_cluster, nowhere])
        joins = (row != col) & (cluster.index_select(0, row) == cluster.index_select(0, col))
        marked = torch.where(joins, graph.index_select(0, row), num_graphs)
        shrinks = batch.new_zeros(num_graphs + 1).index_fill(0, marked, 1)
        all_sizes = batch.new_tensor([representative.size(0), coarse.size(1)]) if count is None else count
    shrinks[-1] = 0
    coarse = torch.where(coarse < 0, graph_of_cluster.size(0) - 1, coarse)
    graph_of_edge = graph_of_cluster.index_select(0, coarse.flatten()).view(2, -1)
    joined = torch.where(coarse[0] != coarse[1], graph_of_edge, num_graphs)
    goes_on = batch.new_zeros(num_graphs + 1).index_fill(0, joined.flatten(), 1) * shrinks

    on = goes_on.index_select(0, graph_of_edge[0])
    zero = batch.new_zeros(())
    loops, one_way = zero, zero
    if cluster is not None:
        key, reverse = (end[0] * graph_of_cluster.size(0) + end[1] for end in (coarse, coarse.flip(0)))
        at = torch.searchsorted(key, reverse).clamp(max=max(key.size(0) - 1, 0))
        loops = (on * (coarse[0] == coarse[1])).sum()
        one_way = (on * (key.index_select(0, at) != reverse)).sum()
    counted = (
        shrinks.index_select(0, graph).sum(),
        shrinks.index_select(0, graph.index_select(0, row)).sum(),
        shrinks.index_select(0, graph_of_cluster).sum(),
        shrinks.index_select(0, graph_of_edge[0]).sum(),
        goes_on.index_select(0, graph_of_cluster).sum(),
        on.sum(),
        loops,
        one_way,
    )
    return torch.cat([torch.stack(counted), all_sizes, shrinks[:-1], goes_on[:-1]])


@torch.library.register_fake("gpn::progress")
def _(
    edge_index: Tensor,
    batch: Tensor,
    num_graphs: int,
    cluster: Tensor | None = None,
    coarse: Tensor | None = None,
    representative: Tensor | None = None,
    count: Tensor | None = None,
) -> Tensor:
    check_progress(edge_index, batch, num_graphs, cluster, coarse, representative, count)
    return batch.new_empty(len(Sizes._fields) + 2 * num_graphs)
