"""Generates the graphs that several examples train on."""

import torch
from torch.nn.functional import one_hot
from torch_geometric.data import Data
from torch_geometric.datasets import ExplainerDataset
from torch_geometric.datasets.graph_generator import BAGraph
from torch_geometric.utils import degree

FEATURES = 8


def motif_graphs(num_graphs: int = 300, num_motifs: int = 3) -> list[Data]:
    """Random trees of 20 nodes with houses (class 0) or cycles of six (class 1) attached.

    The features of a node are its degree, one-hot. ``node_mask`` marks the nodes that belong to a motif.
    """
    graphs = []
    for label, motif in enumerate(("house", "cycle")):
        made = ExplainerDataset(
            BAGraph(num_nodes=20, num_edges=1),
            motif,
            num_motifs,
            num_graphs=num_graphs // 2,
            motif_generator_kwargs={"num_nodes": 6} if motif == "cycle" else {},
        )
        for graph in made:
            size = degree(graph.edge_index[0], graph.num_nodes, dtype=torch.int64)
            x = one_hot(size.clamp(max=FEATURES - 1), FEATURES).float()
            y = torch.tensor([label])
            graphs.append(Data(x=x, edge_index=graph.edge_index, y=y, node_mask=graph.node_mask))
    return [graphs[k] for k in torch.randperm(len(graphs)).tolist()]
