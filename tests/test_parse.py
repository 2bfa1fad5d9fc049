"""The compiled operators parse, dominant and components: against literal Algorithm 1, scipy and numpy."""

import threading
from collections import Counter

import clustered
import graphs
import oracles
import pytest
import torch
import torch._dynamo.testing
from hypothesis import given, settings
from hypothesis import strategies as st

import gpn_ops
from gpn_ops import reference

EVERY_GRAPH = pytest.mark.parametrize("name", graphs.NAMED_GRAPHS)
EVERY_BAD_INPUT = pytest.mark.parametrize("bad", graphs.BAD_INPUTS, ids=lambda bad: bad.id)
EVERY_DTYPE = pytest.mark.parametrize(
    "dtype", graphs.SCORE_DTYPES, ids=lambda t: str(t).removeprefix("torch.")
)
EVERY_FORM = pytest.mark.parametrize("form", ["auto", "packed", "wide"])
SHAPES = pytest.mark.parametrize("shape", [graphs.path, graphs.ring, graphs.star], ids=lambda s: s.__name__)
ORDERS = pytest.mark.parametrize("shuffled", [False, True], ids=["in_order", "shuffled"])


def on(device, graph):
    return graphs.Graph(graph.edge_index.to(device), graph.scores.to(device), graph.num_nodes)


def same(result, expected):
    assert result.dtype == torch.int64
    return torch.equal(result.cpu(), expected)


def check_against_oracles(device, graph, with_algorithm1=True):
    edge_index, _, num_nodes = graph
    given_graph = on(device, graph)
    cluster = gpn_ops.parse(*given_graph)
    assert same(cluster, oracles.parse_by_scipy(*graph))
    if with_algorithm1:
        assert same(cluster, reference.algorithm1(*graph))
    assert same(gpn_ops.dominant(*given_graph), oracles.dominant_by_numpy(*graph))
    components = gpn_ops.components(given_graph.edge_index, num_nodes)
    assert same(components, oracles.components_by_scipy(edge_index, num_nodes))


# ------------------------------------------------------------------------------------------------------------
# The answer
# ------------------------------------------------------------------------------------------------------------


@EVERY_GRAPH
def test_named_graphs(device, name):
    graph = graphs.NAMED_GRAPHS[name]
    assert same(gpn_ops.parse(*on(device, graph)), graphs.EXPECTED_CLUSTERS[name])
    check_against_oracles(device, graph)


@EVERY_GRAPH
def test_named_graphs_edges_in_any_order(device, name):
    edge_index, scores, num_nodes = graphs.NAMED_GRAPHS[name]
    by_row = torch.argsort(edge_index[0], stable=True)
    for order in (by_row, by_row.flip(0)):
        check_against_oracles(device, graphs.Graph(edge_index[:, order], scores[order], num_nodes))


@given(graph=graphs.scored_graphs())
def test_random_graphs(graph):
    check_against_oracles("cpu", graph)


@EVERY_DTYPE
@ORDERS
@pytest.mark.parametrize("degree", [1, 4, 200])
def test_random_graphs_larger_than_a_piece(device, dtype, shuffled, degree):
    """Large enough for several threads, blocks and warps; few score values, so that runs have ties."""
    random = torch.Generator().manual_seed(degree)
    num_nodes = 400_000 // degree
    edge_index = torch.randint(num_nodes, (2, 400_000), generator=random)
    if not shuffled:
        edge_index = edge_index[:, torch.argsort(edge_index[0], stable=True)]
    scores = (torch.randint(-8, 9, (400_000,), generator=random) / 8).to(dtype)
    check_against_oracles(device, graphs.Graph(edge_index, scores, num_nodes), with_algorithm1=False)


@EVERY_FORM
@EVERY_DTYPE
@pytest.mark.parametrize("first_edge", [0, 2**32 - 3, 2**40])
@ORDERS
def test_every_form_and_id(device, form, dtype, first_edge, shuffled):
    """The wide form, and edge ids past 2^32, as graphs with that many edges would use them."""
    random = torch.Generator().manual_seed(0)
    edge_index = torch.randint(3000, (2, 20_000), generator=random)
    if not shuffled:
        edge_index = edge_index[:, torch.argsort(edge_index[0], stable=True)]
    scores = (torch.randint(-3, 4, (20_000,), generator=random)).to(dtype)
    expected = oracles.dominant_by_numpy(edge_index, scores, 3010)
    expected = torch.where(expected < 0, -1, expected + first_edge)
    assert same(
        torch.ops.gpn._dominant(edge_index.to(device), scores.to(device), 3010, form, first_edge), expected
    )


