"""One run: trains a model on one fold or split with one seed, with checkpoints from which it resumes.

Every epoch draws its random numbers from its own seed, and the learning rate is a function of the step. So a
checkpoint holds only the weights, the optimiser's state and a few numbers, and a resumed run has the same
bits as one that was never stopped.
"""

import contextlib
import ctypes
import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

from . import files, jsonl
from .baselines import MOLECULE_BASELINES, GraphBaseline, MoleculeBaseline
from .config import NEUTRAL, Config, check_choice, short_name
from .data import Batch, Graphs, Split
from .gpn import GraphClassifier, MoleculeClassifier, NodeClassifier, Prediction

# What picks the epoch that is reported, and whether it is to be high or low.
SELECTIONS = {"loss": ("val_loss", -1), "metric": ("val", 1)}
CHECKPOINT = {"digest", "epoch", "seconds", "best", "model", "average", "best_weights", "optimizer"}
LEVEL_SETTINGS = (
    "hidden",
    "gnn_layers",
    "multiset_gnn_layers",
    "deepsets_layers",
    "scorer_layers",
    "mlp_layers",
    "dropout",
    "drop_edge",
    "self_loops",
    "act_last",
    "conv",
    "multiset",
    "weighted",
    "max_height",
    "recompute",
)


def level_settings(config: Config) -> dict[str, Any]:
    """The settings of the levels of GPN's models."""
    settings = {key: getattr(config, key) for key in LEVEL_SETTINGS}
    of_trials = {key: getattr(config.trial, key) for key in ("directed_scores", "scores", "mask")}
    return {**settings, **of_trials}


def make_model(config: Config, graphs: Graphs) -> nn.Module:
    """The model that the settings ask for.

    Raises:
        ValueError: if this task has no such model.
    """
    in_channels, out_channels = graphs.x.size(1), graphs.out_channels
    if config.model != "gpn":
        tasks = ["graph"] + ["molecule"] * (config.model in MOLECULE_BASELINES)
        if config.task not in tasks:
            raise ValueError(
                f"model: {config.model} is for {' and '.join(tasks)} tasks, "
                f"{config.dataset} is a {config.task} task"
            )
        if config.task == "molecule":
            return MoleculeBaseline(
                graphs.x_sizes,
                graphs.edge_sizes,
                out_channels,
                conv=config.model,
                hidden=config.hidden,
                encoder_layers=config.encoder_layers,
                mlp_layers=config.mlp_layers,
                dropout=config.dropout,
            )
        return GraphBaseline(
            in_channels,
            out_channels,
            pool=config.model,
            hidden=config.hidden,
            num_levels=config.num_levels,
            ratio=config.ratio,
            dropout=config.dropout,
            max_nodes=math.ceil(graphs.x.size(0) / max(graphs.num_graphs, 1)),
        )
    common = level_settings(config)
    if config.task == "molecule":
        return MoleculeClassifier(
            graphs.x_sizes, graphs.edge_sizes, out_channels, encoder_layers=config.encoder_layers, **common
        )
    common["input_dropout"] = config.trial.input_dropout
    if config.task == "node":
        return NodeClassifier(in_channels, out_channels, decoder_layers=config.decoder_layers, **common)
    return GraphClassifier(in_channels, out_channels, readout=config.readout, **common)


# ------------------------------------------------------------------------------------------------------------
# Losses and metrics
# ------------------------------------------------------------------------------------------------------------


def loss_sum(out: Tensor, y: Tensor) -> Tensor:
    """The loss summed over all labels: cross-entropy of classes, or binary cross-entropy of tasks, where
    missing labels (NaN) do not count."""
    if not y.is_floating_point():
        return functional.cross_entropy(out, y, reduction="sum")
    known = ~y.isnan()
    return functional.binary_cross_entropy_with_logits(out[known], y[known], reduction="sum")


def num_labels(y: Tensor) -> int:
    return int((~y.isnan()).sum()) if y.is_floating_point() else y.size(0)


def metric(name: str, out: Tensor, y: Tensor) -> float:
    """The metric in per cent. Tasks without both labels do not count; two classes are one task."""
    check_choice("metric", name)
    if name == "accuracy":
        return 100 * float((out.argmax(dim=1) == y).double().mean())
    from sklearn.metrics import average_precision_score, roc_auc_score

    if not y.is_floating_point():
        out, y = out[:, 1:] - out[:, :1], y.view(-1, 1).to(out.dtype)
    functions: dict[str, Callable[..., float]] = {"ap": average_precision_score, "auc": roc_auc_score}
    values = []
    for task in range(y.size(1)):
        known = ~y[:, task].isnan()
        labels = y[known, task]
        if 0 < int(labels.sum()) < labels.numel():
            values.append(functions[name](labels.numpy(), out[known, task].double().numpy()))
    return 100 * sum(values) / len(values) if values else math.nan


