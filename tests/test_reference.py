"""The plain-PyTorch reference: literal Algorithm 1, the vectorised functions and scipy must agree."""

from collections import Counter

import graphs
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from gpn_ops import checks, reference

PARSERS = [reference.algorithm1, reference.parse]
EVERY_PARSER = pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
EVERY_GRAPH = pytest.mark.parametrize("name", graphs.NAMED_GRAPHS)
EVERY_BAD_INPUT = pytest.mark.parametrize("bad", graphs.BAD_INPUTS, ids=lambda bad: bad.id)
SHAPES = {"path": graphs.path, "ring": graphs.ring, "star": graphs.star}
ORDERS = pytest.mark.parametrize("shuffled", [False, True], ids=["in_order", "shuffled"])


def seeded(shuffled=True):
    return torch.Generator().manual_seed(0) if shuffled else None


# ------------------------------------------------------------------------------------------------------------
# The answer
# ------------------------------------------------------------------------------------------------------------


@EVERY_PARSER
@EVERY_GRAPH
def test_named_graphs_parse_as_worked_out_by_hand(parse, name):
    cluster = parse(*graphs.NAMED_GRAPHS[name])
    assert cluster.dtype == torch.int64
    assert torch.equal(cluster, graphs.EXPECTED_CLUSTERS[name])


@EVERY_GRAPH
def test_named_graphs_agree_with_the_oracles(name):
    edge_index, scores, num_nodes = graphs.NAMED_GRAPHS[name]
    dominant = reference.dominant(edge_index, scores, num_nodes)
    components = reference.components(edge_index, num_nodes)
    assert torch.equal(dominant, oracles.dominant_by_numpy(edge_index, scores, num_nodes))
    assert torch.equal(components, oracles.components_by_scipy(edge_index, num_nodes))
    assert torch.equal(graphs.EXPECTED_CLUSTERS[name], oracles.parse_by_scipy(edge_index, scores, num_nodes))


@EVERY_GRAPH
def test_named_graphs_on_every_device(name, device):
    edge_index, scores, num_nodes = graphs.NAMED_GRAPHS[name]
    cluster = reference.parse(edge_index.to(device), scores.to(device), num_nodes)
    assert cluster.device.type == device.type
    assert torch.equal(cluster.cpu(), graphs.EXPECTED_CLUSTERS[name])


@given(graphs.scored_graphs())
def test_random_graphs_agree_with_the_oracles(graph):
    edge_index, scores, num_nodes = graph
    dominant = reference.dominant(edge_index, scores, num_nodes)
    components = reference.components(edge_index, num_nodes)
    expected = oracles.parse_by_scipy(edge_index, scores, num_nodes)
    assert torch.equal(dominant, oracles.dominant_by_numpy(edge_index, scores, num_nodes))
    assert torch.equal(components, oracles.components_by_scipy(edge_index, num_nodes))
    assert torch.equal(reference.parse(edge_index, scores, num_nodes), expected)
    assert torch.equal(reference.algorithm1(edge_index, scores, num_nodes), expected)


@given(graphs.scored_graphs())
def test_parse_is_components_of_dominant_edges(graph):
    edge_index, scores, num_nodes = graph
    dominant = reference.dominant(edge_index, scores, num_nodes)
    kept = edge_index[:, dominant[dominant >= 0]]
    assert torch.equal(reference.parse(edge_index, scores, num_nodes), reference.components(kept, num_nodes))


@pytest.mark.parametrize("dtype", graphs.SCORE_DTYPES, ids=str)
def test_sparse_random_graph(dtype):
    edge_index = graphs.erdos_renyi(2000, 4000, seeded())
    scores = graphs.random_scores(edge_index, seeded(), dtype)
    expected = oracles.parse_by_scipy(edge_index, scores, 2000)
    assert torch.equal(reference.parse(edge_index, scores, 2000), expected)
    assert torch.equal(reference.algorithm1(edge_index, scores, 2000), expected)


@ORDERS
def test_batch_of_many_small_graphs(shuffled):
    edge_index = graphs.many_rings(500, 7, seeded(shuffled))
    scores = graphs.random_scores(edge_index, seeded())
    assert torch.equal(
        reference.parse(edge_index, scores, 3500), oracles.parse_by_scipy(edge_index, scores, 3500)
    )


