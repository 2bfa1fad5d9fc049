"""coarsen: against S^T A S, scipy, PyG's coalesce and the reference."""

import clustered
import graphs
import pytest
import scipy.sparse
import torch
from hypothesis import given
from torch.library import opcheck

import gpn_ops
from gpn_ops import reference
from gpn_ops.ops.coarsen import plain_coarsen, plain_coarsen_padded

LOOPS = pytest.mark.parametrize("self_loops", [False, True], ids=["dropped", "self_loops"])


def dense(coarse, num_clusters):
    """The matrix of a coarse graph; a coarse edge that is there twice would show as a sum."""
    return reference.dense_adjacency(coarse.edge_index, num_clusters, coarse.edge_attr)


def check_order(edge_index):
    key = edge_index[0] * (int(edge_index.max()) + 1 if edge_index.numel() else 1) + edge_index[1]
    assert bool((key[1:] > key[:-1]).all())


@LOOPS
@given(graph=clustered.clustered_graphs())
def test_equals_dense_formula(self_loops, graph):
    A = reference.dense_adjacency(graph.edge_index, graph.num_nodes, graph.scores)
    B = reference.dense_coarsen(A, reference.gen(graph.cluster).double())
    exists = reference.dense_adjacency(graph.edge_index, graph.num_nodes)
    exists = reference.dense_coarsen(exists, reference.gen(graph.cluster)) > 0
    if not self_loops:
        B.fill_diagonal_(0)
        exists.fill_diagonal_(False)
    coarse = gpn_ops.coarsen(graph.edge_index, graph.cluster, graph.scores, self_loops=self_loops)
    torch.testing.assert_close(dense(coarse, graph.num_clusters), B)
    # nonzero lists positions by row then column: the order that is promised.
    assert torch.equal(coarse.edge_index, exists.nonzero().t())
    for c, node in enumerate(coarse.representative.tolist()):
        assert node == graph.cluster.tolist().index(c)


@LOOPS
@clustered.REDUCTIONS
@pytest.mark.parametrize("width", [None, 1, 5])
@given(graph=clustered.clustered_graphs())
def test_equals_reference(reduce, self_loops, width, graph):
    attr = graph.scores if width is None else graph.scores[:, None] * torch.arange(1, width + 1)
    got = gpn_ops.coarsen(graph.edge_index, graph.cluster, attr, reduce, self_loops)
    wanted = reference.coarsen(graph.edge_index, graph.cluster, attr, reduce, self_loops)
    assert torch.equal(got.edge_index, wanted.edge_index)
    assert torch.equal(got.representative, wanted.representative)
    torch.testing.assert_close(got.edge_attr, wanted.edge_attr)
    without = gpn_ops.coarsen(graph.edge_index, graph.cluster, self_loops=self_loops)
    assert torch.equal(without.edge_index, wanted.edge_index)
    assert without.edge_attr is None


# Few clusters: many edges become one. Many: buckets and digits of the sort come into play.
SIZES = pytest.mark.parametrize(
    ("num_nodes", "num_edges", "num_clusters"),
    [(1000, 200_000, 1), (1000, 200_000, 40), (100_000, 300_000, 30_000), (200_000, 50_000, 200_000)],
)


@SIZES
@LOOPS
def test_larger_graphs_equal_scipy_and_pyg(device, num_nodes, num_edges, num_clusters, self_loops):
    graph = clustered.random_clustered(num_nodes, num_edges, num_clusters)
    weight = torch.ones(num_edges, dtype=torch.float64)
    there = graph.to(device)
    coarse = gpn_ops.coarsen(there.edge_index, there.cluster, weight.to(device), self_loops=self_loops)
    check_order(coarse.edge_index)

    row, col = graph.cluster[graph.edge_index]
    kept = (row != col) | self_loops
    row, col, weight = row[kept], col[kept], weight[kept]
    matrix = scipy.sparse.coo_matrix((weight, (row, col)), (num_clusters, num_clusters)).tocsr()
    matrix.sort_indices()
    matrix = matrix.tocoo()
    assert coarse.edge_index.tolist() == [matrix.row.tolist(), matrix.col.tolist()]
    assert coarse.edge_attr.tolist() == matrix.data.tolist()

    utils = pytest.importorskip("torch_geometric.utils")
    edge_index, attr = utils.coalesce(torch.stack([row, col]), weight, num_nodes=num_clusters)
    assert torch.equal(coarse.edge_index.cpu(), edge_index)
    assert torch.equal(coarse.edge_attr.cpu(), attr)


