"""What an edge scorer of several layers gives before its sigmoid, a tile of edges at a time."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from . import derivatives, tiles
from .pair_product import pair_product, pair_product_backward_
from .tiles import Hidden, TileDropout, autocast_off, cut, like_parameters, product_flops, wide_dtype


def edge_logits(
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    r""":math:`\mathrm{MLP}(\mathbf{h}_i \odot \mathbf{h}_j)` for every pair :math:`(i, j)`, where the MLP is
    (Linear, LayerNorm, ReLU, dropout)*, Linear.

    Rows of features exist for one tile of pairs at a time, and are computed anew in backward: dropout too,
    by the seed. An operator, because :func:`torch.compile` need not see the loop over tiles.

    Args:
        h (torch.Tensor): Features of the nodes, :math:`[n, d]`.
        pairs (torch.Tensor): int64 :math:`[2, u]`.
        parameters (list[torch.Tensor]): Weight and bias of every Linear, each but the last one followed by
            those of its LayerNorm.
        product (torch.dtype): What matrix products run in; float16 means float32, as products of features
            may exceed its range.
        dropout (float, optional): The probability with which a hidden value is dropped.
            (default: :obj:`0.0`)
        seed (torch.Tensor, optional): An int64 scalar on the device of :obj:`h`. Without it nothing is
            dropped. (default: :obj:`None`)

    Returns:
        torch.Tensor: :math:`[u]`, float32 where :obj:`h` is in half precision. Differentiable once in
        :obj:`h` and the parameters.

    Example:
        >>> import torch
        >>> from gpn_ops import ops
        >>> norm = [torch.ones(2), torch.zeros(2)]
        >>> parameters = [torch.eye(2), torch.zeros(2), *norm, torch.ones(1, 2), torch.zeros(1)]
        >>> h = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> ops.edge_logits(h, torch.tensor([[0], [1]]), parameters, torch.float32)
        tensor([1.0000])
    """
    rows = tiles.tile_rows(h.device, h.size(1), len(parameters) // 4)
    return torch.ops.gpn.edge_logits(h, pairs, parameters, product, dropout, seed, rows)


class _Scorer:
    """The parameters of a scorer, ready to be applied to tiles."""

    def __init__(
        self, h: Tensor, parameters: list[Tensor], product: torch.dtype, dropout: float, seed: Tensor | None
    ) -> None:
        self.wide = wide_dtype(h.dtype)
        # Widened before anything is multiplied: the product of two features may exceed what half precision
        # holds, from 256 on in float16. That type has no range for the rows of matrix products either.
        self.h = h.to(self.wide)
        if product == torch.float16:
            product = self.wide
        self.dropout = TileDropout(dropout, seed)
        self.hidden = Hidden(parameters[:-2], True, product, self.wide, self.dropout)
        # Of the wide type: rounded to half precision, the scores of many edges would be equal.
        self.weight = parameters[-2].view(-1).to(self.wide)
        self.bias = parameters[-1].to(self.wide)

    def product(self, pairs: Tensor, row: int) -> Tensor:
        self.dropout.start(row)
        return pair_product(self.h, pairs)


@torch.library.impl("gpn::edge_logits", "CompositeExplicitAutograd")
def _(
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
    tile_rows: int,
) -> Tensor:
    scorer = _Scorer(h, parameters, product, dropout, seed)
    out = h.new_empty(pairs.size(1), dtype=scorer.wide)
    with autocast_off(h.device):
        for tile in cut(pairs.size(1), tile_rows):
            z = scorer.hidden.forward(scorer.product(pairs[:, tile], tile.start))
            torch.addmv(scorer.bias, z, scorer.weight, out=out[tile])
    return out


@torch.library.register_fake("gpn::edge_logits")
def _(h: Tensor, pairs: Tensor, *_: Any) -> Tensor:
    return h.new_empty(pairs.size(1), dtype=wide_dtype(h.dtype))


@torch.library.impl("gpn::edge_logits_backward", "CompositeExplicitAutograd")
def _(
    grad: Tensor,
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
    tile_rows: int,
) -> list[Tensor]:
    """The gradients of h and of the parameters."""
    scorer = _Scorer(h, parameters, product, dropout, seed)
    grad_h = torch.zeros_like(h, dtype=scorer.wide)
    grads = scorer.hidden.start_backward()
    grad_weight = torch.zeros_like(scorer.weight)
    with autocast_off(h.device):
        for tile in cut(pairs.size(1), tile_rows):
            z = scorer.hidden.forward_saving(scorer.product(pairs[:, tile], tile.start))
            grad_weight.addmv_(z.t(), grad[tile])
            del z
            grad_product = scorer.hidden.backward(torch.outer(grad[tile], scorer.weight))
            pair_product_backward_(grad_h, grad_product, scorer.h, pairs[:, tile])
    grads += [grad_weight.view(1, -1), grad.sum(dim=0, keepdim=True)]
    return [grad_h.to(h.dtype), *like_parameters(grads, parameters)]


@torch.library.register_fake("gpn::edge_logits_backward")
def _(grad: Tensor, h: Tensor, pairs: Tensor, parameters: list[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in (h, *parameters)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    h, pairs, parameters, ctx.product, ctx.dropout, seed, ctx.tile_rows = inputs
    ctx.save_for_backward(h, pairs, seed, *parameters)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    h, pairs, seed, *parameters = ctx.saved_tensors
    grad_h, *grads = torch.ops.gpn.edge_logits_backward(
        grad, h, pairs, parameters, ctx.product, ctx.dropout, seed, ctx.tile_rows
    )
    return grad_h, None, grads, None, None, None, None


derivatives.register("edge_logits", _backward, _save)
derivatives.register_last("edge_logits_backward", "EdgeScorer(recompute=False) has them")


@register_flop_formula(torch.ops.gpn.edge_logits)
def _(h: torch.Size, pairs: torch.Size, parameters: list[torch.Size], *_: Any, **__: Any) -> int:
    return product_flops(pairs[1], parameters)


@register_flop_formula(torch.ops.gpn.edge_logits_backward)
def _(_: Any, h: torch.Size, pairs: torch.Size, parameters: list[torch.Size], *__: Any, **___: Any) -> int:
    """The hidden layers once more, then two products for every one."""
    hidden = product_flops(pairs[1], parameters[:-2])
    return hidden + 2 * product_flops(pairs[1], parameters)
