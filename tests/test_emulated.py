"""Operators on the emulated CUDA device, host side included: what they give, and what is counted there."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gpn_ops
from gpn_ops.nn import ParsePooling

edge_logits_module = importlib.import_module("gpn_ops.ops.edge_logits")
residual_module = importlib.import_module("gpn_ops.ops.residual")
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def emulation(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import emulation

    if emulation.find_cmake() is None:
        pytest.skip("needs cmake")
    return emulation


def record(emulation, function):
    with emulation.Recorder() as calls:
        function()
    return calls


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_every_operator_gives_what_the_cpu_gives(emulation, dtype):
    """The comparison is in count() itself."""
    counts = emulation.count_operators(emulation.Workload(3, 12, 20, 5, dtype))
    assert sorted(call["operator"] for call in counts) == emulation.operators()
    for call in counts:
        assert call["launches"] == sum(kernel["launches"] for kernel in call["kernels"])
        assert 0 < call["bytes_touched"] <= 32 * (call["sectors_read"] + call["sectors_written"])


@pytest.mark.parametrize("room", [(0, 9), (9, 0), (9, 9)])
def test_room_on_the_emulated_device(emulation, room):
    """Enough of it, or too little: the same as on the CPU."""
    edge_index, cluster = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 1]]), torch.tensor([0, 0, 1, 2])
    calls = record(emulation, lambda: gpn_ops.coarsen(edge_index, cluster, torch.ones(5), capacity=room))
    calls += record(emulation, lambda: torch.ops.gpn.undirected_padded(edge_index, 4, room[1]))
    emulation.count(calls)


def test_other_results_are_noticed(emulation):
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    calls = record(emulation, lambda: torch.ops.gpn.undirected(edge_index, 3))
    calls[0].results[0][0, 0] += 1
    with pytest.raises(AssertionError, match="undirected"):
        emulation.count(calls)
    calls[0].results.pop()
    with pytest.raises(AssertionError, match="shapes"):
        emulation.count(calls)


def test_a_cluster_out_of_range_trips_the_assertion(emulation):
    calls = record(emulation, lambda: torch.ops.gpn.lift(torch.ones(2, 1), torch.tensor([0, 1])))
    calls[0].arguments["cluster"][0] = 2
    with pytest.raises(RuntimeError, match=r"lift: .*: cluster: ids from -1 to num_clusters - 1"):
        emulation.count(calls)


def test_known_counts(emulation):
    rows, width = 640, 48
    cluster = torch.arange(rows) // 2
    calls = record(emulation, lambda: gpn_ops.lift(torch.randn(rows // 2, width), cluster))
    (lift,) = emulation.count(calls)
    assert (lift["launches"], lift["waits"], lift["longest_loop"], lift["longest_chain"]) == (1, 0, 1, 3)
    assert (lift["bytes_read"], lift["bytes_written"]) == (rows * width * (8 + 4), rows * width * 4)
    assert lift["bytes_touched"] == 8 * rows + 4 * width * rows // 2 + 4 * width * rows
    assert lift["memory"] == 4 * width * rows
    assert lift["arguments"]["cluster"] == {"dtype": "int64", "shape": [rows]}
    # The cluster of a row is one sector to the 32 lanes of a warp, or two where a row ends inside of it.
    assert lift["sectors_written"] == 4 * width * rows // 32
    assert lift["sectors_read"] < 2 * lift["sectors_written"]


def test_the_host_waits_where_sizes_are_read(emulation):
    edge_index, scores = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.ones(3)
    cluster = torch.zeros(3, dtype=torch.long)
    for function, waits in (
        (lambda: gpn_ops.parse(edge_index, scores, 3), 0),
        (lambda: gpn_ops.parse(edge_index, scores), 1),
        (lambda: gpn_ops.mask(edge_index, scores, cluster, 1), 0),
        (lambda: gpn_ops.coarsen(edge_index, cluster), 1),
        (lambda: gpn_ops.coarsen(edge_index, cluster, capacity=(1, 1)), 0),
        (lambda: torch.ops.gpn.undirected_padded(edge_index, 3, 3), 0),
    ):
        assert sum(call["waits"] for call in emulation.count(record(emulation, function))) == waits


def test_no_thread_takes_more_than_1024_items_in_sequence(emulation):
    """A hub with all other nodes around it: one cluster, and one run of pairs."""
    leaf = torch.arange(1, 3000)
    edges = torch.stack([torch.zeros_like(leaf), leaf])
    edge_index, x = torch.cat([edges, edges.flip(0)], dim=1), torch.randn(3000, 2, requires_grad=True)
    pool = ParsePooling(2, recompute=True)
    calls = record(emulation, lambda: pool(x, edge_index).x.sum().backward())
    scored = {"edge_logits", "edge_logits_backward", "residual", "residual_backward"}
    assert {"parse", "coarsen", "mask", *scored} <= {c.operator for c in calls}
    for call in emulation.count(calls):
        assert call["longest_loop"] <= 1024, call["operator"]


@pytest.mark.parametrize("last", [False, True])
def test_no_thread_walks_a_whole_path(emulation, last):
    """Every node chooses the next one, or the one before: a tree as deep as there are nodes."""
    node = torch.arange(3999)
    edge_index = torch.stack([node, node + 1] if last else [node + 1, node])
    calls = record(emulation, lambda: gpn_ops.parse(edge_index, torch.ones(3999), 4000))
    calls += record(emulation, lambda: gpn_ops.components(edge_index, 4000))
    assert all(bool((call.results[0] == 0).all()) for call in calls)
    for call in emulation.count(calls):
        assert call["longest_loop"] <= 1024, call["operator"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("channels", "hidden", "num_pairs", "dropout"),
    [
        (1, 1, 9, 0.0),
        (5, 3, 1, 0.5),
        (48, 2, 7, 0.3),
        (130, 1, 6, 0.0),
        (300, 1, 5, 0.3),
        (1100, 1, 5, 0.0),
        (8, 1, 0, 0.0),
    ],
)
def test_the_fused_scorer(emulation, dtype, channels, hidden, num_pairs, dropout):
    """With the CPU's kernel and with float64: widths that no warp divides, past a lane's columns, past a
    block's shared memory; warps whose pairs are not all there."""
    torch.manual_seed(0)
    layer = [(channels, channels), (channels,), (channels,), (channels,)]
    parameters = [torch.randn(shape).to(dtype) for shape in (*(hidden * layer), (1, channels), (1,))]
    h, pairs = torch.randn(9, channels).to(dtype), torch.randint(9, (2, num_pairs))
    seed = torch.tensor(3) if dropout else None
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    calls = record(
        emulation, lambda: torch.ops.gpn.edge_logits(h, pairs, parameters, wide, dropout, seed, 1024)
    )
    assert [call.operator for call in calls] == ["edge_logits"]
    exact = torch.ops.gpn.edge_logits(
        h.double(), pairs, [p.double() for p in parameters], torch.float64, dropout, seed, 1024
    )
    if num_pairs:  # a float32 kernel, so far from float64 as float32 is
        calls[0].results[0] = exact.to(wide)
    (counts,) = emulation.count(calls)
    assert counts["launches"] <= hidden + 1 + (3 * hidden + 2 + hidden) * (dtype.itemsize == 2)
    assert counts["waits"] == 0