@EVERY_PARSER
@EVERY_GRAPH
def test_num_nodes_none_is_largest_id_plus_one(parse, name):
    edge_index, scores, _ = graphs.NAMED_GRAPHS[name]
    num_nodes = int(edge_index.max()) + 1 if edge_index.numel() > 0 else 0
    assert torch.equal(parse(edge_index, scores), parse(edge_index, scores, num_nodes))
    assert reference.dominant(edge_index, scores).shape == (num_nodes,)
    assert reference.components(edge_index).shape == (num_nodes,)


def test_num_nodes_none_counts_the_column_row_too():
    assert reference.components(torch.tensor([[0], [3]])).tolist() == [0, 1, 2, 0]
    assert reference.components(torch.tensor([[3], [0]])).tolist() == [0, 1, 2, 0]


@given(graphs.scored_graphs(dtypes=[torch.float32]))
def test_layout_and_gradient_make_no_difference(graph):
    edge_index, scores, num_nodes = graph
    transposed = edge_index.t().contiguous().t()
    every_other = scores.new_empty(scores.numel(), 2)
    every_other[:, 0] = scores
    strided = every_other[:, 0].requires_grad_()
    for function in (*PARSERS, reference.dominant):
        result = function(transposed, strided, num_nodes)
        assert torch.equal(result, function(edge_index, scores, num_nodes))
        assert not result.requires_grad
    assert torch.equal(
        reference.components(transposed, num_nodes), reference.components(edge_index, num_nodes)
    )


@given(graphs.scored_graphs())
def test_arguments_are_left_alone(graph):
    before = [graph.edge_index.clone(), graph.scores.clone()]
    for function in (*PARSERS, reference.dominant):
        function(*graph)
    reference.components(graph.edge_index, graph.num_nodes)
    assert torch.equal(graph.edge_index, before[0])
    assert torch.equal(graph.scores.signbit(), before[1].signbit())
    assert torch.equal(graph.scores, before[1])


def test_assignment_matrix_of_gen():
    assert torch.equal(
        reference.gen(torch.tensor([0, 1, 0, 2])),
        torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]),
    )
    assert reference.gen(torch.zeros(0, dtype=torch.int64)).shape == (0, 0)


# ------------------------------------------------------------------------------------------------------------
# Size
# ------------------------------------------------------------------------------------------------------------


