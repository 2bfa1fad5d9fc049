"""The pooling trees of a batch of graphs."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from gpn_ops import ops


@dataclass(repr=False)
class Level:
    """One level of a :class:`ParseTree`: the graphs that shrink here, before and after.

    Its ``n`` nodes and ``m`` edges become ``c`` clusters.
    """

    index: Tensor | None
    """int64 ``[n]``: the position of each node among the clusters of the level below (at the lowest level,
    among the nodes of the batch). ``None`` if the nodes are all of these, in order."""
    x: Tensor
    """``[n, d]``: the features of the nodes."""
    edge_index: Tensor
    """int64 ``[2, m]``: the edges between them."""
    edge_attr: Tensor | None
    """``[m, ...]``: the attributes of these edges."""
    batch: Tensor
    """int64 ``[n]``: the graph of every node, numbered as in the batch."""
    cluster: Tensor
    """int64 ``[n]``: the cluster of every node."""
    representative: Tensor
    """int64 ``[c]``: the smallest node of every cluster."""
    mask: Tensor
    """``[c]``: the sum of the scores of the edges inside each cluster, 1 if there are none."""
    inner_edges: Tensor
    """int64 ``[c]``: the number of these edges, 1 if there are none."""
    pooled: Tensor
    """``[c, d]``: the features of the clusters."""
    took_part: Tensor | None = None
    """bool ``[n]``, in the static form: whether the graph of each node shrinks here. The other graphs stay,
    each node in a cluster of its own, with unchanged features. ``None`` in the dynamic form, where every
    graph of a level shrinks."""

    def __repr__(self) -> str:
        nodes, edges, clusters = self.x.size(0), self.edge_index.size(1), self.pooled.size(0)
        return f"Level(nodes={nodes}, edges={edges}, clusters={clusters})"


@dataclass(repr=False)
class ParseTree:
    """The pooling trees of a batch of graphs.

    A graph takes part in the lowest ``height`` levels. The nodes that remain are its roots: one per connected
    component, unless drop-edge, a competing self-loop or the maximum height stopped it earlier.
    """

    height: Tensor
    """int64 ``[num_graphs]``: the number of levels of every graph; 0 for a graph that never shrank."""
    levels: list[Level] = field(default_factory=list)
    """The levels, lowest first."""
    overflow: Tensor | None = None
    """bool, on the device: whether a capacity was too small, which makes the whole tree invalid. ``None`` in
    the dynamic form."""

    def __repr__(self) -> str:
        return f"ParseTree(num_graphs={self.height.size(0)}, levels={self.levels})"

    def to(self, *args: Any, **kwargs: Any) -> "ParseTree":
        """The trees with all tensors moved or converted; arguments as for :meth:`torch.Tensor.to`. A dtype
        applies to floating tensors (features, masks, edge attributes); integers keep theirs."""
        return self._map(
            lambda t: t.to(*args, **kwargs) if t.is_floating_point() else _moved(t, args, kwargs)
        )

    def cpu(self) -> "ParseTree":
        """The trees with all tensors on the CPU."""
        return self._map(Tensor.cpu)

    def detach(self) -> "ParseTree":
        """The trees detached from the autograd graph. Detach a tree before keeping it beyond a training
        step."""
        return self._map(Tensor.detach)

    def _map(self, function: Callable[[Tensor], Tensor]) -> "ParseTree":
        def mapped(level: Level) -> Level:
            tensors = {f.name: getattr(level, f.name) for f in fields(Level)}
            return replace(level, **{name: function(t) for name, t in tensors.items() if t is not None})

        overflow = None if self.overflow is None else function(self.overflow)
        return ParseTree(function(self.height), [mapped(level) for level in self.levels], overflow)

    def trimmed(self) -> "ParseTree":
        """Trees of the static form as the dynamic form would return them: without padding, and at every level
        only the graphs that shrink there. Waits for the device.

        Raises:
            RuntimeError: if a capacity was too small.
        """
        if self.overflow is None:
            return self
        if bool(self.overflow):
            raise RuntimeError("tree: expected a complete tree, got one whose capacity was too small")
        levels: list[Level] = []
        number = None  # The position of each node among the clusters that the last level kept.
        for level in self.levels:
            assert level.took_part is not None
            if not bool(level.took_part.any()):
                break
            trimmed, number = _trimmed(level, level.took_part, self.height.size(0), number)
            levels.append(trimmed)
        return ParseTree(self.height, levels)

    def decode(self, x: Tensor, decoder: Callable[[Tensor, Level], Tensor]) -> Tensor:
        """Goes down the trees, from the features of their roots to features of all nodes.

        Args:
            x: ``[num_nodes, d]``: the input features of the hierarchy. Graphs without levels keep them.
            decoder: Called as ``decoder(z, level)`` for every level, from the top down, with features of the
                level's clusters, ``[c, d]``. Returns features of its nodes, ``[n, d]``.

        Returns:
            ``[num_nodes, d]``
        """
        above: Level | None = None
        decoded = x
        for level in reversed(self.levels):
            z = level.pooled if above is None else _replaced(level.pooled, above.index, decoded)
            decoded = decoder(z, level)
            if level.took_part is not None:
                kept = x if level is self.levels[0] else ops.lift(z, level.cluster)
                decoded = torch.where(level.took_part.unsqueeze(-1), decoded, kept.to(decoded.dtype))
            above = level
        return x if above is None else _replaced(x, above.index, decoded)


def _moved(tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """``tensor.to`` without the dtype."""
    device, _, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
    return tensor.to(device=device, non_blocking=non_blocking)


def _replaced(x: Tensor, index: Tensor | None, rows: Tensor) -> Tensor:
    """``x`` with ``rows`` at ``index``; ``rows`` if ``index`` is ``None``, which means all rows."""
    return rows if index is None else x.index_copy(0, index, rows.to(x.dtype))


def _trimmed(level: Level, keep: Tensor, num_graphs: int, number: Tensor | None) -> tuple[Level, Tensor]:
    """A level restricted to the nodes to keep, and the new numbers of its clusters. ``number`` is the
    position of each node among the clusters below; ``None`` at the lowest level, whose nodes keep their
    positions."""
    node = keep.nonzero().view(-1)
    cluster = keep.index_select(0, level.representative).nonzero().view(-1)
    edge = keep.index_select(0, level.edge_index[0]).nonzero().view(-1)
    new_node, new_cluster = keep.cumsum(0) - 1, torch.full_like(level.representative, -1)
    new_cluster[cluster] = torch.arange(cluster.size(0), device=cluster.device)
    if number is None:
        index, below = node, int((level.batch < num_graphs).sum())
    else:
        index, below = number.index_select(0, node), int((number >= 0).sum())

    def taken(values: Tensor, at: Tensor) -> Tensor:
        return values.index_select(0, at)

    trimmed = Level(
        index=None if index.size(0) == below else index,
        x=taken(level.x, node),
        edge_index=taken(new_node, level.edge_index.index_select(1, edge).flatten()).view(2, -1),
        edge_attr=None if level.edge_attr is None else taken(level.edge_attr, edge),
        batch=taken(level.batch, node),
        cluster=taken(new_cluster, taken(level.cluster, node)),
        representative=taken(new_node, taken(level.representative, cluster)),
        mask=taken(level.mask, cluster),
        inner_edges=taken(level.inner_edges, cluster),
        pooled=taken(level.pooled, cluster),
    )
    return trimmed, new_cluster
