"""Drawing how a graph is parsed, level by level. Needs matplotlib."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .ops import coarsen

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_levels(edge_index: Tensor, assignments: Sequence[Tensor], position: Tensor) -> "Figure":
    r"""Draws a graph once for every level of its parse, its nodes coloured by the cluster they go to.

    The nodes of a level stand at the mean of what they are made of, and are the larger the more that is.

    Args:
        edge_index (torch.Tensor): The edges of the finest graph, :math:`[2, m]`.
        assignments (sequence of torch.Tensor): The clusters of each level, finest first: the first has an
            entry for every node of the graph, each further one an entry for every cluster of the one before.
        position (torch.Tensor): Where the nodes are drawn, :math:`[n, 2]`.

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
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    edge_index, position = edge_index.cpu(), position.detach().cpu().double()
    size = torch.ones(position.size(0), dtype=torch.float64)
    panels = len(assignments) + 1
    columns = min(panels, 4)
    rows = -(-panels // columns)
    figure = Figure(figsize=(3.6 * columns, 3.6 * rows), layout="constrained")
    colours = colormaps["tab20"]

    for level in range(panels):
        axes = figure.add_subplot(rows, columns, level + 1)
        cluster = assignments[level].cpu() if level < len(assignments) else torch.arange(size.numel())
        inside = cluster[edge_index[0]] == cluster[edge_index[1]]
        for edges, style in ((~inside, {"color": "0.8", "linewidths": 0.8}), (inside, {"color": "0.25"})):
            ends = position[edge_index[:, edges]].permute(1, 0, 2)
            axes.add_collection(LineCollection(list(ends.numpy()), zorder=1, **style))
        axes.scatter(
            position[:, 0].numpy(),
            position[:, 1].numpy(),
            s=30 * size.sqrt().numpy() * (1 + level),
            c=[colours(int(c) % 20) for c in cluster],
            edgecolors="black",
            linewidths=0.5,
            zorder=2,
            clip_on=False,
        )
        axes.set_title(f"level {level}: {size.numel()} nodes, {edge_index.size(1)} edges", fontsize=9)
        axes.set_axis_off()
        axes.set_aspect("equal")

        if level < len(assignments):
            coarse = coarsen(edge_index, cluster)
            count = coarse.representative.numel()
            new_size = torch.zeros(count, dtype=torch.float64).index_add_(0, cluster, size)
            weighted = torch.zeros(count, 2, dtype=torch.float64)
            weighted.index_add_(0, cluster, position * size[:, None])
            edge_index, position, size = coarse.edge_index, weighted / new_size[:, None], new_size
    return figure
