"""Parses and coarsens a graph whose edges are sharded over the processes of ``torch.distributed``.

Every rank holds a shard of the edges, with global node ids, and :math:`O(n)` memory. Edges are never
gathered. All functions are collective: every rank of the group calls them, with consistent arguments. Before
they exchange data, the ranks compare their arguments and report whether their own part succeeded. So bad
input on one rank raises the same error on all ranks.

Tested with gloo. NCCL has not been tried, for lack of GPUs.

If a rank is lost during a call, the backend notices. With gloo, the neighbours of that rank fail at once, and
the others when these exit or when the timeout of the group expires (``init_process_group(timeout=...)``).
"""

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from . import keys
from .checks import check_device, check_floating, check_reduction, check_shape, dtype_name, sum_dtype
from .ops import Coarse, cluster_sizes
from .ops import reduce as _reduce
from .ops.coarsen import check_coarsen

__all__ = ["coarsen", "parse"]

Local = TypeVar("Local")


def parse(
    edge_index: Tensor,
    scores: Tensor,
    num_nodes: int,
    group: "dist.ProcessGroup | None" = None,
    chunk_bytes: int = 64 << 20,
) -> Tensor:
    r"""Parses a graph whose edges are sharded over the ranks of a group.

    The result on every rank is bit-equal to :func:`gpn_ops.parse` on the shards, concatenated in rank order.

    Each rank finds the best edge of every node in its own shard. A first all-reduce finds the maximum of
    their scores. A second one breaks ties in favour of the lowest rank, which has the lowest edge ids, and
    tells all ranks the column of the winner. Both together carry 8 to 16 bytes per node. Then every rank
    finds the components of the chosen edges.

    Args:
        edge_index (torch.Tensor): The edges of this rank, int64 or int32 :math:`[2, m_r]`, with global node
            ids, in any order. Any distribution over the ranks is legal, including empty shards. The device
            must be one that the group's backend serves: the CPU for gloo, CUDA for NCCL.
        scores (torch.Tensor): Their scores :math:`[m_r]`, with the same dtype on all ranks.
        num_nodes (int): The number of nodes :math:`n` of the whole graph.
        group (ProcessGroup, optional): The processes that take part. (default: all)
        chunk_bytes (int, optional): How much memory the exchange may use beside the :math:`O(n)` tensors,
            which take at most :math:`28n` bytes with the result (:math:`32n` beyond :math:`2^{31}` nodes).
            The backend's own buffers are not included; its messages have at most an eighth of this size. Must
            be the same on all ranks. (default: 64 MiB)

    Returns:
        torch.Tensor: The cluster of every node, int64 :math:`[n]`, the same on every rank.

    Raises:
        RuntimeError: On all ranks, naming the faulty rank and its message, if an argument is wrong on any
            rank (see :func:`gpn_ops.parse`) or if the ranks disagree on ``num_nodes``, the dtype of the
            scores or ``chunk_bytes``. Also if ``torch.distributed`` is not initialised, if this process is
            not in the group, or if another rank is lost.

    Example:
        >>> import tempfile, torch, torch.distributed as dist
        >>> import gpn_ops.distributed
        >>> store = dist.FileStore(tempfile.mktemp(), 1)
        >>> dist.init_process_group("gloo", store=store, rank=0, world_size=1)  # torchrun: no arguments
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])  # this rank's edges
        >>> scores = torch.tensor([0.9, 0.9, 0.1, 0.1, 0.8, 0.8])
        >>> gpn_ops.distributed.parse(edge_index, scores, num_nodes=4)
        tensor([0, 0, 1, 1])
        >>> dist.destroy_process_group()
    """
    ranks = _Ranks("parse", group)

    def local() -> tuple[dict[str, Any], tuple[Tensor, Tensor]]:
        # All memory of size n is allocated here, where a failure is still reported to all ranks.
        facts: dict[str, Any] = {
            "num_nodes": keys.count("num_nodes", num_nodes),
            "chunk_bytes": keys.count("chunk_bytes", chunk_bytes),
        }
        dominant = torch.ops.gpn.dominant(edge_index, scores, num_nodes)
        ranks.check_device("edge_index", edge_index)
        facts |= {"dtype of scores": dtype_name(scores.dtype), "device of edge_index": edge_index.device.type}
        return facts, (dominant, keys.self_choices(num_nodes, edge_index.device))

    dominant, choices = ranks.agree(local)

    # A claim holds the rank in its high bits, so that the lowest rank is the maximum, and the column below.
    column_bits = max(num_nodes - 1, 0).bit_length()
    columns = (1 << column_bits) - 1
    claim_dtype = _claim_dtype(ranks.size, column_bits)
    above = (ranks.size - 1 - ranks.rank) << column_bits

    for node in keys.tiles(num_nodes, chunk_bytes):
        code, column, has_edge = keys.best_of_part(edge_index, scores, dominant, node)
        highest = code.clone()
        ranks.maximum_(highest)
        claim = column.bitwise_or_(above).masked_fill_(~has_edge.logical_and_(code == highest), -1)
        claim = claim.to(claim_dtype)
        ranks.maximum_(claim)
        chosen = (claim & columns).to(torch.int64)
        torch.where(claim >= 0, chosen, choices[1, node], out=choices[1, node])
    del dominant
    return torch.ops.gpn.components(choices, num_nodes)


