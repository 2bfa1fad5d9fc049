"""gpn_ops.distributed on gloo: what sharded calls return, and that every fault is everybody's error.

Four processes run all cases in groups of 2, 3 and 4 of them, so that a rank of a group is not a rank of the
world; a test reads what the ranks report. A fault that ends a process has a group of its own.
"""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import graphs
import pytest
import ranks
import torch
import torch.distributed as dist

import gpn_ops
import gpn_ops.distributed
from gpn_ops.reference import Coarse

MEMBERS = {2: [1, 3], 3: [0, 2, 3], 4: [0, 1, 2, 3]}

# ------------------------------------------------------------------------------------------------------------
# Cases
# ------------------------------------------------------------------------------------------------------------


def _random_graphs() -> Iterator[tuple[str, graphs.Graph]]:
    random = torch.Generator().manual_seed(0)
    n, m = 1500, 6000
    for dtype in graphs.SCORE_DTYPES:
        edges = torch.randint(n, (2, m), generator=random)
        scores = torch.randn(m, generator=random).to(dtype)
        yield f"random {dtype}", graphs.Graph(edges, scores, n + 5)
        # Three values, negative ones and both zeros: nearly every dominant edge is decided by its id.
        few = torch.tensor([-0.0, 0.0, -1.0])[torch.randint(3, (m,), generator=random)]
        yield f"ties {dtype}", graphs.Graph(edges, few.to(dtype), n)
        yield f"one score {dtype}", graphs.Graph(edges, torch.full((m,), -2.0, dtype=dtype), n)
    ring = graphs.ring(n)
    yield "ring of equal scores", graphs.Graph(ring, torch.ones(2 * n), n)
    yield "int32", graphs.Graph(ring.int(), graphs.random_scores(ring, random), n)
    yield "strided", graphs.Graph(ring.t().contiguous().t(), graphs.random_scores(ring, random), n)
    close = (1 + 2**-40 * torch.randint(4, (2 * n,), generator=random)).double()
    yield "close in float64", graphs.Graph(ring, 1 + (close - 1), n)
    loops = torch.arange(n).expand(2, n)
    both = torch.cat([ring, loops], dim=1)[:, torch.randperm(3 * n, generator=random)]
    yield "self-loops", graphs.Graph(both, torch.randint(3, (3 * n,), generator=random).float(), n)


def parse_cases() -> dict[str, graphs.Graph]:
    return {**graphs.NAMED_GRAPHS, **dict(_random_graphs())}


class CoarsenCase:
    def __init__(self, num_nodes: int, num_edges: int, num_clusters: int, seed: int, thorough: bool = False):
        random = torch.Generator().manual_seed(seed)
        self.edge_index = torch.randint(max(num_nodes, 1), (2, num_edges), generator=random)
        self.cluster = torch.randint(max(num_clusters, 1), (num_nodes,), generator=random)
        self.cluster[:num_clusters] = torch.arange(num_clusters)
        whole = torch.randint(-8, 9, (num_edges, 3), generator=random).float()
        self.attributes = {
            "none": None,
            "whole numbers, 3 columns": whole,  # their sums are exact in any order
        }
        if not thorough:
            return
        self.attributes |= {
            "whole numbers": whole[:, 0],
            "float32": torch.randn(num_edges, 2, generator=random),
            "float64": torch.randn(num_edges, generator=random).double(),
            "float16": torch.randn(num_edges, generator=random).half(),
            "bfloat16": torch.randn(num_edges, generator=random).bfloat16(),
        }


def coarsen_cases() -> dict[str, CoarsenCase]:
    return {
        "random": CoarsenCase(400, 3000, 60, 0, thorough=True),
        "fewer clusters than ranks": CoarsenCase(50, 200, 2, 1),
        "one cluster": CoarsenCase(9, 30, 1, 2),
        "no edges": CoarsenCase(9, 0, 4, 3),
        "no nodes": CoarsenCase(0, 0, 0, 4),
        "every node a cluster": CoarsenCase(40, 300, 40, 5),
    }


# ------------------------------------------------------------------------------------------------------------
# What a rank does. Returns {(number of ranks, case): complaint or None}.
# ------------------------------------------------------------------------------------------------------------

