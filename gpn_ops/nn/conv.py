"""Graph convolution on undirected graphs that stores no row of features per edge."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GCNConv
from torch_geometric.nn.dense.linear import Linear

from gpn_ops import ops
from gpn_ops.checks import check_count, check_device, check_floating, check_shape, check_values
from gpn_ops.ops import waits
from gpn_ops.ops.tiles import autocast_off, matmul_dtype, tiles, wide_dtype

from ._inputs import check_features, checked_edges
from .children import is_untouched

# Smaller features are multiplied in one product, which is faster.
IN_PLACE_BYTES = 2**24


class Adjacency:
    r"""The normalised adjacency matrix of an undirected graph, built once for several products.

    .. math::
        \hat{\mathbf{A}} = \mathbf{D}^{-1/2} (\mathbf{A} + \mathbf{I}) \mathbf{D}^{-1/2}

    :obj:`adjacency @ x` is :math:`\hat{\mathbf{A}} \mathbf{x}`. Neither forward nor backward stores a row of
    features per edge: the matrix is symmetric, so the gradient is the same product.

    Args:
        edge_index (torch.Tensor): The edges, :math:`[2, m]`, in any order. Both directions of an edge must be
            present, with the same weight. Edges sorted by row save a sort.
        num_nodes (int): The number of nodes :math:`n`.
        edge_weight (torch.Tensor, optional): A weight per edge, :math:`[m]`, differentiable. If :obj:`None`,
            all are 1. (default: :obj:`None`)
        add_self_loops (bool, optional): Whether to add :math:`\mathbf{I}`. Existing self-loops keep their
            weight. (default: :obj:`True`)
        normalize (bool, optional): Whether to divide rows and columns by the square roots of the nodes'
            degrees. (default: :obj:`True`)
        dtype (torch.dtype, optional): The dtype of the features. Half precision is replaced by float32.
            (default: :obj:`torch.float32`)

    Raises:
        RuntimeError: On the CPU, if an edge lacks its reverse, if the two directions differ in weight, or if
            a node id is out of range. Compiled code and CUDA do not check reverses and weights, because the
            host would have to wait. On CUDA, an id out of range trips a device-side assertion. Also in
            transforms of ``torch.func``, which are not implemented.

    Example:
        >>> import torch
        >>> from gpn_ops.nn import Adjacency
        >>> adjacency = Adjacency(torch.tensor([[0, 1], [1, 0]]), num_nodes=3)
        >>> adjacency @ torch.tensor([[1.0], [3.0], [5.0]])
        tensor([[2.0000],
                [2.0000],
                [5.0000]])
    """

    def __init__(
        self,
        edge_index: Tensor,
        num_nodes: int,
        edge_weight: Tensor | None = None,
        *,
        add_self_loops: bool = True,
        normalize: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "UndirectedGCNConv, Adjacency: transforms of torch.func are not implemented; use GCNConv"
            )
        edge_index = checked_edges(edge_index)
        check_count("num_nodes", num_nodes)
        dtype = wide_dtype(dtype)
        row, col = edge_index.to(torch.int64)
        if edge_weight is None:
            weight = torch.ones(row.numel(), dtype=dtype, device=row.device)
        else:
            check_floating("edge_weight", edge_weight)
            check_shape("edge_weight", edge_weight, ("num_edges", row.numel()))
            check_device("edge_weight", edge_weight, "edge_index", edge_index)
            weight = edge_weight.to(dtype)
        reads = waits.is_host(row.device) and not torch.compiler.is_compiling()
        if reads and row.numel() > 0:
            lowest, highest = map(int, edge_index.aminmax())
            if lowest < 0 or highest >= num_nodes:
                check_values(edge_index, None, num_nodes)  # names the id and its place
            _check_undirected(row, col, edge_weight, num_nodes)
        # Elsewhere the host would have to wait to learn whether they are sorted.
        if not reads or bool((row[1:] < row[:-1]).any()):
            order = row.argsort(stable=True)
            row, col, weight = (each.index_select(0, order) for each in (row, col, weight))

        # Self-loops go into the diagonal. Removing them from the edges would need their number on the host.
        is_loop = row == col
        loops = ops.reduce(weight * is_loop, row, num_nodes)
        weight = weight.masked_fill(is_loop, 0)
        if add_self_loops:
            looped = ops.reduce(is_loop.to(dtype), row, num_nodes) > 0
            loops = torch.where(looped, loops, 1.0)
        if normalize:
            degree = ops.reduce(weight, row, num_nodes) + loops
            scale = degree.rsqrt().masked_fill(degree == 0, 0)
            weight = weight * ops.lift(scale, row) * ops.lift(scale, col)
            loops = loops * scale * scale
        self.num_nodes = num_nodes
        self.weight, self.diagonal = weight, loops.unsqueeze(1)
        self.row = row if weight.requires_grad else None
        start = torch.zeros(num_nodes + 1, dtype=torch.int64, device=row.device)
        torch.cumsum(ops.cluster_sizes(row, num_nodes), 0, out=start[1:])
        self.start, self.col = start, col

    @functools.cached_property
    def edges(self) -> Tensor:
        """The matrix without its diagonal."""
        size = (self.num_nodes, self.num_nodes)
        return torch.sparse_csr_tensor(
            self.start, self.col, self.weight.detach(), size, check_invariants=False
        )

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.times(x)

    def times(self, x: Tensor) -> Tensor:
        """``adjacency @ x`` as a method, because :func:`torch.compile` supports operators on tensors only."""
        self.check(x)
        if torch.compiler.is_compiling():
            return self._compiled(x)
        out: Tensor = _Product.apply(x, self.weight, self.diagonal, self)
        return out

    def check(self, x: Tensor) -> None:
        """Raises a RuntimeError unless ``x`` holds features of the nodes."""
        check_floating("x", x)
        check_shape("x", x, ("num_nodes", self.num_nodes), ("channels", None))
        check_device("x", x, "edge_index", self.weight)

    def _compiled(self, x: Tensor) -> Tensor:
        """The product for compilers, which do not support sparse tensors."""
        wide = x.to(self.weight.dtype)
        if self.row is None:
            out = _Bags.apply(wide, self.weight, self.start, self.col)
        else:
            out = ops.reduce(ops.lift(wide, self.col) * self.weight.unsqueeze(1), self.row, self.num_nodes)
        return (out + self.diagonal * wide).to(x.dtype)

    def product(self, x: Tensor) -> Tensor:
        """The matrix times ``x`` as a new float32 or float64 tensor, without a gradient."""
        x = x.to(self.weight.dtype).contiguous()
        # Given a reduction by name, torch uses its own CPU kernel, several times faster than MKL's.
        out = torch.sparse.mm(self.edges, x, "sum") if waits.is_host(x.device) else self.edges @ x
        return out.addcmul_(self.diagonal, x)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.num_nodes}, num_edges={self.weight.numel()})"


class UndirectedGCNConv(GCNConv):
    r"""PyG's :class:`~torch_geometric.nn.conv.GCNConv` on undirected graphs,

    .. math::
        \mathbf{X}' = \mathbf{D}^{-1/2} (\mathbf{A} + \mathbf{I}) \mathbf{D}^{-1/2} \mathbf{X} \mathbf{W}
        + \mathbf{b},

    in memory :math:`O(nd + m)`. It stores no row of features per edge, and keeps only its input for backward.
    If input and output have the same size, forward needs no memory beside its output.

    For several convolutions on one graph, build the :class:`Adjacency` once and pass it to all of them.

    Args:
        in_channels (int): Size of each node's input features.
        out_channels (int): Size of each node's output features.
        add_self_loops (bool, optional): As in :class:`Adjacency`. (default: the same as :obj:`normalize`)
        normalize (bool, optional): As in :class:`Adjacency`. (default: :obj:`True`)
        bias (bool, optional): If :obj:`False`, there is no bias. (default: :obj:`True`)

    Example:
        >>> import torch
        >>> from gpn_ops.nn import Adjacency, UndirectedGCNConv
        >>> x, edge_index = torch.randn(3, 8), torch.tensor([[0, 1], [1, 0]])
        >>> first, second = UndirectedGCNConv(8, 16), UndirectedGCNConv(16, 4)
        >>> adjacency = Adjacency(edge_index, num_nodes=3)
        >>> second(first(x, adjacency).relu(), adjacency).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, add_self_loops=add_self_loops, normalize=normalize, bias=bias
        )

    def forward(self, x: Tensor, edge_index: Tensor | Adjacency, edge_weight: Tensor | None = None) -> Tensor:
        r"""Forward pass.

        Args:
            x (torch.Tensor): The node features, :math:`[n, d]`.
            edge_index (torch.Tensor or Adjacency): The edges, :math:`[2, m]`, as for :class:`Adjacency`, or
                an :class:`Adjacency`, which then determines weights, self-loops and normalisation.
            edge_weight (torch.Tensor, optional): A weight per edge, :math:`[m]`. (default: :obj:`None`)
        """
        # A lazy layer learns its number of channels from its first input.
        check_features("x", x, self.in_channels if self.in_channels > 0 else None)
        if not isinstance(edge_index, Adjacency):
            edge_index = Adjacency(
                edge_index,
                x.size(0),
                edge_weight,
                add_self_loops=self.add_self_loops,
                normalize=self.normalize,
                dtype=x.dtype,
            )
        elif edge_weight is not None:
            raise ValueError("edge_weight: expected None beside an Adjacency, which has its own weights")
        plain = type(self.lin) is Linear and is_untouched(self.lin) and edge_index.row is None
        if plain and not torch.compiler.is_compiling():
            edge_index.check(x)
            product = matmul_dtype(x, self.lin.weight)
            out: Tensor = _Convolution.apply(x, self.lin.weight, self.bias, edge_index, product)
            return out
        out = edge_index.times(self.lin(x))
        return out if self.bias is None else out + self.bias


