"""The whole hierarchy: one pooling layer, applied until every graph stops shrinking."""

import inspect
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset

from gpn_ops import ops
from gpn_ops.checks import check_edge_attr, check_values
from gpn_ops.ops import waits

from ._inputs import check_at_least, check_features, checked_edges, graph_of_node, number_of_graphs
from .connect import fit
from .multiset import Reduce
from .pad import Capacity, Room
from .pooling import ParsePooling, Pooled
from .tree import Level, ParseTree


class HierarchyOutput(NamedTuple):
    """The result of :class:`ParseHierarchy`."""

    x: Tensor
    """``[num_graphs, d]``: one vector per graph."""
    tree: ParseTree
    """The pooling trees of the graphs."""


class ParseHierarchy(torch.nn.Module):
    r"""Pools every graph of a batch with one shared layer until it stops shrinking,

    .. math::
        \mathbf{H}^{(k)} &= \mathrm{GNN}(\mathbf{X}^{(k)}, \mathbf{A}^{(k)})

        \mathbf{X}^{(k+1)}, \mathbf{A}^{(k+1)} &= \mathrm{ParsePooling}(\mathrm{GNN}'(\mathbf{X}^{(k)},
        \mathbf{A}^{(k)}), \mathbf{A}^{(k)}), \text{ scored on } \mathbf{H}^{(k)},

    and sums the features of the remaining nodes.

    Every graph has its own height. A graph that does not shrink at a level leaves the batch with the features
    that it had before that level. A graph without edges does not enter a level. So each level only processes
    graphs that are still shrinking.

    The result for a graph does not depend on the rest of its batch: bit-equal scores give bit-equal trees.
    Matrix products may round differently in another batch, so scores are compared without their last bits (20
    significant bits remain). Edges that look alike to the scorer then tie, and the lowest edge id decides.
    Only scores at a boundary of that rounding may still compare differently in another batch.

    Args:
        pool (ParsePooling): The pooling layer, or a module with the same signature, such as
            :obj:`torch.compile(pool)`.
        gnn (torch.nn.Module, optional): The network whose output is used to score edges, called as
            :obj:`gnn(x, edge_index)`. If :obj:`None` or :class:`torch.nn.Identity`, edges are scored on the
            features themselves. Edge attributes, if given, are passed by keyword: as :obj:`edge_attr` if
            :obj:`forward` takes that (or any keyword), else as :obj:`edge_weight` if there is one number per
            edge. A network that takes neither is an error. PyG's models take both, and get the one that they
            support. For a wrapper (:func:`torch.compile`, ``DistributedDataParallel``), the wrapped module
            decides. (default: :obj:`None`)
        multiset_gnn (torch.nn.Module, optional): The network :math:`\mathrm{GNN}'` whose output is pooled. If
            :obj:`None`, the output of :obj:`gnn` is used for both. :class:`torch.nn.Identity` pools the
            features themselves. (default: :obj:`None`)
        max_height (int, optional): The maximum number of levels. (default: :obj:`None`)
        readout (torch.nn.Module, optional): The multiset function that turns the remaining nodes into one
            vector per graph, called as :obj:`readout(x, batch, num_graphs)`. (default: their sum)

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
        if max_height is not None:
            check_at_least("max_height", 0, max_height)
        optional = {"gnn": gnn, "multiset_gnn": multiset_gnn, "readout": readout}
        given = {name: module for name, module in optional.items() if module is not None}
        for name, module in {"pool": pool, **given}.items():
            if not isinstance(module, torch.nn.Module):
                raise TypeError(f"{name}: expected a module, got {module!r}")
        signature = inspect.signature(pool.forward)
        if not _takes_any_keyword(signature) and not {"num_graphs", "record"} <= set(signature.parameters):
            raise TypeError(
                "pool: expected ParsePooling, or a module with the same signature, got "
                f"{type(pool).__name__}.forward{signature}"
            )
        self.pool = pool
        self.gnn = gnn
        self.multiset_gnn = multiset_gnn
        self.max_height = max_height
        self.readout = Reduce("sum") if readout is None else readout

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        for module in self.children():
            reset(module)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        capacity: Sequence[Capacity] | None = None,
    ) -> HierarchyOutput:
        r"""Forward pass.

        With a :obj:`capacity`, the hierarchy runs in static form. Shapes then depend on input shapes only,
        the host does not read from the device, and all levels run, whether or not graphs still shrink.
        Finished graphs stay, as nodes without edges. Results equal those of the dynamic form up to rounding,
        and :meth:`ParseTree.trimmed` returns its tree. If a level has not enough room, or if graphs still
        shrink after the last level and :obj:`max_height` does not stop them, then :obj:`tree.overflow` is
        true, all features are NaN and all heights are -1.

        Args:
            x (torch.Tensor): The node features, :math:`[n, d]`.
            edge_index (torch.Tensor): The edges, :math:`[2, m]`.
            edge_attr (torch.Tensor, optional): The attributes of the edges, :math:`[m, \ldots]`.
                (default: :obj:`None`)
            batch (torch.Tensor, optional): The graph of every node, :math:`[n]`. No edge may join two graphs.
                If :obj:`None`, there is one graph. (default: :obj:`None`)
            batch_size (int, optional): The number of graphs, if it does not follow from :obj:`batch` because
                the last ones have no nodes. (default: :obj:`None`)
            capacity (sequence of Capacity, optional): For a padded batch (:func:`pad`), given together with
                :obj:`batch_size`: its own sizes, then for every level how many nodes (including padding) and
                edges there may be after it. See :func:`measured` and :func:`halving`. (default: :obj:`None`)
        """
        for name in ("gnn", "multiset_gnn"):
            _check_no_edge_mask(name, getattr(self, name))
        if batch is None and batch_size is None:
            batch_size = 1
        edge_index = checked_edges(edge_index)
        check_features("x", x)
        batch = graph_of_node(batch, x)
        if edge_attr is not None:
            check_edge_attr(edge_attr, edge_index, "max")  # The pool checks whether it takes integers.
        if capacity is not None:
            return self._static(_Graphs(x, edge_index, edge_attr, batch), batch_size, capacity)

        batch_size, goes_on, sizes, undirected = _first_look(edge_index, batch, batch_size)
        levels: list[Level] = []
        graphs = _Graphs(x, edge_index, edge_attr, batch, undirected)
        left: list[_Graphs] = []
        shrunk: list[Tensor] = []
        # A compiled layer finds the pairs itself, as it would be recompiled for a level with a single pair.
        takes_pairs = isinstance(self.pool, ParsePooling)
        while self.max_height is None or len(levels) < self.max_height:
            graphs = graphs.split(goes_on, sizes.clusters_on, sizes.coarse_edges_on, left)
            if graphs.x.size(0) == 0:
                break
            if graphs.undirected is None and takes_pairs:
                is_sorted = len(levels) > 0 and sizes.one_way_on == 0
                num_pairs = (sizes.coarse_edges_on + sizes.loops_on) // 2 if is_sorted else None
                graphs = graphs.with_pairs(num_pairs)
            pooled, (numbers, shrinks, goes_on) = self._pool(graphs, batch_size)
            sizes = ops.Sizes(*numbers.tolist())
            shrunk.append(shrinks)
            if sizes.nodes < graphs.x.size(0):
                pooled = _of_graphs(shrinks, sizes, pooled, graphs.batch)
                graphs = graphs.split(shrinks, sizes.nodes, sizes.edges, left)
                if sizes.nodes == 0:
                    break
            levels.append(_level(graphs, pooled))
            graphs = _Graphs(pooled.x, pooled.edge_index, pooled.edge_attr, pooled.batch)
        left.append(graphs)
        # Under autocast, networks give half precision, and a graph that never shrank has what came in.
        roots = torch.cat([part.x for part in left]).to(x.dtype)
        x = self.readout(roots, torch.cat([part.batch for part in left]), batch_size)
        if not levels and torch.is_grad_enabled():
            # DistributedDataParallel waits for a gradient of every parameter, even on a rank without edges.
            for parameter in self.parameters():
                x = x + parameter.flatten()[:0].sum().to(x.dtype)
        height = torch.stack(shrunk).sum(0) if shrunk else batch.new_zeros(batch_size)
        return HierarchyOutput(x, ParseTree(height, levels))

    def _static(
        self, graphs: "_Graphs", batch_size: int | None, capacity: Sequence[Capacity]
    ) -> HierarchyOutput:
        shapes = _checked_capacity(capacity, graphs, batch_size)
        assert batch_size is not None
        num_graphs = batch_size + 1  # The last one is the padding.
        dtype = graphs.x.dtype
        height = torch.zeros(batch_size, dtype=torch.int64, device=graphs.x.device)
        goes_on = ops.progress(graphs.edge_index, graphs.batch, num_graphs).goes_on
        overflow = torch.zeros((), dtype=torch.bool, device=graphs.x.device)
        levels: list[Level] = []
        for shape, above in list(itertools.pairwise(shapes))[: self.max_height]:
            graphs, fits = graphs.frozen(goes_on, batch_size).with_padded_pairs(shape.num_pairs)
            room = Room(above.nodes, above.edges, (graphs.batch < batch_size).sum().view(1))
            pooled, (numbers, shrinks, goes_on) = self._pool(graphs, num_graphs, room)
            overflow = overflow | ~(fits & fit(numbers[-2:], (above.nodes, above.edges)))
            height = height + shrinks[:batch_size]
            shrinks = shrinks > 0
            # A graph that does not shrink keeps its features; the padding has none.
            kept = ops.lift(graphs.x, pooled.representative)
            kept = kept.masked_fill((pooled.batch == batch_size).unsqueeze(-1), 0)
            changes = shrinks.index_select(0, pooled.batch).unsqueeze(-1)
            pooled = pooled._replace(x=torch.where(changes, pooled.x, kept.to(pooled.x.dtype)))
            levels.append(_level(graphs, pooled, shrinks.index_select(0, graphs.batch)))
            graphs = _Graphs(pooled.x, pooled.edge_index, pooled.edge_attr, pooled.batch)
        if self.max_height is None or self.max_height > len(levels):
            overflow = overflow | (goes_on > 0).any()
        x = self.readout(graphs.x.to(dtype), graphs.batch, num_graphs)[:batch_size]
        if levels:
            # NaN between levels would raise in the next one. Decoding starts at the last level, so set it
            # there.
            levels[-1].pooled = torch.where(overflow, torch.nan, levels[-1].pooled)
        tree = ParseTree(torch.where(overflow, -1, height), levels, overflow)
        return HierarchyOutput(torch.where(overflow, torch.nan, x), tree)

    def _pool(
        self, graphs: "_Graphs", num_graphs: int, room: Room | None = None
    ) -> tuple[Pooled, ops.Progress]:
        h = _apply("gnn", self.gnn, graphs)
        x = h if self.multiset_gnn is None else _apply("multiset_gnn", self.multiset_gnn, graphs)
        pooled: Pooled = self.pool(
            x,
            graphs.edge_index,
            graphs.edge_attr,
            graphs.batch,
            h,
            undirected=graphs.undirected if room or isinstance(self.pool, ParsePooling) else None,
            num_graphs=num_graphs,
            record=True,
            **({} if room is None else {"room": room}),
        )
        if pooled.progress is None:
            raise RuntimeError(
                "pool: expected a layer that returns the progress of num_graphs graphs, got None"
            )
        return pooled, pooled.progress

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.pool}, gnn={self.gnn}, multiset_gnn={self.multiset_gnn}, "
            f"max_height={self.max_height})"
        )


def _check_no_edge_mask(name: str, gnn: torch.nn.Module | None) -> None:
    if gnn is not None and any(isinstance(m, MessagePassing) and m.explain for m in gnn.modules()):
        raise ValueError(
            f"{name}: expected no edge mask, because the hierarchy would also apply it to the coarse graphs, "
            "which have other edges; explain with edge_mask_type=None"
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
    """The keyword argument by which a network takes edge attributes."""
    signature = inspect.signature(gnn.forward)
    names, open_ended = set(signature.parameters), _takes_any_keyword(signature)
    while open_ended and not names & {"edge_attr", "edge_weight"}:
        # A wrapper (torch.compile, DistributedDataParallel) takes the arguments of the wrapped module.
        inner = getattr(gnn, "_orig_mod", None) or getattr(gnn, "module", None)
        if not isinstance(inner, torch.nn.Module):
            break
        gnn, signature = inner, inspect.signature(inner.forward)
        names, open_ended = set(signature.parameters), _takes_any_keyword(signature)
    # PyG's models have both arguments, and declare which of them they support.
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
        f"{name}: expected a network that takes edge_attr, or edge_weight for one number per edge, because "
        f"edge_attr has shape {list(edge_attr.shape)}, got {type(gnn).__name__}.forward{signature}"
    )


def _takes_any_keyword(signature: inspect.Signature) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())


def _checked_capacity(
    capacity: Sequence[Capacity], graphs: "_Graphs", batch_size: int | None
) -> list[Capacity]:
    if batch_size is None:
        raise ValueError("batch_size: expected the number of graphs beside a capacity, got None")
    shapes = [Capacity(*shape) for shape in capacity]
    found = (graphs.x.size(0), graphs.edge_index.size(1))
    if not shapes or shapes[0][:2] != found:
        came = f"{shapes[0].nodes} and {shapes[0].edges}" if shapes else "none"
        raise ValueError(
            f"capacity: expected first the sizes of the padded batch, {found[0]} nodes and {found[1]} edges, "
            f"got {came}"
        )
    if min(shape.nodes for shape in shapes) < 1 or min(min(s.edges, s.num_pairs) for s in shapes) < 0:
        raise ValueError(f"capacity: expected room for a node at every level, got {shapes}")
    return shapes


def _first_look(
    edge_index: Tensor, batch: Tensor, batch_size: int | None
) -> tuple[int, Tensor, ops.Sizes, ops.Undirected | None]:
    """The number of graphs, which of them have an edge between two nodes (only these can shrink), their
    sizes, and, if the host has to wait for these anyway, the pairs of the edges too.

    Raises:
        RuntimeError: If the number of a graph or a node id is out of range. Where checking node ids would
            wait for the device, the operators check them.
    """
    num_nodes, num_sizes = batch.size(0), len(ops.Sizes._fields)
    bounds = [bound.view(1) for bound in batch.aminmax()] if num_nodes > 0 else []
    if waits.reads_are_free(batch.device):
        lowest, highest = torch.cat(bounds).tolist() if bounds else (0, -1)
        batch_size = number_of_graphs(lowest, highest, batch_size)
        check_values(edge_index, None, num_nodes)
        found = ops.progress(edge_index, batch, batch_size)
        return batch_size, found.goes_on, ops.Sizes(*found.sizes.tolist()), None

    # There are rarely more graphs than nodes.
    assumed = max(num_nodes, 1) if batch_size is None else batch_size
    pairs, slot, count = torch.ops.gpn.undirected_padded(edge_index, num_nodes, edge_index.size(1))
    found = ops.progress(edge_index, batch, assumed)
    numbers = torch.cat([found.sizes, count, *bounds]).tolist()
    lowest, highest = numbers[num_sizes + 2 :] or (0, -1)
    batch_size = number_of_graphs(lowest, highest, batch_size)
    undirected = ops.Undirected(pairs[:, : numbers[num_sizes + 1]].contiguous(), slot)
    if batch_size > assumed:
        found = ops.progress(edge_index, batch, batch_size)
        numbers = found.sizes.tolist()
    return batch_size, found.goes_on[:batch_size], ops.Sizes(*numbers[:num_sizes]), undirected


class _Graphs(NamedTuple):
    """The graphs at a level, numbered as in the whole batch."""

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    batch: Tensor
    undirected: ops.Undirected | None = None
    """The undirected edges, if known."""
    origin: Tensor | None = None
    """The positions of the nodes among those from the level below; ``None`` if they are all of them."""

    def with_pairs(self, num_pairs: int | None) -> "_Graphs":
        """Adds the undirected edges. Their number is given if edges are sorted and all have their reverse."""
        if num_pairs is None:
            return self._replace(undirected=ops.undirected(self.edge_index, self.x.size(0)))
        return self._replace(undirected=ops.sorted_pairs(self.edge_index, self.x.size(0), num_pairs))

    def frozen(self, goes_on: Tensor, batch_size: int) -> "_Graphs":
        """For a padded batch: the edges of graphs that have finished become self-loops of the padding."""
        on = goes_on.index_select(0, self.batch).index_select(0, self.edge_index[0].to(torch.int64)) > 0
        is_padding = self.batch.index_select(0, self.edge_index[0].to(torch.int64)) == batch_size
        edge_index = torch.where(on | is_padding, self.edge_index, self.x.size(0) - 1)
        return self._replace(edge_index=edge_index)

    def with_padded_pairs(self, num_pairs: int) -> "tuple[_Graphs, Tensor]":
        """For a padded batch: adds the undirected edges, padded with self-loops of the last node, and returns
        whether they fit. If not, they are padding only."""
        num_nodes = self.x.size(0)
        pairs, slot, count = torch.ops.gpn.undirected_padded(self.edge_index, num_nodes, num_pairs)
        pairs = torch.where(pairs < 0, num_nodes - 1, pairs)
        undirected = ops.Undirected(pairs, slot.clamp(min=0))
        # As an operator, torch.compile of torch 2.10 would branch on the result.
        return self._replace(undirected=undirected), count[1].le(num_pairs)

    def split(self, wanted: Tensor, num_nodes: int, num_edges: int, left: "list[_Graphs]") -> "_Graphs":
        """The wanted graphs, which have these numbers of nodes and edges. The others are appended to
        ``left``, as nodes without edges."""
        if num_nodes == self.x.size(0):
            return self
        none = self.edge_index[:, :0]
        if num_nodes == 0:
            left.append(_Graphs(self.x, none, None, self.batch))
            return _Graphs(self.x[:0], none, None, self.batch[:0])
        order, number = ops.partition(wanted, self.batch, num_nodes)
        node, leaves = order[:num_nodes], order[num_nodes:]
        left.append(_Graphs(self.x.index_select(0, leaves), none, None, self.batch.index_select(0, leaves)))
        edge_index, edge_attr = _induced(number, num_nodes, num_edges, self.edge_index, self.edge_attr)
        undirected = None
        if self.undirected is not None and num_edges == self.edge_index.size(1):
            pairs, slot = self.undirected
            undirected = ops.Undirected(_renumbered(number, pairs), slot)
        return _Graphs(
            self.x.index_select(0, node),
            edge_index,
            edge_attr,
            self.batch.index_select(0, node),
            undirected,
            node if self.origin is None else self.origin.index_select(0, node),
        )


def _renumbered(number: Tensor, edge_index: Tensor) -> Tensor:
    return number.index_select(0, edge_index.flatten()).view(2, -1)


def _induced(
    number: Tensor, num_nodes: int, num_edges: int, edge_index: Tensor, edge_attr: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The edges of the nodes that stay, which have the lowest new ids. None of these edges leaves them."""
    if num_edges < edge_index.size(1):
        staying = number.index_select(0, edge_index[0]) < num_nodes
        edge = torch.nonzero_static(staying, size=num_edges).view(-1)
        edge_index = edge_index.index_select(1, edge)
        edge_attr = None if edge_attr is None else edge_attr.index_select(0, edge)
    return _renumbered(number, edge_index), edge_attr


def _of_graphs(wanted: Tensor, sizes: ops.Sizes, pooled: Pooled, batch: Tensor) -> Pooled:
    """The pooling results of the graphs that shrink, numbered as if only these had been pooled."""
    node_order, node_number = ops.partition(wanted, batch, sizes.nodes)
    order, number = ops.partition(wanted, pooled.batch, sizes.clusters)
    node, cluster = node_order[: sizes.nodes], order[: sizes.clusters]
    edge_index, edge_attr = _induced(
        number, sizes.clusters, sizes.coarse_edges, pooled.edge_index, pooled.edge_attr
    )
    return Pooled(
        x=pooled.x.index_select(0, cluster),
        edge_index=edge_index,
        edge_attr=edge_attr,
        batch=pooled.batch.index_select(0, cluster),
        cluster=number.index_select(0, pooled.cluster.index_select(0, node)),
        score=pooled.score.index_select(0, cluster),
        inner_edges=pooled.inner_edges.index_select(0, cluster),
        representative=node_number.index_select(0, pooled.representative.index_select(0, cluster)),
    )


def _level(graphs: _Graphs, pooled: Pooled, took_part: Tensor | None = None) -> Level:
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
        took_part=took_part,
    )
