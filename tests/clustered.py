"""Clustered graphs that the tests of the pooling operators share, and checks that all of them need.

Imported as ``import clustered``, like graphs.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import graphs
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from gpn_ops.ops.plain import PLAIN_FORMS

DTYPES = graphs.SCORE_DTYPES
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: str(t).removeprefix("torch."))
REDUCTIONS = pytest.mark.parametrize("reduce", ["sum", "mean", "max"])


class Clustered(NamedTuple):
    """A graph and a cluster for each of its nodes; every id below num_clusters has a node."""

    edge_index: Tensor
    scores: Tensor
    cluster: Tensor
    num_clusters: int

    @property
    def num_nodes(self) -> int:
        return self.cluster.numel()

    def to(self, device: torch.device) -> "Clustered":
        return Clustered(*(part.to(device) for part in self[:3]), self.num_clusters)


def consecutive(cluster: Tensor) -> Tensor:
    """The same clusters, named from 0 without gaps."""
    return torch.unique(cluster, return_inverse=True)[1]


@st.composite
def clustered_graphs(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> Clustered:
    """Any clusters of any graph: duplicates, self-loops, one-way edges, no edges, no nodes."""
    graph = draw(graphs.scored_graphs(dtypes=(dtype,)))
    names = draw(st.lists(st.integers(0, 5), min_size=graph.num_nodes, max_size=graph.num_nodes))
    cluster = consecutive(torch.tensor(names, dtype=torch.int64))
    num_clusters = int(cluster.max()) + 1 if names else 0
    scores = torch.arange(graph.scores.numel()).to(dtype) / 8 - 1
    return Clustered(graph.edge_index, scores, cluster, num_clusters)


def random_clustered(num_nodes: int, num_edges: int, num_clusters: int, seed: int = 0) -> Clustered:
    """A random graph that is large enough for several threads, blocks and warps."""
    random = torch.Generator().manual_seed(seed)
    cluster = torch.randint(num_clusters, (num_nodes,), generator=random)
    cluster[:num_clusters] = torch.arange(num_clusters)
    return Clustered(
        torch.randint(num_nodes, (2, num_edges), generator=random),
        torch.randn(num_edges, generator=random),
        cluster,
        num_clusters,
    )


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def same_bits_for_any_thread_count(run: Callable[[], list[Tensor]]) -> None:
    with threads(1):
        expected = run()
    for count in (2, 3, 4):
        with threads(count):
            for got, wanted in zip(run(), expected, strict=True):
                assert torch.equal(got, wanted)


def check_compiled(
    function: Callable[..., Any], argument_lists: list[tuple[Any, ...]], differentiable: int | None = None
) -> None:
    """``function`` compiles as one graph, gives the same results and gradients as eager, and once it has been
    compiled serves other sizes without recompiling."""

    def run(f: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Tensor]:
        arguments = tuple(
            part.detach().clone().requires_grad_() if k == differentiable else part
            for k, part in enumerate(arguments)
        )
        out = f(*arguments)
        results = [part for part in (out if isinstance(out, tuple) else (out,)) if part is not None]
        if differentiable is not None:
            sum((part * part).sum() for part in results if part.requires_grad).backward()
            results.append(arguments[differentiable].grad)
        return results

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=True)
    for position, arguments in enumerate(argument_lists):
        with torch._dynamo.config.patch(error_on_recompile=position > 0):
            for got, wanted in zip(run(compiled, arguments), run(function, arguments), strict=True):
                torch.testing.assert_close(got, wanted)


class PlainForms(TorchDispatchMode):
    """Runs the operators as a device without kernels does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        plain = PLAIN_FORMS.get(func._opname) if func.namespace == "gpn" else None
        return (plain or func)(*args, **(kwargs or {}))


def check_derivatives(function: Callable[..., Tensor], *inputs: Tensor) -> None:
    """First and second derivatives are right; those of forward mode, which there are not, raise."""
    inputs = tuple(tensor.detach().requires_grad_() for tensor in inputs)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(lambda *tensors: function(*tensors) ** 2, inputs)
    with pytest.raises(RuntimeError, match=r"forward-mode derivatives .* are not implemented"):
        torch.func.jvp(function, inputs, inputs)


def refused(function: Callable[..., Any], message: str, *arguments: Any, **keywords: Any) -> None:
    """``function`` raises exactly this text, with kernels and in plain PyTorch; on tensors without data as
    well, unless the text speaks of a value."""
    raised = _message(function, arguments, keywords)
    assert raised == message
    with PlainForms():
        assert _message(function, arguments, keywords) == message
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        without_data = functools.partial(mode.from_tensor, static_shapes=True)
        fake = pytree.tree_map_only(Tensor, without_data, (arguments, keywords))
        raised = _message(function, *fake)
    speaks_of_values = " at " in message or "every id" in message or "no edges" in message
    assert raised == (None if speaks_of_values else message)


def _message(function: Callable[..., Any], arguments: Any, keywords: Any) -> str | None:
    try:
        function(*arguments, **keywords)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None
