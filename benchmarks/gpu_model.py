"""Models the cost of pooling on a GPU: launches, host waits, bytes, operations, milliseconds.

    python benchmarks/gpu_model.py                    # all of it, into results/gpu_model.json
    python benchmarks/gpu_model.py --method ParsePooling TopK --workload a --form layer   # update these rows
    python benchmarks/gpu_model.py --method ParsePooling --also operators memory          # and these tables
    python benchmarks/gpu_model.py --table            # the saved result, in Markdown
    python benchmarks/gpu_model.py --page             # the same, into docs/cuda.md

This needs no GPU. A module runs on the CPU, forward and backward. Every operator is recorded
(:class:`Tally`) and counted as CUDA would run it:

- Ours: launches, waits and bytes are those of their CUDA kernels on the emulated device
  (``benchmarks/emulated.py``), including CUB's kernels and memsets. Each word that a thread accesses counts
  as an operation.
- PyTorch's: launches and waits come from :data:`RULES`, which also name the source file in PyTorch and say
  whether it was read for this. **Nobody has measured them.** Bytes are those of the tensors read and written,
  each element once. Operations are those of torch's FlopCounterMode for products, else one per element. An
  operator without a rule is an error.

The time is the larger of the host's (:data:`LAUNCH`, :data:`WAIT`) and the device's: the sum over kernels of
the larger of bytes and operations over what the card (:data:`CARDS`) reaches.

Some figures are extrapolated from smaller runs:

- The kernels of our operators run on 8 and 16 of the 128 channels; bytes and operations are extrapolated
  linearly, which ``tests/test_gpu_model.py`` checks. The kernels of MLPs (:data:`PRODUCTS`) also run on 24
  channels and are extrapolated along a parabola; the operations of their matrix products are added to the
  words that their threads access. Calls of the same operator with arguments of the same shapes, as for the
  tiles of an MLP, are counted once.
- Workload b runs with one of the ten graphs, c with 1/8 of the nodes and edges. Tiles shrink alike, so
  there are as many as at full size, and so does the limit on what is kept for backward. Figures of tensors
  with rows are multiplied, those of tensors the size of a parameter are not. Launches and waits of our
  operators are those of the smaller run, whose tiles are still too large for CUB to sort in one block. At
  full size, ids have up to 3 more bits each, so coarsening and pairing may sort in one more pass of two
  launches. In b, each sort over all nodes takes CUB's long path, with some 7 more launches.
"""

import argparse
import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import common
import emulation
import torch
from gpu_cases import (
    CAPTURED,
    CARDS,
    CHANNELS,
    FORMS,
    LOADS,
    METHODS,
    Kernel,
    Load,
    called,
    module,
    padded,
    points,
    results_of,
)
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import flop_registry
from tqdm import tqdm

from gpn_ops.nn import children
from gpn_ops.ops import tiles, waits

LAUNCH, WAIT = 5e-6, 15e-6  # seconds of the host


# ------------------------------------------------------------------------------------------------------------
# What PyTorch's operators launch
# ------------------------------------------------------------------------------------------------------------

# Of the arguments, the results, and how many times larger the workload meant is.
Amount = int | Callable[[Sequence[Any], Sequence[Tensor], int], int]


class Rule(NamedTuple):
    launches: Amount
    source: str  # below aten/src/ATen/native
    waits: Amount = 0
    traffic: str = "all"  # one of Tally.traffic
    read: bool = False  # whether the file was read for this; else it is where the operator is known to be


