"""Runs: what a step computes, which epoch is reported, and that a run which was stopped goes on as if it had
not been."""

import contextlib
import copy
import errno
import fcntl
import io
import json
import math
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("sklearn", reason="models needs scikit-learn")
pytest.importorskip("yaml", reason="models needs pyyaml")

import synthetic
from sklearn.metrics import average_precision_score, roc_auc_score
from synthetic import flipped, small, small_disk, small_files, trained
from torch.nn import functional

from models import common, data, files, jsonl, train, training
from models import config as configs
from models.train import main
from models.training import Place, Run, check_metric, digest, loss_sum, make_model, metric, num_labels, rate

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
SETTINGS = ("hidden=8", "gnn_layers=1", "warmup=0", "lr=0.01", "batch_size=8", "max_epochs=4", "dropout=0.2")
RINGS = "synthetic:Rings(40)"


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    return data.load(small(RINGS), tmp_path_factory.mktemp("data"))


def make_run(config, graphs, folder, fold=0, seed=0, **place):
    return Run(config, graphs, fold, seed, Place(folder, CPU, quiet=True, **place))


def arguments(dataset, folder, *others, settings=SETTINGS):
    return synthetic.arguments(dataset, folder, settings, *others)


def records(folder):
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def comparable(record):
    """What must not depend on how and when the run was done."""
    return {
        key: value
        for key, value in record.items()
        if key not in ("seconds", "commit", "command", "processes")
    }


def comparable_records(folder):
    return sorted(map(comparable, records(folder)), key=lambda record: (record["seed"], record["fold"]))


# ------------------------------------------------------------------------------------------------------------
# Rate, losses, metrics
# ------------------------------------------------------------------------------------------------------------


def test_rate_warms_up_and_decays_by_a_cosine():
    config = configs.Config("x", lr=0.5, warmup=50, max_epochs=450)
    steps = {0: 0, 1: 0.0025, 100: 0.25, 200: 0.5, 1000: 0.25, 1800: 0, 2000: 0}
    for step, expected in steps.items():
        assert rate(config, step, 4) == pytest.approx(expected, abs=1e-12), step
    a_third = 200 + 1600 // 3 + 1 / 3
    assert rate(config, a_third, 4) == pytest.approx(0.5 * (1 + math.cos(math.pi / 3)) / 2, abs=1e-9)
    rates = [rate(config, step, 4) for step in range(1801)]
    assert all(rates[k] < rates[k + 1] for k in range(200))
    assert all(rates[k] > rates[k + 1] for k in range(200, 1800))


def test_rate_without_warm_up_is_constant():
    config = configs.Config("x", lr=0.5, warmup=0, max_epochs=10)
    assert {rate(config, step, 3) for step in range(40)} == {0.5}


def test_rate_where_all_is_warm_up():
    config = configs.Config("x", lr=0.5, warmup=10, max_epochs=10)
    assert rate(config, 9, 1) == pytest.approx(0.45)
    assert math.isfinite(rate(config, 10, 1))


def test_loss_of_classes():
    out, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 1, 0])
    expected = sum(
        -math.log(float(row.exp()[label] / row.exp().sum())) for row, label in zip(out, y, strict=True)
    )
    assert float(loss_sum(out, y)) == pytest.approx(expected)
    assert num_labels(y) == 5
    assert float(loss_sum(out[:0], y[:0])) == 0


def with_missing_labels():
    generator = torch.Generator().manual_seed(0)
    out = torch.randn(40, 5, generator=generator)
    y = torch.randint(3, (40, 5), generator=generator).float()
    y[y == 2] = torch.nan
    y[:, 3] = torch.where(y[:, 3] == 0, torch.nan, y[:, 3])  # Known labels are all 1.
    y[:, 4] = torch.nan
    return out, y


def test_loss_of_tasks_leaves_missing_labels_out():
    out, y = with_missing_labels()
    expected, count = 0.0, 0
    for value, label in zip(out.double().view(-1).tolist(), y.view(-1).tolist(), strict=True):
        if not math.isnan(label):
            expected -= math.log(1 / (1 + math.exp(-value if label else value)))
            count += 1
    assert float(loss_sum(out, y)) == pytest.approx(expected, rel=1e-5)
    assert num_labels(y) == count
    out.requires_grad_()
    loss_sum(out, y).backward()
    assert bool(out.grad.isfinite().all())
    assert bool((out.grad[y.isnan()] == 0).all())
    assert float(loss_sum(out.detach(), torch.full_like(y, torch.nan))) == 0


def test_metrics():
    out = torch.tensor([[2.0, 1.0], [0.0, 1.0], [0.0, 3.0], [5.0, 1.0]])
    assert metric("accuracy", out, torch.tensor([0, 1, 0, 1])) == 50
    out, y = with_missing_labels()
    for name, function in (("ap", average_precision_score), ("auc", roc_auc_score)):
        values = []
        for task in range(3):  # The fourth has one label only, the fifth none.
            known = [k for k in range(40) if not math.isnan(y[k, task])]
            values.append(function([int(y[k, task]) for k in known], [float(out[k, task]) for k in known]))
        assert metric(name, out, y) == pytest.approx(100 * sum(values) / 3)
        assert math.isnan(metric(name, out, torch.full_like(y, torch.nan)))
    with pytest.raises(ValueError, match="metric: expected accuracy, ap or auc, got 'f1'"):
        metric("f1", out, y)


def test_metrics_of_two_classes():
    """Ranked by the probability of class 1, not by its logit alone."""
    out = torch.tensor([[5.0, 6.0], [0.0, 2.0], [3.0, 3.5], [9.0, 7.0]])
    y = torch.tensor([0, 1, 1, 0])
    scores = out.softmax(dim=1)[:, 1]
    assert metric("auc", out, y) == pytest.approx(75)
    assert metric("auc", out, y) == pytest.approx(100 * roc_auc_score(y, scores))
    assert metric("ap", out, y) == pytest.approx(100 * average_precision_score(y, scores))
    check_metric("auc", y, 2)
    with pytest.raises(ValueError, match="expected accuracy for classes"):
        check_metric("auc", y, 3)
    with pytest.raises(ValueError, match="expected ap or auc for labels of tasks"):
        check_metric("accuracy", y.float().view(-1, 1), 1)


# ------------------------------------------------------------------------------------------------------------
# An epoch
# ------------------------------------------------------------------------------------------------------------


