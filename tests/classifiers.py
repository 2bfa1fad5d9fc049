"""Small models in static form, their batches, and what a CUDA graph does, in Python."""

from typing import NamedTuple

import graphs
import torch
from torch import Tensor

from gpn_ops.nn import ParseHierarchy, ParsePooling, ParseTree, UndirectedGCNConv

CLASSES = 3


class Out(NamedTuple):
    out: Tensor
    tree: ParseTree


class Classifier(torch.nn.Module):
    """Of graphs, or, down the tree again, of nodes."""

    def __init__(self, per_node=False, **options):
        super().__init__()
        self.levels = ParseHierarchy(ParsePooling(8, **options), UndirectedGCNConv(8, 8))
        self.head = torch.nn.Linear(8, CLASSES)
        self.per_node = per_node

    def forward(self, x, edge_index, edge_attr=None, batch=None, batch_size=None, capacity=None):
        out, tree = self.levels(x, edge_index, edge_attr, batch, batch_size, capacity)
        if self.per_node:
            out = tree.decode(x, lambda z, level: z.index_select(0, level.cluster) + level.x)
        return Out(self.head(out), tree)


def rings(*sizes, seed=0):
    """Features, edges, no attributes, the graph of every node, and the number of graphs."""
    parts, first = [], 0
    for size in sizes:
        parts.append(graphs.ring(size) + first)
        first += size
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    x = torch.randn(first, 8, generator=torch.Generator().manual_seed(seed))
    return x, torch.cat(parts, 1), None, batch, len(sizes)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01, fused=True, capturable=True)


class Replayed:
    """What a CUDA graph does, in Python: the same function on the same memory."""

    count = 0

    def __init__(self, function, inputs, warm_up):
        Replayed.count += 1
        self.function, self.inputs = function, [tensor.clone() for tensor in inputs]
        for _ in range(3):
            warm_up(*self.inputs)

    def __call__(self, *inputs):
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        return self.function(*self.inputs)
