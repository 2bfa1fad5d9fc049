"""Layers given what they cannot use: the error names the argument that the caller wrote."""

import inspect
import re

import pytest
import torch
from test_errors import on_meta, spoilt_metadata, spoilt_values
from torch import Tensor

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

from torch_geometric.nn import TopKPooling

from gpn_ops.nn import (
    Adjacency,
    ConnectClusters,
    DeepSets,
    Dropout,
    EdgeScorer,
    ParseHierarchy,
    ParsePooling,
    Reduce,
    SelectParse,
    UndirectedGCNConv,
)

# A path of five nodes, with the same attributes in both directions.
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
CLUSTER, BATCH = torch.tensor([0, 0, 1, 1, 2]), torch.zeros(5, dtype=torch.int64)
X, WEIGHT, ATTR = (
    torch.rand(5, 8),
    torch.rand(4).repeat_interleave(2),
    torch.rand(4, 3).repeat_interleave(2, 0),
)

CALLS = {
    "ParsePooling": (
        ParsePooling(8),
        {"x": X, "edge_index": EDGES, "edge_attr": WEIGHT, "batch": BATCH, "attn": X},
    ),
    "ParsePooling, every option": (
        ParsePooling(8, self_loops=True, drop_edge=0.5, recompute=False, edge_dim=3, directed_scores=True),
        {"x": X, "edge_index": EDGES, "edge_attr": ATTR, "batch": BATCH},
    ),
    "ParsePooling, one layer": (
        ParsePooling(8, scorer_layers=1, multiset="mean", edge_reduce="max"),
        {"x": X, "edge_index": EDGES, "edge_attr": WEIGHT},
    ),
    "unpool": (ParsePooling(8).unpool, {"x": torch.rand(3, 8), "cluster": CLUSTER}),
    "ParseHierarchy": (
        ParseHierarchy(ParsePooling(8), UndirectedGCNConv(8, 8)),
        {"x": X, "edge_index": EDGES, "edge_attr": WEIGHT, "batch": BATCH},
    ),
    "EdgeScorer": (EdgeScorer(8), {"h": X, "edge_index": EDGES}),
    "EdgeScorer, kept": (EdgeScorer(8, recompute=False), {"h": X, "edge_index": EDGES}),
    "EdgeScorer, directed": (EdgeScorer(8, 1), {"h": X, "edge_index": EDGES, "directed": True}),
    "EdgeScorer, attributes": (EdgeScorer(8, edge_dim=3), {"h": X, "edge_index": EDGES, "edge_attr": ATTR}),
    "SelectParse": (SelectParse(8), {"x": X, "edge_index": EDGES, "batch": BATCH}),
    "DeepSets": (DeepSets(8), {"x": X, "cluster": CLUSTER, "num_clusters": 3}),
    "DeepSets, kept": (DeepSets(8, recompute=False), {"x": X, "cluster": CLUSTER, "num_clusters": 3}),
    "Reduce": (Reduce("max"), {"x": X, "cluster": CLUSTER, "num_clusters": 3}),
    "UndirectedGCNConv": (UndirectedGCNConv(8, 8), {"x": X, "edge_index": EDGES, "edge_weight": WEIGHT}),
    "Adjacency": (Adjacency, {"edge_index": EDGES, "num_nodes": 5, "edge_weight": WEIGHT}),
    "Dropout": (Dropout(0.5), {"x": X}),
}
OF_NODES = ("x", "h", "attn")
WRONG_DTYPES = ("int16", "bool", "complex", "dtype")


def spoilt(value):
    yield from spoilt_metadata(value)
    yield from spoilt_values(value)
    if isinstance(value, Tensor):
        yield "meta", on_meta(value)
        yield "None", None
        yield "list", value.tolist()
        yield "numpy", value.numpy()
        yield "sparse", value.to_sparse()


CASES = [
    pytest.param(name, argument, bad, wrong, id=f"{name}: {argument}: {wrong}")
    for name, (_, valid) in CALLS.items()
    for argument, value in valid.items()
    if not isinstance(value, bool)
    for wrong, bad in spoilt(value)
]


@pytest.mark.parametrize(("name", "argument", "bad", "wrong"), CASES)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_the_argument_is_named(name, argument, bad, wrong):
    call, valid = CALLS[name]
    optional = argument in ("edge_attr", "edge_weight", "batch", "attn")
    wrong_dtype = wrong in WRONG_DTYPES and not (optional and argument.startswith("edge"))
    text = None
    try:
        call(**{**valid, argument: bad})
    except (RuntimeError, TypeError, ValueError) as error:
        text = str(error)
    if text is None:
        # What is legal: another number of edges, of nodes that no edge names, and the like.
        assert not wrong_dtype
        assert wrong not in ("list", "numpy", "sparse", "complex")
        assert wrong != "meta" or name == "Dropout"
        assert wrong != "None" or optional
        return
    # Of lists, the operators that a layer calls directly speak through torch's dispatcher.
    said = re.search(r"^([a-z_]+)(?:\[.*\])?: expected|for argument '([a-z_]+)' but instead found", text)
    assert said is not None, text
    known = {*valid, "num_nodes", "scores"}  # NaN features give NaN scores
    if name == "ParseHierarchy":
        known.add("edge_weight")  # as its network takes them
    assert (said[1] or said[2]) in known, text


WRONG_SETTINGS = {
    **dict.fromkeys(
        ("in_channels", "num_layers", "scorer_layers", "multiset_layers", "edge_dim", "max_height"),
        ("8", 1.5, -3, [8], torch.nn.Linear),
    ),
    **dict.fromkeys(("dropout", "drop_edge", "p"), ("0.5", None, 1.5, -1, [0])),
    **dict.fromkeys(("recompute", "multiset"), ("yes", 1.5, [8], torch.nn.Linear)),
    **dict.fromkeys(("reduce", "edge_reduce"), ("add", 1.5, None, [8])),
    **dict.fromkeys(("pool", "gnn", "multiset_gnn", "readout"), ("sum", 1.5, torch.nn.Linear, abs)),
}
LAYERS = (ParsePooling, SelectParse, ConnectClusters, EdgeScorer, DeepSets, Reduce, Dropout, ParseHierarchy)


@pytest.mark.parametrize(
    ("make", "setting", "bad"),
    [
        pytest.param(make, setting, bad, id=f"{make.__name__}-{setting}-{bad}")
        for make in LAYERS
        for setting in inspect.signature(make).parameters
        for bad in WRONG_SETTINGS.get(setting, ())
    ],
)
def test_a_bad_setting_is_named(make, setting, bad):
    needed = {"in_channels": 8, "pool": ParsePooling(8), "reduce": "sum"}
    taken = inspect.signature(make).parameters
    given = {name: value for name, value in needed.items() if name in taken}
    with pytest.raises((RuntimeError, TypeError, ValueError), match=f"^{setting}: expected"):
        make(**{**given, setting: bad})


def test_another_pooling_is_refused():
    with pytest.raises(TypeError, match=r"^pool: expected ParsePooling, .*, got TopKPooling\.forward\(x"):
        ParseHierarchy(TopKPooling(8))


def test_graphs_of_huge_numbers():
    """Their number would be the size of results."""
    for highest in (2**58, 2**63 - 1):
        batch = torch.tensor([0, 0, 0, 0, highest])
        with pytest.raises(RuntimeError, match=rf"^batch: expected numbers below 2\^58, got {highest}$"):
            ParseHierarchy(ParsePooling(8))(X, EDGES[:, :6], batch=batch)