def test_unknown_form():
    with pytest.raises(RuntimeError, match="form: expected 'auto', 'packed' or 'wide', got 'fast'"):
        torch.ops.gpn._dominant(torch.zeros(2, 1, dtype=torch.int64), torch.ones(1), 1, "fast")


@SHAPES
@ORDERS
def test_million_nodes(device, shape, shuffled):
    """Neither recursion nor quadratic time on the longest chains there are."""
    random = torch.Generator().manual_seed(0)
    num_nodes = 1_000_000
    edge_index = shape(num_nodes, random if shuffled else None)
    rising = torch.maximum(edge_index[0], edge_index[1]).double()
    cluster = gpn_ops.parse(edge_index.to(device), rising.to(device), num_nodes)
    assert same(cluster, oracles.parse_by_scipy(edge_index, rising, num_nodes))
    assert gpn_ops.components(edge_index.to(device), num_nodes).max() == 0
    scores = torch.rand(edge_index.size(1), generator=random)
    cluster = gpn_ops.parse(edge_index.to(device), scores.to(device), num_nodes)
    assert same(cluster, oracles.parse_by_scipy(edge_index, scores, num_nodes))


def test_many_small_graphs_in_one_batch(device):
    named = [graphs.NAMED_GRAPHS[name] for name in sorted(graphs.NAMED_GRAPHS)]
    parts = [graphs.Graph(g.edge_index, g.scores.double(), g.num_nodes) for g in named] * 20
    batch = graphs.batched(parts)
    cluster = gpn_ops.parse(*on(device, batch)).cpu()
    first_node, first_cluster = 0, 0
    for part in parts:
        own = gpn_ops.parse(*on(device, part)).cpu()
        assert torch.equal(cluster[first_node : first_node + part.num_nodes] - first_cluster, own)
        first_node += part.num_nodes
        first_cluster += int(own.max()) + 1 if part.num_nodes else 0


# ------------------------------------------------------------------------------------------------------------
# Properties of the paper
# ------------------------------------------------------------------------------------------------------------


@given(graph=graphs.scored_graphs())
def test_numbering_and_connectivity(graph):
    cluster = gpn_ops.parse(*graph)
    oracles.assert_numbered(cluster)
    oracles.assert_connectivity_kept(graph.edge_index, cluster)


@given(graph=graphs.undirected_graphs(symmetric=False))
def test_every_component_with_an_edge_shrinks(graph):
    oracles.assert_every_component_shrinks(graph.edge_index, gpn_ops.parse(*graph))


@given(graph=graphs.undirected_graphs(distinct=True), data=st.data())
def test_permutation_invariance(graph, data):
    edge_index, scores, num_nodes = graph
    renamed = torch.tensor(data.draw(st.permutations(range(num_nodes))), dtype=torch.int64)
    order = torch.tensor(data.draw(st.permutations(range(scores.numel()))), dtype=torch.int64)
    cluster = gpn_ops.parse(edge_index, scores, num_nodes)
    permuted = gpn_ops.parse(renamed[edge_index][:, order], scores[order], num_nodes)
    oracles.assert_same_partition(cluster, permuted[renamed])


@given(graph=graphs.scored_graphs(max_nodes=8, max_edges=20))
def test_a_cluster_is_held_together_by_chosen_edges(graph):
    edge_index, _, num_nodes = graph
    chosen = gpn_ops.dominant(*graph)
    kept = edge_index[:, chosen[chosen >= 0]]
    assert torch.equal(gpn_ops.components(kept, num_nodes), gpn_ops.parse(*graph))


# ------------------------------------------------------------------------------------------------------------
# Determinism
# ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def keep_thread_count():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("keep_thread_count")
@ORDERS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_same_bits_for_any_thread_count_and_run(shuffled, dtype):
    random = torch.Generator().manual_seed(0)
    edge_index = graphs.erdos_renyi(100_000, 200_000, random)
    if shuffled:
        edge_index = edge_index[:, torch.randperm(edge_index.size(1), generator=random)]
    scores = torch.rand(edge_index.size(1), generator=random, dtype=dtype).mul(50).round()  # many ties
    results = []
    for threads in [1, 2, 3, 4, 8] * 2:
        torch.set_num_threads(threads)
        results.append(
            (
                gpn_ops.parse(edge_index, scores, 100_000),
                gpn_ops.dominant(edge_index, scores, 100_000),
                gpn_ops.components(edge_index, 100_000),
            )
        )
    for result in results[1:]:
        assert all(map(torch.equal, result, results[0]))


