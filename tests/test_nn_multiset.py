"""DeepSets (equation 3) in tiles, and the plain reductions."""

import copy

import pytest
import torch

import gpn_ops

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import naive
import submodules

from gpn_ops import reference
from gpn_ops.nn import DeepSets, Reduce
from gpn_ops.ops import residual_sum, tiles


@pytest.fixture(params=["small tiles", "tiles"])
def tile_size(request, monkeypatch):
    if request.param == "small tiles":
        monkeypatch.setattr(tiles, "TILE_BYTES", 1)  # 16 rows a tile
        monkeypatch.setattr(tiles, "DEVICE_TILE_BYTES", 1)


def example(device, num_nodes=50, num_clusters=20, channels=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_nodes, channels, generator=generator, dtype=dtype)
    cluster = torch.randint(num_clusters, (num_nodes,), generator=generator)
    cluster[:num_clusters] = torch.arange(num_clusters)
    return x.to(device).requires_grad_(), cluster.to(device), num_clusters


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_deepsets_equals_the_formula_and_its_gradient(device, num_layers):
    torch.manual_seed(0)
    x, cluster, num_clusters = example(device)
    module = DeepSets(6, num_layers).double().to(device)
    out = module(x, cluster, num_clusters)
    expected = naive.deepsets(module, x, reference.gen(cluster).double())
    torch.testing.assert_close(out, expected)

    weight = torch.randn_like(out)
    inputs = [x, *module.parameters()]
    for actual, wanted in zip(
        torch.autograd.grad(out, inputs, weight), torch.autograd.grad(expected, inputs, weight), strict=True
    ):
        assert bool(wanted.abs().max() > 0)
        torch.testing.assert_close(actual, wanted)


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_kept_for_backward_or_computed_anew(device, num_layers):
    torch.manual_seed(0)
    x, cluster, num_clusters = example(device)
    anew = DeepSets(6, num_layers, recompute=True).double().to(device)
    kept = DeepSets(6, num_layers, recompute=False).double().to(device)
    kept.load_state_dict(anew.state_dict())
    out, expected = kept(x, cluster, num_clusters), anew(x, cluster, num_clusters)
    torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
    weight = torch.randn_like(out)
    for actual, wanted in zip(
        torch.autograd.grad(out, [x, *kept.parameters()], weight),
        torch.autograd.grad(expected, [x, *anew.parameters()], weight),
        strict=True,
    ):
        torch.testing.assert_close(actual, wanted, atol=1e-12, rtol=0)
    with torch.no_grad():  # There is nothing to keep it for.
        assert torch.equal(kept(x, cluster, num_clusters), anew(x, cluster, num_clusters))


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_gradcheck_with_the_dropout_of_a_seed(device, dropout):
    torch.manual_seed(0)
    x, cluster, num_clusters = example(device, num_nodes=20, num_clusters=4, channels=3)
    module = DeepSets(3, 2).double().to(device)
    modules = (*module.lins1, module.norm1)
    parameters = [p.detach().requires_grad_() for m in modules for p in (m.weight, m.bias)]
    seed = torch.tensor(3, device=device)

    def function(x, *parameters):
        return residual_sum(x, cluster, num_clusters, list(parameters), torch.float64, dropout, seed)

    assert torch.autograd.gradcheck(function, (x, *parameters))


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("recompute", [True, False])
def test_dropout_in_training_only(device, recompute):
    x, cluster, num_clusters = example(device)
    module = DeepSets(6, 2, dropout=0.5, recompute=recompute).double().to(device)
    torch.manual_seed(1)
    first = module(x, cluster, num_clusters)
    assert not torch.equal(first, module(x, cluster, num_clusters))
    torch.manual_seed(1)
    assert torch.equal(first, module(x, cluster, num_clusters))
    module.eval()
    expected = naive.deepsets(module, x, reference.gen(cluster).double())
    torch.testing.assert_close(module(x, cluster, num_clusters), expected)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_reduce_is_the_operator(device, reduce):
    x, cluster, num_clusters = example(device)
    expected = gpn_ops.reference.reduce(x, cluster, num_clusters, reduce)
    torch.testing.assert_close(Reduce(reduce)(x, cluster, num_clusters), expected)


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(device, dtype, recompute):
    x, cluster, num_clusters = example(device, dtype=torch.float32)
    module = DeepSets(6, 2, recompute=recompute).to(device)
    half = copy.deepcopy(module).to(dtype)
    out = half(x.to(dtype), cluster, num_clusters)
    assert out.dtype == dtype
    tolerance = 16 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.float(), module(x, cluster, num_clusters), atol=tolerance, rtol=tolerance)
    out.sum().backward()
    assert {p.grad.dtype for p in half.parameters()} == {dtype}


