"""What 1-WL tells apart stays apart after pooling; and the graphs that show it are what they should be."""

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("networkx", reason="an independent 1-WL test")

import networkx
from torch import nn

from models import expressive
from models.expressive import CORES, METHODS, Pooled, share, shares, told_apart, twins

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
PAIRS = 30


@pytest.fixture(scope="module")
def pairs():
    random = torch.Generator().manual_seed(0)
    return [twins(random) for _ in range(PAIRS)]


def of_networkx(edges, num_nodes):
    graph = networkx.Graph(edges)
    graph.add_nodes_from(range(num_nodes))
    return graph


def test_twins_have_the_same_degrees_and_1_wl_tells_them_apart(pairs):
    for first, second, num_nodes in pairs:
        one, two = (of_networkx(edges, num_nodes) for edges in (first, second))
        assert one.number_of_edges() == two.number_of_edges() == len(first)
        assert dict(one.degree()) == dict(two.degree())
        assert len(set(first) - set(second)) == 2
        hashes = [networkx.weisfeiler_lehman_graph_hash(each, iterations=4) for each in (one, two)]
        assert hashes[0] != hashes[1]


def test_colour_refinement_is_not_told_more_than_it_can_see():
    """Two triangles and a ring of six look alike; so does a graph and another numbering of its nodes."""
    triangles = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]
    ring = [(k, (k + 1) % 6) for k in range(6)]
    assert not told_apart(triangles, ring, 6)
    assert not told_apart([(0, 1), (1, 2)], [(1, 0), (0, 2)], 3)
    # A path of five against a star whose one arm is longer: degrees 1, 1, 2, 2, 2 and 1, 1, 1, 2, 3.
    path, spider = [(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 1), (0, 2), (0, 3), (3, 4)]
    assert told_apart(path, spider, 5, rounds=1)
    assert not told_apart(path, spider, 5, rounds=0)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "topk"])  # It drops nodes.
@pytest.mark.parametrize("seed", [0, 1])
def test_twins_stay_apart(method, seed):
    assert share(method, PAIRS, seed).apart == 1.0


def test_twins_that_message_passing_does_not_see_do_not_stay_apart(monkeypatch):
    """Without convolutions, all nodes alike, of which one is read, nothing is left to tell apart."""

    class First(nn.Module):
        def forward(self, x, edge_index, batch):
            graph = batch.unique()
            return x[: graph.numel()], None, None, graph

    class Blind(Pooled):
        def __init__(self, method):
            super().__init__(method)
            self.convs, self.pool, self.last = nn.ModuleList(), First(), nn.Linear(1, 4)

    monkeypatch.setattr(expressive, "Pooled", Blind)
    assert share("gpn", PAIRS, 0) == (0.0, 0.0)


def test_shares_by_hand():
    """Two pairs, two numberings, vectors of one number."""
    apart = [[[1.0], [1.0]], [[2.0], [2.0]]]
    mixed = [[[1.0], [2.0]], [[2.0], [3.0]]]  # One numbering of each graph gives the same.
    assert shares(torch.tensor([apart, apart])) == (1.0, 0.0)
    assert shares(torch.tensor([apart, mixed])) == (0.5, 0.5)
    # Rounding is no difference.
    alike = [[[1.0], [1.0 + 1e-12]], [[1.0], [1.0]]]
    assert shares(torch.tensor([alike], dtype=torch.float64)) == (0.0, 0.0)


def test_cores_have_the_same_degrees_and_two_rounds_tell():
    first, second = CORES
    one, two = (of_networkx(edges, expressive.CORE_NODES) for edges in CORES)
    assert sorted(dict(one.degree()).values()) == sorted(dict(two.degree()).values())
    assert one.degree(expressive.MIDDLE) == two.degree(expressive.MIDDLE) == 2
    assert networkx.is_tree(one)
    assert networkx.is_tree(two)
    assert not told_apart(first, second, expressive.CORE_NODES, rounds=1)
    assert told_apart(first, second, expressive.CORE_NODES, rounds=2)


def test_the_set_of_cores():
    found = expressive.Cores(6)
    assert [int(item.y) for item in found] == [0, 1] * 3
    for item in found:
        graph = of_networkx(item.edge_index.t().tolist(), item.num_nodes)
        assert networkx.is_tree(graph)
        assert item.edge_index.size(1) == 2 * (item.num_nodes - 1)
        hubs = [node for node, degree in graph.degree() if degree == 6]
        assert len(hubs) >= 2
        assert bool((item.x == 1).all())
    assert all(
        torch.equal(first.edge_index, second.edge_index)
        for first, second in zip(found, expressive.Cores(6), strict=True)
    )


def test_graph_stores_both_directions_in_order():
    assert expressive.graph([(0, 1), (1, 2)], 3).edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]


def test_command(capsys):
    assert expressive.main(["--pairs", "3", "--seeds", "0"]) == 0
    printed = capsys.readouterr().out
    assert "Of 3 pairs of twins" in printed
    assert "| GPN | 100.0% |" in printed
