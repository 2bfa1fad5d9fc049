"""ParsePooling, SelectParse and ConnectClusters: the formulas of the paper, and what each option changes."""

import copy
import re

import pytest
import torch

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import graphs
import naive
import submodules
from torch.autograd import forward_ad
from torch_geometric.nn import GCNConv
from torch_geometric.nn.pool.connect import Connect, ConnectOutput
from torch_geometric.nn.pool.select import Select, SelectOutput

import gpn_ops
from gpn_ops import reference
from gpn_ops.nn import ConnectClusters, EdgeScorer, ParseHierarchy, ParsePooling, SelectParse

CHANNELS = 6


def simple_graph(num_nodes, num_edges, seed=0, device="cpu"):
    """A random graph without duplicates, some nodes of which are isolated."""
    if num_edges == 0:
        return torch.empty(2, 0, dtype=torch.int64, device=device)
    edge_index = graphs.erdos_renyi(num_nodes, num_edges, torch.Generator().manual_seed(seed))
    return edge_index.unique(dim=1).to(device)


def features(num_nodes, seed=1, device="cpu", dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_nodes, CHANNELS, generator=generator, dtype=dtype).to(device)


def layer(device="cpu", seed=0, **options):
    torch.manual_seed(seed)
    return ParsePooling(CHANNELS, **options).double().to(device)


def sparse(A):
    return A.nonzero().t()


# ------------------------------------------------------------------------------------------------------------
# The formulas
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scorer_layers", [1, 2, 3])
@pytest.mark.parametrize("multiset_layers", [1, 2])
@pytest.mark.parametrize("with_attn", [False, True])
def test_equals_the_dense_formulas(device, scorer_layers, multiset_layers, with_attn):
    edge_index = simple_graph(20, 25, device=device)
    x, attn = features(20, 1, device), features(20, 2, device) if with_attn else None
    pool = layer(device, scorer_layers=scorer_layers, multiset_layers=multiset_layers)
    out, dense = pool(x, edge_index, attn=attn), naive.pool(pool, x, edge_index, attn)

    assert torch.equal(out.cluster, dense.cluster)
    assert 1 < out.x.size(0) < 20
    assert torch.equal(out.edge_index, sparse(dense.A.clone().fill_diagonal_(0)))
    assert out.edge_attr is None
    torch.testing.assert_close(out.score, dense.mask)
    torch.testing.assert_close(out.x, dense.x)