@pytest.mark.parametrize("tile_bytes", [1, 2**40], ids=["tiles", "one tile"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rows_in_half_precision_are_rounded_after_the_sum(device, dtype, tile_bytes, monkeypatch):
    """Rows that cancel but for a bias far below their last bit: it is the sum."""
    monkeypatch.setattr(tiles, "TILE_BYTES", tile_bytes)
    monkeypatch.setattr(tiles, "DEVICE_TILE_BYTES", tile_bytes)
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(2048, 6, generator=generator)
    x = torch.stack([half, -half], dim=1).view(-1, 6).to(device, dtype)
    bias = torch.full((6,), torch.finfo(dtype).eps / 8)
    parameters = [torch.zeros(6, 6), torch.zeros(6), torch.ones(6), bias]
    parameters = [parameter.to(device, dtype) for parameter in parameters]
    cluster = torch.zeros(4096, dtype=torch.int64, device=device)
    sums = torch.ops.gpn.residual_sum(x, cluster, 1, parameters, dtype, 0.0, None)
    expected = torch.full((1, 6), 4096 * float(bias[0]), device=device)
    torch.testing.assert_close(sums.float(), expected, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("recompute", [True, False])
def test_autocast(device, recompute):
    x, cluster, num_clusters = example(device, dtype=torch.float32)
    module = DeepSets(6, recompute=recompute).to(device)
    exact = module(x, cluster, num_clusters)
    with torch.autocast(device.type, torch.bfloat16):
        out = module(x, cluster, num_clusters)
    assert out.dtype == torch.float32
    assert not torch.equal(out, exact)
    torch.testing.assert_close(out, exact, atol=0.1, rtol=0)


# ------------------------------------------------------------------------------------------------------------
# A module of modules
# ------------------------------------------------------------------------------------------------------------


@submodules.GRADIENTS
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_hooks_of_children_fire(device, num_layers, recompute, gradients):
    x, cluster, num_clusters = example(device)
    module = DeepSets(6, num_layers, recompute=recompute).double().to(device)
    submodules.check_hooks(module, lambda module: module(x, cluster, num_clusters), gradients)


@submodules.GRADIENTS
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_children_of_a_users_own_take_effect(device, num_layers, recompute, gradients):
    x, cluster, num_clusters = example(device)
    plain = DeepSets(6, num_layers, recompute=recompute).double().to(device)
    expected = plain(x, cluster, num_clusters)
    for module in submodules.tripled_linears(plain):
        with torch.set_grad_enabled(gradients):
            out = module(x, cluster, num_clusters)
        assert not torch.allclose(out, expected)
        torch.testing.assert_close(out, naive.deepsets(module, x, reference.gen(cluster).double()))


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_flops_are_those_of_the_matrix_products(device, num_layers, recompute):
    x, cluster, num_clusters = example(device)
    module = DeepSets(6, num_layers, recompute=recompute).double().to(device)
    once = 2 * (x.size(0) + num_clusters) * 6 * 6 * num_layers
    expected = once, (3 if recompute else 2) * once
    assert submodules.flops(lambda: module(x, cluster, num_clusters)) == expected


@pytest.mark.parametrize("num_layers", [1, 2])
def test_second_derivatives(device, num_layers):
    x, cluster, num_clusters = example(device, num_nodes=5, num_clusters=2, channels=3)
    module = DeepSets(3, num_layers, recompute=False).double().to(device)
    assert torch.autograd.gradgradcheck(
        lambda x, *_: module(x, cluster, num_clusters), (x, *module.parameters())
    )


def test_derivatives_that_are_not_implemented_raise(device):
    x, cluster, num_clusters = example(device)
    module = DeepSets(6).double().to(device)
    (grad,) = torch.autograd.grad(module(x, cluster, num_clusters).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"second derivatives .* DeepSets\(recompute=False\) has them"):
        grad.sum().backward()
    for recompute in (True, False):
        module = DeepSets(6, recompute=recompute).double().to(device)
        with pytest.raises(RuntimeError, match="forward-mode derivatives"):
            torch.func.jvp(lambda x, module=module: module(x, cluster, num_clusters), (x,), (x,))


# ------------------------------------------------------------------------------------------------------------
# Clusters of any kind
# ------------------------------------------------------------------------------------------------------------


def hooked(module):
    module.norm1.register_forward_hook(lambda *_: None)
    return module


EVERY_WAY = pytest.mark.parametrize(
    "make",
    [
        DeepSets,
        lambda d: DeepSets(d, recompute=False),
        lambda d: hooked(DeepSets(d)),
        lambda d: Reduce("max"),
    ],
    ids=["recompute", "keep", "hooked", "max"],
)


@EVERY_WAY
@submodules.GRADIENTS
def test_clusters_of_other_nodes_are_refused(device, make, gradients):
    x, cluster, num_clusters = example(device)
    module = make(6).double().to(device)
    for wrong in (cluster[:-1], torch.cat([cluster, cluster[:1]])):
        message = rf"x: expected shape \[num_nodes, ...\] = \[{wrong.numel()}, ...\], got \[50, 6\]"
        with torch.set_grad_enabled(gradients), pytest.raises(RuntimeError, match=message):
            module(x, wrong, num_clusters)


@EVERY_WAY
def test_nodes_in_no_cluster(device, make):
    x, cluster, num_clusters = example(device)
    module = make(6).double().to(device)
    cluster[-7:] = -1
    out = module(x, cluster, num_clusters)
    expected = module(x[:-7], cluster[:-7], num_clusters)
    torch.testing.assert_close(out, expected)
    weight = torch.randn_like(out)
    actual, wanted = (torch.autograd.grad(of, x, weight)[0] for of in (out, expected))
    torch.testing.assert_close(actual, wanted)
    assert not bool(actual[-7:].any())


@EVERY_WAY
@pytest.mark.parametrize("bad", [-2, 20])
def test_clusters_out_of_range_are_named(make, bad):
    x, cluster, num_clusters = example("cpu")
    cluster[47] = bad
    message = rf"cluster: expected ids from -1 to num_clusters - 1 = 19, got {bad} at cluster\[47\]"
    with pytest.raises(RuntimeError, match=message):
        make(6).double()(x, cluster, num_clusters)


def test_no_nodes(device):
    module = DeepSets(4).to(device)
    out = module(torch.empty(0, 4, device=device), torch.empty(0, dtype=torch.int64, device=device), 0)
    assert out.shape == (0, 4)


@pytest.mark.parametrize("kwargs", [{"num_layers": 0}, {"dropout": 1.5}], ids=str)
def test_bad_settings(kwargs):
    with pytest.raises(ValueError, match=f"{next(iter(kwargs))}: expected"):
        DeepSets(4, **kwargs)


def test_unknown_reduction():
    with pytest.raises(RuntimeError, match=r"^reduce: expected 'sum', 'mean' or 'max', got 'median'"):
        Reduce("median")
