"""Does pooling keep graphs distinct that message passing distinguishes? Tested on generated graphs.

*Twins* are two graphs with the same degrees. Switching two edges turns one into the other, and the 1-WL test
(colour refinement) distinguishes them in three rounds. So do three layers of GIN on constant features. Then
come one pooling layer, an MLP on the remaining nodes, and a sum. No weight is trained. A pair stays distinct
if the vectors of its two graphs differ for all numberings of their nodes. Nodes that look alike have equal
scores, and then the order of nodes and edges decides. So two numberings of one graph may be pooled
differently, which is counted too.

*Cores* is a data set in the manner of EXPWL1 (Bianchi and Lachi, 2023): every graph is a random tree with one
of two small trees attached, which determines its class. The two have the same degrees; in one of them two
hubs are neighbours, in the other there is a node between them. Two rounds of 1-WL distinguish them, but a
model that drops nodes may drop the relevant ones. It can be trained on:

    python -m models.train "models.expressive:Cores(600)" --model topk
"""

import argparse
import sys
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.utils import to_dense_adj, to_dense_batch

from gpn_ops.nn import ParsePooling

from . import data
from .baselines import DENSE, SPARSE, DensePool, sparse_pool, with_self_loops
from .blocks import MLP
from .common import attempt, numbers, positive, table
from .config import NAMES
from .training import prepare

ROUNDS = 3
# How many ways to number the nodes of every graph.
NUMBERINGS = 4
# Vectors that differ by less, relative to their length, are the same. Rounding makes less than 1e-12 of it.
APART = 1e-9
METHODS = ("none", "gpn", *SPARSE, *DENSE)
TITLES = {"none": "no pooling", **NAMES}

Edges = list[tuple[int, int]]


# ------------------------------------------------------------------------------------------------------------
# Twins
# ------------------------------------------------------------------------------------------------------------


def neighbours(edges: Edges, num_nodes: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(num_nodes)]
    for first, second in edges:
        found[first].append(second)
        found[second].append(first)
    return found


def told_apart(first: Edges, second: Edges, num_nodes: int, rounds: int = ROUNDS) -> bool:
    """Whether this many rounds of colour refinement distinguish two graphs of the same size."""
    graphs = [neighbours(edges, num_nodes) for edges in (first, second)]
    colours = [[0] * num_nodes for _ in graphs]
    for _ in range(rounds):
        seen = [
            [(own[i], tuple(sorted(own[j] for j in around[i]))) for i in range(num_nodes)]
            for own, around in zip(colours, graphs, strict=True)
        ]
        names = {view: number for number, view in enumerate(sorted({*seen[0], *seen[1]}))}
        colours = [[names[view] for view in views] for views in seen]
        if Counter(colours[0]) != Counter(colours[1]):
            return True
    return False


def random_tree(num_nodes: int, random: torch.Generator) -> Edges:
    """A random tree: every node is joined to an earlier one."""
    return [(int(torch.randint(k, (), generator=random)), k) for k in range(1, num_nodes)]


def random_graph(num_nodes: int, random: torch.Generator) -> Edges:
    """A random tree with a quarter as many edges added."""
    edges = set(random_tree(num_nodes, random))
    while len(edges) < num_nodes + num_nodes // 4:
        first, second = sorted(torch.randint(num_nodes, (2,), generator=random).tolist())
        if first != second:
            edges.add((first, second))
    return sorted(edges)


def twins(random: torch.Generator) -> tuple[Edges, Edges, int]:
    """Two graphs, and their number of nodes."""
    num_nodes = int(torch.randint(20, 61, (), generator=random))
    edges = random_graph(num_nodes, random)
    while True:
        (a, b), (c, d) = (edges[k] for k in torch.randperm(len(edges), generator=random)[:2].tolist())
        switched = {(min(a, d), max(a, d)), (min(b, c), max(b, c))}
        if len({a, b, c, d}) == 4 and not switched & set(edges):
            other = sorted({*edges, *switched} - {(a, b), (c, d)})
            if told_apart(edges, other, num_nodes):
                return edges, other, num_nodes


def graph(edges: Edges, num_nodes: int, random: torch.Generator | None = None, **more: Any) -> Data:
    """The graph with constant features; ``random`` permutes its nodes."""
    number = torch.arange(num_nodes) if random is None else torch.randperm(num_nodes, generator=random)
    one_way = number[torch.tensor(edges, dtype=torch.int64).view(-1, 2).t()]
    both = torch.cat([one_way, one_way.flip(0)], dim=1)
    order = (both[0] * num_nodes + both[1]).argsort()
    return Data(torch.ones(num_nodes, 1), both[:, order], **more)


