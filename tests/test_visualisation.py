"""Drawings: what is drawn is what the tree says."""

import math

import pytest
import torch

pytest.importorskip("matplotlib", reason="drawing needs matplotlib")
pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import graphs
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex

import gpn_ops
from gpn_ops.nn import ParseHierarchy, ParsePooling
from gpn_ops.nn.tree import Level, ParseTree
from gpn_ops.visualisation import COLOURS, _node_colours, _walk, draw_levels, draw_tree, one_graph


def level(edge_index, batch, cluster, index=None):
    """A level with what drawing needs; the features do not matter."""
    edge_index, batch, cluster = (torch.tensor(each) for each in (edge_index, batch, cluster))
    none = torch.empty(0)
    index = None if index is None else torch.tensor(index)
    return Level(index, none, edge_index, None, batch, cluster, none, none, none, none)


def two_graphs():
    """Graph 0: the path 0-1-2-3-4, height 2. Graph 1: one edge, height 1. Graph 2: a node, height 0."""
    lowest = level(
        edge_index=[[0, 1, 1, 2, 2, 3, 3, 4, 5, 6], [1, 0, 2, 1, 3, 2, 4, 3, 6, 5]],
        batch=[0, 0, 0, 0, 0, 1, 1],
        cluster=[0, 0, 1, 1, 1, 2, 2],
        index=[0, 1, 2, 3, 4, 6, 7],  # the lone node of graph 2 came before the last graph
    )
    upper = level(edge_index=[[0, 1], [1, 0]], batch=[0, 0], cluster=[0, 0], index=[0, 1])
    return ParseTree(torch.tensor([2, 1, 0]), [lowest, upper])


def random_trees():
    """Three graphs, pooled by a layer with random weights."""
    parts = [
        (graphs.path(30), 30),
        (torch.empty(2, 0, dtype=torch.int64), 2),
        (graphs.erdos_renyi(40, 60, torch.Generator().manual_seed(0)), 40),
    ]
    first = torch.tensor([0, *(size for _, size in parts)]).cumsum(0)
    edge_index = torch.cat([part + start for (part, _), start in zip(parts, first, strict=False)], dim=1)
    batch = torch.arange(3).repeat_interleave(torch.tensor([size for _, size in parts]))
    torch.manual_seed(0)
    _, tree = ParseHierarchy(ParsePooling(4))(torch.randn(72, 4), edge_index, batch=batch)
    return tree, parts


def rows(axes):
    """The nodes of every row as drawn: [x, y] and colour."""
    drawn = [each for each in axes.collections if isinstance(each, PathCollection)]
    return [(torch.tensor(each.get_offsets()), [to_hex(c) for c in each.get_facecolors()]) for each in drawn]


def lines(axes):
    """Arcs first, then the lines from every row to the next."""
    drawn = [each for each in axes.collections if isinstance(each, LineCollection)]
    return [torch.stack([torch.tensor(segment) for segment in each.get_segments()]) for each in drawn]


def test_one_graph_by_hand():
    tree = two_graphs()
    edge_index, assignments = one_graph(tree, 0)
    assert edge_index.tolist() == [[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]]
    assert [each.tolist() for each in assignments] == [[0, 0, 1, 1, 1], [0, 0]]
    edge_index, assignments = one_graph(tree, 1)
    assert edge_index.tolist() == [[0, 1], [1, 0]]
    assert [each.tolist() for each in assignments] == [[0, 0]]


def test_index_gives_the_order_of_the_clusters_below():
    tree = two_graphs()
    tree.levels[0].cluster = torch.tensor([0, 0, 1, 1, 3, 2, 2])
    tree.levels[1] = level([[0, 1, 1, 2], [1, 0, 2, 1]], [0, 0, 0], [0, 0, 1], index=[3, 1, 0])
    # The level's nodes are the clusters 3, 1 and 0, which go to 0, 0 and 1.
    assert [each.tolist() for each in one_graph(tree, 0)[1]] == [[0, 0, 1, 1, 2], [1, 0, 0]]


@pytest.mark.parametrize("graph", [0, 2])
def test_one_graph_is_the_same_as_alone(graph):
    tree, parts = random_trees()
    edge_index, assignments = one_graph(tree, graph)
    assert torch.equal(edge_index, parts[graph][0])
    assert len(assignments) == int(tree.height[graph])
    num_nodes = parts[graph][1]
    for cluster in assignments:
        assert cluster.numel() == num_nodes
        num_nodes = int(cluster.max()) + 1
        assert cluster.unique().numel() == num_nodes < cluster.numel()


@pytest.mark.parametrize(("graph", "complaint"), [(3, "from 0 to 2, got 3"), (-1, "got -1"), (2, "no tree")])
def test_there_is_no_such_tree(graph, complaint):
    with pytest.raises(ValueError, match=complaint):
        draw_tree(two_graphs(), graph)


