"""Graph classification. Every graph is pooled until it stops shrinking, so each has its own number of levels.

By default the graphs are generated: random trees with houses or cycles attached. `--dataset PROTEINS` trains
on that TUDataset instead, which PyG downloads.
"""

import argparse

import torch
from motifs import motif_graphs
from torch.nn import Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN
from tqdm import trange

from gpn_ops.nn import ParseHierarchy, ParsePooling


class Net(torch.nn.Module):
    def __init__(self, in_channels: int, hidden: int, num_classes: int):
        super().__init__()
        self.encoder = Linear(in_channels, hidden)
        # For small graphs it is faster to store the results of the scorer for backward.
        pool = ParsePooling(hidden, recompute=False)
        self.parser = ParseHierarchy(pool, gnn=GCN(hidden, hidden, num_layers=2))
        self.head = Sequential(Linear(hidden, hidden), ReLU(), Linear(hidden, num_classes))

    def forward(self, data: Data) -> torch.Tensor:
        x = self.encoder(data.x)
        x, _ = self.parser(x, data.edge_index, batch=data.batch, batch_size=data.num_graphs)
        return self.head(x)


def train(model: torch.nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    total = 0.0
    for data in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(data), data.y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item() * data.num_graphs
    return total / len(loader.dataset)


@torch.no_grad()
def test(model: torch.nn.Module, loader: DataLoader) -> float:
    model.eval()
    correct = sum(int((model(data).argmax(dim=1) == data.y).sum()) for data in loader)
    return correct / len(loader.dataset)


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", help="name of a TUDataset (default: generated graphs)")
    parser.add_argument("--root", default="data/TUDataset", help="folder of its files")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.002)
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    graphs = list(TUDataset(args.root, args.dataset).shuffle()) if args.dataset else motif_graphs()
    num_classes = 1 + max(int(data.y) for data in graphs)
    cut = len(graphs) * 4 // 5
    train_loader = DataLoader(graphs[:cut], batch_size=32, shuffle=True)
    test_loader = DataLoader(graphs[cut:], batch_size=128)

    model = Net(graphs[0].num_features, args.hidden, num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for _ in (progress := trange(args.epochs, desc="epochs", disable=None)):
        progress.set_postfix(loss=f"{train(model, train_loader, optimizer):.3f}")
    accuracy = test(model, test_loader)
    print(f"test accuracy: {accuracy:.3f} on {len(graphs) - cut} graphs")
    return accuracy


if __name__ == "__main__":
    main()
