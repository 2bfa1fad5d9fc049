"""OGB's encoder of molecules, whose atoms and bonds have categorical features."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import GINEConv, MessagePassing
from torch_geometric.utils import degree

from gpn_ops.nn import Dropout


class Categories(nn.Module):
    """A sum of embeddings, one for each categorical feature: OGB's atom and bond encoders.

    Args:
        sizes: The number of values of every feature.
        channels: Size of the embeddings.
    """

    def __init__(self, sizes: list[int], channels: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, channels) for size in sizes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for embedding in self.embeddings:
            nn.init.xavier_uniform_(embedding.weight)

    def forward(self, features: Tensor) -> Tensor:
        if features.size(1) != len(self.embeddings):
            raise ValueError(f"features: expected {len(self.embeddings)} columns, got {features.size(1)}")
        return sum(embedding(column) for embedding, column in zip(self.embeddings, features.t(), strict=True))


class BondConv(MessagePassing):
    """Graph convolution that adds an embedding of the bond to every message (OGB's GCN)."""

    def __init__(self, channels: int, bond_sizes: list[int]) -> None:
        super().__init__(aggr="sum")
        self.lin = nn.Linear(channels, channels)
        self.root = nn.Parameter(torch.empty(channels))
        self.bonds = Categories(bond_sizes, channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()
        self.bonds.reset_parameters()
        nn.init.normal_(self.root)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        x = self.lin(x)
        row, col = edge_index
        size = degree(row, x.size(0), dtype=x.dtype) + 1
        scale = size.rsqrt()
        norm = scale[row] * scale[col]
        passed = self.propagate(edge_index, x=x, edge_attr=self.bonds(edge_attr), norm=norm)
        return passed + (x + self.root).relu() / size.view(-1, 1)

    def message(self, x_j: Tensor, edge_attr: Tensor, norm: Tensor) -> Tensor:
        return norm.view(-1, 1) * (x_j + edge_attr).relu()


class BondGIN(GINEConv):
    """GIN that adds an embedding of the bond to every message (OGB's GIN)."""

    def __init__(self, channels: int, bond_sizes: list[int]) -> None:
        wide = 2 * channels
        mlp = nn.Sequential(
            nn.Linear(channels, wide), nn.BatchNorm1d(wide), nn.ReLU(), nn.Linear(wide, channels)
        )
        super().__init__(mlp, train_eps=True)
        self.bonds = Categories(bond_sizes, channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index, self.bonds(edge_attr))


CONVOLUTIONS = {"gcn": BondConv, "gin": BondGIN}


class MoleculeEncoder(nn.Module):
    """Embeds the atoms, then applies bond-aware convolutions, each followed by BatchNorm, ReLU (except the
    last) and dropout.

    Args:
        atom_sizes: The number of values of every feature of an atom.
        bond_sizes: The same for bonds.
        hidden: Size of all hidden features.
        num_layers: The number of convolutions.
        dropout: Dropout probability.
        conv: One of :data:`CONVOLUTIONS`.
    """

    def __init__(
        self,
        atom_sizes: list[int],
        bond_sizes: list[int],
        hidden: int,
        num_layers: int,
        dropout: float,
        conv: str = "gcn",
    ) -> None:
        super().__init__()
        if conv not in CONVOLUTIONS:
            raise ValueError(f"conv: expected one of {', '.join(CONVOLUTIONS)}, got {conv!r}")
        self.atoms = Categories(atom_sizes, hidden)
        self.convs = nn.ModuleList(CONVOLUTIONS[conv](hidden, bond_sizes) for _ in range(num_layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(num_layers))
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor:
        if edge_attr is None:
            raise ValueError("edge_attr: expected the bonds' features, got None")
        x = self.atoms(x)
        for k, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = norm(conv(x, edge_index, edge_attr))
            x = self.dropout(x.relu() if k < len(self.convs) - 1 else x)
        return x
