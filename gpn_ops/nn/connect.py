"""The connect step: which clusters are joined by which edges."""

import torch
from torch import Tensor
from torch_geometric.nn.pool.connect import Connect, ConnectOutput
from torch_geometric.nn.pool.select import SelectOutput

from gpn_ops import ops

from ._inputs import plain


class ConnectClusters(Connect):
    r"""Joins two clusters by an edge if an edge joins their nodes: the structure of
    :math:`\mathbf{S}^{\top} \mathbf{A} \mathbf{S}` (equation 2), its edges sorted and each there once.

    Args:
        reduce (str, optional): How the attributes of edges that become one are reduced: :obj:`"sum"` as in
            equation 2, :obj:`"mean"` or :obj:`"max"`. (default: :obj:`"sum"`)
        weighted (bool, optional): If :obj:`True`, edges without attributes count as having weight 1, so that
            the coarse graph is weighted. (default: :obj:`False`)
        self_loops (bool, optional): If :obj:`True`, edges inside a cluster are kept as its self-loop.
            (default: :obj:`False`)

    Example:
        >>> import torch
        >>> from gpn_ops.nn import ConnectClusters, SelectParse
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> clusters = SelectParse(16)(torch.randn(4, 16), edge_index)
        >>> ConnectClusters(self_loops=True)(clusters, edge_index).edge_index
        tensor([[0, 1],
                [0, 1]])
    """

    def __init__(self, reduce: str = "sum", weighted: bool = False, self_loops: bool = False) -> None:
        super().__init__()
        if reduce not in ("sum", "mean", "max"):
            raise ValueError(f"reduce: expected 'sum', 'mean' or 'max', got {reduce!r}")
        self.reduce = reduce
        self.weighted = weighted
        self.self_loops = self_loops

    def forward(
        self,
        select_output: SelectOutput,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> ConnectOutput:
        r"""Forward pass.

        Args:
            select_output (SelectOutput): The clusters. Every node must be in one, and only one.
            edge_index (torch.Tensor): The edges, :math:`[2, m]`.
            edge_attr (torch.Tensor, optional): Their attributes, :math:`[m, \ldots]`. (default: :obj:`None`)
            batch (torch.Tensor, optional): The graph of every node. (default: :obj:`None`)

        Raises:
            ValueError: If the number of assigned nodes is not the number of nodes.
        """
        assigned, num_nodes = select_output.node_index.numel(), select_output.num_nodes
        if assigned != num_nodes:
            raise ValueError(
                f"select_output: expected each of {num_nodes} nodes in one cluster, got {assigned}"
            )
        cluster = torch.empty_like(select_output.cluster_index)
        cluster[select_output.node_index] = select_output.cluster_index
        coarse = self.coarsen(cluster, edge_index, edge_attr)
        if batch is not None:
            batch = batch.index_select(0, coarse.representative)
        return ConnectOutput(coarse.edge_index, coarse.edge_attr, batch)

    def coarsen(self, cluster: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> ops.Coarse:
        r"""The coarse graph of a cluster vector, by the settings of this module (:func:`gpn_ops.coarsen`)."""
        edge_index = plain(edge_index)
        if edge_attr is None and self.weighted:
            edge_attr = torch.ones(edge_index.size(1), device=edge_index.device)
        return ops.coarsen(edge_index, cluster, edge_attr, self.reduce, self.self_loops)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}(reduce={self.reduce!r}, weighted={self.weighted}, "
            f"self_loops={self.self_loops})"
        )
