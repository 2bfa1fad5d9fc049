"""Every command of models/ with ``--device``, on a device that is not the CPU."""

import json
import signal
import subprocess
import sys
import time

import pytest
import synthetic
import torch
import torch.distributed as dist

from models import baselines, draw, reconstruct, report, train

RINGS = "synthetic:Rings(24)"
SETTINGS = ("hidden=8", "gnn_layers=1", "batch_size=8", "dropout=0.2", "patience=40", "warmup=2")


def command(folder, device, *others, dataset=RINGS, epochs=3):
    settings = (*SETTINGS, f"max_epochs={epochs}")
    return synthetic.arguments(dataset, folder, settings, "--device", device, *others)


def result(folder):
    (line,) = (folder / "runs.jsonl").read_text().splitlines()
    record = json.loads(line)
    return {key: record[key] for key in train.RESULT if key in record}


def test_a_killed_command_goes_on(accelerator, tmp_path):
    """From a checkpoint, to the bits of a run that was not killed: the device's random numbers are those of
    the epoch, whatever came before."""
    arguments = command(tmp_path / "parts", accelerator, "--checkpoint-every", 0, epochs=12)
    folder = synthetic.folder_of(arguments)
    epochs = folder / "epochs" / "seed0-fold0.jsonl"
    process = synthetic.start(*arguments)
    end = time.monotonic() + 120
    while not epochs.exists() or epochs.read_text().count("\n") < 4:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (folder / "checkpoints" / "seed0-fold0.pt").exists()
    assert train.main(arguments) == 0

    whole = command(tmp_path / "whole", accelerator, epochs=12)
    assert train.main(whole) == 0
    assert result(folder) == result(synthetic.folder_of(whole))


@pytest.mark.parametrize(
    ("dataset", "settings"),
    [
        ("synthetic:Molecules(24)", ["task=molecule", "metric=auc"]),
        ("synthetic:Communities(40)", ["task=node", "drop_edge=0.5"]),
    ],
)
def test_other_tasks_train(accelerator, tmp_path, dataset, settings):
    options = [part for setting in settings for part in ("--set", setting)]
    arguments = command(tmp_path, accelerator, *options, dataset=dataset, epochs=2)
    assert train.main(arguments) == 0
    assert result(synthetic.folder_of(arguments))["epochs"] == 2


@pytest.mark.parametrize("model", baselines.BASELINES)
def test_baselines_train(accelerator, tmp_path, model):
    arguments = command(tmp_path, accelerator, "--model", model, epochs=1)
    assert train.main(arguments) == 0


def test_jobs_are_processes_that_may_use_the_device(accelerator, tmp_path):
    arguments = command(tmp_path, accelerator, "--seeds", "0,1", "--jobs", 2, epochs=1)
    assert train.main(arguments) == 0


def test_the_record_names_the_card_and_is_reported_and_drawn(accelerator, tmp_path, capsys):
    arguments = command(tmp_path / "results", accelerator, "--keep-model", epochs=2)
    assert train.main(arguments) == 0
    folder = synthetic.folder_of(arguments)
    record = json.loads((folder / "runs.jsonl").read_text())
    assert record["device"] == torch.get_device_module(accelerator).get_device_name()
    capsys.readouterr()
    assert report.main([str(tmp_path / "results")]) == 0
    assert "Rings" in capsys.readouterr().out
    weights, picture = folder / "weights" / "seed0-fold0.pt", tmp_path / "tree.png"
    assert draw.main(["tree", RINGS, "--weights", str(weights), "--output", str(picture)]) == 0
    assert picture.exists()


@pytest.mark.parametrize("method", ["gpn", "topk"])
def test_reconstruct(accelerator, tmp_path, method):
    settings = ["--nodes", "12", "--epochs", "2", "--seeds", "0", "--methods", method]
    reconstruct.main(["ring", *settings, "--device", str(accelerator), "--output", str(tmp_path)])
    assert (tmp_path / "ring.jsonl").exists()


def test_a_card_that_is_not_there(accelerator, tmp_path, capsys):
    assert train.main(command(tmp_path, f"{accelerator.type}:99")) == 2
    assert "--device: expected a number below" in capsys.readouterr().err


def test_several_processes_take_a_card_each_and_talk_by_nccl(monkeypatch, tmp_path):
    """Up to the collective: no GPU has seen the rest."""
    asked = []

    class EnoughError(Exception):
        pass

    def init_process_group(backend):
        asked.append(backend)
        raise EnoughError

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "set_device_index", asked.append)
    monkeypatch.setattr(dist, "init_process_group", init_process_group)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(EnoughError):
        train.main(command(tmp_path, "cuda"))
    assert asked == [1, "nccl"]


def test_models_train_finds_no_such_device():
    done = subprocess.run(
        [sys.executable, "-m", "models.train", "MUTAG", "--device", "xla"],
        capture_output=True,
        text=True,
        cwd=synthetic.ROOT,
    )
    assert done.returncode == 2
    # Before it stand at most warnings of torch's.
    assert done.stderr.endswith("error: --device xla: this torch sees no XLA device\n")
    assert "Traceback" not in done.stderr
