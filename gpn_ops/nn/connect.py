"""The connect step: the edges between clusters."""

import torch
from torch import Tensor
from torch_geometric.nn.pool.connect import Connect, ConnectOutput
from torch_geometric.nn.pool.select import SelectOutput

from gpn_ops import ops
from gpn_ops.checks import check_edge_attr, check_reduction

from ._inputs import checked_edges
from .pad import Room, padded_edges, padding_attribute
from .select import Parsed


class ConnectClusters(Connect):
    r"""Joins two clusters by an edge if an edge joins their nodes: the structure of
    :math:`\mathbf{S}^{\top} \mathbf{A} \mathbf{S}` (equation 2), with sorted edges and no duplicates.

    Args:
        reduce (str, optional): How the attributes of edges that merge into one are reduced: :obj:`"sum"` as
            in equation 2, :obj:`"mean"` or :obj:`"max"`. (default: :obj:`"sum"`)
        weighted (bool, optional): If :obj:`True`, edges without attributes have weight 1, so that the coarse
            graph is weighted. (default: :obj:`False`)
        self_loops (bool, optional): If :obj:`True`, edges inside a cluster become its self-loop. Otherwise
            they are dropped. (default: :obj:`False`)

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
        check_reduction(reduce)
        self.reduce = reduce
        self.weighted = weighted
        self.self_loops = self_loops

    def forward(
        self,
        select_output: SelectOutput | Parsed,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        num_graphs: int | None = None,
        room: Room | None = None,
    ) -> ConnectOutput | ops.OrderedCoarse | tuple[ops.OrderedCoarse, ops.Progress]:
        r"""Forward pass.

        Args:
            select_output (SelectOutput or Parsed): The clusters. Every node must be in exactly one. Given the
                record of :class:`SelectParse`, edges that did not take part are left out.
            edge_index (torch.Tensor): The edges, :math:`[2, m]`.
            edge_attr (torch.Tensor, optional): Their attributes, :math:`[m, \ldots]`. (default: :obj:`None`)
            batch (torch.Tensor, optional): The graph of every node. No edge may join two graphs.
                (default: :obj:`None`)
            num_graphs (int, optional): The number of graphs in :obj:`batch`. Given a record, the result then
                includes the :class:`Progress` of the graphs. (default: :obj:`None`)
            room (Room, optional): The sizes of the result for a padded batch (:func:`pad`); the result is
                then padded too. (default: :obj:`None`)

        Returns:
            ConnectOutput or OrderedCoarse: The coarse graph; of a record, what :func:`gpn_ops.coarsen` gives
            and what the mask of the record may use, and with :obj:`num_graphs` also the :class:`Progress` of
            the graphs.

        Raises:
            ValueError: If the number of assigned nodes is not the number of nodes.
        """
        edge_index = checked_edges(edge_index)
        if isinstance(select_output, Parsed):
            return self._of_record(select_output, edge_index, edge_attr, batch, num_graphs, room)
        cluster = _clusters_in_order(select_output)
        edge_attr = self._weighted(edge_index, edge_attr)
        coarse = ops.coarsen(edge_index, cluster, edge_attr, self.reduce, self.self_loops, batch)
        batch = None if batch is None else batch.index_select(0, coarse.representative)
        return ConnectOutput(coarse.edge_index, coarse.edge_attr, batch)

    def _weighted(self, edge_index: Tensor, edge_attr: Tensor | None) -> Tensor | None:
        if edge_attr is None and self.weighted:
            return torch.ones(edge_index.size(1), device=edge_index.device)
        return edge_attr

    def _of_record(
        self,
        parsed: Parsed,
        edge_index: Tensor,
        edge_attr: Tensor | None,
        batch: Tensor | None,
        num_graphs: int | None,
        room: Room | None,
    ) -> ops.OrderedCoarse | tuple[ops.OrderedCoarse, ops.Progress]:
        if edge_attr is not None:
            check_edge_attr(edge_attr, edge_index, self.reduce)
        edge_attr = self._weighted(edge_index, edge_attr)
        # What was dropped is missing from the edges of the record, or marked.
        is_missing = parsed.kept is not None and parsed.took_part is None
        if is_missing and edge_attr is not None:
            edge_attr = edge_attr[parsed.kept]
        if ops.gives_order(parsed.edge_index, self.self_loops):
            # Those of the mask, after the others the self-loops that compete: they are inside of clusters.
            edges, takes_part = parsed.edge_index, parsed.took_part
        elif is_missing:
            edges, takes_part = edge_index[:, parsed.kept], None
        else:
            edges, takes_part = edge_index, parsed.kept
        given = (edges, parsed.cluster, edge_attr, self.reduce, self.self_loops)
        if batch is None or num_graphs is None:
            return ops.coarsen_ordered(*given, batch, takes_part)
        if room is None:
            return ops.coarsen_batch(*given, batch, takes_part, num_graphs, edge_index)
        return self._padded(given, batch, takes_part, num_graphs, edge_index, room)

    def _padded(
        self,
        given: tuple[Tensor, Tensor, Tensor | None, str, bool],
        batch: Tensor,
        takes_part: Tensor | None,
        num_graphs: int,
        all_edges: Tensor,
        room: Room,
    ) -> tuple[ops.OrderedCoarse, ops.Progress]:
        """The coarse graph with padding as :func:`pad` makes it: nothing else, where there is no room."""
        capacity = (room.nodes, room.edges)
        with_order = ops.gives_order(given[0], self.self_loops)
        (edges, attr, representative, count), order = ops.coarsen_padded(
            *given, batch, capacity, with_order, takes_part
        )
        fits = fit(count, capacity)
        found = ops.progress(all_edges, batch, num_graphs, given[1], edges, representative, count)
        # Of the clusters, the last is all the padding.
        first, num_edges = torch.where(fits, count[0] - 1, 0), torch.where(fits, count[1], 0)
        edges = padded_edges(edges, num_edges, first, room.nodes)
        if attr is not None:
            is_edge = torch.arange(room.edges, device=attr.device) < num_edges
            is_edge = is_edge.view(-1, *[1] * (attr.dim() - 1))
            attr = torch.where(is_edge, attr, padding_attribute(attr))
        representative = torch.where(representative < 0, batch.size(0) - 1, representative)
        return ops.OrderedCoarse(edges, attr, representative, order), found

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}(reduce={self.reduce!r}, weighted={self.weighted}, "
            f"self_loops={self.self_loops})"
        )


def fit(count: Tensor, capacity: tuple[int, int]) -> Tensor:
    """Whether these numbers of clusters and edges fit, as a tensor on the device."""
    return (count[0] <= capacity[0]) & (count[1] <= capacity[1])


def _clusters_in_order(selected: SelectOutput) -> Tensor:
    assigned, num_nodes = selected.node_index.numel(), selected.num_nodes
    if assigned != num_nodes:
        raise ValueError(f"select_output: expected each of {num_nodes} nodes in one cluster, got {assigned}")
    cluster = torch.empty_like(selected.cluster_index)
    cluster[selected.node_index] = selected.cluster_index
    return cluster
