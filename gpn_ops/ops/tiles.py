"""MLPs applied to one tile of rows at a time, with a hand-written backward.

Autograd would keep the intermediate results of every tile, which the layers exist to avoid. Instead, backward
computes each tile again, including dropout, which is drawn again from the positions of elements.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..checks import dtype_name
from .dropout import dropout_, scale_of_kept

# The size of one buffer of a tile on the CPU: large enough that a matrix product is worth its call, small
# enough that the few buffers of a tile stay in the cache and are little beside the features of a graph of
# 10,000 nodes.
TILE_BYTES = 2**19

# The size of all buffers of a tile together on a GPU: a launch costs the same for any number of rows, so
# tiles are as large as memory allows.
DEVICE_TILE_BYTES = 2**27


def tile_rows(device: torch.device, channels: int, num_layers: int) -> int:
    """The number of rows of a tile. It depends on the device and the shape of the MLP only, so that forward
    and backward agree."""
    row_bytes = 4 * max(channels, 1)
    if device.type == "cpu":
        return max(TILE_BYTES // row_bytes, 16)
    # In backward: the rows themselves, two results of each hidden layer, and three gradients.
    return max(DEVICE_TILE_BYTES // (row_bytes * (4 + 2 * num_layers)), 16)


def tiles(rows: Tensor, dim: int, channels: int, num_layers: int) -> Iterator[slice]:
    """The tiles of the rows of a tensor along ``dim``."""
    yield from cut(rows.size(dim), tile_rows(rows.device, channels, num_layers))


def cut(num_rows: int, size: int) -> Iterator[slice]:
    """A number of rows, in tiles of this size."""
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums and normalisations: float32 for half precision."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which matrix products of ``x`` run at this point: that of autocast if it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def autocast_off(device: torch.device) -> AbstractContextManager[Any]:
    """Disables autocast where dtypes are chosen explicitly."""
    on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else nullcontext()


def matmul_dtype(x: Tensor, weight: Tensor, name: str = "x") -> torch.dtype:
    """The dtype of matrix products in an operator that replaces modules.

    Raises:
        RuntimeError: If autocast is off and features and parameters differ in dtype.
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

# Every hidden layer of an MLP draws from its own range of positions.
PLACES = 2**48


class TileDropout:
    """ReLU and repeatable dropout: the seed, the layer and the position of an element among all tiles decide
    whether it is dropped. Without a seed, nothing is dropped."""

    def __init__(self, p: float, seed: Tensor | None) -> None:
        self.p, self.seed, self.row = p, seed, 0

    def start(self, row: int) -> None:
        """Starts a tile that begins with this row."""
        self.row = row

    def relu_(self, z: Tensor, layer: int) -> Tensor:
        if self.seed is None:
            return z.relu_()
        return dropout_(z, self.seed, self.p, relu=True, first=layer * PLACES + self.row * z.size(1))

    def backward_(self, grad: Tensor) -> Tensor:
        """In place; dropped elements must already be masked."""
        return grad if self.seed is None else grad.mul_(scale_of_kept(self.p))


def draw_seed(x: Tensor, p: float, training: bool) -> Tensor | None:
    """A seed from torch's generator, on the device of ``x``; ``None`` if nothing is dropped."""
    return torch.randint(2**62, (), device=x.device) if training and p > 0 else None


# ------------------------------------------------------------------------------------------------------------
# Layers
# ------------------------------------------------------------------------------------------------------------

LAYER_NORM_EPS = 1e-5


class Linear:
    """x W^T + b, with one dtype for matrix products and another for everything else."""

    def __init__(self, weight: Tensor, bias: Tensor, product: torch.dtype, wide: torch.dtype) -> None:
        self.product, self.wide = product, wide
        self.weight, self.bias = weight.to(product), bias.to(wide)

    def forward(self, z: Tensor) -> Tensor:
        if self.product == self.wide:
            return functional.linear(z, self.weight, self.bias)
        return functional.linear(z.to(self.product), self.weight).to(self.wide).add_(self.bias)

    def start_backward(self) -> list[Tensor]:
        """Starts a sum over tiles; :meth:`backward` adds to the returned gradients."""
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
    """(Linear, optional LayerNorm, ReLU, dropout)*.

    Args:
        parameters: for each layer weight and bias, and with ``norm`` those of its LayerNorm.
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
        """As :meth:`forward`, keeping what :meth:`backward` needs."""
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
            # Also masks the elements that dropout set to zero.
            torch.ops.aten.threshold_backward.grad_input(grad, out, 0, grad_input=grad)
            grad = self.dropout.backward_(grad)
            if norm is not None and normalised is not None:
                grad = norm.backward(grad, a, normalised.mean, normalised.rstd)
            del a, normalised
            grad = linear.backward(grad, z)
            out = z
        return grad


class ResidualState(NamedTuple):
    """The results of :class:`Residual` for a tile."""

    inputs: list[Tensor]  # of every Linear
    total: Tensor  # the input of the LayerNorm
    norm: Normalised


class Residual:
    """LayerNorm(z + MLP(z)), where the MLP is Linear (ReLU, dropout, Linear)*.

    Args:
        parameters: weight and bias of every Linear, then those of the LayerNorm.
    """

    def __init__(
        self, parameters: list[Tensor], product: torch.dtype, wide: torch.dtype, dropout: TileDropout
    ) -> None:
        self.wide = wide
        self.dropout = dropout
        *linears, norm = zip(parameters[::2], parameters[1::2], strict=True)
        self.linears = [Linear(*linear, product, wide) for linear in linears]
        self.norm = LayerNorm(*norm, wide)

    def forward(self, x: Tensor, row: int) -> ResidualState:
        """Applies the layer to a tile whose first row has this index."""
        self.dropout.start(row)
        inputs = [x.to(self.wide)]
        for layer, linear in enumerate(self.linears[:-1]):
            inputs.append(self.dropout.relu_(linear.forward(inputs[-1]), layer))
        total = self.linears[-1].forward(inputs[-1]).add_(inputs[0])
        return ResidualState(inputs, total, self.norm.forward(total))

    def start_backward(self) -> list[Tensor]:
        layers: list[Linear | LayerNorm] = [*self.linears, self.norm]
        return [grad for layer in layers for grad in layer.start_backward()]

    def backward(self, grad: Tensor, state: ResidualState, out: Tensor) -> None:
        """Writes the gradient of the rows to ``out``."""
        grad_total = self.norm.backward(grad, state.total, state.norm.mean, state.norm.rstd)
        grad = self.linears[-1].backward(grad_total, state.inputs[-1])
        for linear, z, result in zip(
            self.linears[-2::-1], state.inputs[-2::-1], state.inputs[:0:-1], strict=True
        ):
            # Also masks the elements that dropout set to zero.
            grad = torch.ops.aten.threshold_backward(grad, result, 0)
            grad = linear.backward(self.dropout.backward_(grad), z)
        torch.add(grad, grad_total, out=out)


def like_parameters(grads: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    return [grad.to(parameter.dtype) for grad, parameter in zip(grads, parameters, strict=True)]


def product_flops(num_rows: int, parameters: list[torch.Size]) -> int:
    """The FLOPs of an MLP for FlopCounterMode: those of its matrix products, as torch counts them, from the
    shapes of its parameters."""
    return 2 * num_rows * sum(shape.numel() for shape in parameters if len(shape) == 2)
