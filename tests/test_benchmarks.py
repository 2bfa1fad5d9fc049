"""The benchmarks' own machinery: what it measures is right, its limits hold, and its guard can fail."""

import json
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

pytest.importorskip("torch_geometric", reason="the peers are PyG's")
pytest.importorskip("matplotlib", reason="benchmarks plot")

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
CPU = torch.device("cpu")


@pytest.fixture
def common(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import common

    return common


@pytest.fixture
def guard(common):
    import guard

    return guard


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_cuda_stops_at_once(common):
    """Every benchmark goes through this function before it works."""
    options = common.arguments("a benchmark").parse_args(["--device", "cuda"])
    with pytest.raises(SystemExit, match="--device cuda: torch finds no CUDA device on this machine"):
        common.prepare(options)


def test_peak_bytes_is_exact(common):
    def known() -> torch.Tensor:
        first = torch.empty(1000, dtype=torch.float32)
        second = torch.empty(300, dtype=torch.float64)
        del first
        third = torch.empty(200, dtype=torch.float64)
        return second + third.sum()

    # 4000 + 2400 while the first lives; later 2400 + 1600 + a sum of 8 + a result of 2400.
    assert common.peak_bytes(known, CPU) == max(6400, 2400 + 1600 + 8 + 2400)


def test_peak_bytes_of_an_accelerator_is_its_allocators(common, monkeypatch):
    calls = []
    for name, answer in {
        "synchronize": None,
        "memory_allocated": 100,
        "reset_peak_memory_stats": None,
        "max_memory_allocated": 700,
    }.items():
        monkeypatch.setattr(
            torch.accelerator, name, lambda name=name, answer=answer: calls.append(name) or answer
        )
    assert common.peak_bytes(lambda: calls.append("call"), torch.device("cuda")) == 600
    assert calls == [
        "synchronize",
        "memory_allocated",
        "reset_peak_memory_stats",
        "call",
        "synchronize",
        "max_memory_allocated",
    ]
    calls.clear()
    common.elapsed(lambda: calls.append("call"), torch.device("cuda"))
    assert calls == ["synchronize", "call", "synchronize"]


def test_isolated_passes_results_and_errors(common):
    limits = {"memory_bytes": 8 << 30, "seconds": 60}

    def fails():
        raise RuntimeError("what went wrong")

    assert common.isolated(lambda a, b: a + b, 2, 3, **limits) == 5
    assert common.isolated(fails, **limits) == "error: what went wrong"


def test_isolated_stops_what_takes_too_much(common):
    start = time.perf_counter()
    assert common.isolated(time.sleep, 60, memory_bytes=8 << 30, seconds=0.5) == common.OUT_OF_TIME
    assert time.perf_counter() - start < 20
    big = 1 << 36
    assert common.isolated(torch.zeros, big, memory_bytes=2 << 30, seconds=60) == common.OUT_OF_MEMORY


def burn(seconds):
    start = time.process_time()
    while time.process_time() < start + seconds:
        pass
    return seconds


def test_a_limit_of_processor_time_does_not_count_waiting(common, monkeypatch):
    monkeypatch.setattr(common, "clock", common.PROCESSOR)
    limits = {"memory_bytes": 8 << 30, "seconds": 1}
    assert common.isolated(time.sleep, 2, **limits) is None
    assert common.isolated(burn, 0.1, **limits) == 0.1
    assert common.isolated(burn, 60, **limits) == common.OUT_OF_TIME
    monkeypatch.setattr(common, "PATIENCE", 2)
    assert common.isolated(time.sleep, 60, **limits) == common.OUT_OF_TIME
    assert common.isolated(os._exit, 1, **limits) == common.OUT_OF_MEMORY


def short_calls(common):
    """How long calls of a millisecond or so are found to take. They ask the system for nothing, which would
    set its clocks."""
    return [common.elapsed(lambda: sum(range(30_000)), CPU) for _ in range(20)]


def test_a_limit_of_processor_time_does_not_make_the_clock_coarse(common, monkeypatch):
    monkeypatch.setattr(common, "clock", common.PROCESSOR)
    times = common.isolated(short_calls, common, memory_bytes=8 << 30, seconds=60)
    assert min(times) > 0
    assert len(set(times)) > len(times) / 2


class PatchedCuda:
    """Gives torch.cuda answers in whatever process it is unpickled in: the spawned one, before it works."""

    total = 40 << 30
    fractions: ClassVar[list[float]] = []

    def __reduce__(self):
        return _patch_cuda, ()


def _patch_cuda():
    torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(
        name="a card", total_memory=PatchedCuda.total
    )
    torch.cuda.set_per_process_memory_fraction = PatchedCuda.fractions.append
    return PatchedCuda()


def facts_of_this_process(patched):
    return {
        "pid": os.getpid(),
        "start": multiprocessing.get_start_method(),
        "bad fork": torch.cuda._is_in_bad_fork(),
        "inherited": "benchmarks_parent" in globals(),
        "limits": [resource.getrlimit(limit) for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)],
        "fractions": patched.fractions,
    }


