"""Time of ``gpn_ops.coarsen``, compared with PyG's ``coalesce`` on relabelled edges.

The graphs are random and sparse with 2n undirected edges, or with --hubs a real graph whose largest hub has
88,858 neighbours and a random one of the same size. Both directions are stored; ``gpn_ops.parse`` gives the
clusters. coarsen relabels the edges, drops or keeps those inside a cluster, and finds the representatives.
Its peers only sort and merge edges that were relabelled, and rid of inner edges, before timing starts:

  coarsen      the operator; inner edges dropped
  coalesce     torch_geometric.utils.coalesce on the relabelled edges between clusters
  self-loops   the operator; inner edges kept, against coalesce on all relabelled edges
  weighted     the operator with a weight per edge, against coalesce with the same weights

All results are compared with each other before anything is timed.
"""

from collections.abc import Callable, Iterator

import common
import torch
from pages.coarsen import PEERS, SPARSE, plots, report
from torch import Tensor
from torch_geometric.utils import coalesce
from tqdm import tqdm

import gpn_ops


class Case:
    """One graph, its clusters, and every method on it."""

    def __init__(self, edge_index: Tensor, scores: Tensor, num_nodes: int, device: torch.device):
        self.num_nodes, self.device = num_nodes, device
        self.edge_index, self.weight = edge_index.to(device), scores.to(device)
        self.cluster = gpn_ops.parse(self.edge_index, self.weight, num_nodes)
        self.num_clusters = int(self.cluster.max()) + 1
        self.relabelled = self.cluster[self.edge_index]
        between = self.relabelled[0] != self.relabelled[1]
        self.between = self.relabelled[:, between].contiguous()
        self.weight_between = self.weight[between].contiguous()

    def methods(self) -> dict[str, Callable[[], object]]:
        edges, cluster, count = self.edge_index, self.cluster, self.num_clusters
        return {
            "coarsen": lambda: gpn_ops.coarsen(edges, cluster),
            "coalesce": lambda: coalesce(self.between, num_nodes=count),
            "self-loops": lambda: gpn_ops.coarsen(edges, cluster, self_loops=True),
            "coalesce, self-loops": lambda: coalesce(self.relabelled, num_nodes=count),
            "weighted": lambda: gpn_ops.coarsen(edges, cluster, self.weight),
            "coalesce, weighted": lambda: coalesce(self.between, self.weight_between, num_nodes=count),
        }

    def validate(self) -> None:
        methods = self.methods()
        for name in ("coarsen", "self-loops"):
            assert torch.equal(methods[name]().edge_index, methods[PEERS[name]]()), name
        coarse, (edges, weight) = methods["weighted"](), methods["coalesce, weighted"]()
        assert torch.equal(coarse.edge_index, edges)
        # Sums of up to some thousand terms, in another order.
        torch.testing.assert_close(coarse.edge_attr, weight, rtol=1e-5, atol=1e-5)
        assert torch.equal(
            self.cluster[coarse.representative], torch.arange(self.num_clusters).to(self.device)
        )

    def measure(self) -> dict[str, object]:
        self.validate()
        runs = common.timed(self.methods(), self.device, seconds=3.0)
        coarse_edges = gpn_ops.coarsen(self.edge_index, self.cluster).edge_index.numel() // 2
        results = 8 * (2 * coarse_edges + self.num_clusters)
        scratch = common.peak_bytes(self.methods()["coarsen"], self.device) - results
        return {
            "num_nodes": self.num_nodes,
            "num_clusters": self.num_clusters,
            "num_coarse_edges": coarse_edges,
            "seconds": {name: run._asdict() for name, run in runs.items()},
            "scratch_bytes_per_node": scratch / self.num_nodes,
        }


def graphs(sizes: list[int]) -> Iterator[tuple[str, Tensor, Tensor, int]]:
    """Kind, edge_index, scores and nodes of the random graphs."""
    for num_nodes in tqdm(sizes, desc="timing"):
        yield SPARSE, *common.random_graph(num_nodes, 2 * num_nodes), num_nodes


def main() -> None:
    parser = common.arguments(__doc__)
    common.add_hubs(parser)
    options = parser.parse_args()
    device = common.prepare(options)
    sizes = [1_000, 10_000, 100_000] if options.quick else [1_000, 10_000, 100_000, 1_000_000]
    results = []
    for kind, edge_index, scores, num_nodes in (
        common.hubs_and_random(options.quick) if options.hubs else graphs(sizes)
    ):
        results.append({"kind": kind, **Case(edge_index, scores, num_nodes, device).measure()})
    content = {"results": results}
    print(report(content))

    stem = "coarsen_hubs" if options.hubs else "coarsen"
    path = options.output / f"{stem}_{device.type}.json"
    common.save_plots(path, plots(common.save(path, device, **content)))


if __name__ == "__main__":
    main()
