"""Time of ``gpn_ops.parse``, compared with its peers and with the memory-bandwidth limit.

Sparse graphs have 2n undirected edges, the dense one n^2/10; both directions are stored. Methods:

  parse           the operator, edges sorted by row as PyG stores them
  unsorted        the operator, edges shuffled
  limit           reading both rows and the scores once, plus one random gather of n entries
  numpy + scipy   maximum.reduceat for the dominant edges, scipy's connected components (sorted edges only)
  reference       the vectorised plain-PyTorch version
  algorithm 1     the paper's listing, literally, as long as it is fast enough

  components, ours and scipy's, are those of all edges, not of the dominant ones alone

--busy N measures while N other processes are busy.
--hubs takes a real graph whose largest hub has 88,858 neighbours, and a random one of the same size.

All results are compared with each other before anything is timed. `--instructions` also counts instructions
per edge of the CPU kernels with callgrind (needs valgrind and cmake), which no load on the machine disturbs.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import common
from instructions import count_instructions
from pages.parse import plots, report
from parse_case import Case
from torch import Tensor
from tqdm import tqdm


def graphs(sizes: list[int]) -> Iterator[tuple[str, Tensor, Tensor, int]]:
    """Kind, edge_index, scores and nodes of the random graphs."""
    for num_nodes in tqdm(sizes, desc="timing"):
        yield "sparse", *common.random_graph(num_nodes, 2 * num_nodes), num_nodes
    yield "dense", *common.random_graph(3000, 900_000), 3000


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Runs this many processes that compete for the processors."""
    loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--largest", type=int, default=10_000_000, help="most nodes of a sparse graph")
    parser.add_argument("--instructions", action="store_true", help="count instructions per edge as well")
    common.add_hubs(parser)
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="keep N other processes busy meanwhile"
    )
    options = parser.parse_args()
    device = common.prepare(options)
    largest = min(options.largest, 100_000) if options.quick else options.largest
    sizes = [10**power for power in range(3, 8) if 10**power <= largest]
    results = []
    with busy(options.busy):
        for kind, edge_index, scores, num_nodes in (
            common.hubs_and_random(options.quick) if options.hubs else graphs(sizes)
        ):
            results.append({"kind": kind, **Case(edge_index, scores, num_nodes, device).measure()})
    content: dict[str, Any] = {"results": results, "busy": options.busy}
    if options.instructions:
        content["instructions_per_edge"] = {
            size: count_instructions("parse", size) / (4 * size)
            for size in tqdm([size for size in sizes if size >= 10_000], desc="counting instructions")
        }
    print(report(content))

    stem = "parse_hubs" if options.hubs else "parse_busy" if options.busy else "parse"
    path = options.output / f"{stem}_{device.type}.json"
    common.save_plots(path, plots(common.save(path, device, **content)))


if __name__ == "__main__":
    main()
