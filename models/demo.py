"""Trains GPN and two other models on generated graphs, and draws the trees of GPN: part of `make demo`.

The task is to tell how many communities a graph has: 3, 6 or 9. Every community is a random cubic graph whose
nodes all have one of three types. Bridges between communities join nodes of different types. All graphs have
the same number of nodes, of nodes of each type, of edges and of bridges, and the same degrees: 4 at the ends
of bridges, 3 elsewhere. So the neighbourhood of a node says little about the class, and a model must merge
the nodes of a community before it can count.

All three models are trained by the same code with the same settings, on the same split. The table shows
their results; nothing is selected afterwards.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .common import attempt, fail, numbers, positive, table
from .communities import NODES, SIZES, TYPES, load
from .config import NAMES, Config
from .pictures import draw_heights, draw_prediction
from .training import Place, Run, prepare

MODELS = ("gpn", "gcn", "topk")


# ------------------------------------------------------------------------------------------------------------
# Training
# ------------------------------------------------------------------------------------------------------------


def settings(model: str, num_graphs: int, epochs: int) -> Config:
    """The settings, the same for all models."""
    return Config(
        dataset=f"models.communities:Communities({num_graphs})",
        model=model,
        hidden=64,
        gnn_layers=2,
        degree=False,
        lr=1e-3,
        warmup=0,
        batch_size=32,
        max_epochs=epochs,
        patience=epochs,
    )


def results(records: dict[str, list[dict[str, Any]]]) -> str:
    """A Markdown table with a row for each model."""
    rows = []
    for model, runs in records.items():
        tests = [run["test"] for run in runs]
        spread = f" ({', '.join(f'{test:.1f}' for test in tests)})" if len(tests) > 1 else ""
        seconds = statistics.fmean(run["seconds"] for run in runs)
        rows.append([NAMES[model], f"{statistics.fmean(tests):.1f}{spread}", f"{seconds:.0f}"])
    return table(["model", "test accuracy in % (of each seed)", "seconds a run"], rows)


def parser() -> argparse.ArgumentParser:
    manual = argparse.ArgumentParser(
        prog="python -m models.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    manual.add_argument("--graphs", type=int, default=600, help="number of graphs (default: 600)")
    manual.add_argument("--epochs", type=positive, default=50, help="epochs of every run (default: 50)")
    manual.add_argument("--seeds", type=numbers, default=[0, 1], help="seeds (default: 0,1)")
    manual.add_argument("--threads", type=positive, default=torch.get_num_threads(), help="CPU threads")
    manual.add_argument("--output", type=Path, default=Path("results/demo"), help="folder for the pictures")
    manual.add_argument("--quiet", action="store_true", help="no progress bars")
    return manual


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.graphs < 12:
        return fail(f"--graphs: expected at least 12, got {options.graphs}", 2)
    return attempt(lambda: _demo(options))


def _demo(options: argparse.Namespace) -> int:
    device = torch.device("cpu")
    prepare(device, options.threads)
    graphs = load(settings("gpn", options.graphs, options.epochs))
    split = graphs.splits[0]
    print(
        f"How many communities does a graph have: {', '.join(str(TYPES * len(sizes)) for sizes in SIZES)}? "
        f"Training on {split.train.numel()} graphs of {NODES} nodes, testing on {split.test.numel()}; "
        f"guessing gives {100 / len(SIZES):.0f} %."
    )
    records: dict[str, list[dict[str, Any]]] = {}
    weights: dict[str, Tensor] = {}
    for model in MODELS:
        for seed in options.seeds:
            config = settings(model, options.graphs, options.epochs)
            folder = options.output / "communities" / model
            place = Place(folder, device, quiet=options.quiet, keep_model=model == "gpn")
            run = Run(config, graphs, 0, seed, place)
            records.setdefault(model, []).append(run.train())
            run.remove_checkpoint()
            weights = weights or run.best_weights
    print("\n" + results(records))

    # The first test graph of the last class, whatever the model makes of it.
    graph = int(split.test[graphs.y[split.test] == len(SIZES) - 1][0])
    config = settings("gpn", options.graphs, options.epochs)
    logs = [options.output / "communities" / "gpn" / "epochs" / f"seed{s}-fold0.jsonl" for s in options.seeds]
    pictures = {
        "tree.png": draw_prediction(config, graphs, graph, weights),
        "heights.png": draw_heights({"communities": logs}),
    }
    for name, figure in pictures.items():
        figure.savefig(options.output / name, dpi=150)
    print(f"\nThe pooling tree of a test graph is drawn in {options.output / 'tree.png'},")
    print(f"pooling levels during training in {options.output / 'heights.png'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
