"""The whole hierarchy: one pooling layer, applied until every graph stops shrinking."""

import inspect
from typing import NamedTuple

import torch
import torch_geometric
from torch import Tensor

from gpn_ops.checks import check_edge_attr, check_values

from ._inputs import checked_edges, numbered_graphs
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
    of a level is that of the graphs which are still shrinking.

    The result for a graph does not depend on the others in its batch, as far as the scores do not: given the
    same bits of scores, its tree has the same bits. Matrix products may round differently in another batch,
    so scores are compared without their last bits (20 significant ones are left): edges that look alike to
    the scorer tie, and the lowest edge id decides. Only scores that lie right at a boundary of that rounding
    may still be told apart in one batch and not in another.

    Args:
        pool (ParsePooling): The pooling layer, or a module called as it is: :obj:`torch.compile(pool)`.
        gnn (torch.nn.Module, optional): The network whose output edges are scored on, called as
            :obj:`gnn(x, edge_index)`. Edge attributes, where there are some, are passed by keyword: as
            :obj:`edge_attr` if its :obj:`forward` takes that (or any keyword), else as :obj:`edge_weight` if
            there is one number an edge; a network that takes neither is an error. Of the models of PyG,
            which take both, the one that counts is passed; of a wrapper (:func:`torch.compile`,
            ``DistributedDataParallel``), the module inside tells. If :obj:`None` or
            :class:`torch.nn.Identity`, the features themselves. (default: :obj:`None`)
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
            batch (torch.Tensor, optional): The graph of every node, :math:`[n]`. No edge may join two graphs.
                If :obj:`None`, there is one graph. (default: :obj:`None`)
            batch_size (int, optional): The number of graphs, where :obj:`batch` does not tell: the last ones
                may have no nodes. (default: :obj:`None`)
        """
        batch, batch_size = numbered_graphs(batch, batch_size, x)
        edge_index = checked_edges(edge_index)
        check_values(edge_index, None, x.size(0))
        if edge_attr is not None:
            check_edge_attr(edge_attr, edge_index)

        tree = ParseTree(torch.zeros(batch_size, dtype=torch.int64, device=x.device))
        graphs = _Graphs(x, edge_index, edge_attr, batch)
        left: list[_Graphs] = []
        while self.max_height is None or len(tree.levels) < self.max_height:
            graphs = graphs.split(graphs.with_edges(batch_size), left)
            if graphs.x.size(0) == 0:
                break
            pooled = self._pool(graphs)
            shrinks = graphs.size(batch_size) > torch.bincount(pooled.batch, minlength=batch_size)
            tree.height += shrinks
            pooled = _of_graphs(shrinks, pooled, graphs.batch)
            graphs = graphs.split(shrinks, left)
            if graphs.x.size(0) == 0:
                break
            tree.levels.append(_level(graphs, pooled))
            graphs = _Graphs(pooled.x, pooled.edge_index, pooled.edge_attr, pooled.batch)
        left.append(graphs)
        roots = torch.cat([part.x for part in left])
        return HierarchyOutput(
            self.readout(roots, torch.cat([part.batch for part in left]), batch_size), tree
        )

    def _pool(self, graphs: "_Graphs") -> Pooled:
        h = _apply("gnn", self.gnn, graphs)
        x = h if self.multiset_gnn is None else _apply("multiset_gnn", self.multiset_gnn, graphs)
        pooled: Pooled = self.pool(x, graphs.edge_index, graphs.edge_attr, graphs.batch, h, record=True)
        return pooled

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.pool}, gnn={self.gnn}, multiset_gnn={self.multiset_gnn}, "
            f"max_height={self.max_height})"
        )


def _apply(name: str, gnn: torch.nn.Module | None, graphs: "_Graphs") -> Tensor:
    if gnn is None:
        return graphs.x
    if isinstance(gnn, torch.nn.Identity):
        return gnn(graphs.x)
    if graphs.edge_attr is None:
        return gnn(graphs.x, graphs.edge_index)
    return gnn(graphs.x, graphs.edge_index, **_edge_argument(name, gnn, graphs.edge_attr))


def _edge_argument(name: str, gnn: torch.nn.Module, edge_attr: Tensor) -> dict[str, Tensor]:
    """By which keyword a network takes the attributes of edges."""
    signature = inspect.signature(gnn.forward)
    names, open_ended = set(signature.parameters), _takes_any_keyword(signature)
    while open_ended and not names & {"edge_attr", "edge_weight"}:
        # A wrapper (torch.compile, DistributedDataParallel) takes what the module inside takes.
        inner = getattr(gnn, "_orig_mod", None) or getattr(gnn, "module", None)
        if not isinstance(inner, torch.nn.Module):
            break
        gnn, signature = inner, inspect.signature(inner.forward)
        names, open_ended = set(signature.parameters), _takes_any_keyword(signature)
    # PyG's models have both arguments, and say which of them they do not ignore.
    names -= {
        name for name in ("edge_attr", "edge_weight") if getattr(gnn, f"supports_{name}", None) is False
    }
    if "edge_attr" in names:
        return {"edge_attr": edge_attr}
    if "edge_weight" in names and edge_attr.numel() == edge_attr.size(0):
        return {"edge_weight": edge_attr.view(-1)}
    if open_ended:
        return {"edge_attr": edge_attr}
    raise ValueError(
        f"{name}: expected a network that takes edge_attr, or edge_weight for one number an edge, as there "
        f"are edge attributes of shape {list(edge_attr.shape)}; got {type(gnn).__name__}.forward{signature}"
    )


def _takes_any_keyword(signature: inspect.Signature) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())


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
        joining = self.edge_index[:, self.edge_index[0] != self.edge_index[1]]
        joined = torch.zeros(batch_size, dtype=torch.bool, device=self.batch.device)
        # Of both ends: a graph that an edge joins to another must not leave before that is found out.
        joined[self.batch.index_select(0, joining.flatten())] = True
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
        batch=pooled.batch.index_select(0, cluster),
        cluster=(cluster_stays.cumsum(0) - 1).index_select(0, pooled.cluster.index_select(0, node)),
        score=pooled.score.index_select(0, cluster),
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
        mask=pooled.score,
        inner_edges=pooled.inner_edges,
        pooled=pooled.x,
    )
