"""Pictures of training and of trees, and the data for them."""

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from gpn_ops.visualisation import BLUE, RED, draw_tree

from . import config as configs
from . import files, jsonl
from .data import ORDER, Graphs, position
from .gpn import Prediction
from .training import make_model, seed_everything

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE, STAR = BLUE, RED
# The logs of a folder in one file, a line for every run; of an epoch, what pictures need.
PACKED = "epochs.jsonl"
PACKED_KEYS = ("epoch", "height", "height_std", "val_loss")
# Not in the logs of earlier versions.
LATER_KEYS = ("cluster_size",)


# ------------------------------------------------------------------------------------------------------------
# Trees during training
# ------------------------------------------------------------------------------------------------------------


# What there is to draw of every epoch, and what its axis says.
AXES = {"height": "pooling levels", "cluster_size": "nodes a first-level cluster"}


class Heights(NamedTuple):
    """The number of levels of the trees in every epoch, over all graphs and runs; or another of
    :data:`AXES`."""

    epochs: list[int]
    mean: list[float]
    deviation: list[float]
    best_epoch: float | None
    """The mean of the runs' epochs with the lowest validation loss."""
    best_height: float | None
    """The mean number of levels in these epochs."""
    runs: int


def read_heights(logs: list[Path], key: str = "height") -> Heights:
    """Summarises the logs of some runs.

    Runs end in different epochs; the curve ends when less than half go on. The deviation is over all graphs
    of all runs, as if they were one set; for cluster sizes, it is over the runs. Lines that are not of an
    epoch, and epochs without a line, are reported. Runs whose logs lack the key are left out.

    Raises:
        ValueError: if there are no heights in the logs.
    """
    runs = [run for path in logs for run in _read_logs(path) if any(key in record for record in run)]
    if not runs:
        raise ValueError(f"expected epochs with {key}s, found none in {len(logs)} logs")
    epochs, mean, deviation = [], [], []
    by_epoch = [{record["epoch"]: record for record in run} for run in runs]
    for epoch in range(1, max(max(run) for run in by_epoch) + 1):
        records = [run[epoch] for run in by_epoch if epoch in run]
        if 2 * len(records) < len(runs):
            break
        epochs.append(epoch)
        mean.append(statistics.fmean(record[key] for record in records))
        squares = (record.get(f"{key}_std", 0.0) ** 2 + (record[key] - mean[-1]) ** 2 for record in records)
        deviation.append(statistics.fmean(squares) ** 0.5)
    measured = [[record for record in run if "val_loss" in record] for run in runs]
    best = [min(run, key=lambda record: record["val_loss"]) for run in measured if run]
    return Heights(
        epochs,
        mean,
        deviation,
        statistics.fmean(record["epoch"] for record in best) if best else None,
        statistics.fmean(record[key] for record in best) if best else None,
        len(runs),
    )


def _read_logs(path: Path) -> list[list[dict[str, Any]]]:
    """The runs of a file, each as a list of the epochs that have heights."""
    if path.name != PACKED:
        return [_read_log(path)]
    runs = jsonl.read(path, {"seed": int, "fold": int, **dict.fromkeys(PACKED_KEYS, list)})
    last = {(run["seed"], run["fold"]): run for run in runs}
    return [
        [
            {key: value for key, value in zip(keys, row, strict=True) if value is not None}
            for row in zip(*(run[key] for key in keys), strict=True)
        ]
        for (seed, fold), run in last.items()
        for keys in [[*PACKED_KEYS, *(key for key in LATER_KEYS if key in run)]]
        if not _log(path.parent, seed, fold).exists()  # The run was made again.
    ]


def _log(folder: Path, seed: int, fold: int) -> Path:
    return folder / "epochs" / f"seed{seed}-fold{fold}.jsonl"


def pack(folder: Path) -> int:
    """Moves the logs of finished runs into one small file beside their runs.jsonl, and returns their number.
    The pictures of :func:`draw_heights` stay the same."""
    packed = 0
    for epochs in sorted(folder.rglob("epochs")):
        for run in jsonl.read(epochs.parent / "runs.jsonl", {"seed": int, "fold": int}):
            path = _log(epochs.parent, run["seed"], run["fold"])
            if not path.exists():
                continue
            records = _read_log(path)
            later = [key for key in LATER_KEYS if any(key in record for record in records)]
            columns = {key: [record.get(key) for record in records] for key in (*PACKED_KEYS, *later)}
            if records:  # Baselines have no heights.
                jsonl.append(epochs.parent / PACKED, {"seed": run["seed"], "fold": run["fold"], **columns})
            path.unlink()
            packed += 1
        if not any(epochs.iterdir()):
            epochs.rmdir()
    return packed


def _read_log(path: Path) -> list[dict[str, Any]]:
    """The epochs of a run that have heights."""
    records = jsonl.read(path, {"epoch": int}, what="epoch")
    epochs = [record["epoch"] for record in records]
    if absent := jsonl.missing(epochs, max(epochs, default=0)):
        files.warn(path, f"no lines of epochs {absent}")
    return [record for record in records if "height" in record]


