"""The building blocks of the paper's models: MLPs and residual blocks of message passing."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GATConv, GINConv

from gpn_ops.nn import Adjacency, Dropout, UndirectedGCNConv
from gpn_ops.nn.children import keeps_nothing

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
        recompute: Whether backward recomputes the layers from the input: True, False, or "auto", which does
            so for many rows.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        dropout: float = 0.0,
        act_last: bool = False,
        recompute: bool | str = False,
    ) -> None:
        if num_layers < 1:
            raise ValueError(f"num_layers: expected at least 1, got {num_layers}")
        width = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        layers: list[nn.Module] = [nn.Linear(width[0], width[1])]
        for k in range(1, num_layers):
            layers += [*_activation(width[k], dropout), nn.Linear(width[k], width[k + 1])]
        last_linear = len(layers) - 1
        if act_last and num_layers > 1:
            layers += _activation(out_channels, dropout)
        super().__init__(*layers)
        self.kept_channels, self.recompute = 2 * sum(width[1:-1]) + 2 * out_channels * act_last, recompute
        self.last_linear = last_linear

    def forward(self, x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and keeps_nothing(self.recompute, x.size(0) * self.kept_channels)):
            return super().forward(x)
        layers = list(self)
        # If what the last Linear gives is kept, neither it nor what follows is computed again.
        first_kept = len(layers) if self.recompute is True else self.last_linear + 1
        x = checkpoint(_in_turn, layers[:first_kept], x, use_reentrant=False)
        return _in_turn(layers[first_kept:], x)

    def reset_parameters(self) -> None:
        for module in self:
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()


def _in_turn(layers: list[nn.Module], x: Tensor) -> Tensor:
    for layer in layers:
        x = layer(x)
    return x


def _activation(channels: int, dropout: float) -> list[nn.Module]:
    # The place of the ReLU, which dropout has taken over, stays: saved weights are known by their numbers.
    return [nn.LayerNorm(channels), nn.Identity(), Dropout(dropout, relu=True)]


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
        recompute: Whether backward recomputes the block from its input. This is slower and saves little,
            because a convolution keeps little more than its input.
    """

    def __init__(
        self,
        channels: int,
        num_layers: int,
        dropout: float = 0.0,
        act_last: bool = False,
        conv: str = "gcn",
        recompute: bool = False,
    ) -> None:
        super().__init__()
        if conv not in CONVOLUTIONS:
            raise ValueError(f"conv: expected one of {', '.join(CONVOLUTIONS)}, got {conv!r}")
        self.act_last = act_last
        self.conv = conv
        self.recompute = recompute
        self.convs = nn.ModuleList(_convolution(conv, channels, dropout) for _ in range(num_layers))
        self.dropout = Dropout(dropout, relu=True)
        self.norm = nn.LayerNorm(channels) if num_layers > 0 else nn.Identity()

    def reset_parameters(self) -> None:
        for module in (*self.convs, self.norm):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if not self.convs:
            return x
        if self.conv != "gcn" and edge_weight is not None:
            raise ValueError(f"edge_weight: expected none with conv {self.conv!r}, got weights")
        graph = edge_index
        if self.conv != "gat":
            normalize = self.conv == "gcn"
            graph = Adjacency(
                edge_index,
                x.size(0),
                edge_weight,
                add_self_loops=normalize,
                normalize=normalize,
                dtype=x.dtype,
            )
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._apply_convs, x, graph, use_reentrant=False)
        return self._apply_convs(x, graph)

    def _apply_convs(self, x: Tensor, graph: Tensor | Adjacency) -> Tensor:
        out = x
        for k, conv in enumerate(self.convs):
            out = conv(out, graph)
            if self.act_last or k < len(self.convs) - 1:
                out = self.dropout(out)
        return self.norm(x + out)


def _convolution(conv: str, channels: int, dropout: float) -> nn.Module:
    if conv == "gat":
        return GATConv(channels, channels)
    if conv == "gin":
        return UndirectedGIN(MLP(channels, channels, channels, 2, dropout), train_eps=True)
    return UndirectedGCNConv(channels, channels)


class UndirectedGIN(GINConv):
    """PyG's ``GINConv`` on the adjacency matrix of an undirected graph."""

    def forward(self, x: Tensor, graph: Adjacency) -> Tensor:  # type: ignore[override]
        return self.nn(graph.times(x) + (1 + self.eps) * x)
