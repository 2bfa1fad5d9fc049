"""ParseHierarchy: every graph pooled to its own height, whatever else is in its batch."""

import re

import pytest
import torch

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import graphs
import submodules
from torch_geometric.nn import GAT, GCN, GIN, GATConv, GCNConv, GINConv, GINEConv

import gpn_ops
from gpn_ops.nn import DeepSets, ParseHierarchy, ParsePooling, Reduce

CHANNELS = 6


class CountingGNN(torch.nn.Module):
    """A GCN that notes how many nodes it was called on."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(CHANNELS, CHANNELS)
        self.sizes = []

    def forward(self, x, edge_index, edge_weight=None):
        self.sizes.append(x.size(0))
        return self.conv(x, edge_index, edge_weight).tanh()


def hierarchy(device="cpu", gnn=None, pool=None, **options):
    torch.manual_seed(0)
    module = ParseHierarchy(ParsePooling(CHANNELS, **(pool or {})), gnn or CountingGNN(), **options)
    return module.double().to(device)


# Heights differ: a long path, two components, no edges, no nodes, one node, a star, only a self-loop.
PARTS = {
    "path": (graphs.path(60), 60),
    "two rings": (torch.cat([graphs.ring(5), graphs.ring(7) + 5], dim=1), 12),
    "no edges": (torch.empty(2, 0, dtype=torch.int64), 3),
    "no nodes": (torch.empty(2, 0, dtype=torch.int64), 0),
    "one node": (torch.empty(2, 0, dtype=torch.int64), 1),
    "star": (graphs.star(6), 6),
    "random": (graphs.erdos_renyi(100, 200, torch.Generator().manual_seed(0)), 100),
    "self-loop": (torch.tensor([[0], [0]]), 2),
    "last, no nodes": (torch.empty(2, 0, dtype=torch.int64), 0),
}


def batch_of_all(device="cpu"):
    sizes = [size for _, size in PARTS.values()]
    first = torch.tensor([0, *sizes]).cumsum(0)
    edge_index = torch.cat(
        [part + start for (part, _), start in zip(PARTS.values(), first, strict=False)], dim=1
    )
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    x = torch.randn(sum(sizes), CHANNELS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x.to(device), edge_index.to(device), batch.to(device), first


def by_hand(module, x, edge_index):
    """One graph alone: levels until the size stays the same; returns (sum of what is left, height)."""
    height = 0
    while True:
        h = module.gnn(x, edge_index)
        out = module.pool(
            h if module.multiset_gnn is None else module.multiset_gnn(x, edge_index), edge_index, attn=h
        )
        if out.x.size(0) == x.size(0):
            return x.sum(dim=0), height
        x, edge_index, height = out.x, out.edge_index, height + 1


@pytest.mark.parametrize("separate", [False, True])
def test_every_graph_as_if_alone(device, separate):
    module = hierarchy(device, multiset_gnn=CountingGNN() if separate else None)
    x, edge_index, batch, first = batch_of_all(device)
    out = module(x, edge_index, batch=batch, batch_size=len(PARTS))
    assert out.x.shape == (len(PARTS), CHANNELS)
    heights = dict(zip(PARTS, out.tree.height.tolist(), strict=True))
    for k, (name, (part, size)) in enumerate(PARTS.items()):
        mine = x[first[k] : first[k + 1]]
        expected, height = by_hand(module, mine, part.to(device)) if size else (torch.zeros_like(x[0]), 0)
        assert heights[name] == height, name
        torch.testing.assert_close(out.x[k], expected, msg=lambda text, name=name: f"{name}: {text}")
    assert heights["no edges"] == heights["no nodes"] == heights["one node"] == heights["self-loop"] == 0
    assert len(set(heights.values())) >= 3
    assert len(out.tree.levels) == max(heights.values())


def test_work_of_a_level_is_that_of_the_graphs_still_shrinking(device):
    module = hierarchy(device)
    x, edge_index, batch, _ = batch_of_all(device)
    tree = module(x, edge_index, batch=batch).tree
    assert module.gnn.sizes == [level.x.size(0) for level in tree.levels]
    for number, level in enumerate(tree.levels):
        assert level.batch.unique().tolist() == (tree.height > number).nonzero().view(-1).tolist()


def test_graphs_that_stop_beside_graphs_that_go_on():
    # With competing self-loops a graph with edges may stay as it is, and the level is discarded for it alone.
    module = hierarchy(pool={"self_loops": True})
    x, edge_index, batch, first = batch_of_all()
    out = module(x, edge_index, batch=batch)
    stopped = 0
    for k, (name, (part, size)) in enumerate(PARTS.items()):
        if size == 0:
            continue
        expected, height = by_hand(module, x[first[k] : first[k + 1]], part)
        assert int(out.tree.height[k]) == height, name
        torch.testing.assert_close(out.x[k], expected)
        if height < int(out.tree.height.max()):
            nodes = [level.batch.eq(k).sum() for level in out.tree.levels]
            assert sum(int(n) > 0 for n in nodes) == height
            stopped += 1
    assert stopped > 0
    # Some graph did stop with edges left: the network saw nodes that the tree does not have.
    assert sum(module.gnn.sizes) > sum(level.x.size(0) for level in out.tree.levels)


def test_tree_is_consistent(device):
    module = hierarchy(device)
    x, edge_index, batch, _ = batch_of_all(device)
    tree = module(x, edge_index, batch=batch).tree
    below_x, below_batch = x, batch
    for level in tree.levels:
        index = torch.arange(below_x.size(0), device=device) if level.index is None else level.index
        assert torch.equal(level.x, below_x[index])
        assert torch.equal(level.batch, below_batch[index])
        n, c = level.x.size(0), level.pooled.size(0)
        assert level.cluster.shape == (n,)
        assert level.representative.shape == level.mask.shape == level.inner_edges.shape == (c,)
        coarse = gpn_ops.reference.coarsen(level.edge_index, level.cluster)
        assert torch.equal(level.representative, coarse.representative)
        ones = torch.ones(level.edge_index.size(1), device=device)
        counted = gpn_ops.reference.mask(level.edge_index, ones, level.cluster, c)
        assert torch.equal(level.inner_edges, counted.count)
        assert bool((level.mask <= level.inner_edges).all())
        assert bool((level.mask > 0).all())
        below_x, below_batch = level.pooled, level.batch[level.representative]


def test_roots_are_the_connected_components():
    x, edge_index, batch, _ = batch_of_all()
    tree = hierarchy()(x, edge_index, batch=batch).tree
    # Every node inherits the number of its root, going down.
    number = iter(range(10**6))

    def decoder(z, level):
        return z[level.cluster]

    for level in tree.levels:
        level.pooled = torch.tensor([[float(next(number))] for _ in range(level.pooled.size(0))])
    own = torch.tensor([[float(next(number))] for _ in range(x.size(0))])
    roots = tree.decode(own, decoder).squeeze(1)
    component = gpn_ops.components(edge_index, x.size(0))
    assert len(set(zip(roots.tolist(), component.tolist(), strict=True))) == component.unique().numel()
    assert roots.unique().numel() == component.unique().numel()


def test_decode_reaches_every_node_with_its_gradient(device):
    module = hierarchy(device)
    x, edge_index, batch, _ = batch_of_all(device)
    tree = module(x, edge_index, batch=batch).tree
    decoder = CountingGNN().double().to(device)

    def down(z, level):
        z = module.pool.unpool(z / level.inner_edges[:, None], level.cluster)
        return decoder(z + level.x, level.edge_index)

    out = tree.decode(x, down)
    assert out.shape == x.shape
    assert decoder.sizes == [level.x.size(0) for level in reversed(tree.levels)]
    alone = (batch == list(PARTS).index("no edges")).nonzero().view(-1)
    assert torch.equal(out[alone], x[alone])
    out.square().sum().backward()
    for parameter in (*module.pool.select.scorer.lins.parameters(), *decoder.parameters()):
        assert bool(parameter.grad.abs().max() > 0)


@pytest.mark.parametrize("max_height", [0, 1, 2])
def test_max_height(device, max_height):
    x, edge_index, batch, _ = batch_of_all(device)
    full = hierarchy(device)(x, edge_index, batch=batch)
    out = hierarchy(device, max_height=max_height)(x, edge_index, batch=batch)
    assert torch.equal(out.tree.height, full.tree.height.clamp(max=max_height))
    if max_height == 0:
        torch.testing.assert_close(out.x, torch.zeros_like(out.x).index_add(0, batch, x))
    else:
        level = out.tree.levels[-1]
        going_on = full.tree.height > max_height
        top = torch.zeros_like(out.x).index_add(0, level.batch[level.representative], level.pooled)
        torch.testing.assert_close(out.x[going_on], top[going_on])


def test_readout_and_identity_gnn(device):
    x, edge_index, batch, _ = batch_of_all(device)
    readout = DeepSets(CHANNELS).double().to(device)
    summed = hierarchy(device, multiset_gnn=torch.nn.Identity())(x, edge_index, batch=batch)
    other = hierarchy(device, multiset_gnn=torch.nn.Identity(), readout=readout)(x, edge_index, batch=batch)
    assert torch.equal(summed.tree.height, other.tree.height)
    first = summed.tree.levels[0]
    pooled = hierarchy(device).pool
    h = hierarchy(device).gnn(first.x, first.edge_index)
    torch.testing.assert_close(first.pooled, pooled(first.x, first.edge_index, attn=h).x)
    assert not torch.allclose(summed.x, other.x)
    assert isinstance(hierarchy().readout, Reduce)


def test_edge_weights_reach_the_gnn_at_every_level(device):
    seen = []

    class Recorder(CountingGNN):
        def forward(self, x, edge_index, edge_weight=None):
            seen.append(edge_weight)
            return super().forward(x, edge_index, edge_weight)

    x, edge_index, batch, _ = batch_of_all(device)
    weight = torch.ones(edge_index.size(1), device=device, dtype=torch.float64)
    tree = hierarchy(device, gnn=Recorder())(x, edge_index, weight, batch).tree
    assert len(seen) == len(tree.levels) > 1
    assert all(w.size(0) == level.edge_index.size(1) for w, level in zip(seen, tree.levels, strict=True))
    assert bool((seen[1] > 1).any())


def test_drop_edge_ends(device):
    x, edge_index, batch, _ = batch_of_all(device)
    module = hierarchy(device, pool={"drop_edge": 0.5})
    out = module(x, edge_index, batch=batch)
    assert bool((out.tree.height <= len(out.tree.levels)).all())
    out.x.sum().backward()


def test_one_graph_without_batch(device):
    module = hierarchy(device)
    x = torch.randn(10, CHANNELS, dtype=torch.float64, device=device)
    out = module(x, graphs.ring(10).to(device))
    assert out.x.shape == (1, CHANNELS)
    assert out.tree.height.tolist() == [len(out.tree.levels)]
    assert out.tree.levels[-1].pooled.size(0) == 1
    empty = module(x[:0], torch.empty(2, 0, dtype=torch.int64, device=device))
    assert torch.equal(empty.x, torch.zeros_like(out.x))


def test_gnn_of_a_users_own(device):
    lin = torch.nn.Linear(CHANNELS, CHANNELS)
    module = hierarchy(device, gnn=GINConv(lin))
    x, edge_index, batch, _ = batch_of_all(device)
    module(x, edge_index, batch=batch).x.sum().backward()
    assert bool(lin.weight.grad.abs().max() > 0)


# ------------------------------------------------------------------------------------------------------------
# What edge attributes a network gets
# ------------------------------------------------------------------------------------------------------------


class Noting(torch.nn.Module):
    """Notes the edge attributes that it gets, and by which keyword."""

    def __init__(self):
        super().__init__()
        self.got = []

    def note(self, x, **given):
        self.got.append(given)
        return x


class TakesAttributes(Noting):
    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        return self.note(x, edge_attr=edge_attr, edge_weight=edge_weight)


class TakesWeights(Noting):
    def forward(self, x, edge_index, edge_weight=None):
        return self.note(x, edge_weight=edge_weight)


class TakesAnything(Noting):
    def forward(self, x, edge_index, **given):
        return self.note(x, **given)


class TakesNothing(Noting):
    def forward(self, x, edge_index):
        return self.note(x)


class Wrapper(torch.nn.Module):
    """As ``DistributedDataParallel`` holds a network."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


