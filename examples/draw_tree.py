"""Draws how a graph is pooled: the graph, coloured by cluster, and its tree. Needs matplotlib."""

import argparse

import torch
from torch_geometric.nn import GCN
from torch_geometric.utils import grid

from gpn_ops.nn import ParseHierarchy, ParsePooling
from gpn_ops.visualisation import draw_tree


def main(argv: list[str] | None = None) -> str:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=7, help="side length of the grid that is pooled")
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output", default="tree.png", help="file for the picture; the suffix sets its format"
    )
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    edge_index, position = grid(args.size, args.size)
    parser_of_graphs = ParseHierarchy(
        ParsePooling(args.hidden), gnn=GCN(args.hidden, args.hidden, num_layers=2)
    )
    _, tree = parser_of_graphs(torch.randn(args.size**2, args.hidden), edge_index)
    sizes = [level.cluster.numel() for level in tree.levels] + [tree.levels[-1].representative.numel()]
    print("nodes, level by level:", " -> ".join(map(str, sizes)))

    figure = draw_tree(tree, graph=0, position=position, title="An untrained model on a grid")
    figure.savefig(args.output)
    print("drawn:", args.output)
    return args.output


if __name__ == "__main__":
    main()
