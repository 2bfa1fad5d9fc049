"""Edge scores (equation 1), without a row of features per edge."""

import torch
from torch import Tensor

from gpn_ops import ops
from gpn_ops.ops.tiles import draw_seed, matmul_dtype, product_dtype, wide_dtype

from ._children import are_plain, call_wide, keeps_nothing, parameters_of
from ._inputs import check_num_layers, check_probability, check_recompute
from .dropout import relu_dropout


class EdgeScorer(torch.nn.Module):
    r"""Scores every edge by its two ends,

    .. math::
        C_{ij} = \sigma \left( \mathrm{MLP} \left( \mathbf{h}_i \odot \mathbf{h}_j \right) \right),

    in memory :math:`O(nd + m)`, forward and backward: rows of :math:`\mathbf{h}_i \odot \mathbf{h}_j` exist
    for one tile of edges at a time, and are computed anew in backward. They exist for all edges at once, in
    memory :math:`O(md)`, while gradients are on and :obj:`recompute` is off, and where a child was replaced,
    subclassed or has hooks: it is called then, as any module is (the last layer, in half precision, and in
    float16 the first one too, with features and parameters widened to float32).

    The MLP is a Linear layer, followed by any number of (LayerNorm, ReLU, dropout, Linear). An edge and its
    reverse are scored once and get the same bits; an edge without a reverse is scored on its own.

    Scores are float32 where the features are in half precision, whose sigmoid has too few values to tell
    edges apart.

    Args:
        in_channels (int): Size of each node's features, and of the hidden layers.
        num_layers (int, optional): The number of Linear layers. (default: :obj:`2`)
        dropout (float, optional): Dropout probability in the hidden layers. (default: :obj:`0.0`)
        recompute (bool or str, optional): If :obj:`False`, backward finds what forward computed, for several
            rows of features per edge. If :obj:`"auto"`, only where that is little (4 MiB), and so is faster.
            One layer needs neither. Results are the same. (default: :obj:`True`)

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
        self, in_channels: int, num_layers: int = 2, dropout: float = 0.0, recompute: bool | str = True
    ) -> None:
        super().__init__()
        check_num_layers("num_layers", num_layers)
        check_probability("dropout", dropout)
        check_recompute(recompute)
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

    def forward(
        self,
        h: Tensor,
        edge_index: Tensor,
        undirected: ops.Undirected | None = None,
        directed: bool = False,
    ) -> Tensor:
        r"""Forward pass.

        Args:
            h (torch.Tensor): The node features, :math:`[n, d]`.
            edge_index (torch.Tensor): The edges, :math:`[2, m]`.
            undirected (Undirected, optional): What :func:`gpn_ops.undirected` gives for these edges, where
                that is known already. (default: :obj:`None`)
            directed (bool, optional): If :obj:`True`, every edge is scored on its own, so that dropout tells
                it from its reverse. (default: :obj:`False`)

        Returns:
            torch.Tensor: A score per edge, :math:`[m]`.
        """
        if directed:
            return self._logits(h, edge_index.to(torch.int64)).sigmoid()
        pairs, slot = ops.undirected(edge_index, h.size(0)) if undirected is None else undirected
        return ops.lift(self._logits(h, pairs).sigmoid(), slot)

    def _logits(self, h: Tensor, pairs: Tensor) -> Tensor:
        """MLP(h_i * h_j) for every pair."""
        seed = draw_seed(h, self.dropout, self.training and len(self.norms) > 0)
        if are_plain(self.lins) and are_plain(self.norms):
            weight, bias = parameters_of([self.lins[-1]])
            product = matmul_dtype(h, weight)
            if not self.norms:
                wide = wide_dtype(h.dtype)
                return ops.pair_dot(h.to(wide), weight.view(-1).to(wide), pairs) + bias.to(wide)
            # The rows themselves, and of every hidden layer what goes into its LayerNorm and what comes out.
            if keeps_nothing(self.recompute, pairs.size(1) * self.in_channels * (1 + 2 * len(self.norms))):
                hidden = [module for layer in zip(self.lins, self.norms, strict=False) for module in layer]
                parameters = [*parameters_of(hidden), weight, bias]
                return ops.edge_logits(h, pairs, parameters, product, self.dropout, seed)
        z = ops.lift(h, pairs[0]).to(wide_dtype(h.dtype)) * ops.lift(h, pairs[1])
        for layer, (lin, norm) in enumerate(zip(self.lins, self.norms, strict=False)):
            if layer > 0:
                z = norm(lin(z))
            elif product_dtype(h) == torch.float16:
                # Products of features may exceed its range; a LayerNorm brings them back.
                z = call_wide(norm, call_wide(lin, z)).to(h.dtype)
            else:
                z = norm(lin(z.to(h.dtype)))
            z = relu_dropout(z, self.dropout, seed, layer)
        return call_wide(self.lins[-1], z).squeeze(-1)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, num_layers={self.num_layers}, "
            f"dropout={self.dropout})"
        )
