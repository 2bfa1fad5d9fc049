"""Padded batches, and the hierarchy in static form: the results of the dynamic one, in known shapes."""

import graphs
import pytest
import submodules
import torch
from reads import Reads
from torch.utils.checkpoint import checkpoint

from gpn_ops import ops
from gpn_ops.nn import (
    Buckets,
    Capacity,
    ParseHierarchy,
    ParsePooling,
    UndirectedGCNConv,
    halving,
    measured,
    pad,
)

NUM_GRAPHS = 6


def batch_of_graphs(with_loop=True):
    """Two that shrink for long, one without edges between nodes, one that is empty, a pair, a single node."""
    loop = torch.tensor([[52], [52]])[:, : int(with_loop)]
    edge_index = torch.cat([graphs.path(40), graphs.ring(12) + 40, loop, graphs.path(2) + 54], dim=1)
    batch = torch.tensor([0] * 40 + [1] * 12 + [2] * 2 + [4] * 2 + [5])
    return torch.randn(57, 8), edge_index, batch


ROOMY = [Capacity(64, 120, 90), *[Capacity(62, 110, 80)] * 7]


# ---- padding


def test_padding_is_a_graph_of_its_own():
    x, edge_index, batch = batch_of_graphs()
    attr, kind = torch.rand(edge_index.size(1), 2), torch.ones(edge_index.size(1), dtype=torch.int64)
    out = pad(x, edge_index, attr, batch, (60, 130), NUM_GRAPHS)
    real = edge_index.size(1)
    assert torch.equal(out.x[:57], x)
    assert torch.equal(out.x[57:], torch.zeros(3, 8))
    assert torch.equal(out.edge_index[:, :real], edge_index)
    loops = out.edge_index[:, real:]
    assert torch.equal(loops[0], loops[1])
    assert loops.min() == 57
    assert loops.max() == 59
    spread = loops[0].bincount()[57:]
    assert spread.max() - spread.min() <= 2
    assert out.batch.tolist() == [*batch.tolist(), 6, 6, 6]
    assert torch.equal(out.edge_attr[real:], torch.ones(130 - real, 2))
    assert pad(x, edge_index, kind, batch, (60, 130)).edge_attr[real:].sum() == 0
    assert pad(x, edge_index, None, batch, (60, 130)).batch[-1] == 6


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.uint8, torch.bool], ids=str)
def test_features_of_any_dtype(dtype):
    """Such as the numbers of atoms, which a model looks up."""
    x, edge_index, batch = batch_of_graphs()
    out = pad((x > 0).to(dtype), edge_index, None, batch, (60, 130), NUM_GRAPHS)
    assert torch.equal(out.x, torch.cat([x > 0, torch.zeros(3, 8)]).to(dtype))


@pytest.mark.parametrize("capacity", [(57, 130), (60, 100)])
def test_a_batch_that_does_not_fit_is_an_error(capacity):
    x, edge_index, batch = batch_of_graphs()
    with pytest.raises(ValueError, match="capacity: expected room for more than 57 nodes and for 105 edges"):
        pad(x, edge_index, None, batch, capacity)


def test_buckets_are_steps_of_one_eighth():
    buckets = Buckets.of([(799, 1600), (500, 1200)])
    shapes = {buckets(n, 2 * n) for n in range(1, 800)}
    assert len(shapes) <= 8
    for n in (1, 99, 100, 420, 799, 1300):
        capacity = buckets(n, 2 * n)
        assert n < capacity.nodes <= n + 1 + 100
        assert 2 * n <= capacity.edges <= 2 * n + 202
    assert buckets(10, 1500).edges == 1600  # the larger of the two decides
    assert Buckets(800, 1600, 1200)(380, 700).pairs == 600
    with pytest.raises(ValueError, match="num_edges: expected at least 1, got 0"):
        Buckets(3, 0)
    with pytest.raises(ValueError, match="sizes: expected"):
        Buckets.of([])


# ---- the hierarchy


