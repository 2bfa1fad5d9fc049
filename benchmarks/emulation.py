"""The CUDA sources run on the CPU: operators are recorded, run again by the emulation, and counted."""

import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import gpn_ops

ROOT = Path(__file__).resolve().parent.parent
SECTOR = 32


class Call(NamedTuple):
    """An operator, its arguments before the call, and its results (or the arguments that it wrote to)."""

    operator: str
    arguments: dict[str, Any]
    results: list[Tensor]


class Recorder(TorchDispatchMode):
    """Notes the calls of our operators, with copies of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def is_one(self, name: str) -> bool:
        """Whether an operator is recorded."""
        return has_kernel(name)

    def __enter__(self) -> Any:
        super().__enter__()
        return self.calls

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "gpn":
            return func(*args, **kwargs)
        if not self.is_one(func._schema.name):  # made of others, which this is about
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        arguments = {}
        for position, argument in enumerate(func._schema.arguments):
            given = (
                args[position] if position < len(args) else kwargs.get(argument.name, argument.default_value)
            )
            arguments[argument.name] = copied(given)
        returned = func(*args, **kwargs)
        if returned is None:
            results = [args[0]]
        else:
            results = list(returned) if isinstance(returned, tuple | list) else [returned]
        self.calls.append(Call(func._schema.name.split("::")[1], arguments, [copy_of(x) for x in results]))
        return returned


def has_kernel(name: str) -> bool:
    """Whether an operator has kernels in csrc, instead of calling others in Python."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")


