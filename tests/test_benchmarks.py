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


@pytest.mark.parametrize("script", ["parse.py", "memory.py", "time.py", "layer.py", "coarsen.py", "epoch.py"])
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
