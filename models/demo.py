"""Trains GPN and two other models on graphs made on the spot, and draws what GPN does: part of `make demo`.

The task is to say how many communities a graph has: 3, 6 or 9. Every community is a random cubic graph whose
nodes are of one of three types; the bridges between communities join nodes of different types. All graphs
have the same number of nodes, of each type the same number, the same number of edges and of bridges, and the
same degrees: 4 at the ends of bridges, 3 elsewhere. So what a node sees nearby says little about the class,
and one has to put together what belongs together before there is something to count.

All three models are trained by the same code with the same settings, on the same split. The table says what
came out; nothing is chosen afterwards.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from . import data
from .config import Config
from .data import Graphs, Split
from .draw import draw_heights, draw_prediction
from .report import NAMES, table
from .train import numbers, prepare
from .training import Place, Run

# The sizes of the communities of one type, by class.
SIZES = ([18], [10, 8], [6, 6, 6])
TYPES = 3
NODES = TYPES * 18
BRIDGES = 12
MODELS = ("gpn", "gcn", "topk")


# ------------------------------------------------------------------------------------------------------------
# The data set
# ------------------------------------------------------------------------------------------------------------


def cubic_graph(num_nodes: int, random: torch.Generator) -> list[tuple[int, int]]:
    """A random connected graph in which every node has three neighbours: a ring and chords. The number of
    nodes is even, and at least 4."""
    ring = torch.randperm(num_nodes, generator=random).tolist()
    edges = {tuple(sorted((ring[k], ring[k - 1]))) for k in range(num_nodes)}
    while True:
        pairs = torch.randperm(num_nodes, generator=random).view(-1, 2).sort(dim=1).values.tolist()
        chords = {(first, second) for first, second in pairs}
        if not chords & edges:
            return sorted(edges | chords)


def community_graph(label: int, random: torch.Generator) -> Data:
    """A graph of a class, its edges stored in one direction."""
    node_type: list[int] = []
    community: list[int] = []
    edges: list[tuple[int, int]] = []
    for number, (kind, size) in enumerate((kind, size) for kind in range(TYPES) for size in SIZES[label]):
        first = len(node_type)
        edges += [(first + row, first + col) for row, col in cubic_graph(size, random)]
        node_type += [kind] * size
        community += [number] * size
    edges += bridges(node_type, community, random)
    # Node numbers must not tell.
    shuffle = torch.randperm(NODES, generator=random)
    x = torch.empty(NODES, TYPES)
    x[shuffle] = torch.nn.functional.one_hot(torch.tensor(node_type), TYPES).float()
    return Data(x=x, edge_index=shuffle[torch.tensor(edges).t()], y=torch.tensor([label]))


def bridges(node_type: list[int], community: list[int], random: torch.Generator) -> list[tuple[int, int]]:
    """Edges between communities of different types, no two at one node, that connect the graph."""
    while True:
        reached, found, used = {community[0]}, [], set()
        order = torch.randint(len(node_type), (40 * BRIDGES, 2), generator=random).tolist()
        for first, second in order:
            if node_type[first] == node_type[second] or {first, second} & used:
                continue
            # Until all are connected, a bridge leads from those that are to one that is not.
            ends = {community[first] in reached, community[second] in reached}
            if len(reached) <= max(community) and len(ends) == 1:
                continue
            reached |= {community[first], community[second]}
            used |= {first, second}
            found.append((first, second))
            if len(found) == BRIDGES:
                break
        if len(found) == BRIDGES and len(reached) == max(community) + 1:
            return found


def communities(num_graphs: int, seed: int = 0) -> list[Data]:
    """The data set, as PyG has them. The classes take turns."""
    random = torch.Generator().manual_seed(seed)
    return [community_graph(k % len(SIZES), random) for k in range(num_graphs)]


def load(config: Config) -> Graphs:
    """The data set, as the training code takes it: half to train, a quarter each to validate and test."""
    graphs = data.load(config)
    train, val, test = torch.arange(graphs.num_graphs).tensor_split(
        [graphs.num_graphs // 2, 3 * graphs.num_graphs // 4]
    )
    graphs.splits = [Split(train, val, test)]
    return graphs


# ------------------------------------------------------------------------------------------------------------
# Training
# ------------------------------------------------------------------------------------------------------------


def settings(model: str, num_graphs: int, epochs: int) -> Config:
    """The settings, the same for all models."""
    return Config(
        dataset=f"models.demo:communities({num_graphs})",
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
    manual.add_argument("--epochs", type=int, default=50, help="epochs of every run (default: 50)")
    manual.add_argument("--seeds", type=numbers, default=[0, 1], help="seeds (default: 0,1)")
    manual.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    manual.add_argument("--output", type=Path, default=Path("results/demo"), help="folder for the pictures")
    manual.add_argument("--quiet", action="store_true", help="no progress bars")
    return manual


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.graphs < 12:
        print(f"error: --graphs: expected at least 12, got {options.graphs}", file=sys.stderr)
        return 2

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
            run.finish()
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
