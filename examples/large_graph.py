"""Node classification on a large graph, trained on parts of it.

Pooling needs both directions of every edge, because an edge can only be chosen by its first node.
`RandomNodeLoader` and `ClusterLoader` return induced subgraphs, which have both directions. `NeighborLoader`
samples only edges towards its seeds, unless `subgraph_type="bidirectional"`.

`ClusterLoader` and `NeighborLoader` need pyg-lib or torch-sparse.
"""

import argparse
from collections.abc import Iterable

import torch
from torch.nn import Linear
from torch.nn.functional import cross_entropy, one_hot
from torch_geometric.data import Data
from torch_geometric.loader import ClusterData, ClusterLoader, NeighborLoader, RandomNodeLoader
from torch_geometric.nn import GCNConv
from torch_geometric.utils import is_undirected, to_undirected
from tqdm import tqdm

from gpn_ops.nn import ParsePooling


class Net(torch.nn.Module):
    """Classifies a node by its own features and those of its cluster."""

    def __init__(self, in_channels: int, hidden: int, num_classes: int):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden)
        self.pool = ParsePooling(hidden, scorer_layers=1, multiset="mean")
        self.norm = torch.nn.LayerNorm(hidden)
        self.conv2 = GCNConv(hidden, hidden)
        self.head = Linear(2 * hidden, num_classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        x = self.conv1(x, edge_index).relu()
        out = self.pool(x, edge_index)
        z = self.conv2(self.norm(out.x), out.edge_index).relu()
        return self.head(torch.cat([x, self.pool.unpool(z, out.cluster)], dim=1))


def communities(num_nodes: int, num_communities: int = 10) -> Data:
    """Six edges per node, five of them inside its community."""
    y = torch.randint(num_communities, (num_nodes,)).sort().values
    size = y.bincount(minlength=num_communities)
    first = size.cumsum(0) - size
    node = torch.arange(num_nodes).repeat(5)
    inside = first[y[node]] + (torch.rand(node.numel()) * size[y[node]]).long()
    anywhere = torch.randint(num_nodes, (2, num_nodes))
    edge_index = to_undirected(torch.cat([torch.stack([node, inside]), anywhere], dim=1), num_nodes=num_nodes)
    x = one_hot(y, 32) + 1.5 * torch.randn(num_nodes, 32)
    return Data(x=x, edge_index=edge_index, y=y, train_mask=torch.rand(num_nodes) < 0.3)


def make_loader(name: str, data: Data, num_parts: int) -> Iterable[Data]:
    if name == "random":
        return RandomNodeLoader(data, num_parts, shuffle=True)
    if name == "cluster":
        return ClusterLoader(ClusterData(data, 4 * num_parts, log=False), batch_size=4, shuffle=True)
    return NeighborLoader(
        data,
        num_neighbors=[10, 5],
        input_nodes=data.train_mask,
        batch_size=1024 // num_parts,
        subgraph_type="bidirectional",
        shuffle=True,
    )


def main(argv: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loader", choices=["random", "cluster", "neighbor"], default="random")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    data = communities(args.nodes)
    loader = make_loader(args.loader, data, args.parts)
    model = Net(data.num_features, args.hidden, int(data.y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        model.train()
        for part in tqdm(loader, desc=f"epoch {epoch + 1}", leave=False, disable=None):
            assert is_undirected(part.edge_index, num_nodes=part.num_nodes)
            # A NeighborLoader puts its seed nodes first.
            wanted = part.train_mask if args.loader != "neighbor" else torch.arange(part.batch_size)
            optimizer.zero_grad()
            loss = cross_entropy(model(part.x, part.edge_index)[wanted], part.y[wanted])
            loss.backward()
            optimizer.step()
    # Inference needs less memory than training, so the whole graph fits.
    model.eval()
    with torch.no_grad():
        correct = model(data.x, data.edge_index).argmax(dim=1) == data.y
    accuracy = correct[~data.train_mask].float().mean().item()
    print(f"accuracy of nodes outside the training set: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    try:
        main()
    except ImportError as error:  # PyG names the packages that a loader needs.
        raise SystemExit(f"error: {error}") from error