def hub_and_others(num_nodes, num_pairs):
    """Pairs in no order, two thirds of them with the same first or the same second node; some twice, some of
    a node with itself."""
    pairs = torch.randint(num_nodes, (2, num_pairs))
    pairs[0, : num_pairs // 3] = 1
    pairs[1, num_pairs // 3 : 2 * (num_pairs // 3)] = 2
    return pairs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("channels", "hidden", "num_pairs", "dropout"),
    [
        (3, 1, 9, 0.0),
        (5, 3, 1, 0.5),
        (5, 2, 1537, 0.3),  # nodes whose pairs are in several chunks
        (48, 2, 70, 0.3),  # nodes with pairs enough to be taken by nodes
        (130, 1, 33, 0.0),
        (300, 1, 40, 0.3),  # the same, and more columns than a block has threads for at a time
        pytest.param(845, 1, 3, 0.0, marks=pytest.mark.slow),  # past a block's shared memory
        (8, 1, 0, 0.0),
    ],
)
def test_the_fused_gradients(emulation, dtype, channels, hidden, num_pairs, dropout):
    """With float64, which the plain form computes."""
    torch.manual_seed(0)
    layer = [(channels, channels), (channels,), (channels,), (channels,)]
    parameters = [torch.randn(shape).to(dtype) for shape in (*(hidden * layer), (1, channels), (1,))]
    h, pairs = torch.randn(9, channels).to(dtype), hub_and_others(9, num_pairs)
    seed = torch.tensor(3) if dropout else None
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    grad = torch.randn(num_pairs, dtype=wide)
    arguments = (pairs, parameters, wide, dropout, seed, 16)
    calls = record(emulation, lambda: torch.ops.gpn.edge_logits_backward(grad, h, *arguments))
    assert [call.operator for call in calls] == ["edge_logits_backward"]
    exact = edge_logits_module.plain_edge_logits_backward(
        grad.double(), h.double(), pairs, [p.double() for p in parameters], torch.float64, *arguments[3:]
    )
    calls[0].results[:] = [value.to(dtype) for value in exact]
    (counts,) = emulation.count(calls)
    assert counts["launches"] <= 60  # there are no tiles of 16 rows
    assert counts["waits"] == 0


def test_the_fused_scorer_reads_no_row_of_a_pair_that_does_not_exist(emulation):
    parameters = [torch.eye(3), *[torch.ones(3)] * 3, torch.ones(1, 3), torch.ones(1)]
    pairs = torch.zeros(2, 2, dtype=torch.int64)
    calls = record(
        emulation,
        lambda: torch.ops.gpn.edge_logits(torch.ones(2, 3), pairs, parameters, torch.float32, 0.0, None, 16),
    )
    calls[0].arguments["pairs"][1, 1] = 2
    with pytest.raises(RuntimeError, match=r"edge_logits: .*: pairs: node ids from 0 to num_nodes - 1"):
        emulation.count(calls)


# Rows, and clusters or none. One in three rows is of the first cluster, some are of none.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("channels", "layers", "num_rows", "num_clusters", "dropout"),
    [
        (5, 1, 9, None, 0.0),
        (5, 3, 1, 1, 0.5),
        (5, 2, 3000, 40, 0.3),  # clusters whose rows are in several chunks
        (48, 2, 70, None, 0.3),
        (130, 1, 33, 5, 0.0),
        pytest.param(350, 2, 3, 2, 0.3, marks=pytest.mark.slow),  # past a block's shared memory in backward
        pytest.param(730, 1, 3, 2, 0.0, marks=pytest.mark.slow),  # in forward too
        (8, 1, 0, 3, 0.0),
        (8, 1, 0, None, 0.0),
        (8, 1, 4, 0, 0.0),
    ],
)
def test_the_fused_blocks(emulation, dtype, channels, layers, num_rows, num_clusters, dropout):
    """DeepSets' blocks and their gradients, with float64, which the plain form computes."""
    torch.manual_seed(0)
    shapes = [*(layers * [(channels, channels), (channels,)]), (channels,), (channels,)]
    parameters = [torch.randn(shape).to(dtype) for shape in shapes]
    x, cluster = torch.randn(num_rows, channels).to(dtype), None
    if num_clusters is not None:
        cluster = torch.randint(-1, num_clusters, (num_rows,))
        cluster[: num_rows // 3] = min(0, num_clusters - 1)
    grad = torch.randn(num_rows if cluster is None else num_clusters, channels).to(dtype)
    seed = torch.tensor(3) if dropout else None
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    settings, kept = (dropout, seed, 16), torch.empty(0, dtype=wide)
    doubled = [p.double() for p in parameters]
    calls = record(
        emulation,
        lambda: (
            torch.ops.gpn.residual(x, cluster, num_clusters or 0, parameters, wide, *settings, False),
            torch.ops.gpn.residual_backward(grad, x, cluster, parameters, wide, *settings, kept),
        ),
    )
    assert [call.operator for call in calls] == ["residual", "residual_backward"]
    exact, _ = residual_module.plain_residual(
        x.double(), cluster, num_clusters or 0, doubled, torch.float64, *settings, False
    )
    calls[0].results[0] = exact.to(dtype)
    calls[1].results[:] = [
        value.to(dtype)
        for value in residual_module.plain_residual_backward(
            grad.double(), x.double(), cluster, doubled, torch.float64, *settings, kept.double()
        )
    ]
    for counts in emulation.count(calls):
        assert counts["launches"] <= 60  # there are no tiles of 16 rows
        assert counts["waits"] == 0


def test_command_line(emulation):
    sizes = ["--graphs", "2", "--nodes", "9", "--pairs", "9", "--channels", "3"]
    command = [sys.executable, str(BENCHMARKS / "emulated.py"), *sizes, "--operators", "parse", "lift"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["workload"]["nodes"] == 9
    assert [call["operator"] for call in printed["calls"]] == ["parse", "lift"]
    assert {"launches", "waits", "bytes_touched", "longest_chain", "memory", "kernels"} <= set(
        printed["calls"][0]
    )
