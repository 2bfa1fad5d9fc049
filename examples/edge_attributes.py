"""Edge attributes: convolutions use them, and pooling scores edges by them and reduces them to attributes of
coarse edges.

The graphs are rings whose edges carry two numbers. In class 1, eight consecutive edges have a high first
number; in class 0, eight random edges do. All nodes look alike, so a model must read the edges, and after
pooling those of the coarse graph.
"""

import argparse

import torch
from torch.nn import Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_mean_pool
from tqdm import trange

from gpn_ops.nn import ParsePooling


class Net(torch.nn.Module):
    def __init__(self, edge_dim: int, hidden: int, num_classes: int):
        super().__init__()
        self.encoder = Linear(1, hidden)
        self.convs = torch.nn.ModuleList(
            GINEConv(Sequential(Linear(hidden, hidden), ReLU(), Linear(hidden, hidden)), edge_dim=edge_dim)
            for _ in range(4)
        )
        # "mean": attributes that are not weights should not grow with the number of edges that merge into
        # one.
        self.pool = ParsePooling(hidden, edge_reduce="mean", edge_dim=edge_dim, recompute=False)
        self.norm = torch.nn.LayerNorm(hidden)
        self.head = Linear(hidden, num_classes)

    def forward(self, data: Data) -> torch.Tensor:
        x, edge_index, edge_attr, batch = self.encoder(data.x), data.edge_index, data.edge_attr, data.batch
        for conv in self.convs[:2]:
            x = x + conv(x, edge_index, edge_attr).relu()
        x, edge_index, edge_attr, batch, *_ = self.pool(x, edge_index, edge_attr, batch)
        x = self.norm(x)
        for conv in self.convs[2:]:
            x = x + conv(x, edge_index, edge_attr).relu()
        return self.head(global_mean_pool(x, batch, data.num_graphs))


def ring(label: int, size: int = 24, high: int = 8) -> Data:
    node = torch.arange(size)
    place = (node[:high] + torch.randint(size, ())) % size if label == 1 else torch.randperm(size)[:high]
    attr = 0.1 * torch.randn(size, 2)
    attr[place, 0] += 1
    there = torch.stack([node, (node + 1) % size])
    edge_index = torch.cat([there, there.flip(0)], dim=1)  # both directions, with the same attributes
    return Data(
        x=torch.ones(size, 1), edge_index=edge_index, edge_attr=attr.repeat(2, 1), y=torch.tensor([label])
    )


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.003)
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    graphs = [ring(k % 2) for k in range(400)]
    train_loader = DataLoader(graphs[:300], batch_size=32, shuffle=True)
    test_data = next(iter(DataLoader(graphs[300:], batch_size=100)))
    model = Net(2, args.hidden, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for _ in (progress := trange(args.epochs, desc="epochs", disable=None)):
        model.train()
        for data in train_loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(data), data.y)
            loss.backward()
            optimizer.step()
        progress.set_postfix(loss=f"{loss.item():.3f}")
    model.eval()
    with torch.no_grad():
        accuracy = (model(test_data).argmax(dim=1) == test_data.y).float().mean().item()
    print(f"test accuracy: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