def check_metric(name: str, y: Tensor, num_classes: int) -> None:
    """Raises a ValueError for a metric that these labels do not have."""
    if y.is_floating_point():
        expected, fits = "ap or auc for labels of tasks", name != "accuracy"
    else:
        expected = "accuracy for classes (of two, also ap or auc)"
        fits = name == "accuracy" or num_classes == 2
    if not fits:
        raise ValueError(f"metric: expected {expected}, got {name!r}")


# ------------------------------------------------------------------------------------------------------------
# A run
# ------------------------------------------------------------------------------------------------------------


@dataclass
class Place:
    """Where and how to run."""

    folder: Path
    """For what is written: epochs/, checkpoints/ and runs.jsonl."""
    device: torch.device
    checkpoint_every: float = 20.0
    """Seconds between checkpoints."""
    bar_position: int = 0
    quiet: bool = False
    keep_model: bool = False
    """Whether the weights of the reported epoch are kept."""

    def file(self, kind: str, fold: int, seed: int) -> Path:
        suffix = {"epochs": "jsonl", "checkpoints": "pt", "weights": "pt"}[kind]
        return self.folder / kind / f"seed{seed}-fold{fold}.{suffix}"

    def remove_temporaries(self, fold: int, seed: int) -> None:
        """Removes the temporary files of a process that was killed while saving. No other process may work on
        this run."""
        for kind in ("checkpoints", "weights"):
            path = self.file(kind, fold, seed)
            for temporary in path.parent.glob(f"{path.stem}.*tmp"):
                temporary.unlink(missing_ok=True)


def digest(config: Config) -> str:
    """A short name for the settings, which keeps runs with different settings apart. It does not include
    settings that change no results, or trials that are off."""
    text = json.dumps(config.to_dict() | NEUTRAL, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def prepare(device: torch.device, threads: int) -> None:
    """Prepares a process for training: its bits are reproducible for a given number of threads."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    # Some operators of accelerators have no deterministic form: there it is a warning.
    torch.use_deterministic_algorithms(True, warn_only=device.type != "cpu")
    torch.utils.deterministic.fill_uninitialized_memory = False
    warnings.filterwarnings("ignore", message="Sparse")
    _keep_freed_memory()


# What glibc's <malloc.h> calls M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, and the bytes that we set for them.
_MALLOC_SETTINGS = {-1: 2**30, -3: 2**25}


def _keep_freed_memory() -> None:
    """Keeps freed memory. Every step makes the same large tensors, and the system would have to clear
    returned memory again, page by page."""
    with contextlib.suppress(AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        for setting, num_bytes in _MALLOC_SETTINGS.items():
            mallopt(setting, num_bytes)


def world() -> tuple[int, int]:
    """The rank of this process, and the number of processes that train together."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def seed_everything(*numbers: int) -> None:
    """Seeds torch from several numbers, so that neighbouring numbers give unrelated streams."""
    text = ",".join(map(str, numbers))
    torch.manual_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1)


def rate(config: Config, step: int, steps_per_epoch: int) -> float:
    """The learning rate at a step: linear warm-up from 0, then half a cosine down to 0 at the last step."""
    if config.warmup == 0:
        return config.lr
    warmup, total = config.warmup * steps_per_epoch, config.max_epochs * steps_per_epoch
    if step < warmup:
        return config.lr * step / warmup
    progress = (step - warmup) / max(total - warmup, 1)
    return config.lr * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


class Trees(NamedTuple):
    """The statistics of a batch's trees that every step records."""

    height: Tensor
    """int64 ``[num_graphs]``, on the CPU."""
    nodes: int = 0
    """The number of nodes of the graphs that shrink at all."""
    clusters: int = 0
    """The number of clusters of their first level."""

    @staticmethod
    def of(prediction: Prediction) -> "Trees | None":
        """None for a model without levels. Reads no sizes from the device."""
        if prediction.height is None:
            return None
        height = prediction.height.cpu()
        if prediction.tree is None or not prediction.tree.levels:
            return Trees(height)
        first = prediction.tree.levels[0]
        return Trees(height, first.x.size(0), first.pooled.size(0))