def copied(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [copied(each) for each in value]
    return copy_of(value) if isinstance(value, Tensor) else value


def copy_of(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def find_cmake() -> str | None:
    """cmake, preferably that of this environment, which need not be active."""
    return shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")


@functools.cache
def program() -> Path:
    """tests/cpp/count_launches.cpp, rebuilt if anything has changed."""
    cmake = find_cmake()
    if cmake is None:
        sys.exit("counting launches needs cmake and a C++ compiler")
    folder = ROOT / "build" / "cpp-counts"
    settings = ["-DGPN_OPS_LIBRARIES=OFF", "-DGPN_OPS_TESTS=ON"]
    for command in (
        [cmake, "-S", ROOT, "-B", folder, *settings],
        [cmake, "--build", folder, "--target", "count_launches"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
    return next(folder.rglob("count_launches"))


def raw_bytes(tensor: Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def write_tensor(tensor: Tensor, file: Any) -> None:
    dtype = str(tensor.dtype).removeprefix("torch.")
    sizes = "".join(f" {size}" for size in tensor.shape)
    file.write(f"tensor {dtype} {tensor.dim()}{sizes}\n".encode() + raw_bytes(tensor))


def write_call(call: Call, file: Any) -> None:
    file.write(f"call {call.operator} {len(call.arguments)}\n".encode())
    for name, value in call.arguments.items():
        if value is None:
            file.write(b"none\n")
        elif isinstance(value, Tensor):
            write_tensor(value, file)
        elif isinstance(value, list):
            file.write(f"list {len(value)}\n".encode())
            for tensor in value:
                write_tensor(tensor, file)
        elif isinstance(value, torch.dtype):
            file.write(f"dtype {str(value).removeprefix('torch.')}\n".encode())
        elif isinstance(value, int):
            file.write(f"int {int(value)}\n".encode())
        elif isinstance(value, float):
            file.write(f"float {value!r}\n".encode())
        elif isinstance(value, str):
            file.write(f"string {value}\n".encode())
        else:
            raise TypeError(f"{call.operator}: expected no {name} like {value!r}")


def compare(call: Call, shapes: list[list[int]], file: Any) -> None:
    """Compares the results of the emulated device with those of the CPU; integers exactly."""
    if shapes != [list(result.shape) for result in call.results]:
        raise AssertionError(f"{call.operator}: shapes {shapes} on the emulated device")
    for expected in call.results:
        data = bytearray(file.read(expected.numel() * expected.element_size()))
        result = torch.frombuffer(data, dtype=expected.dtype) if data else expected.new_empty(0)
        if expected.dtype.is_floating_point:  # of a long sum in another order
            most = {8: 1e-10, 4: 1e-4, 2: 2e-2}[expected.element_size()]
            highest = float(expected.abs().nan_to_num().max()) if expected.numel() else 0.0
            allowed = {"rtol": most, "atol": most * highest}
        else:
            allowed = {"rtol": 0, "atol": 0}
        torch.testing.assert_close(
            result.view(expected.shape),
            expected,
            equal_nan=True,
            msg=lambda text: f"{call.operator}: {text}",
            **allowed,
        )


def described(value: Any) -> Any:
    if isinstance(value, list):
        return [described(each) for each in value]
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if not isinstance(value, Tensor):
        return value
    return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}


def count(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """The cost of each call on CUDA; the docstring of emulated.py explains the keys."""
    calls = list(calls)
    with tempfile.TemporaryDirectory(prefix="gpn_ops_") as folder:
        with open(f"{folder}/calls", "wb") as file:
            for call in calls:
                write_call(call, file)
        with open(f"{folder}/calls", "rb") as file:
            done = subprocess.run(
                [program(), f"{folder}/results"], stdin=file, capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise RuntimeError(done.stderr)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        with open(f"{folder}/results", "rb") as file:
            for call, answer in zip(calls, answers, strict=True):
                compare(call, answer.pop("results"), file)
    for call, answer in zip(calls, answers, strict=True):
        answer["arguments"] = {name: described(value) for name, value in call.arguments.items()}
        for counts in (answer, *answer["kernels"]):
            counts["bytes_touched"] = SECTOR * (counts["distinct_read"] + counts["distinct_written"])
    return answers


class Workload(NamedTuple):
    """A batch of random graphs of the same size, each with both directions of its undirected pairs."""

    graphs: int = 256
    nodes: int = 30
    pairs: int = 32
    channels: int = 128
    dtype: str = "float32"

    def edge_index(self) -> Tensor:
        """Sorted by row, as in PyG."""
        if not 0 <= self.pairs <= self.nodes * (self.nodes - 1) // 2:
            raise ValueError(
                f"pairs: expected at most {self.nodes * (self.nodes - 1) // 2}, got {self.pairs}"
            )
        ends = []
        for graph in range(self.graphs):
            found = torch.empty(0, dtype=torch.long)
            while found.numel() < self.pairs:
                first, second = torch.randint(self.nodes, (2, 2 * self.pairs)).sort(0).values
                drawn = (first * self.nodes + second)[first != second]
                found = torch.cat([found, drawn]).unique()
            found = found[torch.randperm(found.numel())[: self.pairs]]
            pair = torch.stack([found // self.nodes, found % self.nodes]) + graph * self.nodes
            ends.append(torch.cat([pair, pair.flip(0)], dim=1))
        edge_index = torch.cat(ends, dim=1)
        return edge_index[:, (edge_index[0] * self.graphs * self.nodes + edge_index[1]).argsort()]


def call_every_operator(workload: Workload) -> dict[str, Callable[[], Any]]:
    """Calls each operator, on the results of the operators before it in a pooling level."""
    ops, num_nodes, dtype = torch.ops.gpn, workload.graphs * workload.nodes, getattr(torch, workload.dtype)
    torch.manual_seed(0)
    edge_index = workload.edge_index()
    x = torch.randn(num_nodes, workload.channels).to(dtype)
    weight = torch.randn(workload.channels).to(dtype)
    pairs, slot = gpn_ops.undirected(edge_index, num_nodes)
    pair_scores = torch.rand(pairs.size(1)).to(dtype)
    scores = pair_scores[slot]
    cluster = gpn_ops.parse(edge_index, scores, num_nodes)
    num_clusters = int(cluster.max()) + 1 if num_nodes else 0
    batch = torch.arange(workload.graphs).repeat_interleave(workload.nodes)
    coarse, _, representative, count, _ = ops.coarsen_padded(
        edge_index, cluster, num_nodes, edge_index.size(1), with_order=True
    )
    rows = torch.randn(num_clusters, workload.channels).to(dtype)
    products = torch.randn(pairs.size(1), workload.channels).to(dtype)
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    channels = workload.channels
    layer = [(channels, channels), (channels,), (channels,), (channels,)]
    scorer = [torch.randn(shape).to(dtype) for shape in (*layer, *layer, (1, channels), (1,))]
    block = [torch.randn(shape).to(dtype) for shape in (*layer[:2], *layer)]
    seed = torch.tensor(1)
    return {
        "undirected": lambda: ops.undirected(edge_index, num_nodes),
        "pair_product": lambda: ops.pair_product(x, pairs),
        "pair_product_backward_": lambda: ops.pair_product_backward_(
            torch.zeros_like(x, dtype=wide), products, x, pairs
        ),
        "edge_logits": lambda: ops.edge_logits(x, pairs, scorer, wide, 0.5, seed, 1024),
        "edge_logits_backward": lambda: ops.edge_logits_backward(
            pair_scores.to(wide), x, pairs, scorer, wide, 0.5, seed, 1024
        ),
        "residual": lambda: ops.residual(x, cluster, num_clusters, block, wide, 0.5, seed, 1024, False),
        "residual_backward": lambda: ops.residual_backward(
            rows, x, cluster, block, wide, 0.5, seed, 1024, x.new_empty(0, dtype=wide)
        ),
        "pair_dot": lambda: ops.pair_dot(x, weight, pairs),
        "pair_dot_backward": lambda: ops.pair_dot_backward(pair_scores, x, weight, pairs),
        "parse": lambda: ops.parse(edge_index, scores, num_nodes),
        "dominant": lambda: ops.dominant(edge_index, scores, num_nodes),
        "_dominant": lambda: ops._dominant(edge_index, scores, num_nodes, "wide"),
        "components": lambda: ops.components(edge_index, num_nodes),
        "coarsen": lambda: ops.coarsen(edge_index, cluster),
        "coarsen_padded": lambda: ops.coarsen_padded(
            edge_index, cluster, num_nodes, edge_index.size(1), with_order=True
        ),
        "progress": lambda: ops.progress(
            edge_index, batch, workload.graphs, cluster, coarse, representative, count
        ),
        "partition": lambda: ops.partition(
            torch.arange(workload.graphs) % 2, batch, workload.graphs // 2 * workload.nodes
        ),
        "sorted_pairs": lambda: ops.sorted_pairs(coarse[:, : int(count[1])], num_nodes, int(count[1]) // 2),
        "undirected_padded": lambda: ops.undirected_padded(edge_index, num_nodes, edge_index.size(1)),
        "mask": lambda: ops.mask(edge_index, scores, cluster, num_clusters),
        "mask_backward": lambda: ops.mask_backward(rows[:, 0].contiguous(), edge_index, cluster),
        "reduce": lambda: ops.reduce(x, cluster, num_clusters, "sum"),
        "reduce_max_backward": lambda: ops.reduce_max_backward(
            rows, x, ops.reduce(x, cluster, num_clusters, "max"), cluster
        ),
        "accumulate_": lambda: ops.accumulate_(torch.zeros_like(rows, dtype=wide), x, cluster),
        "cluster_sizes": lambda: ops.cluster_sizes(cluster, num_clusters),
        "lift": lambda: ops.lift(rows, cluster),
        "dropout": lambda: ops.dropout(x, seed, 0.5),
        "dropout_": lambda: ops.dropout_(x.clone(), seed, 0.5, True),
    }


def operators() -> list[str]:
    """The operators with kernels, by name."""
    names = torch._C._dispatch_get_all_op_names()
    return sorted(name[5:] for name in names if name.startswith("gpn::") and has_kernel(name))


def count_operators(workload: Workload, wanted: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The counts of every operator, or of the given ones."""
    runs = call_every_operator(workload)
    if missing := set(wanted or operators()) - set(runs):
        raise ValueError(f"operators: expected some of {', '.join(runs)}, got {', '.join(sorted(missing))}")
    calls = []
    for name, run in runs.items():
        if name in (wanted or runs):
            with Recorder() as recorded:
                run()
            calls.append(recorded[-1])
    return count(calls)
