"""How the cost of ``gpn_ops.distributed`` grows with ranks and nodes, and the cost per edge and node.

A random graph with 8 stored edges per node is cut into even shards, edges in random order. The ranks are
single-threaded processes on this machine, joined by gloo over the loopback interface. Before anything is
timed, every rank compares its results with the single process.

  parse, coarsen   seconds of wall clock on the slowest rank, median; with more ranks than cores, or other
                   load, ranks wait for each other
  cpu              seconds of CPU time of all ranks together: the cost of sharding
  payload          bytes per node that a rank passes to collectives
  wire             bytes per node that a rank sends, counted at the loopback interface (on a quiet machine),
                   and 2 (R - 1) / R times the payload, which a ring all-reduce must send

benchmarks/scaling.py starts from the costs per edge and per node, in CPU time of one thread on a graph that
does not fit the caches.
"""

import datetime
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
import torch.distributed as dist
from pages.distributed import rank_table
from torch import Tensor
from tqdm import tqdm

import gpn_ops
import gpn_ops.distributed
from gpn_ops import keys

EDGES_PER_NODE = 8
CPU = torch.device("cpu")


def shuffled_graph(num_nodes: int) -> tuple[Tensor, Tensor]:
    edge_index, scores = common.random_graph(num_nodes, EDGES_PER_NODE // 2 * num_nodes)
    order = torch.randperm(scores.numel(), generator=torch.Generator().manual_seed(1))
    return edge_index[:, order].contiguous(), scores[order].contiguous()


def loopback_bytes() -> int:
    """The bytes sent over the loopback interface so far; 0 if the system does not report them."""
    counters = Path("/proc/net/dev")
    if not counters.exists():
        return 0
    line = next(
        (line for line in counters.read_text().splitlines() if line.strip().startswith("lo:")), "lo: 0"
    )
    return int(line.split(":")[1].split()[0])


class Payload:
    """Counts the bytes that this rank passes to collectives."""

    def __init__(self) -> None:
        self.bytes = 0
        for name, position in {"all_reduce": 0, "all_gather": 1, "all_to_all_single": 1}.items():
            setattr(dist, name, self._counted(getattr(dist, name), position))

    def _counted(self, collective: Callable[..., Any], position: int) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            self.bytes += arguments[position].nbytes
            return collective(*arguments, **options)

        return counting


def work(rank: int, size: int, folder: str, num_nodes: int, repeats: int, answers: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=120),
    )
    edge_index, scores = shuffled_graph(num_nodes)
    per_rank = scores.numel() // size
    mine = slice(rank * per_rank, (rank + 1) * per_rank if rank < size - 1 else None)
    my_edges, my_scores = edge_index[:, mine].contiguous(), scores[mine].contiguous()

    cluster = gpn_ops.distributed.parse(my_edges, my_scores, num_nodes)
    assert torch.equal(cluster, gpn_ops.parse(edge_index, scores, num_nodes))
    coarse = gpn_ops.distributed.coarsen(my_edges, cluster)
    expected = gpn_ops.coarsen(edge_index, cluster)
    rows = expected.edge_index[0]
    num_clusters = expected.representative.numel()
    owned = (rows >= rank * num_clusters // size) & (rows < (rank + 1) * num_clusters // size)
    assert torch.equal(coarse.edge_index, expected.edge_index[:, owned])
    del edge_index, scores, coarse, expected, rows, owned

    payload = Payload()

    def measured(function: Callable[[], Any]) -> dict[str, float]:
        wall, cpu, wire, before = [], [], [], payload.bytes
        for _ in range(repeats):
            dist.barrier()
            start = time.perf_counter(), time.process_time(), loopback_bytes()
            function()
            wall.append(time.perf_counter() - start[0])
            cpu.append(time.process_time() - start[1])
            dist.barrier()
            wire.append(loopback_bytes() - start[2])
        return {
            "seconds": statistics.median(wall),
            "cpu_seconds": statistics.median(cpu),
            "wire_bytes_of_all_ranks": statistics.median(wire),
            "payload_bytes": (payload.bytes - before) / repeats,
        }

    answers.put(
        {
            "parse": measured(lambda: gpn_ops.distributed.parse(my_edges, my_scores, num_nodes)),
            "coarsen": measured(lambda: gpn_ops.distributed.coarsen(my_edges, cluster)),
        }
    )
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(size: int, num_nodes: int, repeats: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        answers = context.Queue()
        processes = [
            context.Process(target=work, args=(rank, size, folder, num_nodes, repeats, answers))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        said = [answers.get(timeout=300) for _ in range(size)]
        for process in processes:
            process.join(60)
    return {
        call: {
            "seconds": max(rank[call]["seconds"] for rank in said),
            "cpu_seconds": sum(rank[call]["cpu_seconds"] for rank in said),
            "payload_bytes_per_node": max(rank[call]["payload_bytes"] for rank in said) / num_nodes,
            "wire_bytes_per_node": min(rank[call]["wire_bytes_of_all_ranks"] for rank in said)
            / size
            / num_nodes,
        }
        for call in ("parse", "coarsen")
    }


def cpu_nanoseconds(function: Callable[[], Any], repeats: int) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return 1e9 * statistics.median(times)


def costs(num_nodes: int, repeats: int) -> dict[str, float]:
    """The costs of one thread, in ns of CPU time per edge or node."""
    n = num_nodes
    sorted_edges, sorted_scores = common.random_graph(n, EDGES_PER_NODE // 2 * n)
    edges, scores = shuffled_graph(n)
    m = scores.numel()
    dominant = gpn_ops.dominant(edges, scores, n)
    choices = keys.self_choices(n, CPU)
    choices[1] = torch.where(dominant >= 0, edges[1].index_select(0, dominant.clamp(min=0)), choices[0])
    cluster = gpn_ops.parse(edges, scores, n)
    assert torch.equal(gpn_ops.components(choices, n), cluster)

    def exchanged() -> None:
        """What the exchange computes on a rank, without the exchange."""
        for node in keys.tiles(n, 64 << 20):
            code, column, has_edge = keys.best_of_part(edges, scores, dominant, node)
            claim = column.masked_fill_(~has_edge.logical_and_(code == code.clone()), -1).int()
            torch.where(claim >= 0, (claim & 0x7FFFFFFF).to(torch.int64), choices[1, node])

    def by(count: int, function: Callable[[], Any]) -> float:
        return cpu_nanoseconds(function, repeats) / count

    return {
        "num_nodes": n,
        "num_edges": m,
        "dominant_sorted_ns_per_edge": by(m, lambda: gpn_ops.dominant(sorted_edges, sorted_scores, n)),
        "dominant_shuffled_ns_per_edge": by(m, lambda: gpn_ops.dominant(edges, scores, n)),
        "keys_ns_per_node": by(n, exchanged),
        "components_ns_per_node": by(n, lambda: gpn_ops.components(choices, n)),
        "coarsen_sorted_ns_per_edge": by(m, lambda: gpn_ops.coarsen(sorted_edges, cluster)),
        "coarsen_shuffled_ns_per_edge": by(m, lambda: gpn_ops.coarsen(edges, cluster)),
        "coarse_edges_per_edge": gpn_ops.coarsen(edges, cluster).edge_index.size(1) / m,
        "clusters_per_node": (int(cluster.max()) + 1) / n,
    }


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    if options.device != "cpu":
        parser.error("--device: the ranks of this benchmark are processes on the CPU")
    if options.processor_time:
        parser.error("--processor-time: this benchmark reads both clocks as it is")
    common.prepare(options)
    sizes = [10_000, 100_000] if options.quick else [10_000, 100_000, 1_000_000]
    repeats = 3 if options.quick else 7

    results = []
    for num_nodes, size in tqdm([(n, r) for n in sizes for r in options.ranks], desc="ranks"):
        results.append({"num_nodes": num_nodes, "ranks": size, **run_ranks(size, num_nodes, repeats)})

    print(rank_table(results))
    torch.set_num_threads(1)
    by_edge = costs(100_000 if options.quick else 2_000_000, 3 if options.quick else 5)
    print(common.table(["cost (one thread)", ""], [[name, f"{cost:.3g}"] for name, cost in by_edge.items()]))
    common.save(options.output / "distributed_cpu.json", CPU, results=results, costs=by_edge)


if __name__ == "__main__":
    main()