@pytest.fixture
def flushing():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("keep_thread_count", "flushing")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_subnormal_scores_are_told_apart_even_where_arithmetic_flushes_them(dtype):
    """Flushing is set for one thread: arithmetic on scores would differ between it and the others."""
    random = torch.Generator().manual_seed(0)
    num_nodes = 60_000
    edge_index = graphs.erdos_renyi(num_nodes, 4 * num_nodes, random)
    bits = torch.int32 if dtype == torch.float32 else torch.int64
    scores = torch.randint(1, 2**20, (edge_index.size(1),), generator=random, dtype=bits)
    # As numbers, subnormals are in the order of their bits, below zero too.
    scores[::3] |= torch.iinfo(bits).min
    magnitude = (scores & torch.iinfo(bits).max).double()
    order = torch.where(scores < 0, -magnitude, magnitude)
    wanted = oracles.dominant_by_numpy(edge_index, order, num_nodes)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        assert same(gpn_ops.dominant(edge_index, scores.view(dtype), num_nodes), wanted)
        assert same(reference.dominant(edge_index, scores.view(dtype), num_nodes), wanted)


def test_several_threads_call_at_once():
    graph = graphs.erdos_renyi(30_000, 60_000, torch.Generator().manual_seed(0))
    scores = torch.rand(graph.size(1))
    expected = gpn_ops.parse(graph, scores, 30_000)
    results = [None] * 8

    def work(k):
        results[k] = [gpn_ops.parse(graph, scores, 30_000) for _ in range(5)]

    workers = [threading.Thread(target=work, args=(k,)) for k in range(len(results))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(torch.equal(result, expected) for each in results for result in each)


# ------------------------------------------------------------------------------------------------------------
# What may be given
# ------------------------------------------------------------------------------------------------------------


@EVERY_GRAPH
def test_num_nodes_none_is_the_largest_id_plus_one(device, name):
    edge_index, scores, _ = on(device, graphs.NAMED_GRAPHS[name])
    num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    for function in (gpn_ops.parse, gpn_ops.dominant):
        assert torch.equal(function(edge_index, scores), function(edge_index, scores, num_nodes))
    assert torch.equal(gpn_ops.components(edge_index), gpn_ops.components(edge_index, num_nodes))


def test_largest_id_counts_in_either_row(device):
    edge_index = torch.tensor([[0, 3], [7, 2]], device=device)
    assert gpn_ops.parse(edge_index, torch.ones(2, device=device)).numel() == 8
    assert gpn_ops.components(edge_index.flip(0)).numel() == 8


@pytest.mark.parametrize("num_nodes", [None, 0, 5])
def test_no_edges(device, num_nodes):
    edge_index, scores = torch.empty(2, 0, dtype=torch.int64, device=device), torch.empty(0, device=device)
    n = num_nodes or 0
    assert same(gpn_ops.parse(edge_index, scores, num_nodes), torch.arange(n))
    assert same(gpn_ops.dominant(edge_index, scores, num_nodes), torch.full((n,), -1))
    assert same(gpn_ops.components(edge_index, num_nodes), torch.arange(n))


def strided_views(edge_index, scores):
    """The same edges and scores in every memory layout that slicing and transposing can give."""
    wide = torch.full((2, 3 * edge_index.size(1) + 1), -9, dtype=edge_index.dtype, device=edge_index.device)
    wide[:, 1::3] = edge_index
    spread = torch.full((2 * scores.numel() + 1,), float("nan"), dtype=scores.dtype, device=scores.device)
    spread[1::2] = scores
    padded = torch.nn.functional.pad(edge_index, (2, 5), value=-9)
    return {
        "transposed": (edge_index.t().contiguous().t(), scores),
        "every_third_column": (wide[:, 1::3], spread[1::2]),
        "a_slice_of_columns": (padded[:, 2:-5], scores),
        "rows_apart": (torch.stack([edge_index[0], edge_index[0], edge_index[1]])[::2], scores),
        "flipped_twice": (edge_index.flip(0).flip(0), scores.flip(0).flip(0)),
        "int32": (edge_index.int(), scores),
        "int32_transposed": (edge_index.int().t().contiguous().t(), scores),
    }


@pytest.mark.parametrize("view", strided_views(torch.zeros(2, 1, dtype=torch.int64), torch.zeros(1)))
def test_memory_layouts(device, view):
    graph = graphs.Graph(
        graphs.erdos_renyi(500, 1000, torch.Generator().manual_seed(0)), torch.rand(2000), 500
    )
    edge_index, scores, num_nodes = on(device, graph)
    index_view, score_view = strided_views(edge_index, scores)[view]
    for function in (gpn_ops.parse, gpn_ops.dominant):
        assert torch.equal(
            function(index_view, score_view, num_nodes), function(edge_index, scores, num_nodes)
        )
    assert torch.equal(gpn_ops.components(index_view, num_nodes), gpn_ops.components(edge_index, num_nodes))


def test_inputs_are_not_changed_and_get_no_gradient(device):
    edge_index, scores, num_nodes = on(device, graphs.NAMED_GRAPHS["two_triangles_bridged"])
    scores = scores.requires_grad_()
    before = edge_index.clone(), scores.detach().clone()
    for result in (gpn_ops.parse(edge_index, scores, num_nodes), gpn_ops.dominant(edge_index, scores)):
        assert not result.requires_grad
    assert torch.equal(edge_index, before[0])
    assert torch.equal(scores, before[1])


def test_ties_in_half_precision_go_to_the_lowest_edge(device):
    """Two float32 scores that round to the same half are a tie there and only there."""
    edge_index = torch.tensor([[0, 0], [1, 2]], device=device)
    scores = torch.tensor([1.0, 1.0 + 2**-20], device=device)
    assert gpn_ops.dominant(edge_index, scores, 3)[0] == 1
    for dtype in (torch.float16, torch.bfloat16):
        assert gpn_ops.dominant(edge_index, scores.to(dtype), 3)[0] == 0


# ------------------------------------------------------------------------------------------------------------
# What must be refused
# ------------------------------------------------------------------------------------------------------------


@EVERY_BAD_INPUT
def test_bad_input(bad):
    """The same whole text through torch.ops and the Python function, and nothing changed."""
    for function in (gpn_ops.parse, gpn_ops.dominant, torch.ops.gpn.parse, torch.ops.gpn.dominant):
        arguments = bad.kwargs()
        before = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments.values()]
        with pytest.raises(RuntimeError) as error:
            function(**arguments)
        assert str(error.value) == bad.message
        for old, new in zip(before, arguments.values(), strict=True):
            if isinstance(old, torch.Tensor) and old.dtype != torch.float8_e4m3fn:
                assert torch.equal(old.nan_to_num(), new.nan_to_num())


