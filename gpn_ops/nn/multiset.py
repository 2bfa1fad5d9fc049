"""Multiset functions: from the features of a cluster's nodes to the features of the cluster (equation 3)."""

from typing import Any

import torch
from torch import Tensor

from gpn_ops import ops

from ._tiles import (
    Residual,
    TileDropout,
    draw_seed,
    like_parameters,
    matmul_dtype,
    tiles,
    weight_and_bias,
    wide_dtype,
)
from .dropout import dropout


class Reduce(torch.nn.Module):
    r"""The sum, mean or maximum over the nodes of each cluster, channel by channel.

    Args:
        reduce (str): :obj:`"sum"`, :obj:`"mean"` or :obj:`"max"`.

    Example:
        >>> import torch
        >>> from gpn_ops.nn import Reduce
        >>> Reduce("max")(torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]), 2)
        tensor([[2.],
                [5.]])
    """

    def __init__(self, reduce: str) -> None:
        super().__init__()
        if reduce not in ("sum", "mean", "max"):
            raise ValueError(f"reduce: expected 'sum', 'mean' or 'max', got {reduce!r}")
        self.reduce = reduce

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module: there are none."""

    def forward(self, x: Tensor, cluster: Tensor, num_clusters: int) -> Tensor:
        r"""Forward pass; arguments as in :class:`DeepSets`."""
        return ops.reduce(x, cluster, num_clusters, self.reduce)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.reduce!r})"


class DeepSets(torch.nn.Module):
    r"""The multiset function of the paper,

    .. math::
        \hat{\mathbf{X}}' = \mathrm{MLP}_2 \left( \mathbf{S}^{\top} \mathrm{MLP}_1 (\mathbf{X}) \right),

    where each MLP is Linear (ReLU, dropout, Linear)*, and ends in LayerNorm(input + output).

    What the MLPs give exists for one tile of nodes at a time, and is computed anew in backward, unless
    :obj:`recompute` is off.

    Args:
        in_channels (int): Size of each node's features, of the hidden layers and of the output.
        num_layers (int, optional): The number of Linear layers of each MLP. (default: :obj:`1`)
        dropout (float, optional): Dropout probability in the hidden layers. (default: :obj:`0.0`)
        recompute (bool, optional): If :obj:`False`, backward finds what forward computed: faster, for memory
            in proportion to the number of layers. (default: :obj:`True`)

    Example:
        >>> import torch
        >>> from gpn_ops.nn import DeepSets
        >>> DeepSets(16)(torch.randn(3, 16), torch.tensor([0, 0, 1]), 2).shape
        torch.Size([2, 16])
    """

    def __init__(
        self, in_channels: int, num_layers: int = 1, dropout: float = 0.0, recompute: bool = True
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
        self.lins1 = _linears(in_channels, num_layers)
        self.norm1 = torch.nn.LayerNorm(in_channels)
        self.lins2 = _linears(in_channels, num_layers)
        self.norm2 = torch.nn.LayerNorm(in_channels)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for module in (*self.lins1, self.norm1, *self.lins2, self.norm2):
            module.reset_parameters()

    def forward(self, x: Tensor, cluster: Tensor, num_clusters: int) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The node features, :math:`[n, d]`.
            cluster (torch.Tensor): The cluster of every node, int64 :math:`[n]`.
            num_clusters (int): The number of clusters :math:`c`.

        Returns:
            torch.Tensor: The features of the clusters, :math:`[c, d]`.
        """
        if not self.recompute and torch.is_grad_enabled():
            rows = self._residual(x, self.lins1, self.norm1)
            return self._residual(ops.reduce(rows, cluster, num_clusters), self.lins2, self.norm2)
        product = matmul_dtype(x, self.norm1.weight)
        sums = residual_sum(
            x,
            cluster,
            num_clusters,
            _parameters(self.lins1, self.norm1),
            product,
            self.dropout,
            draw_seed(self.dropout, self.training),
        )
        return residual(
            sums,
            _parameters(self.lins2, self.norm2),
            product,
            self.dropout,
            draw_seed(self.dropout, self.training),
        )

    def _residual(self, x: Tensor, lins: torch.nn.ModuleList, norm: torch.nn.LayerNorm) -> Tensor:
        """LayerNorm(x + MLP(x)), all of it kept for backward."""
        z = lins[0](x)
        for lin in lins[1:]:
            z = lin(dropout(z.relu(), self.dropout, self.training))
        return norm(x + z)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, num_layers={self.num_layers}, "
            f"dropout={self.dropout})"
        )


