"""EdgeScorer: equation 1, whose rows are recomputed in backward."""

import contextlib
import copy
import importlib
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import graphs
import naive
import submodules

from gpn_ops.nn import EdgeScorer, ParsePooling
from gpn_ops.ops import Undirected, edge_logits, tiles, waits

LAYERS = (1, 2, 3)

edge_logits_module = importlib.import_module("gpn_ops.ops.edge_logits")


@pytest.fixture
def small_tiles(monkeypatch):
    """16 rows a tile, so that small graphs have several, the last one not full."""
    monkeypatch.setattr(tiles, "TILE_BYTES", 1)
    monkeypatch.setattr(tiles, "DEVICE_TILE_BYTES", 1)


def example(device, num_nodes=25, num_edges=40, channels=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    edge_index = graphs.erdos_renyi(num_nodes, num_edges, generator)
    h = torch.randn(num_nodes, channels, generator=generator, dtype=dtype)
    return h.to(device).requires_grad_(), edge_index.to(device)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("num_layers", LAYERS)
def test_equals_the_formula_and_its_gradient(device, num_layers):
    torch.manual_seed(0)
    h, edge_index = example(device)
    scorer = EdgeScorer(6, num_layers).double().to(device)
    scores = scorer(h, edge_index)
    expected = naive.edge_scores(scorer, h, edge_index)
    torch.testing.assert_close(scores, expected)

    weight = torch.randn_like(scores)
    inputs = [h, *scorer.parameters()]
    for actual, wanted in zip(
        torch.autograd.grad(scores, inputs, weight),
        torch.autograd.grad(expected, inputs, weight),
        strict=True,
    ):
        assert bool(wanted.abs().max() > 0)
        torch.testing.assert_close(actual, wanted)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("num_layers", LAYERS)
def test_kept_for_backward_or_computed_anew(device, num_layers):
    torch.manual_seed(0)
    h, edge_index = example(device)
    anew = EdgeScorer(6, num_layers, recompute=True).double().to(device)
    kept = EdgeScorer(6, num_layers, recompute=False).double().to(device)
    kept.load_state_dict(anew.state_dict())
    scores, expected = kept(h, edge_index), anew(h, edge_index)
    torch.testing.assert_close(scores, expected, atol=1e-12, rtol=0)
    weight = torch.randn_like(scores)
    for actual, wanted in zip(
        torch.autograd.grad(scores, [h, *kept.parameters()], weight),
        torch.autograd.grad(expected, [h, *anew.parameters()], weight),
        strict=True,
    ):
        torch.testing.assert_close(actual, wanted, atol=1e-12, rtol=0)
    with torch.no_grad():  # There is nothing to keep it for.
        assert torch.equal(kept(h, edge_index), anew(h, edge_index))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("dropout", [0.0, 0.4, 1.0])
def test_gradcheck_with_the_dropout_of_a_seed(device, dropout):
    # With a seed the operator is a function, also under dropout: a recomputed tile that drew anew would
    # disagree with finite differences.
    torch.manual_seed(0)
    h, _ = example(device, num_nodes=8, channels=3)
    pairs = torch.randint(8, (2, 37), device=device)
    scorer = EdgeScorer(3, 3).double().to(device)
    parameters = [
        p.detach().requires_grad_()
        for k in range(2)
        for p in (*scorer.lins[k].parameters(), *scorer.norms[k].parameters())
    ]
    parameters += [p.detach().requires_grad_() for p in scorer.lins[2].parameters()]
    seed = torch.tensor(7, device=device)

    def function(h, *parameters):
        return edge_logits(h, pairs, list(parameters), torch.float64, dropout, seed)

    assert torch.autograd.gradcheck(function, (h, *parameters))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("recompute", [True, False])
def test_dropout_follows_torch_seed_and_differs_between_tiles(device, recompute):
    h, _ = example(device, num_nodes=2)
    scorer = EdgeScorer(6, 2, dropout=0.5, recompute=recompute).double().to(device)
    pairs = torch.tensor([[0], [1]], device=device).expand(2, 64)

    def scores(seed):
        torch.manual_seed(seed)
        return scorer(h, pairs, directed=True)

    assert torch.equal(scores(1), scores(1))
    assert not torch.equal(scores(1), scores(2))
    first, second = scores(1)[:16], scores(1)[16:32]
    assert not torch.equal(first, second)
    scorer.eval()
    assert scorer(h, pairs, directed=True).unique().numel() == 1


@pytest.mark.parametrize("num_layers", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_an_edge_and_its_reverse_get_the_same_bits(device, num_layers, training):
    h, edge_index = example(device, num_nodes=300, num_edges=1500, channels=128, dtype=torch.float32)
    scorer = EdgeScorer(128, num_layers, dropout=0.3).to(device).train(training)
    ends, scores = edge_index.t().tolist(), scorer(h, edge_index).tolist()
    score_of = {(i, j): score for (i, j), score in zip(ends, scores, strict=True)}
    assert all(score == score_of[j, i] for (i, j), score in score_of.items())


def test_one_directional_edges_are_scored(device):
    h, _ = example(device)
    edge_index = torch.tensor([[0, 3, 3], [3, 1, 3]], device=device)
    scorer = EdgeScorer(6).double().to(device)
    torch.testing.assert_close(scorer(h, edge_index), naive.edge_scores(scorer, h, edge_index))


def test_no_edges(device):
    scorer = EdgeScorer(4).to(device)
    h = torch.randn(3, 4, device=device, requires_grad=True)
    scores = scorer(h, torch.empty(2, 0, dtype=torch.int64, device=device))
    assert scores.shape == (0,)
    scores.sum().backward()
    assert torch.equal(h.grad, torch.zeros_like(h))


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("num_layers", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_scores_in_float32(device, num_layers, dtype, recompute):
    h, edge_index = example(device, dtype=torch.float32)
    scorer = EdgeScorer(6, num_layers, recompute=recompute).to(device)
    half = copy.deepcopy(scorer).to(dtype)
    scores = half(h.to(dtype), edge_index)
    assert scores.dtype == torch.float32
    assert not torch.equal(scores, scores.to(dtype).float())  # not rounded on the way either
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(scores, scorer(h, edge_index), atol=tolerance, rtol=tolerance)
    scores.sum().backward()
    assert {p.grad.dtype for p in half.parameters()} == {dtype}


@pytest.mark.parametrize("recompute", [True, False])
def test_autocast_runs_products_in_half_precision_only(device, recompute):
    h, edge_index = example(device, dtype=torch.float32)
    scorer = EdgeScorer(6, recompute=recompute).to(device)
    with torch.autocast(device.type, torch.bfloat16):
        scores = scorer(h, edge_index)
    exact = scorer(h, edge_index)
    assert scores.dtype == torch.float32
    assert not torch.equal(scores, exact)
    torch.testing.assert_close(scores, exact, atol=0.05, rtol=0)
    scores.sum().backward()
    assert {p.grad.dtype for p in scorer.parameters()} == {torch.float32}


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("num_layers", LAYERS)
def test_products_of_large_features_stay_in_the_range_of_float16(device, num_layers, recompute, autocast):
    """From 256 on a square is past float16's largest number; counts of PROTEINS and DD reach that."""
    torch.manual_seed(0)
    h, edge_index = example(device, dtype=torch.float32)
    large = (h.detach() * 300).half()
    assert bool(large.abs().max() > 256)
    scorer = EdgeScorer(6, num_layers, recompute=recompute).to(device)
    for layer in scorer.lins:
        torch.nn.init.normal_(layer.weight, std=2e-5 if num_layers == 1 else 0.3)
    expected = scorer(large.float(), edge_index)
    half = scorer if autocast else copy.deepcopy(scorer).half()
    features = large.clone().requires_grad_()
    with torch.autocast(device.type, torch.float16, enabled=autocast):
        scores = half(features, edge_index)
    torch.testing.assert_close(scores, expected, atol=0.02, rtol=0)
    (scores.mean() / 8).backward()  # in the range that a GradScaler finds
    assert all(bool(value.grad.isfinite().all()) for value in (features, *half.parameters()))
    assert bool(features.grad.abs().max() > 0)


def test_a_layer_trains_on_large_features_under_autocast_of_float16(device):
    torch.manual_seed(0)
    x, edge_index = example(device, channels=8, dtype=torch.float32)
    x = x.detach().abs() * 1000
    embed, pool = torch.nn.Linear(8, 8).to(device), ParsePooling(8).to(device)
    parameters = [*embed.parameters(), *pool.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-2)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16):
            h = embed(x)
            assert h.dtype == torch.float16
            assert bool(h.abs().max() > 256)
            out = pool(h, edge_index)
            loss = (out.score.float() - 0.25).square().mean()
        loss.backward()
        assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in parameters)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


# ------------------------------------------------------------------------------------------------------------
# The operator
# ------------------------------------------------------------------------------------------------------------


def operator_arguments(channels, hidden, dtype, product, num_pairs=97, dropout=0.0):
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    layer = [(channels, channels), (channels,), (channels,), (channels,)]
    parameters = [random(*shape) for shape in [*(hidden * layer), (1, channels), (1,)]]
    pairs = torch.randint(11, (2, num_pairs), generator=generator)
    seed = torch.tensor(5) if dropout else None
    return random(11, channels), pairs, parameters, product, dropout, seed


@pytest.mark.parametrize("tile_rows", [1, 16, 97, 1000])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("hidden", [1, 2])
@pytest.mark.parametrize("channels", [1, 5, 48])
@pytest.mark.parametrize(
    ("dtype", "product"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.bfloat16),
    ],
    ids=str,
)
def test_the_kernel_and_the_loop_over_operators_agree(dtype, product, channels, hidden, dropout, tile_rows):
    arguments = operator_arguments(channels, hidden, dtype, product, dropout=dropout)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4 if product != torch.bfloat16 else 0.05
    logits = torch.ops.gpn.edge_logits(*arguments, tile_rows)
    plain = edge_logits_module.plain_edge_logits(*arguments, tile_rows)
    assert logits.dtype == plain.dtype
    torch.testing.assert_close(logits, plain, atol=tolerance * float(plain.abs().max()), rtol=0)

    grad = torch.randn(logits.shape, dtype=logits.dtype)
    actual = torch.ops.gpn.edge_logits_backward(grad, *arguments, tile_rows)
    expected = edge_logits_module.plain_edge_logits_backward(grad, *arguments, tile_rows)
    if torch.bfloat16 in (dtype, product):
        tolerance = 0.1
    elif dtype == torch.float16:
        tolerance = 2e-3
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        # A LayerNorm of one channel passes no gradient but for rounding.
        scale = max(float(e.abs().max()), 1e-3 if channels > 1 else 10.0)
        torch.testing.assert_close(a, e, atol=tolerance * scale, rtol=0)


