"""The connected components of a `Data`: label them, keep the largest, split the graph into them.

Directions are ignored, so edges may be stored in one direction or both.
"""

import argparse

import torch
from torch_geometric.data import Data
from torch_geometric.utils import erdos_renyi_graph, sort_edge_index, unbatch, unbatch_edge_index

import gpn_ops


def largest_component(data: Data) -> Data:
    """Like PyG's transform `LargestConnectedComponents`, which uses scipy on the CPU."""
    component = gpn_ops.components(data.edge_index, data.num_nodes)
    return data.subgraph(component == component.bincount().argmax())


def as_batch(data: Data) -> Data:
    """Sorts the nodes by component and adds a `batch` vector, so that layers see a batch of graphs."""
    component = gpn_ops.components(data.edge_index, data.num_nodes)
    order = component.argsort(stable=True)
    new_id = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return Data(x=data.x[order], edge_index=sort_edge_index(new_id[data.edge_index]), batch=component[order])


def take_apart(data: Data) -> list[Data]:
    """One `Data` per component, in the order of their smallest nodes."""
    data = as_batch(data)
    # The last components may have no edges, so the number of components is given.
    edges = unbatch_edge_index(data.edge_index, data.batch, int(data.batch[-1]) + 1)
    return [
        Data(x=x, edge_index=edge_index)
        for x, edge_index in zip(unbatch(data.x, data.batch), edges, strict=True)
    ]


def main(argv: list[str] | None = None) -> list[Data]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--edges-per-node", type=float, default=0.6)
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    edge_index = erdos_renyi_graph(args.nodes, 2 * args.edges_per_node / args.nodes)
    data = Data(x=torch.randn(args.nodes, 8), edge_index=edge_index)

    component = gpn_ops.components(data.edge_index, data.num_nodes)
    size = component.bincount().sort(descending=True).values
    print(f"{data.num_nodes} nodes, {size.numel()} components; the largest have {size[:5].tolist()} nodes")

    print("the largest:", largest_component(data))

    print("as a batch:", as_batch(data))
    parts = take_apart(data)
    print(f"split into {len(parts)} graphs; the first is {parts[0]}")
    return parts


if __name__ == "__main__":
    main()
