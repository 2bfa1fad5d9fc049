"""Peak memory of one pooling step, ours and others', on growing sparse graphs.

    python benchmarks/memory.py --device cpu|cuda [--backward] [--quick]

Erdos-Renyi graphs with 2n undirected edges, both directions stored, 128 channels. Counted are the bytes that
the allocator handed out above the inputs, at their peak, exactly: on CUDA its own statistics, on the CPU the
running sum over its reports to torch's profiler. With --backward the features require a gradient; gradients
of features and parameters count. Every point runs in its own process, with its memory limited by CUDA's
allocator or, on the CPU, by the system; a method that runs out of memory or time is marked so and is not
tried at larger sizes.
"""

import argparse
from typing import Any

import common
import torch
from methods import COLUMNS, METHODS, Method, available, outputs
from tqdm import tqdm

CHANNELS = 128


def measure(method: Method, num_nodes: int, device: torch.device, backward: bool, threads: int) -> int:
    """Peak bytes of one step."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    edge_index = common.random_graph(num_nodes, 2 * num_nodes)[0].to(device)
    x = torch.randn(num_nodes, CHANNELS).to(device)
    batch = torch.zeros(num_nodes, dtype=torch.int64, device=device)
    pool = method.make(CHANNELS, num_nodes).to(device)

    def step() -> object:
        if not backward:
            with torch.no_grad():
                return pool(x, edge_index, batch)
        result = pool(x.requires_grad_(), edge_index, batch)
        sum(tensor.sum() for tensor in outputs(result)).backward()
        return result

    return common.peak_bytes(step, device)


def known_size(device: torch.device) -> int:
    """An op of known size: 6 MiB at its peak, in pieces that no allocator rounds up."""

    def op() -> torch.Tensor:
        first = torch.empty(1 << 20, dtype=torch.float32, device=device)
        second = torch.empty(1 << 19, dtype=torch.float32, device=device)
        del first
        return second

    return common.peak_bytes(op, device)


def run(options: argparse.Namespace, device: torch.device) -> list[dict]:
    limits = common.limits(options)
    exact = common.isolated(known_size, device, **{**limits, "seconds": 60})
    assert exact == 6 << 20, f"the measuring of memory is off: {exact}"
    largest = 10_000 if options.quick else options.largest
    sizes = [10**power for power in range(3, 8) if 10**power <= largest]
    results = []
    measured = available()
    with tqdm(total=len(measured) * len(sizes), desc="memory") as progress:
        for method in measured:
            failed = None
            most = method.largest if device.type != "cpu" else min(method.largest, method.profiled)
            for num_nodes in sizes:
                progress.set_postfix_str(f"{method.name}, {num_nodes:,} nodes")
                if failed is None and num_nodes <= most:
                    peak = common.isolated(
                        measure, method, num_nodes, device, options.backward, options.threads, **limits
                    )
                    failed = peak if isinstance(peak, str) else None
                    results.append({"method": method.name, "num_nodes": num_nodes, "peak": peak})
                progress.update()
    return results


NOTES = """\
Our layer holds tiles of edges and nodes instead of a row of features per edge, so its peak is what comes
out, the scores and the coarse graph. At 1,000 nodes the tiles themselves are the larger part.

EdgePooling calls torch for every edge: on the CPU the record of its calls outgrows the memory beyond 10,000
nodes, so its peak there is unknown."""


MEASURE = "Peak memory"


def beside(content: dict[str, Any]) -> dict[str, dict[str, float | str]]:
    """What README.md shows of each peer: a column a size."""
    return {
        f"{content['step']}, n = {size:,}": common.beside(content["results"], "peak", size)
        for size in (1_000, 100_000)
    }


def report(content: dict[str, Any]) -> str:
    """The table, in Markdown."""
    title = f"Peak bytes per node, {content['step']}, {content['channels']} channels:"
    cells = common.comparison(
        content["results"], "peak", METHODS, COLUMNS, lambda peak, n: f"{peak / n:,.0f}"
    )
    words = common.better_and_worse(content["results"], "peak", "Less memory", "More")
    return f"{title}\n\n{cells}\n\n{words}"


def plots(content: dict[str, Any]) -> dict[str, common.Plot]:
    title = f"Peak memory of one pooling step ({content['step']}, {content['machine']['device']})"
    found = (read(content["results"], "peak") for read in (common.curves, common.exhausted))
    return {"": common.Plot(title, "nodes (2n undirected edges)", "bytes", *found)}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--backward", action="store_true", help="forward and backward, gradients counted")
    parser.add_argument("--largest", type=int, default=1_000_000, help="most nodes")
    common.add_limits(parser)
    options = parser.parse_args()
    device = common.prepare(options)
    step = "forward and backward" if options.backward else "forward"
    limits = common.stated_limits(options)
    content = {"channels": CHANNELS, "step": step, "limits": limits, "results": run(options, device)}
    print("\n" + report(content))
    path = options.output / f"memory_{'backward' if options.backward else 'forward'}_{device.type}.json"
    common.save_plots(path, plots(common.save(path, device, **content)))


if __name__ == "__main__":
    main()
