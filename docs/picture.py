"""Draws the picture of README.md and of the start page: a graph, parsed until one node is left.

python docs/picture.py
"""

import sys
from pathlib import Path

import matplotlib
import torch

import gpn_ops
from gpn_ops.visualisation import draw_levels

PICTURE = Path(__file__).parent / "_static" / "levels.svg"

SEED = 2  # of a graph that takes three levels


def draw(path: Path) -> None:
    generator = torch.Generator().manual_seed(SEED)
    # Nodes near the points of a grid, with edges between those that are close to each other.
    grid = torch.cartesian_prod(torch.arange(9.0), torch.arange(7.0))
    position = grid + 0.5 * torch.rand(grid.shape, generator=generator)
    distance = torch.cdist(position, position)
    pairs = (distance < 1.25).triu(1).nonzero().t()
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)

    assignments, edges, num_nodes = [], edge_index, len(position)
    while edges.size(1) > 0:
        pairs, slot = gpn_ops.undirected(edges, num_nodes)
        scores = torch.rand(pairs.size(1), generator=generator)[slot]
        assignments.append(gpn_ops.parse(edges, scores, num_nodes))
        edges, _, representative = gpn_ops.coarsen(edges, assignments[-1])
        num_nodes = len(representative)

    figure = draw_levels(edge_index, assignments, position)
    # The same bytes at every run, and text that is text. White, so that it reads on dark pages too.
    with matplotlib.rc_context({"svg.hashsalt": "gpn_ops", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