def both(hierarchy, x, edge_index, batch, capacity, edge_attr=None):
    dynamic = hierarchy(x, edge_index, edge_attr, batch, NUM_GRAPHS)
    padded = pad(x, edge_index, edge_attr, batch, capacity[0], NUM_GRAPHS)
    return dynamic, hierarchy(*padded, NUM_GRAPHS, capacity=capacity)


def assert_same_tree(got, expected):
    assert torch.equal(got.height, expected.height)
    assert len(got.levels) == len(expected.levels) > 1
    for one, other in zip(got.levels, expected.levels, strict=True):
        for name, value in vars(other).items():
            found = getattr(one, name)
            if value is None:
                assert found is None, name
            elif value.is_floating_point():
                torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-4)
            else:
                assert torch.equal(found, value), name


@pytest.mark.parametrize("max_height", [None, 2])
@pytest.mark.parametrize(
    "options", [{}, {"self_loops": True}, {"weighted": True}, {"multiset": "max"}, {"scorer_layers": 1}]
)
def test_static_is_dynamic(options, max_height):
    torch.manual_seed(0)
    pool = ParsePooling(8, **options)
    hierarchy = ParseHierarchy(pool, UndirectedGCNConv(8, 8), max_height=max_height)
    x, edge_index, batch = batch_of_graphs()
    x.requires_grad_()
    dynamic, static = both(hierarchy, x, edge_index, batch, ROOMY)
    assert not static.tree.overflow
    assert_same_tree(static.tree.trimmed(), dynamic.tree)
    torch.testing.assert_close(static.x, dynamic.x, rtol=1e-4, atol=1e-5)
    inputs = [x, *hierarchy.parameters()]
    grads = [
        torch.autograd.grad(out.x.square().sum(), inputs, allow_unused=True) for out in (static, dynamic)
    ]
    for got, expected in zip(*grads, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)


def test_under_autocast():
    """The dtype of the result is that of the features, whether or not a graph never shrinks."""
    torch.manual_seed(0)
    hierarchy = ParseHierarchy(ParsePooling(8), UndirectedGCNConv(8, 8))
    with torch.autocast("cpu", torch.bfloat16):
        dynamic, static = both(hierarchy, *batch_of_graphs(), ROOMY)
        pairs = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), None, torch.tensor([0, 0, 1, 1])
        assert hierarchy(torch.randn(4, 8), *pairs).x.dtype is torch.float32
    assert dynamic.x.dtype is static.x.dtype is torch.float32
    torch.testing.assert_close(static.x, dynamic.x, rtol=5e-2, atol=5e-2)


def test_given_the_scores_the_bits_are_the_same():
    """One layer on sums: no matrix products, whose rounding depends on the batch, but for those of scores."""
    torch.manual_seed(1)
    hierarchy = ParseHierarchy(ParsePooling(8, scorer_layers=1, multiset="sum"))
    dynamic, static = both(hierarchy, *batch_of_graphs(), ROOMY)
    assert torch.equal(static.x, dynamic.x)
    for one, other in zip(static.tree.trimmed().levels, dynamic.tree.levels, strict=True):
        assert torch.equal(one.mask, other.mask)
        assert torch.equal(one.pooled, other.pooled)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_edge_attributes(reduce):
    torch.manual_seed(2)
    hierarchy = ParseHierarchy(ParsePooling(8, edge_reduce=reduce, edge_dim=3))
    x, edge_index, batch = batch_of_graphs()
    dynamic, static = both(hierarchy, x, edge_index, batch, ROOMY, torch.rand(edge_index.size(1), 3))
    assert_same_tree(static.tree.trimmed(), dynamic.tree)