def sort_launches(items: int, key_bytes: int, value_bytes: int = 8) -> int:
    """CUB's radix sort of all bits (tests/cpp/emulation/cub/launches.h)."""
    if items <= 256 * max(19 * 4 // max(key_bytes, value_bytes), 1):
        return 1
    return 4 + 2 * key_bytes


def sort(args: Sequence[Any], _: Sequence[Tensor], scale: int) -> int:
    """Short rows: positions, their copy, a copy of the values, one kernel. Long ones: positions, CUB."""
    values = next(arg for arg in args if isinstance(arg, Tensor))
    if values.numel() == 0:
        return 0
    if scale * values.size(-1) <= 4096:
        return 4
    return 1 + sort_launches(scale * values.numel(), values.element_size())


def masks(args: Sequence[Any]) -> list[Tensor]:
    return [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]


def nonzero(args: Sequence[Any], _: Sequence[Tensor], scale: int) -> int:
    """A sum (2), its copy, a selection (2), the coordinates."""
    return 5 + (args[0].dim() > 1)


def index(args: Sequence[Any], _: Sequence[Tensor], scale: int) -> int:
    return 1 + sum(nonzero([mask], [], scale) for mask in masks(args))


def index_waits(args: Sequence[Any], _: Sequence[Tensor], scale: int) -> int:
    return len(masks(args))


def index_put_(args: Sequence[Any], out: Sequence[Tensor], scale: int) -> int:
    """Adding: the linear index (wrap, scale), positions, a sort of 8-byte keys, one kernel."""
    accumulates = len(args) > 3 and args[3]
    if not accumulates:
        return index(args, out, scale)
    return index(args, out, scale) - 1 + 3 + 1 + sort_launches(scale * args[2].numel(), 8) + 1


def index_put(args: Sequence[Any], out: Sequence[Tensor], scale: int) -> int:
    return 1 + index_put_(args, out, scale)


def reduction(args: Sequence[Any], out: Sequence[Tensor], scale: int) -> int:
    """One kernel; where blocks share an output, a memset of their semaphores before it."""
    values = next(arg for arg in args if isinstance(arg, Tensor))
    return 1 + (scale * values.numel() >= 2**14 * max(out[0].numel(), 1))


def unique(args: Sequence[Any], _: Sequence[Tensor], scale: int) -> int:
    """Consecutive: flags, their sum (2), the selection (2), its size."""
    return 6


def norm_backward(args: Sequence[Any], _: Sequence[Tensor], scale: int) -> int:
    """The gradient of rows; those of weight and bias, for many rows in parts, which two sums add up."""
    return 2 if scale * args[0].numel() // args[0].size(-1) <= 2**16 else 4


def rules(
    names: str, launches: Amount, source: str, waits: Amount = 0, traffic: str = "all", read: bool = False
) -> dict[str, Rule]:
    return {name: Rule(launches, source, waits, traffic, read) for name in names.split()}


# By name without overload. What is not below cuda/ decides on all devices alike.
RULES: dict[str, Rule] = {
    **rules(
        "empty new_empty empty_like empty_strided new_empty_strided _unsafe_view lift_fresh set_ resize_ "
        "_sparse_coo_tensor_with_dims_and_tensors _sparse_coo_tensor_unsafe sparse_compressed_tensor "
        "_sparse_compressed_tensor_unsafe crow_indices col_indices values",
        0,
        "TensorFactories.cpp, sparse/SparseTensor.cpp, sparse/SparseCsrTensor.cpp",
        traffic="none",
    ),
    **rules(
        "zeros ones full new_zeros new_ones new_full zeros_like ones_like full_like zero_ fill_ "
        "scalar_tensor",
        1,
        "cuda/FillKernel.cu",
        traffic="written",
    ),
    **rules("arange eye", 1, "cuda/RangeFactories.cu, cuda/TensorFactories.cu", traffic="written"),
    **rules("bernoulli_ random_ randint rand", 1, "cuda/DistributionTemplates.h", traffic="written"),
    **rules("native_dropout", 1, "cuda/Dropout.cu"),
    **rules("native_dropout_backward", 1, "cuda/Dropout.cu"),
    **rules(
        "add add_ sub sub_ rsub mul mul_ div div_ neg exp log sqrt rsqrt pow pow_ reciprocal tanh sigmoid "
        "relu relu_ leaky_relu clamp clamp_min clamp_ ceil eq ne lt le gt ge bitwise_and bitwise_and_ "
        "bitwise_or bitwise_not logical_not logical_and where maximum minimum sigmoid_backward tanh_backward "
        "leaky_relu_backward threshold_backward addcmul addcmul_ addcdiv abs sign floor_divide remainder "
        "masked_fill_",
        1,
        "cuda/Loops.cuh (one kernel for a TensorIterator)",
    ),
    **rules("masked_fill", 2, "TensorAdvancedIndexing.cpp (a copy, then masked_fill_)"),
    **rules("copy_", 1, "cuda/Copy.cu", traffic="copy"),
    **rules("clone _to_copy contiguous repeat", 1, "cuda/Copy.cu"),
    **rules("cat stack", 1, "cuda/Shape.cu"),
    **rules(
        "sum mean max min amax amin all any argmax linalg_vector_norm prod",
        reduction,
        "cuda/Reduce.cuh",
        read=True,
    ),
    **rules("aminmax", reduction, "cuda/ReduceMinMaxKernel.cu"),
    **rules("cumsum", 2, "cuda/ScanUtils.cuh (CUB: initialise, scan)"),
    **rules("_softmax _safe_softmax _softmax_backward_data", 1, "cuda/SoftMax.cu"),
    **rules("native_layer_norm", 1, "cuda/layer_norm_kernel.cu"),
    **rules("native_layer_norm_backward", norm_backward, "cuda/layer_norm_kernel.cu", 0, "norm", read=True),
    **rules("mm bmm addmm_ baddbmm addmv_", 1, "cuda/Blas.cpp"),
    **rules("addmm", 1, "cuda/Blas.cpp (the bias is added by cuBLASLt)"),
    **rules("addmv", 2, "cuda/Blas.cpp (the bias is copied first)"),
    **rules("sparse_mm", 2, "sparse/cuda/SparseBlasImpl.cpp (cuSPARSE)"),
    **rules("index_select gather", 1, "cuda/Indexing.cu, cuda/ScatterGatherKernel.cu", traffic="rows"),
    **rules("index", index, "cuda/IndexKernel.cu, cuda/Nonzero.cu", index_waits, "rows"),
    **rules("index_put_", index_put_, "cuda/Indexing.cu, cuda/Nonzero.cu", index_waits, "adds", read=True),
    **rules(
        "index_put", index_put, "TensorAdvancedIndexing.cpp (a copy, then index_put_)", index_waits, "copies"
    ),
    **rules(
        "index_add_ scatter_add_ scatter_ scatter_reduce_ index_copy_",
        1,
        "cuda/ScatterGatherKernel.cu, cuda/Indexing.cu",
        traffic="adds",
    ),
    **rules(
        "index_add scatter_add scatter scatter_reduce index_copy",
        2,
        "TensorAdvancedIndexing.cpp (a copy first)",
        traffic="copies",
    ),
    **rules("index_fill", 2, "TensorAdvancedIndexing.cpp (a copy, then index_fill_)", traffic="copies"),
    **rules(
        "select_backward slice_backward diagonal_backward",
        2,
        "TensorShape.cpp, BatchLinearAlgebra.cpp (zeros, then a copy)",
    ),
    **rules("nonzero", nonzero, "cuda/Nonzero.cu", 1, read=True),
    **rules("nonzero_static", 4, "cuda/Nonzero.cu", read=True),
    **rules("_local_scalar_dense to_host", 1, "cuda/CUDAScalar.cu", 1, read=True),
    **rules("bincount", 6, "cuda/SummaryOps.cu (least, largest, both copied; zeros; counts)", 2, read=True),
    **rules("unique_consecutive", unique, "cuda/UniqueCub.cu", 1, read=True),
    **rules("sort argsort", sort, "cuda/Sort.cpp", 0, "sort", read=True),
    **rules("repeat_interleave", 4, "cuda/Repeat.cu (a sum of the counts is read back)", 1, read=True),
    **rules("_convert_indices_from_coo_to_csr", 1, "sparse/cuda/SparseCsrTensorMath.cu"),
    **rules("_to_sparse_csr", 6, "TensorConversions.cpp (sorts by coordinates unless they are coalesced)", 1),
    **rules("_assert_async", 1, "cuda/TensorCompare.cu"),
    **rules(
        "_scaled_dot_product_flash_attention_for_cpu", 1, "transformers/cuda/attention.cu (one fused kernel)"
    ),
    **rules(
        "_scaled_dot_product_flash_attention_for_cpu_backward", 3, "transformers/cuda/attention_backward.cu"
    ),
}

# ------------------------------------------------------------------------------------------------------------
# Running a module as CUDA would
# ------------------------------------------------------------------------------------------------------------


def tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, tuple | list):
        return [tensor for value in values for tensor in tensors(value)]
    return []


