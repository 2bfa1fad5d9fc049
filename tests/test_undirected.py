"""undirected: the pairs of nodes that edges join."""

import clustered
import graphs
import pytest
import torch
from hypothesis import given
from torch.library import opcheck

import gpn_ops
from gpn_ops import reference
from gpn_ops.ops.undirected import plain_undirected, plain_undirected_padded


def check_undirected(device, edge_index, num_nodes):
    pairs, slot = (part.cpu() for part in gpn_ops.undirected(edge_index.to(device), num_nodes))
    ends = edge_index.long().sort(dim=0).values
    assert torch.equal(pairs[:, slot], ends)  # which pair each edge is
    unique = sorted(set(zip(*ends.tolist(), strict=True)))
    assert list(zip(*pairs.tolist(), strict=True)) == unique  # sorted, each once, none too many
    return pairs, slot


@given(graph=graphs.scored_graphs())
def test_undirected(graph):
    pairs, slot = check_undirected("cpu", graph.edge_index, graph.num_nodes)
    if graph.edge_index.numel():
        wanted = reference.undirected(graph.edge_index, graph.num_nodes)
        assert torch.equal(pairs, wanted.pairs)
        assert torch.equal(slot, wanted.slot)
        plain = plain_undirected(graph.edge_index, graph.num_nodes)
        assert all(map(torch.equal, plain, wanted))


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(100, 60_000), (200_000, 300_000)])
def test_undirected_larger(device, num_nodes, num_edges):
    edge_index = clustered.random_clustered(num_nodes, num_edges, 1).edge_index
    check_undirected(device, edge_index, num_nodes)


def test_undirected_edge_without_a_reverse(device):
    """0 -> 1 has a reverse, 1 -> 2 does not, 2 -> 2 is its own."""
    pairs, slot = check_undirected(device, torch.tensor([[0, 1, 1, 2], [1, 2, 0, 2]]), 3)
    assert pairs.tolist() == [[0, 1, 2], [1, 2, 2]]
    assert slot.tolist() == [0, 1, 0, 2]


def test_undirected_thread_count_does_not_matter():
    edge_index = clustered.random_clustered(50_000, 200_000, 1).edge_index
    clustered.same_bits_for_any_thread_count(lambda: [*gpn_ops.undirected(edge_index, 50_000)])


def test_undirected_ids_past_32_bits():
    """Words of 128 bits: ids of 40 bits each and an edge id."""
    edge_index = torch.tensor([[2**40 - 1, 0, 5, 2**39], [0, 2**40 - 1, 2**40 - 2, 2**39]])
    check_undirected("cpu", edge_index, 2**40)


def test_opcheck(device):
    edge_index = torch.tensor([[0, 2, 1, 1], [1, 1, 0, 1]], device=device)
    opcheck(torch.ops.gpn.undirected, (edge_index, 3))


@pytest.mark.parametrize("more", [-1, 0, 4])
def test_room(device, more):
    """Into results of given sizes: the same, then -1; -1 alone where there is no room."""
    edge_index = clustered.random_clustered(40, 200, 1).to(device).edge_index
    pairs, slot = gpn_ops.undirected(edge_index, 40)
    arguments = (edge_index, 40, pairs.size(1) + more)
    opcheck(torch.ops.gpn.undirected_padded, arguments)
    for form in (torch.ops.gpn.undirected_padded, plain_undirected_padded):
        padded, padded_slot, count = form(*arguments)
        assert count.tolist() == [0, pairs.size(1)]
        if more < 0:
            assert bool((padded == -1).all())
            assert bool((padded_slot == -1).all())
        else:
            assert torch.equal(padded[:, : pairs.size(1)], pairs)
            assert torch.equal(padded_slot, slot)
            assert bool((padded[:, pairs.size(1) :] == -1).all())


@pytest.mark.parametrize("bad", [-1, 3, 2**62])
def test_bad_values(bad):
    """On CUDA these trip device-side assertions."""
    message = f"edge_index: expected node ids from 0 to num_nodes - 1 = 2, got {bad} at edge_index[1, 1]"
    clustered.refused(gpn_ops.undirected, message, torch.tensor([[0, 1], [1, bad]]), 3)