def _check_undirected(row: Tensor, col: Tensor, edge_weight: Tensor | None, num_nodes: int) -> None:
    """Compares fingerprints of the edges and of their reverses. A fingerprint is a sum of hashes, because
    edges come in any order. Weights are compared by their sums into and out of each node, since the weights
    of a coarse graph are equal only up to rounding."""

    def fingerprint(a: Tensor, b: Tensor) -> Tensor:
        z = a * -0x40A7B892E31B1A47 + b * -0x6B2FB644ECCEEE15
        z = (z ^ (z >> 29)) * -0x61C8864680B583EB
        return (z ^ (z >> 32)).sum()

    if not torch.equal(fingerprint(row, col), fingerprint(col, row)):
        raise RuntimeError(
            "edge_index: expected an undirected graph, with both directions of every edge, got an edge "
            "without its reverse (torch_geometric.utils.to_undirected adds it)"
        )
    if edge_weight is not None:
        weight = edge_weight.detach().to(torch.float64)
        out, into, largest = (
            ops.reduce(values, node, num_nodes)
            for values, node in ((weight, row), (weight, col), (weight.abs(), row))
        )
        tolerance = max(1e-3, 8 * torch.finfo(edge_weight.dtype).eps)
        if bool(((out - into).abs() > tolerance * largest).any()):
            raise RuntimeError(
                "edge_weight: expected the same weight in both directions of an edge, got weights that differ"
            )


