"""progress and sorted_pairs: against what graph after graph says, on all forms."""

import clustered
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.library import opcheck

import gpn_ops
from gpn_ops.ops import Sizes, progress, sorted_pairs
from gpn_ops.ops.progress import plain_progress
from gpn_ops.ops.sorted_pairs import plain_sorted_pairs


def expected_progress(edge_index, batch, num_graphs, cluster, coarse, representative):
    """Graph after graph, in Python."""
    sizes = dict.fromkeys(Sizes._fields, 0)
    sizes["all_clusters"], sizes["all_coarse_edges"] = representative.numel(), coarse.size(1)
    edges, coarse_edges = edge_index.t().tolist(), coarse.t().tolist()
    graph = batch.tolist()
    coarse_graph = [graph[v] for v in representative.tolist()]
    shrinks, goes_on = [], []
    for g in range(num_graphs):
        nodes = [v for v, of in enumerate(graph) if of == g]
        clusters = [c for c, of in enumerate(coarse_graph) if of == g]
        own = [(r, c) for r, c in coarse_edges if coarse_graph[r] == g]
        shrinks.append(int(len(clusters) < len(nodes)))
        goes_on.append(int(shrinks[-1] and any(r != c for r, c in own)))
        if shrinks[-1]:
            sizes["nodes"] += len(nodes)
            sizes["edges"] += sum(graph[r] == g for r, _ in edges)
            sizes["clusters"] += len(clusters)
            sizes["coarse_edges"] += len(own)
        if goes_on[-1]:
            sizes["clusters_on"] += len(clusters)
            sizes["coarse_edges_on"] += len(own)
            sizes["loops_on"] += sum(r == c for r, c in own)
            sizes["one_way_on"] += sum((c, r) not in set(map(tuple, own)) for r, c in own)
    return [*sizes.values(), *shrinks, *goes_on]


def random_batch(seed, both_ways, self_loops):
    """Graphs of some nodes each, not in order; one without nodes, some that nothing joins."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high, size):
        return torch.randint(high, size, generator=generator)

    num_graphs, num_nodes = 5, int(draw(12, ())) + 1
    batch = draw(num_graphs - 1, (num_nodes,))
    edge_index = draw(num_nodes, (2, 3 * num_nodes))
    edge_index = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
    if both_ways:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    few = edge_index[:, torch.rand(edge_index.size(1), generator=generator) < 0.2]
    cluster = gpn_ops.components(few, num_nodes)
    exact = gpn_ops.coarsen(edge_index, cluster, self_loops=self_loops)
    capacity = (num_nodes, edge_index.size(1))
    padded = gpn_ops.coarsen(edge_index, cluster, self_loops=self_loops, capacity=capacity)
    return edge_index, batch, num_graphs, cluster, exact, padded


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("both_ways", [False, True])
@given(seed=st.integers(0, 2**31))
def test_progress(both_ways, self_loops, seed):
    *given_graphs, exact, padded = random_batch(seed, both_ways, self_loops)
    expected = expected_progress(*given_graphs, exact.edge_index, exact.representative)
    for form in (torch.ops.gpn.progress, plain_progress):
        assert form(*given_graphs, exact.edge_index, exact.representative).tolist() == expected
        got = form(*given_graphs, padded.edge_index, padded.representative, padded.count)
        assert got.tolist() == expected


@given(seed=st.integers(0, 2**31))
def test_progress_before_clusters(seed):
    """Which graphs can be pooled at all: those with an edge between two nodes."""
    edge_index, batch, num_graphs, *_ = random_batch(seed, True, False)
    batch = torch.where(batch == 1, 7, batch)  # a number that no graph has
    for form in (torch.ops.gpn.progress, plain_progress):
        out = form(edge_index, batch, num_graphs).tolist()
        joined = set(batch[edge_index[:, edge_index[0] != edge_index[1]]].flatten().tolist()) - {7}
        assert out[-num_graphs:] == [int(g in joined) for g in range(num_graphs)]
        assert out[-2 * num_graphs : -num_graphs] == [1] * num_graphs
        sizes = Sizes(*out[: len(Sizes._fields)])
        assert sizes.clusters_on == sum(g in joined for g in batch.tolist())
        assert sizes.coarse_edges_on == sum(g in joined for g in batch[edge_index[0]].tolist())


def test_opcheck(device):
    edge_index, batch, num_graphs, cluster, _, padded = random_batch(3, True, True)
    arguments = (
        edge_index,
        batch,
        num_graphs,
        cluster,
        padded.edge_index,
        padded.representative,
        padded.count,
    )
    on_device = [a.to(device) if isinstance(a, torch.Tensor) else a for a in arguments]
    opcheck(torch.ops.gpn.progress, tuple(on_device))
    edges = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 0, 2, 1]], device=device)
    opcheck(torch.ops.gpn.sorted_pairs, (edges, 3, 3))
    assert torch.equal(
        progress(*on_device).sizes.cpu(), torch.ops.gpn.progress(*arguments)[: len(Sizes._fields)]
    )


@given(graph=clustered.clustered_graphs())
@pytest.mark.parametrize("self_loops", [False, True])
def test_sorted_pairs(self_loops, graph):
    both = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1).long()
    edges = gpn_ops.coarsen(both, graph.cluster, self_loops=self_loops).edge_index
    wanted = gpn_ops.undirected(edges, graph.num_clusters)
    assert all(map(torch.equal, sorted_pairs(edges, graph.num_clusters, wanted.pairs.size(1)), wanted))
    if graph.num_clusters > 0:
        plain = plain_sorted_pairs(edges, graph.num_clusters, wanted.pairs.size(1))
        assert all(map(torch.equal, plain, wanted))


@pytest.mark.parametrize(
    ("edges", "num_pairs", "message"),
    [
        ([[0, 2, 1], [1, 1, 0]], 2, "sorted by row then column, each once, got others at edge_index[:, 2]"),
        ([[0, 0, 1], [1, 1, 0]], 1, "sorted by row then column, each once, got others at edge_index[:, 1]"),
        ([[0, 1, 2], [1, 0, 1]], 2, "expected the reverse of every edge, got none of edge_index[:, 2]"),
        ([[0, 1], [1, 0]], 2, "num_pairs: expected 1, got 2"),
        ([[0, 1], [1, 0]], 0, "num_pairs: expected 1, got 0"),
        ([[0, 3], [3, 0]], 1, "edge_index: expected node ids from 0 to num_nodes - 1 = 2, got 3"),
    ],
)
def test_other_edges_are_refused(edges, num_pairs, message):
    for form in (torch.ops.gpn.sorted_pairs, plain_sorted_pairs):
        with pytest.raises(RuntimeError) as raised:
            form(torch.tensor(edges), 3, num_pairs)
        assert message in str(raised.value)


def test_progress_of_results_that_did_not_fit(device):
    """coarsen_padded gives ids of -1 then, and a count beyond its room: nothing goes on, nothing is read."""
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], device=device)
    cluster, batch = (
        torch.tensor([0, 0, 1, 2], device=device),
        torch.zeros(4, dtype=torch.int64, device=device),
    )
    for capacity in [(2, 6), (4, 1), (0, 0)]:
        coarse = gpn_ops.coarsen(edge_index, cluster, capacity=capacity)
        found = progress(
            edge_index, batch, 1, cluster, coarse.edge_index, coarse.representative, coarse.count
        )
        sizes = Sizes(*found.sizes.tolist())
        assert sizes == Sizes(4, 6, 0, 0, 0, 0, 0, 0, 3, 4)
        assert found.shrinks.tolist() == [1]
        assert found.goes_on.tolist() == [0]
