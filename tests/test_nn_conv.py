"""Adjacency and UndirectedGCNConv, against PyG's GCNConv; and that no row of features per edge exists."""

import pytest
import torch

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import graphs
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric import EdgeIndex
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv
from torch_geometric.utils import to_torch_csr_tensor

import gpn_ops
from gpn_ops.nn import Adjacency, UndirectedGCNConv, conv

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


def shuffled(edge_index):
    return edge_index[:, torch.randperm(edge_index.size(1), generator=torch.Generator().manual_seed(0))]


N = 14
RANDOM = graphs.erdos_renyi(12, 20, torch.Generator().manual_seed(0))
SORTED = RANDOM.unique(dim=1)
LOOPS = torch.cat([SORTED, torch.tensor([[0, 3, 13], [0, 3, 13]])], dim=1)
# The last two nodes of all are isolated, or have no more than a self-loop.
GRAPHS = {
    "sorted": SORTED,
    "unsorted": shuffled(SORTED),
    "duplicates": shuffled(torch.cat([RANDOM, RANDOM[:, :5], RANDOM.flip(0)[:, :5]], dim=1)),
    "self-loops": shuffled(LOOPS),
    "only self-loops": torch.tensor([[2, 5], [2, 5]]),
    "no edges": torch.empty(2, 0, dtype=torch.int64),
}
OPTIONS = ({}, {"normalize": False}, {"add_self_loops": False}, {"bias": False})
SHAPES = {"square": (5, 5), "wider": (3, 5), "narrower": (5, 3)}


def pair_weights(edge_index):
    torch.manual_seed(1)
    pairs, slot = gpn_ops.undirected(edge_index, N)
    return torch.rand(pairs.size(1), dtype=torch.float64).add_(0.1)[slot]


def dense(edge_index, values):
    matrix = torch.zeros(N, N, dtype=torch.float64)
    return matrix.index_put_(tuple(edge_index), values, accumulate=True)


@pytest.fixture(params=[2**24, 0], ids=["one product", "in place"])
def in_place_bytes(request, monkeypatch):
    monkeypatch.setattr(conv, "IN_PLACE_BYTES", request.param)
    monkeypatch.setattr("gpn_ops.ops.tiles.TILE_BYTES", 64)


@pytest.mark.usefixtures("in_place_bytes")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("weights", ["none", "fixed", "learned"])
@pytest.mark.parametrize("name", GRAPHS)
def test_is_pygs_gcn_values_and_gradients(name, weights, options, shape):
    edge_index = GRAPHS[name]
    if weights != "none" and name == "duplicates":
        edge_index = edge_index.unique(dim=1)
    expected = GCNConv(*shape, **options).double()
    layer = UndirectedGCNConv(*shape, **options).double()
    layer.load_state_dict(expected.state_dict())
    torch.manual_seed(0)
    x, back = (torch.randn(N, d, dtype=torch.float64) for d in shape)
    found = []
    for module in (layer, expected):
        leaf = x.clone().requires_grad_()
        weight = None if weights == "none" else pair_weights(edge_index)
        if weights == "learned":
            weight.requires_grad_()
        out = module(leaf, edge_index, weight)
        (out * back).sum().backward()
        found.append([out, leaf.grad, *(parameter.grad for parameter in module.parameters())])
        if weights == "learned":  # The two directions of an edge are one weight.
            grad = dense(edge_index, weight.grad)
            found[-1].append(grad + grad.t())
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)


def test_an_adjacency_is_made_once_for_several_convolutions():
    x = torch.randn(N, 5)
    layer = UndirectedGCNConv(5, 5)
    adjacency = Adjacency(SORTED, N)
    assert torch.equal(layer(x, adjacency), layer(x, SORTED))
    assert torch.equal(layer(x, EdgeIndex(SORTED.contiguous(), sparse_size=(N, N))), layer(x, SORTED))
    assert torch.equal(layer(x, SORTED.int()), layer(x, SORTED))
    with pytest.raises(ValueError, match="edge_weight: expected None beside an Adjacency"):
        layer(x, adjacency, torch.ones(SORTED.size(1)))


@pytest.mark.parametrize("name", GRAPHS)
def test_adjacency_as_a_dense_matrix(name):
    A = dense(GRAPHS[name], torch.ones(GRAPHS[name].size(1), dtype=torch.float64))
    A.fill_diagonal_(1)
    scale = A.sum(dim=1).rsqrt()
    product = Adjacency(GRAPHS[name], N, dtype=torch.float64) @ torch.eye(N, dtype=torch.float64)
    torch.testing.assert_close(product, scale[:, None] * A * scale)


