"""Memory and time of the pooling layer, all defaults, beside PyG's pooling layers in the same run.

    python benchmarks/layer.py [--device cuda] [--quick] [--part memory|time] [--json PATH]

Memory: the peak of the bytes that the allocator handed out above the inputs, exact, on an Erdos-Renyi graph
with 2n undirected edges and 128 channels. Forward is without gradients; in forward + backward the features
require a gradient, and the gradients of features and parameters count.

Time: a batch of 10 dense graphs (edge probability 0.2, n nodes each), forward without gradients. What the
layer is measured by are the bare matrix products that score each undirected edge once, outputs preallocated.
Calls are interleaved and the fastest of each counts, so that a busy machine disturbs both alike; rivals that
take seconds are called once. `Algorithm 1` is the literal algorithm without the rest of a layer. Where other
processes keep the cores busy, `--threads 1 --cpu-time` measures the time on the core alone.

Nothing is measured before the layer has been checked against the paper's formulas, and the measuring of
memory on operators of known size.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler reports its start and end otherwise

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch_geometric.nn import ASAPooling, EdgePooling, SAGPooling, TopKPooling

from gpn_ops import ops, reference
from gpn_ops.nn import ParsePooling

CHANNELS = 128
NUM_GRAPHS = 10
EDGE_PROBABILITY = 0.2
MEMORY_SIZES = (10_000, 100_000, 1_000_000)
TIME_SIZES = (100, 200, 500, 1000)
SECONDS_TO_REPEAT = 1.5  # what takes longer is called once


# ------------------------------------------------------------------------------------------------------------
# Measuring
# ------------------------------------------------------------------------------------------------------------


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """The highest sum of bytes handed out and not returned during ``call``, above what was there before."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        call()
        torch.cuda.synchronize()
        return torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    current = peak = 0
    for event in events:
        current += event.nbytes()
        peak = max(peak, current)
    return peak


clock = time.perf_counter