class Run:
    """Trains one model, epoch by epoch."""

    def __init__(self, config: Config, graphs: Graphs, fold: int, seed: int, place: Place) -> None:
        self.config, self.graphs, self.fold, self.seed, self.place = config, graphs, fold, seed, place
        self.rank, self.world = world()
        check_metric(config.metric, graphs.y, graphs.out_channels)
        if self.world > 1 and config.task == "node":
            raise ValueError(
                "a node task has one graph, which one process trains on: start it without torchrun"
            )
        self.split: Split = graphs.split(fold, seed)
        self.dtype = torch.float64 if config.double else torch.float32
        seed_everything(seed, fold)
        self.model = make_model(config, graphs).to(place.device, self.dtype)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True
        )
        self.average: AveragedModel | None = None
        if config.trial.average > 0:
            self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(config.trial.average))
        self.parallel: nn.Module = self.model
        if self.world > 1:
            # A process whose graphs all are without edges has no gradient for the scorer.
            self.parallel = DistributedDataParallel(self.model, find_unused_parameters=True)
        self.epoch = 0
        self.seconds = 0.0
        self.best: dict[str, float] = {}
        self.best_weights: dict[str, Tensor] = {}
        self.whole: Batch | None = None
        if config.task == "node":
            node = torch.zeros(graphs.x.size(0), dtype=torch.int64)
            whole = Batch(graphs.x, graphs.edge_index, None, node, graphs.y)
            self.whole = whole.to(place.device, self.dtype)

    # ---- an epoch

    @property
    def steps_per_epoch(self) -> int:
        return 1 if self.whole else math.ceil(self.split.train.numel() / self.config.batch_size)

    @property
    def measured(self) -> nn.Module:
        """The model whose results are reported."""
        return self.model if self.average is None else self.average.module

    def forward(self, batch: Batch) -> Prediction:
        # In evaluation every process has its own number of batches, and there are no gradients to share.
        model = self.parallel if self.model.training else self.measured
        num_graphs = 1 if self.whole else batch.num_graphs
        return model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, num_graphs)

    def train_epoch(self) -> dict[str, float]:
        """Trains for one epoch; returns the mean loss, mean and deviation of the trees' heights, and the mean
        size of first-level clusters."""
        config = self.config
        seed_everything(self.seed, self.fold, self.epoch)
        order = self.split.train[torch.randperm(self.split.train.numel())]
        seed_everything(self.seed, self.fold, self.epoch, self.rank)
        self.model.train()
        total, count = 0.0, 0
        seen: list[Trees | None] = []
        if self.whole:
            node = self.split.train
            total, trees = self.step(self.whole, 0, node.numel(), node)
            count, seen = node.numel(), [trees]
        else:
            parts = list(order.split(config.batch_size))
            shares = [part[self.rank :: self.world] for part in parts]
            for k, batch in enumerate(self.graphs.batches(shares, self.place.device, self.dtype)):
                labels = num_labels(self.graphs.y[parts[k]])
                loss, trees = self.step(batch, k, labels)
                total, count = total + loss, count + labels
                seen.append(trees)
        record = {"loss": self._summed(total) / max(count, 1)}
        found = [trees for trees in seen if trees is not None]
        if found:
            height = self._gathered(torch.cat([trees.height for trees in found])).double()
            record["height"] = float(height.mean())
            record["height_std"] = float(height.std(unbiased=False))
            if clusters := self._summed(sum(trees.clusters for trees in found)):
                record["cluster_size"] = self._summed(sum(trees.nodes for trees in found)) / clusters
        self.epoch += 1
        return record

    def step(
        self, batch: Batch, k: int, labels: int, node: Tensor | None = None
    ) -> tuple[float, "Trees | None"]:
        """One step of the optimiser; returns the sum of this process's losses, and statistics of the trees.

        ``labels`` is the number of labels of the batch over all processes. The loss is the mean over all of
        them, whatever the number of processes. (Gradients are averaged over processes, hence the factor.)
        """
        self.optimizer.zero_grad()
        prediction = self.forward(batch)
        out, y = (prediction.out, batch.y) if node is None else (prediction.out[node], batch.y[node])
        loss = loss_sum(out, y)
        objective = loss * (self.world / max(labels, 1)) + prediction.extra_loss
        objective.backward()
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.config, self.epoch * self.steps_per_epoch + k, self.steps_per_epoch)
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.model)
        return float(loss.detach()), Trees.of(prediction)

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Loss and metric on the validation and the test set."""
        self.model.eval()
        self.measured.eval()
        if self.world > 1:
            # Every process has seen graphs of its own; what is saved are the running means of the first.
            for buffer in self.measured.buffers():
                dist.broadcast(buffer, 0)
        of_nodes = self.forward(self.whole).out.cpu() if self.whole else None
        record: dict[str, float] = {}
        for part, index in (("val", self.split.val), ("test", self.split.test)):
            out = self._predict(index) if of_nodes is None else of_nodes[index]
            y = self.graphs.y[index]
            record[f"{part}_loss"] = float(loss_sum(out, y)) / max(num_labels(y), 1)
            record[part] = metric(self.config.metric, out, y)
        return record

    def _predict(self, index: Tensor) -> Tensor:
        """The model's predictions for these graphs; each process predicts its share."""
        parts = list(index[self.rank :: self.world].split(self.config.batch_size))
        outs = [
            self.forward(batch).out.cpu()
            for batch in self.graphs.batches(parts, self.place.device, self.dtype)
        ]
        own = torch.cat(outs) if outs else torch.empty(0, self.graphs.out_channels, dtype=self.dtype)
        out = torch.empty(index.numel(), own.size(1), dtype=self.dtype)
        for rank, rows in enumerate(self._all(own)):
            out[rank :: self.world] = rows
        return out

    def _all(self, tensor: Tensor) -> list[Tensor]:
        if self.world == 1:
            return [tensor]
        parts: list[Any] = [None] * self.world
        dist.all_gather_object(parts, tensor)
        return parts

    def _gathered(self, tensor: Tensor) -> Tensor:
        return torch.cat(self._all(tensor))

    def _summed(self, number: float) -> float:
        return sum(float(part) for part in self._all(torch.tensor(number, dtype=torch.float64)))

    # ---- all epochs

    def train(self) -> dict[str, Any]:
        """Trains until the validation loss stops falling, and saves the weights if they are to be kept.

        Returns:
            The record of the run. Its checkpoint stays; call :meth:`remove_checkpoint` once it is on disk.
        """
        config, lead = self.config, self.rank == 0
        self.resume()
        log = _Log(self.place.file("epochs", self.fold, self.seed), self.epoch, lead)
        saved = time.monotonic()
        title = f"{short_name(config.dataset)} {config.model} seed {self.seed} fold {self.fold}"
        with tqdm(
            total=config.max_epochs,
            initial=self.epoch,
            desc=title,
            unit="epoch",
            position=self.place.bar_position,
            disable=self.place.quiet or not lead,
            leave=self.place.bar_position == 0,
            mininterval=0.5,
        ) as bar:
            while self.epoch < config.max_epochs and not self.stalled():
                start = time.monotonic()
                try:
                    record: dict[str, Any] = {"epoch": self.epoch + 1, **self.train_epoch()}
                except RuntimeError as error:
                    if "NaN" not in str(error):
                        raise
                    raise FloatingPointError(f"{title}: {error}, in epoch {self.epoch + 1}") from error
                if not math.isfinite(record["loss"]):
                    raise FloatingPointError(
                        f"{title}: the loss is {record['loss']} in epoch {record['epoch']}"
                    )
                if (self.epoch - 1) % config.eval_every == 0 or self.epoch == config.max_epochs:
                    record |= self.measure()
                    self.note_if_best(record)
                self.seconds += time.monotonic() - start
                log.write(record)
                bar.update()
                bar.set_postfix(_shown(record, self.best, config.metric))
                if time.monotonic() - saved > self.place.checkpoint_every:
                    self.save()
                    saved = time.monotonic()
            log.close()
        if lead and self.place.keep_model:
            path = self.place.file("weights", self.fold, self.seed)
            files.save({"config": config.to_dict(), "model": self.best_weights}, path)
        return {
            "fold": self.fold,
            "seed": self.seed,
            **self.best,
            "epochs": self.epoch,
            "seconds": round(self.seconds, 1),
        }

    def note_if_best(self, record: dict[str, Any]) -> None:
        """Records an epoch and its weights if it is the best so far."""
        what, sign = SELECTIONS[self.config.select]
        if not self.best or math.isnan(self.best[what]) or sign * record[what] > sign * self.best[what]:
            keys = ("epoch", "val", "val_loss", "test", "test_loss", "height", "height_std")
            self.best = {key: record[key] for key in keys if key in record}
            # Also where they are not to be kept: the command that goes on may want them.
            self.best_weights = {key: value.clone() for key, value in self.measured.state_dict().items()}

    def stalled(self) -> bool:
        return bool(self.best) and self.epoch - self.best["epoch"] >= self.config.patience

    # ---- saving

    @property
    def checkpoint(self) -> Path:
        return self.place.file("checkpoints", self.fold, self.seed)

    def save(self) -> None:
        if self.rank != 0:
            return
        state = {
            "digest": digest(self.config),
            "epoch": self.epoch,
            "seconds": self.seconds,
            "best": self.best,
            "model": self.model.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "best_weights": self.best_weights,
            "optimizer": self.optimizer.state_dict(),
        }
        files.save(state, self.checkpoint)

    def resume(self) -> None:
        """Resumes from the last checkpoint if it is readable and has these settings; otherwise it is set
        aside."""
        state = None
        if self.rank == 0 and self.checkpoint.exists():
            try:
                state = self.read_checkpoint()
            except ValueError as error:
                files.set_aside(self.checkpoint, str(error), "the run begins anew")
        if self.world > 1:
            states = [state]
            dist.broadcast_object_list(states, 0)
            (state,) = states
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.seconds, self.best = state["epoch"], state["seconds"], state["best"]
        self.best_weights = state["best_weights"]

    def read_checkpoint(self) -> dict[str, Any]:
        """The contents of the last checkpoint.

        Raises:
            ValueError: if it is damaged or does not belong to this run.
        """
        state: dict[str, Any] = files.load(self.checkpoint)
        if not isinstance(state, dict) or not state.keys() >= CHECKPOINT:
            raise ValueError("no checkpoint of a run")
        if state["digest"] != digest(self.config):
            raise ValueError("of other settings")
        if _shapes(state["model"]) != _shapes(self.model.state_dict()):
            raise ValueError("the weights are those of another model")
        if self.place.keep_model and state["best"] and not state["best_weights"]:
            raise ValueError("without the weights of the best epoch, which --keep-model asks for")
        return state

    def remove_checkpoint(self) -> None:
        """Removes the checkpoint. Call this once the record of the run is on disk."""
        if self.rank == 0:
            self.checkpoint.unlink(missing_ok=True)


