"""The output of a multi-layer edge scorer before its sigmoid, without storing a row of features per edge."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ..checks import (
    Size,
    check,
    check_device,
    check_dtype,
    check_floating,
    check_pair_values,
    check_pairs,
    check_shape,
    sum_dtype,
)
from . import derivatives, tiles, waits
from .dropout import check_seed
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

    Rows of features exist for one tile of pairs at a time (on CUDA, for the pairs of one block of threads).
    Backward computes them again, and repeats dropout from the seed. Being one operator, it hides the loop
    over tiles from :func:`torch.compile`.

    Args:
        h (torch.Tensor): Features of the nodes, :math:`[n, d]`.
        pairs (torch.Tensor): int64 :math:`[2, u]`.
        parameters (list[torch.Tensor]): Weight and bias of every Linear, each except the last followed by
            those of its LayerNorm.
        product (torch.dtype): The dtype of matrix products. For float16 they run in float32, because products
            of features may exceed its range.
        dropout (float, optional): The probability with which a hidden value is dropped.
            (default: :obj:`0.0`)
        seed (torch.Tensor, optional): An int64 scalar on the device of :obj:`h`. If :obj:`None`, nothing is
            dropped. (default: :obj:`None`)

    Returns:
        torch.Tensor: :math:`[u]`, in float32 if :obj:`h` is in half precision. Once differentiable in
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


def check_edge_logits(
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    dropout: float,
    seed: Tensor | None,
    tile_rows: int | torch.SymInt,
) -> None:
    check_pairs(h, pairs)
    count, channels = len(parameters), ("channels", h.size(1))
    if count < 6 or count % 4 != 2:
        raise RuntimeError(
            "parameters: expected weight, bias, norm weight and norm bias of every hidden layer, then weight "
            f"and bias of the last, got {count} tensors"
        )
    shapes: list[tuple[Size, ...]] = [(channels, channels), (channels,), (channels,), (channels,)]
    shapes = shapes * (count // 4) + [(("1", 1), channels), (("1", 1),)]
    for i, (parameter, shape) in enumerate(zip(parameters, shapes, strict=True)):
        check_floating(f"parameters[{i}]", parameter)
        check_shape(f"parameters[{i}]", parameter, *shape)
        check_device(f"parameters[{i}]", parameter, "h", h)
    if not 0 <= dropout <= 1:
        raise RuntimeError(f"dropout: expected a probability, got {dropout:g}")
    if seed is not None:
        check_seed(seed, "h", h)
    check(tile_rows >= 1, lambda: f"tile_rows: expected a positive integer, got {tile_rows}")


def check_edge_logits_backward(grad: Tensor, h: Tensor, pairs: Tensor, *arguments: Any) -> None:
    check_edge_logits(h, pairs, *arguments)
    check_dtype("grad", grad, sum_dtype(h))
    check_shape("grad", grad, ("num_pairs", pairs.size(1)))
    check_device("grad", grad, "h", h)


def _check_pairs_exist(pairs: Tensor, h: Tensor) -> None:
    """Checks values where this needs no wait, because operators on tiles would report positions in a tile."""
    if waits.is_host(h.device):
        check_pair_values(pairs, h.size(0))


class _Scorer:
    """The parameters of a scorer, ready to be applied to tiles."""

    def __init__(
        self, h: Tensor, parameters: list[Tensor], product: torch.dtype, dropout: float, seed: Tensor | None
    ) -> None:
        self.wide = wide_dtype(h.dtype)
        # Widened before any product: the product of two features may exceed what half precision
        # holds, from 256 on in float16. That type has no range for the rows of matrix products either.
        self.h = h.to(self.wide)
        if product == torch.float16:
            product = self.wide
        self.dropout = TileDropout(dropout, seed)
        self.hidden = Hidden(parameters[:-2], True, product, self.wide, self.dropout)
        # In the wide dtype, because rounded to half precision many edges would have equal scores.
        self.weight = parameters[-2].view(-1).to(self.wide)
        self.bias = parameters[-1].to(self.wide)

    def product(self, pairs: Tensor, row: int) -> Tensor:
        self.dropout.start(row)
        return pair_product(self.h, pairs)


def plain_edge_logits(
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
    tile_rows: int,
) -> Tensor:
    """As :func:`edge_logits`, in tiles of ``tile_rows`` rows and without a gradient."""
    check_edge_logits(h, pairs, parameters, dropout, seed, tile_rows)
    _check_pairs_exist(pairs, h)
    scorer = _Scorer(h, parameters, product, dropout, seed)
    out = h.new_empty(pairs.size(1), dtype=scorer.wide)
    with autocast_off(h.device):
        for tile in cut(pairs.size(1), tile_rows):
            z = scorer.hidden.forward(scorer.product(pairs[:, tile], tile.start))
            torch.addmv(scorer.bias, z, scorer.weight, out=out[tile])
    return out


@torch.library.register_fake("gpn::edge_logits")
def _(
    h: Tensor,
    pairs: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
    tile_rows: int,
) -> Tensor:
    check_edge_logits(h, pairs, parameters, dropout, seed, tile_rows)
    return h.new_empty(pairs.size(1), dtype=wide_dtype(h.dtype))


def plain_edge_logits_backward(
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
    check_edge_logits_backward(grad, h, pairs, parameters, dropout, seed, tile_rows)
    _check_pairs_exist(pairs, h)
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


# The form that consists of other operators, for devices without a kernel.
torch.library.impl("gpn::edge_logits", "CompositeExplicitAutograd", plain_edge_logits)
torch.library.impl("gpn::edge_logits_backward", "CompositeExplicitAutograd", plain_edge_logits_backward)
torch.library.impl(
    "gpn::_edge_logits_backward_tiles", "CompositeExplicitAutograd", plain_edge_logits_backward
)


@torch.library.register_fake("gpn::edge_logits_backward")
@torch.library.register_fake("gpn::_edge_logits_backward_tiles")
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
    check_edge_logits_backward(grad, h, pairs, parameters, dropout, seed, tile_rows)
    return [torch.empty_like(tensor) for tensor in (h, *parameters)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    h, pairs, parameters, ctx.product, ctx.dropout, seed, ctx.tile_rows = inputs
    ctx.save_for_backward(h, pairs, seed, *parameters)


# Up to this product of channels and hidden layers, shared memory has room for two warps of the fused CUDA
# kernel. For wider rows it would leave the device idle, and torch's matrix products on tiles are faster.
MOST_FUSED = 256


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    h, pairs, seed, *parameters = ctx.saved_tensors
    fused = waits.is_host(h.device) or len(parameters) // 4 * h.size(1) <= MOST_FUSED
    ops = torch.ops.gpn
    backward = ops.edge_logits_backward if fused else ops._edge_logits_backward_tiles
    grad_h, *grads = backward(grad, h, pairs, parameters, ctx.product, ctx.dropout, seed, ctx.tile_rows)
    return grad_h, None, grads, None, None, None, None


derivatives.register("edge_logits", _backward, _save)
for _last in ("edge_logits_backward", "_edge_logits_backward_tiles"):
    derivatives.register_last(_last, "EdgeScorer(recompute=False) has them")


@register_flop_formula(torch.ops.gpn.edge_logits)
def _(h: torch.Size, pairs: torch.Size, parameters: list[torch.Size], *_: Any, **__: Any) -> int:
    return product_flops(pairs[1], parameters)


@register_flop_formula([torch.ops.gpn.edge_logits_backward, torch.ops.gpn._edge_logits_backward_tiles])
def _(_: Any, h: torch.Size, pairs: torch.Size, parameters: list[torch.Size], *__: Any, **___: Any) -> int:
    """The hidden layers again, then two products for each product of forward."""
    hidden = product_flops(pairs[1], parameters[:-2])
    return hidden + 2 * product_flops(pairs[1], parameters)
