"""Reconstruct the coordinates of a ring or a grid after one level of pooling, by several pooling methods.

An auto-encoder (models/autoencoder.py) gets a graph whose features are the positions of its nodes in the
plane, pools it once to about 30 % of its nodes, un-pools it, and is trained to return the positions. Details
missing from the picture were lost in pooling.

A run (a method and a seed) trains until the error has not fallen for --patience epochs, at most --epochs. Its
result is the mean squared error of the parameters with the lowest training error, over ten new passes. These
differ for gpn, whose scores are partly random, and agree for the other methods. One of these is gpn-held,
which draws the random part once per run.
"""

import argparse
import copy
import importlib.metadata
import math
import platform
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from . import config, files, jsonl
from .autoencoder import HELD, POOLS, AutoEncoder
from .common import attempt, device_named, numbers, positive, table
from .jsonl import NUMBER

NODES = {"ring": 200, "grid": 900}
# What tables call the methods.
NAMES = config.NAMES | {HELD: "GPN, one draw"}
# An error that falls by less than this share has not fallen.
TOLERANCE = 0.01
PASSES = 10
NEEDED = {
    "method": str,
    "seed": int,
    "options": dict,
    "position": list,
    **dict.fromkeys(("error", "kept", "epochs"), NUMBER),
}

EXAMPLES = """
examples:
  python -m models.reconstruct ring
  python -m models.reconstruct grid --methods gpn,topk,mincut --seeds 0
  python -m models.reconstruct grid --nodes 400 --seeds 0-9 --device cuda

files in the output folder:
  ring.jsonl            a line for every finished run: method, seed, error, epochs, seconds, options,
                        versions, and the positions that came out. A run that is there with the same
                        options is not run again, so that a stopped command goes on where it was.
  ring.png, ring.svg    the graph, and for every method the run with the median error
  ring.md               the table that is printed at the end
"""


class Graph(NamedTuple):
    position: Tensor
    """``[n, 2]``: the positions of the nodes, between -1 and 1."""
    edge_index: Tensor
    """int64 ``[2, m]``: the edges, both directions."""


def ring(num_nodes: int) -> Graph:
    """Points on the unit circle, each joined to the next."""
    node = torch.arange(num_nodes)
    angle = 2 * math.pi * node / num_nodes
    return Graph(
        torch.stack([angle.cos(), angle.sin()], dim=1),
        _undirected(torch.stack([node, (node + 1) % num_nodes])),
    )


def grid(num_nodes: int) -> Graph:
    """A square lattice; each point is joined to its horizontal and vertical neighbours."""
    side = math.isqrt(num_nodes)
    if side * side != num_nodes:
        raise ValueError(f"nodes: expected a square number for a grid, got {num_nodes}")
    place = torch.linspace(-1, 1, side)
    node = torch.arange(num_nodes).view(side, side)
    beside = torch.stack([node[:, :-1].flatten(), node[:, 1:].flatten()])
    below = torch.stack([node[:-1].flatten(), node[1:].flatten()])
    return Graph(
        torch.stack([place.repeat(side), place.flip(0).repeat_interleave(side)], dim=1),
        _undirected(torch.cat([beside, below], dim=1)),
    )


def _undirected(one_way: Tensor) -> Tensor:
    return torch.cat([one_way, one_way.flip(0)], dim=1)


GRAPHS = {"ring": ring, "grid": grid}


# ------------------------------------------------------------------------------------------------------------
# A run
# ------------------------------------------------------------------------------------------------------------


class Result(NamedTuple):
    error: float
    """The mean squared error."""
    position: Tensor
    """``[n, 2]``: the positions of the last pass."""
    num_kept: int
    """The number of nodes after pooling in the last pass."""
    epochs: int
    """The number of epochs trained."""


