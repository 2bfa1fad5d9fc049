"""A Graph U-Net with parsing: an encoder of fixed depth, and a decoder with skip connections from the
encoder.

PyG's `GraphUNet` keeps the highest-scored nodes, and un-pooling sets the others to zero. Here every node is
in a cluster, so un-pooling reaches all of them.

The graph is generated: points on two moons, joined to their nearest neighbours. The task is to separate the
moons, given eight labels of each.
"""

import argparse
import math

import torch
from torch.nn import Linear, ModuleList
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_undirected
from tqdm import trange

from gpn_ops.nn import ParsePooling


class GraphUNet(torch.nn.Module):
    def __init__(self, in_channels: int, hidden: int, num_classes: int, depth: int):
        super().__init__()
        self.encoder = Linear(in_channels, hidden)
        self.down_convs = ModuleList(GCNConv(hidden, hidden) for _ in range(depth + 1))
        # The mean keeps the scale of the features, whatever the size of a cluster.
        self.pools = ModuleList(ParsePooling(hidden, multiset="mean") for _ in range(depth))
        self.up_convs = ModuleList(GCNConv(hidden, hidden) for _ in range(depth))
        self.norms = ModuleList(torch.nn.LayerNorm(hidden) for _ in range(depth))
        self.head = Linear(hidden, num_classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        x = self.down_convs[0](self.encoder(x), edge_index).relu()
        skips = []
        for pool, norm, conv in zip(self.pools, self.norms, self.down_convs[1:], strict=True):
            out = pool(x, edge_index)
            skips.append((x, edge_index, out.cluster))
            edge_index = out.edge_index
            x = conv(norm(out.x), edge_index).relu()
        for pool, conv in zip(reversed(self.pools), self.up_convs, strict=True):
            skip, edge_index, cluster = skips.pop()
            x = conv(skip + pool.unpool(x, cluster), edge_index).relu()
        return self.head(x)


def two_moons(size: int = 200, neighbours: int = 6) -> Data:
    angle = math.pi * torch.rand(2, size)
    upper = torch.stack([angle[0].cos(), angle[0].sin()], dim=1)
    lower = torch.stack([1 - angle[1].cos(), 0.5 - angle[1].sin()], dim=1)
    position = torch.cat([upper, lower]) + 0.08 * torch.randn(2 * size, 2)
    near = torch.cdist(position, position).fill_diagonal_(torch.inf).topk(neighbours, largest=False).indices
    node = torch.arange(2 * size).repeat_interleave(neighbours)
    y = torch.arange(2).repeat_interleave(size)
    train_mask = torch.zeros(2 * size, dtype=torch.bool)
    train_mask[torch.cat([torch.randperm(size)[:8], size + torch.randperm(size)[:8]])] = True
    return Data(
        x=position, edge_index=to_undirected(torch.stack([node, near.flatten()])), y=y, train_mask=train_mask
    )


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--depth", type=int, default=2, help="number of poolings")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.005)
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    data = two_moons()
    model = GraphUNet(2, args.hidden, 2, args.depth)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-3)
    for _ in (progress := trange(args.epochs, desc="epochs", disable=None)):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        progress.set_postfix(loss=f"{loss.item():.3f}")
    with torch.no_grad():
        correct = model(data.x, data.edge_index).argmax(dim=1) == data.y
    accuracy = correct[~data.train_mask].float().mean().item()
    print(f"accuracy of the {int((~data.train_mask).sum())} nodes without a label: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
