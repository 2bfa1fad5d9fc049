"""The building blocks of the paper's models: MLPs and residual blocks of message passing."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv

from gpn_ops.nn import Dropout

CONVOLUTIONS = ("gcn", "gat", "gin")


class MLP(nn.Sequential):
    """Linear (LayerNorm, ReLU, dropout, Linear)*.

    Args:
        in_channels: Size of the input.
        hidden_channels: Size of the hidden layers.
        out_channels: Size of the output.
        num_layers: The number of Linear layers.
        dropout: Dropout probability after every ReLU.
        act_last: Whether LayerNorm, ReLU and dropout also follow the last layer, if there is more than one.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        dropout: float = 0.0,
        act_last: bool = False,
    ) -> None:
        if num_layers < 1:
            raise ValueError(f"num_layers: expected at least 1, got {num_layers}")
        width = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        layers: list[nn.Module] = [nn.Linear(width[0], width[1])]
        for k in range(1, num_layers):
            layers += [nn.LayerNorm(width[k]), nn.ReLU(), Dropout(dropout), nn.Linear(width[k], width[k + 1])]
        if act_last and num_layers > 1:
            layers += [nn.LayerNorm(out_channels), nn.ReLU(), Dropout(dropout)]
        super().__init__(*layers)

    def reset_parameters(self) -> None:
        for module in self:
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()


class GNN(nn.Module):
    """Message passing, with a residual connection around the whole block: conv (ReLU, dropout, conv)*, then
    LayerNorm(input + output).

    The graph must be undirected: both directions of an edge stored, with the same weight if any.

    Args:
        channels: Size of each node's features.
        num_layers: The number of convolutions. With none, the block is the identity.
        dropout: Dropout probability after every ReLU.
        act_last: Whether ReLU and dropout also follow the last convolution.
        conv: One of :data:`CONVOLUTIONS`.
    """

    def __init__(
        self, channels: int, num_layers: int, dropout: float = 0.0, act_last: bool = False, conv: str = "gcn"
    ) -> None:
        super().__init__()
        if conv not in CONVOLUTIONS:
            raise ValueError(f"conv: expected one of {', '.join(CONVOLUTIONS)}, got {conv!r}")
        self.act_last = act_last
        self.conv = conv
        self.convs = nn.ModuleList(_convolution(conv, channels, dropout) for _ in range(num_layers))
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(channels) if num_layers > 0 else nn.Identity()

    def reset_parameters(self) -> None:
        for module in (*self.convs, self.norm):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if not self.convs:
            return x
        if self.conv == "gcn":
            graph = normalised(edge_index, x.size(0), x.dtype, edge_weight)
        elif edge_weight is None:
            graph = edge_index
        else:
            raise ValueError(f"edge_weight: expected none with conv {self.conv!r}, got weights")
        out = x
        for k, conv in enumerate(self.convs):
            out = conv(out, graph)
            if self.act_last or k < len(self.convs) - 1:
                out = self.dropout(out.relu())
        return self.norm(x + out)


def _convolution(conv: str, channels: int, dropout: float) -> nn.Module:
    if conv == "gat":
        return GATConv(channels, channels)
    if conv == "gin":
        return GINConv(MLP(channels, channels, channels, 2, dropout), train_eps=True)
    return UndirectedGCN(channels)


# ------------------------------------------------------------------------------------------------------------
# Graph convolution on an undirected graph
# ------------------------------------------------------------------------------------------------------------


class Normalised:
    """D^-1/2 (A + I) D^-1/2 of an undirected graph: its off-diagonal part as CSR, and its diagonal."""

    def __init__(self, edges: Tensor, diagonal: Tensor) -> None:
        self.edges, self.diagonal = edges, diagonal

    def __matmul__(self, x: Tensor) -> Tensor:
        return torch.addcmul(_SymmetricProduct.apply(self.edges, x), self.diagonal, x)


def normalised(
    edge_index: Tensor, num_nodes: int, dtype: torch.dtype, edge_weight: Tensor | None = None
) -> Normalised:
    """The normalised adjacency matrix of an undirected graph, the same weight in both directions. Self-loops
    are replaced by those of ``I``."""
    row, col = edge_index
    if row.numel() > 0:
        loops = row == col
        if bool(loops.any()):
            row, col = row[~loops], col[~loops]
            edge_weight = None if edge_weight is None else edge_weight[~loops]
        if bool((row[1:] < row[:-1]).any()):
            order = row.argsort(stable=True)
            row, col = row[order], col[order]
            edge_weight = None if edge_weight is None else edge_weight[order]
    degree = torch.bincount(row, minlength=num_nodes)
    start = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
    if edge_weight is not None:
        edge_weight = edge_weight.to(dtype)
        degree = edge_weight.new_zeros(num_nodes).index_add(0, row, edge_weight)
    scale = (degree + 1).to(dtype).rsqrt()
    weight = scale.index_select(0, row) * scale.index_select(0, col)
    if edge_weight is not None:
        weight = weight * edge_weight
    edges = torch.sparse_csr_tensor(start, col, weight, (num_nodes, num_nodes), check_invariants=False)
    return Normalised(edges, (scale * scale).unsqueeze(1))


class _SymmetricProduct(torch.autograd.Function):
    """A x for a symmetric sparse A, which therefore is its own backward."""

    @staticmethod
    def forward(ctx, edges: Tensor, x: Tensor) -> Tensor:
        ctx.edges = edges
        return _product(edges, x)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[None, Tensor]:
        return None, _product(ctx.edges, grad.contiguous())


def _product(edges: Tensor, x: Tensor) -> Tensor:
    # With a reduction named, torch takes a kernel of its own on the CPU, several times faster than MKL's.
    return torch.sparse.mm(edges, x, "sum") if x.device.type == "cpu" else edges @ x


class UndirectedGCN(GCNConv):
    """PyG's ``GCNConv`` on a graph that :func:`normalised` prepared once for all layers."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels)

    def forward(self, x: Tensor, graph: Normalised) -> Tensor:  # type: ignore[override]
        return graph @ self.lin(x) + self.bias
