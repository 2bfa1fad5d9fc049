"""pair_dot and pair_product: what edge scores are made of."""

import clustered
import pytest
import torch
from torch.library import opcheck

import gpn_ops
from gpn_ops import reference
from gpn_ops.ops.pair_dot import plain_pair_dot, plain_pair_dot_backward
from gpn_ops.ops.pair_product import plain_pair_product, plain_pair_product_backward_


def random_pairs(num_nodes, width, num_pairs, dtype=torch.float64, seed=0):
    random = torch.Generator().manual_seed(seed)
    h = torch.randn(num_nodes, width, generator=random, dtype=torch.float64)
    weight = torch.randn(width, generator=random, dtype=torch.float64)
    return h.to(dtype), weight.to(dtype), torch.randint(num_nodes, (2, num_pairs), generator=random)


SIZES = pytest.mark.parametrize(
    ("num_nodes", "width", "num_pairs"),
    [(5, 1, 30), (30, 7, 200), (30, 16, 3000), (400, 129, 4000), (4, 3, 0), (4, 0, 6)],
)


@SIZES
@clustered.EVERY_DTYPE
def test_equals_reference(device, num_nodes, width, num_pairs, dtype):
    arguments = [part.to(device) for part in random_pairs(num_nodes, width, num_pairs, dtype)]
    h, weight, pairs = arguments
    h.requires_grad_(), weight.requires_grad_()
    wide_h, wide_weight = (part.detach().double().requires_grad_() for part in (h, weight))
    grad = torch.randn(num_pairs, device=device, dtype=torch.float64)
    tolerance = {"atol": 2e-3, "rtol": 1e-4} if dtype == torch.float32 else {}
    if dtype in (torch.float16, torch.bfloat16):
        tolerance = {"atol": 0.15 if dtype == torch.float16 else 1.5, "rtol": 0.02}

    got, wanted = gpn_ops.pair_dot(h, weight, pairs), reference.pair_dot(wide_h, wide_weight, pairs)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), wanted, **tolerance)
    got_grads = torch.autograd.grad(got, (h, weight), grad.to(dtype))
    wanted_grads = torch.autograd.grad(wanted, (wide_h, wide_weight), grad.to(dtype).double())
    for a, b in zip(got_grads, wanted_grads, strict=True):
        torch.testing.assert_close(a.double(), b, **tolerance)

    got, wanted = gpn_ops.pair_product(h, pairs), reference.pair_product(wide_h, pairs)
    assert got.dtype == dtype
    torch.testing.assert_close(got, wanted.to(dtype), **tolerance)
    grad = torch.randn(num_pairs, width, device=device, dtype=torch.float64).to(dtype)
    (got_grad,) = torch.autograd.grad(got, h, grad)
    (wanted_grad,) = torch.autograd.grad(wanted, wide_h, grad.double())
    torch.testing.assert_close(got_grad.double(), wanted_grad, **tolerance)


@clustered.EVERY_DTYPE
@pytest.mark.parametrize("tile", [1, 7, 100, 300])
def test_tiles_give_the_same_bits(device, dtype, tile):
    h, _, pairs = (part.to(device) for part in random_pairs(20, 33, 300, dtype))
    grad = torch.randn(300, 33, device=device).to(dtype)
    sum_dtype = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    leaf = h.clone().requires_grad_()
    gpn_ops.pair_product(leaf, pairs).backward(grad)
    tiled = torch.zeros(20, 33, dtype=sum_dtype, device=device)
    for begin in range(0, 300, tile):
        end = begin + tile
        assert gpn_ops.pair_product_backward_(tiled, grad[begin:end], h, pairs[:, begin:end]) is tiled
    assert torch.equal(tiled.to(dtype), leaf.grad)


@pytest.mark.parametrize("width", [1, 5, 70])
def test_thread_count_does_not_matter(width):
    h, weight, pairs = random_pairs(2000, width, 40_000, torch.float32)
    h = h * 10.0 ** torch.linspace(-3, 3, 2000)[:, None]
    grad = torch.randn(40_000, width)

    def run():
        leaf, scale = h.clone().requires_grad_(), weight.clone().requires_grad_()
        out = gpn_ops.pair_dot(leaf, scale, pairs)
        out.backward(grad[:, 0])
        other = h.clone().requires_grad_()
        product = gpn_ops.pair_product(other, pairs)
        product.backward(grad)
        return [out.detach(), leaf.grad, scale.grad, product.detach(), other.grad]

    clustered.same_bits_for_any_thread_count(run)


def test_memory_of_pair_dot_is_that_of_its_result():
    """Nothing of size [num_pairs, channels] is ever held, forward or backward."""
    h, weight, pairs = random_pairs(100, 256, 20_000, torch.float32)
    h.requires_grad_(), weight.requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        gpn_ops.pair_dot(h, weight, pairs).sum().backward()
    largest = max(event.self_cpu_memory_usage for event in profile.key_averages())
    assert largest < 20_000 * 256 * 4 / 8


def test_arguments_of_any_layout(device):
    h, weight, pairs = (part.to(device) for part in random_pairs(30, 8, 100))
    loose = (h.t().contiguous().t(), weight.repeat_interleave(2)[::2], pairs.t().contiguous().t())
    assert torch.equal(gpn_ops.pair_dot(*loose), gpn_ops.pair_dot(h, weight, pairs))
    assert torch.equal(gpn_ops.pair_product(loose[0], loose[2]), gpn_ops.pair_product(h, pairs))


