"""mask: equation 4 of the paper."""

import clustered
import pytest
import torch
from hypothesis import given
from torch.library import opcheck

import gpn_ops
from gpn_ops import reference
from gpn_ops.ops.mask import plain_mask, plain_mask_backward


@given(graph=clustered.clustered_graphs())
def test_equals_dense_formula(graph):
    """The diagonal of S^T A S, where A holds the scores."""
    S = reference.gen(graph.cluster).double()
    A = reference.dense_adjacency(graph.edge_index, graph.num_nodes, graph.scores)
    count = reference.dense_adjacency(graph.edge_index, graph.num_nodes, torch.ones_like(graph.scores))
    total, count = (reference.dense_coarsen(matrix, S).diagonal() for matrix in (A, count))
    got = gpn_ops.mask(*graph)
    torch.testing.assert_close(got.mask, torch.where(count == 0, 1.0, total))
    assert got.count.tolist() == count.clamp(min=1).long().tolist()


@clustered.EVERY_DTYPE
@pytest.mark.parametrize(
    ("num_nodes", "num_edges", "num_clusters"), [(30, 500, 3), (1000, 200_000, 20), (90_000, 300_000, 30_000)]
)
def test_equals_reference(device, dtype, num_nodes, num_edges, num_clusters):
    graph = clustered.random_clustered(num_nodes, num_edges, num_clusters)
    graph = graph._replace(scores=graph.scores.to(dtype)).to(device)
    got = gpn_ops.mask(*graph)
    wanted = reference.mask(graph.edge_index, graph.scores.double(), graph.cluster, num_clusters)
    assert got.mask.dtype == dtype
    tolerance = {} if dtype in (torch.float16, torch.bfloat16) else {"atol": 1e-3, "rtol": 1e-5}
    torch.testing.assert_close(got.mask, wanted.mask.to(dtype), **tolerance)
    assert torch.equal(got.count, wanted.count)


def test_half_precision_is_summed_in_float32(device):
    """2048 ones: float16 alone would stay at 2048 from there on."""
    edge_index = torch.zeros(2, 5000, dtype=torch.int64, device=device)
    scores = torch.ones(5000, dtype=torch.float16, device=device)
    got = gpn_ops.mask(edge_index, scores, torch.zeros(1, dtype=torch.int64, device=device), 1)
    assert got.mask.item() == 5000
    assert got.count.item() == 5000


def test_empty(device):
    edge_index = torch.zeros(2, 0, dtype=torch.int64, device=device)
    for num_nodes in (0, 3):
        cluster = torch.arange(num_nodes, device=device)
        got = gpn_ops.mask(edge_index, torch.zeros(0, device=device), cluster, num_nodes + 1)
        assert got.mask.tolist() == [1.0] * (num_nodes + 1)
        assert got.count.tolist() == [1] * (num_nodes + 1)


def test_arguments_of_any_layout(device):
    graph = clustered.random_clustered(40, 200, 5).to(device)
    wanted = gpn_ops.mask(*graph)
    got = gpn_ops.mask(
        graph.edge_index.int().t().contiguous().t(),
        graph.scores.repeat_interleave(2)[::2],
        graph.cluster.repeat_interleave(2)[::2],
        5,
    )
    assert all(map(torch.equal, got, wanted))


def test_thread_count_does_not_matter():
    graph = clustered.random_clustered(60_000, 200_000, 9_000)

    def run():
        scores = graph.scores.clone().requires_grad_()
        out = gpn_ops.mask(graph.edge_index, scores, graph.cluster, graph.num_clusters)
        (out.mask * torch.arange(graph.num_clusters)).sum().backward()
        return [out.mask.detach(), out.count, scores.grad]

    clustered.same_bits_for_any_thread_count(run)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
def test_derivatives(device, dtype):
    graph = clustered.random_clustered(12, 40, 4).to(device)
    clustered.check_derivatives(
        lambda s: gpn_ops.mask(graph.edge_index.to(dtype), s, graph.cluster, graph.num_clusters).mask,
        graph.scores.double(),
    )


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(device, requires_grad):
    graph = clustered.random_clustered(20, 60, 5).to(device)
    opcheck(
        torch.ops.gpn.mask, (graph.edge_index, graph.scores.requires_grad_(requires_grad), graph.cluster, 5)
    )
    opcheck(torch.ops.gpn.mask_backward, (torch.randn(5, device=device), graph.edge_index, graph.cluster))


def test_compile(device):
    lists = []
    for seed, size in enumerate((20, 31, 47)):
        graph = clustered.random_clustered(size, 3 * size, size // 3, seed).to(device)
        lists.append((graph.edge_index, graph.scores, graph.cluster, graph.num_clusters))
    clustered.check_compiled(gpn_ops.mask, lists, differentiable=1)


@given(graph=clustered.clustered_graphs())
def test_plain_pytorch(graph):
    """What a device without a kernel runs."""
    if graph.num_nodes == 0:
        return
    for got, wanted in zip(plain_mask(*graph), gpn_ops.mask(*graph), strict=True):
        torch.testing.assert_close(got, wanted)
    grad = torch.randn(graph.num_clusters)
    arguments = grad, graph.edge_index, graph.cluster
    assert torch.equal(plain_mask_backward(*arguments), torch.ops.gpn.mask_backward(*arguments))


GOOD = {
    "edge_index": torch.tensor([[0, 1, 2], [1, 2, 0]]),
    "scores": torch.ones(3),
    "cluster": torch.tensor([0, 1, 1]),
    "num_clusters": 2,
}


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"edge_index": torch.ones(2, 3)}, "edge_index: expected an int64 or int32 tensor, got float32"),
        ({"scores": None}, "scores: expected a tensor, got None"),
        ({"scores": torch.ones(2)}, "scores: expected shape [num_edges] = [3], got [2]"),
        ({"cluster": None}, "cluster: expected a tensor, got None"),
        ({"cluster": torch.ones(3)}, "cluster: expected an int64 tensor, got float32"),
        ({"num_clusters": -1}, "num_clusters: expected a non-negative integer, got -1"),
    ],
)
def test_bad_metadata(device, replaced, message):
    arguments = {**GOOD, **replaced}
    on_device = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    clustered.refused(gpn_ops.mask, message, **on_device)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        (
            {"edge_index": torch.tensor([[0, 1, 2], [1, 3, 0]])},
            "edge_index: expected node ids from 0 to num_nodes - 1 = 2, got 3 at edge_index[1, 1]",
        ),
        (
            {"cluster": torch.tensor([0, 2, 1])},
            "cluster: expected ids from 0 to num_clusters - 1 = 1, got 2 at cluster[1]",
        ),
        (
            {"cluster": torch.tensor([0, 1, -1])},
            "cluster: expected ids from 0 to num_clusters - 1 = 1, got -1 at cluster[2]",
        ),
    ],
)
def test_bad_values(replaced, message):
    """On CUDA these trip device-side assertions."""
    clustered.refused(gpn_ops.mask, message, **{**GOOD, **replaced})
