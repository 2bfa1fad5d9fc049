"""What users of PyG expect of a pooling layer: edge attributes, explainers, DDP, and errors that help."""

import copy

import pytest
import torch

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import graphs
import ranks
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

import gpn_ops
from gpn_ops.nn import ConnectClusters, DeepSets, EdgeScorer, ParseHierarchy, ParsePooling, SelectParse

CHANNELS, EDGE_DIM = 6, 3


def example(device="cpu", dtype=torch.float64, edge_dim=EDGE_DIM):
    """Features, both directions of edges, and attributes that the directions share."""
    generator = torch.Generator().manual_seed(0)
    edge_index = graphs.erdos_renyi(25, 40, generator)
    pairs, slot = gpn_ops.undirected(edge_index, 25)
    attr = torch.randn(pairs.size(1), edge_dim, generator=generator, dtype=dtype)[slot]
    x = torch.randn(25, CHANNELS, generator=generator, dtype=dtype)
    return x.to(device), edge_index.to(device), attr.to(device)


def concatenated(scorer, x, edge_index, attr):
    """sigma(MLP([h_i * h_j, e_ij])), written down."""
    z = torch.cat([x[edge_index[0]] * x[edge_index[1]], attr], dim=1)
    weight = torch.cat([scorer.lins[0].weight, scorer.lin_edge.weight], dim=1)
    z = z @ weight.t() + scorer.lins[0].bias
    for lin, norm in zip(list(scorer.lins)[1:], scorer.norms, strict=True):
        z = lin(norm(z).relu())
    return z.sigmoid().squeeze(-1)


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_edge_attributes_are_scored(device, num_layers, recompute):
    x, edge_index, attr = example(device)
    scorer = EdgeScorer(CHANNELS, num_layers, recompute=recompute, edge_dim=EDGE_DIM).to(device).double()
    inputs = [x.requires_grad_(), attr.requires_grad_(), *scorer.parameters()]
    scores = scorer(x, edge_index, edge_attr=attr)
    expected = concatenated(scorer, x, edge_index, attr)
    torch.testing.assert_close(scores, expected)
    weight = torch.rand_like(scores)
    got = torch.autograd.grad(scores, inputs, weight)
    # One attribute of a pair moves both of its edges.
    torch.testing.assert_close(got[0], torch.autograd.grad(expected, x, weight, retain_graph=True)[0])
    torch.testing.assert_close(got[2:], torch.autograd.grad(expected, inputs[2:], weight))


@pytest.mark.parametrize("directed", [False, True])
def test_directions_that_differ_share_the_mean_of_their_attributes(device, directed):
    x, edge_index, attr = example(device)
    attr = attr + torch.rand_like(attr)
    scorer = EdgeScorer(CHANNELS, edge_dim=EDGE_DIM).to(device).double()
    pairs, slot = gpn_ops.undirected(edge_index, x.size(0))
    mean = gpn_ops.reduce(attr, slot, pairs.size(1), "mean")[slot]
    scores = scorer(x, edge_index, directed=directed, edge_attr=attr)
    torch.testing.assert_close(scores, concatenated(scorer, x, edge_index, mean))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_edge_attributes_in_half_precision(device, num_layers, dtype):
    x, edge_index, attr = example(device, torch.float32)
    scorer = EdgeScorer(CHANNELS, num_layers, edge_dim=EDGE_DIM).to(device)
    half = copy.deepcopy(scorer).to(dtype)(x.to(dtype), edge_index, edge_attr=attr)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, scorer(x, edge_index, edge_attr=attr), atol=0.05, rtol=0.05)


