"""MLPs and residual GNN blocks, against PyG's own layers; and the dropout that they use."""

import copy
import functools
import itertools

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")

import graphs
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import GATConv, GCNConv, GINConv

import gpn_ops
from gpn_ops.nn import Dropout
from models.blocks import CONVOLUTIONS, GNN, MLP

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

CHANNELS = 5


def kinds(module):
    return [type(layer).__name__ for layer in module]


# ------------------------------------------------------------------------------------------------------------
# MLP
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act_last", [False, True])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_mlp_layers(num_layers, act_last):
    mlp = MLP(3, 7, 2, num_layers, dropout=0.3, act_last=act_last)
    activation = ["LayerNorm", "Identity", "Dropout"]  # Dropout has the ReLU in it.
    expected = ["Linear"] + [*activation, "Linear"] * (num_layers - 1)
    if act_last and num_layers > 1:
        expected += activation
    assert kinds(mlp) == expected
    linear = [layer for layer in mlp if isinstance(layer, nn.Linear)]
    widths = [3] + [7] * (num_layers - 1) + [2]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [*itertools.pairwise(widths)]
    assert {(layer.p, layer.relu) for layer in mlp if isinstance(layer, Dropout)} <= {(0.3, True)}
    assert mlp(torch.randn(4, 3)).shape == (4, 2)


def test_mlp_refuses_no_layers():
    with pytest.raises(ValueError, match="num_layers: expected at least 1, got 0"):
        MLP(3, 3, 3, 0)


@pytest.mark.parametrize("module", [MLP(3, 3, 3, 3), *(GNN(3, 2, conv=conv) for conv in CONVOLUTIONS)])
def test_reset_parameters_reaches_every_parameter(module):
    module = copy.deepcopy(module)
    for parameter in module.parameters():
        nn.init.constant_(parameter, 7.0)
    module.reset_parameters()
    assert not any(bool((parameter == 7.0).any()) for parameter in module.parameters())


# ------------------------------------------------------------------------------------------------------------
# GNN
# ------------------------------------------------------------------------------------------------------------


def with_loops(edge_index, *nodes):
    return torch.cat([edge_index, torch.tensor([nodes, nodes])], dim=1)


def without_loops(edge_index):
    return edge_index[:, edge_index[0] != edge_index[1]]


def shuffled(edge_index, seed=0):
    return edge_index[:, torch.randperm(edge_index.size(1), generator=torch.Generator().manual_seed(seed))]


RANDOM = graphs.erdos_renyi(12, 20, torch.Generator().manual_seed(0))
SORTED = RANDOM.unique(dim=1)
# Each with 14 nodes: the last two are isolated, or more.
GRAPHS = {
    "sorted": SORTED,
    "unsorted": shuffled(SORTED),
    "duplicates": shuffled(torch.cat([RANDOM, RANDOM[:, :5], RANDOM.flip(0)[:, :5]], dim=1)),
    "self-loops": with_loops(SORTED, 0, 3, 13),
    "self-loops in between": shuffled(with_loops(SORTED, 0, 3, 13)),
    "only self-loops": torch.tensor([[2, 5], [2, 5]]),
    "one edge": torch.tensor([[1, 0], [0, 1]]),
    "no edges": torch.empty(2, 0, dtype=torch.int64),
}


def plain(block, x, edge_index, weight=None):
    """The block as the paper writes it, with PyG's convolutions."""
    out = x
    for k, layer in enumerate(block.convs):
        conv = GCNConv(CHANNELS, CHANNELS).double()
        conv.load_state_dict(layer.state_dict())
        conv.lin.weight, conv.bias = layer.lin.weight, layer.bias
        out = conv(out, edge_index, weight)
        if k < len(block.convs) - 1 or block.act_last:
            out = out.relu()
    return block.norm(x + out)


@pytest.mark.parametrize("act_last", [False, True])
@pytest.mark.parametrize("edge_index", GRAPHS.values(), ids=GRAPHS)
def test_gnn_is_pygs_gcn_values_and_gradients(edge_index, act_last):
    torch.manual_seed(0)
    block = GNN(CHANNELS, 3, act_last=act_last).double()
    for layer in block.convs:
        nn.init.normal_(layer.bias)  # It starts from zero.
    x = torch.randn(14, CHANNELS, dtype=torch.float64, requires_grad=True)
    out, expected = block(x, edge_index), plain(block, x, edge_index)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    inputs, weight = [x, *block.parameters()], torch.randn_like(out)
    for actual, wanted in zip(
        torch.autograd.grad(out, inputs, weight), torch.autograd.grad(expected, inputs, weight), strict=True
    ):
        torch.testing.assert_close(actual, wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["sorted", "unsorted", "no edges"])
