"""The whole hierarchy: one pooling layer, applied until every graph stops shrinking."""

from typing import NamedTuple

import torch
import torch_geometric
from torch import Tensor

from gpn_ops.checks import check_metadata, check_values

from ._inputs import numbered_graphs, plain
from .multiset import Reduce
from .pooling import ParsePooling, Pooled
from .tree import Level, ParseTree


class HierarchyOutput(NamedTuple):
    """What :class:`ParseHierarchy` returns."""

    x: Tensor
    """``[num_graphs, d]``: a vector per graph."""
    tree: ParseTree
    """How the graphs were pooled."""


class ParseHierarchy(torch.nn.Module):
    r"""Pools every graph of a batch by one and the same layer until it stops shrinking,

    .. math::
        \mathbf{H}^{(k)} &= \mathrm{GNN}(\mathbf{X}^{(k)}, \mathbf{A}^{(k)})

        \mathbf{X}^{(k+1)}, \mathbf{A}^{(k+1)} &= \mathrm{ParsePooling}(\mathrm{GNN}'(\mathbf{X}^{(k)},
        \mathbf{A}^{(k)}), \mathbf{A}^{(k)}), \text{ scored on } \mathbf{H}^{(k)},

    and sums up the features of the nodes that are left.

    Every graph has its own height. One that does not shrink at a level leaves the batch with the features
    that came into that level, as if the level had not been; one without edges does not enter it. So the work
    of a level is that of the graphs which are still shrinking, and the result for a graph does not depend on
    the others in its batch.

    Args:
        pool (ParsePooling): The pooling layer.
        gnn (torch.nn.Module, optional): The network whose output edges are scored on, called as
            :obj:`gnn(x, edge_index)`, with :obj:`edge_attr` as a third argument where there is one. If
            :obj:`None`, the features themselves. (default: :obj:`None`)
        multiset_gnn (torch.nn.Module, optional): The network :math:`\mathrm{GNN}'` whose output is pooled. If
            :obj:`None`, the output of :obj:`gnn` is used twice; :class:`torch.nn.Identity` pools the features
            themselves. (default: :obj:`None`)
        max_height (int, optional): The largest number of levels. (default: :obj:`None`)
        readout (torch.nn.Module, optional): The multiset function that makes a vector of the nodes left,
            called as :obj:`readout(x, batch, num_graphs)`. (default: their sum)

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GCNConv
        >>> from gpn_ops.nn import ParseHierarchy, ParsePooling
        >>> hierarchy = ParseHierarchy(ParsePooling(16), GCNConv(16, 16))
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> x, tree = hierarchy(torch.randn(5, 16), edge_index, batch=torch.tensor([0, 0, 1, 1, 2]))
        >>> x.shape, tree.height
        (torch.Size([3, 16]), tensor([1, 1, 0]))
    """

    def __init__(
        self,
        pool: ParsePooling,
        gnn: torch.nn.Module | None = None,
        multiset_gnn: torch.nn.Module | None = None,
        max_height: int | None = None,
        readout: torch.nn.Module | None = None,
    ) -> None:
        super().__init__()
        if max_height is not None and max_height < 0:
            raise ValueError(f"max_height: expected None or at least 0, got {max_height}")
        self.pool = pool
        self.gnn = gnn
        self.multiset_gnn = multiset_gnn
        self.max_height = max_height
        self.readout = Reduce("sum") if readout is None else readout

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for module in self.children():
            torch_geometric.nn.inits.reset(module)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> HierarchyOutput:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The node features, :math:`[n, d]`.
            edge_index (torch.Tensor): The edges, :math:`[2, m]`.
            edge_attr (torch.Tensor, optional): The attributes of the edges, :math:`[m, \ldots]`.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): The graph of every node, :math:`[n]`. If :obj:`None`, there is one
                graph. (default: :obj:`None`)
            batch_size (int, optional): The number of graphs, where :obj:`batch` does not tell: the last ones
                may have no nodes. (default: :obj:`None`)
        """
        batch, batch_size = numbered_graphs(batch, batch_size, x)
        edge_index = plain(edge_index)
        check_metadata(edge_index, None, None)
        check_values(edge_index, None, x.size(0))

        tree = ParseTree(torch.zeros(batch_size, dtype=torch.int64, device=x.device))
        graphs = _Graphs(x, edge_index, edge_attr, batch)
        left: list[_Graphs] = []
        while self.max_height is None or len(tree.levels) < self.max_height:
            graphs = graphs.split(graphs.with_edges(batch_size), left)
            if graphs.x.size(0) == 0:
                break
            pooled = self._pool(graphs)
            shrinks = graphs.size(batch_size) > torch.bincount(
                graphs.batch.index_select(0, pooled.representative), minlength=batch_size
            )
            tree.height += shrinks
            pooled = _of_graphs(shrinks, pooled, graphs.batch)
            graphs = graphs.split(shrinks, left)
            if graphs.x.size(0) == 0:
                break
            tree.levels.append(_level(graphs, pooled))
            graphs = _Graphs(
                pooled.x,
                pooled.edge_index,
                pooled.edge_attr,
                graphs.batch.index_select(0, pooled.representative),
            )
        left.append(graphs)
        roots = torch.cat([part.x for part in left])
        return HierarchyOutput(
            self.readout(roots, torch.cat([part.batch for part in left]), batch_size), tree
        )

    def _pool(self, graphs: "_Graphs") -> Pooled:
        h = _apply(self.gnn, graphs)
        x = h if self.multiset_gnn is None else _apply(self.multiset_gnn, graphs)
        return self.pool.pool(x, graphs.edge_index, graphs.edge_attr, attn=h)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.pool}, gnn={self.gnn}, multiset_gnn={self.multiset_gnn}, "
            f"max_height={self.max_height})"
        )


def _apply(gnn: torch.nn.Module | None, graphs: "_Graphs") -> Tensor:
    if gnn is None or isinstance(gnn, torch.nn.Identity):
        return graphs.x
    edge_attr = () if graphs.edge_attr is None else (graphs.edge_attr,)
    out: Tensor = gnn(graphs.x, graphs.edge_index, *edge_attr)
    return out


class _Graphs(NamedTuple):
    """The graphs at a level, numbered as in the whole batch."""

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    batch: Tensor
    origin: Tensor | None = None
    """Where the nodes are among those that the level below handed on; ``None`` where they are all of them."""

    def size(self, batch_size: int) -> Tensor:
        """The number of nodes of every graph."""
        return torch.bincount(self.batch, minlength=batch_size)

    def with_edges(self, batch_size: int) -> Tensor:
        """Which graphs have an edge between two nodes. No other graph can shrink."""
        row, col = self.edge_index
        joined = torch.zeros(batch_size, dtype=torch.bool, device=self.batch.device)
        joined[self.batch.index_select(0, row[row != col])] = True
        return joined

    def split(self, wanted: Tensor, left: "list[_Graphs]") -> "_Graphs":
        """The wanted graphs; the others are appended to ``left``, as nodes without edges."""
        stays = wanted.index_select(0, self.batch)
        if bool(stays.all()):
            return self
        leaves = (~stays).nonzero().view(-1)
        none = self.edge_index[:, :0]
        left.append(_Graphs(self.x.index_select(0, leaves), none, None, self.batch.index_select(0, leaves)))
        node = stays.nonzero().view(-1)
        edge_index, edge_attr = _induced(stays, self.edge_index, self.edge_attr)
        return _Graphs(
            self.x.index_select(0, node),
            edge_index,
            edge_attr,
            self.batch.index_select(0, node),
            node if self.origin is None else self.origin.index_select(0, node),
        )


def _induced(stays: Tensor, edge_index: Tensor, edge_attr: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The edges of the nodes that stay, by their new numbers. No edge leads from them to others."""
    edge = stays.index_select(0, edge_index[0]).nonzero().view(-1)
    number = stays.cumsum(0) - 1
    edge_index = number.index_select(0, edge_index.index_select(1, edge).flatten()).view(2, -1)
    return edge_index, None if edge_attr is None else edge_attr.index_select(0, edge)