def _shapes(weights: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {key: value.shape for key, value in weights.items()}


class _Log:
    """JSON lines, one per epoch. Lines after the checkpoint are dropped first."""

    def __init__(self, path: Path, known_epochs: int, active: bool) -> None:
        self.path = path
        self.file: IO[bytes] | None = None
        if active:
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.named(path):
                self.file = path.open("ab", buffering=0)
                self._drop_after(self.file, known_epochs)

    def _drop_after(self, file: IO[bytes], known_epochs: int) -> None:
        """Reports remaining lines that are not of an epoch, and epochs without a line."""
        content = self.path.read_bytes()
        found: set[int] = set()
        odd: list[tuple[int, int]] = []
        end = kept = 0
        for number, line in enumerate(content.splitlines(keepends=True), start=1):
            end += len(line)
            try:
                epoch = jsonl.parsed(line, {"epoch": int})["epoch"]
            except ValueError:
                odd.append((number, end))
                continue
            if epoch > known_epochs:
                break
            found.add(epoch)
            kept = end
        for number, end in odd:
            if end < kept:
                files.warn(f"{self.path}, line {number}", "left as it is, no complete epoch")
        if absent := jsonl.missing(found, known_epochs):
            files.warn(self.path, f"no lines of epochs {absent}, which the checkpoint knows of")
        file.truncate(kept)
        if kept > 0 and content[kept - 1 : kept] != b"\n":
            files.append(file, b"\n")

    def write(self, record: dict[str, Any]) -> None:
        if self.file:
            line = jsonl.encoded({key: _rounded(value) for key, value in record.items()})
            with files.named(self.path):
                files.append(self.file, line)

    def close(self) -> None:
        if self.file:
            self.file.close()


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _shown(record: dict[str, Any], best: dict[str, float], metric_name: str) -> dict[str, str]:
    shown = {"loss": f"{record['loss']:.3f}"}
    if "val" in record:
        shown[f"val {metric_name}"] = f"{record['val']:.1f}"
    if best:
        shown["best"] = f"{best['val']:.1f} in epoch {best['epoch']}"
    if "height" in record:
        shown["height"] = f"{record['height']:.1f}"
    return shown