Report = dict[tuple[int, str], str | None]


def attempt(function: Any, *arguments: Any, **options: Any) -> str | None:
    try:
        function(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def check_parse(graph: graphs.Graph, group: dist.ProcessGroup, seed: int, chunk_bytes: int) -> None:
    mine = ranks.shards(graph.scores.numel(), dist.get_world_size(group), seed)[dist.get_rank(group)]
    got = gpn_ops.distributed.parse(
        graph.edge_index[:, mine], graph.scores[mine], graph.num_nodes, group, chunk_bytes
    )
    expected = gpn_ops.parse(*graph)
    assert torch.equal(got, expected), f"expected {expected.tolist()[:20]}, got {got.tolist()[:20]}"


def check_coarsen(case: CoarsenCase, group: dist.ProcessGroup, seed: int) -> None:
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    mine = ranks.shards(case.edge_index.size(1), size, seed)[rank]
    blocks, gradients = [], []
    for name, attr in case.attributes.items():
        for reduce in ("sum", "mean", "max") if attr is not None else ("sum",):
            for self_loops in (False, True):
                what = f"{name}, {reduce}, self_loops={self_loops}"
                options = {"reduce": reduce, "self_loops": self_loops}
                whole = None if attr is None else attr.clone().requires_grad_()
                part = None if attr is None else attr[mine].clone().requires_grad_()
                expected = gpn_ops.coarsen(case.edge_index, case.cluster, whole, **options)
                got = gpn_ops.distributed.coarsen(
                    case.edge_index[:, mine], case.cluster, part, **options, group=group
                )
                # All exchanges come before any comparison: a rank that fails one must not leave the others
                # waiting, or they would report that instead.
                if whole is not None and part is not None:
                    weight = torch.arange(expected.edge_attr.numel()).view(expected.edge_attr.shape) % 5 - 2.0
                    expected.edge_attr.backward(weight.to(whole.dtype))
                    begin, end = block(expected, size, rank)
                    got.edge_attr.backward(weight[begin:end].to(whole.dtype))
                    gradients.append((what, part.grad, whole.grad[mine]))
                blocks.append((what, got, expected))
    for what, got, expected in blocks:
        compare_block(got, expected, what, size, rank)
    for what, got_grad, expected_grad in gradients:
        torch.testing.assert_close(got_grad, expected_grad, msg=lambda text, what=what: f"{what}: {text}")


def block(expected: Coarse, size: int, rank: int) -> tuple[int, int]:
    """Which of the coarse edges of the whole graph this rank has to hold."""
    c = expected.representative.numel()
    rows = expected.edge_index[0].contiguous()
    first, last = (int(torch.searchsorted(rows, r * c // size)) for r in (rank, rank + 1))
    return first, last


def compare_block(got: Coarse, expected: Coarse, what: str, size: int, rank: int) -> None:
    begin, end = block(expected, size, rank)
    assert torch.equal(got.representative, expected.representative), what
    assert torch.equal(got.edge_index, expected.edge_index[:, begin:end]), what
    if expected.edge_attr is None:
        assert got.edge_attr is None, what
        return
    assert got.edge_attr.dtype == expected.edge_attr.dtype, what
    if "max" in what or "whole" in what:
        assert torch.equal(got.edge_attr, expected.edge_attr[begin:end]), what
    else:
        torch.testing.assert_close(got.edge_attr, expected.edge_attr[begin:end], msg=lambda t: f"{what}: {t}")


def run_cases(rank: int, seeds: int) -> Report:
    report: Report = {}
    groups = {size: dist.new_group(members) for size, members in MEMBERS.items()}
    parse, coarsen = parse_cases(), coarsen_cases()
    claim_dtype = gpn_ops.distributed._claim_dtype
    for size, group in groups.items():
        if rank not in MEMBERS[size]:
            continue
        for name, graph in parse.items():
            complaints = []
            for seed in range(seeds):
                # Several tiles, and one; claims of 4 bytes, and of 8.
                gpn_ops.distributed._claim_dtype = claim_dtype if seed % 2 else lambda *_: torch.int64
                tile = 1 << 20 if seed % 3 else 64 * (graph.num_nodes // 3 + 1)
                complaints.append(attempt(check_parse, graph, group, seed, tile))
            report[size, f"parse {name}"] = next(filter(None, complaints), None)
        for name, case in coarsen.items():
            complaints = [attempt(check_coarsen, case, group, seed) for seed in range(seeds // 2)]
            report[size, f"coarsen {name}"] = next(filter(None, complaints), None)
        report[size, "two levels"] = attempt(check_two_levels, group)
    return report


def check_two_levels(group: dist.ProcessGroup) -> None:
    """What coarsen returns is what parse takes."""
    graph = parse_cases()["random torch.float32"]
    mine = ranks.shards(graph.scores.numel(), dist.get_world_size(group), 1)[dist.get_rank(group)]
    cluster = gpn_ops.distributed.parse(
        graph.edge_index[:, mine], graph.scores[mine], graph.num_nodes, group=group
    )
    coarse = gpn_ops.distributed.coarsen(
        graph.edge_index[:, mine], cluster, graph.scores[mine], "max", group=group
    )
    c = coarse.representative.numel()
    got = gpn_ops.distributed.parse(coarse.edge_index, coarse.edge_attr, c, group=group)
    whole = gpn_ops.coarsen(graph.edge_index, gpn_ops.parse(*graph), graph.scores, "max")
    assert torch.equal(got, gpn_ops.parse(whole.edge_index, whole.edge_attr, c))


def results(outcomes: list[ranks.Outcome]) -> list[Any]:
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return [outcome.result for outcome in outcomes]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return results(ranks.run(run_everything, 4, tmp_path_factory.mktemp("ranks"), deadline=300))


def run_everything(rank: int) -> tuple[Report, dict[str, str | None]]:
    return run_cases(rank, seeds=2), run_faults(rank)


@pytest.fixture
def reports(everything):
    return [report for report, _ in everything]


@pytest.fixture
def faults(everything):
    return [said for _, said in everything]


def complaints(reports, size, kind):
    """What the members of the group of this size complain about; fails if they did not all run all cases."""
    cases = [case for s, case in reports[MEMBERS[size][0]] if s == size and case.startswith(kind)]
    assert cases
    return {
        (case, rank): reports[rank][size, case]
        for case in cases
        for rank in MEMBERS[size]
        if reports[rank][size, case] is not None
    }


@pytest.mark.parametrize("size", MEMBERS)
@pytest.mark.parametrize("kind", ["parse", "coarsen", "two levels"])
def test_equals_single_process(reports, kind, size):
    assert complaints(reports, size, kind) == {}


@pytest.mark.slow
def test_equals_single_process_many_shardings(tmp_path_factory):
    reports = results(ranks.run(run_cases, 4, tmp_path_factory.mktemp("ranks"), 24, deadline=900))
    for size in MEMBERS:
        assert complaints(reports, size, "") == {}


# ------------------------------------------------------------------------------------------------------------
# Faults that leave the processes alive
# ------------------------------------------------------------------------------------------------------------


def _arguments(**replaced: Any) -> dict[str, Any]:
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    return {"edge_index": edge_index, "scores": torch.ones(4), "num_nodes": 5, **replaced}


def _coarsen_arguments(**replaced: Any) -> dict[str, Any]:
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    return {"edge_index": edge_index, "cluster": torch.tensor([0, 0, 1, 1, 2]), **replaced}


def _other_cluster(cluster: list[int], rank: int) -> str:
    first, other = (
        gpn_ops.distributed._hash(ids) for ids in (_coarsen_arguments()["cluster"], torch.tensor(cluster))
    )
    return (
        f"hash of cluster: expected the same on all ranks, got {first} on rank 0 and {other} on rank {rank}"
    )


# Case -> (function, the rank at fault, how its arguments differ, what all ranks raise).
FAULTS: dict[str, tuple[str, int, dict[str, Any], str]] = {
    "id out of range": (
        "parse",
        1,
        {"edge_index": torch.tensor([[0, 1, 2, 9], [1, 0, 3, 2]])},
        "rank 1: edge_index: expected node ids from 0 to num_nodes - 1 = 4, got 9 at edge_index[0, 3]",
    ),
    "NaN": (
        "parse",
        2,
        {"scores": torch.tensor([1.0, graphs.NAN, 1.0, 1.0])},
        "rank 2: scores: expected no NaN, got NaN at scores[1]",
    ),
    "sizes": (
        "parse",
        0,
        {"scores": torch.ones(3)},
        "rank 0: scores: expected shape [num_edges] = [4], got [3]",
    ),
    "dtype": (
        "parse",
        2,
        {"scores": torch.ones(4).double()},
        "dtype of scores: expected the same on all ranks, got float32 on rank 0 and float64 on rank 2",
    ),
    "num_nodes": (
        "parse",
        1,
        {"num_nodes": 6},
        "num_nodes: expected the same on all ranks, got 5 on rank 0 and 6 on rank 1",
    ),
    "num_nodes of rank 0": (
        "parse",
        0,
        {"num_nodes": 6},
        "num_nodes: expected the same on all ranks, got 6 on rank 0 and 5 on rank 1",
    ),
    "num_nodes negative": (
        "parse",
        1,
        {"num_nodes": -1},
        "rank 1: num_nodes: expected a non-negative integer, got -1",
    ),
    "num_nodes None": (
        "parse",
        1,
        {"num_nodes": None},
        "rank 1: num_nodes: expected a non-negative integer, got None",
    ),
    "num_nodes past memory": (
        "parse",
        1,
        {"num_nodes": 1 << 56},
        "rank 1: ",
    ),
    "chunk_bytes": (
        "parse",
        2,
        {"chunk_bytes": 1024},
        f"chunk_bytes: expected the same on all ranks, got {64 << 20} on rank 0 and 1024 on rank 2",
    ),
    "not a tensor": ("parse", 1, {"scores": "élan\n" + 5000 * "'"}, "rank 1: "),
    "cluster": (
        "coarsen",
        1,
        {"cluster": torch.tensor([0, 0, 1, 2, 2])},
        _other_cluster([0, 0, 1, 2, 2], 1),
    ),
    "two swapped entries of cluster": (
        "coarsen",
        2,
        {"cluster": torch.tensor([0, 1, 0, 1, 2])},
        _other_cluster([0, 1, 0, 1, 2], 2),
    ),
    "gap in cluster": (
        "coarsen",
        2,
        {"cluster": torch.tensor([0, 0, 2, 2, 2])},
        "rank 2: cluster: expected every id from 0 to 2, got no node with id 1",
    ),
    "edge_attr on one rank": (
        "coarsen",
        1,
        {"edge_attr": torch.ones(4)},
        "edge_attr: expected the same on all ranks, got None on rank 0 and float32 ['num_edges'] on rank 1",
    ),
    "reduce": (
        "coarsen",
        1,
        {"reduce": "max"},
        "reduce: expected the same on all ranks, got sum on rank 0 and max on rank 1",
    ),
    "unknown reduce": (
        "coarsen",
        0,
        {"reduce": "min"},
        "rank 0: reduce: expected 'sum', 'mean' or 'max', got 'min'",
    ),
}


def run_faults(rank: int) -> dict[str, str | None]:
    start = time.monotonic()
    calls = {
        "parse": (gpn_ops.distributed.parse, _arguments),
        "coarsen": (gpn_ops.distributed.coarsen, _coarsen_arguments),
    }
    said = {}
    for name, (call, culprit, replaced, _) in FAULTS.items():
        function, arguments = calls[call]
        said[name] = attempt(function, **arguments(**(replaced if rank == culprit else {})))
    said["two functions"] = (
        attempt(gpn_ops.distributed.coarsen, **_coarsen_arguments())
        if rank == 1
        else attempt(gpn_ops.distributed.parse, **_arguments())
    )
    others = dist.new_group([0, 1])
    said["not in the group"] = attempt(gpn_ops.distributed.parse, **_arguments(group=others))
    # The group is as good as before.
    said["afterwards"] = attempt(gpn_ops.distributed.parse, **_arguments())
    assert time.monotonic() - start < 30
    return said


@pytest.mark.parametrize("name", FAULTS)
def test_fault_of_one_rank_is_raised_on_all(faults, name):
    call, _, _, message = FAULTS[name]
    assert len({said[name] for said in faults}) == 1
    text = faults[0][name]
    whole = f"RuntimeError: gpn_ops.distributed.{call}: {message}"
    assert text == whole or (message == "rank 1: " and text.startswith(whole) and len(text) > len(whole) + 9)


def test_ranks_that_call_different_functions(faults):
    for rank, said in enumerate(faults):
        call = "coarsen" if rank == 1 else "parse"
        assert said["two functions"] == (
            f"RuntimeError: gpn_ops.distributed.{call}: call: expected the same on all ranks, "
            "got parse on rank 0 and coarsen on rank 1"
        )


def test_process_outside_the_group(faults):
    outside = "RuntimeError: gpn_ops.distributed.parse: this process is not in the group"
    assert [said["not in the group"] for said in faults] == [None, None, outside, outside]


def test_group_survives_faults(faults):
    assert [said["afterwards"] for said in faults] == [None] * 4


def test_not_initialised():
    with pytest.raises(
        RuntimeError, match=r"parse: torch.distributed is not initialised: call .*init_process"
    ):
        gpn_ops.distributed.parse(**_arguments())


# ------------------------------------------------------------------------------------------------------------
# Faults that do not
# ------------------------------------------------------------------------------------------------------------


def run_and_die(rank: int, call: str, collective: str, at: int) -> None:
    """The last rank is killed when it comes to the given collective for the given time."""
    if rank == dist.get_world_size() - 1:
        original, seen = getattr(dist, collective), []

        def deadly(*arguments: Any, **options: Any) -> Any:
            seen.append(True)
            if len(seen) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        setattr(dist, collective, deadly)
    edge_index = graphs.ring(5000)
    if call == "parse":
        gpn_ops.distributed.parse(edge_index, torch.ones(10000), 5000, chunk_bytes=64 * 500)
    else:
        gpn_ops.distributed.coarsen(edge_index, torch.arange(5000) // 2, torch.ones(10000))


def run_and_raise(rank: int) -> None:
    """The program of one rank fails where this library has no say."""
    if rank == 0:
        raise ValueError("out of luck")
    gpn_ops.distributed.parse(**_arguments())


@pytest.mark.parametrize(
    ("size", "call", "collective", "at"),
    [
        (3, "parse", "all_reduce", 8),
        *(
            pytest.param(size, *rest, marks=pytest.mark.slow)
            for size in (2, 3, 4)
            for rest in [
                ("parse", "all_reduce", 1),
                ("parse", "all_reduce", 2),
                ("coarsen", "all_gather", 1),
                ("coarsen", "all_to_all_single", 1),
                ("coarsen", "all_to_all_single", 2),
                ("coarsen", "all_to_all_single", 3),
            ]
        ),
    ],
)
def test_rank_killed_in_the_middle(tmp_path, size, call, collective, at):
    outcomes = ranks.run(run_and_die, size, tmp_path, call, collective, at, group_timeout=15)
    assert outcomes[-1] == ranks.Outcome(exitcode=-signal.SIGKILL)
    for rank, outcome in enumerate(outcomes[:-1]):
        assert outcome.error is not None
        text = f"gpn_ops.distributed.{call}: rank {rank} lost contact with another rank of the group: "
        assert outcome.error.startswith(text), outcome.error
        assert outcome.seconds < 30


@pytest.mark.slow
def test_rank_that_raises_elsewhere(tmp_path):
    outcomes = ranks.run(run_and_raise, 3, tmp_path, group_timeout=15)
    assert outcomes[0].error.startswith("out of luck")
    for outcome in outcomes[1:]:
        assert "lost contact with another rank" in outcome.error
        assert outcome.seconds < 30


# ------------------------------------------------------------------------------------------------------------
# What is exchanged
# ------------------------------------------------------------------------------------------------------------


def test_claims_fit_their_dtype():
    """Of 4 bytes where they fit, to the last bit."""
    for size in (1, 2, 3, 4, 5, 64, 1000):
        for num_nodes in (1, 2, 3, 2**20, 2**29, 2**29 + 1, 2**30, 2**30 + 1, 2**31, 2**31 + 1, 2**40):
            bits = (num_nodes - 1).bit_length()
            dtype = gpn_ops.distributed._claim_dtype(size, bits)
            highest = ((size - 1) << bits) + (1 << bits) - 1
            assert dtype == (torch.int32 if highest <= torch.iinfo(torch.int32).max else torch.int64)


def test_hash_of_a_cluster(monkeypatch):
    """Every swap and every change of an entry shows, and the tiles do not."""
    cluster = torch.arange(40) // 2
    different = {tuple(cluster.tolist())}
    for i in range(40):
        for j in range(i):
            other = cluster.clone()
            other[i], other[j] = cluster[j], cluster[i]
            different.add(tuple(other.tolist()))
            other[i] = cluster[i]
            different.add(tuple(other.tolist()))
    hashes = {gpn_ops.distributed._hash(torch.tensor(each)) for each in different}
    assert len(hashes) == len(different)
    assert all(0 <= one < 2**64 for one in hashes)
    whole = gpn_ops.distributed._hash(cluster)
    monkeypatch.setattr(gpn_ops.distributed, "_HASH_TILE", 7)
    assert gpn_ops.distributed._hash(cluster) == whole
    assert gpn_ops.distributed._hash(cluster[:0]) == 0


# ------------------------------------------------------------------------------------------------------------
# Cost
# ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone(tmp_path):
    """This process as a group of one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("dtype", graphs.SCORE_DTYPES, ids=str)
def test_memory_stays_within_the_stated_bound(alone, dtype):
    n, chunk_bytes = 200_000, 1 << 20
    edge_index = graphs.ring(n)
    scores = torch.rand(2 * n).to(dtype)
    gpn_ops.distributed.parse(edge_index[:, :10], scores[:10], n)

    def peak(function: Any) -> int:
        # Torch's allocator reports every allocation and release to the profiler.
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            function()
        events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        held = most = 0
        for event in sorted(events, key=lambda event: event.start_ns()):
            held += event.nbytes()
            most = max(most, held)
        return most

    most = peak(lambda: gpn_ops.distributed.parse(edge_index, scores, n, chunk_bytes=chunk_bytes))
    assert 24 * n < most <= 28 * n + chunk_bytes
    # The part that the bound on the exchange is about: dominant and choices, which are held meanwhile, apart.
    choices = torch.empty(2, n, dtype=torch.int64)
    dominant = gpn_ops.dominant(edge_index, scores, n)
    node = next(gpn_ops.keys.tiles(n, chunk_bytes))
    part = peak(lambda: gpn_ops.keys.best_of_part(edge_index, scores, dominant, node))
    assert part <= chunk_bytes
    assert choices.nbytes + dominant.nbytes == 24 * n


@pytest.mark.parametrize(("dtype", "bytes_per_node"), [(torch.float32, 8), (torch.float64, 12)], ids=str)
def test_two_collectives_over_nodes_and_none_over_edges(alone, monkeypatch, dtype, bytes_per_node):
    carried: dict[str, list[int]] = {}

    def counted(name: str) -> Any:
        original = getattr(dist, name)

        def collective(*arguments: Any, **options: Any) -> Any:
            tensor = arguments[1] if name == "all_gather" else arguments[0]
            carried.setdefault(name, []).append(tensor.nbytes)
            return original(*arguments, **options)

        return collective

    for name in ("all_gather", "all_reduce", "all_to_all_single", "broadcast", "send", "all_gather_object"):
        monkeypatch.setattr(dist, name, counted(name))
    n = 1000
    edge_index = torch.randint(n, (2, 50 * n))
    gpn_ops.distributed.parse(edge_index, torch.rand(50 * n).to(dtype), n, chunk_bytes=64 * 250)
    assert carried.keys() == {"all_gather", "all_reduce"}
    assert carried["all_gather"] == [4096]
    assert len(carried["all_reduce"]) == 2 * 4
    assert sum(carried["all_reduce"]) == bytes_per_node * n
