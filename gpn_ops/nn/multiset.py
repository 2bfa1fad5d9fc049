"""Multiset functions, which turn the features of a cluster's nodes into those of the cluster (equation 3)."""

import torch
from torch import Tensor
from torch_geometric.nn.inits import reset

from gpn_ops import ops
from gpn_ops.checks import check_reduction, check_x_and_cluster
from gpn_ops.ops import waits
from gpn_ops.ops.tiles import draw_seed, matmul_dtype

from ._inputs import (
    check_at_least,
    check_channels,
    check_features,
    check_probability,
    check_recompute,
)
from .children import are_plain, keeps_nothing, parameters_of
from .dropout import relu_dropout


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
        check_reduction(reduce)
        self.reduce = reduce

    def reset_parameters(self) -> None:
        r"""Does nothing: the module has no parameters."""

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

    The MLPs process one tile of nodes at a time, and again in backward unless their results are small. They
    process all nodes at once in two cases: if gradients are on and :obj:`recompute` is off, and if a child
    was replaced, subclassed or has hooks. Such a child is called like any module.

    Args:
        in_channels (int): Size of each node's features, of the hidden layers and of the output.
        num_layers (int, optional): The number of Linear layers of each MLP. (default: :obj:`1`)
        dropout (float, optional): Dropout probability in the hidden layers. (default: :obj:`0.0`)
        recompute (bool or str, optional): If :obj:`True`, backward computes the hidden layers again. If
            :obj:`False`, they are stored. If :obj:`"auto"`, on the CPU they are stored if small (4 MiB per
            MLP; 64 MiB, if the layer is compiled for one size), which is faster. Results are the same.
            (default: :obj:`"auto"`)

    Example:
        >>> import torch
        >>> from gpn_ops.nn import DeepSets
        >>> DeepSets(16)(torch.randn(3, 16), torch.tensor([0, 0, 1]), 2).shape
        torch.Size([2, 16])
    """

    def __init__(
        self, in_channels: int, num_layers: int = 1, dropout: float = 0.0, recompute: bool | str = "auto"
    ) -> None:
        super().__init__()
        check_at_least("num_layers", 1, num_layers)
        check_channels(in_channels, True, "DeepSets", "Reduce('sum'), Reduce('mean') or Reduce('max')")
        check_probability("dropout", dropout)
        check_recompute(recompute)
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
        for child in self.children():
            reset(child)

    def forward(self, x: Tensor, cluster: Tensor, num_clusters: int) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The node features, :math:`[n, d]`.
            cluster (torch.Tensor): The cluster of every node, int64 :math:`[n]`; -1 for a node in no cluster.
            num_clusters (int): The number of clusters :math:`c`.

        Returns:
            torch.Tensor: The features of the clusters, :math:`[c, d]`.
        """
        check_x_and_cluster(x, cluster)
        check_features("x", x, self.in_channels)
        seeds = [draw_seed(x, self.dropout, self.training and self.num_layers > 1) for _ in range(2)]
        first = self._tiled(x.size(0), x, (*self.lins1, self.norm1))
        if first is None:
            sums = ops.reduce(self._residual(x, self.lins1, self.norm1, seeds[0]), cluster, num_clusters)
        else:
            parameters, product, keep = first
            sums = ops.residual_sum(
                x, cluster, num_clusters, parameters, product, self.dropout, seeds[0], keep
            )
        second = self._tiled(num_clusters, x, (*self.lins2, self.norm2))
        if second is None:
            return self._residual(sums, self.lins2, self.norm2, seeds[1])
        parameters, product, keep = second
        return ops.residual(sums, parameters, product, self.dropout, seeds[1], keep)

    def _tiled(
        self, num_rows: int, x: Tensor, layers: tuple[torch.nn.Module, ...]
    ) -> tuple[list[Tensor], torch.dtype, bool] | None:
        """The parameters, the dtype of products and whether to keep results, for the operators on tiles. None
        if the children are to be called."""
        if not are_plain(layers, self.in_channels):
            return None
        parameters = parameters_of(layers)
        product = matmul_dtype(x, parameters[0])
        # The input of the LayerNorm, and the output of every hidden layer.
        kept_values = num_rows * self.in_channels * self.num_layers
        # On a GPU, computing rows again is faster than reading them.
        again = self.recompute == "auto" and not waits.is_host(x.device)
        keep = not again and not keeps_nothing(self.recompute, kept_values)
        # With recompute off, autograd keeps everything and has second derivatives.
        return None if keep and self.recompute != "auto" else (parameters, product, keep)

    def _residual(
        self, x: Tensor, lins: torch.nn.ModuleList, norm: torch.nn.LayerNorm, seed: Tensor | None
    ) -> Tensor:
        """LayerNorm(x + MLP(x)), by calling the children."""
        z = lins[0](x)
        for layer, lin in enumerate(list(lins)[1:]):
            z = lin(relu_dropout(z, self.dropout, seed, layer))
        return norm(x + z).to(x.dtype)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, num_layers={self.num_layers}, "
            f"dropout={self.dropout})"
        )


def _linears(channels: int, num_layers: int) -> torch.nn.ModuleList:
    return torch.nn.ModuleList(torch.nn.Linear(channels, channels) for _ in range(num_layers))