def test_weight_takes_the_dtype_of_h(device):
    """As torch.nn.Linear does under autocast: the parameter is float32, the features are not."""
    h, weight, pairs = (part.to(device) for part in random_pairs(30, 8, 100))
    weight = weight.float().requires_grad_()
    out = gpn_ops.pair_dot(h.bfloat16(), weight, pairs)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert weight.grad.dtype == torch.float32


def test_derivatives(device):
    h, weight, pairs = (part.to(device) for part in random_pairs(5, 3, 12))
    clustered.check_derivatives(lambda a, b: gpn_ops.pair_dot(a, b, pairs), h, weight)
    clustered.check_derivatives(lambda a: gpn_ops.pair_product(a, pairs), h)
    with pytest.raises(RuntimeError, match="gpn::pair_product_backward_: has no gradient"):
        gpn_ops.pair_product_backward_(torch.zeros_like(h), h[:0], h.requires_grad_(), pairs[:, :0])


def test_opcheck(device):
    h, weight, pairs = (part.to(device) for part in random_pairs(5, 3, 12, torch.float32))
    for grad in (False, True):
        h.requires_grad_(grad), weight.requires_grad_(grad)
        opcheck(torch.ops.gpn.pair_dot, (h, weight, pairs))
        opcheck(torch.ops.gpn.pair_product, (h, pairs))
    h, weight = h.detach(), weight.detach()
    opcheck(torch.ops.gpn.pair_dot_backward, (torch.ones(12, device=device), h, weight, pairs))
    opcheck(
        torch.ops.gpn.pair_product_backward_,
        (torch.zeros_like(h), torch.ones(12, 3, device=device), h, pairs),
    )


def test_compile(device):
    def score(edge_index, h, weight):
        pairs, slot = gpn_ops.undirected(edge_index, h.size(0))
        scores = gpn_ops.pair_dot(h, weight, pairs) + gpn_ops.pair_product(h, pairs).sum(dim=1)
        return scores.sigmoid().index_select(0, slot)

    lists = []
    for seed, size in enumerate((20, 31, 47)):
        h, weight, pairs = random_pairs(size, size % 7, 3 * size, torch.float32, seed)
        lists.append((pairs.to(device), h.to(device), weight.to(device)))
    clustered.check_compiled(score, lists, differentiable=1)


def test_plain_pytorch():
    """What a device without a kernel runs."""
    h, weight, pairs = random_pairs(30, 8, 100)
    torch.testing.assert_close(plain_pair_dot(h, weight, pairs), gpn_ops.pair_dot(h, weight, pairs))
    torch.testing.assert_close(plain_pair_product(h, pairs), gpn_ops.pair_product(h, pairs))
    grad = torch.randn(100, dtype=torch.float64)
    wanted = torch.ops.gpn.pair_dot_backward(grad, h, weight, pairs)
    for got, grad_of in zip(plain_pair_dot_backward(grad, h, weight, pairs), wanted, strict=True):
        torch.testing.assert_close(got, grad_of)
    grad = torch.randn(100, 8, dtype=torch.float64)
    got, wanted = torch.ones_like(h), torch.ones_like(h)
    plain_pair_product_backward_(got, grad, h, pairs)
    torch.testing.assert_close(got, gpn_ops.pair_product_backward_(wanted, grad, h, pairs))


H, WEIGHT, PAIRS = torch.ones(3, 2), torch.ones(2), torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((H.int(), WEIGHT, PAIRS), "h: expected a float32, float64, float16 or bfloat16 tensor, got int32"),
        ((H[0], WEIGHT, PAIRS), "h: expected shape [num_nodes, channels], got [2]"),
        ((H, WEIGHT, PAIRS.int()), "pairs: expected an int64 tensor, got int32"),
        ((H, WEIGHT, PAIRS[0]), "pairs: expected shape [2, num_pairs], got [2]"),
        ((H, WEIGHT, PAIRS[:1]), "pairs: expected shape [2, num_pairs], got [1, 2]"),
        ((H, WEIGHT[:1], PAIRS), "weight: expected shape [channels] = [2], got [1]"),
    ],
)
def test_bad_metadata(device, arguments, message):
    clustered.refused(gpn_ops.pair_dot, message, *(part.to(device) for part in arguments))


@pytest.mark.parametrize("bad", [-1, 3, 2**62])
def test_bad_values(bad):
    """On CUDA these trip device-side assertions. Nothing is changed."""
    pairs = torch.tensor([[0, 1], [1, bad]])
    message = f"pairs: expected node ids from 0 to num_nodes - 1 = 2, got {bad} at pairs[1, 1]"
    clustered.refused(gpn_ops.pair_dot, message, H, WEIGHT, pairs)
    clustered.refused(gpn_ops.pair_product, message, H, pairs)
    grad_h = torch.zeros(3, 2)
    clustered.refused(gpn_ops.pair_product_backward_, message, grad_h, H[:2], H, pairs)
    assert not grad_h.any()


@pytest.mark.parametrize(
    ("grad_h", "grad_product", "message"),
    [
        (H.double(), H[:2], "grad_h: expected a float32 tensor, got float64"),
        (H[:2], H[:2], "grad_h: expected shape [num_nodes, channels] = [3, 2], got [2, 2]"),
        (
            torch.ones(2, 3).t(),
            H[:2],
            "grad_h: expected a contiguous tensor, which is written in place",
        ),
        (H, H, "grad_product: expected shape [num_pairs, channels] = [2, 2], got [3, 2]"),
    ],
)
def test_bad_backward(device, grad_h, grad_product, message):
    arguments = (part.to(device) for part in (grad_h, grad_product, H, PAIRS))
    clustered.refused(gpn_ops.pair_product_backward_, message, *arguments)