def test_weighted_gnn_is_pygs_gcn(name):
    torch.manual_seed(0)
    edge_index = without_loops(GRAPHS[name])
    pairs, slot = gpn_ops.undirected(edge_index, 14)
    weight = torch.randint(1, 5, (pairs.size(1),))[slot].float()  # as coarse graphs have, whatever x is
    block = GNN(CHANNELS, 2).double()
    x = torch.randn(14, CHANNELS, dtype=torch.float64, requires_grad=True)
    out, expected = block(x, edge_index, weight), plain(block, x, edge_index, weight.double())
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    wanted = torch.autograd.grad(expected.sin().sum(), x)
    torch.testing.assert_close(torch.autograd.grad(out.sin().sum(), x), wanted, atol=1e-12, rtol=0)
    assert edge_index.numel() == 0 or not torch.allclose(out, block(x, edge_index))


@pytest.mark.parametrize("conv", ["gat", "gin"])
def test_weights_are_not_ignored(conv):
    with pytest.raises(ValueError, match=f"edge_weight: expected none with conv '{conv}'"):
        GNN(CHANNELS, 1, conv=conv)(torch.randn(14, CHANNELS), SORTED, torch.ones(SORTED.size(1)))


def test_no_nodes():
    out = GNN(CHANNELS, 2)(torch.empty(0, CHANNELS), torch.empty(2, 0, dtype=torch.int64))
    assert out.shape == (0, CHANNELS)


def test_gnn_gradcheck():
    torch.manual_seed(0)
    block = GNN(3, 2).double()
    x = torch.randn(14, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: block(x, GRAPHS["unsorted"]), (x,))


def test_zero_layers_are_the_identity():
    block = GNN(CHANNELS, 0)
    x = torch.randn(14, CHANNELS)
    assert block(x, SORTED) is x
    assert not list(block.parameters())


@pytest.mark.parametrize(("conv", "kind"), [("gat", GATConv), ("gin", GINConv)])
@pytest.mark.parametrize("edge_index", GRAPHS.values(), ids=GRAPHS)
def test_other_convolutions_are_pygs(conv, kind, edge_index):
    torch.manual_seed(0)
    block = GNN(CHANNELS, 2, conv=conv).double()
    assert all(isinstance(layer, kind) for layer in block.convs)
    x = torch.randn(14, CHANNELS, dtype=torch.float64)
    first, second = (functools.partial(kind.forward, layer) for layer in block.convs)
    expected = block.norm(x + second(first(x, edge_index).relu(), edge_index))
    out = block(x, edge_index)
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in block.parameters())


@pytest.mark.parametrize("conv", CONVOLUTIONS)
def test_a_block_or_mlp_that_recomputes_is_the_same_and_keeps_its_input_only(conv):
    torch.manual_seed(0)
    x = torch.randn(14, CHANNELS, requires_grad=True)
    for kept, anew, arguments in (
        (GNN(CHANNELS, 3, 0.3, True, conv), GNN(CHANNELS, 3, 0.3, True, conv, recompute=True), (x, SORTED)),
        (MLP(CHANNELS, 7, 4, 3, 0.3, True), MLP(CHANNELS, 7, 4, 3, 0.3, True, recompute=True), (x,)),
    ):
        anew.load_state_dict(kept.state_dict())
        found = []
        for block in (kept, anew):
            torch.manual_seed(1)
            saved = []

            def pack(tensor, saved=saved):
                saved.append(tensor)
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                out = block(*arguments)
            grads = torch.autograd.grad(out.sin().sum(), [x, *block.parameters()])
            found.append([out, *grads])
            # Only what autograd itself is told of: a checkpoint keeps its input, nothing else.
            rows = {t.data_ptr() for t in saved if t.dim() == 2 and t.size(0) == 14} - {x.data_ptr()}
            assert bool(rows) is (block is kept)
        assert all(map(torch.equal, *found))


def test_of_a_large_mlp_the_last_product_is_kept(monkeypatch):
    monkeypatch.setattr("gpn_ops.nn.children.KEPT_BYTES", 0)
    torch.manual_seed(0)
    x = torch.randn(14, CHANNELS, requires_grad=True)
    found, products = [], []
    for recompute in (False, True, "auto"):
        torch.manual_seed(1)
        mlp = MLP(CHANNELS, 7, 4, 3, 0.3, True, recompute)
        with Products() as seen:
            out = mlp(x)
            found.append([out, *torch.autograd.grad(out.sin().sum(), [x, *mlp.parameters()])])
        products.append(seen.count)
    assert all(all(map(torch.equal, found[0], each)) for each in found[1:])
    assert products == [3, 6, 5]


class Products(TorchDispatchMode):
    """Counts the products of Linear layers, forward."""

    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.count += function is torch.ops.aten.addmm.default
        return function(*arguments, **(keywords or {}))


def test_unknown_convolution():
    with pytest.raises(ValueError, match="conv: expected one of gcn, gat, gin, got 'sage'"):
        GNN(CHANNELS, 1, conv="sage")


