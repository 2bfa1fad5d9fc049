"""The layers as the paper writes them: dense matrices, a row of features per edge, plain autograd.

Built on the modules' parameters, so that a layer and its naive form can be compared, gradients included.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gpn_ops import reference


def mlp(x: Tensor, lins, norms=None) -> Tensor:
    """Linear (LayerNorm, ReLU, Linear)*, the LayerNorm where there are ``norms``."""
    for k, lin in enumerate(lins):
        if k > 0:
            x = norms[k - 1](x) if norms is not None else x
            x = x.relu()
        x = lin(x)
    return x


def edge_scores(scorer, h: Tensor, edge_index: Tensor) -> Tensor:
    """Equation 1, for every stored edge on its own."""
    product = h[edge_index[0]] * h[edge_index[1]]
    return mlp(product, scorer.lins, scorer.norms).sigmoid().squeeze(1)


def deepsets(module, x: Tensor, S: Tensor) -> Tensor:
    """Equation 3, each MLP with the residual LayerNorm at its end."""
    one = module.norm1(x + mlp(x, module.lins1))
    sums = S.t() @ one
    return module.norm2(sums + mlp(sums, module.lins2))


class DensePooled(NamedTuple):
    x: Tensor
    A: Tensor  # S^T A S, inner edges on the diagonal
    cluster: Tensor
    mask: Tensor


def pool(layer, x: Tensor, edge_index: Tensor, attn: Tensor | None = None) -> DensePooled:
    """Equations 1 to 6 on dense matrices. For simple graphs: no duplicate edges."""
    num_nodes = x.size(0)
    h = x if attn is None else attn
    scores = edge_scores(layer.select.scorer, h, edge_index)
    C = torch.zeros(num_nodes, num_nodes, dtype=scores.dtype, device=x.device)
    C = C.index_put((edge_index[0], edge_index[1]), scores)
    A = reference.dense_adjacency(edge_index, num_nodes).to(x.dtype)
    cluster = reference.algorithm1(edge_index, scores, num_nodes)
    S = reference.gen(cluster).to(x.dtype)
    coarse = S.t() @ A @ S
    inner = coarse.diagonal() > 0
    mask = torch.where(inner, (S.t() @ C @ S).diagonal(), torch.ones_like(inner, dtype=x.dtype))
    return DensePooled(deepsets(layer.multiset, x, S) * mask[:, None], coarse, cluster, mask)