def test_hub(device):
    """All edges in one row: one bucket of the sort holds them all."""
    col = torch.arange(100_000).flip(0)
    edge_index = torch.stack([torch.zeros_like(col), col]).to(device)
    coarse = gpn_ops.coarsen(edge_index, torch.arange(100_000, device=device), self_loops=True)
    assert torch.equal(coarse.edge_index.cpu(), torch.stack([torch.zeros_like(col), torch.arange(100_000)]))


@clustered.EVERY_DTYPE
@clustered.REDUCTIONS
def test_dtypes(device, dtype, reduce):
    graph = clustered.random_clustered(50, 400, 6).to(device)
    attr = graph.scores.to(dtype)
    got = gpn_ops.coarsen(graph.edge_index.int(), graph.cluster, attr, reduce).edge_attr
    wanted = reference.coarsen(graph.edge_index, graph.cluster, attr.double(), reduce).edge_attr
    assert got.dtype == dtype
    torch.testing.assert_close(got, wanted.to(dtype))


def test_representative_gives_the_batch(device):
    batch = torch.tensor([0, 0, 0, 1, 1, 3], device=device)
    cluster = torch.tensor([0, 1, 0, 2, 2, 3], device=device)
    coarse = gpn_ops.coarsen(torch.zeros(2, 0, dtype=torch.int64, device=device), cluster)
    assert batch[coarse.representative].tolist() == [0, 0, 1, 3]


@pytest.mark.parametrize("num_nodes", [0, 3])
def test_no_edges(device, num_nodes):
    edge_index = torch.zeros(2, 0, dtype=torch.int64, device=device)
    cluster = torch.arange(num_nodes, device=device)
    for attr in (None, torch.zeros(0, 4, device=device)):
        coarse = gpn_ops.coarsen(edge_index, cluster, attr)
        assert coarse.edge_index.shape == (2, 0)
        assert coarse.representative.tolist() == list(range(num_nodes))
    assert coarse.edge_attr.shape == (0, 4)


def test_arguments_of_any_layout(device):
    graph = clustered.random_clustered(50, 300, 8).to(device)
    attr = torch.randn(300, 3, device=device)
    wanted = gpn_ops.coarsen(graph.edge_index, graph.cluster, attr)
    spread = torch.stack([graph.cluster, graph.cluster], dim=1)[:, 0]
    for edge_index in (graph.edge_index.t().contiguous().t(), graph.edge_index.int()):
        got = gpn_ops.coarsen(edge_index, spread, attr.t().contiguous().t())
        assert all(map(torch.equal, got, wanted))


def test_thread_count_does_not_matter():
    graph = clustered.random_clustered(60_000, 200_000, 9_000)
    attr = torch.randn(200_000, 3)
    clustered.same_bits_for_any_thread_count(
        lambda: [*gpn_ops.coarsen(graph.edge_index, graph.cluster, attr)]
    )


@LOOPS
@clustered.REDUCTIONS
def test_gradcheck(device, reduce, self_loops):
    graph = clustered.random_clustered(12, 40, 4).to(device)
    attr = torch.randn(40, 2, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda a: gpn_ops.coarsen(graph.edge_index, graph.cluster, a, reduce, self_loops).edge_attr, attr
    )