def test_gradients_are_those_of_the_dense_formulas(device):
    edge_index = simple_graph(20, 25, device=device)
    x, attn = features(20, 1, device).requires_grad_(), features(20, 2, device).requires_grad_()
    pool = layer(device)
    inputs = {"x": x, "attn": attn, **dict(pool.named_parameters())}
    weight = torch.randn_like(naive.pool(pool, x, edge_index, attn).x)

    actual = torch.autograd.grad(pool(x, edge_index, attn=attn).x, inputs.values(), weight)
    wanted = torch.autograd.grad(naive.pool(pool, x, edge_index, attn).x, inputs.values(), weight)
    for name, left, right in zip(inputs, actual, wanted, strict=True):
        assert bool(right.abs().max() > 0), name
        torch.testing.assert_close(left, right, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("multiset", ["deepsets", "sum"])
@pytest.mark.parametrize("self_loops", [False, True])
def test_kept_for_backward_or_computed_anew(device, multiset, self_loops):
    edge_index = simple_graph(20, 25, device=device)
    x, attn = features(20, 1, device).requires_grad_(), features(20, 2, device).requires_grad_()
    options = {"multiset": multiset, "self_loops": self_loops, "scorer_layers": 3, "multiset_layers": 2}
    results = []
    for recompute in (True, False):
        pool = layer(device, recompute=recompute, **options)
        out = pool(x, edge_index, attn=attn)
        grads = torch.autograd.grad(out.x.sin().sum(), [x, attn, *pool.parameters()])
        results.append((out, grads))
    (anew, grads_anew), (kept, grads_kept) = results
    assert torch.equal(anew.cluster, kept.cluster)
    assert torch.equal(anew.edge_index, kept.edge_index)
    torch.testing.assert_close(kept.x, anew.x, atol=1e-12, rtol=0)
    torch.testing.assert_close(kept.score, anew.score, atol=1e-12, rtol=0)
    for actual, wanted in zip(grads_kept, grads_anew, strict=True):
        assert bool(wanted.abs().max() > 0)
        torch.testing.assert_close(actual, wanted, atol=1e-12, rtol=0)


def test_gradcheck(device):
    edge_index = simple_graph(7, 8, device=device)
    pool = layer(device)
    # Small steps do not change the clusters, on which the result does depend.
    assert torch.autograd.gradcheck(
        lambda x: pool(x, edge_index)[0], features(7, device=device).requires_grad_()
    )


def test_gradients_reach_the_scorer_even_on_one_edge(device):
    pool = layer(device)
    edge_index = torch.tensor([[0, 1], [1, 0]], device=device)
    pool(features(2, device=device), edge_index).x.square().sum().backward()
    assert all(bool(p.grad.abs().max() > 0) for p in pool.select.scorer.lins.parameters())


@pytest.mark.parametrize("multiset", ["sum", "mean", "max"])
def test_other_multiset_functions(device, multiset):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    pool = layer(device, multiset=multiset)
    out = pool(x, edge_index)
    pooled = reference.reduce(x, out.cluster, out.x.size(0), multiset)
    torch.testing.assert_close(out.x, pooled * out.score[:, None])


def test_own_multiset_module(device):
    class Count(torch.nn.Module):
        def forward(self, x, cluster, num_clusters):
            return cluster.bincount(minlength=num_clusters)[:, None].to(x.dtype)

    out = layer(device, multiset=Count())(features(3, device=device), graphs.star(3).to(device))
    torch.testing.assert_close(out.x, 3 * out.score[:, None])


# ------------------------------------------------------------------------------------------------------------
# Select and connect
# ------------------------------------------------------------------------------------------------------------


def test_select_and_connect_are_those_of_pyg(device):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    pool = layer(device)
    assert isinstance(pool.select, Select)
    assert isinstance(pool.connect, Connect)
    batch = torch.arange(2, device=device).repeat_interleave(10)
    edge_index = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
    out = pool(x, edge_index, batch=batch)

    selected = pool.select(x, edge_index)
    assert isinstance(selected, SelectOutput)
    assert torch.equal(selected.node_index, torch.arange(20, device=device))
    assert torch.equal(selected.cluster_index, out.cluster)
    assert (selected.num_nodes, selected.num_clusters) == (20, out.x.size(0))
    torch.testing.assert_close(selected.weight, out.score[out.cluster])

    connected = pool.connect(selected, edge_index, batch=batch)
    assert isinstance(connected, ConnectOutput)
    assert torch.equal(connected.edge_index, out.edge_index)
    assert torch.equal(connected.batch, out.batch)


def test_connect_is_equation_2_if_inner_edges_are_kept(device):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    weight = torch.rand(edge_index.size(1), device=device, dtype=torch.float64)
    selected = layer(device).select(x, edge_index)
    S = reference.gen(selected.cluster_index).double()

    for given, connect in (
        (weight, ConnectClusters(self_loops=True)),
        (None, ConnectClusters("sum", True, True)),
    ):
        A = reference.dense_adjacency(edge_index, 20, weight if given is not None else None).double()
        expected = reference.dense_coarsen(A, S)
        out = connect(selected, edge_index, given)
        actual = reference.dense_adjacency(out.edge_index, S.size(1), out.edge_attr).double()
        torch.testing.assert_close(actual, expected)
        assert torch.equal(out.edge_index, sparse(expected))


def test_connect_takes_the_nodes_in_any_order(device):
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]], device=device)
    shuffled = SelectOutput(
        torch.tensor([2, 0, 1], device=device), 3, torch.tensor([1, 0, 0], device=device), 2
    )
    out = ConnectClusters()(shuffled, edge_index, torch.tensor([1.0, 2.0, 3.0, 4.0], device=device))
    assert out.edge_index.tolist() == [[0, 1], [1, 0]]
    assert out.edge_attr.tolist() == [3, 4]  # those of nodes 1 and 2: 0 and 1 are in one cluster


def test_connect_refuses_dropped_nodes():
    dropped = SelectOutput(torch.tensor([0]), 3, torch.tensor([0]), 1)
    with pytest.raises(ValueError, match="expected each of 3 nodes in one cluster, got 1"):
        ConnectClusters()(dropped, torch.empty(2, 0, dtype=torch.int64))


# ------------------------------------------------------------------------------------------------------------
# Options
# ------------------------------------------------------------------------------------------------------------


def test_weighted_counts_the_edges_between_clusters(device):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    out = layer(device, weighted=True)(x, edge_index)
    S = reference.gen(out.cluster)
    A = reference.dense_coarsen(reference.dense_adjacency(edge_index, 20), S).fill_diagonal_(0)
    assert torch.equal(out.edge_attr, A[out.edge_index[0], out.edge_index[1]])
    assert bool((out.edge_attr > 1).any())


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)], ids=str)
def test_edge_attributes_of_any_width(device, reduce, shape):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    edge_attr = torch.randn(edge_index.size(1), *shape, device=device)
    out = layer(device, edge_reduce=reduce)(x, edge_index, edge_attr)
    expected = reference.coarsen(edge_index, out.cluster, edge_attr, reduce)
    assert out.edge_attr.shape == (out.edge_index.size(1), *shape)
    torch.testing.assert_close(out.edge_attr, expected.edge_attr)


def undirected_set(edge_index):
    return {(min(i, j), max(i, j)) for i, j in edge_index.t().tolist()}


def without_others(parsed):
    """With the edges that took part alone, also where others are listed, as on a GPU."""
    if parsed.took_part is None:
        return parsed
    part = parsed.took_part
    return parsed._replace(edge_index=parsed.edge_index[:, part], scores=parsed.scores[part], took_part=None)


