"""Time of one pooling step, ours and others'.

    python benchmarks/speed.py --device cpu|cuda [--backward] [--paper] [--quick]

Kinds of input, 128 channels, both directions stored:

  dense batch    10 graphs of n nodes and n^2/10 undirected edges each
  sparse batch   10 graphs of n nodes and 2n undirected edges each
  large graph    one graph of n nodes and 2n undirected edges
  hubs           a real graph of 304,031 nodes, the largest with 88,858 neighbours, where data/large has it

With --paper instead those of the paper's figure: 50 graphs of n = 100 to 1,100 nodes and n^2/10 undirected
edges each.

Warm-up first, then repeated calls with the device synchronised; median and quartiles. Every point runs in its
own process; a method that runs out of memory or time is marked so and is not tried at larger sizes. Our
layer's clusters are compared with the plain-PyTorch reference before anything is timed.
"""

import argparse
from collections.abc import Callable
from typing import Any

import common
import torch
from methods import COLUMNS, METHODS, Method, available, outputs
from torch import Tensor
from tqdm import tqdm

from gpn_ops import reference
from gpn_ops.nn import ParsePooling

CHANNELS = 128
NUM_GRAPHS = 10
KINDS: dict[str, tuple[int, Callable[[int], int], tuple[int, ...]]] = {
    # graphs in the batch, undirected edges of a graph of n nodes, sizes
    "dense batch": (NUM_GRAPHS, lambda n: n * n // 10, (100, 200, 500, 1000)),
    "sparse batch": (NUM_GRAPHS, lambda n: 2 * n, (100, 200, 500, 1000)),
    "large graph": (1, lambda n: 2 * n, (10_000, 100_000, 1_000_000)),
}
PAPER: dict[str, tuple[int, Callable[[int], int], tuple[int, ...]]] = {
    "paper's batch": (50, lambda n: n * n // 10, (100, 300, 500, 700, 900, 1100)),
}
HUB_NODES = 304_031


# In README.md.
SHOWN = {
    "dense batch": 1000,
    "sparse batch": 1000,
    "large graph": 100_000,
    common.HUBS: HUB_NODES,
    "paper's batch": 1100,
}


def inputs(kind: str, num_nodes: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """x, edge_index and batch."""
    if kind == common.HUBS:
        num_graphs, parts = 1, [common.hub_graph(common.hub_file())[0]]
    else:
        num_graphs, num_edges, _ = {**KINDS, **PAPER}[kind]
        parts = [common.random_graph(num_nodes, num_edges(num_nodes), seed)[0] for seed in range(num_graphs)]
    edge_index = torch.cat([part + k * num_nodes for k, part in enumerate(parts)], dim=1)
    x = torch.randn(num_graphs * num_nodes, CHANNELS, generator=torch.Generator().manual_seed(0))
    batch = torch.arange(num_graphs).repeat_interleave(num_nodes)
    return x.to(device), edge_index.to(device), batch.to(device)


def validate(kind: str, num_nodes: int, device: torch.device) -> bool:
    """Whether the layer's clusters are those of the reference on its scores."""
    torch.manual_seed(0)
    x, edge_index, batch = inputs(kind, num_nodes, device)
    pool = ParsePooling(CHANNELS).to(device)
    with torch.no_grad():
        cluster = pool(x, edge_index, batch=batch).cluster
        scores = pool.select.scorer(x, edge_index)
    return torch.equal(cluster, reference.parse(edge_index, scores, x.size(0)))


def measure(
    method: Method, kind: str, num_nodes: int, device: torch.device, backward: bool, threads: int
) -> common.Timing:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    x, edge_index, batch = inputs(kind, num_nodes, device)
    pool = method.make(CHANNELS, num_nodes).to(device)

    def step() -> None:
        if backward:
            result = pool(x.requires_grad_(), edge_index, batch)
            sum(tensor.sum() for tensor in outputs(result)).backward()
        else:
            with torch.no_grad():
                pool(x, edge_index, batch)

    return common.timed({method.name: step}, device)[method.name]


def run(options: argparse.Namespace, device: torch.device) -> list[dict]:
    limits = common.limits(options)
    kinds = {kind: sizes for kind, (_, _, sizes) in (PAPER if options.paper else KINDS).items()}
    if not options.quick and not options.paper and common.hub_file():
        kinds[common.HUBS] = (HUB_NODES,)
    for kind, sizes in kinds.items():
        same = common.isolated(validate, kind, sizes[0], device, **{**limits, "seconds": 60})
        assert same is True, f"{kind}: the layer's clusters are not the reference's ({same})"
    measured = available()
    points = []
    for kind, sizes in kinds.items():
        points += [(kind, method, sizes[:1] if options.quick else sizes) for method in measured]
    results = []
    for kind, method, sizes in (progress := tqdm(points, desc="time")):
        for num_nodes in sizes:
            progress.set_postfix_str(f"{kind}, {method.name}, {num_nodes:,} nodes")
            if num_nodes > method.largest:
                break
            arguments = (method, kind, num_nodes, device, options.backward, options.threads)
            timing = common.isolated(measure, *arguments, **limits)
            failed = isinstance(timing, str)
            figures = {} if failed else {"low": timing.low, "high": timing.high}
            median = timing if failed else timing.median
            results.append(
                {"kind": kind, "method": method.name, "num_nodes": num_nodes, "seconds": median, **figures}
            )
            if failed:
                break
    return results


NOTES = """\
Methods differ in what they do for their time: see the columns. TopKPooling and SAGPooling score nodes, of
which there are fewer than edges, and drop half of them. Ours spends most of its time in the matrix products
of the edge scorer."""


def kinds_of(content: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(result["kind"] for result in content["results"]))


def report(content: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    parts = []
    for kind in kinds_of(content):
        part = [result for result in content["results"] if result["kind"] == kind]
        title = f"Milliseconds, {content['step']}, {kind}, {content['channels']} channels:"
        cells = common.comparison(
            part, "seconds", METHODS, COLUMNS, lambda seconds, _: f"{1e3 * seconds:,.3g}"
        )
        words = common.better_and_worse(part, "seconds", "Faster", "Slower")
        parts.append(f"{title}\n\n{cells}\n\n{words}")
    return "\n\n".join(parts)


def beside(content: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What README.md shows of each peer: a column a kind of input."""
    columns = {}
    for kind, size in SHOWN.items():
        part = [result for result in content["results"] if result["kind"] == kind]
        if cells := common.beside(part, "seconds", size):
            columns[f"time, {content['step']}, {kind}, n = {size:,}"] = cells
    return columns


def plots(content: dict[str, Any]) -> dict[str, common.Plot]:
    found = {}
    for kind in kinds_of(content):
        if kind == common.HUBS:
            continue  # one size: nothing to draw
        part = [result for result in content["results"] if result["kind"] == kind]
        title = f"Time of one pooling step ({kind}, {content['step']}, {content['machine']['device']})"
        figures = (read(part, "seconds") for read in (common.curves, common.exhausted))
        found["_" + kind.replace("'s", "").replace(" ", "_")] = common.Plot(
            title, "nodes a graph", "seconds", *figures
        )
    return found


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--backward", action="store_true", help="forward and backward")
    parser.add_argument("--paper", action="store_true", help="the batches of the paper instead of ours")
    common.add_limits(parser)
    options = parser.parse_args()
    device = common.prepare(options)
    step = "forward and backward" if options.backward else "forward"
    content = {"channels": CHANNELS, "step": step, "results": run(options, device)}
    print("\n" + report(content))
    stem = ("speed_paper" if options.paper else "speed") + ("_backward" if options.backward else "_forward")
    path = options.output / f"{stem}_{device.type}.json"
    common.save_plots(path, plots(common.save(path, device, **content)))


if __name__ == "__main__":
    main()
