"""DeepSets (equation 3) in tiles, and the plain reductions."""

import copy
import importlib

import pytest
import torch

import gpn_ops

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import naive
import submodules

from gpn_ops import reference
from gpn_ops.nn import DeepSets, Reduce, children
from gpn_ops.ops import residual_sum, tiles

residual_module = importlib.import_module("gpn_ops.ops.residual")


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


@pytest.mark.parametrize(
    ("dynamic", "most", "kept"), [(False, 2**26, True), (False, 1, False), (True, 2**26, False)]
)
def test_what_is_compiled_for_one_size_keeps_more(dynamic, most, kept, monkeypatch):
    """A layer that is compiled for all sizes would keep the rows of large graphs too."""
    monkeypatch.setattr(children, "KEPT_BYTES", 0)
    monkeypatch.setattr(children, "KEPT_BYTES_COMPILED", most)
    keeps = []

    def noted(module, _):
        keeps.extend(node.args[-1] for node in module.graph.nodes if "residual" in str(node.target))
        return module

    x, cluster, num_clusters = example("cpu")
    torch.compile(DeepSets(6).double(), fullgraph=True, dynamic=dynamic, backend=noted)(
        x, cluster, num_clusters
    )
    # torch 2.10 takes every compilation for an export, for which nothing is kept.
    exports = bool(
        torch.compile(lambda x: x + torch.compiler.is_exporting(), backend="eager")(torch.zeros(()))
    )
    assert keeps == 2 * [kept and not exports]


@pytest.mark.usefixtures("tile_size")
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_kept_for_backward_or_computed_anew(device, num_layers):
    torch.manual_seed(0)
    x, cluster, num_clusters = example(device)
    anew = DeepSets(6, num_layers, recompute=True).double().to(device)
    expected = anew(x, cluster, num_clusters)
    weight = torch.randn_like(expected)
    expected_grads = torch.autograd.grad(expected, [x, *anew.parameters()], weight)
    for recompute in (False, "auto"):
        kept = DeepSets(6, num_layers, recompute=recompute).double().to(device)
        kept.load_state_dict(anew.state_dict())
        out = kept(x, cluster, num_clusters)
        torch.testing.assert_close(out, expected, atol=1e-12, rtol=0)
        grads = torch.autograd.grad(out, [x, *kept.parameters()], weight)
        for actual, wanted in zip(grads, expected_grads, strict=True):
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


@pytest.mark.parametrize("tile_rows", [1000, 4096], ids=["tiles", "one tile"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rows_in_half_precision_are_rounded_after_the_sum(device, dtype, tile_rows):
    """Rows that cancel but for a bias far below their last bit: it is the sum."""
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(2048, 6, generator=generator)
    x = torch.stack([half, -half], dim=1).view(-1, 6).to(device, dtype)
    bias = torch.full((6,), torch.finfo(dtype).eps / 8)
    parameters = [torch.zeros(6, 6), torch.zeros(6), torch.ones(6), bias]
    parameters = [parameter.to(device, dtype) for parameter in parameters]
    cluster = torch.zeros(4096, dtype=torch.int64, device=device)
    expected = torch.full((1, 6), 4096 * float(bias[0]), device=device)
    for form in (torch.ops.gpn.residual, residual_module.plain_residual):
        sums, _ = form(x, cluster, 1, parameters, dtype, 0.0, None, tile_rows, False)
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
# The operator
# ------------------------------------------------------------------------------------------------------------


def operator_arguments(channels, layers, dtype, num_rows, clusters, dropout):
    generator = torch.Generator().manual_seed(0)

    def values(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    parameters = []
    for _ in range(layers):
        parameters += [values(channels, channels) / channels**0.5, values(channels)]
    parameters += [values(channels), values(channels)]
    cluster = torch.randint(-1, 7, (num_rows,), generator=generator) if clusters else None
    seed = torch.tensor(5) if dropout else None
    return values(num_rows, channels), cluster, parameters, dropout, seed


# A tile: less than a chunk of rows whose sums are taken together, several with a rest, everything.
@pytest.mark.parametrize("tile_rows", [16, 150, 1000])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("channels", [5, 48])
@pytest.mark.parametrize(
    ("dtype", "product"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.bfloat16),
    ],
    ids=str,
)
def test_the_kernel_and_the_loop_over_operators_agree(
    dtype, product, channels, layers, clusters, dropout, tile_rows
):
    x, cluster, parameters, *dropped = operator_arguments(channels, layers, dtype, 331, clusters, dropout)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    if torch.float16 in (dtype, product):
        tolerance = 5e-3
    elif torch.bfloat16 in (dtype, product):
        tolerance = 0.05
    grads = []
    for keep in (False, True):
        arguments = (x, cluster, 7, parameters, product, *dropped, tile_rows, keep)
        out, kept = torch.ops.gpn.residual(*arguments)
        plain, plain_kept = residual_module.plain_residual(*arguments)
        assert out.dtype == plain.dtype == dtype
        assert kept.shape == plain_kept.shape == (331 * (channels * layers + 2) if keep else 0,)
        torch.testing.assert_close(out, plain, atol=tolerance * float(plain.abs().max()), rtol=0)

        grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        arguments = (grad, x, cluster, parameters, product, *dropped, tile_rows)
        grads.append(torch.ops.gpn.residual_backward(*arguments, kept))
        expected = residual_module.plain_residual_backward(*arguments, plain_kept)
        for results in grads:
            for actual, wanted in zip(results, expected, strict=True):
                assert actual.dtype == wanted.dtype
                assert bool(wanted.abs().max() > 0)
                torch.testing.assert_close(actual, wanted, atol=tolerance * float(wanted.abs().max()), rtol=0)


def test_the_kernel_gives_the_same_bits_for_any_number_of_threads():
    x, cluster, parameters, *dropped = operator_arguments(64, 2, torch.float32, 3000, True, 0.3)
    grad, results, before = torch.randn(7, 64), [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        settings = (parameters, torch.float32, *dropped, 700)
        sums, kept = torch.ops.gpn.residual(x, cluster, 7, *settings, True)
        results.append([sums, kept, *torch.ops.gpn.residual_backward(grad, x, cluster, *settings, kept)])
    torch.set_num_threads(before)
    for others in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], others, strict=True))