def test_attributes_decide_where_features_do_not(device):
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], device=device)
    attr = torch.tensor([0, 0, 9, 9, 1, 1], device=device)  # integers, one an edge
    x = torch.ones(4, CHANNELS, device=device)
    options = {"scorer_layers": 1, "multiset": "mean", "edge_reduce": "max", "edge_dim": 1}
    pool = ParsePooling(CHANNELS, **options).to(device)
    torch.nn.init.constant_(pool.select.scorer.lin_edge.weight, 1.0)
    assert pool(x, edge_index, attr).cluster.tolist() == [0, 0, 0, 0]
    torch.nn.init.constant_(pool.select.scorer.lin_edge.weight, -1.0)
    out = pool(x, edge_index, attr)
    assert out.cluster.tolist() == [0, 0, 1, 1]
    assert out.edge_attr.tolist() == [9, 9]
    assert out.edge_attr.dtype == torch.int64
    _, tree = ParseHierarchy(pool)(x, edge_index, attr)
    assert [level.cluster.tolist() for level in tree.levels] == [[0, 0, 1, 1], [0, 0]]


@pytest.mark.parametrize("self_loops", [False, True])
def test_attributes_stay_with_their_edges(device, self_loops):
    x, edge_index, attr = example(device)
    pool = ParsePooling(CHANNELS, self_loops=self_loops, drop_edge=0.5, edge_dim=EDGE_DIM).to(device).double()
    torch.manual_seed(0)
    parsed = pool.select(x, edge_index, edge_attr=attr, drop_edge=0.5, record=True)
    assert 0 < int(parsed.kept.sum()) < edge_index.size(1)
    # On a GPU the edges that took no part are listed too.
    part = slice(None) if parsed.took_part is None else parsed.took_part
    edges, scores = parsed.edge_index[:, part], parsed.scores[part]
    kept = attr[parsed.kept]
    loops = attr.new_zeros(edges.size(1) - kept.size(0), EDGE_DIM)
    assert (loops.size(0) > 0) == self_loops
    expected = concatenated(pool.select.scorer, x, edges, torch.cat([kept, loops]))
    torch.testing.assert_close(scores, expected)
    pool(x, edge_index, attr).x.sum().backward()
    assert bool(pool.select.scorer.lin_edge.weight.grad.abs().max() > 0)


@pytest.mark.parametrize("scorer_layers", [1, 2])
def test_a_layer_that_scores_attributes_compiles(scorer_layers):
    pool = ParsePooling(CHANNELS, scorer_layers=scorer_layers, edge_dim=EDGE_DIM, multiset="mean").double()
    x, edge_index, attr = example()
    compiled = torch.compile(pool, fullgraph=True, dynamic=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, edge_index, attr).x, pool(x, edge_index, attr).x)


@pytest.mark.parametrize(
    ("attr", "message"),
    [
        (None, "edge_attr: expected attributes because edge_dim = 3, got None"),
        (torch.ones(4, 2), r"edge_attr: expected shape \[num_edges, edge_dim\] = \[4, 3\], got \[4, 2\]"),
        (torch.ones(4), r"edge_attr: expected shape \[num_edges, edge_dim\] = \[4, 3\], got \[4\]"),
    ],
)
@pytest.mark.parametrize("make", [EdgeScorer, SelectParse, ParsePooling], ids=lambda make: make.__name__)
def test_bad_attributes(make, attr, message):
    x, edge_index = torch.randn(4, CHANNELS), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    with pytest.raises(RuntimeError, match=message):
        make(CHANNELS, edge_dim=3)(x, edge_index, edge_attr=attr)