class Names(TorchDispatchMode):
    """Of the operators that are called."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.called = [*getattr(self, "called", []), func._schema.name]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("channels", "hidden", "wide"), [(256, 1, False), (257, 1, True), (128, 2, False), (129, 2, True)]
)
def test_gradients_of_wide_rows_go_in_tiles_on_a_gpu(monkeypatch, channels, hidden, wide):
    h, pairs, parameters, *_ = operator_arguments(channels, hidden, torch.float32, torch.float32)
    grads = []
    for on_host in (True, False):
        monkeypatch.setattr(waits, "is_host", lambda device, on_host=on_host: on_host)
        leaf = h.detach().requires_grad_()
        out = edge_logits(leaf, pairs, parameters, torch.float32)
        with Names() as names:
            grads += torch.autograd.grad(out.sum(), leaf)
        assert ("gpn::_edge_logits_backward_tiles" in names.called) == (wide and not on_host)
        assert ("gpn::edge_logits_backward" in names.called) == (on_host or not wide)
    torch.testing.assert_close(grads[0], grads[1], atol=1e-4 * float(grads[0].abs().max()), rtol=0)


def test_the_kernel_gives_the_same_bits_for_any_number_of_threads():
    arguments = operator_arguments(64, 2, torch.float32, torch.float32, 3000, dropout=0.3)
    grad = torch.randn(3000)
    results, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        logits = torch.ops.gpn.edge_logits(*arguments, 700)
        results.append([logits, *torch.ops.gpn.edge_logits_backward(grad, *arguments, 700)])
    torch.set_num_threads(before)
    for others in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], others, strict=True))


@pytest.mark.parametrize("form", ["kernel", "plain", "fake"])
@pytest.mark.parametrize(
    ("position", "value", "text"),
    [
        (0, torch.ones(3), r"h: expected shape \[num_nodes, channels\], got \[3\]"),
        (1, torch.ones(2, 3), "pairs: expected an int64 tensor, got float32"),
        (2, [torch.ones(5)] * 5, "parameters: expected weight, bias, .* got 5 tensors"),
        (2, [torch.ones(5)] * 6, r"parameters\[0\]: expected shape \[channels, channels\] = \[5, 5\]"),
        (4, 1.5, "dropout: expected a probability, got 1.5"),
        (5, torch.ones(2, dtype=torch.int64), r"seed: expected a scalar, got shape \[2\]"),
        (6, 0, "tile_rows: expected a positive integer, got 0"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_bad_arguments_of_the_operator(form, position, value, text):
    arguments = [*operator_arguments(5, 1, torch.float32, torch.float32), 16]
    arguments[position] = value
    function = edge_logits_module.plain_edge_logits if form == "plain" else torch.ops.gpn.edge_logits
    mode = FakeTensorMode(allow_non_fake_inputs=True) if form == "fake" else contextlib.nullcontext()
    with mode, pytest.raises(RuntimeError, match=text):
        function(*arguments)


def test_pairs_out_of_range_are_refused():
    arguments = [*operator_arguments(5, 1, torch.float32, torch.float32), 16]
    arguments[1][1, 90] = 11
    with pytest.raises(RuntimeError, match=r"pairs: expected .* got 11 at pairs\[1, 90\]"):
        torch.ops.gpn.edge_logits(*arguments)
    with pytest.raises(RuntimeError, match=r"pairs: expected .* got 11 at pairs\[1, 90\]"):
        torch.ops.gpn.edge_logits_backward(torch.ones(97), *arguments)


# ------------------------------------------------------------------------------------------------------------
# A module of modules
# ------------------------------------------------------------------------------------------------------------


@submodules.GRADIENTS
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("num_layers", LAYERS)
def test_hooks_of_children_fire(device, num_layers, recompute, gradients):
    h, edge_index = example(device)
    scorer = EdgeScorer(6, num_layers, recompute=recompute).double().to(device)
    submodules.check_hooks(scorer, lambda scorer: scorer(h, edge_index), gradients)


@submodules.GRADIENTS
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("num_layers", LAYERS)
def test_children_of_a_users_own_take_effect(device, num_layers, recompute, gradients):
    h, edge_index = example(device)
    plain = EdgeScorer(6, num_layers, recompute=recompute).double().to(device)
    for scorer in submodules.tripled_linears(plain):
        with torch.set_grad_enabled(gradients):
            scores = scorer(h, edge_index)
        torch.testing.assert_close(scores, naive.edge_scores(scorer, h, edge_index))
        if num_layers == 1:  # A LayerNorm undoes it in a hidden layer, and else it is before the sigmoid.
            torch.testing.assert_close(scores.logit(), 3 * plain(h, edge_index).logit())


@pytest.mark.parametrize("name", ["lins.0", "norms.0", "lins.1"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_scores_of_called_children_are_not_rounded_to_half_precision(device, name, dtype):
    h, edge_index = example(device, dtype=dtype)
    scorer = EdgeScorer(6).to(device, dtype)
    expected = scorer(h, edge_index)
    scorer.get_submodule(name).register_forward_hook(lambda *_: None)
    scores = scorer(h, edge_index)
    assert scores.dtype == torch.float32
    assert not torch.equal(scores, scores.to(dtype).float())
    torch.testing.assert_close(scores, expected, atol=8 * torch.finfo(dtype).eps, rtol=0)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("num_layers", LAYERS)
def test_flops_are_those_of_the_matrix_products(device, num_layers, recompute):
    h, edge_index = example(device)
    num_pairs = edge_index.sort(dim=0).values.unique(dim=1).size(1)
    scorer = EdgeScorer(6, num_layers, recompute=recompute).double().to(device)
    hidden, last = 2 * num_pairs * 6 * 6 * (num_layers - 1), 2 * num_pairs * 6
    again = hidden if recompute else 0
    expected = hidden + last, again + 2 * (hidden + last)
    assert submodules.flops(lambda: scorer(h, edge_index)) == expected


@pytest.mark.parametrize(("num_layers", "recompute"), [(1, True), (1, False), (2, False), (3, False)])
def test_second_derivatives(device, num_layers, recompute):
    h, edge_index = example(device, num_nodes=5, num_edges=6, channels=3)
    scorer = EdgeScorer(3, num_layers, recompute=recompute).double().to(device)
    assert torch.autograd.gradgradcheck(lambda h, *_: scorer(h, edge_index), (h, *scorer.parameters()))


def test_derivatives_that_are_not_implemented_raise(device):
    h, edge_index = example(device)
    scorer = EdgeScorer(6).double().to(device)
    (grad,) = torch.autograd.grad(scorer(h, edge_index).sum(), h, create_graph=True)
    with pytest.raises(RuntimeError, match=r"second derivatives .* EdgeScorer\(recompute=False\) has them"):
        grad.sum().backward()
    for num_layers, recompute in ((1, True), (2, True), (2, False)):
        scorer = EdgeScorer(6, num_layers, recompute=recompute).double().to(device)
        with pytest.raises(RuntimeError, match="forward-mode derivatives"):
            torch.func.jvp(lambda h, scorer=scorer: scorer(h, edge_index), (h,), (h,))


def test_features_of_another_dtype_than_the_parameters_are_refused():
    h, edge_index = example("cpu")
    with pytest.raises(RuntimeError, match=r"expected the dtype of the parameters, float32, got"):
        EdgeScorer(6)(h, edge_index)


def test_gradient_has_the_same_bits_on_every_run(device):
    h, edge_index = example(device, num_nodes=300, num_edges=3000, channels=64, dtype=torch.float32)
    scorer = EdgeScorer(64).to(device)

    def grads():
        return torch.autograd.grad(scorer(h, edge_index).sum(), [h, *scorer.parameters()])

    assert all(torch.equal(a, b) for a, b in zip(grads(), grads(), strict=True))


@pytest.mark.parametrize("kwargs", [{"num_layers": 0}, {"dropout": 1.5}, {"dropout": -0.1}], ids=str)
def test_bad_settings(kwargs):
    with pytest.raises(ValueError, match=f"{next(iter(kwargs))}: expected"):
        EdgeScorer(4, **kwargs)


def test_reset_parameters():
    scorer = EdgeScorer(4, 3)
    before = copy.deepcopy(scorer.state_dict())
    torch.nn.init.constant_(scorer.norms[0].weight, 3.0)
    scorer.reset_parameters()
    assert torch.equal(scorer.norms[0].weight, torch.ones(4))
    assert not torch.equal(scorer.lins[0].weight, before["lins.0.weight"])


@pytest.mark.parametrize("num_layers", [2, 3])
def test_the_buffers_of_a_tile_fit_a_device_budget(monkeypatch, num_layers):
    """As a GPU cuts them, measured on the CPU: several tiles take no more than the budget, and most of it."""
    pytest.importorskip("matplotlib", reason="benchmarks plot")
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    from common import peak_bytes

    budget, channels, num_pairs = 2**22, 64, 20_000
    monkeypatch.setattr(tiles, "DEVICE_TILE_BYTES", budget)
    rows = tiles.tile_rows(torch.device("cuda"), channels, num_layers - 1)
    assert rows < num_pairs / 2
    monkeypatch.setattr(tiles, "tile_rows", lambda *_: rows)
    scorer = EdgeScorer(channels, num_layers)
    h = torch.randn(50, channels, requires_grad=True)
    pairs = torch.randint(50, (2, num_pairs))
    scores = scorer(h, pairs, Undirected(pairs, torch.arange(num_pairs)))
    per_pair = 4 * 8 * num_pairs  # gradients of scores and logits, however many tiles there are
    peak = peak_bytes(lambda: scores.sum().backward(), torch.device("cpu"))
    assert budget / 2 < peak < budget + per_pair
