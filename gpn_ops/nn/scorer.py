"""Edge scores (equation 1), computed without storing a row of features per edge."""

from itertools import chain

import torch
from torch import Tensor
from torch_geometric.nn.inits import reset

from gpn_ops import ops
from gpn_ops.checks import check_device, check_values
from gpn_ops.ops import waits
from gpn_ops.ops.tiles import draw_seed, matmul_dtype, product_dtype, wide_dtype

from ._inputs import (
    attributes_to_score,
    check_at_least,
    check_channels,
    check_features,
    check_probability,
    check_recompute,
    checked_edges,
)
from .children import are_plain, call_wide, keeps_nothing, parameters_of
from .dropout import relu_dropout


class EdgeScorer(torch.nn.Module):
    r"""Scores every edge by its two ends,

    .. math::
        C_{ij} = \sigma \left( \mathrm{MLP} \left( \mathbf{h}_i \odot \mathbf{h}_j \right) \right),

    or, with :obj:`edge_dim`, by its attributes too: then the MLP reads
    :math:`[ \mathbf{h}_i \odot \mathbf{h}_j \, \Vert \, \mathbf{e}_{ij} ]`.

    Scoring takes memory :math:`O(nd + m)`, forward and backward, because rows of
    :math:`\mathbf{h}_i \odot \mathbf{h}_j` exist for one tile of edges at a time, and backward computes them
    again. They exist for all edges at once, in memory :math:`O(md)`, in three cases: if gradients are on and
    :obj:`recompute` is off, if several layers read edge attributes, and if a child was replaced, subclassed
    or has hooks. Such a child is called like any module. (In half precision the last layer is called with
    features and parameters in float32; in float16 the first layer is too.)

    The MLP is a Linear layer, followed by any number of (LayerNorm, ReLU, dropout, Linear). An edge and its
    reverse are scored once and get the same bits; an edge without a reverse is scored on its own.

    Scores are float32 where the features are in half precision, whose sigmoid has too few values to tell
    edges apart.

    Args:
        in_channels (int): Size of each node's features, and of the hidden layers.
        num_layers (int, optional): The number of Linear layers. (default: :obj:`2`)
        dropout (float, optional): Dropout probability in the hidden layers. (default: :obj:`0.0`)
        recompute (bool or str, optional): If :obj:`True`, backward computes the hidden layers again. If
            :obj:`False`, they are stored: several rows of features per edge. If :obj:`"auto"`, they are
            stored on the CPU if small (4 MiB; 64 MiB, if the layer is compiled for one size), which is
            faster. One layer has nothing to store. Results are the same. (default: :obj:`"auto"`)
        edge_dim (int, optional): Size of the attributes of an edge, if its score should depend on them. If
            the edges of a pair (an edge, its reverse, duplicates) have different attributes, their mean
            counts. (default: :obj:`None`)

    Example:
        >>> import torch
        >>> from gpn_ops.nn import EdgeScorer
        >>> scorer = EdgeScorer(16)
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> scores = scorer(torch.randn(3, 16), edge_index)
        >>> scores.shape, bool(scores[0] == scores[1])
        (torch.Size([4]), True)
    """

    def __init__(
        self,
        in_channels: int,
        num_layers: int = 2,
        dropout: float = 0.0,
        recompute: bool | str = "auto",
        edge_dim: int | None = None,
    ) -> None:
        super().__init__()
        check_at_least("num_layers", 1, num_layers)
        check_channels(in_channels, num_layers > 1, f"num_layers={num_layers}", "num_layers=1")
        check_probability("dropout", dropout)
        check_recompute(recompute)
        if edge_dim is not None:
            check_at_least("edge_dim", 1, edge_dim)
        self.in_channels = in_channels
        self.num_layers = num_layers
        self.dropout = dropout
        self.recompute = recompute
        self.edge_dim = edge_dim
        width = [in_channels] * num_layers + [1]
        self.lins = torch.nn.ModuleList(torch.nn.Linear(width[k], width[k + 1]) for k in range(num_layers))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(in_channels) for _ in range(num_layers - 1))
        # The part of the first layer that reads attributes.
        self.lin_edge = None if edge_dim is None else torch.nn.Linear(edge_dim, width[1], bias=False)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for child in self.children():
            reset(child)

    def forward(
        self,
        h: Tensor,
        edge_index: Tensor,
        undirected: ops.Undirected | None = None,
        directed: bool = False,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        r"""Forward pass.

        Args:
            h (torch.Tensor): The node features, :math:`[n, d]`.
            edge_index (torch.Tensor): The edges, :math:`[2, m]`.
            undirected (Undirected, optional): The result of :func:`gpn_ops.undirected` for these edges, if
                you have it. (default: :obj:`None`)
            directed (bool, optional): If :obj:`True`, each edge is scored separately, so that dropout makes
                it differ from its reverse. (default: :obj:`False`)
            edge_attr (torch.Tensor, optional): The attributes of the edges, :math:`[m, d_e]` (or :math:`[m]`
                if :math:`d_e = 1`), of any dtype. Required with an :obj:`edge_dim`, and ignored without one.
                (default: :obj:`None`)

        Returns:
            torch.Tensor: A score per edge, :math:`[m]`.
        """
        edge_index = checked_edges(edge_index)
        check_features("h", h, self.in_channels)
        check_device("h", h, "edge_index", edge_index)
        if undirected is None and directed and waits.is_host(h.device) and not torch.compiler.is_compiling():
            check_values(edge_index, None, h.size(0))  # otherwise operators would name their own argument
        if directed and self.edge_dim is None:
            return self._logits(h, edge_index.to(torch.int64)).sigmoid()
        pairs, slot = ops.undirected(edge_index, h.size(0)) if undirected is None else undirected
        pair_attr = None
        if self.edge_dim is not None:
            edge_attr = attributes_to_score(edge_attr, self.edge_dim, edge_index)
            pair_attr = ops.reduce(edge_attr.to(h.dtype), slot, pairs.size(1), "mean")
            if directed:
                pairs, pair_attr = edge_index.to(torch.int64), ops.lift(pair_attr, slot)
        scores = self._logits(h, pairs, pair_attr).sigmoid()
        return scores if directed else ops.lift(scores, slot)

    def _logits(self, h: Tensor, pairs: Tensor, pair_attr: Tensor | None = None) -> Tensor:
        """MLP(h_i * h_j), or MLP([h_i * h_j, e_ij]), for every pair."""
        seed = draw_seed(h, self.dropout, self.training and len(self.norms) > 0)
        hidden = list(zip(list(self.lins)[:-1], self.norms, strict=True))
        if are_plain(chain(self.lins, self.norms), self.in_channels):
            weight, bias = parameters_of([self.lins[-1]])
            product = matmul_dtype(h, weight, "h")
            if not self.norms:
                dtype = wide_dtype(h.dtype)
                logits = ops.pair_dot(h.to(dtype), weight.view(-1).to(dtype), pairs) + bias.to(dtype)
                return logits if pair_attr is None else logits + self._edge_part(pair_attr, True).squeeze(-1)
            # The rows themselves, and for every hidden layer the input of its LayerNorm and its output.
            kept = pairs.size(1) * self.in_channels * (1 + 2 * len(self.norms))
            # On a GPU the operator is a few kernels, and faster than storing results.
            fused = self.recompute == "auto" and not waits.is_host(h.device)
            if pair_attr is None and (fused or keeps_nothing(self.recompute, kept)):
                parameters = [*parameters_of(chain.from_iterable(hidden)), weight, bias]
                return ops.edge_logits(h, pairs, parameters, product, self.dropout, seed)
        z = ops.lift(h, pairs[0]).to(wide_dtype(h.dtype)) * ops.lift(h, pairs[1])
        for layer, (lin, norm) in enumerate(hidden):
            wide = layer == 0 and product_dtype(h) == torch.float16
            z = call_wide(lin, z) if wide else lin(z.to(h.dtype) if layer == 0 else z)
            if layer == 0 and pair_attr is not None:
                z = z + self._edge_part(pair_attr, wide)
            # Products of features may exceed the range of float16; the LayerNorm brings them back.
            z = call_wide(norm, z).to(h.dtype) if wide else norm(z)
            z = relu_dropout(z, self.dropout, seed, layer)
        logits = call_wide(self.lins[-1], z)
        if not self.norms and pair_attr is not None:
            logits = logits + self._edge_part(pair_attr, True)
        return logits.squeeze(-1)

    def _edge_part(self, pair_attr: Tensor, wide: bool) -> Tensor:
        assert self.lin_edge is not None
        return call_wide(self.lin_edge, pair_attr) if wide else self.lin_edge(pair_attr)

    def __repr__(self) -> str:
        edge_dim = "" if self.edge_dim is None else f", edge_dim={self.edge_dim}"
        return (
            f"{self.__class__.__name__}({self.in_channels}, num_layers={self.num_layers}, "
            f"dropout={self.dropout}{edge_dim})"
        )


def check_scored_dtype(name: str, h: Tensor, scorer: torch.nn.Module | None) -> None:
    """Checks the features for a scorer, under the name that the caller wrote."""
    if type(scorer) is EdgeScorer and are_plain(scorer.lins, scorer.in_channels):
        matmul_dtype(h, parameters_of(scorer.lins)[0], name)
