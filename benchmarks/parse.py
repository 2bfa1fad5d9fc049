"""How fast ``gpn_ops.parse`` is, beside its peers and beside the memory-bandwidth limit.

Sparse graphs have 2n undirected edges, the dense one n^2/10; both directions are stored. Methods:

  parse           the operator, edges sorted by row as PyG stores them
  unsorted        the operator, edges shuffled
  limit           reading both rows and the scores once, plus one random gather of n entries
  numpy + scipy   maximum.reduceat for the dominant edges, scipy's connected components (sorted edges only)
  reference       the vectorised plain-PyTorch version
  algorithm 1     the paper's listing, literally, while it is bearable

  components, and scipy's beside it, are those of all edges and not of the dominant ones alone

With --hubs instead a real graph whose largest hub has 88,858 neighbours, beside a random one as large.

All are checked against each other before anything is timed. `--instructions` also counts instructions per
edge of the CPU kernels with callgrind (needs valgrind and cmake): no load on the machine disturbs that.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import common
import numpy as np
import torch
from guard import count_instructions
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from tqdm import tqdm

import gpn_ops
from gpn_ops import reference

ALGORITHM1_NODES = 1_000
REFERENCE_NODES = 1_000_000


def numpy_and_scipy(row: np.ndarray, col: np.ndarray, scores: np.ndarray, num_nodes: int) -> np.ndarray:
    """What one writes without this operator: the components, numbered by scipy."""
    start = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    highest = np.maximum.reduceat(scores, start)
    reaches = np.flatnonzero(scores == np.repeat(highest, np.diff(np.r_[start, row.size])))
    first = reaches[np.r_[True, row[reaches[1:]] != row[reaches[:-1]]]]
    chosen = coo_array((np.ones(first.size, np.int8), (row[first], col[first])), shape=(num_nodes, num_nodes))
    return connected_components(chosen, directed=False)[1]


def scipy_components(row: np.ndarray, col: np.ndarray, num_nodes: int) -> np.ndarray:
    """The components of all edges; they are read as scipy wants them, which is part of the way."""
    edges = coo_array((np.ones(row.size, np.int8), (row, col)), shape=(num_nodes, num_nodes))
    return connected_components(edges, directed=False)[1]


def same_partition(cluster: Tensor, label: np.ndarray) -> bool:
    """Whether scipy's numbers name the same clusters."""
    _, first = np.unique(label, return_index=True)
    return bool((cluster.cpu().numpy()[first][label] == cluster.cpu().numpy()).all())


class Case:
    """One graph and every method on it."""

    def __init__(self, edge_index: Tensor, scores: Tensor, num_nodes: int, device: torch.device):
        self.num_nodes, self.device = num_nodes, device
        self.edge_index, self.scores = edge_index.to(device), scores.to(device)
        self.num_edges = scores.numel()
        random = torch.Generator().manual_seed(1)
        order = torch.randperm(self.num_edges, generator=random).to(device)
        self.shuffled_index = self.edge_index[:, order].contiguous()
        self.shuffled_scores = self.scores[order].contiguous()
        self.table = torch.arange(num_nodes, device=device)
        self.places = torch.randperm(num_nodes, generator=random).to(device)
        self.gathered = torch.empty_like(self.table)

    def limit(self) -> None:
        self.edge_index.amax(), self.scores.amax()
        torch.index_select(self.table, 0, self.places, out=self.gathered)

    def methods(self) -> dict[str, Callable[[], object]]:
        n = self.num_nodes
        methods: dict[str, Callable[[], object]] = {
            "limit": self.limit,
            "parse": lambda: gpn_ops.parse(self.edge_index, self.scores, n),
            "unsorted": lambda: gpn_ops.parse(self.shuffled_index, self.shuffled_scores, n),
            "components": lambda: gpn_ops.components(self.edge_index, n),
        }
        if self.device.type == "cpu":
            row, col, scores = self.edge_index[0].numpy(), self.edge_index[1].numpy(), self.scores.numpy()
            methods["numpy + scipy"] = lambda: numpy_and_scipy(row, col, scores, n)
            methods["components, scipy"] = lambda: scipy_components(row, col, n)
        if n <= REFERENCE_NODES:
            methods["reference"] = lambda: reference.parse(self.edge_index, self.scores, n)
        if n <= ALGORITHM1_NODES:
            methods["algorithm 1"] = lambda: reference.algorithm1(self.edge_index, self.scores, n)
        return methods

    def validate(self) -> None:
        methods = self.methods()
        cluster = methods["parse"]()
        assert torch.equal(methods["unsorted"](), cluster)
        for name in ("reference", "algorithm 1"):
            assert name not in methods or torch.equal(methods[name](), cluster), name
        if "numpy + scipy" in methods:
            assert same_partition(cluster, methods["numpy + scipy"]())
            assert same_partition(methods["components"](), methods["components, scipy"]())

    def measure(self) -> dict[str, object]:
        self.validate()
        runs = common.timed(self.methods(), self.device, seconds=1.0 if self.num_nodes < 5_000_000 else 4.0)
        scratch = common.peak_bytes(self.methods()["parse"], self.device) - 8 * self.num_nodes
        return {
            "num_nodes": self.num_nodes,
            "num_edges": self.num_edges,
            "seconds": {name: run._asdict() for name, run in runs.items()},
            "scratch_bytes_per_node": scratch / self.num_nodes,
        }