@pytest.mark.parametrize("self_loops", [False, True])
def test_dropped_edges_are_gone_from_everything(device, self_loops):
    edge_index, x = simple_graph(30, 90, device=device), features(30, device=device)
    edge_attr = torch.arange(edge_index.size(1), device=device, dtype=torch.float64)
    pool = layer(device, drop_edge=0.5, self_loops=self_loops)
    torch.manual_seed(3)
    parsed = without_others(pool.select(x, edge_index, drop_edge=0.5, record=True))
    torch.manual_seed(3)
    out = pool(x, edge_index, edge_attr, record=True)

    # Whole undirected edges, self-loops included, about half of them.
    took_part = undirected_set(parsed.edge_index)
    offered = undirected_set(edge_index) | ({(i, i) for i in range(30)} if self_loops else set())
    assert took_part < offered
    assert 0.3 * len(offered) < len(took_part) < 0.7 * len(offered)
    both = parsed.edge_index[:, parsed.edge_index[0] != parsed.edge_index[1]]
    assert {tuple(e) for e in both.t().tolist()} == {tuple(e) for e in both.flip(0).t().tolist()}
    assert torch.equal(
        parsed.kept, torch.tensor([tuple(sorted(e)) in took_part for e in edge_index.t().tolist()])
    )

    # The layer without drop-edge, on the edges that took part.
    scores = naive.edge_scores(pool.select.scorer, x, parsed.edge_index)
    assert torch.equal(out.cluster, reference.algorithm1(parsed.edge_index, scores, 30))
    expected = reference.mask(parsed.edge_index, scores, out.cluster, out.x.size(0))
    torch.testing.assert_close(out.score, expected.mask)
    assert torch.equal(out.inner_edges, expected.count)
    coarse = reference.coarsen(edge_index[:, parsed.kept], out.cluster, edge_attr[parsed.kept])
    assert torch.equal(out.edge_index, coarse.edge_index)
    torch.testing.assert_close(out.edge_attr, coarse.edge_attr)


def test_drop_edge_is_for_training_only():
    edge_index, x = simple_graph(30, 90), features(30)
    plain, dropping = layer(), layer(drop_edge=0.5)
    assert not torch.equal(dropping(x, edge_index).cluster, plain(x, edge_index).cluster)
    dropping.eval()
    assert torch.equal(dropping(x, edge_index).cluster, plain(x, edge_index).cluster)


@pytest.mark.parametrize("recompute", [True, False])
def test_directed_scores_differ_by_dropout_and_in_training_only(device, recompute):
    edge_index, x = simple_graph(30, 90, device=device), features(30, device=device)
    order = {tuple(edge): k for k, edge in enumerate(edge_index.t().tolist())}
    reverse = [order[j, i] for i, j in order]

    def scores(directed, dropout, training):
        pool = layer(
            device, scorer_layers=2, dropout=dropout, directed_scores=directed, recompute=recompute
        ).train(training)
        parsed = pool.select(x, edge_index.to(torch.int32), record=True)
        assert torch.equal(parsed.cluster, gpn_ops.parse(edge_index, parsed.scores, 30))
        return parsed.scores

    apart = scores(True, 0.5, True)
    assert bool((apart != apart[reverse]).any())
    once = scores(False, 0.5, True)
    assert torch.equal(once, once[reverse])
    assert torch.equal(scores(True, 0.5, False), scores(False, 0.5, False))
    torch.testing.assert_close(scores(True, 0.0, True), scores(False, 0.0, True), atol=1e-14, rtol=0)


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("scorer_layers", [1, 2, 3])
def test_directed_scores_without_dropout_have_the_same_gradients(device, scorer_layers, recompute):
    edge_index, x = simple_graph(30, 90, device=device), features(30, device=device).requires_grad_()
    grads = []
    for directed in (False, True):
        pool = layer(
            device,
            scorer_layers=scorer_layers,
            directed_scores=directed,
            recompute=recompute,
            self_loops=True,
        )
        loss = pool(x, edge_index).x.sin().sum()
        grads.append(torch.autograd.grad(loss, [x, *pool.parameters()]))
    for once, apart in zip(*grads, strict=True):
        assert bool(once.abs().max() > 0)
        torch.testing.assert_close(apart, once, atol=1e-12, rtol=0)


def test_all_edges_dropped():
    out = layer(drop_edge=1.0)(features(5), graphs.ring(5))
    assert out.cluster.tolist() == [0, 1, 2, 3, 4]
    assert out.edge_index.numel() == 0
    assert out.score.tolist() == [1] * 5


def test_self_loops_compete_and_count(device):
    edge_index = simple_graph(20, 25, device=device)
    loop = torch.tensor([[3], [3]], device=device)
    edge_index = torch.cat([loop, edge_index], dim=1)  # one node has its self-loop already
    x = features(20, device=device)
    pool = layer(device, self_loops=True)
    out = pool(x, edge_index, record=True)

    node = torch.arange(20, device=device)
    others = node[node != 3]
    competing = torch.cat([edge_index, torch.stack([others, others])], dim=1)
    scores = naive.edge_scores(pool.select.scorer, x, competing)
    assert torch.equal(out.cluster, reference.algorithm1(competing, scores, 20))
    assert not torch.equal(out.cluster, reference.algorithm1(edge_index, scores[: edge_index.size(1)], 20))
    expected = reference.mask(competing, scores, out.cluster, out.x.size(0))
    torch.testing.assert_close(out.score, expected.mask)
    assert torch.equal(out.inner_edges, expected.count)
    assert bool((out.edge_index[0] != out.edge_index[1]).all())