@pytest.mark.parametrize("max_height", [None, 0])
def test_padding_gets_no_gradient_and_gives_none(max_height):
    torch.manual_seed(3)
    pool = ParsePooling(8, multiset="sum")
    hierarchy = ParseHierarchy(pool, UndirectedGCNConv(8, 8), max_height=max_height)
    padded = pad(*batch_of_graphs()[:2], None, batch_of_graphs()[2], ROOMY[0], NUM_GRAPHS)
    x = padded.x.clone().requires_grad_()
    out = hierarchy(x, *padded[1:], NUM_GRAPHS, capacity=ROOMY)
    out.x.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert (x.grad[57:] == 0).all()
    assert (x.grad[:40] != 0).any()
    other = padded.x.clone()
    other[57:] = 1e3
    assert torch.equal(hierarchy(other, *padded[1:], NUM_GRAPHS, capacity=ROOMY).x, out.x)


def test_padding_of_upper_levels_is_zero():
    """Whatever an encoder made of it."""
    torch.manual_seed(3)
    hierarchy = ParseHierarchy(ParsePooling(8), UndirectedGCNConv(8, 8))
    x, edge_index, batch = batch_of_graphs()
    padded = pad(x, edge_index, None, batch, ROOMY[0], NUM_GRAPHS)
    tree = hierarchy(padded.x + 1, *padded[1:], NUM_GRAPHS, capacity=ROOMY).tree
    for level in tree.levels[1:]:
        of_padding = level.batch == NUM_GRAPHS
        assert of_padding.any()
        assert (level.x[of_padding] == 0).all()
        assert (level.x[~of_padding] != 0).any()


def test_a_graph_that_has_stopped_stays_as_it_is():
    """Though with dropout in the scorer, self-loops would lose to other edges at the next level."""
    torch.manual_seed(0)
    hierarchy = ParseHierarchy(ParsePooling(8, self_loops=True, dropout=0.5))
    stopped = 0
    for _ in range(10):
        _, static = both(hierarchy, *batch_of_graphs(), ROOMY)
        before = torch.ones(NUM_GRAPHS + 1, dtype=torch.bool)
        for level in static.tree.levels:
            takes_part = torch.zeros_like(before).index_fill(0, level.batch[level.took_part], True)
            assert not (takes_part & ~before).any()
            stopped += int((before & ~takes_part)[:2].sum())
            before = takes_part
    assert stopped > 10


def test_dropped_edges():
    torch.manual_seed(4)
    hierarchy = ParseHierarchy(ParsePooling(8, drop_edge=1.0))
    dynamic, static = both(hierarchy, *batch_of_graphs(), ROOMY)
    assert static.tree.height.sum() == 0
    assert torch.equal(static.x, dynamic.x)
    hierarchy.pool.drop_edge = 0.5
    _, static = both(hierarchy, *batch_of_graphs(), ROOMY)
    first = static.tree.levels[0]
    assert not static.tree.overflow
    assert static.tree.height[0] > 0
    assert 0 < first.inner_edges[first.representative < 40].sum() < 70


SMALL = {
    "nodes": [ROOMY[0], Capacity(8, 110, 90), *ROOMY[2:]],
    "edges": [ROOMY[0], Capacity(62, 8, 90), *ROOMY[2:]],
    "pairs": [Capacity(64, 120, 20), *ROOMY[1:]],
    "levels": ROOMY[:2],
}


@pytest.mark.parametrize("what", SMALL)
def test_too_small_a_capacity_is_never_a_plausible_result(what):
    torch.manual_seed(0)
    hierarchy = ParseHierarchy(ParsePooling(8, weighted=True), UndirectedGCNConv(8, 8))
    x, edge_index, batch = batch_of_graphs()
    _, static = both(hierarchy, x, edge_index, batch, SMALL[what])
    assert static.tree.overflow
    assert static.x.isnan().all()
    assert (static.tree.height == -1).all()
    padded = torch.zeros(64, 8)
    assert static.tree.decode(padded, lambda z, level: z.index_select(0, level.cluster)).isnan()[:40].all()
    with pytest.raises(RuntimeError, match="capacity was too small"):
        static.tree.trimmed()


def test_a_limit_of_the_height_is_no_overflow():
    torch.manual_seed(0)
    hierarchy = ParseHierarchy(ParsePooling(8), max_height=2)
    assert not both(hierarchy, *batch_of_graphs(), ROOMY[:3])[1].tree.overflow


