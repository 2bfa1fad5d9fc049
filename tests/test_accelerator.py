"""The benchmarks, the check of a GPU and the talk between ranks, on a device that is not the CPU."""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import gpn_ops.distributed
from gpn_ops import collect_env
from gpn_ops.nn import CapturedCall

sys.path.append(str(Path(__file__).parent.parent))  # for models
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import common
import distributed
import gpu_check
import memory
import report
import traffic

from models.common import device_named


def options(device, **others):
    return argparse.Namespace(**{"device": device, "threads": 1, "processor_time": False, **others})


def fill(device, num_bytes):
    return torch.empty(num_bytes, dtype=torch.uint8, device=device).numel()


def test_the_device_is_prepared(accelerator):
    assert common.prepare(options(accelerator.type)) == accelerator
    with pytest.raises(SystemExit, match="processor-time"):
        common.prepare(options(accelerator.type, processor_time=True))


def test_memory_is_measured_and_limited(accelerator):
    assert memory.known_size(accelerator) == 6 << 20
    assert common.elapsed(lambda: torch.ones(10, device=accelerator), accelerator) > 0
    module = torch.get_device_module(accelerator)
    try:
        common._limit_memory(accelerator, torch.accelerator.memory_allocated() + (8 << 20))
        with pytest.raises(torch.OutOfMemoryError):
            fill(accelerator, 64 << 20)
    finally:
        module.set_per_process_memory_fraction(1.0)


def test_every_point_has_a_process_of_its_own(accelerator):
    """Which may use the device although this one has, and cannot take more than its share."""
    torch.ones(1, device=accelerator)
    limits = {"memory_bytes": 1 << 30, "seconds": 60, "device": accelerator}
    assert common.isolated(fill, accelerator, 1 << 20, **limits) == 1 << 20
    assert common.isolated(fill, accelerator, 2 << 30, **limits) == common.OUT_OF_MEMORY


def test_operators_are_timed_beside_their_predictions(accelerator, tmp_path, monkeypatch):
    monkeypatch.setattr(traffic, "DOCUMENTED", traffic.Size(200, 1_000, 80, 4))
    monkeypatch.setattr(common, "timed", lambda calls, device, *_, **__: _once(calls, device))
    command = ["traffic.py", "--device", accelerator.type, "--output", str(tmp_path), "--threads", "1"]
    monkeypatch.setattr(sys, "argv", command)
    traffic.main()
    content = json.loads((tmp_path / f"traffic_{accelerator.type}.json").read_text())
    assert content["machine"]["device"] == common.card(accelerator)["name"]
    assert "operator" in traffic.report(content)


def _once(calls, device):
    times = {name: common.elapsed(call, device) for name, call in calls.items()}
    return {name: common.Timing(seconds, seconds, seconds) for name, seconds in times.items()}


def test_ranks_of_the_benchmark_stay_on_the_cpu(accelerator, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["distributed.py", "--device", accelerator.type])
    with pytest.raises(SystemExit):
        distributed.main()
    assert "processes on the CPU" in capsys.readouterr().err


def test_results_of_a_card_stand_beside_those_of_the_cpu(tmp_path, monkeypatch):
    content = json.loads((common.RESULTS / "parse_cpu.json").read_text())
    content["machine"] |= {"device": "A card", "card": {"name": "A card", "driver": "1.2"}}
    for device in ("cpu", "cuda"):
        (tmp_path / f"parse_{device}.json").write_text(json.dumps(content))
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    page = report.page()
    assert "## Parsing (CUDA)" in page
    assert "Measured on A card, driver 1.2" in page


# ------------------------------------------------------------------------- torch.cuda's answers, patched


def test_the_environment_names_the_gpus(monkeypatch):
    answers = {"device_count": 1, "get_device_name": "A card", "get_device_capability": (8, 6)}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    assert collect_env.collect()["GPUs"] == "A card (compute capability 8.6)"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_commands_say_that_there_is_no_such_device():
    with pytest.raises(SystemExit, match="torch finds no CUDA device"):
        common.prepare(options("cuda"))
    with pytest.raises(ValueError, match="this torch sees no CUDA device"):
        device_named("cuda")


# ------------------------------------------------------------------------------------- distributed, by NCCL


