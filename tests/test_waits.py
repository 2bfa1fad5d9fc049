"""How often the host waits for a GPU, and what it reads there: one read a level, one for the first pairs."""

from pathlib import Path

import graphs
import naive
import pytest
import torch

from gpn_ops import ops, reference
from gpn_ops.nn import ConnectClusters, ParseHierarchy, ParsePooling
from gpn_ops.nn.select import _settled
from gpn_ops.ops import undirected, waits

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def gpu_model(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import emulation
    import gpu_model

    if emulation.find_cmake() is None:
        pytest.skip("needs cmake")
    return gpu_model


def batch_of_graphs():
    """Two that shrink for long, one without edges between nodes, one that is empty, one node alone."""
    edge_index = torch.cat(
        [graphs.path(40), graphs.ring(12) + 40, torch.tensor([[52], [52]]), graphs.path(2) + 54], dim=1
    )
    batch = torch.tensor([0] * 40 + [1] * 12 + [2] * 2 + [4] * 2 + [5])
    return torch.randn(57, 8), edge_index, batch


def count(gpu_model, function):
    tally = gpu_model.Tally()
    with gpu_model.as_on_cuda(tally), tally:
        result = function()
    ours = iter(gpu_model.count_ours(tally.calls))
    kernels = [
        k for item in tally.noted for k in ([item] if isinstance(item, gpu_model.Kernel) else next(ours))
    ]
    return result, int(sum(k.waits for k in kernels)), int(sum(k.launches for k in kernels))


def backward(*results):
    """Behind a LayerNorm, equal gradients would leave only rounding, on which devices differ."""
    with torch.utils._python_dispatch._disable_current_modes():
        grads = [torch.randn_like(result) for result in results]
    torch.autograd.backward(results, grads)


@pytest.fixture
def narrow(gpu_model, monkeypatch):
    monkeypatch.setattr(gpu_model, "CHANNELS", 32)
    return gpu_model


LEVELS = [({}, False), ({}, True)] + [
    (options, with_attr)
    for options in (
        {"self_loops": True},
        {"drop_edge": 0.3},
        {"self_loops": True, "drop_edge": 0.3, "weighted": True},
        {"edge_dim": 3, "self_loops": True, "drop_edge": 0.3},
    )
    for with_attr in ([True] if "edge_dim" in options else [False, True])
]


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize(("options", "with_attr"), LEVELS)
def test_a_level_waits_once(narrow, options, with_attr, batch_size):
    torch.manual_seed(0)
    hierarchy = ParseHierarchy(ParsePooling(32, **options))
    _, edge_index, batch = batch_of_graphs()
    # A graph that leaves at once with a self-loop takes a pair along: they are looked for again, with a wait.
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    x = torch.randn(57, 32, requires_grad=True)
    edge_attr = torch.rand(edge_index.size(1), 3) if with_attr else None
    levels = []  # Also the one at which nothing shrinks, which the tree does not have.
    hierarchy.pool.register_forward_hook(lambda *_: levels.append(1))

    def train():
        backward(hierarchy(x, edge_index, edge_attr, batch, batch_size).x)

    _, num_waits, launches = count(narrow, train)
    assert len(levels) > 1
    assert num_waits == len(levels) + 1
    assert launches < (300 if options else 250) * len(levels)


def sorting(gpu_model, function):
    """Our operators that sort edges for the coarse graph, or for the mask."""
    import emulation

    tally = gpu_model.Tally()
    with gpu_model.as_on_cuda(tally), tally:
        function()
    calls = [call for call in tally.calls if call.operator.startswith(("coarsen", "mask"))]
    return [
        cost["operator"]
        for cost in emulation.count(calls)
        if any("RadixSort" in kernel["name"] for kernel in cost["kernels"])
    ]


@pytest.mark.parametrize(("options", "with_attr"), LEVELS)
def test_a_level_sorts_its_edges_once(narrow, options, with_attr):
    """The coarse edges, the mask and the number of inner edges come from one sort."""
    torch.manual_seed(0)
    pool = ParsePooling(32, **options)
    _, edge_index, batch = batch_of_graphs()
    x = torch.randn(57, 32, requires_grad=True)
    edge_attr = torch.rand(edge_index.size(1), 3) if with_attr else None
    pairs = undirected(edge_index, 57)

    def layer(**more):
        out = pool(x, edge_index, edge_attr, batch, undirected=pairs, **more)
        backward(out.x, out.score)

    assert sorting(narrow, layer) == ["coarsen"]
    assert sorting(narrow, lambda: layer(num_graphs=6, record=True)) == ["coarsen_padded"]


@pytest.mark.parametrize("options", [{}, {"self_loops": True}])
def test_a_layer_waits_once_if_it_knows_the_pairs(narrow, options):
    pool = ParsePooling(32, **options)
    _, edge_index, batch = batch_of_graphs()
    x = torch.randn(57, 32)
    assert count(narrow, lambda: pool(x, edge_index, batch=batch))[1] == 2
    pairs = undirected(edge_index, 57)
    out, num_waits, _ = count(narrow, lambda: pool(x, edge_index, batch=batch, undirected=pairs))
    assert num_waits == 1
    plain = pool(x, edge_index, batch=batch)  # with the CPU's tiles, and so to rounding
    assert torch.equal(out.cluster, plain.cluster)
    torch.testing.assert_close(out.x, plain.x)


# One layer scores an edge by the same bits whatever other edges are scored.
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weighted": True},
        {"self_loops": True, "scorer_layers": 1},
        {"drop_edge": 0.3, "scorer_layers": 1},
    ],
)
@pytest.mark.parametrize("batch_size", [None, 80])
@pytest.mark.parametrize("with_attr", [False, True])
def test_reading_together_gives_the_same(monkeypatch, options, batch_size, with_attr):
    """The way that devices take whose answers the host waits for, on the CPU: the same bits."""
    torch.manual_seed(1)
    hierarchy = ParseHierarchy(ParsePooling(8, **options))
    x, edge_index, batch = batch_of_graphs()
    if batch_size is not None:
        batch = batch + 70  # more graphs than nodes
    edge_attr = torch.rand(edge_index.size(1), 3) if with_attr else None
    runs = []
    for free in (True, False):
        with monkeypatch.context() as patch:
            if not free:
                patch.setattr(waits, "reads_are_free", lambda device: False)
            torch.manual_seed(2)
            runs.append(hierarchy(x, edge_index, edge_attr, batch, batch_size))
    expected, got = runs
    assert torch.equal(got.x, expected.x)
    assert torch.equal(got.tree.height, expected.tree.height)
    assert len(got.tree.levels) == len(expected.tree.levels) > 1
    for one, other in zip(got.tree.levels, expected.tree.levels, strict=True):
        for name, value in vars(other).items():
            if value is None:
                assert getattr(one, name) is None
            else:
                assert torch.equal(getattr(one, name), value), name