def test_decoding_goes_the_same_way():
    torch.manual_seed(5)
    hierarchy = ParseHierarchy(ParsePooling(8))
    x, edge_index, batch = batch_of_graphs()
    dynamic, static = both(hierarchy, x, edge_index, batch, ROOMY)

    def decoder(z, level):
        return z.index_select(0, level.cluster) * 0.5 + level.x

    expected = dynamic.tree.decode(x, decoder)
    got = static.tree.decode(pad(x, edge_index, None, batch, ROOMY[0]).x, decoder)
    torch.testing.assert_close(got[:57], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("schedule", ["halving", "measured"])
def test_schedules_are_enough(schedule):
    torch.manual_seed(6)
    hierarchy = ParseHierarchy(ParsePooling(8))
    sizes = torch.randint(2, 30, (20,)).tolist()
    parts, first = [], 0
    for size in sizes:
        parts.append(graphs.ring(size) + first if size > 2 else graphs.path(2) + first)
        first += size
    edge_index, batch = torch.cat(parts, 1), torch.arange(20).repeat_interleave(torch.tensor(sizes))
    x = torch.randn(first, 8)
    dynamic = hierarchy(x, edge_index, None, batch)
    capacity = Buckets(first + 1, edge_index.size(1))(first, edge_index.size(1))
    if schedule == "halving":
        shapes = halving(capacity, 20, len(dynamic.tree.levels))
        assert shapes[-1].nodes < capacity.nodes / 2
    else:
        shapes = measured(capacity, dynamic.tree, first)
    assert shapes[0] == capacity
    assert len(shapes) == len(dynamic.tree.levels) + 1
    static = hierarchy(*pad(x, edge_index, None, batch, capacity), 20, capacity=shapes)
    assert_same_tree(static.tree.trimmed(), dynamic.tree)


@pytest.mark.parametrize(
    ("batch_size", "capacity", "message"),
    [
        (None, ROOMY, "batch_size: expected the number of graphs beside a capacity, got None"),
        (6, [], "capacity: expected first the sizes of the padded batch, 64 nodes and 120 edges, got none"),
        (6, [Capacity(63, 120)], "64 nodes and 120 edges, got 63 and 120"),
        (6, [ROOMY[0], Capacity(0, 4)], "capacity: expected room for a node at every level"),
    ],
)
def test_capacities_are_checked(batch_size, capacity, message):
    x, edge_index, batch = batch_of_graphs()
    padded = pad(x, edge_index, None, batch, ROOMY[0], NUM_GRAPHS)
    with pytest.raises(ValueError, match=message):
        ParseHierarchy(ParsePooling(8))(*padded, batch_size, capacity=capacity)


@pytest.mark.parametrize("options", [{}, {"self_loops": True}, {"weighted": True}, {"drop_edge": 0.2}])
def test_nothing_is_read_of_the_device(options, monkeypatch):
    torch.manual_seed(7)
    hierarchy = ParseHierarchy(ParsePooling(8, **options))
    x, edge_index, batch = batch_of_graphs()
    x.requires_grad_()
    padded = pad(x, edge_index, None, batch, ROOMY[0], NUM_GRAPHS)
    # Where reads are not free, an assertion of the device.
    monkeypatch.setattr("gpn_ops.nn.select.check_edges_inside_graphs", lambda *_: None)
    with Reads() as reads:
        hierarchy(*padded, NUM_GRAPHS, capacity=ROOMY).x.sum().backward()
    assert not reads.found
    with Reads() as reads:
        hierarchy(x, edge_index, None, batch, NUM_GRAPHS)
    assert len(reads.found) > 4


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = ParseHierarchy(ParsePooling(8))

    def forward(self, x, edge_index, batch):
        x, tree = self.levels(x, edge_index, None, batch, NUM_GRAPHS, ROOMY[:5])
        return x, tree.height, tree.overflow


def test_one_graph_compiled_and_exported(tmp_path):
    """All levels, forward and backward; the package is saved, loaded and run."""
    torch.manual_seed(8)
    x, edge_index, batch = batch_of_graphs()
    padded = pad(x, edge_index, None, batch, ROOMY[0], NUM_GRAPHS)
    inputs, model = (padded.x, padded.edge_index, padded.batch), Whole()
    expected = model(*inputs)
    assert not expected[2]
    grads = torch.autograd.grad(expected[0].square().sum(), list(model.parameters()))

    found = torch.compile(model, fullgraph=True, backend="aot_eager")(*inputs)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found[0].square().sum(), list(model.parameters())), grads, rtol=1e-4, atol=1e-5
    )
    torch.export.save(torch.export.export(model, inputs), tmp_path / "model.pt2")
    torch.testing.assert_close(torch.export.load(tmp_path / "model.pt2").module()(*inputs), expected)


