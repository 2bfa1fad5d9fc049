"""Time of one pooling step, ours and others'.

    python benchmarks/speed.py --device cpu|cuda [--backward] [--paper] [--quick]

Kinds of input, 128 channels, both directions stored:

  dense batch    10 graphs of n nodes and n^2/10 undirected edges each
  sparse batch   10 graphs of n nodes and 2n undirected edges each
  large graph    one graph of n nodes and 2n undirected edges
  hubs           a real graph of 304,031 nodes, the largest with 88,858 neighbours, where data/large has it

--paper takes the inputs of the paper's figure instead: 50 graphs of n = 100 to 1,100 nodes and n^2/10
undirected edges each.

After a warm-up, calls are repeated with the device synchronised; figures are medians and quartiles. Every
point runs in its own processes, in rounds: each round measures every method once, so that a passing load on
the machine affects all of them. A method that runs out of memory or time is marked so and is not tried at
larger sizes. Our layer's clusters are compared with the plain-PyTorch reference before anything is timed.
Results are saved size by size; --resume continues after the last.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

import common
import torch
from methods import Method, available, outputs
from pages.speed import CHANNELS, plots, report
from torch import Tensor
from tqdm import tqdm

from gpn_ops import reference
from gpn_ops.nn import ParsePooling

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
) -> list[float]:
    """Seconds of some calls after a warm-up, or of the first if that takes a second."""
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

    return common.repeated({method.name: step}, device, seconds=0.5)[method.name]


PATIENCE = 10.0  # seconds; a method that takes longer is measured once


def measure_size(
    methods: list[Method], kind: str, num_nodes: int, options: argparse.Namespace, device: torch.device
) -> Iterator[dict[str, Any]]:
    """One result per method, all at one size."""
    runs: dict[str, list[float]] = {method.name: [] for method in methods}
    failed: dict[str, str] = {}
    for turn in range(1 if options.quick else options.rounds):
        for method in methods:
            if method.name in failed or (turn and max(runs[method.name]) > PATIENCE):
                continue
            arguments = (method, kind, num_nodes, device, options.backward, options.threads)
            times = common.isolated(measure, *arguments, **common.limits(options))
            if isinstance(times, str):
                failed[method.name] = times
            else:
                runs[method.name] += times
    for name, times in runs.items():
        point = {"kind": kind, "method": name, "num_nodes": num_nodes}
        if name in failed:
            yield point | {"seconds": failed[name]}
        else:
            timing = common.summary(times)
            yield point | {"seconds": timing.median, "low": timing.low, "high": timing.high}


def run(options: argparse.Namespace, device: torch.device, results: list[dict[str, Any]]) -> Iterator[None]:
    """Adds to the results, which may come from an earlier start; yields after every size, so that
    a run stopped after an hour keeps its results."""
    kinds = {kind: sizes for kind, (_, _, sizes) in (PAPER if options.paper else KINDS).items()}
    if not options.quick and not options.paper and common.hub_file():
        kinds[common.HUBS] = (HUB_NODES,)
    for kind, sizes in kinds.items():
        limits = {**common.limits(options), "seconds": 60}
        same = common.isolated(validate, kind, sizes[0], device, **limits)
        assert same is not False, f"{kind}: the layer's clusters are not the reference's"
        assert same is True, f"{kind}: the layer's clusters were not compared ({same})"
    points = [
        (kind, num_nodes)
        for kind, sizes in kinds.items()
        for num_nodes in (sizes[:1] if options.quick else sizes)
        if num_nodes <= options.largest
    ]
    if not points:
        sys.exit(f"--largest {options.largest}: none of these graphs is so small")
    done = {(result["kind"], result["num_nodes"]) for result in results}
    failed = {(result["kind"], result["method"]) for result in results if isinstance(result["seconds"], str)}
    points = [point for point in points if point not in done]
    methods = available()
    for kind, num_nodes in (progress := tqdm(points, desc="time")):
        progress.set_postfix_str(f"{kind}, {num_nodes:,} nodes")
        able = [
            method for method in methods if num_nodes <= method.largest and (kind, method.name) not in failed
        ]
        for result in measure_size(able, kind, num_nodes, options, device):
            results.append(result)
            if isinstance(result["seconds"], str):
                failed.add((kind, result["method"]))
        yield


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--backward", action="store_true", help="forward and backward")
    parser.add_argument("--paper", action="store_true", help="the batches of the paper instead of ours")
    parser.add_argument("--largest", type=int, default=1_000_000, help="most nodes of a graph")
    parser.add_argument("--rounds", type=int, default=3, help="how often the methods take turns (quick: 1)")
    common.add_limits(parser)
    common.add_resume(parser)
    options = parser.parse_args()
    device = common.prepare(options)
    step = "forward and backward" if options.backward else "forward"
    facts = {"channels": CHANNELS, "step": step, "limits": common.stated_limits(options)}
    stem = ("speed_paper" if options.paper else "speed") + ("_backward" if options.backward else "_forward")
    path = options.output / f"{stem}_{device.type}.json"
    results = common.resumed(path, options.resume)
    for _ in run(options, device, results):
        common.save(path, device, **facts, results=results)
    content = {"machine": common.machine(device), **facts, "results": results}
    print("\n" + report(content))
    common.save_plots(path, plots(content))


if __name__ == "__main__":
    main()