@pytest.mark.parametrize("with_slot", [False, True])
@LOOPS
def test_opcheck(device, self_loops, with_slot):
    graph = clustered.random_clustered(20, 60, 5).to(device)
    opcheck(torch.ops.gpn.coarsen, (graph.edge_index, graph.cluster, self_loops, with_slot))


def test_compile(device):
    lists = []
    for seed, size in enumerate((20, 31, 47)):
        graph = clustered.random_clustered(size, 3 * size, size // 3, seed).to(device)
        lists.append((graph.edge_index, graph.cluster, graph.scores))
    clustered.check_compiled(gpn_ops.coarsen, lists, differentiable=2)


@LOOPS
@given(graph=clustered.clustered_graphs())
def test_plain_pytorch(self_loops, graph):
    """What a device without a kernel runs."""
    if graph.num_nodes == 0:
        return
    got = plain_coarsen(graph.edge_index, graph.cluster, self_loops, True)
    wanted = torch.ops.gpn.coarsen(graph.edge_index, graph.cluster, self_loops, True)
    assert all(map(torch.equal, got, wanted))


def exact_and_padded(graph, more_clusters, more_edges, reduce="sum", self_loops=False):
    exact = gpn_ops.coarsen(graph.edge_index, graph.cluster, graph.scores, reduce, self_loops)
    capacity = (exact.representative.size(0) + more_clusters, exact.edge_index.size(1) + more_edges)
    arguments = (graph.edge_index, graph.cluster, graph.scores, reduce, self_loops)
    return exact, gpn_ops.coarsen(*arguments, capacity=capacity)


@LOOPS
@clustered.REDUCTIONS
@pytest.mark.parametrize("more", [(0, 0), (3, 0), (0, 7)])
@given(graph=clustered.clustered_graphs())
def test_capacity(reduce, self_loops, more, graph):
    exact, padded = exact_and_padded(graph, *more, reduce, self_loops)
    num_clusters, num_edges = exact.representative.size(0), exact.edge_index.size(1)
    assert padded.count.tolist() == [num_clusters, num_edges]
    assert torch.equal(padded.edge_index[:, :num_edges], exact.edge_index)
    assert torch.equal(padded.edge_attr[:num_edges], exact.edge_attr)
    assert torch.equal(padded.representative[:num_clusters], exact.representative)
    assert bool((padded.edge_index[:, num_edges:] == -1).all())
    assert bool((padded.representative[num_clusters:] == -1).all())
    assert bool((padded.edge_attr[num_edges:] == 0).all())


def test_capacity_with_integer_attributes(device):
    graph = clustered.random_clustered(60, 300, 9).to(device)
    attr = torch.arange(300, device=device)
    exact = gpn_ops.coarsen(graph.edge_index, graph.cluster, attr, "max")
    num_edges = exact.edge_index.size(1)
    padded = gpn_ops.coarsen(graph.edge_index, graph.cluster, attr, "max", capacity=(9, num_edges + 2))
    assert padded.edge_attr.tolist() == [*exact.edge_attr.tolist(), 0, 0]
    short = gpn_ops.coarsen(graph.edge_index, graph.cluster, attr, "max", capacity=(9, num_edges - 1))
    assert bool((short.edge_attr == torch.iinfo(torch.int64).min).all())


@pytest.mark.parametrize("more", [(-1, 5), (5, -1), (-1, -1)])
@clustered.REDUCTIONS
def test_too_small_a_capacity_gives_no_graph(device, reduce, more):
    graph = clustered.random_clustered(60, 300, 9).to(device)
    exact, padded = exact_and_padded(graph, *more, reduce)
    assert padded.count.tolist() == [exact.representative.size(0), exact.edge_index.size(1)]
    assert bool((padded.edge_index == -1).all())
    assert bool((padded.representative == -1).all())
    assert bool(padded.edge_attr.isnan().all())


@LOOPS
@pytest.mark.parametrize("more", [(0, 0), (2, 3), (-1, 0), (0, -1)])
@given(graph=clustered.clustered_graphs())
def test_capacity_in_plain_pytorch(self_loops, more, graph):
    if graph.num_nodes == 0:
        return
    some = torch.rand(graph.edge_index.size(1)) < 0.7
    for takes_part in (None, some):
        options = (self_loops, True, None, not self_loops, takes_part)
        edges, _, representative, _ = plain_coarsen(graph.edge_index, graph.cluster, *options)
        sizes = (max(representative.size(0) + more[0], 0), max(edges.size(1) + more[1], 0))
        arguments = (graph.edge_index, graph.cluster, *sizes, *options)
        got = torch.ops.gpn.coarsen_padded(*arguments)
        assert all(map(torch.equal, plain_coarsen_padded(*arguments), got))


@LOOPS
@given(graph=clustered.clustered_graphs())
def test_edges_that_take_no_part(self_loops, graph):
    if graph.num_nodes == 0:
        return
    takes_part = torch.rand(graph.edge_index.size(1)) < 0.7
    options = (self_loops, True, None, not self_loops)
    got = torch.ops.gpn.coarsen(graph.edge_index, graph.cluster, *options, takes_part)
    edges, slot, representative, order = torch.ops.gpn.coarsen(
        graph.edge_index[:, takes_part], graph.cluster, *options
    )
    assert torch.equal(got[0], edges)
    assert torch.equal(got[1][takes_part], slot)
    assert bool((got[1][~takes_part] == -1).all())
    assert torch.equal(got[2], representative)
    if not self_loops:
        owner, inner, begin = got[3].split([*takes_part.shape, *takes_part.shape, graph.num_nodes + 1])
        expected = order.split([*slot.shape, *slot.shape, graph.num_nodes + 1])
        number = torch.cat([takes_part.nonzero().view(-1), torch.tensor([-1])])
        assert torch.equal(owner[: slot.numel()], expected[0])
        assert torch.equal(inner[: slot.numel()].long(), number[expected[1].long()])
        assert torch.equal(begin, expected[2])


def test_edges_that_take_no_part_are_checked(device):
    takes_part = torch.tensor([True, False, True], device=device)
    cluster, edges = CLUSTER.to(device), EDGES.clone().to(device)
    if device.type == "cpu":
        with pytest.raises(RuntimeError, match=r"batch: .* from graph 0 to graph 1 at edge_index\[:, 1\]"):
            torch.ops.gpn.coarsen(edges, cluster, False, False, torch.tensor([0, 0, 1]), False, takes_part)
        edges[0, 1] = 7
        with pytest.raises(RuntimeError, match=r"edge_index: .* got 7 at edge_index\[0, 1\]"):
            torch.ops.gpn.coarsen(edges, cluster, takes_part=takes_part)


def test_capacity_opcheck_and_compile(device):
    graph = clustered.random_clustered(20, 60, 5).to(device)
    opcheck(torch.ops.gpn.coarsen_padded, (graph.edge_index, graph.cluster, 7, 50, False, True))
    takes_part = torch.rand(60, device=device) < 0.7
    more = {"with_order": True, "takes_part": takes_part}
    opcheck(torch.ops.gpn.coarsen_padded, (graph.edge_index, graph.cluster, 7, 50), more)
    opcheck(torch.ops.gpn.coarsen, (graph.edge_index, graph.cluster), more)
    lists = []
    for seed, size in enumerate((20, 31, 47)):
        graph = clustered.random_clustered(size, 3 * size, size // 3, seed).to(device)
        lists.append((graph.edge_index, graph.cluster, graph.scores))

    def padded(edge_index, cluster, scores):
        return gpn_ops.coarsen(edge_index, cluster, scores, capacity=(cluster.size(0), edge_index.size(1)))

    clustered.check_compiled(padded, lists, differentiable=2)


@pytest.mark.parametrize("some", [False, True])
@clustered.EVERY_DTYPE
def test_a_mask_is_the_same_with_the_order_that_coarsening_found(device, dtype, some):
    graph = clustered.random_clustered(60, 400, 9).to(device)
    scores = graph.scores.to(dtype).requires_grad_()
    takes_part = torch.arange(400, device=device) % 3 > 0 if some else None
    *_, order = torch.ops.gpn.coarsen(graph.edge_index, graph.cluster, with_order=True, takes_part=takes_part)
    got = torch.ops.gpn.mask(graph.edge_index, scores, graph.cluster, 9, order, takes_part)
    expected = torch.ops.gpn.mask(graph.edge_index, scores, graph.cluster, 9, None, takes_part)
    assert all(map(torch.equal, got, expected))
    weight = torch.rand_like(got[0])
    grads = (torch.autograd.grad(mask, scores, weight)[0] for mask, _ in (got, expected))
    assert torch.equal(*grads)
    row, col = graph.cluster[graph.edge_index]
    owner, inner, begin = order.long().split([400, 400, 61])
    num_inner = int(((row == col) & (True if takes_part is None else takes_part)).sum())
    assert torch.equal(owner[:num_inner], row[inner[:num_inner]])
    assert begin.tolist() == [int((owner[:num_inner] < c).sum()) for c in range(61)]
    assert bool((owner[num_inner:] == -1).all())
    opcheck(torch.ops.gpn.mask, (graph.edge_index, scores, graph.cluster, 9, order, takes_part))


@clustered.EVERY_DTYPE
def test_a_mask_of_the_edges_that_take_part(device, dtype):
    graph = clustered.random_clustered(60, 400, 9).to(device)
    scores = graph.scores.to(dtype).requires_grad_()
    takes_part = torch.rand(400, device=device) < 0.7
    got = torch.ops.gpn.mask(graph.edge_index, scores, graph.cluster, 9, None, takes_part)
    expected = gpn_ops.mask(graph.edge_index[:, takes_part], scores[takes_part], graph.cluster, 9)
    assert all(map(torch.equal, got, expected))
    weight = torch.rand_like(got[0])
    for twice in (False, True):
        grads = [
            torch.autograd.grad(mask, scores, weight, retain_graph=True, create_graph=twice)[0]
            for mask, _ in (got, expected)
        ]
        assert torch.equal(*grads)
    with pytest.raises(RuntimeError, match=r"takes_part: expected shape \[num_edges\] = \[400\], got \[3\]"):
        torch.ops.gpn.mask(graph.edge_index, scores, graph.cluster, 9, None, takes_part[:3])


EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])
CLUSTER = torch.tensor([0, 1, 1])


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"edge_index": EDGES.float()}, "edge_index: expected an int64 or int32 tensor, got float32"),
        ({"edge_index": EDGES[0]}, "edge_index: expected shape [2, num_edges], got [3]"),
        ({"cluster": CLUSTER.int()}, "cluster: expected an int64 tensor, got int32"),
        ({"cluster": CLUSTER[None]}, "cluster: expected shape [num_nodes], got [1, 3]"),
        (
            {"edge_attr": torch.ones(3, dtype=torch.int64)},
            "edge_attr: expected a float32, float64, float16 or bfloat16 tensor, got int64, which only the "
            "reduction 'max' takes",
        ),
        (
            {"edge_attr": torch.ones(4, 2)},
            "edge_attr: expected shape [num_edges, ...] = [3, ...], got [4, 2]",
        ),
        ({"batch": CLUSTER.int()}, "batch: expected an int64 tensor, got int32"),
        ({"batch": CLUSTER[:2]}, "batch: expected shape [num_nodes] = [3], got [2]"),
        (
            {"edge_attr": torch.ones(3), "reduce": "prod"},
            "reduce: expected 'sum', 'mean' or 'max', got 'prod'",
        ),
        ({"capacity": (3, -1)}, "capacity: expected a non-negative integer, got -1"),
        ({"capacity": 3}, "capacity: expected (max_clusters, max_edges), got 3"),
        ({"capacity": (3,)}, "capacity: expected (max_clusters, max_edges), got (3,)"),
        ({"capacity": (3, None)}, "capacity: expected (max_clusters, max_edges), got (3, None)"),
        ({"capacity": (3, 4.0)}, "capacity: expected (max_clusters, max_edges), got (3, 4.0)"),
    ],
)
def test_bad_metadata(device, replaced, message):
    arguments = {"edge_index": EDGES, "cluster": CLUSTER, **replaced}
    on_device = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    clustered.refused(gpn_ops.coarsen, message, **on_device)


