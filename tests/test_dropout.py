"""dropout: draws that follow from a seed and an element's place, so that no mask is kept."""

import clustered
import pytest
import torch
from torch.library import opcheck

from gpn_ops import ops
from gpn_ops.ops.dropout import plain_dropout, random_words

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SIZES = (0, 1, 3, 5, 511, 512, 513, 5000, 40_000)


def values(numel, dtype=torch.float32, device="cpu"):
    torch.manual_seed(numel)
    x = torch.randn(numel).to(dtype)
    x[::7] = 0
    x[3::50] = torch.nan
    return x.to(device)


def seed(number=7, device="cpu"):
    return torch.tensor(number, device=device)


def test_words_are_those_of_splitmix64():
    """The first ones of Vigna's splitmix64.c from the state 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    words = random_words(torch.tensor(1234567), torch.arange(4))
    assert [word % 2**64 for word in words.tolist()] == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("first", [0, 1, 6, 2**48 + 3])
def test_equals_the_plain_form(device, dtype, relu, first):
    for numel in SIZES:
        x = values(numel, dtype, device)
        for p in (0.0, 0.3, 1.0):
            out = ops.dropout(x, seed(device=device), p, relu, first)
            expected = plain_dropout(x, seed(device=device), p, relu, first)
            torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
            in_place = x.clone()
            assert ops.dropout_(in_place, seed(device=device), p, relu, first) is in_place
            torch.testing.assert_close(in_place, out, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("tile", [1, 3, 4, 1000])
def test_tiles_and_threads_give_the_same_bits(device, tile):
    x = values(40_000, device=device).nan_to_num()
    whole = ops.dropout(x, seed(device=device), 0.4, True, 5)
    parts = [
        ops.dropout(x[k : k + tile], seed(device=device), 0.4, True, 5 + k) for k in range(0, 4 * tile, tile)
    ]
    assert torch.equal(torch.cat(parts), whole[: 4 * tile])
    threads = torch.get_num_threads()
    for number in (1, 3):
        torch.set_num_threads(number)
        try:
            assert torch.equal(ops.dropout(x, seed(device=device), 0.4, True, 5), whole)
        finally:
            torch.set_num_threads(threads)


def test_strides_do_not_matter():
    x = torch.randn(30, 20)
    assert torch.equal(ops.dropout(x.t(), seed(), 0.5), ops.dropout(x.t().contiguous(), seed(), 0.5))
    with pytest.raises(RuntimeError, match="x: expected a contiguous tensor, which is written in place"):
        ops.dropout_(x.t(), seed(), 0.5)


@pytest.mark.parametrize("relu", [False, True])
def test_gradients(device, relu):
    x = torch.randn(7, 9, dtype=torch.float64, device=device, requires_grad=True)

    def drop(x):
        return ops.dropout(x, seed(device=device), 0.3, relu, 5)

    assert torch.autograd.gradcheck(drop, x)
    assert torch.autograd.gradgradcheck(drop, x)
    opcheck(torch.ops.gpn.dropout, (x, seed(device=device), 0.3, relu, 5))


def test_opcheck_in_place(device):
    x = torch.randn(7, 9, device=device)
    opcheck(torch.ops.gpn.dropout_, (x, seed(device=device), 0.3, True, 5))
    with pytest.raises(RuntimeError, match="gpn::dropout_: has no gradient"):
        ops.dropout_(x.requires_grad_(), seed(device=device), 0.3)


@pytest.mark.parametrize("relu", [False, True])
def test_nothing_but_the_seed_or_the_output_is_kept(relu):
    saved = []
    x = torch.randn(100, 10, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        out = ops.dropout(x, seed(), 0.3, relu)
    (kept,) = saved
    assert kept.data_ptr() == out.data_ptr() if relu else kept.numel() == 1


REFUSED = {
    "x: expected a float32, float64, float16 or bfloat16 tensor, got int64": (torch.arange(4), seed(), 0.5),
    "seed: expected an int64 tensor, got float32": (torch.ones(4), torch.tensor(1.0), 0.5),
    "seed: expected a scalar, got shape [1]": (torch.ones(4), torch.tensor([1]), 0.5),
    "p: expected a probability, got 1.5": (torch.ones(4), seed(), 1.5),
    "p: expected a probability, got nan": (torch.ones(4), seed(), float("nan")),
    "first: expected a non-negative integer, got -1": (torch.ones(4), seed(), 0.5, False, -1),
}


@pytest.mark.parametrize("message", REFUSED)
@pytest.mark.parametrize("function", [ops.dropout, ops.dropout_])
def test_bad_arguments(function, message):
    clustered.refused(function, message, *REFUSED[message])