@pytest.mark.parametrize("edges", ["fused", "hooked"])
def test_derivatives_of_both_orders(edges):
    """The second order as well of the parameters, which a gradient penalty trains."""
    layer = UndirectedGCNConv(3, 2).double()
    if edges == "hooked":
        layer.lin.register_forward_hook(lambda *_: None)

    def convolved(x, weight, bias):
        return torch.func.functional_call(layer, {"lin.weight": weight, "bias": bias}, (x, SORTED))

    x = torch.randn(N, 3, dtype=torch.float64, requires_grad=True)
    arguments = (x, *(parameter.detach().requires_grad_() for parameter in (layer.lin.weight, layer.bias)))
    assert torch.autograd.gradcheck(convolved, arguments)
    assert torch.autograd.gradgradcheck(convolved, arguments)


def test_derivatives_of_weights_of_edges():
    pairs, slot = gpn_ops.undirected(SORTED, N)

    def product(x, weight):
        return Adjacency(SORTED, N, weight[slot], dtype=torch.float64) @ x

    weight = 0.5 + torch.rand(pairs.size(1), dtype=torch.float64)
    arguments = (torch.randn(N, 2, dtype=torch.float64, requires_grad=True), weight.requires_grad_())
    assert torch.autograd.gradcheck(product, arguments)
    assert torch.autograd.gradgradcheck(product, arguments)


def test_forward_mode_is_refused():
    layer = UndirectedGCNConv(3, 3)
    with pytest.raises(RuntimeError):
        torch.func.jvp(lambda x: layer(x, SORTED), (torch.randn(N, 3),), (torch.randn(N, 3),))


def test_children_are_modules():
    called = []
    layer = UndirectedGCNConv(5, 5)
    x = torch.randn(N, 5)
    plain = layer(x, SORTED)
    layer.lin.register_forward_hook(lambda *_: called.append(True))
    torch.testing.assert_close(layer(x, SORTED), plain)
    assert called


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_and_autocast(dtype):
    torch.manual_seed(0)
    layer, x = UndirectedGCNConv(5, 5), torch.randn(N, 5, requires_grad=True)
    expected = layer(x, SORTED)
    with torch.autocast("cpu", dtype):
        out = layer(x, SORTED)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0.05)
    out.float().sum().backward()
    assert x.grad.dtype == torch.float32
    half = layer.to(dtype)(x.detach().to(dtype), SORTED)
    assert half.dtype == dtype
    torch.testing.assert_close(half.float(), expected, atol=0.05, rtol=0.05)


def test_bad_input():
    for message, arguments in {
        r"edge_index: expected an undirected graph": (torch.tensor([[0, 1], [1, 2]]), N),
        r"edge_weight: expected the same weight in both": (SORTED[:, :0], N),
        r"edge_index: expected node ids from 0 to num_nodes - 1 = 3, got": (SORTED, 4),
        r"edge_weight: expected shape \[num_edges\]": (SORTED, N, torch.ones(3)),
        r"num_nodes: expected a non-negative integer, got -1": (SORTED, -1),
    }.items():
        if "same weight" in message:
            weight = torch.ones(SORTED.size(1))
            weight[0] = 2
            arguments = (SORTED, N, weight)
        with pytest.raises(RuntimeError, match=message):
            Adjacency(*arguments)
    with pytest.raises(RuntimeError, match=r"x: expected shape \[num_nodes, channels\] = \[14, channels\]"):
        UndirectedGCNConv(5, 5)(torch.randn(N + 1, 5), Adjacency(SORTED, N))


def test_weights_that_differ_by_rounding_are_the_same():
    """As those of a coarse graph, whose sums are taken in another order in each direction."""
    weight = 100 * pair_weights(SORTED).float()
    upper = SORTED[0] < SORTED[1]
    weight[upper] = weight[upper].nextafter(torch.tensor(torch.inf))
    Adjacency(SORTED, N, weight)


# ------------------------------------------------------------------------------------------------------------
# No row of features per edge
# ------------------------------------------------------------------------------------------------------------

NODES, CHANNELS = 200, 16
LARGE = graphs.erdos_renyi(NODES, 1500, torch.Generator().manual_seed(0)).unique(dim=1)
MANY = LARGE.size(1) * CHANNELS  # values: seven times those of all nodes