def _claim_dtype(num_ranks: int, column_bits: int) -> torch.dtype:
    """int32 if all claims fit, else int64. The largest claim is one less than ranks times columns."""
    return torch.int32 if num_ranks << column_bits <= 2**31 else torch.int64


def coarsen(
    edge_index: Tensor,
    cluster: Tensor,
    edge_attr: Tensor | None = None,
    reduce: str = "sum",
    self_loops: bool = False,
    group: "dist.ProcessGroup | None" = None,
) -> Coarse:
    r"""Coarsens a graph whose edges are sharded over the ranks of a group.

    Each rank coarsens its own shard and sends every coarse edge to the rank that owns its row. The owner
    merges equal edges. Of :math:`c` clusters, rank :math:`r` of :math:`R` owns the rows from
    :math:`\lfloor rc/R \rfloor` up to :math:`\lfloor (r+1)c/R \rfloor`. So the results of all ranks,
    concatenated in rank order, equal :func:`gpn_ops.coarsen` on the concatenated shards. They are also a
    sharding that :func:`parse` accepts for the next level.

    Edges and maxima are bit-equal to those of :func:`gpn_ops.coarsen`. Each rank sums its edges in their
    order, and the owner adds these sums in rank order. This is reproducible, and equal up to rounding to the
    sum over all edges in order. Half precision is summed in float32 and rounded once, on the owner. A mean is
    the sum divided by the number of edges.

    Args:
        edge_index (torch.Tensor): The edges of this rank, int64 or int32 :math:`[2, m_r]`, with global node
            ids, in any order.
        cluster (torch.Tensor): The cluster of every node of the whole graph, int64 :math:`[n]`, the same on
            all ranks, as returned by :func:`parse`.
        edge_attr (torch.Tensor, optional): Weights or attributes of the edges of this rank,
            :math:`[m_r, \ldots]`. (default: :obj:`None`)
        reduce (str, optional): :obj:`"sum"`, :obj:`"mean"` or :obj:`"max"`. (default: :obj:`"sum"`)
        self_loops (bool, optional): If :obj:`True`, the edges inside a cluster become its self-loop.
            Otherwise they are dropped. (default: :obj:`False`)
        group (ProcessGroup, optional): The processes that take part. (default: all)

    Returns:
        Coarse: ``edge_index`` (with global coarse ids) and ``edge_attr`` of the rows that this rank owns, and
        ``representative`` of all clusters. ``edge_attr`` is differentiable. The backward pass is collective
        too, so either all ranks run it or none.

    Raises:
        RuntimeError: As :func:`parse`. The ranks must agree on ``cluster`` (its size, the number of clusters
            and a hash are compared), on ``edge_attr`` except for its first size, and on the options.

    Example:
        >>> import tempfile, torch, torch.distributed as dist
        >>> import gpn_ops.distributed
        >>> store = dist.FileStore(tempfile.mktemp(), 1)
        >>> dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> gpn_ops.distributed.coarsen(edge_index, torch.tensor([0, 0, 1, 1]), torch.ones(6)).edge_attr
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    ranks = _Ranks("coarsen", group)

    def local() -> tuple[dict[str, Any], tuple[Tensor, Tensor | None, Tensor | None, Tensor]]:
        check_coarsen(edge_index, cluster)
        ranks.check_device("edge_index", edge_index)
        check_reduction(reduce)
        facts: dict[str, Any] = {
            "device of edge_index": edge_index.device.type,
            "cluster": list(cluster.shape),
            "reduce": reduce,
            "self_loops": self_loops,
            "edge_attr": None,
        }
        if edge_attr is not None:
            check_floating("edge_attr", edge_attr)
            check_shape("edge_attr", edge_attr, ("num_edges", edge_index.size(1)), ("...", None))
            check_device("edge_attr", edge_attr, "edge_index", edge_index)
            facts["edge_attr"] = f"{dtype_name(edge_attr.dtype)} {['num_edges', *edge_attr.shape[1:]]}"
            facts["edge_attr.requires_grad"] = edge_attr.requires_grad and torch.is_grad_enabled()
        edges, slot, representative, _ = torch.ops.gpn.coarsen(
            edge_index, cluster, self_loops, edge_attr is not None
        )
        facts["number of clusters"] = representative.numel()
        facts["hash of cluster"] = _hash(cluster)
        if edge_attr is None:
            return facts, (edges, None, None, representative)
        values = edge_attr if reduce == "max" else edge_attr.to(sum_dtype(edge_attr))
        values = _reduce(values, slot, edges.size(1), "max" if reduce == "max" else "sum")
        sizes = cluster_sizes(slot, edges.size(1)) if reduce == "mean" else None
        return facts, (edges, values, sizes, representative)

    edges, values, sizes, representative = ranks.agree(local)

    num_clusters = representative.numel()
    first_rows = [r * num_clusters // ranks.size for r in range(ranks.size + 1)]
    # The edges are sorted by row, so each owner gets a slice.
    cuts = torch.searchsorted(edges[0].contiguous(), edges.new_tensor(first_rows))
    sizes_sent = cuts.diff()
    one_each = [1] * ranks.size
    received = ranks.exchange(sizes_sent, one_each, one_each).tolist()
    sent = sizes_sent.tolist()

    pieces = edges.new_empty(2, sum(received))
    for end, piece in zip(edges, pieces, strict=True):
        ranks.exchange(end, sent, received, out=piece)
    del edges, end
    # With clusters of one node each, coarsening only sorts and drops duplicates.
    identity = torch.arange(num_clusters, device=cluster.device)
    edges, slot, *_ = torch.ops.gpn.coarsen(pieces, identity, True, values is not None)
    del pieces, piece
    if edge_attr is None or values is None:
        return Coarse(edges, None, representative)
    values = _Exchange.apply(values, ranks, sent, received)
    values = _reduce(values, slot, edges.size(1), "max" if reduce == "max" else "sum")
    if sizes is not None:
        sizes = ranks.exchange(sizes, sent, received)
        size = sizes.new_zeros(edges.size(1)).index_add_(0, slot, sizes)
        values = values / size.view(-1, *[1] * (values.dim() - 1))
    return Coarse(edges, values.to(edge_attr.dtype), representative)


_HASH_TILE = 1 << 20  # entries at a time, so that memory does not grow with the graph


def _hash(ids: Tensor) -> int:
    """A 64-bit hash of int64 ids and their order: the sum of a hash for every (position, id)."""
    total = 0
    for first in range(0, ids.numel(), _HASH_TILE):
        part = ids[first : first + _HASH_TILE]
        place = torch.arange(first, first + part.numel(), device=ids.device)
        word = part * ids.numel() + place
        # The steps of SplitMix64, which map similar pairs to words that look random.
        for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
            without_sign = (word >> shift) & ((1 << (64 - shift)) - 1)
            word = (word ^ without_sign) * factor
        total += int(word.sum())
    return total % 2**64


class _Exchange(torch.autograd.Function):
    """Sends rows to their owners, and gradients back to the senders."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, ranks: "_Ranks", sent: list[int], received: list[int]) -> Tensor:
        ctx.ranks, ctx.sent, ctx.received = ranks, sent, received
        return ranks.exchange(values, sent, received)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.ranks.exchange(grad, ctx.received, ctx.sent), None, None, None