def test_bad_edge_dim():
    with pytest.raises(ValueError, match="edge_dim: expected at least 1, got 0"):
        ParsePooling(CHANNELS, edge_dim=0)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integer_attributes_under_max(device, dtype, shape, self_loops):
    _, edge_index, _ = example(device)
    cluster = torch.arange(25, device=device) // 3
    attr = torch.randint(0, 200, (edge_index.size(1), *shape), device=device).to(dtype)
    coarse = gpn_ops.coarsen(edge_index, cluster, attr, "max", self_loops)
    expected = gpn_ops.coarsen(edge_index, cluster, attr.double(), "max", self_loops)
    assert coarse.edge_attr.dtype == dtype
    assert torch.equal(coarse.edge_attr.double(), expected.edge_attr)
    # Below zero too, where the row of a coarse edge starts at zero.
    if dtype != torch.uint8:
        coarse = gpn_ops.coarsen(edge_index, cluster, attr - 500, "max", self_loops)
        assert torch.equal(coarse.edge_attr.double(), expected.edge_attr - 500)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_integer_attributes_are_not_added_up(reduce):
    x, edge_index, _ = example(dtype=torch.float32)
    attr = torch.ones(edge_index.size(1), dtype=torch.int64)
    message = "edge_attr: expected a float32.* got int64, which only the reduction 'max' takes"
    for call in (
        lambda: gpn_ops.coarsen(edge_index, torch.arange(25), attr, reduce),
        lambda: ParsePooling(CHANNELS, edge_reduce=reduce)(x, edge_index, attr),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GCNConv(CHANNELS, 8)
        self.pool = ParsePooling(8)
        self.conv2 = GCNConv(8, 8)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index).relu()
        out = self.pool(x, edge_index)
        return self.head(global_add_pool(self.conv2(out.x, out.edge_index), out.batch))


class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parser = ParseHierarchy(ParsePooling(CHANNELS), GCNConv(CHANNELS, CHANNELS))
        self.head = torch.nn.Linear(CHANNELS, 2)

    def forward(self, x, edge_index):
        return self.head(self.parser(x, edge_index).x)


def explain(model, edge_mask_type):
    x, edge_index, _ = example(dtype=torch.float32)
    explainer = Explainer(
        model,
        GNNExplainer(epochs=3),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type=edge_mask_type,
        model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
    )
    return explainer(x, edge_index)


@pytest.mark.parametrize("make", [Net, Deep])
def test_explainer_with_node_masks(make):
    assert bool((explain(make(), None).node_mask > 0).any())


def test_explainer_with_edge_masks_before_the_first_pooling():
    model = Net()
    model.conv2.explain = False  # it runs on another graph
    mask = explain(model, "object").edge_mask
    assert mask.shape == (example()[1].size(1),)
    assert bool((mask > 0).any())


def test_an_edge_mask_in_a_hierarchy_is_refused():
    with pytest.raises(ValueError, match=r"gnn: expected no edge mask.*edge_mask_type=None"):
        explain(Deep(), "object")


@pytest.mark.parametrize(
    ("make", "works"),
    [
        (lambda: ParsePooling(1), "scorer_layers=1 with multiset='sum', 'mean' or 'max' works"),
        (lambda: ParsePooling(1, scorer_layers=1), "multiset='deepsets'.*got 1; scorer_layers=1 with"),
        (lambda: ParsePooling(1, multiset="mean"), "scorer_layers=2.*got 1; scorer_layers=1 with"),
        (lambda: EdgeScorer(1), "num_layers=1 works"),
        (lambda: SelectParse(1), "num_layers=1 works"),
        (lambda: DeepSets(1), "Reduce"),
    ],
)
def test_one_channel_is_refused_where_a_norm_would_make_it_constant(make, works):
    with pytest.raises(ValueError, match=f"in_channels: expected at least 2.*{works}"):
        make()


@pytest.mark.parametrize("multiset", ["sum", "mean", "max"])
def test_one_channel_works_without_a_norm(multiset):
    pool = ParsePooling(1, scorer_layers=1, multiset=multiset)
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    out = pool(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), edge_index)
    assert bool((out.x > 0).all())
    assert bool(out.x[0] != out.x[1])


def layers():
    pool = ParsePooling(CHANNELS)
    yield "pool", pool
    yield "select", SelectParse(CHANNELS)
    yield "hierarchy", ParseHierarchy(pool)
    yield "connect", lambda x, edges: ConnectClusters()(SelectParse(CHANNELS)(x, example()[1]), edges)