def find_logs(folder: Path, key: str = "height") -> dict[str, list[Path]]:
    """The logs of GPN's runs below a folder that have a key, by data set, and by the digest of the settings
    if these differ from the preset's."""
    found: dict[str, list[Path]] = {}
    for runs in sorted({path.parent for path in (*folder.rglob("epochs"), *folder.rglob(PACKED))}):
        model, _, digest = runs.name.partition("-")
        # A run that has only begun has no lines yet.
        logs = [path for path in sorted((runs / "epochs").glob("*.jsonl")) if path.stat().st_size > 0]
        if (runs / PACKED).exists():
            logs.append(runs / PACKED)
        if key != "height":
            logs = [path for path in logs if f'"{key}"'.encode() in path.read_bytes()]
        if model == "gpn" and logs:
            dataset = runs.parent.name
            found.setdefault(f"{dataset}, {digest}" if digest else dataset, []).extend(logs)
    return dict(sorted(found.items(), key=lambda item: (position(ORDER, item[0].partition(",")[0]), item[0])))


def draw_heights(logs: dict[str, list[Path]], key: str = "height") -> "Figure":
    """Draws the number of pooling levels during training, with a panel for every data set.

    Args:
        logs: The logs of each data set's runs, by its name.
        key: What to draw: a key of :data:`AXES`.

    Raises:
        ValueError: if there are no heights in the logs of a data set.
    """
    from matplotlib.figure import Figure

    columns = min(len(logs), 4)
    rows = -(-len(logs) // columns)
    figure = Figure(figsize=(max(1 + 3.2 * columns, 7.2), 0.8 + 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for number, axes in enumerate(panels.flat):
        if number >= len(logs):
            axes.set_visible(False)
            continue
        name = list(logs)[number]
        _draw_panel(axes, name, read_heights(logs[name], key))
        axes.set_xlabel("epoch")
        if number % columns == 0:
            axes.set_ylabel(AXES[key])
    panels[0, 0].set_ylim(bottom=0)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _draw_panel(axes: "Axes", name: str, heights: Heights) -> None:
    low, high = (
        [mean + sign * deviation for mean, deviation in zip(heights.mean, heights.deviation, strict=True)]
        for sign in (-1, 1)
    )
    axes.plot(heights.epochs, heights.mean, color=LINE, linewidth=1.8, label="mean over graphs and runs")
    axes.fill_between(
        heights.epochs, low, high, color=LINE, alpha=0.2, linewidth=0, label="± standard deviation"
    )
    if heights.best_epoch is not None and heights.best_height is not None:
        axes.scatter(
            [heights.best_epoch],
            [heights.best_height],
            marker="*",
            s=180,
            color=STAR,
            edgecolors="black",
            linewidths=0.6,
            zorder=3,
            label="mean over the best epochs",
        )
    axes.set_title(f"{name} ({heights.runs} {'run' if heights.runs == 1 else 'runs'})", fontsize=10)
    axes.grid(True, alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


# ------------------------------------------------------------------------------------------------------------
# One graph's tree
# ------------------------------------------------------------------------------------------------------------


def read_weights(path: Path) -> tuple[configs.Config, dict[str, torch.Tensor]]:
    """Settings and weights, as models.train saves them.

    Raises:
        ValueError: if the file is not one of these.
    """
    if not path.is_file():
        raise ValueError(f"--weights: there is no file {path}")
    try:
        state = files.load(path)
        return configs.Config.from_dict(state["config"]), state["model"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"--weights: expected a file saved by models.train --keep-model, got {path} ({error})"
        ) from error


@torch.no_grad()
def predict(
    config: configs.Config, graphs: Graphs, graph: int, weights: dict[str, torch.Tensor] | None
) -> Prediction:
    """The model's prediction for one graph; without weights, the model is the one that seed 0 initialises.

    Raises:
        ValueError: if there is no such graph, the model has no trees, or the weights are of another model.
    """
    if not 0 <= graph < graphs.num_graphs:
        raise ValueError(
            f"--graph: expected a number from 0 to {graphs.num_graphs - 1}, as {config.dataset} has "
            f"{graphs.num_graphs} graphs, got {graph}"
        )
    if config.model != "gpn":
        raise ValueError(f"model: expected gpn, got {config.model}, which has no tree")
    seed_everything(0, 0)
    dtype = torch.float64 if config.double else torch.float32
    model = make_model(config, graphs).to(dtype).eval()
    if weights is not None:
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(f"--weights: they do not fit the data set: {error}") from error
    batch = graphs.take(torch.tensor([graph])).to(torch.device("cpu"), dtype)
    return model(batch.x, batch.edge_index, batch.edge_attr, batch.batch, 1)


def draw_prediction(
    config: configs.Config, graphs: Graphs, graph: int, weights: dict[str, torch.Tensor] | None
) -> "Figure":
    """Draws the tree into which the model parses one graph."""
    prediction = predict(config, graphs, graph, weights)
    title = f"{configs.short_name(config.dataset)}, graph {graph}"
    if config.task == "graph":
        title += f" of class {int(graphs.y[graph])}"
    if weights is None:
        title += ", untrained model"
    elif config.task == "graph":
        title += f", predicted {int(prediction.out.argmax())}"
    assert prediction.tree is not None
    return draw_tree(prediction.tree, title=title)
