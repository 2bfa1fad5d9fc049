"""gpn_ops.parse_chunks: the bits of parse on all chunks together, in memory that does not depend on m."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import graphs
import pytest
import ranks
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gpn_ops
from gpn_ops import chunks as chunks_module
from gpn_ops.chunks import parse_chunks


def cut(graph: graphs.Graph, pieces: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    for part in ranks.shards(graph.scores.numel(), pieces, seed):
        yield graph.edge_index[:, part], graph.scores[part]


@pytest.fixture(params=["gathered", "one by one"])
def gathering(request, monkeypatch):
    """Small chunks wait for each other; without that each is merged on its own, as large ones are."""
    if request.param == "one by one":
        monkeypatch.setattr(chunks_module, "_EDGES_PER_NODE", 0)
        monkeypatch.setattr(chunks_module, "_LEAST_EDGES", 0)


@pytest.mark.parametrize("name", graphs.NAMED_GRAPHS)
def test_named_graphs(gathering, name):
    for seed, pieces in enumerate((1, 2, 3, 7)):
        got = parse_chunks(cut(graphs.NAMED_GRAPHS[name], pieces, seed), graphs.NAMED_GRAPHS[name].num_nodes)
        assert torch.equal(got, graphs.EXPECTED_CLUSTERS[name])


@given(
    graph=graphs.scored_graphs(), pieces=st.integers(1, 6), seed=st.integers(0, 100), least=st.integers(0, 9)
)
@settings(max_examples=150)
def test_random_graphs(graph, pieces, seed, least):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks_module, "_EDGES_PER_NODE", 0)
        patch.setattr(chunks_module, "_LEAST_EDGES", least)
        assert torch.equal(parse_chunks(cut(graph, pieces, seed), graph.num_nodes), gpn_ops.parse(*graph))


@pytest.mark.parametrize("dtype", graphs.SCORE_DTYPES, ids=str)
def test_several_tiles(gathering, monkeypatch, dtype):
    monkeypatch.setattr(chunks_module, "_TILE_BYTES", 64 * 100)
    random = torch.Generator().manual_seed(0)
    n, m = 1234, 5000
    scores = torch.randint(-2, 3, (m,), generator=random).to(dtype)
    graph = graphs.Graph(torch.randint(n, (2, m), generator=random), scores, n)
    assert torch.equal(parse_chunks(cut(graph, 9), n), gpn_ops.parse(*graph))


def test_on_every_device(device):
    edge_index = graphs.ring(50).to(device)
    scores = torch.arange(100.0, device=device) % 7
    graph = graphs.Graph(edge_index, scores, 50)
    got = parse_chunks(cut(graph, 4), 50)
    assert got.device == edge_index.device
    assert torch.equal(got, gpn_ops.parse(*graph))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_subnormal_scores_are_told_apart_though_they_are_flushed(gathering, dtype):
    """A star whose edges are scored 0, -0 and by the smallest numbers there are."""
    tiny = torch.finfo(dtype).smallest_normal * torch.tensor([0.0, 0.5, 0.75, 0.25, -0.5, -0.0]).to(dtype)
    edge_index = torch.tensor([[0] * 6, [1, 2, 3, 4, 5, 6]])
    expected = gpn_ops.parse(edge_index, tiny, 7)
    assert expected.tolist() == [0, 1, 2, 0, 3, 4, 5]
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush subnormals")
    try:
        one_by_one = [(edge_index[:, k : k + 1], tiny[k : k + 1]) for k in (0, 1, 2, 3, 4, 5)]
        assert torch.equal(parse_chunks(one_by_one, 7), expected)
        assert torch.equal(parse_chunks([(edge_index[:, 3:], tiny[3:]), (edge_index, tiny)], 7), expected)
    finally:
        torch.set_flush_denormal(False)


def test_no_chunks_and_empty_chunks():
    empty = (torch.empty(2, 0, dtype=torch.int64), torch.empty(0))
    for chunks in ([], [empty], [empty] * 3):
        assert parse_chunks(chunks, 3).tolist() == [0, 1, 2]
        assert parse_chunks(chunks, 0).tolist() == []


def test_memory_of_a_chunk_may_be_reused(gathering):
    graph = graphs.Graph(graphs.ring(40), torch.arange(80.0) % 3, 40)
    edge_index, scores = torch.empty(2, 20, dtype=torch.int64), torch.empty(20)

    def refilled():
        for begin in range(0, 80, 20):
            edge_index.copy_(graph.edge_index[:, begin : begin + 20])
            scores.copy_(graph.scores[begin : begin + 20])
            yield edge_index, scores
        edge_index.fill_(-1)

    assert torch.equal(parse_chunks(refilled(), 40), gpn_ops.parse(*graph))


def test_chunks_are_not_changed(gathering):
    given_chunks = list(cut(graphs.NAMED_GRAPHS["two_triangles_bridged"], 3))
    copies = [(e.clone(), s.clone()) for e, s in given_chunks]
    parse_chunks(given_chunks, 6)
    for (e, s), (e_copy, s_copy) in zip(given_chunks, copies, strict=True):
        assert torch.equal(e, e_copy)
        assert torch.equal(s, s_copy)


# Those about a chunk, not about num_nodes; one needs memory for 2^31 nodes to come that far.
BAD_CHUNKS = [
    bad
    for bad in graphs.BAD_INPUTS
    if (n := bad.kwargs()["num_nodes"]) is not None
    and 0 <= n < 2**31
    and not bad.message.startswith("num_nodes")
]


@pytest.mark.parametrize("bad", BAD_CHUNKS, ids=lambda bad: bad.id)
def test_bad_chunk_is_named(gathering, bad):
    arguments = bad.kwargs()
    dtype = arguments["scores"].dtype
    no_scores = torch.empty(0, dtype=dtype if dtype in graphs.SCORE_DTYPES else torch.float32)
    good = (torch.empty(2, 0, dtype=torch.int64), no_scores)
    chunks = [good, good, (arguments["edge_index"], arguments["scores"]), good]
    with pytest.raises(RuntimeError) as error:
        parse_chunks(chunks, arguments["num_nodes"])
    assert str(error.value) == f"chunk 2: {bad.message}"


def test_position_of_a_bad_value_is_that_in_its_chunk(gathering):
    chunks = [(graphs.ring(5), torch.ones(10)) for _ in range(3)]
    chunks[1][1][7] = graphs.NAN
    with pytest.raises(RuntimeError, match=r"^chunk 1: scores: expected no NaN, got NaN at scores\[7\]$"):
        parse_chunks(chunks, 5)


def test_dtypes_that_differ():
    chunks = [(graphs.ring(5), torch.ones(10)), (graphs.ring(5), torch.ones(10).double())]
    with pytest.raises(RuntimeError, match=r"^chunk 1: scores: expected float32 as in chunk 0, got float64$"):
        parse_chunks(chunks, 5)


@pytest.mark.parametrize("num_nodes", [-1, None, 2.5])
def test_bad_num_nodes(num_nodes):
    with pytest.raises(RuntimeError, match=f"^num_nodes: expected a non-negative integer, got {num_nodes}$"):
        parse_chunks([], num_nodes)


# ------------------------------------------------------------------------------------------------------------
# Memory
# ------------------------------------------------------------------------------------------------------------

# What a process does that may take only so much more memory than it holds after its imports.
_PROGRAM = """
import re, resource, sys
from pathlib import Path
import torch
import gpn_ops
from test_chunks import generated, mapped

