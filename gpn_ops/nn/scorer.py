"""Edge scores (equation 1), without a row of features per edge."""

from typing import Any

import torch
from torch import Tensor

from gpn_ops import ops

from ._tiles import (
    Hidden,
    TileDropout,
    draw_seed,
    like_parameters,
    matmul_dtype,
    tiles,
    weight_and_bias,
    wide_dtype,
)
from .dropout import dropout


class EdgeScorer(torch.nn.Module):
    r"""Scores every edge by its two ends,

    .. math::
        C_{ij} = \sigma \left( \mathrm{MLP} \left( \mathbf{h}_i \odot \mathbf{h}_j \right) \right),

    in memory :math:`O(nd + m)`, forward and backward: rows of :math:`\mathbf{h}_i \odot \mathbf{h}_j` exist
    for one tile of edges at a time, and are computed anew in backward, unless :obj:`recompute` is off.

    The MLP is a Linear layer, followed by any number of (LayerNorm, ReLU, dropout, Linear). An edge and its
    reverse are scored once and get the same bits; an edge without a reverse is scored on its own.

    Scores are float32 where the features are in half precision, whose sigmoid has too few values to tell
    edges apart.

    Args:
        in_channels (int): Size of each node's features, and of the hidden layers.
        num_layers (int, optional): The number of Linear layers. (default: :obj:`2`)
        dropout (float, optional): Dropout probability in the hidden layers. (default: :obj:`0.0`)
        recompute (bool, optional): If :obj:`False`, backward finds what forward computed: faster, for several
            rows of features per edge. One layer needs neither. (default: :obj:`True`)

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
        self, in_channels: int, num_layers: int = 2, dropout: float = 0.0, recompute: bool = True
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers: expected at least 1, got {num_layers}")
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout: expected a probability, got {dropout}")
        self.in_channels = in_channels
        self.num_layers = num_layers
        self.dropout = dropout
        self.recompute = recompute
        width = [in_channels] * num_layers + [1]
        self.lins = torch.nn.ModuleList(torch.nn.Linear(width[k], width[k + 1]) for k in range(num_layers))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(in_channels) for _ in range(num_layers - 1))

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for module in (*self.lins, *self.norms):
            module.reset_parameters()

    def forward(self, h: Tensor, edge_index: Tensor) -> Tensor:
        r"""Forward pass.

        Args:
            h (torch.Tensor): The node features, :math:`[n, d]`.
            edge_index (torch.Tensor): The edges, :math:`[2, m]`.

        Returns:
            torch.Tensor: A score per edge, :math:`[m]`.
        """
        pairs, slot = ops.undirected(edge_index, h.size(0))
        return ops.lift(self.score_pairs(h, pairs), slot)

    def score_pairs(self, h: Tensor, pairs: Tensor) -> Tensor:
        r"""The scores of the pairs of :func:`gpn_ops.undirected`.

        Args:
            h (torch.Tensor): The node features, :math:`[n, d]`.
            pairs (torch.Tensor): The ends of each pair, int64 :math:`[2, u]`.

        Returns:
            torch.Tensor: A score per pair, :math:`[u]`.
        """
        parameters = [
            parameter
            for lin, norm in zip(self.lins, self.norms, strict=False)
            for parameter in (*weight_and_bias(lin), *weight_and_bias(norm))
        ]
        weight, bias = weight_and_bias(self.lins[-1])
        product = matmul_dtype(h, weight)
        if self.num_layers == 1:
            wide = wide_dtype(h.dtype)
            logits = ops.pair_dot(h.to(wide), weight.view(-1).to(wide), pairs) + bias.to(wide)
        elif not self.recompute and torch.is_grad_enabled():
            logits = self._logits(h, pairs)
        else:
            logits = edge_logits(
                h,
                pairs,
                [*parameters, weight, bias],
                product,
                self.dropout,
                draw_seed(self.dropout, self.training),
            )
        return logits.sigmoid()

    def _logits(self, h: Tensor, pairs: Tensor) -> Tensor:
        """MLP(h_i * h_j) for every pair, all of it kept for backward."""
        z = ops.lift(h, pairs[0]) * ops.lift(h, pairs[1])
        for lin, norm in zip(self.lins, self.norms, strict=False):
            z = dropout(norm(lin(z)).relu(), self.dropout, self.training)
        weight, bias = weight_and_bias(self.lins[-1])
        wide = wide_dtype(h.dtype)
        return torch.mv(z.to(wide), weight.view(-1).to(wide)) + bias.to(wide)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, num_layers={self.num_layers}, "
            f"dropout={self.dropout})"
        )


# ------------------------------------------------------------------------------------------------------------
# The scorer of several layers, as an operator: torch.compile need not see its loop over tiles
# ------------------------------------------------------------------------------------------------------------


class _Pass:
    """The parameters of a scorer, ready to be applied to tiles."""

    def __init__(
        self, h: Tensor, parameters: list[Tensor], product: torch.dtype, dropout: float, seed: Tensor | None
    ) -> None:
        self.wide = wide_dtype(h.dtype)
        self.dropout = TileDropout(dropout, seed, h.device)
        self.hidden = Hidden(parameters[:-2], True, product, self.wide, self.dropout)
        # Of the wide type: rounded to half precision, the scores of many edges would be equal.
        self.weight = parameters[-2].view(-1).to(self.wide)
        self.bias = parameters[-1].to(self.wide)

    def product(self, h: Tensor, pairs: Tensor, tile: int) -> Tensor:
        self.dropout.start(tile)
        return ops.pair_product(h, pairs).to(self.wide)


@torch.library.custom_op("gpn::edge_logits", mutates_args=())
def edge_logits(
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """MLP(h_i * h_j) for every pair: ``[num_pairs]``. Without a seed nothing is dropped."""
    scorer = _Pass(h, parameters, product, dropout, seed)
    out = h.new_empty(pairs.size(1), dtype=scorer.wide)
    for number, tile in tiles(pairs.size(1), h.size(1)):
        z = scorer.hidden.forward(scorer.product(h, pairs[:, tile], number))
        torch.addmv(scorer.bias, z, scorer.weight, out=out[tile])
    return out


@edge_logits.register_fake
def _(
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    return h.new_empty(pairs.size(1), dtype=wide_dtype(h.dtype))


@torch.library.custom_op("gpn::edge_logits_backward", mutates_args=())
def edge_logits_backward(
    grad: Tensor,
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> list[Tensor]:
    """The gradients of h and of the parameters."""
    scorer = _Pass(h, parameters, product, dropout, seed)
    grad_h = torch.zeros_like(h, dtype=scorer.wide)
    grads = scorer.hidden.start_backward()
    grad_weight = torch.zeros_like(scorer.weight)
    for number, tile in tiles(pairs.size(1), h.size(1)):
        z = scorer.hidden.forward_saving(scorer.product(h, pairs[:, tile], number))
        grad_weight.addmv_(z.t(), grad[tile])
        del z
        grad_product = scorer.hidden.backward(torch.outer(grad[tile], scorer.weight))
        ops.pair_product_backward_(grad_h, grad_product.to(h.dtype), h, pairs[:, tile])
    grads += [grad_weight.view(1, -1), grad.sum(dim=0, keepdim=True)]
    return [grad_h.to(h.dtype), *like_parameters(grads, parameters)]


@edge_logits_backward.register_fake
def _(
    grad: Tensor,
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in (h, *parameters)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    h, pairs, parameters, ctx.product, ctx.dropout, seed = inputs
    ctx.save_for_backward(h, pairs, seed, *parameters)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    h, pairs, seed, *parameters = ctx.saved_tensors
    grad_h, *grads = edge_logits_backward(grad, h, pairs, parameters, ctx.product, ctx.dropout, seed)
    return grad_h, None, grads, None, None, None


edge_logits.register_autograd(_backward, setup_context=_save)
