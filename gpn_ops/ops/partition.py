"""Moves the nodes of some graphs of a batch to the front."""

import torch
from torch import Tensor

from ..checks import check_count, check_device, check_dtype, check_shape
from .plain import plain_form


def partition(wanted: Tensor, batch: Tensor, num_wanted: int) -> tuple[Tensor, Tensor]:
    r"""Reorders the nodes of a batch: those of wanted graphs first, then the others.

    Args:
        wanted (torch.Tensor): Which graphs are wanted, int64 :math:`[g]`, not 0 for a wanted graph.
        batch (torch.Tensor): The graph of every node, int64 :math:`[n]`. A node whose graph is out of range
            is not wanted.
        num_wanted (int): The number of nodes of wanted graphs.

    Returns:
        tuple: The nodes in the new order, and the position of every node in it, both int64 :math:`[n]`.

    Raises:
        RuntimeError: If an argument has the wrong dtype, shape or device, or if ``num_wanted`` is wrong. On
            CUDA, a wrong ``num_wanted`` trips a device-side assertion.

    Example:
        >>> import torch
        >>> from gpn_ops.ops import partition
        >>> partition(torch.tensor([0, 1]), torch.tensor([0, 0, 1, 1]), 2)
        (tensor([2, 3, 0, 1]), tensor([2, 3, 0, 1]))
    """
    order, number = torch.ops.gpn.partition(wanted, batch, num_wanted)
    return order, number


def check_partition(wanted: Tensor, batch: Tensor, num_wanted: int) -> None:
    check_dtype("wanted", wanted, torch.int64)
    check_shape("wanted", wanted, ("num_graphs", None))
    check_dtype("batch", batch, torch.int64)
    check_shape("batch", batch, ("num_nodes", None))
    check_device("batch", batch, "wanted", wanted)
    check_count("num_wanted", num_wanted)


@plain_form("partition")
def plain_partition(wanted: Tensor, batch: Tensor, num_wanted: int) -> tuple[Tensor, Tensor]:
    """As :func:`partition`."""
    check_partition(wanted, batch, num_wanted)
    exists = (batch >= 0) & (batch < wanted.size(0))
    is_wanted = torch.zeros_like(exists)
    is_wanted[exists] = wanted.index_select(0, batch[exists]) != 0
    if int(is_wanted.sum()) != num_wanted:
        raise RuntimeError(f"num_wanted: expected {int(is_wanted.sum())}, got {num_wanted}")
    order = torch.cat([is_wanted.nonzero().view(-1), is_wanted.logical_not().nonzero().view(-1)])
    return order, order.argsort()


@torch.library.register_fake("gpn::partition")
def _(wanted: Tensor, batch: Tensor, num_wanted: int) -> tuple[Tensor, Tensor]:
    check_partition(wanted, batch, num_wanted)
    return torch.empty_like(batch), torch.empty_like(batch)
