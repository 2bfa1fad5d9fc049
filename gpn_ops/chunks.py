"""Parses edges that do not fit in memory."""

from collections.abc import Iterable

import torch
from torch import Tensor

from . import keys
from .checks import check_metadata, check_values, dtype_name

# Nodes are merged in tiles that stay in the cache.
_TILE_BYTES = 4 << 20
# Small chunks are gathered until they have this many edges per node and in total, because every merge visits
# all nodes.
_EDGES_PER_NODE = 2
_LEAST_EDGES = 1 << 16


def parse_chunks(chunks: Iterable[tuple[Tensor, Tensor]], num_nodes: int) -> Tensor:
    r"""Parses a graph whose edges arrive in chunks, such as from a generator, from memory-mapped files or
    from a network.

    The result is bit-equal to :func:`~gpn_ops.parse` on all chunks together. Memory does not depend on the
    number of edges. Beside one chunk and a few MB, it is at most :math:`68n` bytes (:math:`88n` for float64).
    If every chunk has at least :math:`2n` edges, it is at most :math:`28n` (:math:`40n`), because such chunks
    are not copied. Time is linear in the number of edges, however small the chunks are.

    Args:
        chunks (iterable): Pairs of ``edge_index`` and ``scores``, as for :func:`~gpn_ops.parse`, all on one
            device and with one dtype of scores. The order of the chunks is the order of the edges: among
            equal scores, the first edge wins. The memory of a chunk may be reused as soon as the next chunk
            is requested.
        num_nodes (int): The number of nodes :math:`n`.

    Returns:
        torch.Tensor: The cluster of every node, int64 :math:`[n]`, on the device of the chunks.

    Raises:
        RuntimeError: As :func:`~gpn_ops.parse`. The message starts with the number of the chunk, counted from
            0, and gives positions within that chunk. An error in values may be raised only after further
            chunks have been requested.

    Example:
        >>> import torch
        >>> import gpn_ops
        >>> def read():  # a path of 4 nodes
        ...     yield torch.tensor([[0, 1, 1], [1, 0, 2]]), torch.tensor([0.9, 0.9, 0.1])
        ...     yield torch.tensor([[2, 2, 3], [1, 3, 2]]), torch.tensor([0.1, 0.8, 0.8])
        >>> gpn_ops.parse_chunks(read(), num_nodes=4)
        tensor([0, 0, 1, 1])
    """
    num_nodes = keys.count("num_nodes", num_nodes)
    best: _Best | None = None
    number = 0
    for edge_index, scores in chunks:
        try:
            check_metadata(edge_index, scores, num_nodes)
            if best is not None:
                best.check(edge_index, scores)
        except RuntimeError as error:
            raise RuntimeError(f"chunk {number}: {error}") from None
        best = best or _Best(num_nodes, edge_index.device, scores.dtype)
        best.add(number, edge_index, scores.detach())
        number += 1  # noqa: SIM113 (enumerate would hold the chunk while the next one is made)
        del edge_index, scores
    if best is None:
        return torch.arange(num_nodes)
    return best.components()


class _Best:
    """The best edge of every node so far, and the edges yet to be compared with it."""

    def __init__(self, num_nodes: int, device: torch.device, dtype: torch.dtype):
        self.num_nodes, self.device, self.dtype = num_nodes, device, dtype
        code = keys.code_dtype(dtype)
        self.code = torch.full((num_nodes,), keys.no_edge(code), dtype=code, device=device)
        self.choices = keys.self_choices(num_nodes, device)
        self.room = max(_EDGES_PER_NODE * num_nodes, _LEAST_EDGES)
        self.waiting: list[tuple[int, int]] = []  # number of the chunk, where its edges end
        self.waiting_edges: Tensor | None = None
        self.waiting_scores: Tensor | None = None

    def check(self, edge_index: Tensor, scores: Tensor) -> None:
        if scores.dtype != self.dtype:
            raise RuntimeError(
                f"scores: expected {dtype_name(self.dtype)} as in chunk 0, got {dtype_name(scores.dtype)}"
            )
        if edge_index.device != self.device:
            raise RuntimeError(
                f"edge_index: expected on the device of chunk 0 ({self.device}), got {edge_index.device}"
            )

    def add(self, number: int, edge_index: Tensor, scores: Tensor) -> None:
        count = scores.numel()
        end = self.waiting[-1][1] if self.waiting else 0
        if end + count > self.room:
            self.flush()
            end = 0
        if count >= self.room:
            self.merge([(number, count)], edge_index, scores)
            return
        if self.waiting_edges is None or self.waiting_scores is None:
            self.waiting_edges = torch.empty(2, self.room, dtype=torch.int64, device=self.device)
            self.waiting_scores = torch.empty(self.room, dtype=self.dtype, device=self.device)
        self.waiting_edges[:, end : end + count] = edge_index
        self.waiting_scores[end : end + count] = scores
        self.waiting.append((number, end + count))

    def flush(self) -> None:
        if self.waiting and self.waiting_edges is not None and self.waiting_scores is not None:
            end = self.waiting[-1][1]
            self.merge(self.waiting, self.waiting_edges[:, :end], self.waiting_scores[:end])
            self.waiting = []

    def merge(self, chunks: list[tuple[int, int]], edge_index: Tensor, scores: Tensor) -> None:
        """Compares the edges of the given chunks with the best so far."""
        try:
            dominant = torch.ops.gpn.dominant(edge_index, scores, self.num_nodes)
        except RuntimeError:
            begin = 0
            for number, end in chunks:
                try:
                    check_values(edge_index[:, begin:end], scores[begin:end], self.num_nodes)
                except RuntimeError as error:
                    raise RuntimeError(f"chunk {number}: {error}") from None
                begin = end
            raise
        for node in keys.tiles(self.num_nodes, _TILE_BYTES):
            code, column, _ = keys.best_of_part(edge_index, scores, dominant, node)
            # A strict comparison: among equal scores, the earlier chunk has the lower edge ids.
            better = code > self.code[node]
            torch.maximum(code, self.code[node], out=self.code[node])
            torch.where(better, column, self.choices[1, node], out=self.choices[1, node])

    def components(self) -> Tensor:
        self.flush()
        del self.code, self.waiting_edges, self.waiting_scores
        return torch.ops.gpn.components(self.choices, self.num_nodes)