torch.set_num_threads(1)
gpn_ops.parse_chunks(generated(10, 40, 20), 10)  # whatever is loaded on first use
how, n, m, chunk, allowed, folder = sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6]
held = int(re.search(r"VmData:\\s+(\\d+) kB", Path("/proc/self/status").read_text()).group(1)) << 10
resource.setrlimit(resource.RLIMIT_DATA, (held + allowed, held + allowed))
if how == "mapped":
    cluster = gpn_ops.parse_chunks(mapped(Path(folder), m, chunk), n)
elif how == "generated":
    cluster = gpn_ops.parse_chunks(generated(n, m, chunk), n)
else:
    edge_index, scores = zip(*generated(n, m, chunk))
    cluster = gpn_ops.parse(torch.cat(edge_index, dim=1), torch.cat(scores), n)
torch.save(cluster, Path(folder) / "cluster")
"""


def generated(num_nodes: int, num_edges: int, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(0)
    for begin in range(0, num_edges, chunk):
        size = min(chunk, num_edges - begin)
        # Not held here while the next chunk is made.
        yield (
            torch.randint(num_nodes, (2, size), generator=random),
            torch.randint(1000, (size,), generator=random).float(),
        )


def mapped(folder: Path, num_edges: int, chunk: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Edges as they lie in files: a mapping is no memory of the process, pages come and go."""
    row, col = (
        torch.from_file(str(folder / name), shared=True, size=num_edges, dtype=torch.int64)
        for name in ("row", "col")
    )
    scores = torch.from_file(str(folder / "scores"), shared=True, size=num_edges, dtype=torch.float32)
    for begin in range(0, num_edges, chunk):
        part = slice(begin, begin + chunk)
        yield torch.stack([row[part], col[part]]), scores[part]


def within_memory(how: str, tmp_path: Path, num_nodes: int, num_edges: int, chunk: int, allowed: int):
    sizes = [str(size) for size in (num_nodes, num_edges, chunk, allowed)]
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, how, *sizes, str(tmp_path)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="limits the data segment as Linux counts it")
@pytest.mark.parametrize(
    ("how", "chunk"),
    [
        ("generated", 50_000),
        ("mapped", 1_000_000),
        pytest.param("generated", 1_000_000, marks=pytest.mark.slow),
        pytest.param("mapped", 50_000, marks=pytest.mark.slow),
    ],
)
def test_edges_several_times_larger_than_memory(tmp_path, how, chunk):
    n, m = 100_000, 12_000_000
    # For small chunks 68n bytes; a large one takes its own size, and more while it is made.
    allowed = 24 << 20 if chunk < n else 56 << 20
    assert 20 * m > 4 * allowed
    if how == "mapped":
        parts = list(generated(n, m, 1_000_000))
        torch.cat([edge_index[0] for edge_index, _ in parts]).numpy().tofile(tmp_path / "row")
        torch.cat([edge_index[1] for edge_index, _ in parts]).numpy().tofile(tmp_path / "col")
        torch.cat([scores for _, scores in parts]).numpy().tofile(tmp_path / "scores")
    else:
        parts = list(generated(n, m, chunk))
    run = within_memory(how, tmp_path, n, m, chunk, allowed)
    assert run.returncode == 0, run.stderr
    edge_index, scores = zip(*parts, strict=True)
    expected = gpn_ops.parse(torch.cat(edge_index, dim=1), torch.cat(scores), n)
    assert torch.equal(torch.load(tmp_path / "cluster"), expected)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the data segment as Linux counts it")
def test_the_memory_limit_bites(tmp_path):
    run = within_memory("at once", tmp_path, 100_000, 12_000_000, 1_000_000, 56 << 20)
    assert run.returncode != 0
    assert "can't allocate memory" in run.stderr
