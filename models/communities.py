"""The data set of models.demo: graphs of 3, 6 or 9 communities. The number is the class."""

import torch
from torch_geometric.data import Data

from . import data
from .config import Config
from .data import Graphs, Split

# The sizes of the communities of one type, by class.
SIZES = ([18], [10, 8], [6, 6, 6])
TYPES = 3
NODES = TYPES * 18
BRIDGES = 12


def cubic_graph(num_nodes: int, random: torch.Generator) -> list[tuple[int, int]]:
    """A random connected graph in which every node has three neighbours: a ring and chords. The number of
    nodes is even, and at least 4."""
    ring = torch.randperm(num_nodes, generator=random).tolist()
    edges = {tuple(sorted((ring[k], ring[k - 1]))) for k in range(num_nodes)}
    while True:
        pairs = torch.randperm(num_nodes, generator=random).view(-1, 2).sort(dim=1).values.tolist()
        chords = {(first, second) for first, second in pairs}
        if not chords & edges:
            return sorted(edges | chords)


def community_graph(label: int, random: torch.Generator) -> Data:
    """A graph of the given class, its edges stored in one direction."""
    node_type: list[int] = []
    community: list[int] = []
    edges: list[tuple[int, int]] = []
    for number, (kind, size) in enumerate((kind, size) for kind in range(TYPES) for size in SIZES[label]):
        first = len(node_type)
        edges += [(first + row, first + col) for row, col in cubic_graph(size, random)]
        node_type += [kind] * size
        community += [number] * size
    edges += bridges(node_type, community, random)
    # Node numbers must not tell.
    shuffle = torch.randperm(NODES, generator=random)
    x = torch.empty(NODES, TYPES)
    x[shuffle] = torch.nn.functional.one_hot(torch.tensor(node_type), TYPES).float()
    return Data(x=x, edge_index=shuffle[torch.tensor(edges).t()], y=torch.tensor([label]))


def bridges(node_type: list[int], community: list[int], random: torch.Generator) -> list[tuple[int, int]]:
    """Edges between communities of different types, no two at one node, that connect the graph."""
    while True:
        reached, found, used = {community[0]}, [], set()
        order = torch.randint(len(node_type), (40 * BRIDGES, 2), generator=random).tolist()
        for first, second in order:
            if node_type[first] == node_type[second] or {first, second} & used:
                continue
            # Until all are connected, a bridge leads from those that are to one that is not.
            ends = {community[first] in reached, community[second] in reached}
            if len(reached) <= max(community) and len(ends) == 1:
                continue
            reached |= {community[first], community[second]}
            used |= {first, second}
            found.append((first, second))
            if len(found) == BRIDGES:
                break
        if len(found) == BRIDGES and len(reached) == max(community) + 1:
            return found


@data.register
class Communities(list[Data]):
    """The data set. The classes take turns."""

    def __init__(self, num_graphs: int, seed: int = 0) -> None:
        random = torch.Generator().manual_seed(seed)
        super().__init__(community_graph(k % len(SIZES), random) for k in range(num_graphs))


def load(config: Config) -> Graphs:
    """The data set in the form of the training code: half to train, a quarter each to validate and test."""
    graphs = data.load(config)
    train, val, test = torch.arange(graphs.num_graphs).tensor_split(
        [graphs.num_graphs // 2, 3 * graphs.num_graphs // 4]
    )
    graphs.splits = [Split(train, val, test)]
    return graphs