# ------------------------------------------------------------------------------------------------------------
# Properties
# ------------------------------------------------------------------------------------------------------------


def test_permutation_equivariance(device):
    generator = torch.Generator().manual_seed(5)
    edge_index, x = simple_graph(40, 70, device=device), features(40, device=device)
    pool = layer(device)
    out = pool(x, edge_index)

    order = torch.randperm(40, generator=generator).to(device)  # new node k is old node order[k]
    new_name = order.argsort()
    shuffled = new_name[edge_index][:, torch.randperm(edge_index.size(1), generator=generator).to(device)]
    other = pool(x[order], shuffled)
    torch.testing.assert_close(pool.unpool(other.x, other.cluster), pool.unpool(out.x, out.cluster)[order])
    torch.testing.assert_close(other.score[other.cluster], out.score[out.cluster][order])

    # The same coarse graph, under the names that the clusters now have.
    renamed = torch.empty(out.x.size(0), dtype=torch.int64, device=device)
    renamed[out.cluster[order]] = other.cluster
    assert {tuple(e) for e in renamed[out.edge_index].t().tolist()} == {
        tuple(e) for e in other.edge_index.t().tolist()
    }


def test_unpool_inverts_the_assignment(device):
    edge_index, x = simple_graph(30, 40, device=device), features(30, device=device)
    pool = layer(device)
    out = pool(x, edge_index)
    lifted = pool.unpool(out.x, out.cluster)
    S = reference.gen(out.cluster).double()
    torch.testing.assert_close(lifted, S @ out.x)
    # Pooling the lifted features by their mean gives back what was lifted.
    torch.testing.assert_close(gpn_ops.reduce(lifted, out.cluster, out.x.size(0), "mean"), out.x)


def test_same_bits_on_every_run(device):
    edge_index, x = simple_graph(200, 600, device=device), features(200, device=device).requires_grad_()
    pool = layer(device)

    def run():
        out = pool(x, edge_index)
        return (out.x, *torch.autograd.grad(out.x.square().sum(), [x, *pool.parameters()]))

    assert all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))


def batch_of_graphs(sizes, device="cpu"):
    """Graphs side by side (one without edges, one without nodes), and their offsets."""
    parts = [simple_graph(n, 2 * n if n > 1 else 0, seed=n) for n in sizes]
    first = torch.tensor([0, *sizes]).cumsum(0)
    edge_index = torch.cat([part + start for part, start in zip(parts, first[:-1], strict=True)], dim=1)
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return parts, edge_index.to(device), batch.to(device), first


SIZES = (12, 1, 0, 20, 7)


def test_a_graph_does_not_depend_on_its_batch(device):
    parts, edge_index, batch, first = batch_of_graphs(SIZES, device)
    x = features(sum(SIZES), device=device)
    pool = layer(device)
    out = pool(x, edge_index, batch=batch)
    assert bool((out.batch.diff() >= 0).all())
    assert out.batch.unique().tolist() == [0, 1, 3, 4]
    for k, part in enumerate(parts):
        nodes = slice(first[k], first[k + 1])
        alone = pool(x[nodes], part.to(device))
        mine = (out.batch == k).nonzero().view(-1)
        torch.testing.assert_close(out.x[mine], alone.x)
        torch.testing.assert_close(out.score[mine], alone.score)
        offset = int(mine[0]) if mine.numel() else 0
        assert torch.equal(out.cluster[nodes] - offset, alone.cluster)
        mine_edges = out.batch[out.edge_index[0]] == k
        assert torch.equal(out.edge_index[:, mine_edges] - offset, alone.edge_index)


def test_given_the_scores_a_graph_has_the_same_bits_in_any_batch(device):
    parts, edge_index, _, first = batch_of_graphs(SIZES, device)
    generator = torch.Generator().manual_seed(0)
    x = features(sum(SIZES), dtype=torch.float32, device=device)
    edge_attr = torch.randn(edge_index.size(1), generator=generator).to(device)
    scores = torch.rand(edge_index.size(1), generator=generator).to(device)

    def run(edge_index, scores, edge_attr, x):
        cluster = gpn_ops.parse(edge_index, scores, x.size(0))
        coarse = gpn_ops.coarsen(edge_index, cluster, edge_attr)
        c = coarse.representative.numel()
        return cluster, coarse, gpn_ops.mask(edge_index, scores, cluster, c), gpn_ops.reduce(x, cluster, c)

    cluster, coarse, mask, sums = run(edge_index, scores, edge_attr, x)
    edges = clusters = coarse_edges = 0
    for k, part in enumerate(parts):
        nodes, mine = slice(first[k], first[k + 1]), slice(edges, edges + part.size(1))
        alone = run(part.to(device), scores[mine], edge_attr[mine], x[nodes])
        c, e = alone[3].size(0), alone[1].edge_index.size(1)
        assert torch.equal(cluster[nodes] - clusters, alone[0])
        assert torch.equal(
            coarse.edge_index[:, coarse_edges : coarse_edges + e] - clusters, alone[1].edge_index
        )
        assert torch.equal(coarse.edge_attr[coarse_edges : coarse_edges + e], alone[1].edge_attr)
        assert torch.equal(mask.mask[clusters : clusters + c], alone[2].mask)
        assert torch.equal(mask.count[clusters : clusters + c], alone[2].count)
        assert torch.equal(sums[clusters : clusters + c], alone[3])
        edges, clusters, coarse_edges = edges + part.size(1), clusters + c, coarse_edges + e
    assert clusters == coarse.representative.numel()


