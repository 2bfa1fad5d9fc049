"""Peak memory of one pooling step, ours and others', on growing sparse graphs.

    python benchmarks/memory.py --device cpu|cuda [--backward] [--quick]

Erdos-Renyi graphs with 2n undirected edges, both directions stored, 128 channels. The figure is the exact
peak of the bytes that the allocator handed out, above the inputs: on CUDA from its statistics, on the CPU the
running sum over its reports to torch's profiler. With --backward the features require a gradient; gradients
of features and parameters count. Every point runs in its own process, with its memory limited by CUDA's
allocator or, on the CPU, by the system; a method that runs out of memory or time is marked so and is not
tried at larger sizes. Results are saved method by method; --resume continues after the last.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import common
import torch
from methods import Method, available, outputs
from pages.memory import CHANNELS, plots, report
from tqdm import tqdm


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
    """A function of known peak memory: 6 MiB, in pieces that no allocator rounds up."""

    def op() -> torch.Tensor:
        first = torch.empty(1 << 20, dtype=torch.float32, device=device)
        second = torch.empty(1 << 19, dtype=torch.float32, device=device)
        del first
        return second

    return common.peak_bytes(op, device)


def run(options: argparse.Namespace, device: torch.device, results: list[dict[str, Any]]) -> Iterator[None]:
    """Adds to the results, which may come from an earlier start; yields after every method."""
    limits = common.limits(options)
    exact = common.isolated(known_size, device, **{**limits, "seconds": 60})
    assert exact == 6 << 20, f"the measuring of memory is off: {exact}"
    largest = 10_000 if options.quick else options.largest
    sizes = [10**power for power in range(3, 8) if 10**power <= largest]
    done = {result["method"] for result in results}
    measured = [method for method in available() if method.name not in done]
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
            yield


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--backward", action="store_true", help="forward and backward, gradients counted")
    parser.add_argument("--largest", type=int, default=1_000_000, help="most nodes")
    common.add_limits(parser)
    common.add_resume(parser)
    options = parser.parse_args()
    device = common.prepare(options)
    step = "forward and backward" if options.backward else "forward"
    limits = common.stated_limits(options)
    facts = {"channels": CHANNELS, "step": step, "limits": limits}
    path = options.output / f"memory_{'backward' if options.backward else 'forward'}_{device.type}.json"
    results = common.resumed(path, options.resume)
    for _ in run(options, device, results):
        common.save(path, device, **facts, results=results)
    content = {**facts, "results": results}
    print("\n" + report(content))
    common.save_plots(path, plots({"machine": common.machine(device), **content}))


if __name__ == "__main__":
    main()