# ------------------------------------------------------------------------------------------------------------
# The group
# ------------------------------------------------------------------------------------------------------------

_FACTS_BYTES = 4096  # what a rank reports about itself, padded with spaces
_MESSAGE_LENGTH = 400  # of an error message; escaped, it still fits


class _Ranks:
    """The processes that take part in one call, and the collectives it needs."""

    def __init__(self, call: str, group: "dist.ProcessGroup | None"):
        self.call, self.group = call, group
        if not dist.is_available():
            self.fail("torch.distributed is not available in this build of torch")
        if not dist.is_initialized():
            self.fail("torch.distributed is not initialised: call torch.distributed.init_process_group first")
        self.rank = dist.get_rank(group)
        if self.rank < 0:
            self.fail("this process is not in the group")
        self.size = dist.get_world_size(group)
        # The configuration looks like 'cpu:gloo,cuda:nccl'.
        self.devices = [part.split(":")[0] for part in dist.get_backend_config(group).split(",")]

    def fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        raise RuntimeError(f"gpn_ops.distributed.{self.call}: {message}") from cause

    def check_device(self, name: str, tensor: Tensor) -> None:
        if tensor.device.type not in self.devices:
            raise RuntimeError(
                f"{name}: expected on a device that the group's backend serves ({', '.join(self.devices)}), "
                f"got {tensor.device}"
            )

    def agree(self, local: Callable[[], tuple[dict[str, Any], Local]]) -> Local:
        """Runs the part that needs no exchange. Returns its result if all ranks succeeded with equal facts;
        otherwise all ranks raise the same error.
        """
        failure: Exception | None = None
        try:
            facts, result = local()
        except Exception as error:
            failure = error
            kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
            text = f"{kind}{error}".partition("\n")[0][:_MESSAGE_LENGTH]
            facts = {"error": text.encode("ascii", "replace").decode()}
        everyone = self.gather({"call": self.call, **facts})
        errors = [f"rank {rank}: {said['error']}" for rank, said in enumerate(everyone) if "error" in said]
        if errors:
            self.fail("; ".join(errors), failure)
        for name in dict.fromkeys(name for said in everyone for name in said):
            values = [said.get(name) for said in everyone]
            for rank, value in enumerate(values):
                if value != values[0]:
                    self.fail(
                        f"{name}: expected the same on all ranks, got {values[0]} on rank 0 "
                        f"and {value} on rank {rank}"
                    )
        return result

    def gather(self, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """The report of every rank, by rank."""
        text = json.dumps(facts).encode().ljust(_FACTS_BYTES)
        device = "cpu"
        if device not in self.devices:
            device = f"{self.devices[0]}:{torch.accelerator.current_device_index()}"
        said = torch.frombuffer(bytearray(text), dtype=torch.uint8).to(device)
        everyone = [torch.empty_like(said) for _ in range(self.size)]
        self._collective(dist.all_gather, everyone, said)
        return [json.loads(bytes(one.tolist())) for one in everyone]

    def maximum_(self, tensor: Tensor) -> None:
        """The elementwise maximum over the ranks, in place."""
        self._collective(dist.all_reduce, tensor, op=dist.ReduceOp.MAX)

    def exchange(
        self, rows: Tensor, sent: list[int], received: list[int], out: Tensor | None = None
    ) -> Tensor:
        """Sends sent[0] rows to rank 0, the next sent[1] to rank 1, ...; returns the received rows in rank
        order."""
        result = rows.new_empty(sum(received), *rows.shape[1:]) if out is None else out
        self._collective(dist.all_to_all_single, result, rows.contiguous(), received, sent)
        return result

    def _collective(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, group=self.group, **options)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            self.fail(f"rank {self.rank} lost contact with another rank of the group: {reason}", error)
