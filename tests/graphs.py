"""Graphs that the tests share: named hard ones, builders of any size, random ones, and inputs that must be
refused.

Imported as ``import graphs``: tests/ is not a package, so that the installed gpn_ops is tested and not the
checkout.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

# A time limit per example would measure the machine, and the first call of each operator.
settings.register_profile("default", deadline=None)

INF = float("inf")
NAN = float("nan")
SCORE_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Graph(NamedTuple):
    """The arguments of parse, in its order."""

    edge_index: Tensor
    scores: Tensor
    num_nodes: int


def graph(
    num_nodes: int, edges: Sequence[tuple[int, int, float]], dtype: torch.dtype = torch.float32
) -> Graph:
    """The graph with these (row, col, score) edges, in this order."""
    rows, cols, scores = ([edge[k] for edge in edges] for k in range(3))
    return Graph(
        torch.tensor([rows, cols], dtype=torch.int64).reshape(2, -1),
        torch.tensor(scores, dtype=dtype),
        num_nodes,
    )


def undirected(num_nodes: int, edges: Sequence[tuple[int, int, float]]) -> Graph:
    """The graph with both directions of each of these edges, a direction beside its reverse."""
    return graph(num_nodes, [edge for i, j, score in edges for edge in ((i, j, score), (j, i, score))])


def batched(batch: Sequence[Graph]) -> Graph:
    """One graph that holds these side by side, nodes and edges graph after graph."""
    first_node = [sum(g.num_nodes for g in batch[:k]) for k in range(len(batch))]
    shifted = [g.edge_index.long() + first for g, first in zip(batch, first_node, strict=True)]
    empty = graph(0, [])
    return Graph(
        torch.cat([empty.edge_index, *shifted], dim=1),
        torch.cat([empty.scores, *(g.scores for g in batch)]),
        sum(g.num_nodes for g in batch),
    )


# ------------------------------------------------------------------------------------------------------------
# Builders of any size. Each returns an edge_index that stores both directions.
# ------------------------------------------------------------------------------------------------------------


def both_directions(one_way: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Append the reverse of every edge; with a generator, shuffle the edges and rename the nodes."""
    edge_index = torch.cat([one_way, one_way.flip(0)], dim=1)
    if generator is None:
        return edge_index
    num_nodes = int(edge_index.max()) + 1 if edge_index.numel() > 0 else 0
    new_name = torch.randperm(num_nodes, generator=generator)
    return new_name[edge_index[:, torch.randperm(edge_index.size(1), generator=generator)]]


def path(num_nodes: int, generator: torch.Generator | None = None) -> Tensor:
    """0 - 1 - 2 - ... ; with a generator, nodes and edges in random order."""
    first = torch.arange(max(num_nodes - 1, 0))
    return both_directions(torch.stack([first, first + 1]), generator)


def ring(num_nodes: int, generator: torch.Generator | None = None) -> Tensor:
    """A path whose last node is joined to its first."""
    first = torch.arange(num_nodes)
    return both_directions(torch.stack([first, (first + 1) % max(num_nodes, 1)]), generator)


def star(num_nodes: int, generator: torch.Generator | None = None) -> Tensor:
    """Node 0 joined to all others."""
    leaf = torch.arange(1, max(num_nodes, 1))
    return both_directions(torch.stack([torch.zeros_like(leaf), leaf]), generator)


def many_rings(num_graphs: int, nodes_each: int, generator: torch.Generator | None = None) -> Tensor:
    """A batch of small graphs: rings, one after the other; with a generator, in random order."""
    one_way = ring(nodes_each)[:, :nodes_each]
    offset = nodes_each * torch.arange(num_graphs).repeat_interleave(nodes_each)
    return both_directions(one_way.repeat(1, num_graphs) + offset, generator)


def erdos_renyi(num_nodes: int, undirected_edges: int, generator: torch.Generator) -> Tensor:
    """Edges drawn uniformly with replacement, no self-loops, both directions, sorted by row then column."""
    if undirected_edges > 0 and num_nodes < 2:
        raise ValueError(f"expected at least 2 nodes for {undirected_edges} edges, got {num_nodes}")
    i = torch.randint(num_nodes, (undirected_edges,), generator=generator)
    j = torch.randint(num_nodes - 1, (undirected_edges,), generator=generator) if undirected_edges else i
    edge_index = both_directions(torch.stack([i, j + (j >= i)]))
    return edge_index[:, (edge_index[0] * num_nodes + edge_index[1]).argsort()]


