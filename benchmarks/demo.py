"""Parses a small graph, draws its levels, and times the operator and its peers: part of `make demo`."""

import argparse
from pathlib import Path

import common
import torch
from parse_case import Case
from torch import Tensor
from tqdm import tqdm

import gpn_ops
from gpn_ops.visualisation import draw_levels


def points_and_neighbours(num_nodes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Points around a few centres, joined to their nearest neighbours; close neighbours score high."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.rand(6, 2, generator=random) * 10
    position = centres[torch.randint(6, (num_nodes,), generator=random)]
    position = position + torch.randn(num_nodes, 2, generator=random)
    distance = torch.cdist(position, position).fill_diagonal_(torch.inf)
    nearest = distance.topk(4, largest=False).indices
    row = torch.arange(num_nodes).repeat_interleave(4)
    edge_index = torch.stack(
        [torch.cat([row, nearest.flatten()]), torch.cat([nearest.flatten(), row])]
    ).unique(dim=1)
    return edge_index, position, -distance[edge_index[0], edge_index[1]]


def parse_until_it_stops_shrinking(edge_index: Tensor, position: Tensor, scores: Tensor) -> list[Tensor]:
    """The clusters of every level. A coarse edge has the best score of the edges that it replaces."""
    assignments = []
    num_nodes = position.size(0)
    while True:
        cluster = gpn_ops.parse(edge_index, scores, num_nodes)
        coarse = gpn_ops.coarsen(edge_index, cluster, edge_attr=scores, reduce="max")
        num_clusters = coarse.representative.numel()
        if num_clusters == num_nodes:
            return assignments
        before = f"{num_nodes} nodes, {scores.numel()} edges"
        print(f"  level {len(assignments)}: {before} -> {num_clusters} clusters")
        assignments.append(cluster)
        edge_index, scores, num_nodes = coarse.edge_index, coarse.edge_attr, num_clusters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("results/demo"), help="folder for the pictures")
    parser.add_argument("--nodes", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    print(f"Parsing a graph of {options.nodes} points, each joined to its nearest:")
    edge_index, position, scores = points_and_neighbours(options.nodes, options.seed)
    assignments = parse_until_it_stops_shrinking(edge_index, position, scores)
    picture = options.output / "levels.png"
    draw_levels(edge_index, assignments, position).savefig(picture, dpi=120)
    print(f"  drawn in {picture}")

    print("\nTiming parse beside its peers (sparse graphs, 2n undirected edges, CPU):")
    device, results = torch.device("cpu"), []
    for num_nodes in tqdm([1_000, 10_000, 100_000, 1_000_000], desc="timing", leave=False):
        results.append(Case(*common.random_graph(num_nodes, 2 * num_nodes), num_nodes, device).measure())
    curves = common.medians(results)
    rows = []
    for result in results:
        seconds = result["seconds"]
        cells = (f"{1e3 * seconds[name]['median']:.3g}" if name in seconds else "-" for name in curves)
        rows.append([f"{result['num_nodes']:,}", *cells])
    print(common.table(["nodes", *(f"{name} (ms)" for name in curves)], rows))
    plot = common.Plot("Parsing a sparse graph (CPU)", "nodes", "seconds", curves, {})
    common.save_plots(options.output / "times", {"": plot})


if __name__ == "__main__":
    main()