def raise_out_of_memory(patched):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def raise_cublas_alloc_failed(patched):
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def end_without_a_word(patched, number=signal.SIGKILL):
    os.kill(os.getpid(), number)


def sleep(patched, seconds):
    time.sleep(seconds)


CUDA_LIMITS = {"memory_bytes": 10 << 30, "seconds": 60, "device": torch.device("cuda")}


@pytest.mark.skipif(torch.version.cuda is None, reason=f"torch {torch.__version__} is a build without CUDA")
def test_a_fork_of_a_process_that_asked_for_cuda_may_not_use_it(common):
    # Why points on CUDA are spawned; no GPU is needed to see it.
    torch.cuda.is_available()
    assert common.isolated(torch.cuda._is_in_bad_fork, memory_bytes=8 << 30, seconds=60) is True


def test_on_cuda_a_point_is_spawned_and_limited_by_the_allocator(common, monkeypatch):
    monkeypatch.setitem(globals(), "benchmarks_parent", True)
    torch.cuda.is_available()  # what every benchmark asks first; a fork could not use CUDA any more
    facts = common.isolated(facts_of_this_process, PatchedCuda(), **CUDA_LIMITS)
    assert facts["pid"] != os.getpid()
    assert facts["start"] == "spawn"
    assert not facts["bad fork"]
    assert not facts["inherited"]
    assert facts["limits"] == [
        resource.getrlimit(resource.RLIMIT_AS),
        resource.getrlimit(resource.RLIMIT_DATA),
    ]
    assert facts["fractions"] == [0.25]
    assert PatchedCuda.fractions == []


def test_on_the_cpu_a_point_is_forked_and_limited_by_the_system(common, monkeypatch):
    monkeypatch.setitem(globals(), "benchmarks_parent", True)
    facts = common.isolated(facts_of_this_process, PatchedCuda(), memory_bytes=8 << 30, seconds=60)
    assert facts["inherited"]
    assert facts["limits"] == [resource.getrlimit(resource.RLIMIT_AS), (8 << 30, 8 << 30)]
    assert facts["fractions"] == []


def test_on_cuda_what_takes_too_much_is_recognised(common):
    for fails in (raise_out_of_memory, raise_cublas_alloc_failed, end_without_a_word):
        assert common.isolated(fails, PatchedCuda(), **CUDA_LIMITS) == common.OUT_OF_MEMORY
    # The start of the process, some seconds of imports, does not count.
    limits = {**CUDA_LIMITS, "seconds": 0.5}
    assert common.isolated(sleep, PatchedCuda(), 60, **limits) == common.OUT_OF_TIME
    assert common.isolated(sleep, PatchedCuda(), 0, **limits) is None


def test_on_cuda_a_crash_is_not_out_of_memory(common):
    said = common.isolated(end_without_a_word, PatchedCuda(), signal.SIGABRT, **CUDA_LIMITS)
    assert said == "error: the process ended with signal 6 (Aborted)"


def test_a_fraction_is_never_above_the_whole_card(common, monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=4 << 30)
    )
    found = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", found.append)
    common._limit_memory(torch.device("cuda"), 12 << 30)
    assert found == [1.0]


