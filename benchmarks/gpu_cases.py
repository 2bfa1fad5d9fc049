"""Shared by the cost model (gpu_model.py) and its benchmark (predicted.py): the cards, the workloads, and the
modules that run on them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import emulation
import methods
import torch
from torch import Tensor

from gpn_ops.nn import Capacity, ParseHierarchy, ParsePooling, measured, pad
from models.baselines import GraphBaseline
from models.gpn import GraphClassifier, Prediction


class Card(NamedTuple):
    bandwidth: float  # bytes a second, peak
    operations: float  # float32 a second, peak outside of tensor cores


CARDS = {"RTX 4090": Card(1008e9, 82.6e12), "H100": Card(3350e9, 67e12)}
REACHED_BANDWIDTH, REACHED_OPERATIONS = 0.8, 0.6
CHANNELS = 128


class Kernel(NamedTuple):
    """An operator of PyTorch, or a kernel of ours."""

    name: str
    launches: float
    waits: float
    bytes: float
    operations: float

    def seconds(self, card: Card) -> float:
        return max(
            self.bytes / (REACHED_BANDWIDTH * card.bandwidth),
            self.operations / (REACHED_OPERATIONS * card.operations),
        )


class Load(NamedTuple):
    text: str
    run: emulation.Workload
    scale: int


LOADS = {
    "a": Load("256 molecules of 30 nodes, 64 edges", emulation.Workload(256, 30, 32, CHANNELS), 1),
    "b": Load(
        "10 dense graphs of 1,000 nodes, 10^5 pairs each", emulation.Workload(1, 1000, 10**5, CHANNELS), 10
    ),
    "c": Load(
        "a sparse graph, 10^6 nodes, 2*10^6 pairs", emulation.Workload(1, 125_000, 250_000, CHANNELS), 8
    ),
}
PEERS = {
    "TopK": ("TopKPooling", "topk"),
    "SAG": ("SAGPooling", "sag"),
    "EdgePool": ("EdgePooling", "edgepool"),
    "ASAP": ("ASAPooling", "asap"),
    "MinCut": ("MinCutPool", "mincut"),
    "DiffPool": ("DiffPool", "diffpool"),
    "GMT": ("GMT", "gmt"),
}
METHODS = ("ParsePooling", *PEERS)
FORMS = ("layer", "hierarchy", "classifier")
CAPTURED = "captured"
"""A further form, of ParsePooling alone: the classifier in static form, its step a CUDA graph."""
QUADRATIC = ("MinCut", "DiffPool")


def module(method: str, form: str, nodes: int) -> torch.nn.Module:
    """A layer; all levels without the rest of a model; a whole classifier."""
    if method == "ParsePooling":
        if form == "layer":
            return methods.InPyGManner(ParsePooling(CHANNELS))
        if form == "hierarchy":
            return methods.InPyGManner(ParseHierarchy(ParsePooling(CHANNELS)))
        from models.config import Config
        from models.training import level_settings

        return GraphClassifier(CHANNELS, 2, **level_settings(Config(dataset="PROTEINS", hidden=CHANNELS)))
    layer, pool = PEERS[method]
    if form == "layer":
        return methods.named(layer).make(CHANNELS, nodes)
    classifier = GraphBaseline(CHANNELS, 2, pool=pool, hidden=CHANNELS, max_nodes=nodes)
    return classifier if form == "classifier" else classifier.levels


def whole(workload: str) -> emulation.Workload:
    """A workload at full size. The model runs a part of it: some of its graphs, or a smaller graph."""
    size, scale = LOADS[workload].run, LOADS[workload].scale
    if workload == "c":
        return size._replace(nodes=scale * size.nodes, pairs=scale * size.pairs)
    return size._replace(graphs=scale * size.graphs)


def points(
    methods: Sequence[str], workloads: Sequence[str], forms: Sequence[str] | None = None
) -> list[tuple[str, str, str]]:
    """The modelled points: layers on all workloads, and other forms on (a) alone unless asked for."""
    return [
        (method, form, workload)
        for form in forms or FORMS
        for workload in workloads
        for method in methods
        if (forms or form == "layer" or workload == "a")
        and not (workload == "c" and method in QUADRATIC)  # a matrix of 10^12 entries
        and (form != CAPTURED or method == METHODS[0])
    ]


def called(
    model: torch.nn.Module, form: str, x: Tensor, edge_index: Tensor, batch: Tensor, num_graphs: int
) -> list[Tensor]:
    """The differentiable result of a module of this form."""
    if form == "classifier":
        return results_of(model(x, edge_index, None, batch, num_graphs))
    return results_of(model(x, edge_index, batch))


def padded(
    model: torch.nn.Module, x: Tensor, edge_index: Tensor, batch: Tensor, num_graphs: int
) -> tuple[Any, ...]:
    """The arguments of a classifier in static form: the batch with a fifteenth of its size as padding, which
    is what steps of one eighth come to in the mean, and levels as measured on it."""
    sizes = x.size(0), edge_index.size(1)
    capacity = Capacity(*(-(-16 * size // 15) for size in sizes))
    with torch.no_grad():
        tree = model(x, edge_index, None, batch, num_graphs).tree
    return (
        *pad(x, edge_index, None, batch, capacity, num_graphs),
        num_graphs,
        measured(capacity, tree, sizes[0]),
    )


def results_of(result: Any) -> list[Tensor]:
    if isinstance(result, Prediction):
        return [t for t in (result.out, result.extra_loss) if isinstance(t, Tensor) and t.requires_grad]
    return methods.outputs(result)
