"""Pictures: pooling levels and clusters during training, and the pooling tree of a graph.

    python -m models.draw heights results
    python -m models.draw clusters results
    python -m models.draw tree PROTEINS --graph 3 --weights results/PROTEINS/gpn/weights/seed0-fold0.pt

``heights`` draws the number of levels of the trees in every epoch, with a panel per data set, from the output
of models.train, including unfinished runs. ``clusters`` draws the mean size of first-level clusters, for runs
that logged it.

``pack`` makes results small enough to keep: it reduces the epoch logs of finished runs to what these two
need, in one file epochs.jsonl per set of runs, and removes the logs.

``tree`` draws one graph and its tree. The weights are a file that models.train saves with --keep-model.
Without them, the model is untrained.
"""

import argparse
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from . import config as configs
from . import data, files
from .common import attempt
from .pictures import draw_heights, draw_prediction, find_logs, pack, read_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def parser() -> argparse.ArgumentParser:
    manual = argparse.ArgumentParser(
        prog="python -m models.draw",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    pictures = manual.add_subparsers(dest="picture", required=True)
    heights = pictures.add_parser("heights", help="pooling levels during training")
    heights.add_argument("folder", type=Path, help="the folder that models.train wrote to (its --output)")
    heights.add_argument("--output", type=Path, default=Path("results/heights.png"), help="%(default)s")
    clusters = pictures.add_parser("clusters", help="the size of first-level clusters during training")
    clusters.add_argument("folder", type=Path, help="as for heights")
    clusters.add_argument("--output", type=Path, default=Path("results/clusters.png"), help="%(default)s")
    packed = pictures.add_parser("pack", help="reduce epoch logs to one small file per set of runs")
    packed.add_argument("folder", type=Path, help="as for heights")
    tree = pictures.add_parser("tree", help="the pooling tree of one graph")
    tree.add_argument("dataset", help="as for models.train")
    tree.add_argument("--graph", type=int, default=0, help="number of the graph (default: 0)")
    tree.add_argument("--weights", type=Path, default=None, help="saved by models.train --keep-model")
    tree.add_argument("--trust", action="store_true", help="as for models.train")
    tree.add_argument("--data-root", type=Path, default=Path("data"), help="raw data (default: data)")
    tree.add_argument("--data-cache", type=Path, default=Path("data"), help="prepared data (default: data)")
    tree.add_argument("--output", type=Path, default=Path("results/tree.png"), help="%(default)s")
    return manual


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    return attempt(lambda: _draw(options))


def _draw(options: argparse.Namespace) -> int:
    if options.picture == "pack":
        print(f"packed the epochs of {pack(_existing(options.folder))} runs")
        return 0
    keys = {"heights": "height", "clusters": "cluster_size"}
    figure = _tree(options) if options.picture == "tree" else _heights(options.folder, keys[options.picture])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with files.named(options.output):
        figure.savefig(options.output, dpi=150)
    print(f"drawn in {options.output}")
    return 0


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    return folder


def _heights(folder: Path, key: str) -> "Figure":
    logs = find_logs(_existing(folder), key)
    if not logs:
        raise ValueError(
            f"no runs in {folder}: expected <data set>/gpn/epochs/*.jsonl in it, with {key}, as "
            "python -m models.train writes them"
        )
    return draw_heights(logs, key)


def _tree(options: argparse.Namespace) -> "Figure":
    warnings.filterwarnings("ignore", message="Sparse")
    config, weights = configs.load(options.dataset, trust=options.trust), None
    if options.weights is not None:
        saved, weights = read_weights(options.weights)
        if saved.dataset != config.dataset:
            raise ValueError(f"--weights: expected a model of {config.dataset}, got one of {saved.dataset}")
        config = saved
    graphs = data.load(config, options.data_root, options.data_cache)
    return draw_prediction(config, graphs, options.graph, weights)


if __name__ == "__main__":
    sys.exit(main())