def fit(
    graph: Graph, method: str, seed: int, *, hidden: int, ratio: float, lr: float, epochs: int, patience: int
) -> Result:
    """Trains an auto-encoder on a graph and returns its reconstruction."""
    torch.manual_seed(seed)
    position, edge_index = graph
    model = AutoEncoder(position.size(0), pool=method, hidden=hidden, ratio=ratio).to(position.device)
    optimizer = torch.optim.Adam(model.parameters(), lr)
    lowest, lowest_at, best = math.inf, 0, copy.deepcopy(model.state_dict())
    progress = tqdm(range(1, epochs + 1), f"{method}, seed {seed}", leave=False, disable=None)
    epoch = 0
    for epoch in progress:
        out = model(position, edge_index)
        loss = functional.mse_loss(out.x, position)
        error = loss.item()
        if error < (1 - TOLERANCE) * lowest:
            lowest, lowest_at = error, epoch
            best = copy.deepcopy(model.state_dict())
        elif epoch - lowest_at >= patience:
            break
        optimizer.zero_grad()
        (loss + out.extra_loss).backward()
        optimizer.step()
        if epoch % 20 == 0:
            progress.set_postfix(error=f"{error:.2e}", lowest=f"{lowest:.2e}", refresh=False)
    progress.close()

    model.load_state_dict(best)
    errors = []
    with torch.no_grad():
        for _ in range(PASSES):
            out = model(position, edge_index)
            errors.append(functional.mse_loss(out.x, position).item())
    return Result(statistics.mean(errors), out.x, out.num_kept, epoch)


# ------------------------------------------------------------------------------------------------------------
# What was run
# ------------------------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    # torch's own word for itself: in the metadata a CUDA build looks like any other.
    packages = {
        "torch": str(torch.__version__),
        "torch_geometric": importlib.metadata.version("torch_geometric"),
    }
    try:
        packages["gpn_ops"] = importlib.metadata.version("gpn_ops")
    except importlib.metadata.PackageNotFoundError:
        packages["gpn_ops"] = "not installed"
    return {"python": platform.python_version(), **packages}


def results(runs: dict[str, list[dict[str, Any]]], num_nodes: int) -> str:
    """A Markdown table: mean and standard deviation over the seeds, the best method first."""
    rows = []
    for method, of_method in runs.items():
        errors, kept, epochs = ([run[key] for run in of_method] for key in ("error", "kept", "epochs"))
        mean = statistics.mean(errors)
        spread = f" ± {statistics.stdev(errors):.1e}" if len(errors) > 1 else ""
        share = statistics.mean(kept) / num_nodes
        cells = [f"{mean:.2e}{spread}", f"{share:.0%}", f"{statistics.mean(epochs):.0f}", len(errors)]
        rows.append((mean, [NAMES[method], *cells]))
    rows.sort(key=lambda row: row[0])
    return table(["method", "error (MSE)", "nodes kept", "epochs", "runs"], [cells for _, cells in rows])


# ------------------------------------------------------------------------------------------------------------
# The picture
# ------------------------------------------------------------------------------------------------------------


