"""The layers in PyG's company: EdgeIndex, Sequential, DataLoader, torch.compile, and a model of PyG's
examples that trains with only its pooling line changed."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import graphs
import torch_geometric
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch.nn import functional
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, TopKPooling, global_mean_pool

from gpn_ops.nn import ParseHierarchy, ParsePooling

MUTAG = Path(__file__).parent.parent.parent / "shared" / "data" / "TUDataset" / "MUTAG" / "raw"


@pytest.fixture
def one_thread():
    """Graphs this small do not repay a second thread; on a busy machine it would cost seconds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def ring_with_features(num_nodes=12, channels=8):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(num_nodes, channels, generator=generator), graphs.ring(num_nodes)


# ------------------------------------------------------------------------------------------------------------
# Imports
# ------------------------------------------------------------------------------------------------------------


def test_importing_gpn_ops_does_not_import_pyg():
    code = "import sys, gpn_ops; sys.exit('torch_geometric' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_pyg_is_a_clear_import_error():
    code = "import sys; sys.modules['torch_geometric'] = None; import gpn_ops; import gpn_ops.nn"
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert run.returncode != 0
    assert "ImportError: gpn_ops.nn needs PyTorch Geometric: pip install torch_geometric" in run.stderr


# ------------------------------------------------------------------------------------------------------------
# Inputs and containers
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_edge_index_of_pyg(device, dtype):
    x, edge_index = ring_with_features()
    x, edge_index = x.to(device), edge_index.to(device)
    pool = ParsePooling(8).to(device)
    expected = pool(x, edge_index)
    given = EdgeIndex(edge_index.to(dtype), sparse_size=(12, 12), is_undirected=True)
    out = pool(x, given)
    for name, left, right in zip(out._fields, out, expected, strict=True):
        assert (left is None and right is None) or torch.equal(left, right), name
    selected = pool.select(x, given)
    assert torch.equal(pool.connect(selected, given).edge_index, expected.edge_index)
    hierarchy = ParseHierarchy(pool, GCNConv(8, 8)).to(device)
    torch.testing.assert_close(hierarchy(x, given).x, hierarchy(x, edge_index).x)
    # What comes out is what PyG's layers take.
    assert GCNConv(8, 8).to(device)(out.x, out.edge_index).shape == out.x.shape


def test_sequential(device):
    pool = (ParsePooling(8), "x, edge_index, None, batch -> x, edge_index, edge_attr, batch, cluster, score")
    model = torch_geometric.nn.Sequential(
        "x, edge_index, batch",
        [
            (GCNConv(4, 8), "x, edge_index -> x"),
            pool,
            (global_mean_pool, "x, batch -> x"),
            torch.nn.Linear(8, 2),
        ],
    ).to(device)
    x, edge_index = ring_with_features(channels=4)
    batch = torch.zeros(12, dtype=torch.int64, device=device)
    assert model(x.to(device), edge_index.to(device), batch).shape == (1, 2)


def test_loader_batches_with_empty_graphs(device):
    data = [
        Data(x=torch.randn(n, 8), edge_index=graphs.ring(n) if n > 2 else graphs.path(n))
        for n in (5, 0, 1, 9)
    ]
    pool = ParsePooling(8).to(device)
    hierarchy = ParseHierarchy(pool, GCNConv(8, 8)).to(device)
    seen = 0
    for batch in DataLoader(data, batch_size=4):
        batch = batch.to(device)
        out = pool(batch.x, batch.edge_index, batch=batch.batch)
        assert out.batch.unique().tolist() == [0, 2, 3]
        x, tree = hierarchy(batch.x, batch.edge_index, batch=batch.batch, batch_size=batch.num_graphs)
        assert x.shape == (4, 8)
        assert tree.height.tolist()[1:3] == [0, 0]
        seen += 1
    assert seen == 1


# ------------------------------------------------------------------------------------------------------------
# torch.compile
# ------------------------------------------------------------------------------------------------------------


