"""The benchmarks' own machinery: what it measures is right, its limits hold, and its guard can fail."""

import json
import subprocess
import sys
import time
from pathlib import Path

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


@pytest.mark.parametrize(
    "script", ["parse.py", "memory.py", "speed.py", "layer.py", "coarsen.py", "epoch.py"]
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_cuda_stops_at_once(script):
    done = run(BENCHMARKS / script, "--device", "cuda")
    assert done.returncode != 0
    assert "torch finds no CUDA device" in done.stderr
    assert "Traceback" not in done.stderr


def test_peak_bytes_is_exact(common):
    def known() -> torch.Tensor:
        first = torch.empty(1000, dtype=torch.float32)
        second = torch.empty(300, dtype=torch.float64)
        del first
        third = torch.empty(200, dtype=torch.float64)
        return second + third.sum()

    # 4000 + 2400 while the first lives; later 2400 + 1600 + a sum of 8 + a result of 2400.
    assert common.peak_bytes(known, CPU) == max(6400, 2400 + 1600 + 8 + 2400)


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
    from methods import METHODS, outputs

    edge_index, _ = common.random_graph(40, 80)
    x, batch = torch.randn(40, 8), torch.zeros(40, dtype=torch.int64)
    for method in METHODS:
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
            assert each.path.with_name(f"{each.path.stem}{ending}.png").stat().st_size > 10_000
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
        "- n = 10. Faster than ParsePooling: TopKPooling 4 times. "
        "Slower: EdgePooling 10 times, DiffPool out of memory."
    )
    assert common.beside(results, "seconds", 10) == {
        "TopKPooling": "**4**",
        "EdgePooling": "0.1",
        "DiffPool": common.OUT_OF_MEMORY,
    }
    assert common.beside(results, "seconds", 100) == {}


def test_the_readme_has_a_row_for_every_peer(common):
    import report

    text = report.README.read_text()
    for each in report.saved(("cpu",)):
        if hasattr(each.section.module, "beside"):
            for name in {r["method"] for r in each.content["results"]} - set(common.NOT_PEERS):
                assert f"\n| {name} | " in text


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
    monkeypatch.setattr(common, "RESULTS", result.parent)

    def commit():
        return common.machine(CPU)["commit"]

    clean = commit()
    assert len(clean) == 12
    result.write_text("2")
    assert commit() == clean
    code.write_text("2")
    assert commit() == f"{clean}-dirty"
