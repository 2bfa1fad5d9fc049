"""The demo: its data set is what it says, and it trains and draws."""

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("matplotlib", reason="the demo draws")

from torch_geometric.utils import to_undirected

import gpn_ops
from models import communities, demo


def num_components(edge_index, num_nodes):
    return gpn_ops.components(edge_index, num_nodes).unique().numel()


@pytest.fixture(scope="module")
def graphs():
    return communities.Communities(150)


@pytest.mark.parametrize("num_nodes", [4, 6, 8, 18])
def test_cubic_graph(num_nodes):
    edges = torch.tensor(communities.cubic_graph(num_nodes, torch.Generator().manual_seed(0))).t()
    assert edges.flatten().bincount().tolist() == [3] * num_nodes
    assert edges.unique(dim=1).size(1) == 3 * num_nodes // 2
    assert bool((edges[0] != edges[1]).all())
    assert num_components(to_undirected(edges), num_nodes) == 1


def test_classes_are_numbers_of_communities(graphs):
    for k, graph in enumerate(graphs):
        assert int(graph.y) == k % 3
        edge_index, kind = to_undirected(graph.edge_index), graph.x.argmax(dim=1)
        assert num_components(edge_index, 54) == 1
        inside = kind[edge_index[0]] == kind[edge_index[1]]
        assert num_components(edge_index[:, inside], 54) == 3 * (int(graph.y) + 1)


def test_simple_counts_do_not_tell_the_class(graphs):
    for graph in graphs:
        assert graph.x.sum(dim=0).tolist() == [18, 18, 18]
        edge_index, kind = to_undirected(graph.edge_index), graph.x.argmax(dim=1)
        assert edge_index.size(1) == 2 * (54 * 3 // 2 + communities.BRIDGES)
        assert int((kind[edge_index[0]] != kind[edge_index[1]]).sum()) == 2 * communities.BRIDGES
        degree = edge_index[0].bincount()
        assert degree.bincount().tolist() == [0, 0, 0, 54 - 2 * communities.BRIDGES, 2 * communities.BRIDGES]
        # Nor do the nodes' numbers: they are in no order of types.
        assert bool((kind.diff() < 0).any())


def test_the_same_seed_makes_the_same_graphs(graphs):
    for first, second in zip(graphs, communities.Communities(150), strict=True):
        assert torch.equal(first.edge_index, second.edge_index)
        assert torch.equal(first.x, second.x)
    assert not torch.equal(graphs[0].edge_index, communities.Communities(1, seed=1)[0].edge_index)


def test_split():
    split = communities.load(demo.settings("gpn", 30, 1)).splits[0]
    assert [part.numel() for part in split] == [15, 7, 8]
    assert torch.cat(split).sort().values.tolist() == list(range(30))


def test_table():
    runs = {"gpn": [{"test": 80.0, "seconds": 3.0}, {"test": 90.0, "seconds": 5.0}]}
    assert demo.results(runs).splitlines()[2] == "| GPN | 85.0 (80.0, 90.0) | 4 |"


def test_command(tmp_path, capsys):
    command = ["--graphs", "24", "--epochs", "2", "--threads", "1", "--quiet"]
    printed = []
    for name in ("first", "second"):
        assert demo.main([*command, "--seeds", "0", "--output", str(tmp_path / name)]) == 0
        printed.append(capsys.readouterr().out)
        for picture in ("tree.png", "heights.png"):
            assert (tmp_path / name / picture).read_bytes().startswith(b"\x89PNG")
            assert picture in printed[-1]
    # Without the last column, seconds.
    first, second = (
        [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("| ")] for text in printed
    )
    assert [row[0] for row in first] == ["| model", "| ---", "| GPN", "| GCN", "| TopK"]
    assert first == second
    log = "communities/gpn/epochs/seed0-fold0.jsonl"
    assert (tmp_path / "first" / log).read_text() == (tmp_path / "second" / log).read_text()
    assert (tmp_path / "first" / log).read_text().count("\n") == 2


def test_too_few_graphs(tmp_path, capsys):
    assert demo.main(["--graphs", "11", "--output", str(tmp_path / "none")]) != 0
    assert "expected at least 12, got 11" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