ANSWERS_OF_A_CARD = """
import torch
from types import SimpleNamespace

torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
torch.accelerator.is_available = torch.cuda.is_available = lambda: True
torch.accelerator.synchronize = torch.accelerator.reset_peak_memory_stats = lambda: None
torch.accelerator.memory_allocated = torch.accelerator.max_memory_allocated = lambda: 0
torch.cuda.get_device_properties = lambda device=None: SimpleNamespace(name="a card", total_memory=40 << 30)
torch.cuda.set_per_process_memory_fraction = lambda fraction: print(f"limited to {fraction}", flush=True)
"""


@pytest.mark.parametrize("script", ["memory.py", "speed.py"])
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_runs_up_to_the_first_cuda_tensor(script, tmp_path):
    # Both processes import sitecustomize, which answers for the card that is not there.
    (tmp_path / "sitecustomize.py").write_text(ANSWERS_OF_A_CARD)
    command = [sys.executable, BENCHMARKS / script, "--device", "cuda", "--quick", "--output", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert "limited to 0.3" in done.stdout
    # What the first tensor says: builds without CUDA, builds with it.
    without, no_card = "AssertionError: Torch not compiled with CUDA enabled", "Found no NVIDIA driver"
    assert f"error: {without if torch.version.cuda is None else no_card}" in done.stderr, done.stderr
    assert "Cannot re-initialize CUDA" not in done.stderr


def test_methods_go_to_a_spawned_process_by_name(common):
    from methods import METHODS

    for method in METHODS:
        assert pickle.loads(pickle.dumps(method)) is method


def test_a_peer_that_is_not_there_is_named(common, capsys, monkeypatch):
    import methods

    monkeypatch.setitem(sys.modules, "tgp.poolers", None)
    monkeypatch.setitem(sys.modules, "tgp", None)
    names = {method.name for method in methods.available()}
    assert names == {method.name for method in methods.METHODS if not method.needs}
    said = capsys.readouterr().err
    for method in methods.METHODS:
        assert (f"!! {method.name} is left out: " in said) == bool(method.needs)
    assert "'.[bench-peers]'" in said


NVIDIA_SMI = """#!/bin/sh
test "$1" = --id=GPU-1234 || exit 6
echo "$2" | grep -q power.limit || exit 2
echo "580.65.06, 1980 MHz, 2619 MHz, 700.00 W, 81559 MiB"
"""


@pytest.mark.parametrize("uuid", ["1234", "other", None])
def test_a_card_is_described(common, tmp_path, monkeypatch, uuid):
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    properties = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=80 << 30, clock_rate=1_980_000)
    if uuid:
        properties.uuid = uuid
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    machine = common.machine(torch.device("cuda"))
    assert machine["device"] == "NVIDIA H100 80GB HBM3"
    if uuid == "1234":
        assert machine["card"] == {
            "name": "NVIDIA H100 80GB HBM3",
            "driver": "580.65.06",
            "clock": "1980 MHz",
            "memory_clock": "2619 MHz",
            "power_limit": "700.00 W",
            "memory": "81559 MiB",
        }
    else:
        assert machine["card"] == {
            "name": "NVIDIA H100 80GB HBM3",
            "memory": "81920 MiB",
            "clock": "1980 MHz",
        }
    assert "card" not in common.machine(CPU)


def test_results_of_a_card_stand_beside_those_of_the_cpu(common, tmp_path, monkeypatch):
    import report

    for path in common.RESULTS.glob("*.json"):
        shutil.copy(path, tmp_path)
    content = json.loads((common.RESULTS / "memory_forward_cpu.json").read_text())
    card = {"name": "a card", "driver": "580.65.06", "power_limit": "700.00 W"}
    content["machine"] |= {"device": "a card", "card": card}
    (tmp_path / "memory_forward_cuda.json").write_text(json.dumps(content))
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    page = report.page()
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    place = titles.index("## Memory, forward")
    assert titles[place + 1] == "## Memory, forward (CUDA)"
    assert (
        f"Measured on a card, driver 580.65.06, power limit 700.00 W, {common.how(content['machine'])}"
        in page
    )
    assert "nobody has measured a GPU" not in page
    assert "memory_forward_cuda.svg" in page
    assert "no GPU figures yet" not in report.readme()


HUBS = Path(__file__).parent.parent.parent / "shared" / "data" / "large" / "npm_dependencies_2016.npz"


