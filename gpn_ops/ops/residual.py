"""The MLPs of DeepSets, a tile of rows at a time."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ..checks import check_count, check_x_and_cluster
from . import derivatives
from .lift import lift
from .reduce import accumulate_, cluster_sizes, reduce
from .tiles import Residual, TileDropout, is_one_tile, like_parameters, product_flops, tiles, wide_dtype


def residual(
    x: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    r""":math:`\mathrm{LayerNorm}(\mathbf{x} + \mathrm{MLP}(\mathbf{x}))`, where the MLP is Linear (ReLU,
    dropout, Linear)*.

    What the MLP gives exists for one tile of rows at a time, and is computed anew in backward: dropout too,
    by the seed. An operator, because :func:`torch.compile` need not see the loop over tiles.

    Args:
        x (torch.Tensor): :math:`[n, d]`.
        parameters (list[torch.Tensor]): Weight and bias of every Linear, then those of the LayerNorm.
        product (torch.dtype): What matrix products run in.
        dropout (float, optional): The probability with which a hidden value is dropped.
            (default: :obj:`0.0`)
        seed (torch.Tensor, optional): An int64 scalar on the device of :obj:`x`. Without it nothing is
            dropped. (default: :obj:`None`)

    Returns:
        torch.Tensor: :math:`[n, d]`, differentiable once in :obj:`x` and the parameters.

    Example:
        >>> import torch
        >>> from gpn_ops import ops
        >>> parameters = [torch.eye(2), torch.zeros(2), torch.ones(2), torch.zeros(2)]
        >>> ops.residual(torch.tensor([[1.0, 2.0]]), parameters, torch.float32)
        tensor([[-1.0000,  1.0000]])
    """
    return torch.ops.gpn.residual(x, parameters, product, dropout, seed)


def residual_sum(
    x: Tensor,
    cluster: Tensor,
    num_clusters: int,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    r"""The sum of :func:`residual` over the nodes of each cluster, without holding it for all nodes.

    Args:
        x (torch.Tensor): :math:`[n, d]`.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`. A node of cluster -1 is in none.
        num_clusters (int): The number of clusters :math:`c`.
        parameters, product, dropout, seed: As in :func:`residual`.

    Returns:
        torch.Tensor: :math:`[c, d]`, differentiable once in :obj:`x` and the parameters.

    Raises:
        RuntimeError: As :func:`reduce`.

    Example:
        >>> import torch
        >>> from gpn_ops import ops
        >>> parameters = [torch.eye(2), torch.zeros(2), torch.ones(2), torch.zeros(2)]
        >>> ops.residual_sum(torch.eye(2), torch.tensor([0, 0]), 1, parameters, torch.float32)
        tensor([[0., 0.]])
    """
    return torch.ops.gpn.residual_sum(x, cluster, num_clusters, parameters, product, dropout, seed)


def _block(
    x: Tensor, parameters: list[Tensor], product: torch.dtype, dropout: float, seed: Tensor | None
) -> Residual:
    return Residual(parameters, product, wide_dtype(x.dtype), TileDropout(dropout, seed))


@torch.library.impl("gpn::residual", "CompositeExplicitAutograd")
def _(
    x: Tensor, parameters: list[Tensor], product: torch.dtype, dropout: float, seed: Tensor | None
) -> Tensor:
    block = _block(x, parameters, product, dropout, seed)
    if is_one_tile(x, x.size(1), len(parameters) // 2):
        return block.forward(x, 0).to(x.dtype)
    out = torch.empty_like(x)
    for tile in tiles(x, 0, x.size(1), len(parameters) // 2):
        out[tile] = block.forward(x[tile], tile.start)
    return out


@torch.library.register_fake("gpn::residual")
def _(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


@torch.library.impl("gpn::residual_sum", "CompositeExplicitAutograd")
def _(
    x: Tensor,
    cluster: Tensor,
    num_clusters: int,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    check_x_and_cluster(x, cluster)
    check_count("num_clusters", num_clusters)
    block = _block(x, parameters, product, dropout, seed)
    if is_one_tile(x, x.size(1), len(parameters) // 2):
        return reduce(block.forward(x, 0), cluster, num_clusters).to(x.dtype)
    sums = x.new_zeros(num_clusters, x.size(1), dtype=block.wide)
    for tile in tiles(x, 0, x.size(1), len(parameters) // 2):
        try:
            accumulate_(sums, block.forward(x[tile], tile.start), cluster[tile])
        except RuntimeError:
            cluster_sizes(cluster, num_clusters)  # names a bad id by its place among all
            raise
    return sums.to(x.dtype)


@torch.library.register_fake("gpn::residual_sum")
def _(x: Tensor, cluster: Tensor, num_clusters: int, *_: Any) -> Tensor:
    check_x_and_cluster(x, cluster)
    check_count("num_clusters", num_clusters)
    return x.new_empty(num_clusters, x.size(1))


@torch.library.impl("gpn::residual_backward", "CompositeExplicitAutograd")
def _(
    grad: Tensor,
    x: Tensor,
    cluster: Tensor | None,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> list[Tensor]:
    """The gradients of x and of the parameters; with ``cluster``, ``grad`` is that of the clusters' sums."""
    block = _block(x, parameters, product, dropout, seed)
    grad_x = torch.empty_like(x)
    grads = block.start_backward()
    for tile in tiles(x, 0, x.size(1), len(parameters) // 2):
        rows = grad[tile] if cluster is None else lift(grad, cluster[tile])
        block.backward(rows.to(block.wide), x[tile], tile.start, out=grad_x[tile])
    return [grad_x, *like_parameters(grads, parameters)]


@torch.library.register_fake("gpn::residual_backward")
def _(grad: Tensor, x: Tensor, cluster: Tensor | None, parameters: list[Tensor], *_: Any) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in (x, *parameters)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, parameters, ctx.product, ctx.dropout, seed = inputs
    ctx.save_for_backward(x, None, seed, *parameters)


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, cluster, _, parameters, ctx.product, ctx.dropout, seed = inputs
    ctx.save_for_backward(x, cluster, seed, *parameters)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
    x, cluster, seed, *parameters = ctx.saved_tensors
    grad_x, *grads = torch.ops.gpn.residual_backward(
        grad, x, cluster, parameters, ctx.product, ctx.dropout, seed
    )
    return grad_x, grads


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    grad_x, grads = _gradients(ctx, grad)
    return grad_x, grads, None, None, None


def _backward_sum(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    grad_x, grads = _gradients(ctx, grad)
    return grad_x, None, None, grads, None, None, None


derivatives.register("residual", _backward, _save)
derivatives.register("residual_sum", _backward_sum, _save_sum)
derivatives.register_last("residual_backward", "DeepSets(recompute=False) has them")


@register_flop_formula(torch.ops.gpn.residual)
def _(x: torch.Size, parameters: list[torch.Size], *_: Any, **__: Any) -> int:
    return product_flops(x[0], parameters)


@register_flop_formula(torch.ops.gpn.residual_sum)
def _(x: torch.Size, _: Any, __: int, parameters: list[torch.Size], *___: Any, **____: Any) -> int:
    return product_flops(x[0], parameters)


@register_flop_formula(torch.ops.gpn.residual_backward)
def _(_: Any, x: torch.Size, __: Any, parameters: list[torch.Size], *___: Any, **____: Any) -> int:
    """Everything once more, then two products for every one."""
    return 3 * product_flops(x[0], parameters)