def test_one_directional_edges(device):
    # 0 chooses among its two edges; 1 and 2 choose nobody.
    x = features(3, device=device)
    edge_index = torch.tensor([[0, 0], [1, 2]], device=device)
    pool = layer(device)
    chosen = 1 + int(naive.edge_scores(pool.select.scorer, x, edge_index).argmax())
    out = pool(x, edge_index)
    assert int(out.cluster[chosen]) == int(out.cluster[0]) == 0
    assert out.x.size(0) == 2
    assert out.edge_index.tolist() == [[0], [1]]


@pytest.mark.parametrize("num_nodes", [0, 1, 4])
def test_graphs_without_edges(device, num_nodes):
    pool = layer(device)
    x = features(num_nodes, device=device).requires_grad_()
    out = pool(x, torch.empty(2, 0, dtype=torch.int64, device=device))
    assert out.cluster.tolist() == list(range(num_nodes))
    assert out.score.tolist() == [1] * num_nodes
    assert out.batch.tolist() == [0] * num_nodes
    out.x.sum().backward()
    assert x.grad.shape == x.shape


# ------------------------------------------------------------------------------------------------------------
# A module of modules
# ------------------------------------------------------------------------------------------------------------


@submodules.GRADIENTS
@pytest.mark.parametrize("options", [{}, {"recompute": False}, {"multiset": "max"}], ids=str)
def test_hooks_of_children_fire(device, options, gradients):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    submodules.check_hooks(layer(device, **options), lambda pool: pool(x, edge_index).x, gradients)


@submodules.GRADIENTS
@pytest.mark.parametrize("scorer_layers", [1, 2])
def test_children_of_a_users_own_take_effect(device, scorer_layers, gradients):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    plain = layer(device, scorer_layers=scorer_layers, multiset_layers=2)
    for pool in submodules.tripled_linears(plain):
        with torch.set_grad_enabled(gradients):
            out = pool(x, edge_index)
        expected = naive.pool(pool, x, edge_index)
        assert torch.equal(out.cluster, expected.cluster)
        torch.testing.assert_close(out.x, expected.x)


class Backwards(torch.nn.Module):
    """Edge scores of a user's own."""

    def forward(self, h, edge_index, undirected=None, directed=False):
        return -(edge_index[0] + edge_index[1]).to(h.dtype)


def test_steps_of_a_users_own_take_effect(device):
    edge_index, x = graphs.path(5).to(device), features(5, device=device)
    pool = layer(device)
    pool.select.scorer = Backwards()
    assert pool(x, edge_index).cluster.tolist() == [0] * 5
    pool.connect = ConnectClusters(self_loops=True)
    assert pool(x, edge_index).edge_index.tolist() == [[0], [0]]


@pytest.mark.parametrize("options", [{}, {"scorer_layers": 1}, {"recompute": False}], ids=str)
def test_flops_are_those_of_the_matrix_products(device, options):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    pool = layer(device, **options)
    num_pairs = edge_index.sort(dim=0).values.unique(dim=1).size(1)
    num_clusters = pool(x, edge_index).x.size(0)
    scoring = 2 * num_pairs * CHANNELS * (1 + (options.get("scorer_layers", 2) - 1) * CHANNELS)
    pooling = 2 * (20 + num_clusters) * CHANNELS * CHANNELS
    forward, backward = submodules.flops(lambda: pool(x.requires_grad_(), edge_index).x)
    assert forward == scoring + pooling
    assert backward >= 2 * forward


