"""Several processes that train one model: the same steps as one process takes, and an end that is no hang."""

import json
import math
import os
import re
import signal
import time

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("sklearn", reason="models needs scikit-learn")
pytest.importorskip("yaml", reason="models needs pyyaml")

import synthetic

from models import config as configs
from models import data
from models.train import main
from models.training import loss_sum, make_model, metric, seed_everything

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse:UserWarning"),
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no gloo"),
]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PATIENCE = 600.0


def arguments(dataset, folder, *others, **settings):
    settings = {"hidden": 6, "gnn_layers": 1, "lr": 0.01, "warmup": 0, "dropout": 0.0, **settings}
    chosen = [f"{key}={value}" for key, value in settings.items()]
    return synthetic.arguments(dataset, folder, chosen, *others)


def together(command):
    """The exit code and the output of the command in two processes."""
    process = synthetic.start(*command, launcher=TORCHRUN)
    try:
        return process.communicate(timeout=PATIENCE)[0], process.returncode
    finally:
        process.kill()


def results(command):
    """The record of the run, its epochs, and the weights if they were kept."""
    folder = synthetic.folder_of(command)
    (record,) = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
    epochs = [json.loads(line) for line in (folder / "epochs" / "seed0-fold0.jsonl").read_text().splitlines()]
    weights = folder / "weights" / "seed0-fold0.pt"
    return record, epochs, torch.load(weights, weights_only=True)["model"] if weights.exists() else {}


def test_two_processes_take_the_steps_of_one(tmp_path):
    """20 steps in float64, batches of 11 graphs and of 1. In some, one process's graphs have no edges."""
    dataset = "synthetic:Rings(43, edged=5)"
    settings = {
        "batch_size": 11,
        "max_epochs": 5,
        "eval_every": 5,
        "clip": 0.5,
        "warmup": 2,
        "double": "true",
    }
    command = [*arguments(dataset, tmp_path / "two", **settings), "--keep-model"]
    graphs = data.load(configs.load(dataset), tmp_path)
    has_edges = graphs.edge_ptr.diff() > 0
    shares, train = [], graphs.split(0, 0).train
    for epoch in range(5):
        seed_everything(0, 0, epoch)
        parts = train[torch.randperm(train.numel())].split(11)
        shares += [[bool(has_edges[part[rank::2]].any()) for rank in range(2)] for part in parts]
        assert [part.numel() for part in parts] == [11, 11, 11, 1]
    assert len(shares) == 20
    assert all(share in shares for share in ([True, True], [True, False], [False, True], [False, False]))

    out, code = together(command)
    assert code == 0, out
    alone = [*arguments(dataset, tmp_path / "one", **settings), "--keep-model"]
    assert main(alone) == 0
    (two, epochs_of_two, weights_of_two), (one, epochs_of_one, weights_of_one) = map(
        results, (command, alone)
    )
    assert (two["processes"], one["processes"]) == (2, 1)
    assert len(epochs_of_two) == len(epochs_of_one) == 5
    for left, right in zip(epochs_of_two, epochs_of_one, strict=True):
        assert left == pytest.approx(right, rel=3e-6)  # They are written with 6 digits.
    for key in ("val", "val_loss", "test", "test_loss", "height", "height_std", "epoch", "epochs"):
        assert two[key] == pytest.approx(one[key], rel=1e-10), key
    assert weights_of_two.keys() == weights_of_one.keys()
    for name, weight in weights_of_one.items():
        torch.testing.assert_close(
            weights_of_two[name], weight, atol=1e-10, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def workers_of(process):
    """The processes that torchrun started, by their ranks."""
    found = {}
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        for pid in map(int, file.read().split()):
            try:
                with open(f"/proc/{pid}/environ") as file:
                    rank = re.search(r"\0RANK=(\d+)\0", "\0" + file.read())
            except OSError:
                continue
            if rank:
                found[int(rank[1])] = pid
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_ends_the_command_which_then_goes_on(tmp_path, rank):
    settings = {
        "max_epochs": 40,
        "patience": 40,
        "dropout": 0.3,
        "drop_edge": 0.2,
        "warmup": 5,
        "batch_size": 8,
    }
    dataset = "synthetic:Rings(42)"
    command = [*arguments(dataset, tmp_path / "parts", **settings), "--checkpoint-every", "0"]
    folder = synthetic.folder_of(command)
    epochs = folder / "epochs" / "seed0-fold0.jsonl"
    process = synthetic.start(*command, launcher=TORCHRUN)
    try:
        end = time.monotonic() + PATIENCE
        while not epochs.exists() or epochs.read_text().count("\n") < 4:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.005)
        os.kill(workers_of(process)[rank], signal.SIGKILL)
        start = time.monotonic()
        out = process.communicate(timeout=PATIENCE)[0]
        assert time.monotonic() - start < 60
    finally:
        process.kill()
    assert process.returncode != 0
    assert "Signal 9 (SIGKILL)" in out
    assert "models.train FAILED" in out
    assert not (folder / "runs.jsonl").exists()
    assert (folder / "checkpoints" / "seed0-fold0.pt").exists()

    assert together(command)[1] == 0
    uninterrupted = arguments(dataset, tmp_path / "whole", **settings)
    assert together(uninterrupted)[1] == 0
    parts, whole = results(command), results(uninterrupted)
    for key in ("val", "val_loss", "test", "test_loss", "height", "epoch", "epochs"):
        assert parts[0][key] == whole[0][key], key
    assert parts[1] == whole[1]


@pytest.mark.slow
def test_kept_weights_of_molecules_give_the_recorded_result(tmp_path):
    """Their running means are those that validation and test were measured with, in all processes."""
    dataset = "synthetic:Molecules(60)"
    settings = {"task": "molecule", "metric": "auc", "encoder_layers": 2, "max_epochs": 3, "batch_size": 8}
    command = [*arguments(dataset, tmp_path, **settings), "--keep-model"]
    out, code = together(command)
    assert code == 0, out
    record, epochs, weights = results(command)
    assert all(math.isfinite(line["loss"]) for line in epochs)
    config = configs.load(
        dataset, [f"{key}={value}" for key, value in settings.items()], hidden=6, gnn_layers=1
    )
    graphs = data.load(config, tmp_path)
    model = make_model(config, graphs)
    model.load_state_dict(weights)
    batch = graphs.take(graphs.split(0, 0).test)
    with torch.no_grad():
        out = model.eval()(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs).out
    assert metric("auc", out, batch.y) == pytest.approx(record["test"])
    known = int((~batch.y.isnan()).sum())
    assert float(loss_sum(out, batch.y)) / known == pytest.approx(record["test_loss"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "others", "message"),
    [
        (
            "synthetic:Communities",
            ["--set", "task=node"],
            "error: a node task has one graph, which one process",
        ),
        ("synthetic:Rings", ["--jobs", "2"], "error: --jobs: expected 1 under torchrun"),
        ("synthetic:Failing", [], "Failing gpn seed 0 fold 0: scores: expected no NaN"),
    ],
)
def test_what_several_processes_cannot_do(tmp_path, dataset, others, message):
    out, code = together([*arguments(dataset, tmp_path), *others])
    assert code != 0
    assert message in out
