"""The baselines: every method trains, on every kind of graph, and a graph's result is its own."""

import itertools

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")

import graphs
from torch.nn import functional
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, dense_diff_pool, dense_mincut_pool, global_mean_pool

from models.baselines import (
    BASELINES,
    DENSE,
    FLAT,
    MOLECULE_BASELINES,
    DensePool,
    GraphBaseline,
    MoleculeBaseline,
    clusters,
)
from models.gpn import MoleculeClassifier

# PyG's ASAPooling makes sparse tensors of a kind that torch warns about.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

CHANNELS, CLASSES = 5, 3
# No gradient: PyG's layer uses this weight to rank only. Zero: adding to all scores of a softmax, or scaling
# a vector of one entry that is divided by its length, changes nothing.
WITHOUT_GRADIENT = {
    "asap": (".select.weight",),
    "sag": (".select.weight",),
    "edgepool": ("pools.0.lin.bias", "pools.1.lin.bias", "pools.2.lin.bias"),
}


@pytest.fixture(params=BASELINES)
def pool(request):
    return request.param


def baseline(pool, **options):
    torch.manual_seed(0)
    options = {"hidden": 16, "max_nodes": 12, **options}
    return GraphBaseline(CHANNELS, CLASSES, pool=pool, **options)


def random_graph(num_nodes, num_edges, seed=0):
    generator = torch.Generator().manual_seed(seed)
    edge_index = graphs.erdos_renyi(num_nodes, num_edges, generator).unique(dim=1)
    return Data(torch.randn(num_nodes, CHANNELS, generator=generator), edge_index)


def call(model, *data, **options):
    batch = Batch.from_data_list(data).to(data[0].x.device)  # PyG puts the vector on the device for CUDA only
    return model(batch.x, batch.edge_index, batch=batch.batch, **options)


def test_every_parameter_learns(device, pool):
    model = baseline(pool).to(device)
    data = [random_graph(n, 2 * n, seed=n).to(device) for n in (9, 14, 21, 30)]
    torch.manual_seed(0)
    out = call(model, *data)
    assert out.out.shape == (4, CLASSES)
    (functional.cross_entropy(out.out, torch.tensor([0, 1, 2, 0], device=device)) + out.extra_loss).backward()
    for name, parameter in model.named_parameters():
        if name.endswith(WITHOUT_GRADIENT.get(pool, ())):
            assert parameter.grad is None or parameter.grad.abs().max() < 1e-6, name
        else:
            assert parameter.grad is not None, name
            assert bool(parameter.grad.isfinite().all()), name
            assert bool(parameter.grad.any()), name


def test_training_lowers_the_loss(pool):
    """Rings against stars, which two steps of message passing can tell apart by their degrees."""
    data = []
    for n in range(5, 15):
        for edge_index in (graphs.ring(n), graphs.star(n)):
            degree = edge_index[0].bincount(minlength=n).clamp(max=CHANNELS - 1)
            data.append(Data(functional.one_hot(degree, CHANNELS).float(), edge_index))
    label = torch.arange(len(data)) % 2
    model = baseline(pool, num_levels=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        out = call(model, *data)
        losses.append(functional.cross_entropy(out.out, label))
        optimizer.zero_grad()
        (losses[-1] + out.extra_loss).backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("num_levels", [1, 3])
def test_heights_are_the_number_of_pooling_levels(pool, num_levels):
    height = call(baseline(pool, num_levels=num_levels), random_graph(9, 12), random_graph(4, 3)).height
    if pool in FLAT:
        assert height is None
    else:
        assert height.dtype == torch.int64
        assert height.tolist() == [num_levels, num_levels]


def test_auxiliary_losses_are_those_of_the_dense_methods(pool):
    extra_loss = call(baseline(pool), random_graph(9, 12)).extra_loss
    if pool in DENSE:
        assert extra_loss.shape == ()
        assert extra_loss.requires_grad
    else:
        assert extra_loss == 0.0


def test_a_graph_alone_is_as_in_a_batch(device, pool):
    model = baseline(pool).to(device).eval()
    data = [random_graph(n, 2 * n, seed=n).to(device) for n in (9, 30, 4, 17)]
    together = call(model, *data).out
    alone = torch.cat([model(one.x, one.edge_index).out for one in data])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    # The test could not fail if all graphs had one and the same result.
    assert (together[1:] - together[:-1]).abs().amax(dim=1).min() > 1e-4


def test_auxiliary_losses_of_mincut_are_means_over_graphs():
    """A smaller graph's padding has no part in them."""
    model = baseline("mincut").eval()
    data = [random_graph(n, 2 * n, seed=n) for n in (9, 30, 17)]
    alone = torch.stack([call(model, one).extra_loss for one in data])
    torch.testing.assert_close(call(model, *data).extra_loss, alone.mean())
    assert alone.std() > 1e-3


def test_dropout_acts_in_training_only(pool):
    model, data = baseline(pool, dropout=0.5), random_graph(9, 12)
    assert not torch.equal(call(model, data).out, call(model, data).out)
    model.eval()
    assert torch.equal(call(model, data).out, call(model, data).out)


@pytest.mark.parametrize("sizes", [[1], [3], [1, 6, 2], [6, 1, 1]], ids=str)
def test_without_edges_and_single_nodes(device, pool, sizes):
    """In each of these batches, all graphs but the one of 6 nodes have no edges."""
    data = [random_graph(n, 7 if n == 6 else 0, seed=n).to(device) for n in sizes]
    model = baseline(pool).to(device)
    out = call(model, *data)
    assert out.out.shape == (len(sizes), CLASSES)
    (out.out.square().sum() + out.extra_loss).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all()), name