def test_a_graph_with_hubs_is_made_undirected(common, tmp_path):
    import numpy as np

    path = tmp_path / "graph.npz"
    first, second = [[1, 0], [0, 1], [2, 2]], [[3, 0], [2, 3], [1, 0]]
    np.savez(path, dependencies=np.int32(first), dev_dependencies=np.int32(second), num_nodes=4)
    edge_index, scores = common.hub_graph(path)
    assert edge_index.tolist() == [[0, 0, 1, 2, 3, 3], [1, 3, 0, 3, 0, 2]]
    assert scores[0] == scores[2]
    assert scores[1] == scores[4]
    assert scores[3] == scores[5]


def test_around_the_hub(common):
    pairs = [(0, 2), (0, 3), (0, 4), (2, 3), (2, 5), (2, 6), (3, 5)]  # node 2 has the most neighbours
    both = torch.tensor(sorted(pairs + [(col, row) for row, col in pairs])).t()
    edge_index, scores = common.around_the_hub(both, both.amin(0) + 0.1 * both.amax(0), 4)
    # 0, 2, 3 and 5 are kept, as 0 to 3.
    assert edge_index.tolist() == [[0, 0, 1, 1, 1, 2, 2, 2, 3, 3], [1, 2, 0, 2, 3, 0, 1, 3, 1, 2]]
    assert torch.allclose(scores, torch.tensor([0.2, 0.3, 0.2, 2.3, 2.5, 0.3, 2.3, 3.5, 2.5, 3.5]))