@pytest.mark.parametrize(
    "bad", [bad for bad in graphs.BAD_INPUTS if not bad.message.startswith("scores")], ids=lambda bad: bad.id
)
def test_bad_input_of_components(bad):
    arguments = {key: value for key, value in bad.kwargs().items() if key != "scores"}
    for function in (gpn_ops.components, torch.ops.gpn.components):
        with pytest.raises(RuntimeError) as error:
            function(**arguments)
        assert str(error.value) == bad.message


@pytest.mark.parametrize("function", [gpn_ops.parse, gpn_ops.dominant])
def test_none_for_a_tensor_is_named(function):
    clustered.refused(function, "scores: expected a tensor, got None", graphs.ring(4), None, 4)
    clustered.refused(function, "edge_index: expected a tensor, got None", None, torch.ones(8), 4)
    clustered.refused(gpn_ops.components, "edge_index: expected a tensor, got None", None, 4)


@pytest.mark.parametrize(("largest", "num_nodes"), [(3, 2**50), (2**50 - 1, None)])
@pytest.mark.parametrize("function", [gpn_ops.parse, gpn_ops.dominant, gpn_ops.components])
def test_more_nodes_than_memory_holds(function, largest, num_nodes):
    arguments = [torch.tensor([[0, largest], [largest, 0]]), torch.ones(2)]
    room = rf"no room for a tensor of shape \[{2**50}\] and dtype int64, whose size follows from num_nodes"
    with pytest.raises(RuntimeError, match=f"^out of memory: {room}"):
        function(*arguments[: 1 if function is gpn_ops.components else 2], num_nodes)