def _of_graphs(wanted: Tensor, pooled: Pooled, batch: Tensor) -> Pooled:
    """What pooling gave for the wanted graphs alone, numbered as if only they had been pooled."""
    stays = wanted.index_select(0, batch)
    if bool(stays.all()):
        return pooled
    cluster_stays = stays.index_select(0, pooled.representative)
    node, cluster = stays.nonzero().view(-1), cluster_stays.nonzero().view(-1)
    edge_index, edge_attr = _induced(cluster_stays, pooled.edge_index, pooled.edge_attr)
    return Pooled(
        x=pooled.x.index_select(0, cluster),
        edge_index=edge_index,
        edge_attr=edge_attr,
        cluster=(cluster_stays.cumsum(0) - 1).index_select(0, pooled.cluster.index_select(0, node)),
        mask=pooled.mask.index_select(0, cluster),
        inner_edges=pooled.inner_edges.index_select(0, cluster),
        representative=(stays.cumsum(0) - 1).index_select(0, pooled.representative.index_select(0, cluster)),
    )


def _level(graphs: _Graphs, pooled: Pooled) -> Level:
    return Level(
        index=graphs.origin,
        x=graphs.x,
        edge_index=graphs.edge_index,
        edge_attr=graphs.edge_attr,
        batch=graphs.batch,
        cluster=pooled.cluster,
        representative=pooled.representative,
        mask=pooled.mask,
        inner_edges=pooled.inner_edges,
        pooled=pooled.x,
    )