@pytest.mark.parametrize("name", ["pool", "select", "hierarchy", "connect"])
def test_matrices_and_dictionaries_of_edges_are_refused(name):
    layer = dict(layers())[name]
    x, edge_index, _ = example(dtype=torch.float32)
    for adj_t in (
        to_torch_csr_tensor(edge_index, size=(25, 25)),
        to_torch_coo_tensor(edge_index, size=(25, 25)),
    ):
        with pytest.raises(
            TypeError, match=r"edge_index: expected.*got a torch.sparse.*adj_t.*to_edge_index"
        ):
            layer(x, adj_t)
    data = HeteroData()
    data["a", "to", "a"].edge_index = edge_index
    with pytest.raises(TypeError, match=r"edge_index: expected the edges of one type.*to_homogeneous"):
        layer(x, data.edge_index_dict)
    with pytest.raises(TypeError, match=r"edge_index: expected an int64 tensor.*got HeteroData"):
        layer(x, data)


def test_what_the_error_says_of_adj_t_is_right():
    from torch_geometric.utils import to_edge_index

    x = torch.randn(3, CHANNELS)
    edge_index = torch.tensor([[0, 1], [2, 2]])
    adj_t = to_torch_csr_tensor(edge_index.flip(0), size=(3, 3))
    assert sorted(to_edge_index(adj_t)[0].flip(0).t().tolist()) == edge_index.t().tolist()
    assert ParsePooling(CHANNELS)(x, edge_index).cluster.tolist() == [0, 0, 0]


def train_with_a_rank_without_edges(rank, kind):
    torch.manual_seed(0)
    net = Deep() if kind == "hierarchy" else Net()
    model = torch.nn.parallel.DistributedDataParallel(net)
    x, edge_index, _ = example(dtype=torch.float32)
    for step in range(3):  # DDP finds out in the next step what went missing in the last
        edges = edge_index[:, :0] if rank == step % 2 else edge_index
        model(x, edges).sum().backward()
    return [p.grad.abs().sum().item() for p in model.parameters()]


@pytest.mark.parametrize("kind", ["hierarchy", "layer"])
def test_ddp_where_a_rank_has_no_edges(tmp_path, kind):
    outcomes = ranks.run(train_with_a_rank_without_edges, 2, tmp_path, kind)
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert outcomes[0].result == outcomes[1].result
    assert all(total < float("inf") for total in outcomes[0].result)


def test_a_tree_moves_and_is_cut_off(device):
    x, edge_index, attr = example(device, torch.float32)
    _, tree = ParseHierarchy(ParsePooling(CHANNELS, edge_reduce="mean")).to(device)(x, edge_index, attr)
    assert tree.levels[0].pooled.requires_grad
    for moved in (tree.detach(), tree.detach().cpu(), tree.detach().to("cpu")):
        assert len(moved.levels) == len(tree.levels)
        for level, before in zip(moved.levels, tree.levels, strict=True):
            assert not level.pooled.requires_grad
            for name, tensor in vars(level).items():
                assert (tensor is None) == (getattr(before, name) is None)
                assert tensor is None or torch.equal(tensor.to(device), getattr(before, name))
    wide = tree.to(torch.float64)
    assert wide.levels[0].mask.dtype == wide.levels[0].edge_attr.dtype == torch.float64
    assert wide.levels[0].cluster.dtype == wide.height.dtype == torch.int64
    assert all(t is None or t.device.type == "meta" for t in vars(tree.to("meta").levels[0]).values())


def test_a_tree_is_shown_in_short():
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    _, tree = ParseHierarchy(ParsePooling(CHANNELS))(torch.randn(4, CHANNELS), edge_index)
    assert repr(tree) == "ParseTree(num_graphs=1, levels=[Level(nodes=4, edges=4, clusters=2)])"