NOTES = """\
- What is left above the limit on sparse graphs are the random accesses beyond the first: joining a node to
  its choice and looking its label up are one each, a quarter of the nodes need a compare-and-swap, and the
  accesses of one thread meet lines that the other has just written. On one thread two fifths of the time
  are the sweep over the edges, which is bound by the chain of its comparisons rather than by memory.
- Unsorted edges cost one random access an edge instead of one a node, and with several threads two locked
  operations a node, which keep the processor from overlapping other accesses.
- Small graphs are bound by the call: about 20 microseconds through torch's dispatcher."""


def highlights(content: dict[str, Any]) -> list[list[str]]:
    """What README.md shows."""
    at = {(result["kind"], result["num_nodes"]): result for result in content["results"]}
    median = {
        key: {name: run["median"] for name, run in value["seconds"].items()} for key, value in at.items()
    }
    for (kind, _), seconds in median.items():
        if kind == common.HUBS and "numpy + scipy" in seconds:
            title = (
                f"`{{}}`, a real graph with hubs ({common.how(content['machine'])}): times faster than {{}}"
            )
            return [
                [title.format("parse", "numpy + scipy"), times(seconds, "numpy + scipy", "parse")],
                [title.format("components", "scipy"), times(seconds, "components, scipy", "components")],
            ]
    sparse, dense = median["sparse", 1_000_000], median["dense", 3000]
    return [
        [
            "`parse`, 10^6 nodes, 4 * 10^6 edges: time / memory-bandwidth limit",
            f"{sparse['parse'] / sparse['limit']:.2f}",
        ],
        ["the same beside numpy + scipy: times faster", f"{sparse['numpy + scipy'] / sparse['parse']:.1f}"],
        ["the same beside vectorised PyTorch: times faster", f"{sparse['reference'] / sparse['parse']:.0f}"],
        [
            "`parse`, dense (3000 nodes, 1.8 * 10^6 edges): time / limit",
            f"{dense['parse'] / dense['limit']:.2f}",
        ],
    ]


def times(median: dict[str, float], peer: str, ours: str) -> str:
    """How many times as long the peer takes."""
    return f"{median[peer] / median[ours]:.1f}" if peer in median and ours in median else "-"


def report(content: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    results = content["results"]
    names = list(dict.fromkeys(itertools.chain.from_iterable(result["seconds"] for result in results)))
    rows = []
    for result in results:
        median = {name: run["median"] for name, run in result["seconds"].items()}
        rows.append(
            [
                f"{result['kind']} {result['num_nodes']:,}",
                *(f"{1e3 * median[name]:.3g}" if name in median else "-" for name in names),
                f"{median['parse'] / median['limit']:.2f}",
                f"{median['unsorted'] / median['parse']:.2f}",
                times(median, "numpy + scipy", "parse"),
                *([times(median, "components, scipy", "components")] if "components, scipy" in names else []),
                f"{result['scratch_bytes_per_node']:.1f}",
            ]
        )
    ratios = ["parse / limit", "unsorted / parse", "numpy + scipy / parse"]
    ratios += ["scipy / components"] if "components, scipy" in names else []
    text = common.table(["nodes", *(f"{name} (ms)" for name in names), *ratios, "scratch bytes / node"], rows)
    if counted := content.get("instructions_per_edge"):
        rows = [[f"{int(size):,}", f"{count:.1f}"] for size, count in counted.items()]
        text += "\n\n" + common.table(["nodes", "instructions per edge, one thread"], rows)
    return text


def plots(content: dict[str, Any]) -> dict[str, common.Plot]:
    machine = content["machine"]
    title = f"Parsing a sparse graph ({machine['device']}, {machine['threads']} threads)"
    sparse = [result for result in content["results"] if result["kind"] == "sparse"]
    if not sparse:
        return {}  # two graphs of one size: nothing to draw
    return {"": common.Plot(title, "nodes (2n undirected edges)", "seconds", common.medians(sparse), {})}


def graphs(sizes: list[int]) -> Iterator[tuple[str, Tensor, Tensor, int]]:
    """Kind, edge_index, scores and nodes of the random graphs."""
    for num_nodes in tqdm(sizes, desc="timing"):
        yield "sparse", *common.random_graph(num_nodes, 2 * num_nodes), num_nodes
    yield "dense", *common.random_graph(3000, 900_000), 3000


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--largest", type=int, default=10_000_000, help="most nodes of a sparse graph")
    parser.add_argument("--instructions", action="store_true", help="count instructions per edge as well")
    common.add_hubs(parser)
    options = parser.parse_args()
    device = common.prepare(options)
    largest = min(options.largest, 100_000) if options.quick else options.largest
    sizes = [10**power for power in range(3, 8) if 10**power <= largest]
    results = []
    for kind, edge_index, scores, num_nodes in common.hubs_and_random() if options.hubs else graphs(sizes):
        results.append({"kind": kind, **Case(edge_index, scores, num_nodes, device).measure()})
    content: dict[str, Any] = {"results": results}
    if options.instructions:
        content["instructions_per_edge"] = {
            size: count_instructions("parse", size) / (4 * size)
            for size in tqdm([size for size in sizes if size >= 10_000], desc="counting instructions")
        }
    print(report(content))

    stem = "parse_hubs" if options.hubs else "parse"
    path = options.output / f"{stem}_{device.type}.json"
    common.save_plots(path, plots(common.save(path, device, **content)))


if __name__ == "__main__":
    main()