def test_checkpoint():
    """Backward computes the whole hierarchy anew: the same bits."""
    torch.manual_seed(9)
    hierarchy = ParseHierarchy(ParsePooling(8), UndirectedGCNConv(8, 8))
    x, edge_index, batch = batch_of_graphs()
    padded = pad(x, edge_index, None, batch, ROOMY[0], NUM_GRAPHS)
    features = padded.x.requires_grad_()

    def run(x):
        return hierarchy(x, *padded[1:], NUM_GRAPHS, capacity=ROOMY).x

    results = []
    for out in (run(features), checkpoint(run, features, use_reentrant=False)):
        grads = torch.autograd.grad(out.square().sum(), [features, *hierarchy.parameters()])
        results.append([out, *grads])
    assert all(map(torch.equal, *results))


@submodules.NEEDS_VMAP_OF_VIEWS
@pytest.mark.parametrize("options", [{}, {"scorer_layers": 1, "multiset": "max", "weighted": True}], ids=str)
def test_vmap_over_parameters(options):
    """Several hierarchies at once, each with trees of its own; gradients too."""
    torch.manual_seed(10)
    models = [ParseHierarchy(ParsePooling(8, **options)) for _ in range(3)]
    x, edge_index, batch = batch_of_graphs()
    padded = pad(x, edge_index, None, batch, ROOMY[0], NUM_GRAPHS)

    def run(parameters, x):
        arguments = (x, *padded[1:], NUM_GRAPHS, ROOMY[:6])
        x, tree = torch.func.functional_call(models[0], parameters, arguments)
        return x, tree.height

    parameters = torch.func.stack_module_state(models)[0]
    out, height = torch.func.vmap(run, in_dims=(0, None))(parameters, padded.x)
    grads = torch.autograd.grad(out.square().sum(), list(parameters.values()))
    for k, model in enumerate(models):
        expected = model(*padded, NUM_GRAPHS, ROOMY[:6])
        assert torch.equal(height[k], expected.tree.height)
        torch.testing.assert_close(out[k], expected.x)
        wanted = torch.autograd.grad(expected.x.square().sum(), list(model.parameters()))
        torch.testing.assert_close([grad[k] for grad in grads], list(wanted))

    def total(parameters, x):
        return run(parameters, x)[0].square().sum()

    of_func = torch.func.vmap(torch.func.grad(total), in_dims=(0, None))(parameters, padded.x)
    torch.testing.assert_close(list(of_func.values()), list(grads), rtol=1e-4, atol=1e-4)


def test_vmap_of_sizes_that_follow_from_data():
    """In dynamic form, or of an operator alone: an error where the sizes differ."""
    edge_index = graphs.path(4)
    clusters = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]])
    with pytest.raises(
        RuntimeError, match=r"gpn::coarsen: expected results of one size under torch.func.vmap"
    ):
        torch.func.vmap(lambda cluster: ops.coarsen(edge_index, cluster).representative)(clusters)
    found = torch.func.vmap(lambda c: ops.coarsen(edge_index, c, capacity=(3, 4)).representative)(clusters)
    assert found.tolist() == [[0, 2, -1], [0, -1, -1]]