@pytest.mark.parametrize(
    ("edges", "cluster", "message"),
    [
        (
            [[0, 1, 3], [1, 2, 0]],
            [0, 1, 1],
            "edge_index: expected node ids from 0 to num_nodes - 1 = 2, got 3 at edge_index[0, 2]",
        ),
        (
            [[0, 1, 2], [1, -1, 0]],
            [0, 1, 1],
            "edge_index: expected node ids from 0 to num_nodes - 1 = 2, got -1 at edge_index[1, 1]",
        ),
        (
            [[0], [1]],
            [0, -1, 1],
            "cluster: expected ids from 0 to num_nodes - 1 = 2, got -1 at cluster[1]",
        ),
        ([[0], [1]], [0, 3, 1], "cluster: expected ids from 0 to num_nodes - 1 = 2, got 3 at cluster[1]"),
        ([[0], [1]], [0, 2, 0], "cluster: expected every id from 0 to 2, got no node with id 1"),
        ([[0], [0]], [], "edge_index: expected no edges because num_nodes is 0, got 1 edges"),
    ],
)
def test_bad_values(edges, cluster, message):
    """On CUDA these trip device-side assertions."""
    clustered.refused(gpn_ops.coarsen, message, torch.tensor(edges), torch.tensor(cluster, dtype=torch.int64))