@pytest.mark.parametrize("wrap", [lambda gnn: gnn, Wrapper], ids=["plain", "wrapped"])
@pytest.mark.parametrize(
    ("network", "shape", "keyword"),
    [
        (TakesAttributes, (), "edge_attr"),
        (TakesAttributes, (3,), "edge_attr"),
        (TakesAnything, (3,), "edge_attr"),
        (TakesWeights, (), "edge_weight"),
        (TakesWeights, (1,), "edge_weight"),
    ],
)
def test_edge_attributes_reach_a_network_by_keyword(device, wrap, network, shape, keyword):
    x, edge_index = torch.randn(12, CHANNELS, device=device).double(), graphs.ring(12).to(device)
    edge_attr = torch.randn(24, *shape, device=device).double()
    gnn = network()
    tree = hierarchy(device, gnn=wrap(gnn))(x, edge_index, edge_attr).tree
    assert len(tree.levels) > 1
    for level, given in zip(tree.levels, gnn.got, strict=False):  # The last level may not have shrunk.
        assert given.pop(keyword).flatten().tolist() == level.edge_attr.flatten().tolist()
        assert not any(value is not None for value in given.values())


@pytest.mark.parametrize(
    ("network", "shape"), [(TakesNothing, ()), (TakesWeights, (3,))], ids=["nothing", "weights"]
)
def test_a_network_that_takes_no_edge_attributes_is_refused(network, shape):
    x, edge_attr = torch.randn(12, CHANNELS).double(), torch.randn(24, *shape).double()
    message = (
        f"multiset_gnn: expected a network that takes edge_attr, .* shape {re.escape(str([24, *shape]))}"
    )
    with pytest.raises(ValueError, match=message):
        hierarchy(gnn=TakesAnything(), multiset_gnn=network())(x, graphs.ring(12), edge_attr)
    hierarchy(gnn=network())(x, graphs.ring(12))