@pytest.mark.parametrize("connect_loops", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("drop_edge", [0.0, 0.5, 1.0])
def test_edges_that_take_no_part_are_in_nothing(monkeypatch, drop_edge, self_loops, connect_loops):
    """Where they are listed all the same, as their number would have to be waited for."""
    monkeypatch.setattr(waits, "reads_are_free", lambda device: False)
    torch.manual_seed(3)
    pool = ParsePooling(8, drop_edge=drop_edge, self_loops=self_loops)
    pool.connect = ConnectClusters(self_loops=connect_loops)
    x, edge_index, batch = batch_of_graphs()
    edge_index = edge_index[:, torch.randperm(edge_index.size(1))].to(torch.int32)
    edge_attr = torch.rand(edge_index.size(1), 3)
    torch.manual_seed(4)
    parsed = pool.select(x, edge_index, batch, drop_edge=drop_edge, record=True)
    torch.manual_seed(4)
    out = pool(x, edge_index, edge_attr, batch, record=True)

    part = parsed.took_part
    if part is None:
        assert drop_edge == 0
        assert not self_loops
        part = torch.ones(edge_index.size(1), dtype=torch.bool)
    edges, scores = parsed.edge_index[:, part], parsed.scores[part]
    given = edge_index.size(1)
    kept = part[:given]
    assert torch.equal(parsed.edge_index[:, :given], edge_index)
    assert parsed.kept is None if drop_edge == 0 else torch.equal(parsed.kept, kept)
    loops = edges[0] == edges[1]
    if self_loops and drop_edge == 0:
        assert torch.equal(edges[0, loops].long().sort().values, torch.arange(57))
    elif not self_loops:
        assert edges.size(1) == int(kept.sum())
    both = {tuple(edge) for edge in edges.t().tolist()}
    assert all((j, i) in both for i, j in both)
    torch.testing.assert_close(scores, naive.edge_scores(pool.select.scorer, x, edges.long()))
    assert torch.equal(out.cluster, reference.algorithm1(edges.long(), _settled(scores), 57))
    mask = reference.mask(edges.long(), scores, out.cluster, out.x.size(0))
    torch.testing.assert_close(out.score, mask[0])
    assert torch.equal(out.inner_edges, mask[1])
    coarse = ops.coarsen(edge_index[:, kept], out.cluster, edge_attr[kept], self_loops=connect_loops)
    assert torch.equal(out.edge_index, coarse.edge_index)
    torch.testing.assert_close(out.edge_attr, coarse.edge_attr)

    weights = torch.rand_like(out.score)
    grad, *_ = torch.autograd.grad((out.score * weights).sum(), list(pool.select.scorer.parameters()))
    again = (reference.mask(edges.long(), scores, out.cluster, out.x.size(0))[0] * weights).sum()
    expected, *_ = torch.autograd.grad(again, list(pool.select.scorer.parameters()))
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize(
    ("batch", "batch_size", "message"),
    [([0, -1], None, "non-negative numbers of graphs, got -1"), ([0, 5], 3, "below batch_size = 3, got 5")],
)
def test_numbers_of_graphs_are_checked_where_they_are_read(monkeypatch, batch, batch_size, message):
    monkeypatch.setattr(waits, "reads_are_free", lambda device: False)
    with pytest.raises(RuntimeError, match=f"batch: expected .*{message}"):
        ParseHierarchy(ParsePooling(8))(
            torch.randn(2, 8), torch.empty(2, 0, dtype=torch.long), None, torch.tensor(batch), batch_size
        )


def test_more_graphs_than_nodes(monkeypatch):
    monkeypatch.setattr(waits, "reads_are_free", lambda device: False)
    batch = torch.tensor([9, 9, 9])
    out = ParseHierarchy(ParsePooling(8))(torch.randn(3, 8), graphs.path(3), batch=batch)
    assert out.x.shape == (10, 8)
    assert int(out.tree.height[9]) > 0