def test_a_graph_that_is_not_there_is_left_out_with_a_message(common, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(common, "RESULTS", tmp_path / "checkout" / "benchmarks" / "results")
    assert common.hub_file() is None
    assert "npm_dependencies_2016.npz" in capsys.readouterr().err
    there = tmp_path / "checkout" / common.HUBS_FILE
    there.parent.mkdir(parents=True)
    there.touch()
    assert common.hub_file() == there


@pytest.mark.skipif(not HUBS.exists(), reason="no raw data beside the checkout")
def test_the_operators_are_right_around_hubs(common):
    import coarsen
    import parse
    import speed

    edge_index, scores = common.hub_graph(HUBS)
    num_nodes = int(edge_index.max()) + 1
    assert num_nodes == speed.HUB_NODES
    (_, hubs, _, _), (_, random, _, _) = common.hubs_and_random(quick=False)
    assert torch.equal(hubs, edge_index)
    assert random.shape == edge_index.shape
    assert int(random[0].bincount().max()) < 100
    assert int(edge_index[0].bincount().max()) == 88_858
    parse.Case(edge_index, scores, num_nodes, CPU).validate()
    coarsen.Case(edge_index, scores, num_nodes, CPU).validate()


@pytest.mark.skipif(not HUBS.exists(), reason="no raw data beside the checkout")
def test_quick_hubs_are_small(common):
    for kind, edge_index, scores, num_nodes in common.hubs_and_random(quick=True):
        assert num_nodes == common.QUICK_HUB_NODES
        assert edge_index.size(1) == scores.numel() < 5 * num_nodes
        degree = edge_index[0].bincount()
        assert int(degree.max()) == num_nodes - 1 if kind == common.HUBS else int(degree.max()) < 100


def test_the_papers_batches(common):
    import speed

    x, edge_index, batch = speed.inputs("paper's batch", 100, CPU)
    assert x.shape == (5000, speed.CHANNELS)
    assert batch.bincount().tolist() == [100] * 50
    assert edge_index.shape == (2, 50 * 2 * 1000)
    assert speed.PAPER["paper's batch"][2][-1] == 1100


def test_components_beside_scipy(common):
    import parse_case

    # Few edges: many components.
    case = parse_case.Case(*common.random_graph(500, 200), 500, CPU)
    methods = case.methods()
    assert parse_case.same_partition(methods["components"](), methods["components, scipy"]())
    assert int(methods["components"]().max()) + 1 == int(methods["components, scipy"]().max()) + 1 > 250


def test_exponent(common):
    assert common.exponent([(10, 5), (100, 500), (1000, 50_000)]) == pytest.approx(2)
    assert common.exponent([(10, 3), (1000, 300)]) == pytest.approx(1)


def test_random_graph_is_undirected_sorted_and_scored_alike(common):
    edge_index, scores = common.random_graph(50, 100)
    assert edge_index.shape == (2, 200)
    assert bool((edge_index[0] != edge_index[1]).all())
    key = edge_index[0] * 50 + edge_index[1]
    assert bool((key[1:] >= key[:-1]).all())
    forth = sorted(zip(edge_index[0].tolist(), edge_index[1].tolist(), scores.tolist(), strict=True))
    back = sorted(zip(edge_index[1].tolist(), edge_index[0].tolist(), scores.tolist(), strict=True))
    assert forth == back


def test_every_method_pools(common):
    from methods import available, outputs

    edge_index, _ = common.random_graph(40, 80)
    x, batch = torch.randn(40, 8), torch.zeros(40, dtype=torch.int64)
    for method in available():
        torch.manual_seed(0)
        result = method.make(8, 40)(x.clone().requires_grad_(), edge_index, batch)
        assert outputs(result), f"{method.name} gives nothing with a gradient"


def test_methods_of_ours_agree(common):
    """The literal layer, with the same parameters, gives what the layer gives."""
    from methods import METHODS

    made = {method.name: method for method in METHODS}
    edge_index, _ = common.random_graph(60, 120)
    x, batch = torch.randn(60, 8), torch.zeros(60, dtype=torch.int64)
    torch.manual_seed(0)
    ours = made["ParsePooling"].make(8, 60)
    literal = made["Algorithm 1"].make(8, 60)
    literal.pool.load_state_dict(ours.pool.state_dict())
    pooled, coarse, cluster = literal(x, edge_index, batch)
    result = ours(x, edge_index, batch)
    assert torch.equal(result.cluster, cluster)
    assert torch.equal(result.edge_index, coarse)
    torch.testing.assert_close(result.x, pooled)


def marks(figure):
    """Of a drawn plot: its curves and its "x" marks by colour and dash, and its labels."""
    figure.draw_without_rendering()
    (axes,) = figure.axes
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    curves = [line for line in axes.lines if line.get_marker() not in ("x", "None")]
    return axes, curves, crosses, [text for text in axes.texts if text.get_text()]


def assert_complete(plot, figure):
    """A curve for each method with a point, an "x" for each that failed, labels that do not overlap."""
    from matplotlib.text import Text

    axes, curves, crosses, labels = marks(figure)
    drawn = {line.get_label(): list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in curves}
    assert drawn == {name: list(points) for name, points in plot.curves.items() if points}
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in curves}
    assert len(looks) == len(curves), "two curves look alike"
    assert sorted(line.get_xdata()[0] for line in crosses) == sorted(plot.exhausted.values())
    highest = max((y for points in drawn.values() for _, y in points), default=0)
    assert all(line.get_ydata()[0] > highest for line in crosses)
    places = [(line.get_xdata()[0], line.get_ydata()[0]) for line in crosses]
    assert len(set(places)) == len(places), "two x marks in one place"
    assert sorted(text.get_text() for text in labels) == sorted({*drawn, *plot.exhausted})
    boxes = [Text.get_window_extent(text) for text in labels]
    for k, box in enumerate(boxes):
        assert figure.bbox.count_contains(box.corners()) == 4, f"{labels[k]} leaves the figure"
        assert box.x0 > axes.get_window_extent().x1, "a label inside the axes"
        assert not any(box.overlaps(other) for other in boxes[:k]), labels[k]


@pytest.mark.parametrize("count", [1, 8, 11, 30])
@pytest.mark.parametrize("start", [1.0, 2.0, 4.0], ids=["top", "middle", "bottom"])
def test_every_curve_is_drawn_and_labelled(common, count, start):
    # All end within a hair of each other, where labels would fall on one another.
    curves = {f"method {k}": [(10, start), (1000, 2.0 + 0.001 * k)] for k in range(count)}
    plot = common.Plot("title", "nodes", "seconds", curves, {})
    assert_complete(plot, common.draw_loglog(plot))


def test_what_ran_out_is_marked(common):
    curves = {"whole": [(10, 1.0), (100, 2.0)], "half": [(10, 3.0)], "little": [(10, 4.0)], "empty": []}
    plot = common.Plot("title", "nodes", "bytes", curves, {"half": 100, "little": 100, "never": 10})
    assert_complete(plot, common.draw_loglog(plot))
    assert set(common.draw_loglog(plot).axes[0].get_title().split()) >= {"x:", "memory", "time"}