def test_every_graph_once_an_epoch_in_a_new_order(graphs, tmp_path, monkeypatch):
    run = make_run(small(RINGS, batch_size=10), graphs, tmp_path)
    taken, take = [], data.Graphs.take
    monkeypatch.setattr(data.Graphs, "take", lambda self, index: taken.append(index) or take(self, index))
    orders = []
    for _ in range(2):
        taken.clear()
        run.train_epoch()
        assert [part.numel() for part in taken] == [10, 10, 10, 2]
        orders.append(torch.cat(taken).tolist())
        assert sorted(orders[-1]) == run.split.train.tolist()
    assert orders[0] != orders[1]
    assert run.steps_per_epoch == 4


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("dataset", [RINGS, "synthetic:Molecules(40)"])
def test_steps_are_those_of_adam_with_decay_in_the_gradient(tmp_path, monkeypatch, dataset, clip):
    """Mean loss of a batch's labels, clipped gradient, rate of the step."""
    task = "molecule" if "Molecules" in dataset else "graph"
    values = {"task": task, "double": True, "dropout": 0.0, "clip": clip, "warmup": 2, "weight_decay": 0.1}
    config = small(dataset, encoder_layers=1, metric="accuracy" if task == "graph" else "auc", **values)
    graphs = data.load(config, tmp_path)
    run = make_run(config, graphs, tmp_path)
    model = copy.deepcopy(run.model).train()
    taken, take = [], data.Graphs.take
    monkeypatch.setattr(data.Graphs, "take", lambda self, index: taken.append(index) or take(self, index))
    reported = [run.train_epoch()["loss"] for _ in range(3)]
    monkeypatch.undo()

    first = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    second = copy.deepcopy(first)
    losses, counts = [], []
    for step, index in enumerate(taken):
        batch = graphs.take(index).to(CPU, torch.float64)
        out = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs).out
        if task == "graph":
            loss, count = functional.cross_entropy(out, batch.y), index.numel()
        else:
            known = ~batch.y.isnan()
            loss = functional.binary_cross_entropy_with_logits(out[known], batch.y[known])
            count = int(known.sum())
        losses.append(float(loss.detach()) * count)
        counts.append(count)
        grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        norm = torch.stack([grad.square().sum() for grad in grads if grad is not None]).sum().sqrt()
        scale = 1.0 if clip is None else min(1.0, clip / (float(norm) + 1e-6))
        with torch.no_grad():
            for (name, p), grad in zip(model.named_parameters(), grads, strict=True):
                grad = scale * grad + 0.1 * p
                first[name] = 0.9 * first[name] + 0.1 * grad
                second[name] = 0.999 * second[name] + 0.001 * grad**2
                mean, square = first[name] / (1 - 0.9 ** (step + 1)), second[name] / (1 - 0.999 ** (step + 1))
                p -= rate(config, step, 4) * mean / (square.sqrt() + 1e-8)
    for name, p in run.model.named_parameters():
        wanted = dict(model.named_parameters())[name]
        torch.testing.assert_close(
            p, wanted, atol=1e-9, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )
    for k, loss in enumerate(reported):
        assert loss == pytest.approx(
            sum(losses[4 * k : 4 * k + 4]) / sum(counts[4 * k : 4 * k + 4]), rel=1e-9
        )


@pytest.mark.parametrize("dataset", [RINGS, "synthetic:Molecules(40)"])
def test_the_average_of_weights_is_measured(tmp_path, monkeypatch, dataset):
    """Of every step; statistics of a BatchNorm are those of the model."""
    task = "molecule" if "Molecules" in dataset else "graph"
    config = small(dataset, task=task, metric="accuracy" if task == "graph" else "auc", average=0.75)
    run = make_run(config, data.load(config, tmp_path), tmp_path)
    plain = make_run(config.replace(average=0.0), run.graphs, tmp_path)
    weights, step = [], run.optimizer.step
    monkeypatch.setattr(
        run.optimizer, "step", lambda: step() or weights.append(copy.deepcopy(run.model.state_dict()))
    )
    for _ in range(2):
        assert run.train_epoch() == plain.train_epoch()
    assert len(weights) == 8
    average = dict(weights[0])
    for later in weights[1:]:
        for key in dict(run.model.named_parameters()):
            average[key] = 0.75 * average[key] + 0.25 * later[key]
    average |= dict(run.model.named_buffers())
    plain.model.load_state_dict(average)
    assert run.measure() == pytest.approx(plain.measure(), rel=1e-5)
    torch.testing.assert_close(dict(run.measured.state_dict()), average, atol=1e-6, rtol=1e-5)
    # Measuring leaves what is trained as it is.
    torch.testing.assert_close(run.model.state_dict(), weights[-1], atol=0, rtol=0)


