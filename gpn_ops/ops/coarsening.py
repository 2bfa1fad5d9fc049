"""The graph between clusters."""

import torch
from torch import Tensor

from .._pooling_checks import check_coarsen, check_device, check_floating, check_reduction, check_shape
from ..reference.pooling import Coarse
from .reducing import reduce as _reduce


def coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None = None,
    reduce: str = "sum",
    self_loops: bool = False,
) -> Coarse:
    r"""The graph between clusters: :math:`\mathbf{S}^{\top} \mathbf{A} \mathbf{S}` as an edge list.

    Args:
        edge_index (torch.Tensor): The edges, int64 or int32 :math:`[2, m]`, in any order.
        cluster (torch.Tensor): The cluster of each node, int64 :math:`[n]`: every id from 0 to the largest
            occurs.
        edge_attr (torch.Tensor, optional): Weights or attributes of the edges, :math:`[m, \ldots]`: float32,
            float64, float16 or bfloat16. (default: :obj:`None`)
        reduce (str, optional): How the attributes of the edges that become one are joined: :obj:`"sum"`,
            :obj:`"mean"` or :obj:`"max"`. (default: :obj:`"sum"`)
        self_loops (bool, optional): If :obj:`True`, the edges inside a cluster are kept as its self-loop;
            else they are dropped. (default: :obj:`False`)

    Returns:
        Coarse: ``edge_index``, int64 :math:`[2, k]`, sorted by row then column, every edge once;
        ``edge_attr``, :math:`[k, \ldots]`, differentiable, or :obj:`None`; and ``representative``, int64
        :math:`[c]`, the smallest node of each cluster, so that ``batch[representative]`` is the batch vector
        of the coarse graph. Their sizes depend on the data: CUDA waits for the device once.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape, device or value; on CUDA, an id out of range
            trips a device-side assertion.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])  # a path of 4 nodes
        >>> coarse = gpn_ops.coarsen(edge_index, torch.tensor([0, 0, 1, 1]), torch.ones(6))
        >>> coarse.edge_index
        tensor([[0, 1],
                [1, 0]])
        >>> coarse.edge_attr, coarse.representative
        (tensor([1., 1.]), tensor([0, 2]))
    """
    if edge_attr is None:
        edges, _, representative = torch.ops.gpn.coarsen(edge_index, cluster, self_loops, False)
        return Coarse(edges, None, representative)
    # Checked before the work, and under the name that the caller knows.
    check_coarsen(edge_index, cluster)
    check_floating("edge_attr", edge_attr)
    check_shape("edge_attr", edge_attr, ("num_edges", edge_index.size(1)), ("...", None))
    check_device("edge_attr", edge_attr, "edge_index", edge_index)
    check_reduction(reduce)
    edges, slot, representative = torch.ops.gpn.coarsen(edge_index, cluster, self_loops, True)
    return Coarse(edges, _reduce(edge_attr, slot, edges.size(1), reduce), representative)


@torch.library.register_fake("gpn::coarsen")
def _(
    edge_index: Tensor, cluster: Tensor, self_loops: bool = False, with_slot: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    check_coarsen(edge_index, cluster)
    num_edges, num_clusters = (torch.library.get_ctx().new_dynamic_size() for _ in range(2))
    return (
        cluster.new_empty((2, num_edges)),
        cluster.new_empty(edge_index.size(1) if with_slot else 0),
        cluster.new_empty(num_clusters),
    )