def _linears(channels: int, num_layers: int) -> torch.nn.ModuleList:
    return torch.nn.ModuleList(torch.nn.Linear(channels, channels) for _ in range(num_layers))


def _parameters(lins: torch.nn.ModuleList, norm: torch.nn.LayerNorm) -> list[Tensor]:
    return [parameter for module in (*lins, norm) for parameter in weight_and_bias(module)]


# ------------------------------------------------------------------------------------------------------------
# LayerNorm(x + MLP(x)), as an operator: torch.compile need not see its loop over tiles
# ------------------------------------------------------------------------------------------------------------


def _pass(
    x: Tensor, parameters: list[Tensor], product: torch.dtype, dropout: float, seed: Tensor | None
) -> Residual:
    return Residual(parameters, product, wide_dtype(x.dtype), TileDropout(dropout, seed, x.device))


@torch.library.custom_op("gpn::residual", mutates_args=())
def residual(
    x: Tensor, parameters: list[Tensor], product: torch.dtype, dropout: float, seed: Tensor | None
) -> Tensor:
    """LayerNorm(x + MLP(x)). Without a seed nothing is dropped."""
    block = _pass(x, parameters, product, dropout, seed)
    out = torch.empty_like(x)
    for number, tile in tiles(x.size(0), x.size(1)):
        out[tile] = block.forward(x[tile], number)
    return out


@residual.register_fake
def _(
    x: Tensor, parameters: list[Tensor], product: torch.dtype, dropout: float, seed: Tensor | None
) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("gpn::residual_backward", mutates_args=())
def residual_backward(
    grad: Tensor,
    x: Tensor,
    cluster: Tensor | None,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> list[Tensor]:
    """The gradients of x and of the parameters; with ``cluster``, ``grad`` is that of the clusters' sums."""
    block = _pass(x, parameters, product, dropout, seed)
    grad_x = torch.empty_like(x)
    grads = block.start_backward()
    for number, tile in tiles(x.size(0), x.size(1)):
        rows = grad[tile] if cluster is None else grad.index_select(0, cluster[tile])
        grad_x[tile] = block.backward(rows.to(block.wide), x[tile], number)
    return [grad_x, *like_parameters(grads, parameters)]


@residual_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    cluster: Tensor | None,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in (x, *parameters)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, parameters, ctx.product, ctx.dropout, seed = inputs
    ctx.save_for_backward(x, seed, *parameters)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, seed, *parameters = ctx.saved_tensors
    grad_x, *grads = residual_backward(grad, x, None, parameters, ctx.product, ctx.dropout, seed)
    return grad_x, grads, None, None, None


residual.register_autograd(_backward, setup_context=_save)


# ------------------------------------------------------------------------------------------------------------
# The sum of it over every cluster
# ------------------------------------------------------------------------------------------------------------


@torch.library.custom_op("gpn::residual_sum", mutates_args=())
def residual_sum(
    x: Tensor,
    cluster: Tensor,
    num_clusters: int,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """The sum of :func:`residual` over the nodes of each cluster: ``[num_clusters, channels]``."""
    block = _pass(x, parameters, product, dropout, seed)
    sums = x.new_zeros(num_clusters, x.size(1), dtype=block.wide)
    for number, tile in tiles(x.size(0), x.size(1)):
        ops.accumulate_(sums, block.forward(x[tile], number), cluster[tile])
    return sums.to(x.dtype)


@residual_sum.register_fake
def _(
    x: Tensor,
    cluster: Tensor,
    num_clusters: int,
    parameters: list[Tensor],
    product: torch.dtype,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    return x.new_empty(num_clusters, x.size(1))


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, cluster, _, parameters, ctx.product, ctx.dropout, seed = inputs
    ctx.save_for_backward(x, cluster, seed, *parameters)


def _backward_sum(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, cluster, seed, *parameters = ctx.saved_tensors
    grad_x, *grads = residual_backward(grad, x, cluster, parameters, ctx.product, ctx.dropout, seed)
    return grad_x, None, None, grads, None, None, None


residual_sum.register_autograd(_backward_sum, setup_context=_save_sum)