@pytest.mark.parametrize(
    ("dataset", "values"),
    [
        (RINGS, {}),
        (RINGS, {"double": True, "conv": "gin"}),
        (RINGS, {"conv": "gat", "multiset": "mean"}),
        (RINGS, {"multiset": "max", "complete": True}),
        (RINGS, {"weighted": True, "readout": "mean"}),
        (RINGS, {"self_loops": True, "drop_edge": 0.3, "recompute": True}),
        ("synthetic:Rings(40, edged=2)", {"act_last": True}),
        ("synthetic:Molecules(40)", {"task": "molecule", "metric": "auc", "double": True}),
        ("synthetic:Molecules(40)", {"task": "molecule", "metric": "auc", "model": "gcn"}),
        ("synthetic:Molecules(40)", {"task": "molecule", "metric": "auc", "model": "gin"}),
        ("synthetic:Communities", {"task": "node"}),
        ("synthetic:Communities", {"task": "node", "self_loops": True, "drop_edge": 0.5, "double": True}),
    ],
    ids=str,
)
def test_all_kinds_of_runs(dataset, values, tmp_path):
    config = small(dataset, max_epochs=2, **values)
    record, epochs = trained(config, data.load(config, tmp_path), tmp_path)
    lines = [json.loads(line) for line in epochs.splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert all(math.isfinite(line["loss"]) for line in lines)
    assert ("height" in record) == (config.model == "gpn")
    assert record.get("height", 0) >= 0
    assert 0 <= record["test"] <= 100
    assert all("val" in line for line in lines)


def test_sizes_of_clusters_are_those_of_the_first_level(tmp_path, monkeypatch):
    """Over all graphs that shrink, in all batches: nodes for each cluster."""
    config = small("synthetic:Rings(40, edged=2)", batch_size=10)
    run = make_run(config, data.load(config, tmp_path), tmp_path)
    clusters, forward = [], Run.forward

    def noted(self, batch):
        prediction = forward(self, batch)
        first = prediction.tree.levels[0]
        clusters.extend(first.cluster.bincount().tolist())
        assert first.x.size(0) < batch.x.size(0)  # Graphs without edges do not shrink.
        return prediction

    monkeypatch.setattr(Run, "forward", noted)
    record = run.train_epoch()
    assert record["cluster_size"] == pytest.approx(sum(clusters) / len(clusters))
    assert record["cluster_size"] > 1.5
    edgeless = "synthetic:Rings(40, edged=100)"
    lone = make_run(small(edgeless), data.load(small(edgeless), tmp_path), tmp_path, fold=0)
    lone.split = data.Split(torch.arange(1, 9), torch.arange(9, 10), torch.arange(10, 11))
    monkeypatch.undo()
    assert "cluster_size" not in lone.train_epoch()


def test_learns(graphs, tmp_path):
    config = small(RINGS, max_epochs=25, patience=25, dropout=0.0)
    record, epochs = trained(config, graphs, tmp_path)
    losses = [json.loads(line)["loss"] for line in epochs.splitlines()]
    assert losses[-1] < 0.2 * losses[0]
    assert record["test"] == 100
    assert record["val_loss"] < 0.3


def test_learns_nodes(tmp_path):
    config = small(
        "synthetic:Communities(180)", task="node", max_epochs=60, eval_every=5, drop_edge=0.2, patience=60
    )
    record, epochs = trained(config, data.load(config, tmp_path), tmp_path)
    lines = [json.loads(line) for line in epochs.splitlines()]
    assert lines[-1]["loss"] < 0.3 * lines[0]["loss"]
    assert record["test"] > 90


def test_the_same_seed_gives_the_same_bits(graphs, tmp_path):
    config = small(RINGS, dropout=0.3, drop_edge=0.2, max_epochs=3)

    def weights(name, **options):
        run = make_run(config, graphs, tmp_path / name, **options)
        run.train()
        return torch.cat([value.view(-1) for value in run.model.state_dict().values()])

    first = weights("a", seed=1, fold=2)
    assert torch.equal(first, weights("b", seed=1, fold=2))
    assert not torch.equal(first, weights("c", seed=2, fold=2))
    assert not torch.equal(first, weights("d", seed=1, fold=3))


def test_folds_and_seeds_begin_with_weights_of_their_own(graphs, tmp_path):
    first, *others = (
        torch.nn.utils.parameters_to_vector(
            make_run(small(RINGS), graphs, tmp_path, seed=seed, fold=fold).model.parameters()
        )
        for seed, fold in ((1, 2), (1, 2), (1, 3), (2, 2), (2, 1))
    )
    assert [torch.equal(first, other) for other in others] == [True, False, False, False]


def test_epochs_draw_numbers_of_their_own(graphs, tmp_path, monkeypatch):
    """What one epoch draws does not change the next one's numbers."""
    config = small(RINGS, dropout=0.3, lr=0.0)
    drawn, plain = (make_run(config, graphs, tmp_path) for _ in range(2))
    losses = []
    for run in (drawn, plain):
        run.train_epoch()
        torch.rand(1 if run is drawn else 7)
        losses.append(run.train_epoch()["loss"])
    assert losses[0] == losses[1]


def test_every_epoch_fold_and_seed_draws_from_a_seed_of_its_own(graphs, tmp_path, monkeypatch):
    """Dropout too, which is drawn after the order: with one seed it would drop the same in every epoch."""
    drawn, step = [], Run.step
    monkeypatch.setattr(Run, "step", lambda *args: drawn.append(torch.initial_seed()) or step(*args))
    for seed, fold in ((0, 0), (0, 1), (1, 0)):
        run = make_run(small(RINGS), graphs, tmp_path, seed=seed, fold=fold)
        for _ in range(3):
            run.train_epoch()
    assert len(set(drawn)) == 9


def test_processes_share_the_order_and_draw_numbers_of_their_own(graphs, tmp_path, monkeypatch):
    """As the first and as the second of two, each with its half of every batch."""
    taken, take, seeds, step = [], data.Graphs.take, [], Run.step
    monkeypatch.setattr(data.Graphs, "take", lambda self, index: taken.append(index) or take(self, index))
    monkeypatch.setattr(Run, "step", lambda *args: seeds.append(torch.initial_seed()) or step(*args))
    monkeypatch.setattr(Run, "_all", lambda self, tensor: [tensor])
    for rank in range(2):
        run = make_run(small(RINGS, batch_size=11), graphs, tmp_path)
        run.rank, run.world = rank, 2
        run.train_epoch()
    assert [part.numel() for part in taken] == [6, 6, 5, 5, 5, 5]
    assert torch.cat(taken).sort().values.tolist() == run.split.train.tolist()
    assert len(set(seeds[:3])) == len(set(seeds[3:])) == 1
    assert seeds[0] != seeds[3]


# ------------------------------------------------------------------------------------------------------------
# Which epoch is reported, and when it ends
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("select", ["loss", "metric"])
def test_the_epoch_that_is_reported(graphs, tmp_path, select):
    record, epochs = trained(small(RINGS, max_epochs=12, select=select), graphs, tmp_path)
    lines = [json.loads(line) for line in epochs.splitlines()]
    if select == "loss":
        best = min(lines, key=lambda line: line["val_loss"])
    else:
        best = max(lines, key=lambda line: line["val"])
    for key in ("epoch", "val", "val_loss", "test", "test_loss", "height", "height_std"):
        assert record[key] == pytest.approx(best[key], rel=1e-5), key
    assert record["epochs"] == 12


def scripted(monkeypatch, losses):
    """Makes validation give these losses, one after the other."""
    really = Run.measure

    def measure(self):
        return {**really(self), "val_loss": losses[(self.epoch - 1) // self.config.eval_every]}

    monkeypatch.setattr(Run, "measure", measure)


def test_a_first_loss_that_is_no_number_is_beaten(graphs, tmp_path, monkeypatch):
    scripted(monkeypatch, [math.nan, 2.0, 1.0, math.nan, 3.0])
    record, _ = trained(small(RINGS, max_epochs=5), graphs, tmp_path)
    assert record["epoch"] == 3


@pytest.mark.parametrize(
    ("losses", "best", "last"),
    [
        ([3, 2, 1, 1.5, 1.2, 0, 0, 0, 0, 0], 21, 41),
        ([3, 3.5, 2, 2.5, 1, 1, 1, 0, 0, 0], 41, 61),  # Equal is no improvement.
        ([5, 4, 3, 2, 1, 0.9, 0.8, 0.7, 0.6, 0.5], 91, 91),
        ([1, 2, 3, 0, 0, 0, 0, 0, 0, 0], 1, 21),
    ],
)
def test_node_tasks_stop_after_two_measurements_without_improvement(
    tmp_path, monkeypatch, losses, best, last
):
    preset = configs.load("Cora")
    assert (preset.patience, preset.eval_every) == (20, 10)
    config = small("synthetic:Communities(30)", task="node", patience=20, eval_every=10, max_epochs=91)
    graphs = data.load(config, tmp_path)
    scripted(monkeypatch, losses)
    record, epochs = trained(config, graphs, tmp_path)
    assert (record["epoch"], record["epochs"]) == (best, last)
    lines = [json.loads(line) for line in epochs.splitlines()]
    assert [line["epoch"] for line in lines if "val" in line] == list(range(1, last + 1, 10))


def test_graph_tasks_stop_by_epochs(graphs, tmp_path, monkeypatch):
    scripted(monkeypatch, [3, 2, 2, 1, 4, 4, 4, 0])
    record, _ = trained(small(RINGS, max_epochs=50, patience=3), graphs, tmp_path)
    assert (record["epoch"], record["epochs"]) == (4, 7)


def test_the_last_epoch_is_measured(graphs, tmp_path):
    _, epochs = trained(small(RINGS, max_epochs=5, eval_every=3), graphs, tmp_path)
    assert ["val" in json.loads(line) for line in epochs.splitlines()] == [True, False, False, True, True]


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    config = small("synthetic:Failing(40)")
    graphs = data.load(config, tmp_path)
    message = r"Failing\(40\) gpn seed 0 fold 0: scores: expected no NaN, .*, in epoch 1"
    with pytest.raises(FloatingPointError, match=message):
        trained(config, graphs, tmp_path)
    message = r"Failing\(40\) gcn seed 0 fold 0: the loss is nan in epoch 1"
    with pytest.raises(FloatingPointError, match=message):
        trained(config.replace(model="gcn"), graphs, tmp_path)


# ------------------------------------------------------------------------------------------------------------
# Going on
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kill_after", [1, 3])
@pytest.mark.parametrize(
    ("dataset", "values"),
    [
        (RINGS, {"warmup": 2, "drop_edge": 0.2}),
        ("synthetic:Molecules(40)", {"task": "molecule", "metric": "ap"}),
        ("synthetic:Communities", {"task": "node", "eval_every": 2, "self_loops": True}),
        ("synthetic:Molecules(40)", {"task": "molecule", "metric": "ap", "average": 0.9}),
    ],
    ids=["graph", "molecule", "node", "average"],
)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(dataset, values, kill_after, tmp_path):
    config = small(dataset, **values)
    graphs = data.load(config, tmp_path)
    whole = trained(config, graphs, tmp_path / "whole", keep_model=True)
    assert trained(config, graphs, tmp_path / "parts", kill_after, keep_model=True) is None
    assert trained(config, graphs, tmp_path / "parts", keep_model=True) == whole
    weights = [
        torch.load(tmp_path / name / "weights" / "seed0-fold0.pt", weights_only=True)["model"]
        for name in ("whole", "parts")
    ]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert not list((tmp_path / "parts" / "checkpoints").iterdir())


def test_the_best_epoch_may_be_one_before_the_stop(graphs, tmp_path, monkeypatch):
    config = small(RINGS, max_epochs=6, patience=4)
    scripted(monkeypatch, [1, 2, 3, 4, 5, 6])
    whole = trained(config, graphs, tmp_path / "whole")
    assert (whole[0]["epoch"], whole[0]["epochs"]) == (1, 5)
    trained(config, graphs, tmp_path / "parts", 3)
    assert trained(config, graphs, tmp_path / "parts") == whole


def test_between_checkpoints_epochs_are_done_again(graphs, tmp_path):
    """A run that ended long after its last checkpoint: the lines that this does not know of are dropped."""
    config = small(RINGS)
    whole = trained(config, graphs, tmp_path / "whole")
    trained(config, graphs, tmp_path / "parts", 1)
    trained(config, graphs, tmp_path / "parts", 3, checkpoint_every=math.inf)
    epochs = tmp_path / "parts" / "epochs" / "seed0-fold0.jsonl"
    assert len(epochs.read_text().splitlines()) == 3
    with epochs.open("a") as file:
        file.write('{"epoch": 4, "lo')  # A line that was being written.
    assert trained(config, graphs, tmp_path / "parts") == whole


def test_resuming_keeps_the_lines_of_epochs_on_disk(graphs, tmp_path):
    """Also if the run is killed in its first epoch, before anything more is written."""
    config = small(RINGS)
    trained(config, graphs, tmp_path, 3)
    epochs = tmp_path / "epochs" / "seed0-fold0.jsonl"
    before = epochs.read_text()
    log = training._Log(epochs, 3, True)
    assert epochs.read_text() == before
    log.write({"epoch": 4, "loss": 0.5})
    assert epochs.read_text() == before + '{"epoch": 4, "loss": 0.5}\n'
    log.close()


def test_other_settings_do_not_mix(graphs, tmp_path):
    one, other = small(RINGS, hidden=8), small(RINGS, hidden=9)
    assert digest(one) != digest(other)
    wholes = [trained(config, graphs, tmp_path / f"whole{config.hidden}") for config in (one, other)]
    trained(one, graphs, tmp_path / "both", 3)
    # The other one starts, and is killed before its first checkpoint.
    trained(other, graphs, tmp_path / "both", 2, checkpoint_every=math.inf)
    assert trained(one, graphs, tmp_path / "both") == wholes[0]
    trained(one, graphs, tmp_path / "both", 3)
    assert trained(other, graphs, tmp_path / "both") == wholes[1]


def test_trials_that_are_off_do_not_rename_runs():
    plain = configs.load("NCI1")
    # The name that runs of this preset had before there were trials.
    assert digest(plain) == "635b9dd5fe4c"
    assert digest(configs.load("NCI1", input_dropout=0.0, directed_scores=False, average=0.0)) == digest(
        plain
    )
    for key, value in {"input_dropout": 0.5, "directed_scores": True, "average": 0.5}.items():
        config = configs.load("NCI1", **{key: value})
        assert train.changed(config) == {key: value}
        assert digest(config) != digest(plain)
        assert digest(config.replace(**{key: type(value)(0)})) == digest(plain)


def test_settings_that_change_no_results_leave_the_digest():
    for key, value in configs.NEUTRAL.items():
        for other in (True, False, "auto"):
            config = configs.load("NCI1", **{key: other})
            assert digest(config) == digest(configs.load("NCI1", **{key: value}))
            assert not train.changed(config)


COMMITTED = sorted((Path(training.__file__).parent / "results").rglob("runs.jsonl"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.parent.name}-{path.parent.name}")
def test_digests_of_committed_runs(path):
    """What the runs of this repository were made with is still what their settings are called."""
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    assert runs
    for run in runs:
        config = configs.load(run["dataset"], **{**run["changed"], "model": run["model"]})
        assert run["digest"] == digest(config)
        assert run["changed"] == train.changed(config)


def test_weights_are_complete_though_they_were_not_kept_from_the_start(graphs, tmp_path, monkeypatch):
    config = small(RINGS, max_epochs=3)
    scripted(monkeypatch, [1, 2, 3])
    trained(config, graphs, tmp_path, 2)
    record, _ = trained(config, graphs, tmp_path, keep_model=True)
    assert record["epoch"] == 1
    state = torch.load(tmp_path / "weights" / "seed0-fold0.pt", weights_only=True)
    make_model(config, graphs).load_state_dict(state["model"])


def wait_for_epochs(path, number, process, deadline=300.0):
    end = time.monotonic() + deadline
    while not path.exists() or path.read_text().count("\n") < number:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "no epochs in time"
        time.sleep(0.005)


def test_a_killed_command_goes_on(tmp_path):
    settings = (*SETTINGS, "max_epochs=40", "patience=40", "warmup=5")
    command = arguments(RINGS, tmp_path / "parts", "--checkpoint-every", 0, settings=settings)
    folder = synthetic.folder_of(command)
    process = synthetic.start(*command)
    wait_for_epochs(folder / "epochs" / "seed0-fold0.jsonl", 5, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert (folder / "checkpoints" / "seed0-fold0.pt").exists()
    assert not (folder / "runs.jsonl").exists()

    assert main(command) == 0
    command = arguments(RINGS, tmp_path / "whole", settings=settings)
    assert main(command) == 0
    whole = synthetic.folder_of(command)
    assert comparable_records(folder) == comparable_records(whole)
    epochs = [path / "epochs" / "seed0-fold0.jsonl" for path in (folder, whole)]
    assert epochs[0].read_text() == epochs[1].read_text()
    assert len(records(folder)) == 1


@pytest.mark.slow
def test_a_command_killed_while_it_saves_goes_on(tmp_path):
    """Again and again, until the kill has left a file that was being written."""
    settings = (*SETTINGS, "max_epochs=60", "patience=60", "hidden=64")
    command = arguments(RINGS, tmp_path / "parts", "--checkpoint-every", 0, "--keep-model", settings=settings)
    folder = synthetic.folder_of(command)
    temporary = folder / "checkpoints" / "seed0-fold0.pt.tmp"
    kills = 0
    while not temporary.exists():
        kills += 1
        assert kills < 20, "no kill came while a checkpoint was being saved"
        process = synthetic.start(*command)
        while not temporary.exists():
            assert process.poll() is None, process.communicate()[0]
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert main(command) == 0
    assert not temporaries(folder)
    whole = arguments(RINGS, tmp_path / "whole", "--keep-model", settings=settings)
    assert main(whole) == 0
    folders = folder, synthetic.folder_of(whole)
    assert comparable_records(folders[0]) == comparable_records(folders[1])
    names = [each / "epochs" / "seed0-fold0.jsonl" for each in folders]
    assert names[0].read_bytes() == names[1].read_bytes()
    weights = [files.load(each / "weights" / "seed0-fold0.pt")["model"] for each in folders]
    torch.testing.assert_close(weights[0], weights[1], atol=0, rtol=0)


# ------------------------------------------------------------------------------------------------------------
# Nothing is lost
# ------------------------------------------------------------------------------------------------------------


def temporaries(folder):
    return [path for path in folder.rglob("*") if path.suffix == ".tmp"]


def test_weights_that_cannot_be_written_leave_the_run_to_be_made(tmp_path, capsys):
    """A run is recorded once its weights are on disk, not before."""
    command = arguments(RINGS, tmp_path, "--keep-model")
    folder = synthetic.folder_of(command)
    with small_files(4096):
        assert main(command) == 1
    weights = folder / "weights" / "seed0-fold0.pt"
    assert capsys.readouterr().err == f"error: {weights}: File too large\n"
    assert not weights.exists()
    assert not (folder / "runs.jsonl").exists()
    assert not temporaries(folder)
    assert main(command) == 0
    assert len(records(folder)) == 1
    files.load(weights)


def test_a_full_disk_ends_a_run_that_goes_on_when_there_is_room(tmp_path, capsys):
    """The disk is full at a checkpoint. What was written for it does not keep the disk full, and nothing of
    what was there before is lost."""
    whole = arguments(RINGS, tmp_path / "whole")
    assert main(whole) == 0
    with small_disk(tmp_path / "disk", 200_000) as disk:
        command = arguments(RINGS, disk, "--checkpoint-every", "0")
        folder = synthetic.folder_of(command)
        filler = disk / "filler"
        filler.write_bytes(bytes(150_000))
        assert main(command) == 1
        checkpoint = folder / "checkpoints" / "seed0-fold0.pt"
        assert f"error: {checkpoint}: No space left on device\n" in capsys.readouterr().err
        assert not temporaries(folder)
        filler.unlink()
        assert main(command) == 0
        assert comparable_records(folder) == comparable_records(synthetic.folder_of(whole))
        assert not checkpoint.exists()


def test_a_record_that_cannot_be_written_leaves_the_checkpoint(graphs, tmp_path, capsys):
    command = arguments(RINGS, tmp_path, "--checkpoint-every", "0")
    folder = synthetic.folder_of(command)
    (folder / "runs.jsonl").mkdir(parents=True)
    assert main(command) == 1
    assert capsys.readouterr().err == f"error: {folder / 'runs.jsonl'}: Is a directory\n"
    (folder / "runs.jsonl").rmdir()
    trained(train.chosen(train.parser().parse_args(command)), graphs, folder, 3)
    epochs = (folder / "epochs" / "seed0-fold0.jsonl").read_text()
    assert main(command) == 0
    assert (folder / "epochs" / "seed0-fold0.jsonl").read_text().startswith(epochs)


def test_finished_runs_without_weights_are_made_again_to_keep_them(tmp_path, capsys):
    command = arguments(RINGS, tmp_path, "--folds", "0-1")
    folder = synthetic.folder_of(command)
    assert main(command) == 0
    before = (folder / "runs.jsonl").read_bytes()
    assert main([*command, "--keep-model"]) == 0
    assert "2 finished runs have no weights to keep, and are made again" in capsys.readouterr().out
    weights = [folder / "weights" / f"seed0-fold{fold}.pt" for fold in range(2)]
    states = [files.load(path)["model"] for path in weights]
    # With the same result, there is nothing to add.
    assert (folder / "runs.jsonl").read_bytes() == before
    assert main([*command, "--keep-model"]) == 0
    assert "2 of 2 runs were finished before" in capsys.readouterr().out

    weights[1].write_bytes(flipped(weights[1].read_bytes()))
    assert main([*command, "--keep-model"]) == 0
    printed = capsys.readouterr()
    assert f"warning: {weights[1]}: cannot be used (" in printed.err
    assert "1 of 2 runs were finished before" in printed.out
    torch.testing.assert_close(files.load(weights[1])["model"], states[1], atol=0, rtol=0)


def test_weights_of_other_settings_are_none(tmp_path):
    """As after a change of the preset, whose runs have one folder."""
    config = small(RINGS)
    place = Place(tmp_path, CPU, keep_model=True)
    jsonl.append(tmp_path / "runs.jsonl", {"seed": 0, "fold": 0, "digest": digest(config)})
    files.save({"config": config.replace(lr=0.5).to_dict(), "model": {}}, place.file("weights", 0, 0))
    assert not train.finished(place, config)
    files.save({"config": config.to_dict(), "model": {}}, place.file("weights", 0, 0))
    assert train.finished(place, config) == {(0, 0)}


def test_runs_of_other_settings_are_not_finished(tmp_path):
    config = small(RINGS)
    place = Place(tmp_path, CPU)
    other = digest(config.replace(hidden=9))
    jsonl.append(tmp_path / "runs.jsonl", {"seed": 0, "fold": 0, "digest": digest(config)})
    jsonl.append(tmp_path / "runs.jsonl", {"seed": 0, "fold": 1, "digest": other})
    assert train.finished(place, config) == {(0, 0)}
    assert train.finished(place, config.replace(hidden=9)) == {(0, 1)}


def with_changes(content, **changes):
    buffer = io.BytesIO()
    torch.save(torch.load(io.BytesIO(content)) | changes, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: b"", "BadZipFile"),
        (lambda content: content[: len(content) // 2], "BadZipFile"),
        (lambda content: bytes(range(256)) * 40, "BadZipFile"),
        (flipped, "the checksum of "),
        (lambda content: with_changes(content, digest="x"), "of other settings"),
        (lambda content: with_changes(content, model={}), "those of another model"),
    ],
    ids=["empty", "cut", "random", "flipped", "settings", "model"],
)
def test_a_checkpoint_of_no_use_is_set_aside(graphs, tmp_path, capsys, damage, reason):
    config = small(RINGS)
    whole = trained(config, graphs, tmp_path / "whole")
    trained(config, graphs, tmp_path / "parts", 3)
    checkpoint = tmp_path / "parts" / "checkpoints" / "seed0-fold0.pt"
    content = damage(checkpoint.read_bytes())
    checkpoint.write_bytes(content)
    assert trained(config, graphs, tmp_path / "parts") == whole
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {checkpoint}: cannot be used (")
    assert reason in line
    assert line.endswith("it is kept as seed0-fold0.pt.unusable, and the run begins anew")
    assert checkpoint.with_name("seed0-fold0.pt.unusable").read_bytes() == content


def test_what_a_killed_process_left_of_a_run_is_removed(tmp_path):
    command = arguments(RINGS, tmp_path, "--keep-model")
    folder = synthetic.folder_of(command)
    for kind in ("checkpoints", "weights"):
        for name in ("seed0-fold0.pt.tmp", "seed0-fold1.pt.tmp"):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            (folder / kind / name).write_bytes(b"half of")
    assert main(command) == 0
    # Of fold 1, another process may be at it.
    assert {path.name for path in temporaries(folder)} == {"seed0-fold1.pt.tmp"}
    assert main([*command, "--folds", "0-1"]) == 0
    assert not temporaries(folder)


def test_gaps_in_a_log_of_epochs_are_named(graphs, tmp_path, capsys):
    config = small(RINGS)
    trained(config, graphs, tmp_path, 3)
    epochs = tmp_path / "epochs" / "seed0-fold0.jsonl"
    lines = epochs.read_text().splitlines(keepends=True)
    epochs.write_text(lines[0] + "no epoch\n" + lines[2])
    record, log = trained(config, graphs, tmp_path)
    assert record["epochs"] == 4
    assert log.startswith(lines[0] + "no epoch\n" + lines[2])
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {epochs}, line 2: left as it is, no complete epoch",
        f"warning: {epochs}: no lines of epochs 2, which the checkpoint knows of",
    ]


def test_odd_lines_of_finished_runs_are_named_and_count_for_nothing(tmp_path, capsys):
    command = arguments(RINGS, tmp_path)
    folder = synthetic.folder_of(command)
    folder.mkdir(parents=True)
    name = digest(train.chosen(train.parser().parse_args(command)))
    odd = [
        "no JSON",
        "[1, 2]",
        json.dumps({"seed": 0, "digest": name}),
        json.dumps({"seed": 0, "fold": "0", "digest": name}),
        "[" * 100_000,
    ]
    (folder / "runs.jsonl").write_text("\n".join(odd) + "\n")
    assert main(command) == 0
    reasons = [
        line.partition(": skipped, no complete run (")[2] for line in capsys.readouterr().err.splitlines()
    ]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "Expecting value",
        "expected {...}, got list)",
        "no fold)",
        "fold",
        "nested too deeply)",
    ]
    lines = (folder / "runs.jsonl").read_text().splitlines()
    assert lines[:5] == odd
    assert json.loads(lines[5])["fold"] == 0


def test_a_run_with_another_result_than_before_is_said_to_be(tmp_path, capsys):
    command = arguments(RINGS, tmp_path)
    folder = synthetic.folder_of(command)
    assert main(command) == 0
    (record,) = records(folder)
    (folder / "runs.jsonl").write_text(json.dumps({**record, "test": 1.5}) + "\n")
    assert main([*command, "--keep-model"]) == 0
    assert "made again for its weights, with another result" in capsys.readouterr().err
    assert [each["test"] for each in records(folder)] == [1.5, record["test"]]


def test_folders_that_cannot_be_written_to_are_sentences(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    command = arguments(RINGS, tmp_path / "file")
    assert main([*command, "--data-cache", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {synthetic.folder_of(command)}: Not a directory\n"


# ------------------------------------------------------------------------------------------------------------
# The command
# ------------------------------------------------------------------------------------------------------------


def test_what_is_finished_is_not_repeated(tmp_path, capsys):
    command = arguments(RINGS, tmp_path)
    folder = synthetic.folder_of(command)
    assert main(command) == 0
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if "settings" not in path.name}
    assert main(command) == 0
    assert "1 of 1 runs were finished before" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert main([*command, "--seeds", "0-1"]) == 0
    assert [(record["seed"], record["fold"]) for record in records(folder)] == [(0, 0), (1, 0)]


def test_what_another_process_is_at_is_left_to_it(tmp_path, capsys):
    command = arguments(RINGS, tmp_path, "--folds", "0-2")
    folder = synthetic.folder_of(command)
    lock, epochs = folder / "checkpoints" / "seed0-fold1.lock", folder / "epochs" / "seed0-fold1.jsonl"
    lock.parent.mkdir(parents=True)
    epochs.parent.mkdir()
    epochs.write_text("of the other\n")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(command) == 0
        printed = capsys.readouterr().out
        assert "2 runs in" in printed
        assert "1 of 3 runs were left to other processes" in printed
        assert [record["fold"] for record in records(folder)] == [0, 2]
        assert epochs.read_text() == "of the other\n"
    assert main(command) == 0
    assert [record["fold"] for record in records(folder)] == [0, 2, 1]


def test_another_process_with_other_settings_is_an_error(tmp_path):
    """Nobody would make the run, and both would write into the same files."""
    config = small(RINGS)
    place = Place(tmp_path, CPU)
    with train.claimed(config, 0, 0, place) as here, train.claimed(config, 1, 0, place) as other:
        assert here
        assert other
        with train.claimed(config, 0, 0, place) as again:
            assert not again
        with (
            pytest.raises(ValueError, match="seed 0 fold 0: another process trains it with other settings"),
            train.claimed(config.replace(hidden=9), 0, 0, place),
        ):
            pass
    with train.claimed(config.replace(hidden=9), 0, 0, place) as here:
        assert here


def test_processes_that_train_together_make_the_runs_of_the_first(tmp_path, monkeypatch):
    """They would else train on different folds, if a run was finished while one of them looked."""
    made = []
    monkeypatch.setattr(train, "world", lambda: (1, 2))
    monkeypatch.setattr(train.dist, "broadcast_object_list", lambda box, source: box.__setitem__(0, [(0, 3)]))
    monkeypatch.setattr(train, "one_run", lambda config, fold, seed, *others: made.append((seed, fold)))
    assert main(arguments(RINGS, tmp_path, "--folds", "2-3")) == 0
    assert made == [(0, 3)]


def test_without_locks_runs_go_on(tmp_path, capsys, monkeypatch):
    def unsupported(*given):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    command = arguments(RINGS, tmp_path)
    assert main(command) == 0
    assert len(records(synthetic.folder_of(command))) == 1
    assert "seed0-fold0.lock: not locked (No locks available)" in capsys.readouterr().err


def test_a_run_that_ended_while_this_command_waited_is_not_repeated(tmp_path, capsys, monkeypatch):
    command = arguments(RINGS, tmp_path)
    folder = synthetic.folder_of(command)
    assert main(command) == 0
    before = (folder / "epochs" / "seed0-fold0.jsonl").stat().st_mtime_ns
    finished, asked = train.finished, []

    def not_at_first(*given, **named):
        asked.append(given)
        return finished(*given, **named) if len(asked) > 1 else set()

    monkeypatch.setattr(train, "finished", not_at_first)
    capsys.readouterr()
    assert main(command) == 0
    assert "1 of 1 runs were left to other processes" in capsys.readouterr().out
    assert len(records(folder)) == 1
    assert (folder / "epochs" / "seed0-fold0.jsonl").stat().st_mtime_ns == before


def test_a_run_that_failed_can_be_tried_again(tmp_path, monkeypatch):
    command = arguments(RINGS, tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(Run, "train_epoch", lambda self: {"loss": math.nan})
        assert main(command) == 1
    assert main(command) == 0
    assert len(records(synthetic.folder_of(command))) == 1


def test_two_commands_share_the_runs(tmp_path):
    command = arguments(RINGS, tmp_path / "two", "--folds", "0-5")
    processes = [synthetic.start(*command) for _ in range(2)]
    printed = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    alone = arguments(RINGS, tmp_path / "alone", "--folds", "0-5")
    assert main(alone) == 0
    folders = [synthetic.folder_of(each) for each in (command, alone)]
    assert comparable_records(folders[0]) == comparable_records(folders[1])
    for path in (folders[1] / "epochs").iterdir():
        assert (folders[0] / "epochs" / path.name).read_text() == path.read_text()


def test_other_settings_leave_files_of_the_first_alone(tmp_path):
    command = arguments(RINGS, tmp_path, "--keep-model")
    other = [*command, "--set", "hidden=9"]
    folders = [synthetic.folder_of(each) for each in (command, other)]
    assert main(command) == 0
    before = {path: path.read_bytes() for path in folders[0].rglob("*") if path.is_file()}
    assert main(other) == 0
    assert {path: path.read_bytes() for path in before} == before
    (first,), (second,) = map(records, folders)
    assert first["digest"] != second["digest"]
    assert [record["changed"]["hidden"] for record in (first, second)] == [8, 9]


def test_settings_of_the_preset_have_a_folder_of_the_model():
    folder = Path("here")
    for command, name in (
        (["PROTEINS"], "PROTEINS/gpn"),
        (["PROTEINS", "--model", "topk"], "PROTEINS/topk"),
        (["Cora", "--set", "hidden=256"], "Cora/gpn"),  # as in the preset
        (["my.module:Mine(3)", "--set", "task=node"], "Mine/gpn"),
    ):
        assert synthetic.folder_of([*command, "--output", folder]) == folder / name
    config = configs.load("Cora", ["hidden=64"])
    changed = synthetic.folder_of(["Cora", "--set", "hidden=64", "--output", folder])
    assert changed == folder / "Cora" / f"gpn-{digest(config)}"


def test_records_and_settings(tmp_path, capsys):
    command = arguments(RINGS, tmp_path, "--model", "gcn")
    assert main(command) == 0
    folder = synthetic.folder_of(command)
    (record,) = records(folder)
    assert record["dataset"] == RINGS
    assert (record["model"], record["metric"], record["threads"], record["processes"]) == (
        "gcn",
        "accuracy",
        1,
        1,
    )
    assert record["command"].startswith("python -m models.train 'synthetic:Rings(40)' --folds 0 ")
    assert record["torch"] == torch.__version__
    config = configs.load(RINGS, list(SETTINGS), model="gcn")
    assert record["digest"] == digest(config)
    assert configs.load(str(folder / f"settings-{digest(config)}.yaml"), trust=True) == config
    capsys.readouterr()
    assert main([RINGS, "--show-settings", "--set", "max_height=3"]) == 0
    shown = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert shown["max_height"] == "3"
    assert shown["multiset_gnn_layers"] == "none"


def test_all_folds_by_default(tmp_path):
    command = arguments("synthetic:Communities(30, 3)", tmp_path)
    command.remove("--folds")
    command.remove("0")
    command += ["--set", "task=node"]
    assert main(command) == 0
    assert [record["fold"] for record in records(synthetic.folder_of(command))] == [0, 1, 2]


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_kept_weights_give_the_recorded_result(graphs, tmp_path, monkeypatch, average):
    scripted(monkeypatch, [2, 1, 3, 4])
    command = arguments(RINGS, tmp_path, "--keep-model", "--set", f"average={average}")
    assert main(command) == 0
    folder = synthetic.folder_of(command)
    (record,) = records(folder)
    assert record["epoch"] == 2
    state = torch.load(folder / "weights" / "seed0-fold0.pt", weights_only=True)
    config = configs.Config.from_dict(state["config"])
    model = make_model(config, graphs)
    model.load_state_dict(state["model"])
    batch = graphs.take(graphs.split(0, 0).test)
    with torch.no_grad():
        out = model.eval()(batch.x, batch.edge_index, None, batch.batch, batch.num_graphs).out
    assert metric("accuracy", out, batch.y) == record["test"]
    assert float(loss_sum(out, batch.y)) / 4 == pytest.approx(record["test_loss"], rel=1e-5)


def test_jobs_of_which_one_fails(tmp_path, capsys):
    """The fold that there is not fails, the others finish, as without jobs."""
    jobs = arguments(RINGS, tmp_path / "jobs", "--jobs", 2, "--folds", "0-2,10")
    alone = arguments(RINGS, tmp_path / "alone", "--folds", "0-2")
    assert main(jobs) == 1
    printed = capsys.readouterr()
    assert "error: seed 0 fold 10: ValueError: fold: expected below 10, got 10" in printed.err
    assert "3 runs in" in printed.out
    assert "error: 1 runs failed; the same command tries them again" in printed.err
    assert main(alone) == 0
    assert comparable_records(synthetic.folder_of(jobs)) == comparable_records(synthetic.folder_of(alone))


@pytest.mark.slow
@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["", "background"])
def test_interrupted_jobs_end(tmp_path, handler):
    """Ctrl-C reaches all processes; what was waiting is not started."""
    before = signal.signal(signal.SIGINT, handler)
    settings = (*SETTINGS, "max_epochs=100000", "patience=100000")
    command = arguments(RINGS, tmp_path, "--jobs", 2, "--folds", "0-9", settings=settings)
    process = synthetic.start(*command, start_new_session=True)
    signal.signal(signal.SIGINT, before)
    epochs = synthetic.folder_of(command) / "epochs"
    wait_for_epochs(epochs / "seed0-fold0.jsonl", 2, process)
    wait_for_epochs(epochs / "seed0-fold1.jsonl", 2, process)
    try:
        for worker in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(worker), signal.SIGINT)
        for log in epochs.iterdir():  # They leave it to the command, and go on.
            wait_for_epochs(log, log.read_text().count("\n") + 2, process)
        os.killpg(process.pid, signal.SIGINT)
        out = process.communicate(timeout=120)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 130
    assert "stopped; the same command goes on from here" in out
    assert len(list(epochs.iterdir())) == 2
    assert "leaked" not in out


def test_jobs_interrupted_while_they_are_handed_out(tmp_path, monkeypatch, capsys):
    """Those that were handed out before do not go on to their ends."""

    class Interrupted(train.ProcessPoolExecutor):
        submitted = 0

        def submit(self, *arguments):
            self.submitted += 1
            if self.submitted == 3:
                raise KeyboardInterrupt
            return super().submit(*arguments)

    monkeypatch.setattr(train, "ProcessPoolExecutor", Interrupted)
    command = arguments(RINGS, tmp_path, "--jobs", 2, "--folds", "0-3")
    assert main(command) == 130
    assert "stopped; the same command goes on from here" in capsys.readouterr().err
    assert not (synthetic.folder_of(command) / "runs.jsonl").exists()


@pytest.mark.slow
def test_jobs_of_a_killed_command_end(tmp_path):
    settings = (*SETTINGS, "max_epochs=100000", "patience=100000")
    command = arguments(RINGS, tmp_path, "--jobs", 2, "--folds", "0-1", settings=settings)
    process = synthetic.start(*command, start_new_session=True)
    epochs = synthetic.folder_of(command) / "epochs"
    try:
        for fold in range(2):
            wait_for_epochs(epochs / f"seed0-fold{fold}.jsonl", 2, process)
        process.kill()
        process.communicate(timeout=60)  # To its end only when nobody is left to write.
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (["no thing"], 2, "dataset: expected one of CiteSeer, "),
        (["none.yaml"], 2, "dataset: there is no file none.yaml"),
        ([RINGS, "--set", "hiden=3"], 2, "settings: expected one of dataset, task, "),
        ([RINGS, "--set", "hidden=many"], 2, "hidden: expected int, got 'many'"),
        ([RINGS, "--set", "hidden=1.5"], 2, "hidden: expected int, got 1.5"),
        ([RINGS, "--set", "hidden=true"], 2, "hidden: expected int, got True"),
        ([RINGS, "--set", "dropout=true"], 2, "dropout: expected float, got True"),
        ([RINGS, "--set", "self_loops=1"], 2, "self_loops: expected bool, got 1"),
        ([RINGS, "--set", "clip=x"], 2, "clip: expected float or none, got 'x'"),
        ([RINGS, "--set", "hidden"], 2, "--set: expected key=value, got 'hidden'"),
        ([RINGS, "--set", "hidden=[3"], 2, "--set: expected key=value, got 'hidden=[3'"),
        ([RINGS, "--set", "model=magic"], 2, "model: expected one of gpn, "),
        ([RINGS, "--device", "magic"], 2, "--device: expected cpu, cuda or cuda:<number>, got 'magic'"),
        ([RINGS, "--set", "conv=magic"], 1, "conv: expected one of gcn, gat, gin, got 'magic'"),
        ([RINGS, "--set", "average=1"], 2, "average: expected at least 0 and less than 1, got 1.0"),
        ([RINGS, "--set", "select=magic"], 2, "select: expected loss or metric, got 'magic'"),
        ([RINGS, "--set", "metric=magic"], 2, "metric: expected accuracy, ap or auc, got 'magic'"),
        ([RINGS, "--set", "batch_size=0"], 2, "batch_size: expected at least 1, got 0"),
        ([RINGS, "--set", "eval_every=0"], 2, "eval_every: expected at least 1, got 0"),
        ([RINGS, "--set", "hidden=-3"], 2, "hidden: expected at least 1, got -3"),
        ([RINGS, "--set", "dropout=1.5"], 2, "dropout: expected from 0 to 1, got 1.5"),
        ([RINGS, "--set", "lr=.nan"], 2, "lr: expected at least 0, got nan"),
        ([RINGS, "--set", "ratio=1"], 2, "ratio: expected more than 0 and less than 1, got 1.0"),
        ([RINGS, "--set", "clip=0"], 2, "clip: expected none or more than 0, got 0.0"),
        (
            ["synthetic:Molecules(20)", "--set", "task=molecule"],
            1,
            "metric: expected ap or auc for labels of tasks, got 'accuracy'",
        ),
        (
            ["synthetic:Molecules", "--set", "task=molecule"],
            1,
            "metric: expected ap or auc for labels of tasks, got 'accuracy'",
        ),
        ([RINGS, "--set", "task=magic"], 2, "task: expected graph, node or molecule, got 'magic'"),
        ([RINGS, "--folds", "10"], 1, "fold: expected below 10, got 10"),
        (["synthetic:Missing"], 1, "dataset: 'synthetic:Missing' cannot be imported"),
        (["synthetic:Failing"], 1, "Failing gpn seed 0 fold 0: scores: expected no NaN"),
        (
            ["synthetic:Communities", "--set", "task=node", "--model", "topk"],
            1,
            "model: topk is for graph tasks, synthetic:Communities is a node task",
        ),
        (
            ["synthetic:Molecules", "--set", "task=molecule", "--set", "metric=auc", "--model", "sag"],
            1,
            "model: sag is for graph tasks, synthetic:Molecules is a molecule task",
        ),
        (
            ["synthetic:Communities", "--set", "task=node", "--model", "gin"],
            1,
            "model: gin is for graph and molecule tasks, synthetic:Communities is a node task",
        ),
    ],
    ids=str,
)
def test_errors_of_the_command(tmp_path, capsys, given, code, message):
    assert main([*arguments(given[0], tmp_path), *given[1:]]) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--folds", "a"], "expected numbers and ranges such as 0-3,7, got 'a'"),
        (["--folds", "0-9999999"], "expected numbers and ranges such as 0-3,7, got '0-9999999'"),
        (["--folds", f"0-{10**30}"], "expected numbers and ranges such as 0-3,7, got '0-1000000"),
        (["--folds", "3-1"], "expected at least one number, got '3-1'"),
        (["--seeds", "-1"], "expected"),
        (["--model", "magic"], "invalid choice: 'magic'"),
        (["--jobs", "0"], "expected at least 1, got '0'"),
        (["--jobs", "x"], "expected at least 1, got 'x'"),
        (["--threads", "0"], "expected at least 1, got '0'"),
    ],
    ids=str,
)
def test_errors_of_the_options(tmp_path, capsys, given, message):
    with pytest.raises(SystemExit) as caught:
        main([*arguments(RINGS, tmp_path), *given])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_numbers():
    assert common.numbers("0-3,7,2") == [0, 1, 2, 3, 7]
    assert common.numbers("5") == [5]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_cuda_where_there_is_none(tmp_path, capsys):
    assert main(arguments(RINGS, tmp_path, "--device", "cuda")) == 2
    assert capsys.readouterr().err == "error: --device cuda: this torch sees no CUDA device\n"


def test_missing_files(tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise OSError("no network in this test")

    monkeypatch.setattr("torch_geometric.io.fs.cp", fail)
    assert main([*arguments("FRANKENSTEIN", tmp_path), "--data-root", str(tmp_path)]) == 1
    assert "FRANKENSTEIN: no raw files in " in capsys.readouterr().err


def test_a_node_task_is_for_one_process(tmp_path, monkeypatch):
    config = small("synthetic:Communities", task="node")
    graphs = data.load(config, tmp_path)
    monkeypatch.setattr(training, "world", lambda: (0, 2))
    with pytest.raises(ValueError, match="a node task has one graph, which one process trains on"):
        make_run(config, graphs, tmp_path)
