"""The three models: equal to a literal reading of the paper's settings, graph by graph, and trainable."""

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")

import graphs
from literal import Literal
from reads import Reads
from torch_geometric.data import Batch, Data

import gpn_ops
from gpn_ops.nn import Buckets, Capacity, ParsePooling, halving, pad
from gpn_ops.ops import waits
from models.gpn import GraphClassifier, MoleculeClassifier, NodeClassifier, hierarchy
from models.molecules import Categories

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

CHANNELS, HIDDEN, CLASSES = 4, 6, 3
ATOMS, BONDS = [5, 3], [3, 2]
LEVELS = {
    "hidden": HIDDEN,
    "gnn_layers": 2,
    "multiset_gnn_layers": None,
    "deepsets_layers": 1,
    "scorer_layers": 2,
    "mlp_layers": 2,
    "dropout": 0.0,
    "drop_edge": 0.0,
    "self_loops": False,
    "act_last": False,
    "conv": "gcn",
    "multiset": "deepsets",
    "weighted": False,
    "max_height": None,
    "recompute": False,
    "directed_scores": False,
}
OWN = {
    GraphClassifier: {"readout": "sum"},
    NodeClassifier: {"decoder_layers": 2},
    MoleculeClassifier: {"encoder_layers": 3},
}
MODELS = tuple(OWN)
METHOD = {GraphClassifier: "graph", NodeClassifier: "node", MoleculeClassifier: "molecule"}


def random_edges(num_nodes, num_edges, seed):
    return graphs.erdos_renyi(num_nodes, num_edges, torch.Generator().manual_seed(seed)).unique(dim=1)


def without_loops(edge_index):
    return edge_index[:, edge_index[0] != edge_index[1]]


NO_EDGES = torch.empty(2, 0, dtype=torch.int64)
# Two components, several heights, no edges, one node, isolated nodes, self-loops, edges in no order.
PARTS = {
    "path": (graphs.path(14), 14),
    "one node": (NO_EDGES, 1),
    "two rings": (torch.cat([graphs.ring(4), graphs.ring(5) + 4], dim=1), 9),
    "no edges": (NO_EDGES, 3),
    "star": (graphs.star(6), 6),
    "random": (without_loops(random_edges(16, 24, 0)), 16),
    "unsorted": (without_loops(random_edges(12, 12, 1)).flip(1), 12),
    "self-loops": (random_edges(10, 16, 2), 10),
    "only a self-loop": (torch.tensor([[0], [0]]), 2),
}


def data(molecules=False):
    generator = torch.Generator().manual_seed(3)
    found = []
    for edge_index, size in PARTS.values():
        if molecules:
            x = torch.stack([torch.randint(n, (size,), generator=generator) for n in ATOMS], dim=1)
            pairs, slot = gpn_ops.undirected(edge_index, size)
            bond = [torch.randint(n, (pairs.size(1),), generator=generator) for n in BONDS]
            found.append(Data(x, edge_index, torch.stack(bond, dim=1)[slot]))
        else:
            found.append(Data(torch.randn(size, CHANNELS, generator=generator).double(), edge_index))
    return found


def settings_of(kind, settings):
    return {**LEVELS, **OWN[kind], **settings}


def make(kind, **settings):
    torch.manual_seed(0)
    arguments = (ATOMS, BONDS, CLASSES) if kind is MoleculeClassifier else (CHANNELS, CLASSES)
    model = kind(*arguments, **settings_of(kind, settings)).double()
    for name, parameter in model.named_parameters():
        # Biases of convolutions and all of LayerNorm start from values that hide mistakes.
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=float("norm" in name and name.endswith("weight")), std=0.3)
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            torch.nn.init.uniform_(buffer, 0.5 if "var" in name else -0.5, 1.5 if "var" in name else 0.5)
    return model.eval()


def call(model, *items, **options):
    batch = Batch.from_data_list(items)
    return model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, **options)


def edges_of(item):
    values = [1.0] * item.num_edges if item.edge_attr is None else item.edge_attr
    return {tuple(edge): value for edge, value in zip(item.edge_index.t().tolist(), values, strict=True)}