@pytest.mark.parametrize("number_of_rows", [1, 3])
def test_bad_shape_while_tracing(number_of_rows):
    """The fake kernel knows dtypes and shapes, so torch.compile stops before anything runs."""
    with pytest.raises(Exception, match=r"edge_index: expected shape \[2, num_edges\], got "):
        torch.compile(gpn_ops.parse, fullgraph=True)(
            torch.zeros(number_of_rows, 4, dtype=torch.int64), torch.ones(4), 4
        )


def test_bad_values_in_compiled_code():
    compiled = torch.compile(gpn_ops.parse, fullgraph=True, dynamic=True)
    for bad in graphs.BAD_INPUTS:
        if bad.id in ("id_first_edge_first", "nan_float32", "num_nodes_none_id_negative_in_row_1"):
            with pytest.raises(RuntimeError) as error:
                compiled(**bad.kwargs())
            assert str(error.value) == bad.message


@pytest.mark.parametrize("position", [0, 1, 99_999, 100_000, 199_998, 199_999])
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_the_first_bad_value_is_named_in_large_inputs(position, order):
    edge_index = graphs.erdos_renyi(50_000, 100_000, torch.Generator().manual_seed(0))
    if order == "shuffled":
        edge_index = edge_index[:, torch.randperm(200_000, generator=torch.Generator().manual_seed(0))]
    scores = torch.rand(200_000)
    bad_scores = scores.clone()
    bad_scores[position:] = float("nan")
    with pytest.raises(RuntimeError, match=rf"scores: expected no NaN, got NaN at scores\[{position}\]"):
        gpn_ops.parse(edge_index, bad_scores, 50_000)
    for end in (0, 1):
        bad_index = edge_index.clone()
        bad_index[end, position:] = 50_000
        with pytest.raises(RuntimeError, match=rf"= 49999, got 50000 at edge_index\[{end}, {position}\]"):
            gpn_ops.parse(bad_index, bad_scores, 50_000)
        with pytest.raises(RuntimeError, match=rf"= 49999, got 50000 at edge_index\[{end}, {position}\]"):
            gpn_ops.components(bad_index, 50_000)


def test_tensors_on_different_devices():
    edge_index, scores, _ = graphs.NAMED_GRAPHS["two_triangles_bridged"]
    with pytest.raises(
        RuntimeError, match=r"scores: expected on the same device as edge_index \(cpu\), got meta"
    ):
        gpn_ops.parse(edge_index, scores.to("meta"), 6)


# ------------------------------------------------------------------------------------------------------------
# torch's own checks, compilers and modes
# ------------------------------------------------------------------------------------------------------------


def sample_inputs(device):
    for name in ("empty", "two_triangles_bridged", "self_loop_wins"):
        edge_index, scores, num_nodes = on(device, graphs.NAMED_GRAPHS[name])
        yield edge_index, scores, num_nodes
        yield edge_index.int(), scores.double().requires_grad_(), None
    yield on(
        device, graphs.Graph(torch.tensor([[2, 0, 2], [0, 1, 2]]).t().contiguous().t(), torch.ones(3), 4)
    )


def test_opcheck(device):
    for edge_index, scores, num_nodes in sample_inputs(device):
        torch.library.opcheck(torch.ops.gpn.parse.default, (edge_index, scores, num_nodes))
        torch.library.opcheck(torch.ops.gpn.dominant.default, (edge_index, scores, num_nodes))
        torch.library.opcheck(torch.ops.gpn.components.default, (edge_index, num_nodes))
        if num_nodes is not None:
            torch.library.opcheck(
                torch.ops.gpn._dominant.default, (edge_index, scores, num_nodes, "wide"), {"first_edge": 7}
            )


def test_one_compiled_graph_for_all_sizes(device):
    if device.type not in ("cpu", "cuda"):
        pytest.skip("inductor makes no code for this device")
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")

    def labels(edge_index, scores, num_nodes):
        return gpn_ops.parse(edge_index, scores, num_nodes) + gpn_ops.components(edge_index, num_nodes)

    compiled = torch.compile(labels, backend=counter, fullgraph=True, dynamic=True)
    for num_nodes in (30, 50, 2000, 7):
        edge_index = graphs.erdos_renyi(num_nodes, 2 * num_nodes, torch.Generator().manual_seed(1)).to(device)
        scores = torch.rand(edge_index.size(1), device=device)
        assert torch.equal(compiled(edge_index, scores, num_nodes), labels(edge_index, scores, num_nodes))
    assert counter.frame_count == 1


