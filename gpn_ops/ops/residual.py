"""The MLPs of DeepSets, one tile of rows at a time."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ..checks import (
    check,
    check_cluster_values,
    check_count,
    check_device,
    check_dtype,
    check_floating,
    check_rows,
    check_shape,
    check_x_and_cluster,
    sum_dtype,
)
from . import derivatives, tiles, waits
from .dropout import check_seed
from .lift import lift
from .reduce import accumulate_, reduce
from .tiles import (
    Normalised,
    Residual,
    ResidualState,
    TileDropout,
    autocast_off,
    cut,
    like_parameters,
    product_flops,
    wide_dtype,
)


def residual(
    x: Tensor,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    keep: bool = False,
) -> Tensor:
    r""":math:`\mathrm{LayerNorm}(\mathbf{x} + \mathrm{MLP}(\mathbf{x}))`, where the MLP is Linear (ReLU,
    dropout, Linear)*.

    The MLP's results are held for one tile of rows at a time (on CUDA, for the rows of one block of threads).
    Backward recomputes them, and repeats dropout from the seed. This is one operator, so
    :func:`torch.compile` does not see the loop over tiles.

    Args:
        x (torch.Tensor): :math:`[n, d]`.
        parameters (list[torch.Tensor]): Weight and bias of every Linear, then those of the LayerNorm.
        product (torch.dtype): The dtype of matrix products.
        dropout (float, optional): The probability with which a hidden value is dropped.
            (default: :obj:`0.0`)
        seed (torch.Tensor, optional): An int64 scalar on the device of :obj:`x`. If :obj:`None`, nothing is
            dropped. (default: :obj:`None`)
        keep (bool, optional): On the CPU, keep what backward would otherwise recompute.
            (default: :obj:`False`)

    Returns:
        torch.Tensor: :math:`[n, d]`, once differentiable in :obj:`x` and the parameters.

    Example:
        >>> import torch
        >>> from gpn_ops import ops
        >>> parameters = [torch.eye(2), torch.zeros(2), torch.ones(2), torch.zeros(2)]
        >>> ops.residual(torch.tensor([[1.0, 2.0]]), parameters, torch.float32)
        tensor([[-1.0000,  1.0000]])
    """
    rows = tiles.tile_rows(x.device, x.size(1), len(parameters) // 2)
    return torch.ops.gpn.residual(x, None, 0, parameters, product, dropout, seed, rows, keep)[0]


def residual_sum(
    x: Tensor,
    cluster: Tensor,
    num_clusters: int,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    keep: bool = False,
) -> Tensor:
    r"""The sum of :func:`residual` over the nodes of each cluster, without storing it for all nodes.

    Args:
        x (torch.Tensor): :math:`[n, d]`.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`; -1 if it is in none.
        num_clusters (int): The number of clusters :math:`c`.
        parameters, product, dropout, seed, keep: As in :func:`residual`.

    Returns:
        torch.Tensor: :math:`[c, d]`, once differentiable in :obj:`x` and the parameters.

    Raises:
        RuntimeError: As :func:`reduce`.

    Example:
        >>> import torch
        >>> from gpn_ops import ops
        >>> parameters = [torch.eye(2), torch.zeros(2), torch.ones(2), torch.zeros(2)]
        >>> ops.residual_sum(torch.eye(2), torch.tensor([0, 0]), 1, parameters, torch.float32)
        tensor([[0., 0.]])
    """
    rows = tiles.tile_rows(x.device, x.size(1), len(parameters) // 2)
    arguments = (x, cluster, num_clusters, parameters, product, dropout, seed, rows, keep)
    return torch.ops.gpn.residual(*arguments)[0]


def check_residual(
    x: Tensor,
    cluster: Tensor | None,
    parameters: list[Tensor],
    dropout: float,
    seed: Tensor | None,
    tile_rows: int | torch.SymInt,
) -> None:
    check_floating("x", x)
    check_shape("x", x, ("num_nodes", None), ("channels", None))
    if cluster is not None:
        check_x_and_cluster(x, cluster)
    count, channels = len(parameters), ("channels", x.size(1))
    if count < 4 or count % 2:
        raise RuntimeError(
            "parameters: expected weight and bias of every Linear, then those of the LayerNorm, "
            f"got {count} tensors"
        )
    for i, parameter in enumerate(parameters):
        is_weight = i % 2 == 0 and i + 2 < count
        check_floating(f"parameters[{i}]", parameter)
        check_shape(f"parameters[{i}]", parameter, *((channels, channels) if is_weight else (channels,)))
        check_device(f"parameters[{i}]", parameter, "x", x)
    if not 0 <= dropout <= 1:
        raise RuntimeError(f"dropout: expected a probability, got {dropout:g}")
    if seed is not None:
        check_seed(seed, "x", x)
    check(tile_rows >= 1, lambda: f"tile_rows: expected a positive integer, got {tile_rows}")


def check_residual_backward(
    grad: Tensor,
    x: Tensor,
    cluster: Tensor | None,
    parameters: list[Tensor],
    dropout: float,
    seed: Tensor | None,
    tile_rows: int | torch.SymInt,
    kept: Tensor,
) -> None:
    check_residual(x, cluster, parameters, dropout, seed, tile_rows)
    check_floating("grad", grad)
    check_shape("grad", grad, ("num_clusters", None), ("channels", x.size(1)))
    check_rows("grad", grad, x, x.size(0) if cluster is None else grad.size(0))
    check_dtype("kept", kept, sum_dtype(x))
    check_shape("kept", kept, ("size", _kept_size(x, parameters) if kept.numel() else 0))
    check_device("kept", kept, "x", x)


def _check_clusters_exist(cluster: Tensor | None, num_clusters: int) -> None:
    """Checks values if this needs no wait; operators on tiles would report positions in a tile."""
    if cluster is not None and waits.is_host(cluster.device):
        check_cluster_values(cluster, -1, "num_clusters", num_clusters)


def _keeps(x: Tensor, keep: bool) -> bool:
    """Only the CPU keeps rows; elsewhere backward recomputes them."""
    return keep and waits.is_host(x.device)


def _kept_size(x: Tensor, parameters: list[Tensor]) -> int:
    """The number of values that forward may keep: for every row the results of the hidden layers, and the
    input, mean and reciprocal standard deviation of the LayerNorm."""
    return x.size(0) * (x.size(1) * (len(parameters) // 2 - 1) + 2)


class _Kept:
    """The values that forward keeps, in one tensor. Only its size is fixed; the operator chooses its
    layout."""

    def __init__(self, kept: Tensor, x: Tensor, parameters: list[Tensor]) -> None:
        num_rows, layers = x.size(0), len(parameters) // 2 - 1
        rows = layers * x.numel()
        self.rows = kept[:rows].view(layers, *x.shape)
        self.statistics = kept[rows:].view(2, num_rows, 1)

    def store(self, tile: slice, state: ResidualState) -> None:
        for to, z in zip(self.rows[:, tile], [*state.inputs[1:], state.total], strict=True):
            to.copy_(z)
        for to, z in zip(self.statistics[:, tile], (state.norm.mean, state.norm.rstd), strict=True):
            to.copy_(z)

    def load(self, tile: slice, x: Tensor) -> ResidualState:
        *hidden, total = self.rows[:, tile]
        mean, rstd = self.statistics[:, tile]
        return ResidualState([x, *hidden], total, Normalised(total, mean, rstd))


def plain_residual(
    x: Tensor,
    cluster: Tensor | None,
    num_clusters: int,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
    tile_rows: int,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """As :func:`residual` and :func:`residual_sum`, in tiles of ``tile_rows`` rows and without a gradient."""
    check_residual(x, cluster, parameters, dropout, seed, tile_rows)
    check_count("num_clusters", num_clusters)
    _check_clusters_exist(cluster, num_clusters)
    block = Residual(parameters, product, wide_dtype(x.dtype), TileDropout(dropout, seed))
    keep = _keeps(x, keep)
    kept = x.new_empty(_kept_size(x, parameters) if keep else 0, dtype=block.wide)
    if 0 < x.size(0) <= tile_rows:  # There is a single tile, whose result need not be copied.
        with autocast_off(x.device):
            state = block.forward(x, 0)
        if keep:
            _Kept(kept, x, parameters).store(slice(0, x.size(0)), state)
        out = state.norm.out
        return (out if cluster is None else reduce(out, cluster, num_clusters)).to(x.dtype), kept
    out = torch.empty_like(x)
    if cluster is not None:
        out = x.new_zeros(num_clusters, x.size(1), dtype=block.wide)
    with autocast_off(x.device):
        for tile in cut(x.size(0), tile_rows):
            state = block.forward(x[tile], tile.start)
            if keep:
                _Kept(kept, x, parameters).store(tile, state)
            if cluster is None:
                out[tile] = state.norm.out
            else:
                accumulate_(out, state.norm.out, cluster[tile])
    return out.to(x.dtype), kept


@torch.library.register_fake("gpn::residual")
def _(
    x: Tensor,
    cluster: Tensor | None,
    num_clusters: int,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
    tile_rows: int,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    check_residual(x, cluster, parameters, dropout, seed, tile_rows)
    check_count("num_clusters", num_clusters)
    out = x.new_empty(x.size(0) if cluster is None else num_clusters, x.size(1))
    return out, x.new_empty(_kept_size(x, parameters) if _keeps(x, keep) else 0, dtype=wide_dtype(x.dtype))


def plain_residual_backward(
    grad: Tensor,
    x: Tensor,
    cluster: Tensor | None,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
    tile_rows: int,
    kept: Tensor,
) -> list[Tensor]:
    """The gradients of x and of the parameters; with ``cluster``, ``grad`` is the gradient of the cluster
    sums."""
    check_residual_backward(grad, x, cluster, parameters, dropout, seed, tile_rows, kept)
    _check_clusters_exist(cluster, grad.size(0))
    block = Residual(parameters, product, wide_dtype(x.dtype), TileDropout(dropout, seed))
    grad_x = torch.empty_like(x)
    grads = block.start_backward()
    with autocast_off(x.device):
        for tile in cut(x.size(0), tile_rows):
            if kept.numel():
                state = _Kept(kept, x, parameters).load(tile, x[tile].to(block.wide))
            else:
                state = block.forward(x[tile], tile.start)
            rows = grad[tile] if cluster is None else lift(grad, cluster[tile])
            block.backward(rows.to(block.wide), state, out=grad_x[tile])
    return [grad_x, *like_parameters(grads, parameters)]


# The form that consists of other operators, for devices without a kernel.
torch.library.impl("gpn::residual", "CompositeExplicitAutograd", plain_residual)
torch.library.impl("gpn::residual_backward", "CompositeExplicitAutograd", plain_residual_backward)


@torch.library.register_fake("gpn::residual_backward")
def _(
    grad: Tensor,
    x: Tensor,
    cluster: Tensor | None,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
    tile_rows: int,
    kept: Tensor,
) -> list[Tensor]:
    check_residual_backward(grad, x, cluster, parameters, dropout, seed, tile_rows, kept)
    return [torch.empty_like(tensor) for tensor in (x, *parameters)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, cluster, _, parameters, ctx.product, ctx.dropout, seed, ctx.tile_rows, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, cluster, seed, output[1], *parameters)


def _backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Any, ...]:
    x, cluster, seed, kept, *parameters = ctx.saved_tensors
    if grad is None:
        return None, None, None, [None] * len(parameters), *(None,) * 5
    grad_x, *grads = torch.ops.gpn.residual_backward(
        grad, x, cluster, parameters, ctx.product, ctx.dropout, seed, ctx.tile_rows, kept
    )
    return grad_x, None, None, grads, *(None,) * 5


derivatives.register("residual", _backward, _save)
derivatives.register_last("residual_backward", "DeepSets(recompute=False) has them")


@register_flop_formula(torch.ops.gpn.residual)
def _(x: torch.Size, _: Any, __: int, parameters: list[torch.Size], *___: Any, **____: Any) -> int:
    return product_flops(x[0], parameters)


@register_flop_formula(torch.ops.gpn.residual_backward)
def _(
    _: Any,
    x: torch.Size,
    __: Any,
    parameters: list[torch.Size],
    *arguments: Any,
    **___: Any,
) -> int:
    """All products of forward unless results were kept, then two for each."""
    kept = arguments[-1]
    return (2 if kept[0] else 3) * product_flops(x[0], parameters)
