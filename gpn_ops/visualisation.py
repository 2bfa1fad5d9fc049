"""Draws how a graph is parsed, level by level. Needs matplotlib (the extra ``draw``)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .ops import coarsen

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .nn.tree import ParseTree

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, RED, YELLOW, GREY, BLACK = "#56B4E9", "#D55E00", "#F0E442", "#999999", "#000000"

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW, GREY)  # black is for outlines
DARK = (BLUE, GREEN, RED)

# The drawing of a larger graph would be unreadable.
MOST_NODES_BESIDE = 499
MOST_NODES_WITH_NUMBERS = 60


def draw_levels(edge_index: Tensor, assignments: Sequence[Tensor], position: Tensor) -> "Figure":
    r"""Draws a graph at every level of its parse, with nodes coloured by the cluster that they merge into.

    A cluster is drawn at the mean position of the nodes in it, and its size grows with their number.

    Args:
        edge_index (torch.Tensor): The edges of the finest graph, :math:`[2, m]`.
        assignments (sequence of torch.Tensor): The clusters at each level, finest first. The first tensor has
            an entry for every node of the graph, each further one for every cluster of the previous level.
        position (torch.Tensor): The positions of the nodes, :math:`[n, 2]`.

    Returns:
        matplotlib.figure.Figure: One panel for the graph and one for every level.

    Example:
        >>> import torch
        >>> from gpn_ops.visualisation import draw_levels
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> figure = draw_levels(edge_index, [torch.tensor([0, 0, 1])], torch.rand(3, 2))
        >>> len(figure.axes)
        2
    """
    edge_index, position = edge_index.cpu(), position.detach().cpu().double()
    size = torch.ones(position.size(0), dtype=torch.float64)
    panels = len(assignments) + 1
    columns = min(panels, 4)
    rows = -(-panels // columns)
    figure = _new_figure((3.6 * columns, 3.6 * rows))

    for level in range(panels):
        axes = figure.add_subplot(rows, columns, level + 1)
        cluster = assignments[level].cpu() if level < len(assignments) else torch.arange(size.numel())
        colours = _node_colours(edge_index, cluster)
        _draw_graph(axes, edge_index, cluster, colours, position, 30 * size.sqrt() * (1 + level))
        counts = f"{_count(size.numel(), 'node')}, {_count(edge_index.size(1), 'edge')}"
        axes.set_title(f"level {level}: {counts}", fontsize=9)

        if level < len(assignments):
            coarse = coarsen(edge_index, cluster)
            count = coarse.representative.numel()
            new_size = torch.zeros(count, dtype=torch.float64).index_add_(0, cluster, size)
            weighted = torch.zeros(count, 2, dtype=torch.float64)
            weighted.index_add_(0, cluster, position * size[:, None])
            edge_index, position, size = coarse.edge_index, weighted / new_size[:, None], new_size
    return figure


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def draw_tree(tree: "ParseTree", graph: int = 0, position: Tensor | None = None, title: str = "") -> "Figure":
    r"""Draws the pooling tree of one graph, and the graph itself beside it.

    The bottom row of the tree shows the nodes of the graph, with its edges as arcs below. Each row above
    shows the clusters of the row below, with lines to their nodes. A node has the colour of its cluster, and
    neighbouring clusters differ in colour while colours last. In the drawing of the graph, nodes have the
    same colours and numbers as in the bottom row.

    Args:
        tree (ParseTree): The trees of a batch of graphs, as returned by :class:`gpn_ops.nn.ParseHierarchy`.
        graph (int): The index of the graph in the batch. (default: :obj:`0`)
        position (torch.Tensor, optional): The positions of the nodes, :math:`[n, 2]`. If :obj:`None`,
            networkx computes them for up to 499 nodes; a larger graph is not drawn beside its tree.
            (default: :obj:`None`)
        title (str): The title of the figure. (default: :obj:`""`)

    Returns:
        matplotlib.figure.Figure: A panel with the graph (if drawn) and one with the tree.

    Raises:
        ValueError: If there is no such graph, or if it has no levels.

    Example:
        >>> import torch
        >>> from gpn_ops.nn import ParseHierarchy, ParsePooling
        >>> from gpn_ops.visualisation import draw_tree
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> _, tree = ParseHierarchy(ParsePooling(4))(torch.rand(3, 4), edge_index)
        >>> len(draw_tree(tree).axes)
        2
    """
    edge_index, assignments = one_graph(tree, graph)
    num_nodes = assignments[0].numel()
    if position is not None and list(position.shape) != [num_nodes, 2]:
        raise ValueError(f"position: expected shape [{num_nodes}, 2], got {list(position.shape)}")
    if position is None and num_nodes <= MOST_NODES_BESIDE:
        position = _spring_layout(edge_index, num_nodes)

    places, order = _tree_layout(edge_index, assignments)
    colours = _node_colours(edge_index, assignments[0], order[0])
    width, height = min(max(0.17 * num_nodes, 5.0), 22.0), min(max(1.6 + 0.7 * len(assignments), 4.0), 12.0)
    if position is None:
        figure = _new_figure((width, height))
        tree_axes = figure.add_subplot()
    else:
        figure = _new_figure((height + width, height))
        graph_axes, tree_axes = figure.subplots(1, 2, width_ratios=[height, width])
        position = position.detach().cpu().double()
        area = torch.full((num_nodes,), min(110.0, 4000.0 / num_nodes), dtype=torch.float64)
        _draw_graph(graph_axes, edge_index, assignments[0], colours, position, area)
        _write_numbers(graph_axes, position, colours)
        graph_axes.set_title("the graph; colours: clusters of level 1", fontsize=9)
    _draw_rows(tree_axes, edge_index, assignments, places, order)
    _write_numbers(tree_axes, torch.stack([places[0], torch.zeros_like(places[0])], dim=1), colours)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _new_figure(size: tuple[float, float]) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "gpn_ops.visualisation needs matplotlib: pip install matplotlib, or gpn_ops with its extra 'draw'"
        ) from error
    return Figure(figsize=size, layout="constrained")


def one_graph(tree: "ParseTree", graph: int) -> tuple[Tensor, list[Tensor]]:
    r"""Extracts one graph of a batch of trees, in the form that :func:`draw_levels` expects.

    Args:
        tree (ParseTree): The trees of a batch of graphs.
        graph (int): The index of the graph in the batch.

    Returns:
        (torch.Tensor, list of torch.Tensor): The edges of the graph, with nodes numbered from 0, and its
        clusters at each level, finest first.

    Raises:
        ValueError: If there is no such graph, or if it has no levels.
    """
    num_graphs = tree.height.numel()
    if not 0 <= graph < num_graphs:
        raise ValueError(f"graph: expected a number from 0 to {num_graphs - 1}, got {graph}")
    height = int(tree.height[graph])
    if height == 0:
        raise ValueError(f"graph: number {graph} has no tree, it was never pooled: no edge joins its nodes")
    assignments: list[Tensor] = []
    for level in tree.levels[:height]:
        node = (level.batch.cpu() == graph).nonzero().view(-1)
        # Sorted into the order of the clusters below, which the index gives.
        origin = node if level.index is None else level.index.cpu()[node]
        node = node[origin.argsort()]
        assignments.append(level.cluster.cpu()[node].unique(return_inverse=True)[1])
        if len(assignments) == 1:
            number = torch.full((level.batch.numel(),), -1)
            number[node] = torch.arange(node.numel())
            edge_index = number[level.edge_index.cpu()]
            edge_index = edge_index[:, edge_index[0] >= 0]
    return edge_index, assignments


# ------------------------------------------------------------------------------------------------------------
# Panels
# ------------------------------------------------------------------------------------------------------------


def _draw_graph(
    axes: "Axes", edge_index: Tensor, cluster: Tensor, colours: list[str], position: Tensor, area: Tensor
) -> None:
    """Draws a graph at the given positions; edges inside a cluster are darker."""
    from matplotlib.collections import LineCollection

    inside = cluster[edge_index[0]] == cluster[edge_index[1]]
    styles = ((~inside, {"color": "0.8", "linewidths": 0.8}), (inside, {"color": "0.25", "linewidths": 1.5}))
    for edges, style in styles:
        ends = position[edge_index[:, edges]].permute(1, 0, 2)
        axes.add_collection(LineCollection(list(ends.numpy()), zorder=1, **style))
    axes.scatter(
        position[:, 0].numpy(),
        position[:, 1].numpy(),
        s=area.numpy(),
        c=colours,
        edgecolors="black",
        linewidths=0.5,
        zorder=2,
        clip_on=False,
    )
    axes.set_axis_off()
    axes.set_aspect("equal")


def _draw_rows(
    axes: "Axes", edge_index: Tensor, assignments: list[Tensor], places: list[Tensor], order: list[list[int]]
) -> None:
    """Draws the tree: a row for every level, and the edges of the graph as arcs below the lowest row."""
    from matplotlib.collections import LineCollection

    num_nodes, num_rows = places[0].numel(), len(places)
    first, last = places[0][edge_index]
    first, last = first[first < last, None], last[first < last, None]
    angle = torch.linspace(torch.pi, 2 * torch.pi, 24, dtype=torch.float64)
    depth = 0.15 + 0.85 * ((last - first) / num_nodes).sqrt()
    arcs = torch.stack([(first + last + (last - first) * angle.cos()) / 2, depth * angle.sin()], dim=2)
    axes.add_collection(LineCollection(list(arcs.numpy()), colors="0.6", linewidths=0.7, zorder=1))

    graph = edge_index
    for level, x in enumerate(places):
        row = torch.stack([x, torch.full_like(x, float(level))], dim=1)
        colours = ["black"] * x.numel()
        if level < len(assignments):
            cluster = assignments[level]
            colours = _node_colours(graph, cluster, order[level])
            above = torch.stack([places[level + 1][cluster], row[:, 1] + 1], dim=1)
            lines = list(torch.stack([row, above], dim=1).numpy())
            axes.add_collection(LineCollection(lines, colors=colours, linewidths=1.2, zorder=1))
            graph = coarsen(graph, cluster).edge_index
        axes.scatter(
            row[:, 0].numpy(),
            row[:, 1].numpy(),
            s=min(110.0, max(2.0, 6000.0 / num_nodes)),
            c=colours,
            edgecolors="black",
            linewidths=0.5,
            zorder=2,
            clip_on=False,
        )

    labels = [f"level {level}: {_counted(x.numel())}" for level, x in enumerate(places)]
    axes.set_yticks(range(num_rows), labels, fontsize=8)
    axes.set_xticks([])
    axes.set(xlim=(-1, num_nodes), ylim=(-1.1, num_rows - 0.7))
    axes.set_title("its pooling tree; arcs: the graph's edges", fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _counted(num_nodes: int) -> str:
    return "1 node" if num_nodes == 1 else f"{num_nodes} nodes"


def _write_numbers(axes: "Axes", position: Tensor, colours: list[str]) -> None:
    if position.size(0) <= MOST_NODES_WITH_NUMBERS:
        for node, (x, y) in enumerate(position.tolist()):
            ink = "white" if colours[node] in DARK else "black"
            axes.text(x, y, str(node), color=ink, fontsize=6, ha="center", va="center", zorder=3)


def _node_colours(edge_index: Tensor, cluster: Tensor, order: Sequence[int] | None = None) -> list[str]:
    """The colour of every node, which is that of its cluster. While colours last, neighbouring clusters
    differ, and so do clusters that are consecutive in ``order`` (by default, in their numbers)."""
    num_clusters = int(cluster.max()) + 1 if cluster.numel() else 0
    neighbours: list[set[int]] = [set() for _ in range(num_clusters)]
    for first, second in cluster[edge_index].t().tolist():
        if first != second:
            neighbours[first].add(second)
            neighbours[second].add(first)
    chosen: dict[int, int] = {}
    last = -1
    for number, each in enumerate(range(num_clusters) if order is None else order):
        taken = {chosen[other] for other in neighbours[each] if other in chosen} | {last}
        candidates = [(number + k) % len(COLOURS) for k in range(len(COLOURS))]
        last = chosen[each] = next((colour for colour in candidates if colour not in taken), candidates[0])
    return [COLOURS[chosen[each]] for each in cluster.tolist()]


# ------------------------------------------------------------------------------------------------------------
# Layouts
# ------------------------------------------------------------------------------------------------------------


def _spring_layout(edge_index: Tensor, num_nodes: int) -> Tensor:
    import networkx  # type: ignore[import-untyped]  # torch brings it.

    graph = networkx.empty_graph(num_nodes)
    graph.add_edges_from(edge_index.t().tolist())
    places = networkx.spring_layout(graph, iterations=300, seed=0)
    return torch.tensor([list(places[node]) for node in range(num_nodes)], dtype=torch.float64)


def _tree_layout(edge_index: Tensor, assignments: list[Tensor]) -> tuple[list[Tensor], list[list[int]]]:
    """The horizontal positions of the nodes of every level, the roots last, and for every level except that
    the order of its clusters.

    From the top down, children are placed under their parents. Siblings follow a walk along the edges between
    them, so that neighbours in the graph are close. The nodes of the lowest level get the positions 0, 1,
    ..., and every cluster the middle of its children."""
    graphs = [edge_index]
    for cluster in assignments:
        graphs.append(coarsen(graphs[-1], cluster).edge_index)
    num_roots = int(assignments[-1].max()) + 1
    order = [_walk(range(num_roots), _adjacency(graphs[-1], num_roots))]
    for level in reversed(range(len(assignments))):
        children: dict[int, list[int]] = {parent: [] for parent in order[0]}
        for node, parent in enumerate(assignments[level].tolist()):
            children[parent].append(node)
        adjacency = _adjacency(graphs[level], assignments[level].numel())
        order.insert(0, [node for parent in order[0] for node in _walk(children[parent], adjacency)])

    places = [torch.empty(assignments[0].numel(), dtype=torch.float64)]
    places[0][torch.tensor(order[0])] = torch.arange(assignments[0].numel(), dtype=torch.float64)
    for cluster in assignments:
        count = int(cluster.max()) + 1
        low = torch.full((count,), torch.inf, dtype=torch.float64)
        low.scatter_reduce_(0, cluster, places[-1], "amin")
        high = torch.full((count,), -torch.inf, dtype=torch.float64)
        high.scatter_reduce_(0, cluster, places[-1], "amax")
        places.append((low + high) / 2)
    return places, order[1:]


def _adjacency(edge_index: Tensor, num_nodes: int) -> list[list[int]]:
    adjacency: list[list[int]] = [[] for _ in range(num_nodes)]
    for row, col in edge_index.t().tolist():
        adjacency[row].append(col)
    return adjacency


def _walk(nodes: Sequence[int], adjacency: list[list[int]]) -> list[int]:
    """The nodes in the order of a depth-first walk along the edges between them, starting at path ends."""
    members = set(nodes)
    inner = {node: [other for other in adjacency[node] if other in members] for node in nodes}
    found: dict[int, None] = {}
    for start in sorted(nodes, key=lambda node: (len(inner[node]), node)):
        stack = [start]
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = None
                stack += sorted(inner[node], key=lambda other: -len(inner[other]))
    return list(found)