def seconds(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = clock()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def fastest(calls: dict[str, Callable[[], object]], device: torch.device, budget: float) -> dict[str, float]:
    """The fastest of several interleaved calls of each: for ``budget`` seconds, and 5 rounds at least."""
    times = {name: seconds(call, device) for name, call in calls.items()}
    repeated = [name for name in calls if times[name] < SECONDS_TO_REPEAT]
    start, rounds = clock(), 0
    while repeated and (rounds < 5 or clock() - start < budget):
        rounds += 1
        for name in repeated:
            times[name] = min(times[name], seconds(calls[name], device))
    return times


# ------------------------------------------------------------------------------------------------------------
# Graphs
# ------------------------------------------------------------------------------------------------------------


def sparse_graph(num_nodes: int, device: torch.device) -> Tensor:
    """Erdos-Renyi with 2n undirected edges, both directions stored, sorted by row then column."""
    generator = torch.Generator().manual_seed(0)
    i = torch.randint(num_nodes, (2 * num_nodes,), generator=generator)
    j = torch.randint(num_nodes - 1, (2 * num_nodes,), generator=generator)
    one_way = torch.stack([i, j + (j >= i)])
    edge_index = torch.cat([one_way, one_way.flip(0)], dim=1)
    order = (edge_index[0] * num_nodes + edge_index[1]).argsort()
    return edge_index[:, order].contiguous().to(device)


def dense_batch(num_nodes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """10 graphs in which every pair of nodes has an edge with probability 0.2; edge_index and batch."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for k in range(NUM_GRAPHS):
        upper = torch.rand(num_nodes, num_nodes, generator=generator).triu(1) > 1 - EDGE_PROBABILITY
        parts.append((upper | upper.t()).nonzero().t() + k * num_nodes)
    batch = torch.arange(NUM_GRAPHS).repeat_interleave(num_nodes)
    return torch.cat(parts, dim=1).to(device), batch.to(device)


# ------------------------------------------------------------------------------------------------------------
# Validation
# ------------------------------------------------------------------------------------------------------------


def validate(device: torch.device) -> None:
    def known_size() -> Tensor:
        first = torch.empty(1000, 100, device=device)
        second = torch.empty(500, 100, device=device)
        del first
        return torch.cat([second, second])

    assert peak_bytes(known_size, device) == 4 * 150_000, "the measuring of memory is not exact"

    torch.manual_seed(0)
    edge_index, x = sparse_graph(40, device), torch.randn(40, 8, device=device)
    pool = ParsePooling(8).to(device)
    scorer, sets = pool.select.scorer, pool.multiset
    with torch.no_grad():
        out = pool(x, edge_index)
        hidden = scorer.norms[0](scorer.lins[0](x[edge_index[0]] * x[edge_index[1]])).relu()
        scores = scorer.lins[1](hidden).sigmoid().squeeze(1)
        cluster = reference.algorithm1(edge_index, scores, 40)
        S = reference.gen(cluster)
        sums = S.t() @ sets.norm1(x + sets.lins1[0](x))
        mask = reference.mask(edge_index, scores, cluster, S.size(1)).mask
        expected = sets.norm2(sums + sets.lins2[0](sums)) * mask[:, None]
    assert torch.equal(out.cluster, cluster), "clusters differ from Algorithm 1"
    assert torch.equal(out.edge_index, reference.coarsen(edge_index, cluster).edge_index)
    torch.testing.assert_close(out.x, expected)


# ------------------------------------------------------------------------------------------------------------
# Memory
# ------------------------------------------------------------------------------------------------------------


def memory(num_nodes: int, device: torch.device) -> dict[str, float]:
    """Bytes a node of both layers, forward and forward + backward."""
    torch.manual_seed(0)
    edge_index = sparse_graph(num_nodes, device)
    x = torch.randn(num_nodes, CHANNELS, device=device)
    out: dict[str, float] = {"n": num_nodes}
    for name, layer in {"TopKPooling": TopKPooling(CHANNELS), "ParsePooling": ParsePooling(CHANNELS)}.items():
        layer = layer.to(device)

        def forward(layer: Any = layer) -> object:
            with torch.no_grad():
                return layer(x, edge_index)

        def forward_backward(layer: Any = layer) -> object:
            pooled = layer(x, edge_index)
            pooled[0].sum().backward()
            return pooled

        forward()  # what is allocated once and for all is not part of it
        out[f"{name} forward"] = peak_bytes(forward, device) / num_nodes
        x.requires_grad_()
        out[f"{name} forward + backward"] = peak_bytes(forward_backward, device) / num_nodes
        x.requires_grad_(False).grad = None
    return out


# ------------------------------------------------------------------------------------------------------------
# Time
# ------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def times(num_nodes: int, device: torch.device, budget: float) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of the layer and its rivals; seconds of the layer's parts."""
    torch.manual_seed(0)
    edge_index, batch = dense_batch(num_nodes, device)
    n = batch.numel()
    x = torch.randn(n, CHANNELS, device=device)
    pool = ParsePooling(CHANNELS).to(device)
    first, last = (lin.weight.t() for lin in pool.select.scorer.lins)
    pairs, slot = ops.undirected(edge_index, n)
    rows = torch.randn(pairs.size(1), CHANNELS, device=device)
    hidden, logits = torch.empty_like(rows), rows.new_empty(rows.size(0), 1)

    def bare_products() -> None:
        torch.mm(rows, first, out=hidden)
        torch.mm(hidden, last, out=logits)

    def layer() -> object:
        return pool(x, edge_index, batch=batch)

    main = fastest({"bare products": bare_products, "ParsePooling": layer}, device, 4 * budget)

    scores = ops.lift(pool.select.scorer.score_pairs(x, pairs), slot)
    cluster = ops.parse(edge_index, scores, n)
    num_clusters = ops.coarsen(edge_index, cluster).representative.numel()
    parts = fastest(
        {
            "undirected": lambda: ops.undirected(edge_index, n),
            "score": lambda: pool.select.scorer.score_pairs(x, pairs),
            "lift": lambda: ops.lift(scores, slot),
            "parse": lambda: ops.parse(edge_index, scores, n),
            "coarsen": lambda: ops.coarsen(edge_index, cluster),
            "mask": lambda: ops.mask(edge_index, scores, cluster, num_clusters),
            "multiset": lambda: pool.multiset(x, cluster, num_clusters),
        },
        device,
        budget,
    )
    edge, asap, sag = (kind(CHANNELS).to(device) for kind in (EdgePooling, ASAPooling, SAGPooling))
    rivals = fastest(
        {
            "EdgePooling": lambda: edge(x, edge_index, batch),
            "ASAPooling": lambda: asap(x, edge_index, batch=batch),
            "SAGPooling": lambda: sag(x, edge_index, batch=batch),
            "Algorithm 1": lambda: reference.algorithm1(edge_index, scores, n),
        },
        device,
        budget,
    )
    return {**main, **rivals}, parts


# ------------------------------------------------------------------------------------------------------------
# Report
# ------------------------------------------------------------------------------------------------------------


def table(rows: list[dict[str, Any]]) -> None:
    columns = list(rows[0])
    cells = [columns] + [
        [f"{row[c]:,.4g}" if isinstance(row[c], float) else f"{row[c]}" for c in columns] for row in rows
    ]
    widths = [max(len(line[k]) for line in cells) for k in range(len(columns))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print(flush=True)


def report_memory(sizes: tuple[int, ...], device: torch.device, result: dict[str, Any]) -> None:
    print("Peak bytes a node above the inputs, and as multiples of TopKPooling")
    rows = result["memory"] = [memory(n, device) for n in sizes]
    for row in rows:
        for kind in ("forward", "forward + backward"):
            row[f"ratio, {kind}"] = row[f"ParsePooling {kind}"] / row[f"TopKPooling {kind}"]
    table(rows)


def report_time(sizes: tuple[int, ...], device: torch.device, budget: float, result: dict[str, Any]) -> None:
    print("Milliseconds on 10 dense graphs of n nodes, and as a multiple of the bare products")
    result["time"], result["parts"] = [], []
    for n in sizes:
        layers, parts = times(n, device, budget)
        print({"n": n, **layers}, flush=True)  # the larger sizes take minutes
        row: dict[str, Any] = {"n": n, **{name: 1000 * value for name, value in layers.items()}}
        row["ratio"] = layers["ParsePooling"] / layers["bare products"]
        result["time"].append(row)
        result["parts"].append({"n": n, **{name: 1000 * value for name, value in parts.items()}})
    table(result["time"])
    print("Milliseconds of the layer's parts, each called on its own")
    table(result["parts"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="the smallest size of each table only")
    parser.add_argument("--part", choices=["memory", "time", "all"], default="all")
    parser.add_argument("--cpu-time", action="store_true", help="time on the core; with --threads 1")
    parser.add_argument("--json", type=Path, help="where to save the figures")
    args = parser.parse_args()
    if args.cpu_time:
        if args.threads != 1 or args.device != "cpu":
            parser.error("--cpu-time is for one thread on the CPU")
        global clock
        clock = time.process_time
    device = torch.device(args.device)
    torch.set_num_threads(args.threads)

    validate(device)
    result: dict[str, Any] = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "threads": args.threads,
        "clock": clock.__name__,
    }

    if args.part != "time":
        report_memory(MEMORY_SIZES[:1] if args.quick else MEMORY_SIZES, device, result)
    if args.part != "memory":
        report_time(TIME_SIZES[:1] if args.quick else TIME_SIZES, device, 1.0 if args.quick else 5.0, result)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