def test_position_of_another_graph():
    with pytest.raises(ValueError, match=r"expected shape \[5, 2\], got \[4, 2\]"):
        draw_tree(two_graphs(), 0, position=torch.zeros(4, 2))


@pytest.mark.parametrize("graph", [0, 2])
def test_nodes_lead_to_their_parents_and_have_the_colour_of_their_cluster(graph):
    tree, _ = random_trees()
    edge_index, assignments = one_graph(tree, graph)
    axes = draw_tree(tree, graph).axes[1]
    drawn, (arcs, *upward) = rows(axes), lines(axes)
    assert len(drawn) == len(assignments) + 1
    assert len(upward) == len(assignments)
    for k, cluster in enumerate(assignments):
        position, colours = drawn[k]
        assert position[:, 1].unique().tolist() == [k]
        assert torch.equal(upward[k][:, 0], position)
        assert torch.equal(upward[k][:, 1], drawn[k + 1][0][cluster])
        for each in cluster.unique():
            assert len({colours[node] for node in (cluster == each).nonzero().view(-1)}) == 1
    # Every node of the lowest row has a place of its own, and clusters lie in one piece.
    place = drawn[0][0][:, 0].long()
    assert place.sort().values.tolist() == list(range(place.numel()))
    in_order = assignments[0][place.argsort()]
    assert 1 + int((in_order.diff() != 0).sum()) == int(assignments[0].max()) + 1
    # Each undirected edge is one arc between its ends.
    ends = {tuple(sorted(pair)) for pair in place[edge_index].t().tolist()}
    assert {(round(float(arc[0, 0])), round(float(arc[-1, 0]))) for arc in arcs} == ends
    assert len(arcs) == edge_index.size(1) // 2
    assert bool((arcs[:, :, 1] <= 1e-12).all())


def test_the_graph_beside_has_the_colours_of_the_lowest_row():
    tree, _ = random_trees()
    position = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
    graph_axes, tree_axes = draw_tree(tree, 2, position, title="a title").axes
    drawn, colours = rows(graph_axes)[0]
    torch.testing.assert_close(drawn, position.double())
    assert colours == rows(tree_axes)[0][1]
    numbers = [text.get_text() for text in graph_axes.texts]
    assert numbers == [str(node) for node in range(40)]
    assert graph_axes.figure.get_suptitle() == "a title"


def test_a_large_graph_is_drawn_without_the_graph_beside():
    _, tree = ParseHierarchy(ParsePooling(2))(torch.randn(600, 2), graphs.path(600))
    (axes,) = draw_tree(tree).axes
    assert len(rows(axes)[0][0]) == 600
    assert not axes.texts


def test_neighbouring_clusters_differ_in_colour():
    # Cluster k is joined to k + 8 and k + 16, which have the same colour if colours just take turns.
    first = torch.arange(24).repeat(2)
    edge_index = torch.stack([first, (first + torch.tensor([8, 16]).repeat_interleave(24)) % 24])
    colours = _node_colours(edge_index, torch.arange(24))
    assert set(colours) <= set(COLOURS)
    assert all(colours[row] != colours[col] for row, col in edge_index.t().tolist())
    assert all(colours[k] != colours[k + 1] for k in range(23))


def test_more_neighbours_than_colours():
    pairs = torch.cartesian_prod(torch.arange(12), torch.arange(12)).t()
    colours = _node_colours(pairs, torch.arange(12))
    assert len(colours) == 12
    assert set(colours) == set(COLOURS)


def test_siblings_follow_a_path():
    adjacency = [[3], [2], [1, 3], [2, 0], []]  # the path 0-3-2-1, and 4 alone
    assert _walk([0, 1, 2, 3, 4], adjacency) in ([4, 0, 3, 2, 1], [0, 3, 2, 1, 4])
    assert _walk([2, 0], adjacency) == [0, 2]


def test_draw_levels_keeps_centres_of_mass():
    edge_index = graphs.path(4)
    position = torch.tensor([[0.0, 0.0], [2.0, 0.0], [4.0, 2.0], [9.0, 0.0]])
    assignments = [torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0])]
    panels = draw_levels(edge_index, assignments, position).axes
    assert len(panels) == 3
    assert torch.equal(rows(panels[0])[0][0], position.double())
    torch.testing.assert_close(rows(panels[1])[0][0], torch.tensor([[2.0, 2 / 3], [9.0, 0.0]]).double())
    torch.testing.assert_close(rows(panels[2])[0][0], torch.tensor([[3.75, 0.5]]).double())
    colours = rows(panels[0])[0][1]
    assert colours[0] == colours[1] == colours[2] != colours[3]
    inner = lines(panels[0])[1]
    assert len(inner) == 4
    assert math.isclose(float(inner[:, :, 0].max()), 4.0)
    assert gpn_ops.coarsen(edge_index, assignments[0]).edge_index.size(1) == 2