def random_scores(
    edge_index: Tensor, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> Tensor:
    """One uniform score per stored edge, so an edge and its reverse differ."""
    return torch.rand(edge_index.size(1), generator=generator).to(dtype)


# ------------------------------------------------------------------------------------------------------------
# Named small graphs
# ------------------------------------------------------------------------------------------------------------


def _triangle_of_equal_scores() -> Graph:
    # Every node meets its successor first, so 0 chooses 1, 1 chooses 2, 2 chooses 0: a cycle without a mutual
    # pair.
    return graph(3, [(0, 1, 1), (1, 2, 1), (2, 0, 1), (1, 0, 1), (2, 1, 1), (0, 2, 1)])


def _directed_ring(num_nodes: int) -> Graph:
    return graph(num_nodes, [(i, (i + 1) % num_nodes, 1) for i in range(num_nodes)])


# Name -> (graph, its clusters worked out by hand).
_NAMED: dict[str, tuple[Graph, list[int]]] = {
    "empty": (graph(0, []), []),
    "no_edges": (graph(3, []), [0, 1, 2]),
    "one_node": (graph(1, []), [0]),
    "one_self_loop": (graph(1, [(0, 0, 1)]), [0]),
    "one_edge": (graph(2, [(0, 1, 1)]), [0, 0]),
    "one_edge_backwards": (graph(2, [(1, 0, 1)]), [0, 0]),
    "one_edge_of_score_zero": (graph(2, [(0, 1, 0.0)]), [0, 0]),
    "one_edge_of_minus_inf": (graph(2, [(0, 1, -INF)]), [0, 0]),
    "mutual_pair": (undirected(2, [(0, 1, 1)]), [0, 0]),
    "two_pairs": (undirected(4, [(0, 1, 0.9), (1, 2, 0.1), (2, 3, 0.8)]), [0, 0, 1, 1]),
    "isolated_between": (undirected(5, [(1, 3, 1)]), [0, 1, 2, 1, 3]),
    "isolated_at_the_end": (undirected(4, [(0, 1, 1)]), [0, 0, 1, 2]),
    "self_loop_wins": (graph(2, [(0, 0, 2), (0, 1, 1), (1, 1, 2), (1, 0, 1)]), [0, 1]),
    "self_loop_loses": (graph(2, [(0, 0, 1), (0, 1, 2), (1, 1, 1), (1, 0, 2)]), [0, 0]),
    "self_loop_ties_first": (graph(2, [(0, 0, 1), (0, 1, 1)]), [0, 1]),
    "self_loop_ties_last": (graph(2, [(0, 1, 1), (0, 0, 1)]), [0, 0]),
    "self_loop_chosen_by_others": (graph(3, [(1, 1, 1), (2, 1, 1), (0, 1, 1)]), [0, 0, 0]),
    "duplicate_edges": (graph(3, [(0, 1, 1), (0, 2, 2), (0, 1, 3), (0, 2, 2)]), [0, 0, 1]),
    "duplicate_edges_tie": (graph(3, [(0, 2, 1), (0, 1, 1), (0, 2, 1)]), [0, 1, 0]),
    "tie_to_lowest_edge_id": (graph(4, [(0, 3, 1), (0, 1, 1), (0, 2, 1)]), [0, 1, 2, 0]),
    "tie_of_zeros": (graph(3, [(0, 2, -0.0), (0, 1, 0.0)]), [0, 1, 0]),
    "tie_of_zeros_reversed": (graph(3, [(0, 2, 0.0), (0, 1, -0.0)]), [0, 1, 0]),
    "tie_of_plus_inf": (graph(3, [(0, 2, INF), (0, 1, INF)]), [0, 1, 0]),
    "tie_of_minus_inf": (graph(3, [(0, 2, -INF), (0, 1, -INF)]), [0, 1, 0]),
    "plus_inf_beats_largest": (graph(3, [(0, 2, 3.0e38), (0, 1, INF)]), [0, 0, 1]),
    "lowest_beats_minus_inf": (graph(3, [(0, 2, -INF), (0, 1, -3.0e38)]), [0, 0, 1]),
    "zero_beats_negative": (graph(3, [(0, 2, -1), (0, 1, 0)]), [0, 0, 1]),
    "all_negative": (graph(3, [(0, 2, -2), (0, 1, -1)]), [0, 0, 1]),
    "denormals": (graph(3, [(0, 2, 1e-45), (0, 1, 3e-45)]), [0, 0, 1]),
    "denormal_beats_zero": (graph(3, [(0, 2, 0.0), (0, 1, 1e-45)]), [0, 0, 1]),
    "zero_beats_negative_denormal": (graph(3, [(0, 2, -1e-45), (0, 1, 0.0)]), [0, 0, 1]),
    # In half precision 1 and 1 + 2^-12 are one score, and the lower edge id decides.
    "tie_in_float16": (graph(3, [(0, 2, 1), (0, 1, 1 + 2**-12)], torch.float16), [0, 1, 0]),
    "tie_in_bfloat16": (graph(3, [(0, 2, 1), (0, 1, 1 + 2**-12)], torch.bfloat16), [0, 1, 0]),
    "no_tie_in_float32": (graph(3, [(0, 2, 1), (0, 1, 1 + 2**-12)], torch.float32), [0, 0, 1]),
    # In float32 these two are one score.
    "no_tie_in_float64": (graph(3, [(0, 2, 1), (0, 1, 1 + 2**-40)], torch.float64), [0, 0, 1]),
    "triangle_of_equal_scores": (_triangle_of_equal_scores(), [0, 0, 0]),
    "two_triangles_bridged": (
        undirected(6, [(0, 1, 3), (1, 2, 2), (0, 2, 2), (2, 3, 1), (3, 4, 2), (4, 5, 3), (3, 5, 2)]),
        [0, 0, 0, 1, 1, 1],
    ),
    "directed_ring": (_directed_ring(5), [0, 0, 0, 0, 0]),
    "asymmetric_scores": (graph(3, [(0, 1, 1), (1, 0, 1), (1, 2, 2), (2, 1, 1)]), [0, 0, 0]),
    "chain_into_a_sink": (graph(4, [(3, 2, 1), (2, 1, 1), (1, 0, 1)]), [0, 0, 0, 0]),
    "chain_out_of_order": (graph(5, [(4, 0, 1), (0, 3, 1), (3, 1, 1)]), [0, 0, 1, 0, 0]),
    "path_rising": (undirected(5, [(0, 1, 1), (1, 2, 2), (2, 3, 3), (3, 4, 4)]), [0, 0, 0, 0, 0]),
    "path_broken": (
        undirected(6, [(0, 1, 3), (1, 2, 1), (2, 3, 2), (3, 4, 1), (4, 5, 3)]),
        [0, 0, 1, 1, 2, 2],
    ),
    "path_of_equal_scores": (undirected(4, [(0, 1, 1), (1, 2, 1), (2, 3, 1)]), [0, 0, 0, 0]),
    "ring_alternating": (undirected(6, [(i, (i + 1) % 6, 1 - i % 2) for i in range(6)]), [0, 0, 1, 1, 2, 2]),
    "star": (undirected(5, [(2, 0, 1), (2, 1, 5), (2, 3, 2), (2, 4, 3)]), [0, 0, 0, 0, 0]),
    "star_inwards": (graph(4, [(0, 3, 1), (1, 3, 2), (2, 3, 3)]), [0, 0, 0, 0]),
    "star_outwards": (graph(4, [(3, 0, 1), (3, 1, 3), (3, 2, 2)]), [0, 1, 2, 1]),
    "clusters_interleaved": (undirected(6, [(0, 3, 1), (1, 4, 1), (2, 5, 1)]), [0, 1, 2, 0, 1, 2]),
    "smallest_node_is_never_a_chooser": (graph(4, [(3, 1, 1), (2, 0, 1)]), [0, 1, 0, 1]),
    "batch_of_three": (
        undirected(7, [(0, 1, 1), (2, 3, 1), (3, 4, 2), (5, 6, 1)]),
        [0, 0, 1, 1, 1, 2, 2],
    ),
}

NAMED_GRAPHS: dict[str, Graph] = {name: example for name, (example, _) in _NAMED.items()}
EXPECTED_CLUSTERS: dict[str, Tensor] = {
    name: torch.tensor(cluster, dtype=torch.int64) for name, (_, cluster) in _NAMED.items()
}


# ------------------------------------------------------------------------------------------------------------
# Random graphs for hypothesis
# ------------------------------------------------------------------------------------------------------------

# Few values, so that ties are common, and those whose order is easy to get wrong. The denormal and the pair
# of values beside 1 differ in float32 and meet in the half formats.
_TRICKY = (0.0, -0.0, 1.0, -1.0, INF, -INF, 1e-45, -1e-45, 1.0 + 2**-20, 1.0 - 2**-20, 6e-8, 65504.0)
_SCORE = st.one_of(
    st.sampled_from(_TRICKY), st.integers(-2, 2).map(float), st.floats(width=32, allow_nan=False)
)


@st.composite
def scored_graphs(
    draw: st.DrawFn,
    max_nodes: int = 12,
    max_edges: int = 40,
    dtypes: Sequence[torch.dtype] = SCORE_DTYPES,
    index_dtypes: Sequence[torch.dtype] = (torch.int64, torch.int32),
) -> Graph:
    """Any legal arguments: duplicates, self-loops, ties, infinities, isolated nodes, one-way edges, no
    nodes."""
    num_nodes = draw(st.integers(0, max_nodes))
    node = st.integers(0, max(num_nodes - 1, 0))
    edge = st.tuples(node, node, _SCORE)
    edges = draw(st.lists(edge, max_size=max_edges if num_nodes > 0 else 0))
    drawn = graph(num_nodes, edges, torch.float64)
    return Graph(
        drawn.edge_index.to(draw(st.sampled_from(index_dtypes))),
        drawn.scores.to(draw(st.sampled_from(dtypes))),
        num_nodes,
    )


@st.composite
def undirected_graphs(
    draw: st.DrawFn, max_nodes: int = 12, max_edges: int = 20, distinct: bool = False, symmetric: bool = True
) -> Graph:
    """Graphs without self-loops that store both directions, in a random order.

    ``distinct``: no two undirected edges (with ``symmetric=False``, no two stored edges) have the same score.
    ``symmetric``: an edge and its reverse have the same score.
    """
    num_nodes = draw(st.integers(2, max_nodes))
    pair = st.tuples(st.integers(0, num_nodes - 1), st.integers(0, num_nodes - 1))
    pairs = draw(
        st.lists(
            pair.filter(lambda ends: ends[0] != ends[1]).map(lambda ends: (min(ends), max(ends))),
            max_size=max_edges,
            unique=True,
        )
    )
    how_many = len(pairs) if symmetric else 2 * len(pairs)
    if distinct:
        values = draw(st.permutations(range(how_many)))
    else:
        values = draw(st.lists(st.integers(-2, 2), min_size=how_many, max_size=how_many))
    scores = list(values) * 2 if symmetric else list(values)
    edges = pairs + [(j, i) for i, j in pairs]
    order = draw(st.permutations(range(len(edges))))
    return graph(num_nodes, [(*edges[e], float(scores[e])) for e in order])


# ------------------------------------------------------------------------------------------------------------
# What parse must refuse
# ------------------------------------------------------------------------------------------------------------


class BadInput(NamedTuple):
    """Arguments of parse that break the contract, and the whole text of the error they get."""

    id: str
    kwargs: Callable[[], dict[str, Any]]
    message: str

    @property
    def reads_data(self) -> bool:
        """Whether the fault is in the values: dtypes, shapes and devices are as they should be."""
        return " at " in self.message or self.message.startswith(_ID_NO_NODES)


def _good(**replaced: Any) -> dict[str, Any]:
    return {**undirected(5, [(0, 1, 1), (3, 4, 2)])._asdict(), **replaced}


def _edges(rows: list[int], cols: list[int], **replaced: Any) -> dict[str, Any]:
    index = torch.tensor([rows, cols], dtype=torch.int64)
    return {"edge_index": index, "scores": torch.ones(len(rows)), "num_nodes": 5, **replaced}


def _scores(*scores: float, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return _good(scores=torch.tensor(scores, dtype=dtype))


_INDEX_DTYPE = "edge_index: expected an int64 or int32 tensor, got "
_INDEX_SHAPE = "edge_index: expected shape [2, num_edges], got "
_SCORE_DTYPE = "scores: expected a float32, float64, float16 or bfloat16 tensor, got "
_SCORE_SHAPE = "scores: expected shape [num_edges] = [4], got "
_NUM_NODES = "num_nodes: expected a non-negative integer, got "
_ID = "edge_index: expected node ids from 0 to num_nodes - 1 = 4, got "
_ID_NONE = "edge_index: expected non-negative node ids, got "
_ID_NO_NODES = "edge_index: expected no edges because num_nodes is 0, got "
_NO_NAN = "scores: expected no NaN, got NaN at "

BAD_INPUTS: list[BadInput] = [
    *(
        BadInput(
            f"edge_index_{name}",
            lambda dtype=dtype: _good(edge_index=torch.zeros(2, 4, dtype=dtype)),
            _INDEX_DTYPE + name,
        )
        for name, dtype in {
            "float32": torch.float32,
            "float64": torch.float64,
            "int16": torch.int16,
            "int8": torch.int8,
            "uint8": torch.uint8,
            "bool": torch.bool,
        }.items()
    ),
    *(
        BadInput(
            f"edge_index_shape_{'x'.join(map(str, shape)) or 'scalar'}",
            lambda shape=shape: _good(edge_index=torch.zeros(shape, dtype=torch.int64)),
            _INDEX_SHAPE + str(list(shape)),
        )
        for shape in [(), (4,), (0,), (3, 4), (1, 4), (0, 4), (4, 2), (2, 4, 1), (1, 2, 4)]
    ),
    *(
        BadInput(
            f"scores_{name}",
            lambda dtype=dtype: _good(scores=torch.ones(4, dtype=dtype)),
            _SCORE_DTYPE + name,
        )
        for name, dtype in {
            "int64": torch.int64,
            "int32": torch.int32,
            "bool": torch.bool,
            "complex64": torch.complex64,
            "float8_e4m3fn": torch.float8_e4m3fn,
        }.items()
    ),
    *(
        BadInput(
            f"scores_shape_{'x'.join(map(str, shape)) or 'scalar'}",
            lambda shape=shape: _good(scores=torch.ones(shape)),
            _SCORE_SHAPE + str(list(shape)),
        )
        for shape in [(), (0,), (3,), (5,), (4, 1), (1, 4), (2, 4)]
    ),
    BadInput(
        "scores_without_edges",
        lambda: _good(edge_index=torch.zeros(2, 0, dtype=torch.int64)),
        "scores: expected shape [num_edges] = [0], got [4]",
    ),
    BadInput("num_nodes_minus_1", lambda: _good(num_nodes=-1), _NUM_NODES + "-1"),
    BadInput("num_nodes_very_negative", lambda: _good(num_nodes=-(2**62)), _NUM_NODES + str(-(2**62))),
    BadInput(
        "num_nodes_negative_without_edges",
        lambda: {**graph(0, [])._asdict(), "num_nodes": -3},
        _NUM_NODES + "-3",
    ),
    BadInput("id_negative_in_row_0", lambda: _edges([0, -1], [1, 2]), _ID + "-1 at edge_index[0, 1]"),
    BadInput("id_negative_in_row_1", lambda: _edges([0, 1, 2], [1, 2, -7]), _ID + "-7 at edge_index[1, 2]"),
    BadInput("id_is_num_nodes_in_row_0", lambda: _edges([5, 0], [0, 1]), _ID + "5 at edge_index[0, 0]"),
    BadInput(
        "id_is_num_nodes_in_row_1", lambda: _edges([0, 1, 2, 3], [1, 2, 3, 5]), _ID + "5 at edge_index[1, 3]"
    ),
    BadInput(
        "id_beyond_any_memory",
        lambda: _edges([0, 1], [2**62, 0], num_nodes=None),
        f"edge_index: expected node ids below 2^58, got {2**62} at edge_index[1, 0]",
    ),
    BadInput("id_far_too_high", lambda: _edges([0, 1], [2**62, 0]), _ID + f"{2**62} at edge_index[1, 0]"),
    BadInput(
        "id_lowest_int64", lambda: _edges([0, -(2**63)], [1, 0]), _ID + f"{-(2**63)} at edge_index[0, 1]"
    ),
    BadInput(
        "id_first_edge_first",
        lambda: _edges([0, 1, 9, -4], [1, 7, 0, 0]),
        _ID + "7 at edge_index[1, 1]",
    ),
    BadInput("id_row_0_before_row_1", lambda: _edges([0, 1, 9], [1, 0, -2]), _ID + "9 at edge_index[0, 2]"),
    BadInput(
        "id_int32",
        lambda: _edges([0], [0], edge_index=torch.tensor([[0], [7]], dtype=torch.int32)),
        _ID + "7 at edge_index[1, 0]",
    ),
    BadInput(
        "id_int32_negative",
        lambda: _edges([0], [0], edge_index=torch.tensor([[-(2**31)], [0]], dtype=torch.int32)),
        _ID + f"{-(2**31)} at edge_index[0, 0]",
    ),
    # Compared as int32, num_nodes would wrap around and id 0 would seem wrong.
    BadInput(
        "id_int32_num_nodes_past_int32",
        lambda: _edges([0, 0], [0, 0], edge_index=torch.tensor([[0, -1], [0, 0]]).int(), num_nodes=2**31 + 1),
        f"edge_index: expected node ids from 0 to num_nodes - 1 = {2**31}, got -1 at edge_index[0, 1]",
    ),
    BadInput(
        "id_in_a_strided_view",
        lambda: _edges([0], [0], edge_index=torch.tensor([[0, 7]]).t(), scores=torch.ones(1)),
        _ID + "7 at edge_index[1, 0]",
    ),
    BadInput(
        "no_nodes_but_edges",
        lambda: _edges([0, 1, 2], [1, 2, 0], num_nodes=0),
        _ID_NO_NODES + "3 edges",
    ),
    BadInput(
        "no_nodes_but_edges_and_nan",
        lambda: _edges([0, -1], [1, 0], scores=torch.tensor([NAN, 1.0]), num_nodes=0),
        _ID_NO_NODES + "2 edges",
    ),
    BadInput(
        "num_nodes_none_id_negative_in_row_0",
        lambda: _edges([0, -2], [1, 1], num_nodes=None),
        _ID_NONE + "-2 at edge_index[0, 1]",
    ),
    BadInput(
        "num_nodes_none_id_negative_in_row_1",
        lambda: _edges([0, 1, -3], [1, -1, 0], num_nodes=None),
        _ID_NONE + "-1 at edge_index[1, 1]",
    ),
    *(
        BadInput(
            f"nan_{str(dtype).removeprefix('torch.')}",
            lambda dtype=dtype: _scores(1, 2, NAN, NAN, dtype=dtype),
            _NO_NAN + "scores[2]",
        )
        for dtype in SCORE_DTYPES
    ),
    BadInput("nan_beside_inf", lambda: _scores(INF, -INF, INF, NAN), _NO_NAN + "scores[3]"),
    BadInput("nan_sign_bit", lambda: _good(scores=-torch.tensor([1, NAN, 1, 1])), _NO_NAN + "scores[1]"),
    BadInput(
        "nan_num_nodes_none", lambda: {**_scores(NAN, 1, 1, 1), "num_nodes": None}, _NO_NAN + "scores[0]"
    ),
    # Several faults: the first of the contract's order is named.
    BadInput(
        "index_dtype_before_index_shape",
        lambda: _good(edge_index=torch.zeros(3, 4)),
        _INDEX_DTYPE + "float32",
    ),
    BadInput(
        "index_shape_before_score_dtype",
        lambda: _good(
            edge_index=torch.zeros(3, 4, dtype=torch.int64), scores=torch.ones(4, dtype=torch.int64)
        ),
        _INDEX_SHAPE + "[3, 4]",
    ),
    BadInput(
        "score_dtype_before_score_shape",
        lambda: _good(scores=torch.ones(3, dtype=torch.int64)),
        _SCORE_DTYPE + "int64",
    ),
    BadInput(
        "score_shape_before_num_nodes",
        lambda: _good(scores=torch.ones(3), num_nodes=-1),
        _SCORE_SHAPE + "[3]",
    ),
    BadInput("num_nodes_before_id", lambda: _edges([-1], [0], num_nodes=-1), _NUM_NODES + "-1"),
    BadInput(
        "id_before_nan",
        lambda: _edges([0, 5], [1, 1], scores=torch.tensor([NAN, 1.0])),
        _ID + "5 at edge_index[0, 1]",
    ),
]