def test_ranks_agree_on_their_device_where_the_group_has_no_cpu(accelerator, monkeypatch):
    """As with NCCL, up to the collective."""

    class EnoughError(Exception):
        pass

    def all_gather(everyone, said, group=None):
        assert said.device == torch.device(accelerator.type, 0)
        assert len(everyone) == 2
        raise EnoughError

    answers = {"is_initialized": True, "get_rank": 0, "get_world_size": 2}
    for name, answer in answers.items():
        monkeypatch.setattr(dist, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(dist, "get_backend_config", lambda *_: f"{accelerator.type}:nccl")
    monkeypatch.setattr(dist, "all_gather", all_gather)
    edge_index = torch.tensor([[0, 1], [1, 0]], device=accelerator)
    with pytest.raises((EnoughError, RuntimeError)) as caught:
        gpn_ops.distributed.parse(edge_index, torch.ones(2, device=accelerator), 2)
    assert isinstance(caught.value.__cause__ or caught.value, EnoughError)


# ------------------------------------------------------------------------------------------------- make gpu


def test_the_check_of_a_gpu_runs_here_and_goes_on(accelerator, tmp_path, monkeypatch, capsys):
    """The whole of it, but for the steps themselves: they pass, but for one that fails at first."""
    ran, failing = [], {"benchmark-memory-quick"}

    def run(step, output):
        ran.append(step.name)
        record = {"group": step.group, "command": list(step.command), "seconds": 1, "last": "done"}
        if step.skip:
            return {**record, "outcome": gpu_check.SKIPPED, "why": step.skip}
        (output / "logs").mkdir(exist_ok=True)
        (output / "logs" / f"{step.name}.log").write_text("a line\n")
        return {**record, "outcome": gpu_check.FAILED if step.name in failing else gpu_check.PASSED}

    monkeypatch.setattr(gpu_check, "run", run)
    command = ["--device", accelerator.type, "--quick", "--output", str(tmp_path)]
    assert gpu_check.main(command) == 1
    said = capsys.readouterr().out.splitlines()
    verdict = said[said.index("") + 1 :]
    assert len(verdict) <= 10
    assert "  benchmarks: FAILED: benchmark-memory-quick" in verdict
    assert "## benchmark-memory-quick failed" in (tmp_path / "README.md").read_text()

    failing.clear()
    ran.clear()
    assert gpu_check.main(command) == 0
    assert "benchmark-memory-quick" in ran
    assert "tests" not in ran
    assert "build" in ran  # another build may have come between, without what this one needs
    assert "All well" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_gpu_goes_on_without_peers(tmp_path):
    """Which are compiled against torch, and where nvcc is of another CUDA than torch, are not."""
    shutil.copy(gpu_check.ROOT / "Makefile", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        '#!/bin/sh\necho "$GPN_OPS_WERROR $*" >> calls\ncase "$*" in *bench-peers*) exit 1 ;; esac\n'
    )
    python.chmod(0o755)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv" / ".ready").touch()
    done = subprocess.run(["make", "gpu", "GPU=--quick"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "!! peers" in done.stdout
    peers, check = (tmp_path / "calls").read_text().splitlines()
    assert "bench-peers" in peers
    assert check == "0 benchmarks/gpu_check.py --quick"  # and no warning of an untried compiler is an error


def test_steps_of_the_check_run_and_are_logged(tmp_path):
    python = [sys.executable, "-c"]
    good = gpu_check.run(gpu_check.Step("good", "tests", [*python, "print('well')"]), tmp_path)
    assert (good["outcome"], good["last"]) == (gpu_check.PASSED, "well")
    bad = gpu_check.run(gpu_check.Step("bad", "tests", [*python, "raise SystemExit('no')"]), tmp_path)
    assert (bad["outcome"], bad["last"]) == (gpu_check.FAILED, "no")
    assert (tmp_path / "logs" / "bad.log").read_text() == "no\n"
    killed = gpu_check.run(
        gpu_check.Step("killed", "tests", [*python, "import os; os.kill(os.getpid(), 9)"]), tmp_path
    )
    assert (killed["outcome"], killed["last"]) == (gpu_check.FAILED, "ended by signal 9 (Killed)")


def test_the_check_builds_for_the_cards_at_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda card: [(9, 0), (8, 6), (9, 0)][card])
    chosen = argparse.Namespace(
        device="cuda", output=tmp_path, quick=False, only=[], dataset="PROTEINS", set=[], data_root=tmp_path
    )
    steps = gpu_check.steps(chosen)
    assert steps[0].environment == {"GPN_OPS_CUDA": "1", "TORCH_CUDA_ARCH_LIST": "8.6;9.0"}
    assert [step.name for step in steps[:2]] == ["build", "library"]
    assert {"tests", "memcheck", "benchmark-memory", "train-cuda", "train-cpu"} <= {s.name for s in steps}
    for step in steps:
        assert not {"--processor-time", "--busy"} & set(step.command)  # which are for CPUs
        reads = step.name.startswith(("train-", "benchmark-training", "benchmark-static"))
        assert ("--data-root" in step.command) == reads, step.command
        assert step.group == "compute-sanitizer" or not step.skip
    for step in steps:
        scripts = [word for word in step.command if word.endswith(".py")]
        assert all((gpu_check.ROOT / script).exists() for script in scripts), step.command


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_check_fails_where_the_cuda_library_is_not_loaded(tmp_path):
    """Else all that follows would pass, on plain PyTorch. Here torch has no CUDA, or no GPU to start it."""
    step = gpu_check.Step("library", "build", [sys.executable, "-c", gpu_check.LOADS])
    record = gpu_check.run(step, tmp_path)
    assert record["outcome"] == gpu_check.FAILED


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_check_needs_a_gpu(tmp_path, capsys):
    assert gpu_check.main(["--output", str(tmp_path)]) == 2
    assert "finds no CUDA device" in capsys.readouterr().err


def test_a_call_is_captured_and_replayed():
    """By torch.cuda's own signatures: warmed up on another stream, captured once, replayed at every call."""
    calls = []

    def function(x):
        calls.append(x)
        return 2 * x

    with contextlib.ExitStack() as stack:
        for name in ("Stream", "stream", "current_stream", "CUDAGraph", "graph"):
            stack.enter_context(mock.patch.object(torch.cuda, name, autospec=True))
        for name in ("stream", "graph"):
            getattr(torch.cuda, name).return_value = contextlib.nullcontext()
        given = torch.ones(2)
        captured = CapturedCall(function, [given])
        assert len(calls) == 4
        assert all(x is captured.inputs[0] and x is not given for x in calls)
        out = captured(torch.full((2,), 3.0))
        assert captured.inputs[0].tolist() == [3, 3]
        assert out is captured.outputs
        torch.cuda.graph.assert_called_once_with(captured.graph)
        captured.graph.replay.assert_called_once_with()
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream.assert_called_once_with(current)
        current.wait_stream.assert_called_once_with(side)

        warm = []
        CapturedCall(function, [given], warm_up=warm.append)
        assert len(warm) == 3
        assert len(calls) == 5