def test_graphs_without_nodes(pool):
    """Between others, by gaps in the batch vector, and after them, by the batch size."""
    model = baseline(pool).eval()
    data = [random_graph(9, 12), random_graph(5, 6, seed=1)]
    batch = Batch.from_data_list(data)
    out = model(batch.x, batch.edge_index, batch=2 * batch.batch, batch_size=5)
    expected = call(model, *data).out
    torch.testing.assert_close(out.out[[0, 2]], expected)
    empty = model.head(torch.zeros(1, model.head[0].in_features)).expand(3, -1)
    torch.testing.assert_close(out.out[[1, 3, 4]], empty)
    assert out.height is None or out.height.shape == (5,)
    no_nodes = model(torch.empty(0, CHANNELS), torch.empty(2, 0, dtype=torch.int64), batch_size=2)
    torch.testing.assert_close(no_nodes.out, empty[:2])


def test_gcn_is_three_convolutions_and_a_mean():
    model, data = baseline("gcn").eval(), random_graph(9, 12)
    x = model.encoder(data.x)
    convs = [module for module in model.modules() if isinstance(module, GCNConv)]
    assert len(convs) == 3
    for conv in convs:
        x = conv(x, data.edge_index).relu()
    expected = model.head(global_mean_pool(x, torch.zeros(9, dtype=torch.int64)))
    torch.testing.assert_close(model(data.x, data.edge_index).out, expected)


@pytest.mark.parametrize(
    ("pool", "ratio", "sizes"),
    [("topk", 0.5, [9, 5, 3, 2]), ("sag", 0.3, [9, 3, 1, 1]), ("asap", 0.5, [9, 5, 3, 2])],
)
def test_the_ratio_is_kept(pool, ratio, sizes):
    model, data = baseline(pool, ratio=ratio), random_graph(9, 12)
    seen = []
    for layer in model.levels.pools:
        layer.register_forward_hook(lambda _, given, out: seen.append((given[0].size(0), out[0].size(0))))
    call(model, data)
    assert seen == list(itertools.pairwise(sizes))


def test_edge_contraction_does_not_contract_nodes_with_themselves():
    """A path of 8 nodes has a matching of 4, 3 at the least; a contracted one goes on shrinking."""
    model = baseline("edgepool")
    sizes = []
    for layer in model.levels.pools:
        layer.register_forward_hook(lambda _, given, out: sizes.append(out[0].size(0)))
    call(model, Data(torch.randn(8, CHANNELS), graphs.path(8)))
    assert sizes[0] <= 5
    assert sizes[1] <= 3
    assert sizes[2] <= 2


def test_number_of_clusters():
    assert clusters(40, 0.5, 3) == [20, 10, 5]
    assert clusters(39, 0.25, 3) == [10, 3, 2]
    assert clusters(3, 0.5, 4) == [2, 2, 2, 2]
    model = baseline("mincut", max_nodes=40)
    assert [layer.assign.out_features for layer in model.levels.pools] == [20, 10, 5]


@pytest.mark.parametrize("assign", [None, torch.nn.Linear(4, 3)], ids=["own", "linear"])
@pytest.mark.parametrize("pool", DENSE)
def test_dense_assignment_is_the_one_pooled_by(pool, assign):
    torch.manual_seed(0)
    x, adj = torch.randn(2, 7, 4), torch.rand(2, 7, 7)
    mask = torch.arange(7) < torch.tensor([[7], [5]])
    out = DensePool(pool, 4, 3, assign)(x, adj, mask)
    assignment = out.logits.softmax(dim=-1)
    assert assignment.shape == (2, 7, 3)
    torch.testing.assert_close(assignment.sum(dim=-1), torch.ones(2, 7))
    torch.testing.assert_close(out.x[0], assignment[0].t() @ x[0])
    torch.testing.assert_close(out.x[1], assignment[1, :5].t() @ x[1, :5])
    function = {"mincut": dense_mincut_pool, "diffpool": dense_diff_pool}[pool]
    _, coarse, *losses = function(x, adj, out.logits, mask)
    torch.testing.assert_close(out.adj, coarse)
    torch.testing.assert_close(out.extra_loss, sum(losses))
    assert len(losses) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": "topk2"}, r"pool: expected one of topk, sag, .*gmt, got 'topk2'"),
        ({"num_levels": 0}, r"num_levels: expected at least 1, got 0"),
        ({"ratio": 1.5}, r"ratio: expected a number between 0 and 1, got 1.5"),
        ({"max_nodes": 0}, r"max_nodes: expected at least 1, got 0"),
    ],
    ids=str,
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        GraphBaseline(CHANNELS, CLASSES, **options)