@pytest.mark.parametrize("multiset", ["deepsets", "sum", "mean", "max"])
@pytest.mark.parametrize("scorer_layers", [1, 2])
def test_gradient_penalty(device, scorer_layers, multiset):
    """A loss that has a gradient in it, as penalties of a critic do."""
    edge_index, x = simple_graph(12, 15, device=device), features(12, device=device).requires_grad_()
    pool = layer(device, scorer_layers=scorer_layers, multiset=multiset, recompute=False)
    parameters = list(pool.parameters())
    cluster = pool(x, edge_index).cluster

    def penalty(out):
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), [x, *parameters], materialize_grads=True)

    # With plain PyTorch in place of the operators.
    scores = naive.edge_scores(pool.select.scorer, x, edge_index)
    num_clusters = int(cluster.max()) + 1
    if multiset == "deepsets":
        pooled = naive.deepsets(pool.multiset, x, reference.gen(cluster).double())
    else:
        pooled = reference.reduce(x, cluster, num_clusters, multiset)
    expected = pooled * reference.mask(edge_index, scores, cluster, num_clusters).mask[:, None]
    for actual, wanted in zip(penalty(pool(x, edge_index).x), penalty(expected), strict=True):
        assert bool(wanted.abs().max() > 0)
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize(
    "options", [{}, {"scorer_layers": 1}, {"multiset": "max"}, {"recompute": False}], ids=str
)
def test_forward_mode_raises(device, options):
    edge_index, x = simple_graph(12, 15, device=device), features(12, device=device)
    pool = layer(device, **options)
    with pytest.raises(
        RuntimeError, match=r"forward-mode derivatives .* are not implemented; use reverse mode"
    ):
        torch.func.jvp(lambda x: pool(x, edge_index).x, (x,), (x,))
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward-mode derivatives"):
        pool(forward_ad.make_dual(x, x), edge_index)


@pytest.mark.parametrize(
    "options",
    [{}, {"recompute": False}, {"scorer_layers": 1, "multiset": "mean"}, {"multiset": "max"}],
    ids=str,
)
def test_transforms_of_torch_func(device, options):
    """Derivatives of both orders are those of autograd, or raise, whichever way levels are nested."""
    edge_index, x = simple_graph(12, 15, device=device), features(12, device=device)
    pool = layer(device, **options)
    parameters = {name: parameter.detach() for name, parameter in pool.named_parameters()}

    def loss(x, parameters=parameters):
        return torch.func.functional_call(pool, parameters, (x, edge_index)).x.tanh().sum()

    def of_autograd(x):
        return torch.autograd.grad(loss(x), x, create_graph=True)[0]

    of_func = torch.func.grad(loss)
    of_parameters = torch.func.grad(loss, argnums=1)(x, parameters)
    expected = torch.autograd.grad(pool(x, edge_index).x.tanh().sum(), list(pool.parameters()))
    for name, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(of_parameters[name], wanted)
    x.requires_grad_()
    torch.testing.assert_close(of_func(x), of_autograd(x))
    nested = (
        lambda: torch.func.grad(lambda x: of_func(x).square().sum())(x),
        lambda: torch.autograd.grad(of_func(x).square().sum(), x)[0],
    )
    if options in ({}, {"multiset": "max"}):  # The tiles of the scorer: no second derivatives.
        for second in nested:
            with pytest.raises(RuntimeError, match="second derivatives are not implemented"):
                second()
    else:
        wanted = torch.autograd.grad(of_autograd(x).square().sum(), x)[0]
        assert bool(wanted.abs().max() > 0)
        for second in nested:
            torch.testing.assert_close(second(), wanted)
    for forward_over_reverse in (
        lambda: torch.func.jvp(of_func, (x,), (x,)),
        lambda: torch.func.grad(lambda x: torch.func.jvp(loss, (x,), (x,))[1])(x),
    ):
        with pytest.raises(RuntimeError, match="forward-mode derivatives"):
            forward_over_reverse()


@submodules.NEEDS_VMAP_OF_VIEWS
def test_gradients_of_every_sample():
    edge_index, x = simple_graph(12, 15), features(12)
    pool = layer(scorer_layers=1, multiset="mean")
    gradient = torch.func.grad(lambda x: pool(x, edge_index).x.square().sum())
    samples = torch.stack([x, 2 * x, 3 * x])  # the same clusters
    torch.testing.assert_close(torch.vmap(gradient)(samples), torch.stack([*map(gradient, samples)]))


# ------------------------------------------------------------------------------------------------------------
# Manners
# ------------------------------------------------------------------------------------------------------------


