"""GNNExplainer on a model that pools: which nodes does the prediction depend on?

A node mask passes through pooling like any feature. An edge mask fits only the convolutions before the first
pooling, because the coarse graph has other edges. PyG applies the mask to every convolution except those with
`explain = False`.

The motifs determine the class, and the generated graphs record which nodes belong to one. The figure at the
end tells how often such a node gets a higher score than another node of its graph.
"""

import argparse

import torch
from motifs import FEATURES, motif_graphs
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import cross_entropy
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_add_pool
from tqdm import tqdm

from gpn_ops.nn import ParsePooling


class Net(torch.nn.Module):
    def __init__(self, in_channels: int, hidden: int, num_classes: int):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden)
        self.pool = ParsePooling(hidden, recompute=False)
        self.conv2 = GCNConv(hidden, hidden)
        self.head = Linear(hidden, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.conv1(x, edge_index).relu()
        x, edge_index, _, batch, *_ = self.pool(x, edge_index, batch=batch)
        x = self.conv2(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


def ranking(score: Tensor, positive: Tensor) -> float:
    """How often a positive gets a higher score than a negative (the area under the ROC curve)."""
    difference = score[positive].unsqueeze(1) - score[~positive].unsqueeze(0)
    return ((difference > 0).float() + 0.5 * (difference == 0).float()).mean().item()


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--graphs", type=int, default=5, help="number of graphs to explain")
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    graphs = motif_graphs()
    model = Net(FEATURES, args.hidden, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for _ in range(args.epochs):
        for data in DataLoader(graphs, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            cross_entropy(model(data.x, data.edge_index, data.batch), data.y).backward()
            optimizer.step()

    model.conv2.explain = False  # This convolution runs on the coarse graph.
    explainer = Explainer(
        model.eval(),
        GNNExplainer(epochs=100, lr=0.05),
        explanation_type="model",
        node_mask_type="object",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
    )
    found = []
    for data in tqdm(graphs[: args.graphs], desc="graphs", disable=None):
        explanation = explainer(data.x, data.edge_index)
        found.append(ranking(explanation.node_mask.view(-1), data.node_mask.bool()))
    mean = sum(found) / len(found)
    print(f"a node of a motif outranks another in {100 * mean:.0f} % of the pairs (chance: 50 %)")
    return mean


if __name__ == "__main__":
    main()
