"""MLPs applied to a tile of rows at a time, forward and backward, by hand.

By hand, because autograd would keep the intermediate results of every tile, and these are what the layers
exist to avoid. A tile is recomputed in backward, dropout included, which is drawn again by its places.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..checks import dtype_name
from .dropout import dropout_, scale_of_kept

# What one buffer of a tile takes on the CPU: large enough that a matrix product is worth its call, small
# enough that the few buffers of a tile stay in the cache and are little beside the features of a graph of
# 10,000 nodes.
TILE_BYTES = 2**19

# What all buffers of a tile take together elsewhere: a launch costs the same for any number of rows, so a
# tile is as large as memory allows.
DEVICE_TILE_BYTES = 2**27


def tile_rows(device: torch.device, channels: int, num_layers: int) -> int:
    """How many rows a tile has: a function of the device and of the shape of the MLP, so forward and backward
    agree on it."""
    row_bytes = 4 * max(channels, 1)
    if device.type == "cpu":
        return max(TILE_BYTES // row_bytes, 16)
    # In backward: the rows themselves, two results of every hidden layer, three gradients.
    return max(DEVICE_TILE_BYTES // (row_bytes * (4 + 2 * num_layers)), 16)


def tiles(rows: Tensor, dim: int, channels: int, num_layers: int) -> Iterator[slice]:
    """The tiles of what ``rows`` counts along ``dim``."""
    yield from cut(rows.size(dim), tile_rows(rows.device, channels, num_layers))


def is_one_tile(rows: Tensor, channels: int, num_layers: int) -> bool:
    """Whether a result of all rows is that of one tile, which then need not be copied."""
    return 0 < rows.size(0) <= tile_rows(rows.device, channels, num_layers)


def cut(num_rows: int, size: int) -> Iterator[slice]:
    """So many rows, in tiles of this size."""
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """What sums and normalisations run in: float32 for half precision."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def product_dtype(x: Tensor) -> torch.dtype:
    """What matrix products of ``x`` run in, here and now: autocast's choice if it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def autocast_off(device: torch.device) -> AbstractContextManager[Any]:
    """Where dtypes are chosen by hand."""
    on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else nullcontext()


def matmul_dtype(x: Tensor, weight: Tensor, name: str = "x") -> torch.dtype:
    """The same of an operator that stands in for modules.

    Raises:
        RuntimeError: if autocast is off and features and parameters differ in dtype.
    """
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise RuntimeError(
            f"{name}: expected the dtype of the parameters, {dtype_name(weight.dtype)}, "
            f"got {dtype_name(x.dtype)}"
        )
    return product_dtype(x)


# ------------------------------------------------------------------------------------------------------------
# Dropout
# ------------------------------------------------------------------------------------------------------------

# Every hidden layer of an MLP draws from a range of places of its own.
PLACES = 2**48


class TileDropout:
    """ReLU and dropout that a tile can repeat: what is dropped follows from the seed, the layer and the
    element's place among all tiles. Without a seed nothing is dropped."""

    def __init__(self, p: float, seed: Tensor | None) -> None:
        self.p, self.seed, self.row = p, seed, 0

    def start(self, row: int) -> None:
        """Of a tile that begins with this row."""
        self.row = row

    def relu_(self, z: Tensor, layer: int) -> Tensor:
        if self.seed is None:
            return z.relu_()
        return dropout_(z, self.seed, self.p, relu=True, first=layer * PLACES + self.row * z.size(1))

    def backward_(self, grad: Tensor) -> Tensor:
        """In place, where what was dropped is known to be masked already."""
        return grad if self.seed is None else grad.mul_(scale_of_kept(self.p))


def draw_seed(x: Tensor, p: float, training: bool) -> Tensor | None:
    """A seed from torch's own generator, on the device of ``x``; ``None`` where nothing is dropped."""
    return torch.randint(2**62, (), device=x.device) if training and p > 0 else None


# ------------------------------------------------------------------------------------------------------------
# Layers
# ------------------------------------------------------------------------------------------------------------

LAYER_NORM_EPS = 1e-5


class Linear:
    """x W^T + b with matrix products in one dtype and everything else in another."""

    def __init__(self, weight: Tensor, bias: Tensor, product: torch.dtype, wide: torch.dtype) -> None:
        self.product, self.wide = product, wide
        self.weight, self.bias = weight.to(product), bias.to(wide)

    def forward(self, z: Tensor) -> Tensor:
        if self.product == self.wide:
            return functional.linear(z, self.weight, self.bias)
        return functional.linear(z.to(self.product), self.weight).to(self.wide).add_(self.bias)

    def start_backward(self) -> list[Tensor]:
        """Begins a sum over tiles; :meth:`backward` adds to the returned gradients."""
        self.grad_weight = torch.zeros_like(self.weight, dtype=self.wide)
        self.grad_bias = torch.zeros_like(self.bias)
        return [self.grad_weight, self.grad_bias]

    def backward(self, grad: Tensor, z: Tensor) -> Tensor:
        self.grad_bias += grad.sum(dim=0)
        if self.product == self.wide:
            self.grad_weight.addmm_(grad.t(), z)
            return grad @ self.weight
        grad = grad.to(self.product)
        self.grad_weight += grad.t() @ z.to(self.product)
        return (grad @ self.weight).to(self.wide)


class Normalised(NamedTuple):
    out: Tensor
    mean: Tensor
    rstd: Tensor


