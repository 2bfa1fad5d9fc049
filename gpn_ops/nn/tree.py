"""The trees that a hierarchy of pooling layers makes of a batch of graphs."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(repr=False)
class Level:
    """One level of a :class:`ParseTree`: the graphs that shrink here, before and after.

    ``n`` nodes and ``m`` edges become ``c`` clusters.
    """

    index: Tensor | None
    """int64 ``[n]``: where these nodes are among the clusters of the level below (at the lowest level: among
    the nodes of the batch). ``None`` where they are all of them, in order."""
    x: Tensor
    """``[n, d]``: the features that came in."""
    edge_index: Tensor
    """int64 ``[2, m]``: the graph that came in."""
    edge_attr: Tensor | None
    """``[m, ...]``: its edge attributes."""
    batch: Tensor
    """int64 ``[n]``: the graph of every node, by its number in the batch."""
    cluster: Tensor
    """int64 ``[n]``: the assignment of nodes to clusters."""
    representative: Tensor
    """int64 ``[c]``: the smallest node of every cluster."""
    mask: Tensor
    """``[c]``: the sum of the scores of a cluster's inner edges, 1 where it has none."""
    inner_edges: Tensor
    """int64 ``[c]``: their number, 1 where there are none."""
    pooled: Tensor
    """``[c, d]``: the features of the clusters."""

    def __repr__(self) -> str:
        nodes, edges, clusters = self.x.size(0), self.edge_index.size(1), self.pooled.size(0)
        return f"Level(nodes={nodes}, edges={edges}, clusters={clusters})"


@dataclass(repr=False)
class ParseTree:
    """The pooling trees of a batch of graphs.

    A graph takes part in the lowest ``height`` levels; what is left of it then are its roots (one for each of
    its connected components, if no drop-edge, self-loop or maximum height stopped it before).
    """

    height: Tensor
    """int64 ``[num_graphs]``: the number of levels of every graph; 0 for one that never shrank."""
    levels: list[Level] = field(default_factory=list)
    """The levels, lowest first."""

    def __repr__(self) -> str:
        return f"ParseTree(num_graphs={self.height.size(0)}, levels={self.levels})"

    def to(self, *args: Any, **kwargs: Any) -> "ParseTree":
        """The trees with all their tensors on another device; arguments as of :meth:`torch.Tensor.to`. A
        dtype is that of the features, masks and edge attributes: numbers of nodes stay integers."""
        return self._map(
            lambda t: t.to(*args, **kwargs) if t.is_floating_point() else _moved(t, args, kwargs)
        )

    def cpu(self) -> "ParseTree":
        """The trees in the memory of the host."""
        return self._map(Tensor.cpu)

    def detach(self) -> "ParseTree":
        """The trees without what backward would need: keep this one, if any, from one step to the next."""
        return self._map(Tensor.detach)

    def _map(self, function: Callable[[Tensor], Tensor]) -> "ParseTree":
        def mapped(level: Level) -> Level:
            tensors = {f.name: getattr(level, f.name) for f in fields(Level)}
            return replace(level, **{name: function(t) for name, t in tensors.items() if t is not None})

        return ParseTree(function(self.height), [mapped(level) for level in self.levels])

    def decode(self, x: Tensor, decoder: Callable[[Tensor, Level], Tensor]) -> Tensor:
        """Goes down the trees, from the features of their roots to features of every node.

        Args:
            x: ``[num_nodes, d]``: the features that went into the hierarchy, which a graph without levels
                keeps.
            decoder: called as ``decoder(z, level)``, from the top level to the lowest, with the features of
                the level's clusters, ``[c, d]``; returns features of its nodes, ``[n, d]``.

        Returns:
            ``[num_nodes, d]``
        """
        above: Level | None = None
        decoded = x
        for level in reversed(self.levels):
            z = level.pooled if above is None else _replaced(level.pooled, above.index, decoded)
            decoded = decoder(z, level)
            above = level
        return x if above is None else _replaced(x, above.index, decoded)


def _moved(tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """``tensor.to`` without the dtype."""
    device, _, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
    return tensor.to(device=device, non_blocking=non_blocking)


def _replaced(x: Tensor, index: Tensor | None, rows: Tensor) -> Tensor:
    """``x`` with ``rows`` at ``index``, or ``rows`` where that is all of it."""
    return rows if index is None else x.index_copy(0, index, rows.to(x.dtype))