class Pooled(nn.Module):
    """GIN, one layer of pooling, an MLP, a sum.

    Args:
        method: One of :data:`METHODS`; ``none`` leaves pooling out.
        hidden: Size of all hidden features.
    """

    def __init__(self, method: str, hidden: int = 32) -> None:
        super().__init__()
        sizes = [1] + [hidden] * ROUNDS
        self.convs = nn.ModuleList(
            GINConv(MLP(sizes[k], hidden, hidden, 2), train_eps=True) for k in range(ROUNDS)
        )
        self.method = method
        if method in SPARSE:
            self.pool = sparse_pool(method, hidden, 0.5)
        elif method in DENSE:
            self.pool = DensePool(method, hidden, 20)
        elif method == "gpn":
            self.pool = ParsePooling(hidden)
        self.last = MLP(hidden, hidden, hidden, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        if self.method in DENSE:
            dense, mask = to_dense_batch(x, batch)
            adj = to_dense_adj(edge_index, batch, max_num_nodes=dense.size(1)).to(x.dtype)
            pooled = self.pool(dense, with_self_loops(adj), mask)
            return self.last(pooled.x).sum(dim=1)
        num_graphs = int(batch[-1]) + 1
        if self.method == "none":
            pass
        elif self.method == "edgepool":
            x, _, batch, _ = self.pool(x, edge_index, batch)
        else:
            x, _, _, batch, *_ = self.pool(x, edge_index, batch=batch)
        return global_add_pool(self.last(x), batch, num_graphs)


class Share(NamedTuple):
    """Shares of all pairs, from 0 to 1."""

    apart: float
    """Pairs whose graphs stay apart, however their nodes are numbered."""
    ambiguous: float
    """Graphs that are pooled to different vectors when their nodes are numbered in another way."""


@torch.no_grad()
def share(method: str, num_pairs: int, seed: int) -> Share:
    """Pools twins with a model that ``seed`` initialises. All methods and seeds get the same pairs."""
    random = torch.Generator().manual_seed(0)
    items = []
    for _ in range(num_pairs):
        first, second, num_nodes = twins(random)
        items += [graph(edges, num_nodes, random) for edges in (first, second) for _ in range(NUMBERINGS)]
    batch = Batch.from_data_list(items)
    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # PyG's ASAPooling makes weights of it, whatever its input has.
    try:
        out = Pooled(method).eval()(batch.x.double(), batch.edge_index, batch.batch)
    finally:
        torch.set_default_dtype(before)
    return shares(out.view(num_pairs, 2, NUMBERINGS, -1))


def shares(vectors: Tensor) -> Share:
    """The shares for vectors ``[pairs, 2, numberings, d]``."""
    first, second = vectors.unbind(1)
    length = vectors.norm(dim=-1).amax(dim=(1, 2)).view(-1, 1, 1)
    between = torch.cdist(first, second) / length
    within = torch.stack([torch.cdist(each, each) / length for each in (first, second)])
    return Share(
        float((between.amin(dim=(1, 2)) > APART).double().mean()),
        float((within.amax(dim=(2, 3)) > APART).double().mean()),
    )


# ------------------------------------------------------------------------------------------------------------
# Cores
# ------------------------------------------------------------------------------------------------------------

# Two hubs of six neighbours each, with a node between them, or joined, so that it hangs from one of them. All
# else are leaves: the degrees are the same.
LEAVES: Edges = [(0, 3), (0, 4), (0, 5), (0, 6), (0, 7), (1, 8), (1, 9), (1, 10), (1, 11)]
CORES: tuple[Edges, Edges] = ([(0, 2), (2, 1), (1, 12), *LEAVES], [(0, 1), (1, 2), (2, 12), *LEAVES])
CORE_NODES, MIDDLE = 13, 2


def with_core(label: int, random: torch.Generator) -> Data:
    """A random tree of 20 to 50 nodes, with a core attached to one of them."""
    num_nodes = int(torch.randint(20, 51, (), generator=random))
    at = int(torch.randint(num_nodes, (), generator=random))
    core = [(num_nodes + first, num_nodes + second) for first, second in CORES[label]]
    edges = [*random_tree(num_nodes, random), (at, num_nodes + MIDDLE), *core]
    return graph(edges, num_nodes + CORE_NODES, random, y=torch.tensor([label]))


@data.register
class Cores(list[Data]):
    """The data set. The classes take turns."""

    def __init__(self, num_graphs: int, seed: int = 0) -> None:
        random = torch.Generator().manual_seed(seed)
        super().__init__(with_core(k % 2, random) for k in range(num_graphs))


# ------------------------------------------------------------------------------------------------------------
# The command
# ------------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    manual = argparse.ArgumentParser(
        prog="python -m models.expressive",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    manual.add_argument("--pairs", type=positive, default=200, help="pairs of twins (default: 200)")
    manual.add_argument("--seeds", type=numbers, default=[0, 1, 2], help="seeds (default: 0-2)")
    manual.add_argument("--threads", type=positive, default=1, help="CPU threads (default: 1)")
    return manual


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return attempt(lambda: _measure(options))


def _measure(options: argparse.Namespace) -> int:
    prepare(torch.device("cpu"), options.threads)
    rows = []
    for method in METHODS:
        found = [share(method, options.pairs, seed) for seed in options.seeds]
        apart = ", ".join(f"{each.apart:.1%}" for each in found)
        rows.append([TITLES[method], apart, ", ".join(f"{each.ambiguous:.1%}" for each in found)])
    seeds = ", ".join(map(str, options.seeds))
    print(f"Of {options.pairs} pairs of twins, pooled by untrained models (seeds {seeds}):\n")
    print(table(["method", "stay apart", "pooled in more than one way"], rows), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
