"""reduce, accumulate_, lift and cluster_sizes: what flows between the nodes and their clusters."""

import clustered
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.library import opcheck

import gpn_ops
from gpn_ops import reference
from gpn_ops.ops.lift import plain_lift
from gpn_ops.ops.reduce import plain_accumulate_, plain_cluster_sizes, plain_reduce, plain_reduce_max_backward

SHAPES = pytest.mark.parametrize(
    ("num_nodes", "shape", "num_clusters"),
    [(20, (), 4), (500, (3,), 40), (500, (2, 5), 40), (50_000, (), 2_000), (9_000, (128,), 70), (7, (0,), 2)],
    ids=str,
)


def random_rows(num_nodes, shape, num_clusters, dtype=torch.float64, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(num_nodes, *shape, generator=random, dtype=torch.float64).to(dtype)
    return x, torch.randint(num_clusters, (num_nodes,), generator=random)


@clustered.REDUCTIONS
@given(
    names=st.lists(st.integers(0, 6), max_size=20),
    values=st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=20, max_size=20),
)
def test_equals_python(reduce, names, values):
    of_cluster = {c: [v for name, v in zip(names, values, strict=False) if name == c] for c in range(8)}
    how = {"sum": sum, "mean": lambda v: sum(v) / len(v), "max": max}[reduce]
    wanted = [how(of_cluster[c]) if of_cluster[c] else 0.0 for c in range(8)]
    x, cluster = torch.tensor(values[: len(names)]), torch.tensor(names, dtype=torch.int64)
    torch.testing.assert_close(gpn_ops.reduce(x, cluster, 8, reduce), torch.tensor(wanted))


@SHAPES
@clustered.REDUCTIONS
@clustered.EVERY_DTYPE
def test_equals_reference(device, num_nodes, shape, num_clusters, reduce, dtype):
    x, cluster = random_rows(num_nodes, shape, num_clusters, dtype)
    got = gpn_ops.reduce(x.to(device), cluster.to(device), num_clusters, reduce)
    wanted = reference.reduce(x.double(), cluster, num_clusters, reduce).to(dtype)
    assert got.dtype == dtype
    torch.testing.assert_close(
        got.cpu(), wanted, **({"atol": 1e-4, "rtol": 1e-5} if dtype == torch.float32 else {})
    )


@clustered.REDUCTIONS
def test_no_cluster(device, reduce):
    """Rows of cluster -1 take no part, and get no gradient."""
    x, cluster = random_rows(300, (4,), 20)
    cluster[::3] = -1
    kept = cluster >= 0
    x = x.to(device).requires_grad_()
    got = gpn_ops.reduce(x, cluster.to(device), 20, reduce)
    wanted = gpn_ops.reduce(x[kept.to(device)], cluster[kept].to(device), 20, reduce)
    assert torch.equal(got, wanted)
    got.sum().backward()
    assert not x.grad[~kept.to(device)].any()
    lifted = gpn_ops.lift(got.detach(), cluster.to(device))
    assert not lifted[~kept.to(device)].any()
    assert gpn_ops.cluster_sizes(cluster.to(device), 20).sum() == int(kept.sum())


def test_half_precision_is_summed_in_float32(device):
    x = torch.ones(5000, 1, dtype=torch.bfloat16, device=device)
    cluster = torch.zeros(5000, dtype=torch.int64, device=device)
    assert gpn_ops.reduce(x, cluster, 1).item() == torch.tensor(5000.0).bfloat16().item()
    large = torch.full((5000, 1), 60000.0, dtype=torch.float16, device=device)
    assert gpn_ops.reduce(large, cluster, 1, "mean").item() == torch.tensor(60000.0).half().item()


@clustered.EVERY_DTYPE
@pytest.mark.parametrize("tile", [1, 7, 64, 1000])
def test_tiles_give_the_sum_of_one_call(device, dtype, tile):
    x, cluster = (part.to(device) for part in random_rows(1000, (40,), 6, dtype))
    sum_dtype = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    out = torch.zeros(6, 40, dtype=sum_dtype, device=device)
    for begin in range(0, 1000, tile):
        returned = gpn_ops.accumulate_(out, x[begin : begin + tile], cluster[begin : begin + tile])
        assert returned is out
    wanted = gpn_ops.reduce(x, cluster, 6)
    if device == "cpu":
        assert torch.equal(out.to(dtype), wanted)
    else:
        torch.testing.assert_close(out.to(dtype), wanted)