@functools.cache
def results_of_schema(func: Any) -> frozenset[str]:
    """The names of the arguments that are only written."""
    return frozenset(argument.name for argument in func._schema.arguments if argument.is_out)


def elements(tensor: Tensor) -> int:
    """The elements in memory: expanded ones count once."""
    if tensor.layout is not torch.strided:
        return tensor._nnz()
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride != 0 or size == 0 else 1
    return count


class Tally(emulation.Recorder):
    """Records the operators of PyTorch and ours; :meth:`kernels` counts them.

    Args:
        scale: How many times larger the modelled workload is than the one that runs.
    """

    def __init__(self, scale: int = 1) -> None:
        super().__init__()
        self.scale = scale
        self.noted: list[Kernel | int] = []  # an operator of PyTorch, or the number of a call of ours
        self.host: dict[int, Tensor] = {}  # by storage, which no other may take over
        self.held: dict[int, tuple[StorageWeakRef, int]] = {}  # what was made, and its bytes
        self.held_before: dict[int, int] = {}  # by the number of a call of ours
        self.most_held = 0

    def __enter__(self) -> Any:
        super().__enter__()
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "gpn":
            before = len(self.calls)
            self.held_before[before] = self.bytes_held()
            result = super().__torch_dispatch__(func, types, args, kwargs)
            if self.is_one(func._schema.name):
                self.noted.append(before)
                self.hold(tensors(result))
            return result
        if func._can_decompose():
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        read = [*args, *(kwargs[name] for name in kwargs.keys() - results_of_schema(func))]
        result = func(*args, **kwargs)
        if not func.is_view and func not in (torch.ops.aten.detach.default,):
            self.note(func, read, tensors(result))
            self.hold(tensors(result))
        return result

    def hold(self, made: list[Tensor]) -> None:
        for tensor in made:
            if tensor.layout is torch.strided and not self.on_host([tensor]):
                held = StorageWeakRef(tensor.untyped_storage())
                if held.cdata not in self.held:
                    self.held[held.cdata] = held, self.times(tensor) * tensor.untyped_storage().nbytes()
        self.most_held = max(self.most_held, self.bytes_held())

    def bytes_held(self) -> int:
        """The bytes that modules hold beside their inputs and parameters."""
        self.held = {key: (held, size) for key, (held, size) in self.held.items() if not held.expired()}
        return sum(size for _, size in self.held.values())

    def on_host(self, values: list[Tensor]) -> bool:
        strided = [value for value in values if value.layout is torch.strided]
        return bool(strided) and all(v.untyped_storage().data_ptr() in self.host for v in strided)

    def to_host(self, tensor: Tensor) -> Tensor:
        """A copy by ``Tensor.cpu``, for which the host waits."""
        return self.keep_on_host(tensor.detach().clone())

    def keep_on_host(self, tensor: Tensor) -> Tensor:
        self.host[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def note(self, func: Any, args: Sequence[Any], results: list[Tensor]) -> None:
        name = func._schema.name.split("::")[1]
        given = tensors(args)
        if given and self.on_host(given):
            return
        if any(tensor.layout is not torch.strided for tensor in given) and name in ("mm", "addmm"):
            name = "sparse_mm"
        rule = RULES.get(name)
        if rule is None:
            raise NotImplementedError(f"{func}: RULES of benchmarks/gpu_model.py has no {name}")
        launches, waits = (
            amount(args, results, self.scale) if callable(amount) else amount
            for amount in (rule.launches, rule.waits)
        )
        if not any(result.numel() for result in results) and rule.waits == 0 and name != "_assert_async":
            launches = 0
        if name == "copy_" and results[0].dim() == 0:
            launches *= self.scale  # a loop in Python over the edges, as EdgePool has it
        self.noted.append(
            Kernel(
                name,
                launches,
                waits,
                self.traffic(rule, given, results),
                self.operations(func, name, args, given, results),
            )
        )

    def times(self, tensor: Tensor) -> int:
        """The factor for a tensor. Parameters do not grow with the workload."""
        return 1 if all(size in (1, CHANNELS) for size in tensor.shape) else self.scale

    def size(self, values: Sequence[Tensor]) -> float:
        return sum(
            self.times(t) * elements(t) * (t.element_size() if t.layout is torch.strided else 12)
            for t in values
        )

    def traffic(self, rule: Rule, given: list[Tensor], results: list[Tensor]) -> float:
        all_of_it = self.size(given) + self.size(results)
        if rule.traffic == "all":  # arguments and results
            return all_of_it
        if rule.traffic == "none":
            return 0
        if rule.traffic == "copy":  # into the first tensor, which nobody reads
            return self.size(given[1:]) + self.size(results)
        if rule.traffic == "written":
            return self.size(results)
        if rule.traffic == "rows":  # of the first tensor, those that come out
            return self.size(given[1:]) + 2 * self.size(results)
        added = 2 * self.size(given[-1:])  # where a row is added to, it is read and written
        if rule.traffic == "adds":  # to rows of the first tensor
            return self.size(given[1:]) + added
        if rule.traffic == "copies":  # the first tensor, and adds to that
            return all_of_it + added
        if rule.traffic == "sort":  # eight bits a pass, with positions of 8 bytes
            keys = given[0]
            return 2 * keys.element_size() * (keys.element_size() + 8) * self.times(keys) * keys.numel()
        if rule.traffic == "norm":  # the gradients of rows and of parameters, a kernel each
            return all_of_it + self.size(given[:2])
        raise ValueError(f"traffic: expected a known one, got {rule.traffic!r}")

    def operations(
        self, func: Any, name: str, args: Sequence[Any], given: list[Tensor], results: list[Tensor]
    ) -> float:
        scale = self.scale
        if name == "sparse_mm":
            sparse = next(tensor for tensor in given if tensor.layout is not torch.strided)
            return 2 * scale * sparse._nnz() * results[0].size(-1)
        if name in ("addmm_", "addmm", "mm", "bmm", "baddbmm", "addmv", "addmv_"):
            left, right = given[-2:] if name not in ("addmv",) else given[1:3]
            return 2 * scale * left.numel() * (right.size(-1) if right.dim() > 1 else 1)
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            return scale * formula(*args, out_val=tuple(results))
        return max(
            (self.times(t) * t.numel() for t in (*given, *results) if t.layout is torch.strided), default=0
        )


FACTORIES = (
    torch.ones,
    torch.zeros,
    torch.full,
    torch.empty,
    torch.arange,
    torch.tensor,
    torch.randint,
    torch.rand,
)


class HostFactories(TorchFunctionMode):
    """Tensors made without a device, or on "cpu" by name, stay on the host."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in FACTORIES or isinstance(kwargs.get("device"), torch.device):
            return func(*args, **kwargs)
        before = len(self.tally.noted)
        made = func(*args, **kwargs)
        del self.tally.noted[before:]
        return self.tally.keep_on_host(made)


FEW = 8  # channels: a sector of float32

# Kernels of MLPs, whose work grows with the square of the channels, and how often each multiplies every row
# by the weights of all hidden layers. The edge scorer's backward does so anew for each of the two ends of a
# pair, and then needs the gradient of the row, for each end too, and of the weights, once (fewer where a node
# has many pairs: see `saved_operations`); that of DeepSets does each of the three once.
PRODUCTS = {
    "pack_layer": 0,
    "score_pairs": 1,
    "gather_gradients": 5,
    "residual_rows": 1,
    "residual_gradients": 3,
    "add_partials": 0,
}

# Of csrc/cuda: how many pairs a block takes as a chunk, and of these at once, with 128 channels in one hidden
# layer; how many pairs the nodes of a chunk must have to be taken by nodes.
CHUNK, ROWS, PAIRS_OF_NODE = 256, 32, 4


def narrowed(call: emulation.Call, channels: int) -> emulation.Call:
    """The same call on the first channels only."""

    def cut(value: Any) -> Any:
        if isinstance(value, list):  # parameters
            return [
                t[tuple(slice(channels if n == CHANNELS else n) for n in t.shape)].contiguous() for t in value
            ]
        wide = isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0
        if (
            not wide
            or value.size(-1) != CHANNELS
            or (value.dim() == 1 and not call.operator.startswith("pair_dot"))
        ):
            return value
        return value[..., :channels].contiguous()

    arguments = {name: cut(value) for name, value in call.arguments.items()}
    with emulation.Recorder() as calls:
        getattr(torch.ops.gpn, call.operator)(*arguments.values())
    return calls[0]


def shapes(call: emulation.Call) -> str:
    return json.dumps(
        [call.operator, {k: emulation.described(v) for k, v in call.arguments.items()}], default=str
    )


def product_operations(call: emulation.Call) -> float:
    """The operations of all hidden layers, for one pass over the rows, which may be pairs."""
    hidden = [weight for weight in call.arguments.get("parameters", [])[:-2] if weight.dim() == 2]
    if not hidden:
        return 0
    rows = call.arguments["pairs"].size(1) if "pairs" in call.arguments else call.arguments["x"].size(0)
    return 2 * sum(weight.numel() for weight in hidden) * rows


def saved_operations(call: emulation.Call) -> float:
    """The operations that `gather_gradients` saves in the first hidden layer: for pairs grouped by first
    node, one product of two, minus two at each end of a node or of a block's rows."""
    saved = 0
    for chunk in call.arguments["pairs"][0].sort().values.split(CHUNK):
        if (chunk[-1] - chunk[0] + 1) * PAIRS_OF_NODE <= len(chunk):
            parts = sum(rows.unique_consecutive().numel() for rows in chunk.split(ROWS))
            saved += len(chunk) - 2 * parts
    return 2 * call.arguments["parameters"][0].numel() * saved


def carried_on(amounts: Sequence[float]) -> float:
    """Extrapolates to all channels from counts on FEW, twice and, if given, three times as many."""
    steps = CHANNELS / FEW - 1
    first, second = amounts[0], amounts[1] - amounts[0]
    bend = amounts[2] - 2 * amounts[1] + amounts[0] if len(amounts) > 2 else 0
    return first + steps * second + steps * (steps - 1) / 2 * bend


def count_ours(calls: Sequence[emulation.Call], scale: int = 1) -> list[list[Kernel]]:
    """The kernels of each call, for all channels."""
    first = {shapes(call): call for call in reversed(calls)}
    by_width = [emulation.count(narrowed(call, k * FEW) for call in first.values()) for k in (1, 2)]
    bent = [key for key, call in first.items() if product_operations(call)]
    widest = dict(zip(bent, emulation.count(narrowed(first[key], 3 * FEW) for key in bent), strict=True))
    counted = {}
    for key, low, high in zip(first, *by_width, strict=True):
        listed = [Kernel("wait", 0, low["waits"], 0, 0)] if low["waits"] else []
        runs = [low, high, *([widest[key]] if key in widest else [])]
        for kernels in zip(*(run["kernels"] for run in runs), strict=True):
            if len({(kernel["name"], kernel["launches"]) for kernel in kernels}) > 1:
                raise AssertionError(f"{key}: other kernels for other numbers of channels")
            name = kernels[0]["name"]
            kernel_name = name.split("<")[0]
            times = PRODUCTS.get(kernel_name)
            used = kernels if times is not None else kernels[:2]
            larger = 1 if times == 0 else scale  # those without products go over parameters only

            def carried(amount: str, used: Any = used, larger: int = larger) -> float:
                return larger * carried_on([kernel[amount] for kernel in used])

            operations = (carried("bytes_read") + carried("bytes_written")) / 4
            if times:
                operations += scale * times * product_operations(first[key])
            if kernel_name == "gather_gradients":
                operations -= scale * saved_operations(first[key])
            title = f"{low['operator']}: {name}"
            listed.append(Kernel(title, kernels[0]["launches"], 0, carried("bytes_touched"), operations))
        counted[key] = listed
    return [counted[shapes(call)] for call in calls]


def peak_bytes(method: str, load: Load) -> int:
    """The peak memory of a layer, forward and backward, beside its inputs and parameters."""
    tally, _ = run(method, "layer", load)
    by_width = [emulation.count(narrowed(call, k * FEW) for call in tally.calls) for k in (1, 2)]
    inside = [
        load.scale * carried_on([run["memory"] for run in runs]) for runs in zip(*by_width, strict=True)
    ]
    return int(max([tally.most_held, *(tally.held_before[k] + held for k, held in enumerate(inside))]))


@contextlib.contextmanager
def as_on_cuda(tally: Tally) -> Iterator[None]:
    """Python code that asks for the device gets the answer for CUDA."""
    rows = tiles.tile_rows
    cuda = torch.device("cuda")

    def tile_rows(device: torch.device, channels: int, num_layers: int) -> int:
        return max(rows(cuda, channels, num_layers) // tally.scale, 16)

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return torch.native_dropout(x, p, training)[0] if training and p > 0 else x

    def tolist(tensor: Tensor) -> Any:
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            listed = numbers(tensor)
        if not tally.on_host([tensor]):
            tally.noted.append(Kernel("to_host", 1, 1, tally.size([tensor]), 0))
        return listed

    def cpu(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
        if tally.on_host([tensor]):
            return tensor
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            copied = tally.to_host(tensor)
        tally.noted.append(Kernel("to_host", 1, 1, tally.size([tensor]), 0))
        return copied

    numbers = Tensor.tolist
    with contextlib.ExitStack() as stack:
        for owner, name, function in (
            (tiles, "tile_rows", tile_rows),
            (children, "KEPT_BYTES", children.KEPT_BYTES // tally.scale),
            (waits, "is_host", lambda device: False),
            (torch.nn.functional, "dropout", dropout),
            (Tensor, "tolist", tolist),
            (Tensor, "cpu", cpu),
        ):
            stack.enter_context(mock.patch.object(owner, name, function))
        stack.enter_context(HostFactories(tally))
        yield


# ------------------------------------------------------------------------------------------------------------
# Modules on workloads
# ------------------------------------------------------------------------------------------------------------


def phases(method: str, form: str, load: Load) -> dict[str, list[Kernel]]:
    """The kernels of forward and of backward, in training."""
    tally, forward = run(method, form, load)
    ours = iter(count_ours(tally.calls, load.scale))
    listed: dict[str, list[Kernel]] = {"forward": [], "backward": []}
    for number, item in enumerate(tally.noted):
        phase = listed["forward" if number < forward else "backward"]
        phase += [item] if isinstance(item, Kernel) else next(ours)
    return listed


def run(method: str, form: str, load: Load) -> tuple[Tally, int]:
    """The record, and how much of it belongs to the forward pass."""
    torch.manual_seed(0)
    workload = load.run
    edge_index, num_nodes = workload.edge_index(), workload.graphs * workload.nodes
    batch = torch.arange(workload.graphs).repeat_interleave(workload.nodes)
    x = torch.randn(num_nodes, CHANNELS, requires_grad=True)
    model = module(method, form, workload.nodes).train()
    given = padded(model, x, edge_index, batch, workload.graphs) if form == CAPTURED else ()
    tally = Tally(load.scale)
    with as_on_cuda(tally), tally:
        if form == CAPTURED:
            out = results_of(model(*given))
        else:
            out = called(model, form, x, edge_index, batch, workload.graphs)
        forward = len(tally.noted)
        with torch.utils._python_dispatch._disable_current_modes():
            # Of a constant, nothing is left behind a LayerNorm but rounding, which differs between devices.
            grads = [torch.randn_like(tensor) for tensor in out]
        torch.autograd.backward(out, grads)
    return tally, forward


def summary(kernels: Sequence[Kernel]) -> dict[str, Any]:
    launches, waits = (int(sum(getattr(k, name) for k in kernels)) for name in ("launches", "waits"))
    host = LAUNCH * launches + WAIT * waits
    device = {card: sum(kernel.seconds(CARDS[card]) for kernel in kernels) for card in CARDS}
    return {
        "launches": launches,
        "waits": waits,
        "bytes": int(sum(kernel.bytes for kernel in kernels)),
        "operations": int(sum(kernel.operations for kernel in kernels)),
        "host_ms": 1e3 * host,
        "device_ms": {card: 1e3 * seconds for card, seconds in device.items()},
        "ms": {card: 1e3 * max(host, seconds) for card, seconds in device.items()},
    }


def as_one_graph(kernels: Sequence[Kernel]) -> dict[str, Any]:
    """The same as a CUDA graph: one launch, and one host wait to read whether the batch fitted."""
    cost = summary(kernels)
    if cost["waits"] > 0:
        raise AssertionError(
            f"a CUDA graph cannot wait for the host, and this step does {cost['waits']} times"
        )
    host = 1e3 * (LAUNCH + WAIT)
    return {
        **cost,
        "launches": 1,
        "waits": 1,
        "kernels": cost["launches"],
        "host_ms": host,
        "ms": {card: max(host, device) for card, device in cost["device_ms"].items()},
    }


def modelled(method: str, form: str, workload: str) -> dict[str, Any]:
    """One entry of the results."""
    parts = phases(method, form, LOADS[workload])
    parts["both"] = parts["forward"] + parts["backward"]
    if form == CAPTURED:
        both = as_one_graph(parts["both"])
        return {"method": method, "form": form, "workload": workload, "both": both}
    costs = {phase: summary(kernels) for phase, kernels in parts.items()}
    return {"method": method, "form": form, "workload": workload, **costs}


def rule_table() -> str:
    """The launches of PyTorch's operators, in Markdown."""
    groups: dict[Rule, list[str]] = {}
    for name, rule in RULES.items():
        groups.setdefault(rule, []).append(f"`{name}`")

    def amount(value: Amount) -> str:
        return str(value) if isinstance(value, int) else "by size"

    rows = [
        [
            ", ".join(names),
            amount(rule.launches),
            amount(rule.waits),
            rule.source,
            "yes" if rule.read else "no",
        ]
        for rule, names in groups.items()
    ]
    return common.table(["operator", "launches", "waits", "file below `aten/src/ATen/native`", "read"], rows)


def count_operators() -> list[dict[str, Any]]:
    """Every operator of ours once, on workload a."""
    calls = []
    for name, function in emulation.call_every_operator(LOADS["a"].run).items():
        with emulation.Recorder() as recorded:
            function()
        if recorded[-1].operator == name:
            calls.append(recorded[-1])
    return [
        {"operator": call.operator, **summary(kernels)}
        for call, kernels in zip(calls, count_ours(calls), strict=True)
    ]


HELD = ("ParsePooling", "TopK")
HELD_NODES, HELD_SCALES = 12_500, (8, 80)  # of the run, and how many times larger those meant are


def count_memory(scales: Sequence[int] = HELD_SCALES) -> list[dict[str, Any]]:
    """Peak memory of layers on sparse graphs of 10^5 and 10^6 nodes."""
    sparse = emulation.Workload(1, HELD_NODES, 2 * HELD_NODES, CHANNELS)
    return [
        {"method": method, "nodes": scale * HELD_NODES, "bytes": peak_bytes(method, Load("", sparse, scale))}
        for scale in scales
        for method in HELD
    ]


def memory_table(entries: Sequence[dict[str, Any]]) -> str:
    held = {(entry["method"], entry["nodes"]): f"{entry['bytes'] / 1e6:,.0f}" for entry in entries}
    nodes = sorted({count for _, count in held})
    rows = [[method, *(held[method, count] for count in nodes)] for method in HELD]
    title = "Layer, peak memory beside inputs and parameters in MB, forward and backward, sparse graphs:"
    return f"{title}\n\n{common.table(['method', *(f'{count:,} nodes' for count in nodes)], rows)}"


def report(content: dict[str, Any], cards: Sequence[str] = tuple(CARDS)) -> str:
    """The tables, in Markdown, with the times of these cards."""
    rows = [
        [f"`{entry['operator']}`", entry["launches"], entry["waits"], f"{entry['bytes'] / 1e6:.2f}"]
        for entry in content.get("operators", [])
    ]
    title = f"Our operators, each once, (a) {LOADS['a'].text}, {CHANNELS} channels in float32:"
    parts = [f"{title}\n\n{common.table(['operator', 'launches', 'waits', 'MB'], rows)}"] if rows else []
    for form in FORMS:
        for workload, load in LOADS.items():
            rows = []
            for entry in content["results"]:
                captured = entry["form"] == CAPTURED  # which stands beside the classifiers
                shown = "classifier" if captured else entry["form"]
                if (shown, entry["workload"]) == (form, workload):
                    both = entry["both"]
                    name = entry["method"] + (f", a CUDA graph of {both['kernels']:,}" if captured else "")
                    times = [f"{both['ms'][card]:.2f}" for card in cards]
                    counts = [f"{both[count]:,}" for count in ("launches", "waits")]
                    amounts = [f"{both['bytes'] / 1e6:,.0f}", f"{both['operations'] / 1e9:,.1f}"]
                    rows.append([name, *counts, *amounts, *times])
            if rows:
                header = [
                    "method",
                    "launches",
                    "waits",
                    "MB",
                    "GFLOP",
                    *(f"{card}, ms" for card in cards),
                ]
                title = f"{form.capitalize()}, ({workload}) {load.text}, forward and backward:"
                parts.append(f"{title}\n\n{common.table(header, rows)}")
    if content.get("memory"):
        parts.append(memory_table(content["memory"]))
    return "\n\n".join(parts)


ALL_FORMS = (*FORMS, CAPTURED)
ALSO = {"operators": count_operators, "memory": count_memory}


def wanted_points(
    methods: Sequence[str] | None, workloads: Sequence[str] | None, forms: Sequence[str] | None
) -> list[tuple[str, str, str]]:
    methods, workloads = methods or METHODS, workloads or list(LOADS)
    captured = points(methods, "a", [CAPTURED]) if not forms and "a" in workloads else []
    return points(methods, workloads, forms) + captured


def updated(saved: dict[str, Any], counted: dict[str, Any]) -> dict[str, Any]:
    """The saved result, updated with new counts. Saved results by another rule, or on other workloads, are
    discarded."""
    terms = {
        "workloads": {name: load.text for name, load in LOADS.items()},
        "rule": {"launch": LAUNCH, "wait": WAIT, "cards": {c: card._asdict() for c, card in CARDS.items()}},
    }
    if any(saved.get(name) != value for name, value in terms.items()):
        saved = {}
    rows = {
        (ALL_FORMS.index(row["form"]), row["workload"], METHODS.index(row["method"])): row
        for row in (*saved.get("results", []), *counted["results"])
    }
    tables = {name: counted.get(name, saved.get(name, [])) for name in ALSO}
    return {
        **terms,
        "operators": tables["operators"],
        "results": [rows[place] for place in sorted(rows)],
        "memory": tables["memory"],
    }


PAGE = common.RESULTS.parent.parent / "docs" / "cuda.md"
BEGIN, END = "<!-- benchmarks/gpu_model.py --page -->", "<!-- end -->"


def write_page(content: dict[str, Any]) -> None:
    """The tables between the marks of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    tables = f"{report(content)}\n\nWhat PyTorch's operators launch, unmeasured:\n\n{rule_table()}"
    PAGE.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--method", nargs="*", choices=METHODS)
    parser.add_argument("--workload", nargs="*", choices=LOADS)
    parser.add_argument(
        "--form", nargs="*", choices=ALL_FORMS, help="default: layers, and all forms on workload a"
    )
    parser.add_argument(
        "--also",
        nargs="*",
        choices=ALSO,
        help="default: both, unless a method, a workload or a form is named",
    )
    parser.add_argument("--card", nargs="*", choices=CARDS, default=list(CARDS), help="whose times to print")
    parser.add_argument("--table", action="store_true", help="print the saved result, count nothing")
    parser.add_argument("--page", action="store_true", help="the saved result into docs/cuda.md")
    parser.add_argument("--output", type=common.Path, default=common.RESULTS)
    options = parser.parse_args()
    path = options.output / "gpu_model.json"
    if options.table:
        print(report(json.loads(path.read_text())))
        return
    if options.page:
        write_page(json.loads(path.read_text()))
        return
    wanted = wanted_points(options.method, options.workload, options.form)
    is_all = not (options.method or options.workload or options.form)
    also = (ALSO if is_all else ()) if options.also is None else options.also
    counted: dict[str, Any] = {
        "results": [modelled(*point) for point in tqdm(wanted, file=sys.stderr)],
        **{table: ALSO[table]() for table in also},
    }
    print(report(counted, options.card))
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = json.loads(path.read_text()) if path.exists() else {}  # now: another run may have written
    path.write_text(json.dumps(updated(saved, counted), indent=1) + "\n")


if __name__ == "__main__":
    main()