def draw(graph: Graph, runs: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draws the graph, and beside it the run with the median error of every method."""
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    position = graph.position.cpu()
    panels = [("original", position)]
    for method, of_method in runs.items():
        middle = sorted(of_method, key=lambda run: run["error"])[(len(of_method) - 1) // 2]
        panels.append((f"{NAMES[method]}, error {middle['error']:.2g}", torch.tensor(middle["position"])))
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.8 * rows), layout="constrained")
    one_way = graph.edge_index[:, : graph.edge_index.size(1) // 2].cpu()
    # A node has the colour of the place where it should be.
    colour = colormaps["viridis"]((position.sum(dim=1).numpy() + 2) / 4)
    for number, (title, points) in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        # Thousands of points and edges are an image inside the SVG: as paths they would fill megabytes.
        axes.add_collection(
            LineCollection(
                list(points[one_way].transpose(0, 1).numpy()),
                color="0.7",
                linewidths=0.5,
                zorder=1,
                rasterized=True,
            )
        )
        axes.scatter(*points.t().numpy(), s=5, c=colour, linewidths=0, zorder=2, rasterized=True)
        axes.set_title(title, fontsize=9)
        axes.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), xticks=[], yticks=[], aspect="equal")
        axes.spines[:].set_color("0.85")
    figure.savefig(path.with_suffix(".png"), dpi=110)
    figure.savefig(path.with_suffix(".svg"), dpi=110)


# ------------------------------------------------------------------------------------------------------------
# The command
# ------------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        prog="python -m models.reconstruct",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("graph", choices=list(GRAPHS), help="points on a circle, or a square lattice")
    add("--methods", type=_methods, default=list(POOLS), help=f"some of {','.join(POOLS)} (default: all)")
    add("--seeds", type=numbers, default=[0, 1, 2], help="seeds, such as 0-2,7 (default: 0-2)")
    add("--nodes", type=positive, help="the number of nodes (default: 200 in a ring, 30 x 30 in a grid)")
    add("--epochs", type=positive, default=10_000, help="the largest number of epochs (default: %(default)s)")
    add(
        "--patience",
        type=positive,
        default=1_000,
        help=f"stop after this many epochs in which the error fell by less than {100 * TOLERANCE:g} %% "
        "(default: %(default)s)",
    )
    add("--lr", type=float, default=5e-3, help="Adam's learning rate (default: %(default)s)")
    add("--hidden", type=positive, default=64, help="size of the hidden features (default: %(default)s)")
    add(
        "--ratio",
        type=float,
        default=0.3,
        help="the share of nodes to keep, for all methods but gpn and gpn-held, where it follows from the "
        "graph (default: %(default)s)",
    )
    add("--output", type=Path, default=Path("results/reconstruct"), help="folder (default: %(default)s)")
    add("--device", default="cpu", help="cpu, cuda or cuda:<number> (default: %(default)s)")
    add("--threads", type=positive, default=1, help="CPU threads (default: %(default)s)")
    return command


def _methods(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in POOLS:
            raise argparse.ArgumentTypeError(f"expected some of {','.join(POOLS)}, got {name!r}")
    return list(dict.fromkeys(names))


def main(arguments: list[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    try:
        device = device_named(given.device)
    except ValueError as error:
        sys.exit(str(error))
    torch.set_num_threads(given.threads)
    # PyG's ASAPooling makes sparse tensors of a kind that torch warns about.
    warnings.filterwarnings("ignore", "Sparse", UserWarning)
    try:
        graph = GRAPHS[given.graph](NODES[given.graph] if given.nodes is None else given.nodes)
    except ValueError as error:
        sys.exit(f"--{error}")
    graph = Graph(*(tensor.to(device) for tensor in graph))
    if code := attempt(lambda: _reconstruct(graph, given)):
        sys.exit(code)


def _reconstruct(graph: Graph, given: argparse.Namespace) -> int:
    num_nodes = graph.position.size(0)
    settings = {key: getattr(given, key) for key in ("hidden", "ratio", "lr", "epochs", "patience")}
    options = {"nodes": num_nodes, **settings, "device": given.device}

    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / f"{given.graph}.jsonl"
    finished = {
        (run["method"], run["seed"]): run for run in jsonl.read(path, NEEDED) if run["options"] == options
    }
    runs: dict[str, list[dict[str, Any]]] = {}
    for method in given.methods:
        for seed in given.seeds:
            run = finished.get((method, seed))
            state = "finished before"
            if run is None:
                start = time.perf_counter()
                result = fit(graph, method, seed, **settings)
                run = {
                    "method": method,
                    "graph": given.graph,
                    "seed": seed,
                    "error": result.error,
                    "kept": result.num_kept,
                    "epochs": result.epochs,
                    "seconds": round(time.perf_counter() - start, 2),
                    "options": options,
                    "versions": versions(),
                    "position": [[round(value, 3) for value in row] for row in result.position.tolist()],
                }
                jsonl.append(path, run)
                state = f"{run['epochs']} epochs, {run['seconds']:.0f} s"
            runs.setdefault(method, []).append(run)
            print(f"{given.graph}, {method}, seed {seed}: error {run['error']:.2e} ({state})", flush=True)

    text = results(runs, num_nodes)
    with files.named(given.output):
        path.with_suffix(".md").write_text(text + "\n")
        draw(graph, runs, path)
    print(f"\n{text}\n\nDrawn in {path.with_suffix('.png')}.")
    return 0


if __name__ == "__main__":
    main()