def check_compiled(device, backend, options):
    """One graph without breaks, equal to eager mode, which serves other sizes too."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    pool = ParsePooling(8, **options).to(device)
    compiled = torch.compile(pool, fullgraph=True, dynamic=True, backend=backend)

    def check(num_nodes, num_edges):
        generator = torch.Generator().manual_seed(num_nodes)
        edge_index = graphs.erdos_renyi(num_nodes, num_edges, generator).to(device)
        x = torch.randn(num_nodes, 8, generator=generator).to(device).requires_grad_()
        batch = (torch.arange(num_nodes) >= num_nodes // 2).long().to(device)
        edge_index = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
        expected, out = pool(x, edge_index, batch=batch), compiled(x, edge_index, batch=batch)
        assert torch.equal(out.cluster, expected.cluster)
        assert torch.equal(out.edge_index, expected.edge_index)
        assert torch.equal(out.batch, expected.batch)
        torch.testing.assert_close(out.x, expected.x)
        # Not the sum of squares, which a normalisation keeps as it is: there is next to no gradient of it.
        weight = torch.randn(out.x.shape, generator=generator).to(device)
        inputs = {"x": x, **dict(pool.named_parameters())}
        wanted = torch.autograd.grad((expected.x * weight).sum(), inputs.values())
        found = torch.autograd.grad((out.x * weight).sum(), inputs.values())
        for name, left, right in zip(inputs, found, wanted, strict=True):
            assert right.norm() > 0.1, name
            assert (left - right).norm() < 1e-3 * right.norm(), name

    check(40, 60)
    with torch.compiler.set_stance("fail_on_recompile"):
        check(50, 90)
        check(30, 35)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "options", [{}, {"scorer_layers": 1}, {"weighted": True}, {"recompute": False}], ids=str
)
def test_compiles_whole_and_once(device, options):
    check_compiled(device, "aot_eager", options)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("options", [{}, {"multiset": "mean"}, {"recompute": False}], ids=str)
def test_compiled_gradients_that_are_wrong_are_noticed(device, options):
    """All of them by 5 per cent."""

    def wrong(backward, example_inputs):
        def run(*inputs):
            return [None if grad is None else 1.05 * grad for grad in backward(*inputs)]

        return make_boxed_func(run)

    backend = aot_autograd(fw_compiler=lambda forward, inputs: make_boxed_func(forward), bw_compiler=wrong)
    with pytest.raises(AssertionError, match=r"^x$|^x\n"):
        check_compiled(device, backend, options)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("recompute", [True, False])
def test_dropout_compiles_and_follows_the_seed(device, recompute):
    torch._dynamo.reset()
    pool = ParsePooling(8, dropout=0.5, multiset_layers=2, recompute=recompute).to(device)
    compiled = torch.compile(pool, fullgraph=True, dynamic=True, backend="aot_eager")
    x, edge_index = ring_with_features()
    x, edge_index = x.to(device), edge_index.to(device)

    def run(seed):
        torch.manual_seed(seed)
        return compiled(x, edge_index).x

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("recompute", [True, False])
def test_a_compiled_layer_in_a_hierarchy(device, recompute):
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    plain = ParseHierarchy(ParsePooling(8, recompute=recompute), GCNConv(8, 8)).to(device)
    module = copy.deepcopy(plain)
    module.pool = torch.compile(module.pool, backend="aot_eager", fullgraph=True, dynamic=True)
    edge_index = torch.cat([graphs.path(40), graphs.ring(12) + 40], dim=1).to(device)
    batch = torch.arange(2, device=device).repeat_interleave(torch.tensor([40, 12], device=device))
    x = torch.randn(52, 8, device=device, requires_grad=True)
    expected, out = (each(x, edge_index, batch=batch) for each in (plain, module))
    assert counters["stats"]["unique_graphs"] == 1  # for all levels
    assert len(out.tree.levels) > 2
    assert torch.equal(out.tree.height, expected.tree.height)
    torch.testing.assert_close(out.x, expected.x)
    wanted = torch.autograd.grad(expected.x.square().sum(), [x, *plain.parameters()])
    actual = torch.autograd.grad(out.x.square().sum(), [x, *module.parameters()])
    torch.testing.assert_close(actual, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"multiset": multiset} for multiset in ("deepsets", "mean", "max")] + [{"recompute": False}]
)
def test_compiles_on_inductor(device, options):
    check_compiled(device, "inductor", options)


def test_operators_are_well_defined(device):
    pool = ParsePooling(8, multiset_layers=2).to(device)
    x = torch.randn(9, 8, device=device, requires_grad=True)
    pairs = torch.randint(9, (2, 7), device=device)
    cluster = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 0], device=device)
    scorer, sets = pool.select.scorer, pool.multiset
    scoring = [*scorer.lins[0].parameters(), *scorer.norms[0].parameters(), *scorer.lins[1].parameters()]
    mlp = [*sets.lins1.parameters(), *sets.norm1.parameters()]
    for seed in (None, torch.tensor(3, device=device)):
        settings = (torch.float32, 0.5, seed)
        torch.library.opcheck(torch.ops.gpn.edge_logits, (x, pairs, scoring, *settings, 16))
        for keep in (False, True):
            torch.library.opcheck(torch.ops.gpn.residual, (x, None, 0, mlp, *settings, 16, keep))
            torch.library.opcheck(torch.ops.gpn.residual, (x, cluster, 3, mlp, *settings, 16, keep))


# ------------------------------------------------------------------------------------------------------------
# A model in the manner of PyG's examples
# ------------------------------------------------------------------------------------------------------------


def data_set(tmp_path) -> list[Data]:
    """MUTAG where it is at hand, else rings (class 0) and stars (class 1) of several sizes."""
    if MUTAG.is_dir():
        (tmp_path / "MUTAG").mkdir()
        os.symlink(MUTAG, tmp_path / "MUTAG" / "raw")
        return list(TUDataset(str(tmp_path), "MUTAG"))
    data = []
    for n in range(4, 64):
        for label, edge_index in enumerate((graphs.ring(n), graphs.star(n))):
            degree = edge_index[0].bincount(minlength=n).clamp(max=6)
            x = functional.one_hot(degree, 7).float()
            data.append(Data(x=x, edge_index=edge_index, y=torch.tensor([label])))
    return data


class Net(torch.nn.Module):
    """Convolve, pool, read out, twice: only ``pool`` says which pooling it is."""

    def __init__(self, in_channels, pool):
        super().__init__()
        self.conv1, self.pool1 = GCNConv(in_channels, 32), pool()
        self.conv2, self.pool2 = GCNConv(32, 32), pool()
        self.lin = torch.nn.Linear(32, 2)

    def forward(self, data):
        x, edge_index, batch = data.x, data.edge_index, data.batch
        x = self.conv1(x, edge_index).relu()
        x, edge_index, _, batch, _, _ = self.pool1(x, edge_index, None, batch)
        first = global_mean_pool(x, batch, data.num_graphs)
        x = self.conv2(x, edge_index).relu()
        x, edge_index, _, batch, _, _ = self.pool2(x, edge_index, None, batch)
        return self.lin(first + global_mean_pool(x, batch, data.num_graphs))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "pool", [lambda: TopKPooling(32, ratio=0.8), lambda: ParsePooling(32)], ids=["TopK", "Parse"]
)
def test_a_pyg_model_trains_with_only_its_pooling_line_changed(device, tmp_path, pool):
    torch.manual_seed(0)
    data = data_set(tmp_path)
    everything = Batch.from_data_list(data).to(device)
    model = Net(data[0].num_features, pool).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    share = everything.y.bincount() / len(data)
    for _ in range(30):
        for batch in DataLoader(data, batch_size=64, shuffle=True):
            batch = batch.to(device)
            optimizer.zero_grad()
            functional.cross_entropy(model(batch), batch.y).backward()
            assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
            optimizer.step()
    # Better than knowing no more than how frequent the classes are.
    out = model(everything)
    assert functional.cross_entropy(out, everything.y) < 0.9 * -(share * share.log()).sum()
    assert (out.argmax(dim=1) == everything.y).float().mean() > share.max() + 0.03