@pytest.mark.parametrize("conv", CONVOLUTIONS)
def test_dropout_of_a_block_acts_in_training_only(conv):
    torch.manual_seed(0)
    block, x = GNN(CHANNELS, 2, dropout=0.5, conv=conv), torch.randn(14, CHANNELS)
    assert not torch.equal(block(x, SORTED), block(x, SORTED))
    block.eval()
    assert torch.equal(block(x, SORTED), block(x, SORTED))


def test_dropout_follows_the_last_layer_with_act_last_only():
    """With one layer there is no other place for it."""
    x = torch.randn(14, CHANNELS)
    for act_last in (False, True):
        block = GNN(CHANNELS, 1, dropout=0.5, act_last=act_last)
        assert torch.equal(block(x, SORTED), block(x, SORTED)) is not act_last


# ------------------------------------------------------------------------------------------------------------
# Dropout
# ------------------------------------------------------------------------------------------------------------

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def dropped(p, numel=400_000, dtype=torch.float32, seed=0, device="cpu"):
    torch.manual_seed(seed)
    return Dropout(p)(torch.ones(numel, dtype=dtype, device=device))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.7, 1e-3])
def test_dropout_probability_and_scale(device, p, dtype):
    out = dropped(p, dtype=dtype, device=device)
    assert out.dtype == dtype
    values, scale = out.unique().tolist(), torch.tensor(1 / (1 - p), dtype=dtype).item()
    assert values == pytest.approx([0, scale], rel=max(2**-15, torch.finfo(dtype).eps))
    share, deviation = float((out == 0).double().mean()), (p * (1 - p) / out.numel()) ** 0.5
    assert abs(share - p) < 5 * deviation + 2**-17
    assert float(out.double().mean()) == pytest.approx(1, abs=5 * deviation / (1 - p) + 2e-3)


def test_dropout_in_every_lane_of_a_word_and_between_lanes():
    """Four elements share 64 random bits: each is dropped as often, and independently of the other three."""
    for p in (0.1, 0.5, 0.7):
        zero = (dropped(p).view(-1, 4) == 0).double()
        deviation = (p * (1 - p) / len(zero)) ** 0.5
        assert (zero.mean(dim=0) - p).abs().max() < 5 * deviation
        covariance = (zero - p).t() @ (zero - p) / len(zero)
        assert (covariance - covariance.diagonal().diag()).abs().max() < 5 * p * (1 - p) / len(zero) ** 0.5
        # And of the word before.
        neighbours = ((zero[1:] - p) * (zero[:-1] - p)).mean(dim=0)
        assert neighbours.abs().max() < 5 * p * (1 - p) / len(zero) ** 0.5


@pytest.mark.parametrize("bit", [15, 14, 8, 0])
def test_every_bit_of_a_lane_counts(bit):
    """An element is dropped with probability 2^-k if k bits are all zero: a stuck bit would show."""
    p = 2.0 ** (bit - 16)
    numel = 2**22
    share = float((dropped(p, numel) == 0).double().mean())
    assert abs(share - p) < 5 * (p * (1 - p) / numel) ** 0.5


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (5, 1), (7, 3), (2, 3, 5), ()], ids=str)
def test_dropout_of_any_shape(device, shape):
    x = torch.ones(shape, device=device)
    out = Dropout(0.5)(x)
    assert out.shape == x.shape
    assert set(out.view(-1).tolist()) <= {0.0, 2.0}


def test_dropout_of_strided_input():
    x = torch.arange(1.0, 13).view(3, 4).t()
    out = Dropout(0.5)(x)
    assert bool(((out == 0) | (out == 2 * x)).all())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dropout_of_nothing_and_of_everything(device, dtype):
    x = torch.randn(100, device=device).to(dtype)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(1.0)(x), torch.zeros_like(x))
    assert torch.equal(Dropout(1 - 1e-9)(x), torch.zeros_like(x))
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(1.0).eval()(x), x)


def test_probabilities_next_to_none_and_all(device):
    for p in (2.0**-16, 1 - 2.0**-16):
        out = dropped(p, 2**20, device=device)
        assert bool(out.isfinite().all())
        assert abs(int((out == 0).sum()) - p * 2**20) < 5 * 4 + 1


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_the_gradient_is_masked_as_the_value_was(device, p):
    x = torch.rand(1000, dtype=torch.float64, device=device).add_(1).requires_grad_()
    out = Dropout(p)(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad * x, out)


def test_dropout_is_reproducible(device):
    assert torch.equal(dropped(0.5, device=device), dropped(0.5, device=device))
    assert not torch.equal(dropped(0.5, device=device), dropped(0.5, seed=1, device=device))
    torch.manual_seed(0)
    first, second = (Dropout(0.5)(torch.ones(1000, device=device)) for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_bad_probability(p):
    with pytest.raises(ValueError, match="p: expected a probability, got"):
        Dropout(p)