class Largest(TorchDispatchMode):
    """The most values of a tensor that an operator gives, forward or backward."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        out = function(*arguments, **(keywords or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                # What storage there is, not what a view shows of it.
                self.numel = max(self.numel, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


def largest(module, graph):
    x = torch.randn(NODES, CHANNELS, requires_grad=True)
    with Largest() as seen:
        module(x, graph).sin().sum().backward()
    assert x.grad is not None
    return seen.numel


def csr():
    return to_torch_csr_tensor(LARGE, size=(NODES, NODES))


def edge_index_by_column():
    edges = LARGE.flip(0).contiguous()
    return EdgeIndex(edges, sparse_size=(NODES, NODES), sort_order="col", is_undirected=True)


LEAN = {
    "UndirectedGCNConv": (lambda: UndirectedGCNConv(CHANNELS, CHANNELS), lambda: LARGE),
    "UndirectedGCNConv, Adjacency": (
        lambda: UndirectedGCNConv(CHANNELS, CHANNELS),
        lambda: Adjacency(LARGE, NODES, torch.ones(LARGE.size(1), requires_grad=True)),
    ),
    "UndirectedGCNConv, EdgeIndex": (lambda: UndirectedGCNConv(CHANNELS, CHANNELS), edge_index_by_column),
    "GCNConv, CSR": (lambda: GCNConv(CHANNELS, CHANNELS), csr),
    "GINConv, CSR": (lambda: GINConv(torch.nn.Linear(CHANNELS, CHANNELS)), csr),
    "SAGEConv, CSR": (lambda: SAGEConv(CHANNELS, CHANNELS), csr),
    "GraphConv, CSR": (lambda: GraphConv(CHANNELS, CHANNELS), csr),
    "GraphConv, EdgeIndex": (lambda: GraphConv(CHANNELS, CHANNELS), edge_index_by_column),
}
HEAVY = {
    "GCNConv": (lambda: GCNConv(CHANNELS, CHANNELS), lambda: LARGE),
    "GCNConv, EdgeIndex": (lambda: GCNConv(CHANNELS, CHANNELS), edge_index_by_column),
    "GINConv": (lambda: GINConv(torch.nn.Linear(CHANNELS, CHANNELS)), lambda: LARGE),
    "GINConv, EdgeIndex": (lambda: GINConv(torch.nn.Linear(CHANNELS, CHANNELS)), edge_index_by_column),
    "SAGEConv": (lambda: SAGEConv(CHANNELS, CHANNELS), lambda: LARGE),
    "SAGEConv, EdgeIndex": (lambda: SAGEConv(CHANNELS, CHANNELS), edge_index_by_column),
    "GraphConv": (lambda: GraphConv(CHANNELS, CHANNELS), lambda: LARGE),
    "GATConv": (lambda: GATConv(CHANNELS, CHANNELS), lambda: LARGE),
    "GATConv, CSR": (lambda: GATConv(CHANNELS, CHANNELS), csr),
    "GATConv, EdgeIndex": (lambda: GATConv(CHANNELS, CHANNELS), edge_index_by_column),
}


@pytest.mark.parametrize("name", LEAN)
def test_no_row_per_edge(name, monkeypatch):
    monkeypatch.setattr("gpn_ops.ops.tiles.TILE_BYTES", 2**12)
    module, graph = (make() for make in LEAN[name])
    assert largest(module, graph) < MANY / 4


@pytest.mark.parametrize("name", HEAVY)
def test_the_probe_sees_a_row_per_edge(name):
    """What the table of the guide calls heavy; and the proof that the probe is not blind."""
    module, graph = (make() for make in HEAVY[name])
    assert largest(module, graph) >= MANY


@pytest.mark.parametrize("make", [lambda: GCNConv(8, 8), lambda: SAGEConv(8, 8), lambda: GraphConv(8, 8)])
def test_pygs_convolutions_give_the_same_on_csr(make):
    layer, x = make(), torch.randn(NODES, 8)
    torch.testing.assert_close(layer(x, csr()), layer(x, LARGE))


@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
@pytest.mark.parametrize("weights", ["none", "fixed", "learned"])
@pytest.mark.parametrize("name", ["unsorted", "self-loops", "no edges"])
def test_compiled(name, weights, options):
    """In one graph, though compilers know no sparse tensors: values and gradients."""
    edge_index = GRAPHS[name].unique(dim=1)
    layer = UndirectedGCNConv(5, 3, **options).double()
    x = torch.randn(N, 5, dtype=torch.float64, requires_grad=True)
    weight = None if weights == "none" else pair_weights(edge_index).requires_grad_(weights == "learned")
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = []
    for function in (compiled, layer):
        out = function(x, edge_index, weight)
        inputs = [x, *layer.parameters(), *([weight] if weights == "learned" else [])]
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    torch.testing.assert_close(*results, atol=1e-12, rtol=1e-12)


def test_transforms_of_torch_func_are_refused():
    layer = UndirectedGCNConv(3, 3)
    x = torch.randn(2, N, 3)
    with pytest.raises(RuntimeError, match=r"transforms of torch\.func are not implemented; use GCNConv"):
        torch.func.vmap(lambda x: layer(x, SORTED))(x)