# ------------------------------------------------------------------------------------------------------------
# Molecules
# ------------------------------------------------------------------------------------------------------------

ATOMS, BONDS, TASKS = [5, 3], [3, 2], 4
ENCODER = {"hidden": 6, "encoder_layers": 3, "mlp_layers": 2, "dropout": 0.0}


def molecule(num_nodes, num_edges, seed=0):
    """Both directions of a bond have the same features."""
    item = random_graph(num_nodes, num_edges, seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.stack([torch.randint(n, (num_nodes,), generator=generator) for n in ATOMS], dim=1)
    both = item.edge_index.sum(dim=0)
    return Data(x, item.edge_index, torch.stack([both % n for n in BONDS], dim=1))


def molecules():
    return [molecule(n, 2 * n if n > 1 else 0, seed=n) for n in (7, 1, 9, 4)]


def of_molecules(conv, **options):
    torch.manual_seed(0)
    return MoleculeBaseline(ATOMS, BONDS, TASKS, conv=conv, **{**ENCODER, **options})


def call_with_bonds(model, *items):
    batch = Batch.from_data_list(items)
    return model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, len(items))


@pytest.mark.parametrize("conv", MOLECULE_BASELINES)
def test_molecules_learn_with_every_parameter(conv):
    model = of_molecules(conv)
    prediction = call_with_bonds(model, *molecules())
    assert prediction.out.shape == (4, TASKS)
    assert prediction.height is None
    prediction.out.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        # BatchNorm takes away what a bias in front of it adds.
        if not name.endswith((".nn.0.bias", ".nn.3.bias")):
            assert bool(parameter.grad.any()), name


@pytest.mark.parametrize("conv", MOLECULE_BASELINES)
def test_a_molecule_alone_is_as_in_a_batch(conv):
    model = of_molecules(conv, dropout=0.3).eval()
    together = call_with_bonds(model, *molecules()).out
    alone = torch.cat([model(one.x, one.edge_index, one.edge_attr).out for one in molecules()])
    torch.testing.assert_close(together, alone)
    assert (together[1:] - together[:-1]).abs().amax(dim=1).min() > 1e-4
    with pytest.raises(ValueError, match="edge_attr: expected the bonds' features, got None"):
        model(molecules()[0].x, molecules()[0].edge_index)


def test_gcn_of_molecules_is_gpn_without_levels():
    """The same encoder, the same mean, the same output MLP."""
    levels = {
        "gnn_layers": 1,
        "multiset_gnn_layers": None,
        "deepsets_layers": 1,
        "scorer_layers": 1,
        "drop_edge": 0.0,
        "self_loops": False,
        "act_last": False,
        "conv": "gcn",
        "multiset": "deepsets",
        "weighted": False,
        "recompute": False,
        "directed_scores": False,
    }
    gpn = MoleculeClassifier(ATOMS, BONDS, TASKS, **ENCODER, **levels, max_height=0)
    gcn = of_molecules("gcn")
    gcn.load_state_dict({key: value for key, value in gpn.state_dict().items() if "levels" not in key})
    assert torch.equal(
        call_with_bonds(gpn.eval(), *molecules()).out, call_with_bonds(gcn.eval(), *molecules()).out
    )


def test_gin_of_molecules_edge_by_edge():
    model, item = of_molecules("gin", encoder_layers=1).double().eval(), molecule(7, 14)
    conv, norm = model.encoder.convs[0], model.encoder.norms[0]
    with torch.no_grad():
        conv.eps.fill_(0.3)
    x = model.encoder.atoms(item.x)
    rows = [1.3 * row for row in x]
    for (j, i), bond in zip(item.edge_index.t().tolist(), conv.bonds(item.edge_attr), strict=True):
        rows[i] = rows[i] + (x[j] + bond).relu()
    expected = model.head(norm(conv.nn(torch.stack(rows))).mean(dim=0))
    torch.testing.assert_close(model(item.x, item.edge_index, item.edge_attr).out[0], expected)
