"""Ablations: parts of GPN with something left out."""

import torch
from torch import Tensor, nn

from gpn_ops import ops
from gpn_ops.nn import ParsePooling
from gpn_ops.nn.pooling import Pooled, PoolOutput


class RandomScores(nn.Module):
    """Replaces ``EdgeScorer``: uniform random scores that ignore the features; nothing is learned.

    An edge and its reverse get the same score. Training draws new scores in every pass; evaluation draws the
    same scores for the same batch.
    """

    num_layers, dropout = 0, 0.0

    def reset_parameters(self) -> None:
        """Does nothing: there are no parameters."""

    def forward(
        self, h: Tensor, edge_index: Tensor, undirected: ops.Undirected | None = None, directed: bool = False
    ) -> Tensor:
        pairs, slot = ops.undirected(edge_index, h.size(0)) if undirected is None else undirected
        generator = None
        if not self.training:
            generator = torch.Generator(h.device).manual_seed(0)
        rows = edge_index.size(1) if directed else pairs.size(1)
        scores = torch.rand(rows, generator=generator, device=h.device, dtype=h.dtype)
        return scores if directed else scores.index_select(0, slot)


class Unmasked(nn.Module):
    """A pooling layer without the mask of equation 4: clusters are not multiplied by the scores inside them.

    The scorer then gets no gradient and keeps its initial weights.

    Args:
        pool: The layer. Its multiset function moves here.
    """

    def __init__(self, pool: ParsePooling) -> None:
        super().__init__()
        self.multiset = pool.multiset
        pool.multiset = _Nothing()
        self.pool = pool

    def reset_parameters(self) -> None:
        self.pool.reset_parameters()
        if hasattr(self.multiset, "reset_parameters"):
            self.multiset.reset_parameters()

    def forward(
        self, x: Tensor, edge_index: Tensor, *args, record: bool = False, **kwargs
    ) -> PoolOutput | Pooled:
        pooled = self.pool(x, edge_index, *args, record=True, **kwargs)
        pooled = pooled._replace(x=self.multiset(x, pooled.cluster, pooled.batch.size(0)))
        return pooled if record else PoolOutput(*pooled[:6])


class _Nothing(nn.Module):
    """Gives clusters no features, because they are computed elsewhere."""

    def forward(self, x: Tensor, cluster: Tensor, num_clusters: int) -> Tensor:
        return x.new_empty(num_clusters, 0)