@pytest.mark.parametrize(
    "gnn",
    [
        GCNConv(CHANNELS, CHANNELS),
        GATConv(CHANNELS, CHANNELS, edge_dim=1),
        GINEConv(torch.nn.Linear(CHANNELS, CHANNELS), edge_dim=1),
        GCN(CHANNELS, CHANNELS, 2),
        GAT(CHANNELS, CHANNELS, 2, edge_dim=1),
    ],
    ids=lambda gnn: type(gnn).__name__,
)
def test_edge_attributes_count_in_networks_of_pyg(gnn):
    x = torch.randn(12, CHANNELS, generator=torch.Generator().manual_seed(0)).double()
    edge_attr = torch.rand(24, 1, generator=torch.Generator().manual_seed(0)).double()
    module = hierarchy(gnn=gnn)
    ones, others = (module(x, graphs.ring(12), attr).x for attr in (torch.ones_like(edge_attr), edge_attr))
    assert not torch.allclose(ones, others)


def test_models_of_pyg_that_ignore_edge_attributes_are_refused():
    with pytest.raises(ValueError, match="gnn: expected a network that takes edge_attr"):
        hierarchy(gnn=GIN(CHANNELS, CHANNELS, 2))(
            torch.randn(12, CHANNELS).double(), graphs.ring(12), torch.ones(24)
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_in_half_precision(device, dtype):
    module = hierarchy(device, gnn=GCNConv(CHANNELS, CHANNELS), pool={"weighted": True}).to(dtype)
    out = module(torch.randn(60, CHANNELS, device=device, dtype=dtype), graphs.path(60).to(device))
    assert len(out.tree.levels) > 1
    assert out.tree.levels[1].edge_attr.dtype == out.x.dtype == dtype


# ------------------------------------------------------------------------------------------------------------
# A module of modules
# ------------------------------------------------------------------------------------------------------------


@submodules.GRADIENTS
def test_hooks_of_children_fire(device, gradients):
    x, edge_index, batch, _ = batch_of_all(device)
    module = hierarchy(device, gnn=GCNConv(CHANNELS, CHANNELS), multiset_gnn=torch.nn.Identity())
    submodules.check_hooks(module, lambda module: module(x, edge_index, batch=batch).x, gradients)


@submodules.GRADIENTS
def test_children_of_a_users_own_take_effect(device, gradients):
    x, edge_index = torch.randn(30, CHANNELS, device=device).double(), graphs.path(30).to(device)
    plain = hierarchy(device, gnn=GINConv(torch.nn.Linear(CHANNELS, CHANNELS)))
    for module in submodules.tripled_linears(plain):
        with torch.set_grad_enabled(gradients):
            out = module(x, edge_index)
        top, height = by_hand(module, x, edge_index)
        assert out.tree.height.tolist() == [height]
        torch.testing.assert_close(out.x[0], top)


def test_flops_are_those_of_every_level(device):
    x, edge_index, batch, _ = batch_of_all(device)
    module = hierarchy(device, gnn=torch.nn.Identity())
    expected = 0

    def count(pool, args, out):
        nonlocal expected
        num_pairs = gpn_ops.undirected(args[1], args[0].size(0)).pairs.size(1)
        rows = args[0].size(0) + out.x.size(0)
        expected += 2 * CHANNELS * (num_pairs * (CHANNELS + 1) + rows * CHANNELS)

    module.pool.register_forward_hook(count)
    forward, backward = submodules.flops(lambda: module(x.requires_grad_(), edge_index, batch=batch).x)
    assert forward == expected > 0
    assert backward > forward


@pytest.mark.parametrize("drop_edge", [0.0, 0.999])
@pytest.mark.parametrize("joined", [(0, 1), (0, 2), (2, 0)], ids=str)
def test_an_edge_between_two_graphs_is_refused(drop_edge, joined):
    """Also where one of the two, a graph without edges of its own, would never have been pooled."""
    first = torch.tensor([0, 10, 20])
    edge_index = torch.cat([graphs.ring(10), graphs.ring(10) + 10], dim=1)
    extra = first[list(joined)].view(2, 1)
    batch = torch.tensor([0] * 10 + [1] * 10 + [2])
    module = hierarchy(pool={"drop_edge": drop_edge})
    x = torch.randn(21, CHANNELS).double()
    got = f"got an edge from graph {joined[0]} to graph {joined[1]}"
    with pytest.raises(RuntimeError, match=f"^batch: expected every edge inside one graph, {got}"):
        module(x, torch.cat([edge_index, extra], dim=1), batch=batch)
    module(x, edge_index, batch=batch)


@pytest.mark.parametrize("edges", [[[0, 1], [1, 0]], [[], []]], ids=["edges", "no edges"])
@pytest.mark.parametrize(
    ("batch", "batch_size", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), None, "batch: expected shape [num_nodes] = [4], got [3]"),
        (torch.zeros(5, dtype=torch.int64), None, "batch: expected shape [num_nodes] = [4], got [5]"),
        (torch.zeros(4), None, "batch: expected an int64 tensor, got float32"),
        (torch.zeros(4, dtype=torch.int32), None, "batch: expected an int64 tensor, got int32"),
        (torch.tensor([0, 0, -1, 1]), None, "batch: expected non-negative numbers of graphs, got -1"),
        (torch.tensor([0, 0, 1, 1]), 1, "batch: expected numbers below batch_size = 1, got 1"),
        (None, 0, "batch: expected numbers below batch_size = 0, got 0"),
    ],
)
def test_bad_batch(device, edges, batch, batch_size, message):
    edge_index = torch.tensor(edges, dtype=torch.int64, device=device)
    x = torch.ones(4, CHANNELS, device=device)
    batch = None if batch is None else batch.to(device)
    with pytest.raises(RuntimeError, match=re.escape(message)):
        hierarchy(device)(x, edge_index, batch=batch, batch_size=batch_size)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (
            [[0, 4], [4, 0]],
            "node ids from 0 to num_nodes - 1 = 3, got 4 at edge_index[1, 0]",
        ),
        (
            [[1, -1], [0, 1]],
            "node ids from 0 to num_nodes - 1 = 3, got -1 at edge_index[0, 1]",
        ),
        ([[0, 1]], "shape [2, num_edges], got [1, 2]"),
        ([[0.0, 1.0], [1.0, 0.0]], "an int64 or int32 tensor, got float32"),
    ],
)
def test_bad_edges(device, edges, message):
    if "node ids" in message and device.type != "cpu":
        pytest.skip("ids out of range are a device-side assertion there, which ends the process")
    x, edge_index = torch.ones(4, CHANNELS, device=device), torch.tensor(edges, device=device)
    with pytest.raises(RuntimeError, match=re.escape(f"edge_index: expected {message}")):
        hierarchy(device)(x, edge_index)


def test_bad_max_height():
    with pytest.raises(ValueError, match="max_height: expected at least 0, got -1"):
        hierarchy(max_height=-1)


def test_autocast(device):
    module = hierarchy(device).float()
    x, edge_index, batch, _ = batch_of_all(device)
    with torch.autocast(device.type, torch.bfloat16):
        out = module(x.float(), edge_index, batch=batch)
        decoded = out.tree.decode(x.float(), lambda z, level: module.pool.unpool(z, level.cluster))
    assert out.x.dtype == decoded.dtype == torch.float32
    assert bool(out.x.isfinite().all())
    (out.x.sum() + decoded.sum()).backward()
    assert {p.grad.dtype for p in module.parameters()} == {torch.float32}