def test_one_compiled_graph_with_num_nodes_none(device):
    if device.type not in ("cpu", "cuda"):
        pytest.skip("inductor makes no code for this device")
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")

    def labels(edge_index, scores):
        return gpn_ops.parse(edge_index, scores) * 2

    compiled = torch.compile(labels, backend=counter, fullgraph=True, dynamic=True)
    for num_nodes in (30, 50, 2000):
        edge_index = graphs.erdos_renyi(num_nodes, 2 * num_nodes, torch.Generator().manual_seed(1)).to(device)
        scores = torch.rand(edge_index.size(1), device=device)
        assert torch.equal(compiled(edge_index, scores), labels(edge_index, scores))
    assert counter.frame_count == 1


def test_export(device):
    class Parse(torch.nn.Module):
        def forward(self, edge_index, scores, x):
            return gpn_ops.parse(edge_index, scores, x.size(0))

    def inputs(num_nodes):
        edge_index = graphs.erdos_renyi(num_nodes, 2 * num_nodes, torch.Generator().manual_seed(1)).to(device)
        return (
            edge_index,
            torch.rand(edge_index.size(1), device=device),
            torch.zeros(num_nodes, 1, device=device),
        )

    edges, nodes = torch.export.Dim("edges"), torch.export.Dim("nodes")
    program = torch.export.export(
        Parse(), inputs(10), dynamic_shapes={"edge_index": {1: edges}, "scores": {0: edges}, "x": {0: nodes}}
    )
    for num_nodes in (10, 57):
        edge_index, scores, x = inputs(num_nodes)
        expected = gpn_ops.parse(edge_index, scores, num_nodes)
        assert torch.equal(program.module()(edge_index, scores, x), expected)


def test_autocast(device):
    edge_index, scores, num_nodes = on(device, graphs.NAMED_GRAPHS["two_triangles_bridged"])
    expected = gpn_ops.parse(edge_index, scores, num_nodes)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert torch.equal(gpn_ops.parse(edge_index, scores, num_nodes), expected)
        weight = torch.eye(scores.numel(), device=device)
        assert (weight @ scores).dtype == torch.bfloat16
        assert torch.equal(gpn_ops.parse(edge_index, weight @ scores, num_nodes), expected)


def test_inference_mode_and_no_grad():
    edge_index, scores, num_nodes = graphs.NAMED_GRAPHS["two_triangles_bridged"]
    expected = gpn_ops.parse(edge_index, scores, num_nodes)
    with torch.inference_mode():
        assert torch.equal(gpn_ops.parse(edge_index, scores, num_nodes), expected)


def test_devices_without_a_kernel_are_served_by_plain_pytorch():
    """Called as the dispatcher would call it for such a device."""
    fallback = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in ("parse", "dominant", "components"):
        assert fallback(f"gpn::{name}", "CompositeExplicitAutograd")
    edge_index, scores, num_nodes = graphs.NAMED_GRAPHS["two_triangles_bridged"]
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    cluster = torch.ops.gpn.parse.default.redispatch(keys, edge_index, scores, num_nodes)
    assert torch.equal(cluster, graphs.EXPECTED_CLUSTERS["two_triangles_bridged"])


# ------------------------------------------------------------------------------------------------------------
# Levels
# ------------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(graph=graphs.undirected_graphs(max_nodes=30, max_edges=60))
def test_repeated_parsing_ends_with_one_cluster_a_component(graph):
    edge_index, _, num_nodes = graph
    components = gpn_ops.components(edge_index, num_nodes)
    total = torch.arange(num_nodes)
    sizes = [num_nodes]
    while edge_index.numel():
        cluster = gpn_ops.parse(edge_index, torch.rand(edge_index.size(1)), sizes[-1])
        total = cluster[total]
        sizes.append(int(cluster.max()) + 1)
        assert sizes[-1] < sizes[-2]
        edge_index = cluster[edge_index]
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    assert torch.equal(total, components)
    assert Counter(total.tolist()) == Counter(components.tolist())