def test_no_rows():
    parameters = [torch.eye(3), torch.zeros(3), torch.ones(3), torch.zeros(3)]
    settings = (parameters, torch.float32, 0.0, None, 16)
    x, cluster = torch.empty(0, 3), torch.empty(0, dtype=torch.int64)
    sums, kept = torch.ops.gpn.residual(x, cluster, 2, *settings, True)
    assert torch.equal(sums, torch.zeros(2, 3))
    grad_x, *grads = torch.ops.gpn.residual_backward(torch.ones(2, 3), x, cluster, *settings, kept)
    assert grad_x.shape == (0, 3)
    assert not any(bool(grad.any()) for grad in grads)


def test_what_was_kept_is_not_computed_anew():
    """Of other numbers than those that were kept, backward gives other gradients."""
    x, cluster, parameters, *dropped = operator_arguments(5, 2, torch.float64, 40, True, 0.0)
    settings = (parameters, torch.float64, *dropped, 16)
    for forward, backward in (
        (torch.ops.gpn.residual, torch.ops.gpn.residual_backward),
        (residual_module.plain_residual, residual_module.plain_residual_backward),
    ):
        out, kept = forward(x, cluster, 7, *settings, True)
        grad = torch.ones_like(out) * torch.arange(5.0, dtype=torch.float64)
        of_kept, of_others = (backward(grad, x, cluster, *settings, part)[0] for part in (kept, 2 * kept))
        assert not torch.allclose(of_kept, of_others)


def test_what_is_little_is_kept(device, monkeypatch):
    """Forward and backward of DeepSets on the CPU, counted by its products; elsewhere nothing is kept."""
    torch.manual_seed(0)
    x, cluster, num_clusters = example(device)
    once = 2 * (x.size(0) + num_clusters) * 6 * 6
    module = DeepSets(6).double().to(device)
    if device.type != "cpu":
        assert submodules.flops(lambda: module(x, cluster, num_clusters)) == (once, 3 * once)
        return
    assert submodules.flops(lambda: module(x, cluster, num_clusters)) == (once, 2 * once)
    monkeypatch.setattr(children, "KEPT_BYTES", 4 * x.numel() - 1)
    assert submodules.flops(lambda: module(x, cluster, num_clusters)) == (
        once,
        2 * once + 2 * x.size(0) * 6 * 6,
    )


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
        lambda d: DeepSets(d, recompute=True),
        lambda d: DeepSets(d, recompute=False),
        lambda d: hooked(DeepSets(d)),
        lambda d: Reduce("max"),
    ],
    ids=["auto", "recompute", "keep", "hooked", "max"],
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