class _Product(torch.autograd.Function):
    """The product of an adjacency matrix and ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, diagonal: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.adjacency = adjacency
        ctx.save_for_backward(*((x, weight) if ctx.needs_input_grad[1] else ()))
        return adjacency.product(x).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        adjacency: Adjacency = ctx.adjacency
        if torch.is_grad_enabled():
            # Backward is itself differentiated: use operations that autograd knows, with a row per edge.
            grad_x = adjacency @ grad if ctx.needs_input_grad[0] else None
            if not ctx.needs_input_grad[1]:
                return grad_x, None, None, None
            x, weight = ctx.saved_tensors
            assert adjacency.row is not None
            wide_grad, wide_x = grad.to(weight.dtype), x.to(weight.dtype)
            ends = ops.lift(wide_grad, adjacency.row), ops.lift(wide_x, adjacency.edges.col_indices())
            grad_diagonal = (wide_grad * wide_x).sum(dim=1, keepdim=True)
            return grad_x, (ends[0] * ends[1]).sum(dim=1), grad_diagonal, None
        grad_x = adjacency.product(grad).to(grad.dtype) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return grad_x, None, None, None
        x, _ = ctx.saved_tensors
        row, col = adjacency.row, adjacency.edges.col_indices()
        assert row is not None
        grad_weight = torch.empty_like(adjacency.weight)
        for tile in tiles(row, 0, x.size(1), 1):
            ends = grad.index_select(0, row[tile]), x.index_select(0, col[tile])
            grad_weight[tile] = torch.linalg.vecdot(*(each.to(grad_weight.dtype) for each in ends))
        grad_diagonal = torch.linalg.vecdot(grad.to(grad_weight.dtype), x.to(grad_weight.dtype)).unsqueeze(1)
        return grad_x, grad_weight, grad_diagonal, None


class _Bags(torch.autograd.Function):
    """The product of a symmetric CSR matrix and ``x``, by an operator that compilers support: row ``i`` is
    the sum of a bag of rows of ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, start: Tensor, col: Tensor) -> Tensor:
        ctx.save_for_backward(weight, start, col)
        return _bags(x, weight, start, col)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _bags(grad, *ctx.saved_tensors), None, None, None