@ORDERS
@pytest.mark.parametrize("shape", SHAPES)
def test_million_nodes(monkeypatch, shape, shuffled):
    num_nodes = 10**6
    edge_index = SHAPES[shape](num_nodes, seeded(shuffled))
    rounds = []
    module = reference.components.__globals__
    flatten = module["_flatten"]
    monkeypatch.setitem(module, "_flatten", lambda parent: rounds.append(1) or flatten(parent))
    assert not reference.components(edge_index, num_nodes).any()
    assert len(rounds) <= 20  # log2 of the nodes

    scores = graphs.random_scores(edge_index, seeded())
    expected = oracles.parse_by_scipy(edge_index, scores, num_nodes)
    assert torch.equal(reference.parse(edge_index, scores, num_nodes), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_million_nodes_in_one_chain_of_choices(shape):
    # Rising scores make one chain of choices along the whole path.
    edge_index = SHAPES[shape](10**6)
    scores = edge_index.amin(0).double()
    assert not reference.parse(edge_index, scores, 10**6).any()


# ------------------------------------------------------------------------------------------------------------
# Properties
# ------------------------------------------------------------------------------------------------------------


@EVERY_PARSER
@given(graph=graphs.scored_graphs())
def test_numbering(parse, graph):
    oracles.assert_numbered(parse(*graph))


@EVERY_PARSER
@given(graph=graphs.scored_graphs())
def test_connectivity_is_kept(parse, graph):
    oracles.assert_connectivity_kept(graph.edge_index, parse(*graph))


@EVERY_PARSER
@given(graph=graphs.undirected_graphs())
def test_every_component_with_an_edge_shrinks(parse, graph):
    oracles.assert_every_component_shrinks(graph.edge_index, parse(*graph))


@EVERY_PARSER
@given(graph=graphs.undirected_graphs(distinct=True, symmetric=False), data=st.data())
def test_permutation_invariance_for_distinct_scores(parse, graph, data):
    edge_index, scores, num_nodes = graph
    new_name = torch.tensor(data.draw(st.permutations(range(num_nodes))))
    order = torch.tensor(data.draw(st.permutations(range(scores.numel()))), dtype=torch.int64)
    cluster = parse(edge_index, scores, num_nodes)
    permuted = parse(new_name[edge_index][:, order], scores[order], num_nodes)
    oracles.assert_same_partition(cluster, permuted[new_name])


@given(st.lists(graphs.scored_graphs(dtypes=[torch.float32]), max_size=4))
def test_a_batch_parses_graph_by_graph(batch):
    edge_index, scores, num_nodes = graphs.batched(batch)
    cluster = reference.parse(edge_index, scores, num_nodes)
    expected, clusters_so_far = [], 0
    for graph in batch:
        alone = reference.parse(*graph)
        expected.append(alone + clusters_so_far)
        clusters_so_far += int(alone.max()) + 1 if alone.numel() > 0 else 0
    assert torch.equal(cluster, torch.cat(expected) if expected else cluster.new_zeros(0))


@given(graphs.undirected_graphs(distinct=True))
def test_distinct_symmetric_scores_give_one_mutual_pair_per_cluster(graph):
    cluster = reference.parse(*graph)
    size = cluster.bincount()
    cycles = oracles.cycle_lengths(*graph)
    assert all(length == 2 for _, length in cycles)
    assert sorted(cluster[node] for node, _ in cycles) == (size > 1).nonzero().squeeze(1).tolist()


@given(graphs.scored_graphs())
def test_a_cluster_has_one_cycle_or_one_sink(graph):
    edge_index, scores, num_nodes = graph
    cluster = reference.parse(edge_index, scores, num_nodes).tolist()
    dominant = reference.dominant(edge_index, scores, num_nodes).tolist()
    ends = Counter(cluster[node] for node, _ in oracles.cycle_lengths(edge_index, scores, num_nodes))
    ends.update(cluster[node] for node in range(num_nodes) if dominant[node] < 0)
    assert ends == dict.fromkeys(range(max(cluster, default=-1) + 1), 1)


def test_equal_scores_make_a_cycle_of_three():
    graph = graphs.NAMED_GRAPHS["triangle_of_equal_scores"]
    assert oracles.cycle_lengths(*graph) == [(0, 3)]


# ------------------------------------------------------------------------------------------------------------
# Bad input
# ------------------------------------------------------------------------------------------------------------


@EVERY_BAD_INPUT
@pytest.mark.parametrize("function", [*PARSERS, reference.dominant], ids=lambda function: function.__name__)
def test_bad_input(function, bad):
    with pytest.raises(RuntimeError) as error:
        function(**bad.kwargs())
    assert str(error.value) == bad.message


@pytest.mark.parametrize(
    "bad", [bad for bad in graphs.BAD_INPUTS if not bad.message.startswith("scores:")], ids=lambda bad: bad.id
)
def test_bad_input_of_components(bad):
    kwargs = bad.kwargs()
    del kwargs["scores"]
    with pytest.raises(RuntimeError) as error:
        reference.components(**kwargs)
    assert str(error.value) == bad.message


def test_bad_input_on_two_devices():
    edge_index, scores, num_nodes = graphs.NAMED_GRAPHS["two_pairs"]
    with pytest.raises(RuntimeError) as error:
        reference.parse(edge_index, scores.to("meta"), num_nodes)
    assert str(error.value) == "scores: expected on the same device as edge_index (cpu), got meta"


@EVERY_BAD_INPUT
def test_metadata_checks_need_no_data(bad):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        kwargs = {
            key: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
            for key, value in bad.kwargs().items()
        }
        if bad.reads_data:
            checks.check_metadata(**kwargs)
            return
        with pytest.raises(RuntimeError) as error:
            checks.check_metadata(**kwargs)
    assert str(error.value) == bad.message


def test_metadata_checks_take_sizes_known_at_run_time_only():
    shape_env = ShapeEnv()
    with FakeTensorMode(shape_env=shape_env):
        num_edges, num_scores, num_nodes = (shape_env.create_unbacked_symint() for _ in range(3))
        edge_index = torch.empty(2, num_edges, dtype=torch.int64)
        checks.check_metadata(edge_index, torch.empty(num_scores), num_nodes)
        assert num_scores == num_edges  # known from here on; an error before
        assert num_nodes >= 0