# The presets' combinations, and what else can be set.
SETTINGS = {
    "PROTEINS": {"gnn_layers": 3, "act_last": True},
    "DD": {"multiset_gnn_layers": 0},
    "NCI1": {"deepsets_layers": 3},
    "Cora": {
        "gnn_layers": 1,
        "multiset_gnn_layers": 2,
        "deepsets_layers": 2,
        "scorer_layers": 1,
        "self_loops": True,
    },
    "CiteSeer": {"multiset_gnn_layers": 3, "scorer_layers": 3, "deepsets_layers": 2, "self_loops": True},
    "no networks": {"gnn_layers": 0, "mlp_layers": 1, "scorer_layers": 1, "act_last": True},
    "one level": {"max_height": 1},
    "no level": {"max_height": 0},
    "sum": {"multiset": "sum"},
    "mean": {"multiset": "mean"},
    "max": {"multiset": "max"},
    "weighted": {"weighted": True},
    "recompute": {"recompute": True, "deepsets_layers": 2},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", MODELS, ids=METHOD.values())
def test_equals_the_settings_read_literally(kind, settings):
    model = make(kind, **settings)
    literal = Literal(model, **settings_of(kind, settings))
    items = data(kind is MoleculeClassifier)
    prediction = call(model, *items)
    if kind is NodeClassifier:
        outs = prediction.out.split([item.num_nodes for item in items])
    else:
        outs = prediction.out
    for name, item, out, height in zip(PARTS, items, outs, prediction.height.tolist(), strict=True):
        wanted, wanted_height = getattr(literal, METHOD[kind])(item.x, edges_of(item))
        assert height == wanted_height, name
        assert (out - wanted).abs().max() < 1e-9, name
    assert len(set(prediction.height.tolist())) >= (1 if settings.get("max_height") == 0 else 2)


@pytest.mark.parametrize("readout", ["mean", "max"])
def test_readouts(readout):
    model, items = make(GraphClassifier, readout=readout), data()
    literal = Literal(model, **settings_of(GraphClassifier, {"readout": readout}))
    for item, out in zip(items, call(model, *items).out, strict=True):
        assert (out - literal.graph(item.x, edges_of(item))[0]).abs().max() < 1e-9


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("kind", [GraphClassifier, NodeClassifier], ids=["graph", "node"])
def test_drop_edge_acts_on_undirected_edges_and_in_training_only(kind, self_loops):
    settings = {"drop_edge": 0.4, "self_loops": self_loops, "multiset_gnn_layers": 1}
    model = make(kind, **settings).train()
    item = data()[list(PARTS).index("random")]
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        literal = Literal(
            model,
            lambda number, generator=generator: torch.rand(number, generator=generator).tolist(),
            **settings_of(kind, settings),
        )
        torch.manual_seed(seed)
        out = call(model, item)
        wanted, height = getattr(literal, METHOD[kind])(item.x, edges_of(item))
        assert out.height.tolist() == [height]
        assert (out.out.view_as(wanted) - wanted).abs().max() < 1e-9
    model.eval()
    literal = Literal(model, **settings_of(kind, settings))
    wanted, _ = getattr(literal, METHOD[kind])(item.x, edges_of(item))
    assert (call(model, item).out.view_as(wanted) - wanted).abs().max() < 1e-9


def test_self_loops_keep_some_nodes_apart():
    """Where self-loops compete, a connected graph need not become one node."""
    item = data()[list(PARTS).index("random")]
    with_loops = make(NodeClassifier, self_loops=True)
    sizes = [level.pooled.size(0) for level in call(with_loops, item).tree.levels]
    without = [level.pooled.size(0) for level in call(make(NodeClassifier), item).tree.levels]
    assert sizes != without


@pytest.mark.parametrize("kind", MODELS, ids=METHOD.values())
def test_a_graph_does_not_depend_on_its_batch(kind):
    model, items = make(kind), data(kind is MoleculeClassifier)
    together = call(model, *items)
    backwards = call(model, *reversed(items))
    alone = [call(model, item) for item in items]
    torch.testing.assert_close(together.out, torch.cat([one.out for one in alone]), atol=1e-12, rtol=0)
    assert together.height.tolist() == [one.height.item() for one in alone]
    assert together.height.tolist() == backwards.height.tolist()[::-1]
    if kind is not NodeClassifier:
        torch.testing.assert_close(together.out, backwards.out.flip(0), atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", [GraphClassifier, MoleculeClassifier], ids=["graph", "molecule"])
def test_graphs_without_nodes(kind):
    model, items = make(kind), data(kind is MoleculeClassifier)
    batch = Batch.from_data_list(items)
    out = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, len(items) + 2)
    assert out.out.shape == (len(items) + 2, CLASSES)
    assert out.height.tolist()[-2:] == [0, 0]
    empty = model.head(torch.zeros(1, HIDDEN, dtype=torch.float64))
    torch.testing.assert_close(out.out[-2:], empty.expand(2, -1))
    torch.testing.assert_close(out.out[:-2], call(model, *items).out)


TRAINED = {
    **SETTINGS,
    "gat": {"conv": "gat"},
    "gin": {"conv": "gin"},
    "everything": {
        "dropout": 0.3,
        "drop_edge": 0.3,
        "self_loops": True,
        "act_last": True,
        "scorer_layers": 3,
    },
    "recomputed": {"dropout": 0.3, "recompute": True, "deepsets_layers": 2},
}


@pytest.mark.parametrize("settings", TRAINED.values(), ids=TRAINED)
@pytest.mark.parametrize("kind", MODELS, ids=METHOD.values())
def test_gradients_reach_all_parameters(kind, settings):
    model = make(kind, **settings).train()
    torch.manual_seed(0)
    prediction = call(model, *data(kind is MoleculeClassifier))
    weight = torch.randn_like(prediction.out)
    (prediction.out * weight).sum().backward()
    unused = () if settings.get("max_height") != 0 else ("levels.", "decoder.")
    for name, parameter in model.named_parameters():
        if name.startswith(unused):
            continue
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert bool(parameter.grad.any()), name


@pytest.mark.parametrize("kind", MODELS, ids=METHOD.values())
def test_dropout_acts_in_training_only(kind):
    model, items = make(kind, dropout=0.5), data(kind is MoleculeClassifier)
    assert torch.equal(call(model, *items).out, call(model, *items).out)
    model.train()
    assert not torch.equal(call(model, *items).out, call(model, *items).out)


@pytest.mark.parametrize("kind", [GraphClassifier, NodeClassifier], ids=["graph", "node"])
def test_input_dropout_acts_on_the_features_in_training_only(kind):
    model, items = make(kind, input_dropout=0.5), data()
    seen = []
    model.encoder.register_forward_hook(lambda _, given, out: seen.append(given[0]))
    assert torch.equal(call(model, *items).out, call(make(kind), *items).out)
    call(model.train(), *items)
    whole, thinned = seen
    kept = thinned != 0
    assert 0.3 < kept.double().mean() < 0.7
    assert torch.equal(thinned[kept], 2 * whole[kept])


def test_batch_norm_is_that_of_all_atoms_of_the_batch():
    model, items = make(MoleculeClassifier).train(), data(molecules=True)
    seen = []
    model.encoder.norms[0].register_forward_hook(lambda _, given, out: seen.append((given[0], out)))
    call(model, *items)
    (given, out), norm = seen[0], model.encoder.norms[0]
    normalised = (given - given.mean(dim=0)) / (given.var(dim=0, unbiased=False) + norm.eps).sqrt()
    torch.testing.assert_close(out, normalised * norm.weight + norm.bias)


@pytest.mark.parametrize("conv", ["gat", "gin"])
def test_weights_need_a_convolution_that_takes_them(conv):
    with pytest.raises(ValueError, match=f"weighted: expected conv gcn, got '{conv}'"):
        make(GraphClassifier, weighted=True, conv=conv)


def test_molecules_need_bonds():
    model = make(MoleculeClassifier)
    item = data(molecules=True)[0]
    with pytest.raises(ValueError, match="edge_attr: expected the bonds' features, got None"):
        model(item.x, item.edge_index)
    with pytest.raises(ValueError, match="features: expected 2 columns, got 3"):
        Categories(ATOMS, HIDDEN)(torch.zeros(4, 3, dtype=torch.int64))


def test_settings_reach_the_pooling_layer():
    levels = {key: value for key, value in LEVELS.items() if key not in ("hidden", "mlp_layers")}
    levels |= {"drop_edge": 0.3, "dropout": 0.2, "self_loops": True, "deepsets_layers": 3, "recompute": True}
    levels |= {"directed_scores": True}
    pool = hierarchy(HIDDEN, readout="sum", **levels).pool
    assert isinstance(pool, ParsePooling)
    assert (pool.drop_edge, pool.select.self_loops, pool.select.scorer.num_layers) == (0.3, True, 2)
    assert (pool.multiset.num_layers, pool.multiset.dropout, pool.select.scorer.dropout) == (3, 0.2, 0.2)
    assert pool.multiset.recompute
    assert pool.select.scorer.recompute
    assert pool.select.directed_scores


# ------------------------------------------------------------------------------------------------ static form

STATIC = (GraphClassifier, NodeClassifier)
ROOMY = (Capacity(90, 180, 110), *[Capacity(80, 150, 110)] * 6)


def padded_batch():
    """The padded batch, the number of graphs, and the batch itself."""
    batch = Batch.from_data_list(data())
    return pad(batch.x, batch.edge_index, None, batch.batch, ROOMY[0], len(PARTS)), len(PARTS), batch


@pytest.mark.parametrize("name", ["PROTEINS", "Cora", "one level", "no level", "max", "weighted"])
@pytest.mark.parametrize("kind", STATIC, ids=METHOD.get)
def test_static_form(kind, name):
    model = make(kind, **SETTINGS[name])
    padded, num_graphs, batch = padded_batch()
    results = []
    for given, capacity in ((padded, ROOMY), ((batch.x, batch.edge_index, None, batch.batch), None)):
        out, height, *_ = model(*given, num_graphs, capacity)
        rows = out[: len(batch.x) if kind is NodeClassifier else num_graphs]
        grads = torch.autograd.grad(rows.square().sum(), list(model.parameters()), materialize_grads=True)
        results.append([rows, height, *grads])
    torch.testing.assert_close(*results)


def rings(*sizes):
    parts, first = [], 0
    for size in sizes:
        parts.append(graphs.ring(size) + first)
        first += size
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return torch.randn(first, CHANNELS), torch.cat(parts, dim=1), None, batch


def in_bucket(capacity, *sizes):
    return (*pad(*rings(*sizes), capacity, 4), 4, halving(capacity, 4, 2))


SMALL = {"gnn_layers": 1, "hidden": 8, "max_height": 2, "dropout": 0.2}


@pytest.mark.parametrize(
    "kind",
    [GraphClassifier, pytest.param(NodeClassifier, marks=pytest.mark.slow)],  # Compiling takes its time.
    ids=METHOD.get,
)
def test_whole_model_in_one_graph_on_inductor(kind):
    """Forward and backward; other batches of the same sizes need no other graph."""
    torch._dynamo.reset()
    model = make(kind, **SMALL).float()
    compiled = torch.compile(model, fullgraph=True, dynamic=False)
    capacity = Buckets(48, 96)(40, 80)
    for k, sizes in enumerate([(10, 12, 9, 7), (20, 18), (5, 6, 28)]):
        given = in_bucket(capacity, *sizes)
        results = []
        with torch.compiler.set_stance("fail_on_recompile" if k > 0 else "default"):
            for function in (compiled, model):
                out = function(*given)
                assert not out.tree.overflow
                grads = torch.autograd.grad(out.out.square().sum(), list(model.parameters()))
                results.append([out.out, out.height, *grads])
        torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", STATIC, ids=METHOD.get)
def test_one_graph_for_every_size_of_batches(kind):
    compiled_graphs = []

    def counting(graph, example):
        compiled_graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = make(kind, **SMALL).float().train()
    compiled = torch.compile(model, fullgraph=True, dynamic=False, backend=counting)
    buckets = Buckets(48, 96)
    for sizes in [(10, 12, 9), (20, 18), (5, 6), (7, 4), (30, 1 + 2, 6), (9,)]:
        compiled(*in_bucket(buckets(sum(sizes), 2 * sum(sizes)), *sizes))
    assert len(compiled_graphs) == 3


class Served(torch.nn.Module):
    """What is served of a model, for batches of given sizes."""

    def __init__(self, model, num_graphs, capacity):
        super().__init__()
        self.model, self.num_graphs, self.capacity = model, num_graphs, capacity

    def forward(self, x, edge_index, batch):
        out, height, _, tree = self.model(x, edge_index, None, batch, self.num_graphs, self.capacity)
        return out, height, tree.overflow


@pytest.mark.parametrize("kind", STATIC, ids=METHOD.get)
def test_exported_saved_loaded_and_run(kind, tmp_path):
    """Without an operator that is Python, which no other language could run."""
    padded, num_graphs, _ = padded_batch()
    inputs, model = (padded.x, padded.edge_index, padded.batch), Served(make(kind), num_graphs, ROOMY)
    with torch.no_grad():
        torch.export.save(torch.export.export(model, inputs), tmp_path / "model.pt2")
        loaded = torch.export.load(tmp_path / "model.pt2")
        torch.testing.assert_close(loaded.module()(*inputs), model(*inputs))
    called = {str(node.target) for node in loaded.graph.nodes}
    ours = {name.split(".")[1] for name in called if name.startswith("gpn.")}
    assert "parse" in ours
    assert all(torch._C._dispatch_has_kernel_for_dispatch_key(f"gpn::{name}", "CPU") for name in ours)


@pytest.mark.parametrize("settings", [{}, {"dropout": 0.5, "drop_edge": 0.2, "self_loops": True}], ids=str)
@pytest.mark.parametrize("kind", STATIC, ids=METHOD.get)
def test_a_step_of_training_reads_nothing_of_the_device(kind, settings, monkeypatch):
    """The optimiser's step and clipping included: a CUDA graph can hold it."""
    monkeypatch.setattr(waits, "is_host", lambda device: False)
    model = make(kind, **settings).train()
    optimizer = torch.optim.Adam(model.parameters(), fused=True, capturable=True)
    padded, num_graphs, batch = padded_batch()

    def step(given, capacity):
        out = model(*given, num_graphs, capacity).out
        torch.nn.functional.cross_entropy(out, torch.arange(out.size(0)) % CLASSES).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    with Reads() as reads:
        step(padded, ROOMY)
    assert not reads.found
    with Reads() as reads:
        step((batch.x, batch.edge_index, None, batch.batch), None)
    assert "gpn::undirected" in reads.found