def test_arguments_of_other_poolings_are_refused_by_name():
    with pytest.raises(TypeError, match="ratio"):
        ParsePooling(CHANNELS, ratio=0.5)
    with pytest.raises(TypeError, match="positional"):
        ParsePooling(CHANNELS, 0.5)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"multiset": "median"},
            "multiset: expected 'deepsets', 'sum', 'mean', 'max' or a module, got 'median'",
        ),
        ({"multiset_layers": 0}, "^multiset_layers: expected at least 1, got 0"),
        ({"drop_edge": 2.0}, "drop_edge: expected a probability, got 2.0"),
        ({"dropout": -1.0}, "dropout: expected a probability, got -1.0"),
        ({"scorer_layers": 0}, "^scorer_layers: expected at least 1, got 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_settings(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ParsePooling(CHANNELS, **kwargs)


@pytest.mark.parametrize(("name", "make"), [("reduce", ConnectClusters), ("edge_reduce", layer)])
def test_unknown_reduction(name, make):
    """The error of the operators, under the name that the caller wrote."""
    with pytest.raises(RuntimeError, match=f"^{name}: expected 'sum', 'mean' or 'max', got 'median'"):
        make(**{name: "median"})


@pytest.mark.parametrize(
    ("replaced", "expected"),
    [
        ({"x": torch.zeros(4, 5)}, "shape [num_nodes, in_channels] = [num_nodes, 6], got [4, 5]"),
        ({"x": torch.zeros(4)}, "shape [num_nodes, in_channels] = [num_nodes, 6], got [4]"),
        ({"attn": torch.zeros(4, 5)}, "shape [num_nodes, in_channels] = [4, 6], got [4, 5]"),
        ({"attn": torch.zeros(3, 6)}, "shape [num_nodes, in_channels] = [4, 6], got [3, 6]"),
        ({"batch": torch.zeros(3, dtype=torch.int64)}, "shape [num_nodes] = [4], got [3]"),
        ({"edge_attr": torch.zeros(3)}, "shape [num_edges, ...] = [8, ...], got [3]"),
        ({"edge_index": graphs.ring(4)[0]}, "shape [2, num_edges], got [8]"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_arguments(replaced, expected):
    arguments = {"x": torch.zeros(4, 6), "edge_index": graphs.ring(4), **replaced}
    with pytest.raises(RuntimeError, match=re.escape(f"{next(iter(replaced))}: expected {expected}")):
        ParsePooling(CHANNELS, self_loops=True)(**arguments)


def test_node_ids_out_of_range_are_refused():
    with pytest.raises(
        RuntimeError, match="edge_index: expected node ids from 0 to num_nodes - 1 = 2, got 3"
    ):
        ParsePooling(CHANNELS)(torch.zeros(3, 6), graphs.ring(4))


@pytest.mark.parametrize("loop", [4, -1, 2**62])
def test_a_self_loop_out_of_range_is_refused_where_self_loops_are_added(loop):
    edge_index = torch.cat([graphs.ring(4), torch.full((2, 1), loop)], dim=1)
    message = rf"edge_index: expected node ids from 0 to num_nodes - 1 = 3, got {loop} at edge_index\[0, 8\]"
    with pytest.raises(RuntimeError, match=message):
        layer(self_loops=True)(features(4), edge_index)


@pytest.mark.parametrize("drop_edge", [0.0, 0.999])
def test_an_edge_between_two_graphs_is_refused(drop_edge):
    edge_index = torch.cat([graphs.ring(4), graphs.ring(4) + 4, torch.tensor([[3], [4]])], dim=1)
    batch = torch.arange(2).repeat_interleave(4)
    pool = layer(drop_edge=drop_edge)
    got = r"got an edge from graph 0 to graph 1 at edge_index\[:, 16\]"
    with pytest.raises(RuntimeError, match=f"^batch: expected every edge inside one graph, {got}"):
        pool(features(8), edge_index, batch=batch)
    pool(features(8), edge_index[:, :-1], batch=batch)


class Wrapped(torch.nn.Module):
    """A child as a user's own module wraps it: nothing of it is to be seen."""

    def __init__(self, child):
        super().__init__()
        self.child = child

    def forward(self, *args, **kwargs):
        return self.child(*args, **kwargs)


@pytest.mark.parametrize(
    "name", [name for name, _ in submodules.called(ParsePooling(CHANNELS, edge_dim=2)) if name]
)
def test_a_wrapped_child_is_called_and_reset(device, name):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    attr = torch.randn(edge_index.size(1), 2, device=device, dtype=x.dtype)
    pool = layer(device, edge_dim=2)
    expected = pool(x, edge_index, attr)
    pool.set_submodule(name, Wrapped(pool.get_submodule(name)))
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(pool(x, edge_index, attr).x, expected.x)
    assert repr(pool).startswith("ParsePooling(6, select=")
    for parameter in pool.parameters():
        torch.nn.init.constant_(parameter, 7.0)
    pool.reset_parameters()
    assert not any(bool((parameter == 7).any()) for parameter in pool.parameters())


@pytest.mark.parametrize("gradients", [True, False])
def test_layers_of_another_width_take_effect(device, gradients):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device)
    scorer = layer(device).select.scorer
    scorer.lins[0], scorer.lins[1] = torch.nn.Linear(CHANNELS, 11), torch.nn.Linear(11, 1)
    scorer.norms[0] = torch.nn.LayerNorm(11)
    scorer.to(x)
    with torch.set_grad_enabled(gradients):
        scores = scorer(x, edge_index)
    z = scorer.norms[0](scorer.lins[0](x[edge_index[0]] * x[edge_index[1]])).relu()
    torch.testing.assert_close(scores, scorer.lins[1](z).sigmoid().squeeze(-1))


@pytest.mark.parametrize(
    "make", [ParsePooling, SelectParse, EdgeScorer, lambda d: ParseHierarchy(ParsePooling(d))]
)
def test_tracing_is_refused_and_export_named(make):
    inputs = (features(4, dtype=torch.float32), graphs.path(4))
    with pytest.raises(RuntimeError, match=r"torch\.jit\.trace would .* use torch\.export\.export"):
        torch.jit.trace(make(CHANNELS), inputs)


def test_state_dict_and_deepcopy():
    edge_index, x = simple_graph(20, 25), features(20)
    pool, other = layer(seed=0), layer(seed=1)
    expected = pool(x, edge_index)
    assert not torch.equal(other(x, edge_index).x, expected.x)
    other.load_state_dict(pool.state_dict())
    for same in (other, copy.deepcopy(pool)):
        assert torch.equal(same(x, edge_index).x, expected.x)


def test_reset_parameters_reaches_every_parameter():
    pool = layer(scorer_layers=3, multiset_layers=2)
    for parameter in pool.parameters():
        torch.nn.init.constant_(parameter, 7.0)
    pool.reset_parameters()
    assert not any(bool((parameter == 7).any()) for parameter in pool.parameters())


def test_repr():
    assert repr(ParsePooling(16)) == (
        "ParsePooling(16, select=SelectParse(16, scorer=EdgeScorer(16, num_layers=2, dropout=0.0), "
        "self_loops=False), connect=ConnectClusters(reduce='sum', weighted=False, self_loops=False), "
        "multiset=DeepSets(16, num_layers=1, dropout=0.0), drop_edge=0.0)"
    )
    assert repr(ConnectClusters()) == "ConnectClusters(reduce='sum', weighted=False, self_loops=False)"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(device, dtype):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device, dtype=dtype)
    pool = layer(device).to(dtype)
    out = pool(x.requires_grad_(), edge_index)
    assert {out.x.dtype, out.score.dtype} == {dtype}
    # In float64, by the same clusters: half precision may choose others.
    exact = copy.deepcopy(pool).double()
    S = reference.gen(out.cluster).double()
    expected = naive.deepsets(exact.multiset, x.double(), S) * out.score.double()[:, None]
    torch.testing.assert_close(out.x.double(), expected, atol=0.1, rtol=0.05)
    out.x.sum().backward()
    assert x.grad.dtype == dtype
    assert bool(x.grad.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_weights_of_a_layer_are_of_the_type_of_its_features(device, dtype):
    edge_index, x = graphs.ring(20).to(device), features(20, device=device, dtype=dtype)
    pool, conv = layer(device, weighted=True).to(dtype), GCNConv(CHANNELS, CHANNELS).to(device, dtype)
    out = pool(x, edge_index)
    assert out.edge_attr.dtype == dtype
    assert pool(conv(out.x, out.edge_index, out.edge_attr), out.edge_index, out.edge_attr).x.dtype == dtype


def test_autocast(device):
    edge_index, x = simple_graph(20, 25, device=device), features(20, device=device, dtype=torch.float32)
    pool = layer(device).float()
    with torch.autocast(device.type, torch.bfloat16):
        out = pool(x, edge_index)
        from_half = pool(x.bfloat16(), edge_index)
    assert out.x.dtype == torch.float32
    assert from_half.x.dtype == torch.bfloat16
    out.x.sum().backward()
    assert {parameter.grad.dtype for parameter in pool.parameters()} == {torch.float32}


def lookalikes(count, seed):
    """Rings with some chords and few kinds of nodes, so that many edges of a graph look alike."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        num_nodes = int(torch.randint(8, 30, (), generator=generator))
        ring = torch.arange(num_nodes)
        chords = torch.randint(num_nodes, (2, 3), generator=generator)
        edges = torch.cat([torch.stack([ring, (ring + 1) % num_nodes]), chords], dim=1)
        edges = edges[:, edges[0] != edges[1]]
        kind = torch.randint(3, (num_nodes,), generator=generator)
        yield kind, torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_that_look_alike_tie_whatever_the_batch(dtype):
    """Matrix products round by their shapes: of these graphs, compared to the last bit, one in twenty had
    another tree in a batch than alone."""
    torch.manual_seed(0)
    embedding = torch.randn(3, 32, dtype=dtype)
    pool = ParsePooling(32).to(dtype).eval()
    for seed in range(3):
        kinds, edges = zip(*lookalikes(100, seed), strict=True)
        sizes = torch.tensor([kind.size(0) for kind in kinds])
        first = sizes.cumsum(0) - sizes
        batch = torch.arange(sizes.size(0)).repeat_interleave(sizes)
        shifted = torch.cat([edge + start for edge, start in zip(edges, first, strict=True)], dim=1)
        with torch.no_grad():
            together = pool(embedding[torch.cat(kinds)], shifted, batch=batch).cluster.split(sizes.tolist())
            alone = [pool(embedding[kind], edge).cluster for kind, edge in zip(kinds, edges, strict=True)]
        for one, among in zip(alone, together, strict=True):
            assert torch.equal(one, among - among.min())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_that_differ_in_earnest_are_told_apart(dtype):
    """A path of 4 nodes, whose middle edge has the highest score and the highest ids."""
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 3, 1, 2]])

    def parsed(step):
        pool = SelectParse(CHANNELS).to(dtype)
        scores = torch.tensor([1, 1, 1 + step, 1, 1 + step, 1], dtype=dtype)
        pool.scorer.forward = lambda *_: scores
        return pool(torch.zeros(4, CHANNELS, dtype=dtype), edge_index).cluster_index.tolist()

    assert parsed(2.0**-20) == [0, 0, 0, 0]
    assert parsed(2.0**-22) == [0, 0, 1, 1]