@pytest.mark.parametrize("with_attr", [False, True])
def test_an_edge_between_two_graphs(with_attr):
    """On CUDA it trips a device-side assertion."""
    edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 0, 3, 2, 2]])
    cluster, batch = torch.tensor([0, 0, 1, 1]), torch.tensor([4, 4, 7, 7])
    edge_attr = torch.ones(5) if with_attr else None
    message = "batch: expected every edge inside one graph, got an edge from graph 4 to graph 7"
    message += " at edge_index[:, 4]"
    clustered.refused(gpn_ops.coarsen, message, edge_index, cluster, edge_attr, batch=batch)
    gpn_ops.coarsen(
        edge_index[:, :4], cluster, edge_attr if edge_attr is None else edge_attr[:4], batch=batch
    )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_the_first_edge_between_two_graphs_is_named(dtype):
    num_nodes = 30_000
    edge_index = graphs.path(num_nodes).to(dtype)
    batch = torch.arange(num_nodes) // 10_000
    bad = (batch[edge_index[0].long()] != batch[edge_index[1].long()]).nonzero().view(-1)
    assert bad.numel() == 4
    first = int(bad[0])
    row, col = batch[edge_index[:, first].long()].tolist()
    message = f"batch: expected every edge inside one graph, got an edge from graph {row} to graph {col}"
    message += f" at edge_index[:, {first}]"
    cluster = torch.arange(num_nodes)
    clustered.refused(gpn_ops.coarsen, message, edge_index, cluster, batch=batch)
    good = torch.ones(edge_index.size(1), dtype=torch.bool)
    good[bad] = False
    with_batch = gpn_ops.coarsen(edge_index[:, good], cluster, batch=batch)
    assert torch.equal(with_batch.edge_index, gpn_ops.coarsen(edge_index[:, good], cluster).edge_index)