class LayerNorm:
    """Layer normalisation over the channels."""

    def __init__(self, weight: Tensor, bias: Tensor, wide: torch.dtype) -> None:
        self.weight, self.bias = weight.to(wide), bias.to(wide)
        self.shape = list(weight.shape)

    def forward(self, z: Tensor) -> Normalised:
        return Normalised(*torch.native_layer_norm(z, self.shape, self.weight, self.bias, LAYER_NORM_EPS))

    def start_backward(self) -> list[Tensor]:
        self.grad_weight, self.grad_bias = torch.zeros_like(self.weight), torch.zeros_like(self.bias)
        return [self.grad_weight, self.grad_bias]

    def backward(self, grad: Tensor, z: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
        grad_z, grad_weight, grad_bias = torch.ops.aten.native_layer_norm_backward(
            grad, z, self.shape, mean, rstd, self.weight, self.bias, [True, True, True]
        )
        self.grad_weight += grad_weight
        self.grad_bias += grad_bias
        return grad_z


class Hidden:
    """(Linear, optional LayerNorm, ReLU, dropout), any number of times.

    Args:
        parameters: weight and bias, with ``norm`` also those of the LayerNorm, layer after layer.
    """

    def __init__(
        self,
        parameters: list[Tensor],
        norm: bool,
        product: torch.dtype,
        wide: torch.dtype,
        dropout: TileDropout,
    ) -> None:
        step = 4 if norm else 2
        layers = [parameters[k : k + step] for k in range(0, len(parameters), step)]
        self.linears = [Linear(layer[0], layer[1], product, wide) for layer in layers]
        self.norms = [LayerNorm(layer[2], layer[3], wide) if norm else None for layer in layers]
        self.dropout = dropout

    def forward(self, z: Tensor) -> Tensor:
        for layer, (linear, norm) in enumerate(zip(self.linears, self.norms, strict=True)):
            z = linear.forward(z)
            if norm is not None:
                z = norm.forward(z).out
            z = self.dropout.relu_(z, layer)
        return z

    def start_backward(self) -> list[Tensor]:
        grads = []
        for linear, norm in zip(self.linears, self.norms, strict=True):
            grads += linear.start_backward()
            if norm is not None:
                grads += norm.start_backward()
        return grads

    def forward_saving(self, z: Tensor) -> Tensor:
        """As :meth:`forward`, keeping what :meth:`backward` takes."""
        self.saved: list[tuple[Tensor, Tensor, Normalised | None]] = []
        for layer, (linear, norm) in enumerate(zip(self.linears, self.norms, strict=True)):
            a = linear.forward(z)
            normalised = norm.forward(a) if norm is not None else None
            out = self.dropout.relu_(a if normalised is None else normalised.out, layer)
            self.saved.append((z, a, normalised))
            z = out
        self.out = z
        return z

    def backward(self, grad: Tensor) -> Tensor:
        """The gradient of the input; ``grad`` is overwritten."""
        out = self.out
        del self.out
        for linear, norm in zip(reversed(self.linears), reversed(self.norms), strict=True):
            z, a, normalised = self.saved.pop()
            # Also masks what dropout set to zero.
            torch.ops.aten.threshold_backward.grad_input(grad, out, 0, grad_input=grad)
            grad = self.dropout.backward_(grad)
            if norm is not None and normalised is not None:
                grad = norm.backward(grad, a, normalised.mean, normalised.rstd)
            del a, normalised
            grad = linear.backward(grad, z)
            out = z
        return grad


class Residual:
    """LayerNorm(z + MLP(z)), the MLP being Linear (ReLU, dropout, Linear)*.

    Args:
        parameters: weight and bias of every Linear, then those of the LayerNorm.
    """

    def __init__(
        self, parameters: list[Tensor], product: torch.dtype, wide: torch.dtype, dropout: TileDropout
    ) -> None:
        self.wide = wide
        self.dropout = dropout
        self.hidden = Hidden(parameters[:-4], False, product, wide, dropout)
        self.linear = Linear(parameters[-4], parameters[-3], product, wide)
        self.norm = LayerNorm(parameters[-2], parameters[-1], wide)

    def forward(self, x: Tensor, row: int) -> Tensor:
        self.dropout.start(row)
        x = x.to(self.wide)
        out = self.linear.forward(self.hidden.forward(x)).add_(x)
        return self.norm.forward(out).out

    def start_backward(self) -> list[Tensor]:
        return [
            *self.hidden.start_backward(),
            *self.linear.start_backward(),
            *self.norm.start_backward(),
        ]

    def backward(self, grad: Tensor, x: Tensor, row: int, out: Tensor) -> None:
        """The gradient of the input rows ``x``, which are recomputed, into ``out``."""
        self.dropout.start(row)
        x = x.to(self.wide)
        z = self.hidden.forward_saving(x)
        total = self.linear.forward(z).add_(x)
        _, mean, rstd = self.norm.forward(total)
        grad_total = self.norm.backward(grad, total, mean, rstd)
        del total
        torch.add(self.hidden.backward(self.linear.backward(grad_total, z)), grad_total, out=out)


def like_parameters(grads: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    return [grad.to(parameter.dtype) for grad, parameter in zip(grads, parameters, strict=True)]


def product_flops(num_rows: int, parameters: list[torch.Size]) -> int:
    """What FlopCounterMode is to count for an MLP: its matrix products, as torch counts them, from the shapes
    of its parameters."""
    return 2 * num_rows * sum(shape.numel() for shape in parameters if len(shape) == 2)