def test_a_sum_depends_on_its_own_rows_alone(device):
    """Whatever else is summed beside it, also where a device cuts long sums into pieces."""
    x, _ = random_rows(3000, (5,), 1, torch.float32)
    x = x.to(device)
    alone = gpn_ops.reduce(x, torch.zeros(3000, dtype=torch.int64, device=device), 1)
    for before in (1, 100, 255, 777):
        rows = torch.cat([x[:before], x])
        cluster = torch.cat([torch.zeros(before), torch.ones(3000)]).long().to(device)
        assert torch.equal(gpn_ops.reduce(rows, cluster, 2)[1:], alone)


def test_accumulate_equals_reference(device):
    x, cluster = random_rows(500, (3,), 9)
    out = torch.randn(9, 3, dtype=torch.float64)
    wanted = reference.accumulate_(out.clone(), x, cluster)
    got = gpn_ops.accumulate_(out.to(device), x.to(device), cluster.to(device))
    torch.testing.assert_close(got.cpu(), wanted)


@pytest.mark.parametrize("shape", [(), (5,), (33,)])
def test_thread_count_does_not_matter(shape):
    """Values far apart in size, so that another order would show."""
    x, cluster = random_rows(60_000, shape, 50, torch.float32)
    x = x * 10.0 ** torch.linspace(-6, 6, 60_000).view(-1, *[1] * len(shape))

    def run():
        results = []
        for reduce in ("sum", "mean", "max"):
            leaf = x.clone().requires_grad_()
            out = gpn_ops.reduce(leaf, cluster, 50, reduce)
            (out * out.detach()).sum().backward()
            results += [out.detach(), leaf.grad]
        leaf = results[0].clone().requires_grad_()
        (gpn_ops.lift(leaf, cluster) * x).sum().backward()
        return [*results, leaf.grad, gpn_ops.cluster_sizes(cluster, 50)]

    clustered.same_bits_for_any_thread_count(run)


def test_maximum_sends_its_gradient_to_the_first(device):
    x = torch.tensor(
        [1.0, 3.0, 3.0, -0.0, 0.0, float("nan"), float("nan")], device=device, requires_grad=True
    )
    cluster = torch.tensor([0, 0, 0, 1, 1, 2, 2], device=device)
    out = gpn_ops.reduce(x, cluster, 4, "max")
    assert str(out.tolist()) in ("[3.0, 0.0, nan, 0.0]", "[3.0, -0.0, nan, 0.0]")
    out.backward(torch.tensor([1.0, 2.0, 3.0, 4.0], device=device))
    assert x.grad.tolist() == [0, 1, 0, 2, 0, 3, 0]


def test_maximum_of_infinities(device):
    x = torch.full((3, 2), -float("inf"), device=device)
    out = gpn_ops.reduce(x, torch.tensor([0, 0, 2], device=device), 3, "max")
    assert out[:, 0].tolist() == [-float("inf"), 0.0, -float("inf")]


@given(names=st.lists(st.integers(0, 4), max_size=12))
def test_lift_and_sizes(names):
    cluster = torch.tensor(names, dtype=torch.int64)
    x = torch.randn(5, 3)
    assert torch.equal(gpn_ops.lift(x, cluster), x.index_select(0, cluster))
    assert gpn_ops.cluster_sizes(cluster, 5).tolist() == [names.count(c) for c in range(5)]


@clustered.REDUCTIONS
def test_derivatives(device, reduce):
    x, cluster = (part.to(device) for part in random_rows(15, (3,), 4))
    cluster[2] = -1
    clustered.check_derivatives(lambda t: gpn_ops.reduce(t, cluster, 6, reduce), x)


def test_derivatives_of_lift(device):
    x, cluster = (part.to(device) for part in random_rows(6, (2,), 6))
    cluster[2] = -1
    clustered.check_derivatives(lambda t: gpn_ops.lift(t, cluster), x)


def test_no_derivatives_of_what_works_in_place(device):
    x, cluster = (part.to(device) for part in random_rows(6, (2,), 6))
    with pytest.raises(RuntimeError, match="gpn::accumulate_: has no gradient; detach its arguments"):
        gpn_ops.accumulate_(torch.zeros_like(x), x.requires_grad_(), cluster)
    with torch.no_grad():
        gpn_ops.accumulate_(torch.zeros_like(x), x, cluster)


def test_autocast(device):
    x, cluster = (part.to(device) for part in random_rows(50, (4,), 6, torch.float32))
    with torch.autocast(device.type, torch.bfloat16):
        out = gpn_ops.reduce((x @ x.t()), cluster, 6)
        assert out.dtype == torch.bfloat16


@clustered.REDUCTIONS
@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck_reduce(device, reduce, requires_grad):
    x, cluster = (part.to(device) for part in random_rows(20, (3,), 5, torch.float32))
    opcheck(torch.ops.gpn.reduce, (x.requires_grad_(requires_grad), cluster, 5, reduce))


