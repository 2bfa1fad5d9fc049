"""Node classification with un-pooling: up the pooling tree, and down again to the nodes.

By default the graph is generated: five communities with noisy features. `--dataset Cora` trains on that
Planetoid data set instead, which PyG downloads.
"""

import argparse

import torch
from torch.nn import Linear
from torch.nn.functional import cross_entropy, dropout, one_hot
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GCN
from torch_geometric.transforms import RandomNodeSplit
from torch_geometric.utils import stochastic_blockmodel_graph
from tqdm import trange

from gpn_ops.nn import Level, ParseHierarchy, ParsePooling


class Net(torch.nn.Module):
    def __init__(self, in_channels: int, hidden: int, num_classes: int):
        super().__init__()
        self.encoder = Linear(in_channels, hidden)
        # Edges are dropped at random, so that the tree differs from step to step.
        pool = ParsePooling(hidden, drop_edge=0.5, self_loops=True)
        gnn, multiset_gnn = (GCN(hidden, hidden, num_layers=2) for _ in range(2))
        self.parser = ParseHierarchy(pool, gnn, multiset_gnn, max_height=4)
        self.decoder = GCN(hidden, hidden, num_layers=2)
        self.head = Linear(hidden, num_classes)

    def down(self, z: torch.Tensor, level: Level) -> torch.Tensor:
        # Pooling multiplied by a sum over the inner edges of a cluster; dividing by their number makes it a
        # mean.
        z = self.parser.pool.unpool(z / level.inner_edges.unsqueeze(-1), level.cluster)
        return self.decoder(z + level.x, level.edge_index)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        x = dropout(self.encoder(dropout(x, 0.5, self.training)).relu(), 0.5, self.training)
        _, tree = self.parser(x, edge_index)
        return self.head(tree.decode(x, self.down))


def communities(num_communities: int = 5, size: int = 60) -> Data:
    inside, between = 0.12, 0.005
    probabilities = torch.full((num_communities, num_communities), between).fill_diagonal_(inside)
    edge_index = stochastic_blockmodel_graph([size] * num_communities, probabilities)
    y = torch.arange(num_communities).repeat_interleave(size)
    x = 0.4 * one_hot(y, 16) + 0.5 * torch.randn(y.numel(), 16)
    return RandomNodeSplit(num_val=0.2, num_test=0.4)(Data(x=x, edge_index=edge_index, y=y))


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", help="name of a Planetoid data set (default: a generated graph)")
    parser.add_argument("--root", default="data/Planetoid", help="folder of its files")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    data = Planetoid(args.root, args.dataset)[0] if args.dataset else communities()
    model = Net(data.num_features, args.hidden, int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)

    best_val = test_accuracy = 0.0
    for _ in (progress := trange(args.epochs, desc="epochs", disable=None)):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            correct = model(data.x, data.edge_index).argmax(dim=1) == data.y
        val = float(correct[data.val_mask].float().mean())
        if val > best_val:
            best_val, test_accuracy = val, float(correct[data.test_mask].float().mean())
        progress.set_postfix(loss=f"{loss.item():.3f}", val=f"{val:.3f}")
    print(f"test accuracy at the best validation accuracy: {test_accuracy:.3f}")
    return test_accuracy


if __name__ == "__main__":
    main()