def test_an_interrupted_plot_leaves_the_old_one(common, tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    def interrupted(figure, path, **options):
        path.write_text("half")
        raise KeyboardInterrupt

    plot = {"": common.Plot("title", "nodes", "seconds", {"method": [(10, 1.0)]}, {})}
    path = tmp_path / "results.json"
    common.save_plots(path, plot)
    before = {ending: path.with_suffix(ending).read_bytes() for ending in (".png", ".svg")}
    monkeypatch.setattr(Figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        common.save_plots(path, plot)
    assert {ending: path.with_suffix(ending).read_bytes() for ending in before} == before


def test_what_ran_out_is_read_from_results(common):
    results = [
        {"method": "a", "num_nodes": 10, "peak": 5},
        {"method": "a", "num_nodes": 100, "peak": common.OUT_OF_MEMORY},
        {"method": "b", "num_nodes": 10, "peak": common.OUT_OF_TIME},
        {"method": "c", "num_nodes": 10, "peak": "error: what went wrong"},
    ]
    assert common.exhausted(results, "peak") == {"a": 100, "b": 10}
    assert common.curves(results, "peak") == {"a": [(10, 5)]}


def test_committed_plots_show_every_method(common):
    import report

    found = 0
    for each in report.saved():
        for ending, plot in each.plots().items():
            assert_complete(plot, common.draw_loglog(plot))
            results = each.content["results"]
            if "method" in results[0]:
                kinds = [kind for kind in {r.get("kind") for r in results} if kind and kind in plot.title]
                shown = {r["method"] for r in results if not kinds or r["kind"] in kinds}
                assert shown == {*plot.curves, *plot.exhausted}
            svg = each.path.with_name(f"{each.path.stem}{ending}.svg").read_text()
            assert all(f">{name}<" in svg for name in {*plot.curves, *plot.exhausted}), each.path
            found += 1
    assert found >= 7


def test_tables_name_who_is_faster_and_who_slower(common):
    results = [
        {"method": method, "num_nodes": 10, "seconds": seconds}
        for method, seconds in {
            "ParsePooling": 2.0,
            "GCN + ParsePooling": 3.0,
            "TopKPooling": 0.5,
            "EdgePooling": 20.0,
            "DiffPool": common.OUT_OF_MEMORY,
        }.items()
    ]
    assert common.better_and_worse(results, "seconds", "Faster", "Slower") == (
        "- n = 10. Faster than ParsePooling: TopKPooling 4.00 times. "
        "Slower: EdgePooling 10.0 times, DiffPool out of memory."
    )
    beside = common.beside(results, "seconds", 10)
    assert beside == {"TopKPooling": 4.0, "EdgePooling": 0.1, "DiffPool": common.OUT_OF_MEMORY}
    assert common.beside(results, "seconds", 100) == {}

    import report

    assert [common.cell(ratio) for ratio in beside.values()] == ["**4.00**", "0.100", common.OUT_OF_MEMORY]
    columns = {"a": beside, "b": {"TopKPooling": 12.0, "EdgePooling": 1.5, "DiffPool": 0.9}}
    assert report.better(columns) == "TopKPooling 12.0, EdgePooling 1.50"
    assert report.better({"a": {"EdgePooling": 0.1}}) == "none"


@pytest.mark.parametrize(("kind", "sizes"), [("cpu", [1_000, 10_000]), ("cuda", [1_000, 10_000, 100_000])])
def test_what_the_profiler_cannot_hold_is_not_called_out_of_memory(common, monkeypatch, kind, sizes):
    import memory
    import methods

    monkeypatch.setattr(common, "isolated", lambda measure, *arguments, **limits: 6 << 20)
    monkeypatch.setattr(memory, "available", lambda: [methods.named("EdgePooling")])
    options = {"quick": False, "largest": 100_000, "memory_limit": 1, "time_limit": 1.0, "device": kind}
    results = []
    for _ in memory.run(SimpleNamespace(**options, backward=False, threads=1), torch.device(kind), results):
        pass
    assert [result["num_nodes"] for result in results] == sizes


def test_the_readme_names_every_peer_and_those_that_are_better(common):
    import report

    text = report.README.read_text()
    words = " ".join(line for line in text.splitlines() if "by a factor of up to: " in line)
    for each in report.saved(("cpu",)):
        if not hasattr(each.section.module, "beside"):
            continue
        for cells in each.section.module.beside(each.content).values():
            for name, ratio in cells.items():
                assert f"\n| {name} | " in text
                if not isinstance(ratio, str) and ratio > 1:
                    assert f" {name} " in words


def test_the_layers_report_names_who_is_faster(common):
    import layer

    seconds = {"bare products": 1.0, "ParsePooling": 2.0, "TopKPooling": 0.5, "SAGPooling": 4.0}
    result = {"num_nodes": 10, "seconds": seconds, "parts": {"score": 1.0}}
    content = {"results": [{"kind": layer.DENSE, **result}, {"kind": common.HUBS, **result}]}
    words = "- n = 10. Faster than ParsePooling: TopKPooling 4.00 times. Slower: SAGPooling 2.00 times."
    assert layer.report(content).count(words) == 2


def test_a_convolution_before_the_pool_costs_little(common):
    """At 100,000 nodes, forward, beside TopKPooling alone; forward and backward, beside TopKPooling with the
    same convolution."""
    import memory
    import methods

    def peak(name, backward):
        limits = {"memory_bytes": 12 << 30, "seconds": 300}
        return common.isolated(memory.measure, methods.named(name), 100_000, CPU, backward, 1, **limits)

    ours = "UndirectedGCN + ParsePooling"
    assert peak(ours, False) <= 1.75 * peak("TopKPooling", False)
    assert peak(ours, True) <= 1.2 * peak("UndirectedGCN + TopKPooling", True)


def test_methods_take_turns_in_rounds(common, monkeypatch):
    import methods
    import speed

    order = []

    def isolated(measure, method, *arguments, **limits):
        order.append(method.name)
        if method.name == "EdgePooling":
            return common.OUT_OF_TIME
        return [20.0] if method.name == "ASAPooling" else [0.1 * len(order), 0.3]

    monkeypatch.setattr(common, "isolated", isolated)
    chosen = [methods.named(name) for name in ("ParsePooling", "EdgePooling", "ASAPooling", "TopKPooling")]
    limits = {"memory_limit": 1, "time_limit": 1.0, "device": "cpu"}
    options = SimpleNamespace(quick=False, rounds=3, backward=False, threads=1, **limits)
    results = list(speed.measure_size(chosen, "dense batch", 100, options, CPU))
    # What failed, or takes long, is not measured again.
    turns = ["ParsePooling", "TopKPooling"]
    assert order == ["ParsePooling", "EdgePooling", "ASAPooling", "TopKPooling", *turns, *turns]
    figures = {result["method"]: result["seconds"] for result in results}
    assert figures["EdgePooling"] == common.OUT_OF_TIME
    assert figures["ASAPooling"] == 20.0
    assert figures["ParsePooling"] == pytest.approx(0.3)  # of 0.1, 0.3, 0.5, 0.3, 0.7, 0.3
    assert all(result["kind"] == "dense batch" for result in results)


def test_what_was_stopped_is_resumed(common, monkeypatch, tmp_path):
    import methods
    import speed

    measured = []

    def isolated(measure, *arguments, **limits):
        if measure is speed.validate:
            return True
        method, kind, num_nodes = arguments[:3]
        measured.append((method.name, kind, num_nodes))
        return common.OUT_OF_TIME if method.name == "EdgePooling" else [0.1]

    monkeypatch.setattr(common, "isolated", isolated)
    monkeypatch.setattr(common, "hub_file", lambda: None)
    chosen = [methods.named(name) for name in ("ParsePooling", "EdgePooling")]
    monkeypatch.setattr(speed, "available", lambda: chosen)
    limits = {"memory_limit": 1, "time_limit": 1.0, "device": "cpu"}
    options = SimpleNamespace(
        quick=False, rounds=1, backward=False, paper=True, threads=1, largest=300, **limits
    )
    results, path = [], tmp_path / "speed_cpu.json"
    monkeypatch.setattr(sys, "argv", ["speed.py", "--paper"])
    next(speed.run(options, CPU, results))
    common.save(path, CPU, results=results)
    assert common.resumed(path, resume=False) == []
    monkeypatch.setattr(sys, "argv", ["speed.py", "--paper", "--resume"])
    results = common.resumed(path, resume=True)
    assert len(results) == 2
    for _ in speed.run(options, CPU, results):
        pass
    assert measured == [
        ("ParsePooling", "paper's batch", 100),
        ("EdgePooling", "paper's batch", 100),  # which ran out of time, and is not tried again
        ("ParsePooling", "paper's batch", 300),
    ]
    assert common.save(path, CPU, results=results)["command"] == "speed.py --paper"

    # Results of two commits, or of two commands, never stand in one file.
    monkeypatch.setattr(common, "commit", lambda: "another")
    assert common.resumed(path, resume=True) == []
    monkeypatch.undo()
    monkeypatch.setattr(sys, "argv", ["speed.py", "--resume"])
    assert common.resumed(path, resume=True) == []


def test_processor_time_is_not_disturbed_by_waiting(common, monkeypatch):
    monkeypatch.setattr(common, "clock", common.clock)
    options = common.arguments("").parse_args(["--processor-time", "--threads", "2"])
    threads = torch.get_num_threads()
    try:
        common.prepare(options)
        assert torch.get_num_threads() == options.threads == 1
        assert common.machine(CPU)["clock"] == "processor time"
    finally:
        torch.set_num_threads(threads)
    assert common.elapsed(lambda: time.sleep(0.2), CPU) < 0.1
    assert common.how(common.machine(CPU)).endswith(", processor time")
    monkeypatch.setattr(common, "clock", common.WALL)
    assert common.elapsed(lambda: time.sleep(0.2), CPU) >= 0.2


def test_pages_say_how_figures_were_measured(common, tmp_path, monkeypatch):
    import report

    monkeypatch.setattr(sys, "argv", ["/somewhere/speed.py", "--processor-time", "--largest", "100"])
    limits = {"memory_gib": 12, "seconds": 60.0}
    content = common.save(tmp_path / "result.json", CPU, limits=limits, results=[])
    assert json.loads((tmp_path / "result.json").read_text()) == content
    assert content["command"] == "speed.py --processor-time --largest 100"
    content["machine"] |= {"threads": 1, "clock": common.PROCESSOR}
    line = report.machine_line(content)
    assert ", 1 thread, processor time, torch " in line
    assert line.endswith(" A point had 12 GiB and 60 seconds.")
    content["limits"]["clock"] = common.PROCESSOR
    assert report.machine_line(content).endswith(" 60 seconds of processor time.")


def test_no_benchmark_shadows_the_standard_library():
    assert not {path.stem for path in BENCHMARKS.glob("*.py")} & set(sys.stdlib_module_names)


def test_guard_notices_what_gets_worse(guard, capsys):
    assert guard.compare("bytes", {"parse": 104}, {"parse": 100}) == []
    assert guard.compare("bytes", {"parse": 106}, {"parse": 100}) == ["bytes of parse"]
    assert guard.compare("bytes", {"new": 1}, {}) == ["bytes of new"]
    assert "WORSE" in capsys.readouterr().out


def test_baseline_covers_what_is_measured(guard):
    baseline = json.loads(guard.BASELINE.read_text())
    assert set(baseline["instructions"]) == set(guard.KERNELS)
    assert set(baseline["bytes"]) == set(guard.measure_bytes())


def test_committed_pages_are_what_the_results_say():
    done = run(BENCHMARKS / "report.py", "--check")
    assert done.returncode == 0, done.stderr


def test_only_a_change_of_code_makes_a_commit_dirty(common, tmp_path, monkeypatch):
    def git(*arguments):
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *author, *arguments], cwd=tmp_path, check=True, capture_output=True)

    code, result = (
        tmp_path / "benchmarks" / "parse.py",
        tmp_path / "benchmarks" / "results" / "parse_cpu.json",
    )
    result.parent.mkdir(parents=True)
    for path in (code, result):
        path.write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr("models.common.ROOT", tmp_path)

    def commit():
        return common.machine(CPU)["commit"]

    clean = commit()
    assert len(clean) == 12
    result.write_text("2")
    assert commit() == clean
    code.write_text("2")
    assert commit() == f"{clean}-dirty"