def _bags(x: Tensor, weight: Tensor, start: Tensor, col: Tensor) -> Tensor:
    return functional.embedding_bag(
        col, x, start, mode="sum", per_sample_weights=weight, include_last_offset=True
    )


class _Convolution(torch.autograd.Function):
    """A x W^T + b, keeping only x: with A grad, backward gets the gradient of W without A x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        adjacency: Adjacency,
        product: torch.dtype,
    ) -> Tensor:
        ctx.adjacency, ctx.product = adjacency, product
        ctx.save_for_backward(x, weight)
        ctx.bias_dtype = None if bias is None else bias.dtype
        with autocast_off(x.device):
            if weight.size(0) < weight.size(1):
                out = adjacency.product(x.to(product) @ weight.to(product).t())
            else:
                out = _times(adjacency.product(x), weight.to(product))
            if bias is not None:
                out += bias
            return out.to(product)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled():
            # Backward is differentiated in its turn.
            with autocast_off(x.device):
                back = (ctx.adjacency @ grad).to(ctx.product)
                return (
                    (back @ weight.to(ctx.product)).to(x.dtype) if needs_x else None,
                    (back.t() @ x.to(ctx.product)).to(weight.dtype) if needs_weight else None,
                    grad.sum(dim=0).to(ctx.bias_dtype) if needs_bias else None,
                    None,
                    None,
                )
        grad_bias = grad.sum(dim=0, dtype=wide_dtype(grad.dtype)).to(ctx.bias_dtype) if needs_bias else None
        with autocast_off(x.device):
            back = ctx.adjacency.product(grad)
            del grad
            grad_weight = None
            if needs_weight:
                grad_weight = (back.to(ctx.product).t() @ x.to(ctx.product)).to(weight.dtype)
            grad_x = _times(back, weight.to(ctx.product).t()).to(x.dtype) if needs_x else None
        return grad_x, grad_weight, grad_bias, None, None


def _times(z: Tensor, weight: Tensor) -> Tensor:
    """z W^T; if it is large and has the size of z, in place and one tile of rows at a time."""
    if weight.size(0) != weight.size(1) or z.numel() * z.element_size() <= IN_PLACE_BYTES:
        return (z.to(weight.dtype) @ weight.t()).to(z.dtype)
    for tile in tiles(z, 0, z.size(1), 1):
        z[tile] = z[tile].to(weight.dtype) @ weight.t()
    return z