def test_opcheck_others(device):
    x, cluster = (part.to(device) for part in random_rows(20, (3,), 5, torch.float32))
    opcheck(torch.ops.gpn.accumulate_, (torch.zeros(5, 3, device=device), x, cluster))
    opcheck(torch.ops.gpn.cluster_sizes, (cluster, 5))
    opcheck(torch.ops.gpn.lift, (x.requires_grad_(), cluster))
    maximum = gpn_ops.reduce(x.detach(), cluster, 5, "max")
    opcheck(
        torch.ops.gpn.reduce_max_backward, (torch.ones(5, 3, device=device), x.detach(), maximum, cluster)
    )


@clustered.REDUCTIONS
def test_compile(device, reduce):
    lists = [
        (*(part.to(device) for part in random_rows(n, (n % 7,), n // 3, torch.float32)), n // 3, reduce)
        for n in (20, 31, 47)
    ]
    clustered.check_compiled(gpn_ops.reduce, lists, differentiable=0)


def test_compile_accumulate(device):
    def sums(x, cluster, num_clusters):
        out = x.new_zeros(num_clusters, x.size(1))
        return gpn_ops.accumulate_(out, x, cluster) * 2

    lists = [
        (*(part.to(device) for part in random_rows(n, (n % 7,), n // 3, torch.float32)), n // 3)
        for n in (20, 31, 47)
    ]
    clustered.check_compiled(sums, lists)


@clustered.REDUCTIONS
def test_plain_pytorch(reduce):
    """What a device without a kernel runs."""
    x, cluster = random_rows(200, (3,), 20)
    x = x.round()  # so that a maximum has several
    cluster[::7] = -1
    out = gpn_ops.reduce(x, cluster, 20, reduce)
    torch.testing.assert_close(plain_reduce(x, cluster, 20, reduce), out)
    assert torch.equal(plain_lift(out, cluster), gpn_ops.lift(out, cluster))
    assert torch.equal(plain_cluster_sizes(cluster, 20), gpn_ops.cluster_sizes(cluster, 20))
    arguments = out, x, gpn_ops.reduce(x, cluster, 20, "max"), cluster
    wanted = torch.ops.gpn.reduce_max_backward(*arguments)
    assert torch.equal(plain_reduce_max_backward(*arguments), wanted)
    other = out.clone()
    plain_accumulate_(other, x, cluster)
    torch.testing.assert_close(other, gpn_ops.accumulate_(out, x, cluster))


X, CLUSTER = torch.ones(3, 2), torch.tensor([0, 1, 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X.long(), CLUSTER, 2), "x: expected a float32, float64, float16 or bfloat16 tensor, got int64"),
        ((X, CLUSTER.int(), 2), "cluster: expected an int64 tensor, got int32"),
        ((X, CLUSTER[:, None], 2), "cluster: expected shape [num_nodes], got [3, 1]"),
        ((X[:2], CLUSTER, 2), "x: expected shape [num_nodes, ...] = [3, ...], got [2, 2]"),
        ((X[0, 0], CLUSTER, 2), "x: expected shape [num_nodes, ...] = [3, ...], got []"),
        ((X, CLUSTER, -1), "num_clusters: expected a non-negative integer, got -1"),
        ((X, CLUSTER, 2, "median"), "reduce: expected 'sum', 'mean' or 'max', got 'median'"),
    ],
)
def test_bad_metadata(device, arguments, message):
    arguments = tuple(part.to(device) if isinstance(part, torch.Tensor) else part for part in arguments)
    clustered.refused(gpn_ops.reduce, message, *arguments)


@pytest.mark.parametrize("bad", [-2, 2, 2**62, -(2**63)])
def test_bad_values(bad):
    """On CUDA these trip device-side assertions. Nothing is changed."""
    cluster = torch.tensor([0, bad, 1])
    message = f"cluster: expected ids from -1 to num_clusters - 1 = 1, got {bad} at cluster[1]"
    clustered.refused(gpn_ops.reduce, message, X, cluster, 2)
    clustered.refused(gpn_ops.lift, message, X[:2], cluster)
    clustered.refused(gpn_ops.cluster_sizes, message, cluster, 2)
    out = torch.zeros(2, 2)
    clustered.refused(gpn_ops.accumulate_, message, out, X, cluster)
    assert not out.any()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (torch.zeros(2, 2).double(), "out: expected a float32 tensor, got float64"),
        (
            torch.zeros(2, 3),
            "out: expected shape [num_clusters, ...] with the row shape of x [3, 2], got [2, 3]",
        ),
        (torch.zeros(2, 2).t(), "out: expected a contiguous tensor, which is written in place"),
    ],
)
def test_bad_out(device, out, message):
    clustered.refused(gpn_ops.accumulate_, message, out.to(device), X.to(device), CLUSTER.to(device))
