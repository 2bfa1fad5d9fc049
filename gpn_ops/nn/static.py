"""Runs models in static form on batches of a few sizes, and in dynamic form on batches that do not fit."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ._inputs import graph_of_node
from .pad import STEPS, Buckets, Capacity, PaddedBatch, measured, pad
from .tree import ParseTree

Shapes = tuple[Capacity, ...]
IGNORED = -100
"""The label of padding, which :func:`torch.nn.functional.cross_entropy` ignores."""


class _Sizes:
    """The padded sizes of batches and of their levels."""

    def __init__(
        self, buckets: Buckets, batch_size: int, schedule: Callable[[Capacity], Sequence[Capacity]] | None
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
        self.buckets, self.batch_size, self.schedule = buckets, batch_size, schedule
        self.shapes: dict[Capacity, Shapes] = {}

    def of(self, x: Tensor, edge_index: Tensor, batch_size: int | None) -> tuple[Capacity, Shapes | None]:
        """The sizes for a batch and for its levels; the latter are None if they have yet to be measured."""
        if batch_size is not None and batch_size > self.batch_size:
            raise ValueError(f"batch_size: expected at most {self.batch_size}, got {batch_size}")
        capacity = self.buckets(x.size(0), edge_index.size(1))
        if capacity not in self.shapes and self.schedule is not None:
            self.shapes[capacity] = tuple(self.schedule(capacity))
        return capacity, self.shapes.get(capacity)

    def grow(self, capacity: Capacity, tree: ParseTree, num_nodes: int) -> None:
        """Measures a batch that did not fit, so that the next such batch does. Sizes only grow."""
        if self.schedule is not None:
            return
        found, before = measured(capacity, tree, num_nodes), self.shapes.get(capacity)
        if before is not None:
            pairs = zip(_to(found, len(before)), _to(before, len(found)), strict=True)
            found = tuple(_larger(ours, theirs) for ours, theirs in pairs)
            if found == before:  # The tree that did not fit was another, or had one thing more.
                if len(tree.levels) == len(before) - 1:
                    # At the top, a level at which nothing shrinks is none of the tree.
                    found = _to(found, len(found) + 1)
                else:  # What was dropped at random was something else.
                    found = tuple(itertools.accumulate(found, _roomier))
        self.shapes[capacity] = found


def _to(shapes: Shapes, length: int) -> Shapes:
    """``shapes``, extended to a length by repeating the last element."""
    return shapes + shapes[-1:] * (length - len(shapes))


def _larger(one: Capacity, other: Capacity) -> Capacity:
    """The smallest capacity that holds both."""
    nodes, edges = max(one.nodes, other.nodes), max(one.edges, other.edges)
    room = Capacity(nodes, edges)
    pairs = max(one.num_pairs, other.num_pairs)
    return room if pairs <= room.num_pairs else room._replace(pairs=pairs)


def _roomier(below: Capacity, shape: Capacity) -> Capacity:
    """An eighth more, limited by the level below."""
    more = [min(size + size // STEPS + 1, most) for size, most in zip(shape[:2], below[:2], strict=True)]
    return _larger(shape, Capacity(*more))


class StaticForm(torch.nn.Module):
    r"""Calls a model in static form: pads every batch to one of a few sizes. Batches that do not fit run in
    dynamic form.

    The host waits for the device once per call, to read whether the batch fitted.

    Args:
        model (torch.nn.Module): A model such as :class:`ParseHierarchy`. It is called as
            :obj:`model(x, edge_index, edge_attr, batch, batch_size, capacity=...)`, without :obj:`capacity`
            in dynamic form, and returns a named tuple. Its first field has a row per graph or per node, and
            its field :obj:`tree` holds the trees.
        buckets (Buckets): Chooses the sizes of padded batches.
        batch_size (int): The largest number of graphs in a batch. Smaller batches get graphs without nodes.
        schedule (Callable, optional): Maps the capacity of a batch to those of all levels, such as
            :func:`halving` with its other two arguments bound. If :obj:`None`, they are measured: the first
            batch of every size, and every batch that does not fit, runs in dynamic form, and the sizes of
            levels grow to what it needed. (default: :obj:`None`)
        compiled (Callable, optional): Called in static form instead of the model, such as
            :obj:`torch.compile(model, fullgraph=True, dynamic=False)`. (default: :obj:`None`)
        per_node (bool, optional): Whether the model returns a row per node. (default: :obj:`False`)

    Example:
        >>> import torch
        >>> from gpn_ops.nn import Buckets, ParseHierarchy, ParsePooling, StaticForm
        >>> static = StaticForm(ParseHierarchy(ParsePooling(8)), Buckets(16, 32), batch_size=4)
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> batch = torch.tensor([0, 0, 1, 1])
        >>> for _ in range(3):
        ...     out = static(torch.randn(4, 8), edge_index, None, batch, batch_size=2)
        >>> out.x.shape, static.misfits
        (torch.Size([2, 8]), 1)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        buckets: Buckets,
        batch_size: int,
        schedule: Callable[[Capacity], Sequence[Capacity]] | None = None,
        compiled: Callable[..., Any] | None = None,
        per_node: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.per_node = per_node
        self.misfits = 0
        """The number of calls that ran in dynamic form."""
        self._sizes = _Sizes(buckets, batch_size, schedule)
        # In a list, so that a compiled module does not register the parameters of the model twice.
        self._static = [model if compiled is None else compiled]

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Any:
        r"""Forward pass; arguments as for :class:`ParseHierarchy`.

        Returns:
            The result of the model. Its first field is without the rows of padding, the others are unchanged.
        """
        if batch_size is None:
            batch = graph_of_node(batch, x)
            batch_size = int(batch.max()) + 1 if batch.numel() > 0 else 0
        capacity, shapes = self._sizes.of(x, edge_index, batch_size)
        if shapes is not None:
            padded = pad(x, edge_index, edge_attr, batch, capacity, self._sizes.batch_size)
            result = self._static[0](*padded, self._sizes.batch_size, capacity=shapes)
            if not bool(result.tree.overflow):
                rows = x.size(0) if self.per_node else batch_size
                return result._replace(**{result._fields[0]: result[0][:rows]})
        self.misfits += 1
        result = self.model(x, edge_index, edge_attr, batch, batch_size)
        self._sizes.grow(capacity, result.tree, x.size(0))
        return result


class CapturedCall:
    r"""A function of tensors as a CUDA graph: one launch per call, however many kernels the function
    launches.

    Calls take tensors of the same shapes. They return the outputs of the captured call with new values, in
    the same memory: the next call overwrites them.

    Args:
        function (Callable): A function of tensors that does not wait for the device.
        inputs (Sequence[torch.Tensor]): Example inputs on a GPU.
        warm_up (Callable, optional): Called three times on the inputs before capture, so that libraries make
            their choices before it. (default: :obj:`function`)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Tensor],
        warm_up: Callable[..., object] | None = None,
    ) -> None:
        self.inputs = [tensor.detach().clone() for tensor in inputs]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                (warm_up or function)(*self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = function(*self.inputs)

    def __call__(self, *inputs: Tensor) -> Any:
        for own, given in zip(self.inputs, inputs, strict=True):
            own.copy_(given)
        self.graph.replay()
        return self.outputs


class CapturedTraining:
    r"""Training steps as CUDA graphs, one for every size of padded batches: forward, backward and the
    optimiser's step are one launch. Batches that do not fit are trained on in dynamic form.

    The host waits for the device once per step, to read whether the batch fitted. If not, the optimiser in
    the graph changes nothing.

    A captured graph is fixed. The Python code of the model does not run again, and a learning rate that
    changes must be a tensor and be changed in place. Running statistics, such as those of ``BatchNorm``,
    include the padding, and become NaN if a batch does not fit. :func:`torch.utils.checkpoint.checkpoint`
    around dropout cannot be captured.

    Args:
        model (torch.nn.Module): As in :class:`StaticForm`.
        optimizer (torch.optim.Optimizer): An optimiser with :obj:`fused=True` and :obj:`capturable=True`.
        loss (Callable): Called as :obj:`loss(rows, y)`, with the first field of the model's result and as
            many labels. Integer labels of padding are -100, which
            :func:`torch.nn.functional.cross_entropy` ignores; floating ones are NaN.
        buckets, batch_size, schedule: As in :class:`StaticForm`.
        per_node (bool, optional): Whether :obj:`y` has a row per node. (default: :obj:`False`)
        max_norm (float, optional): The norm to which gradients are clipped. (default: :obj:`None`)
        capture (Callable, optional): Captures a step. (default: :class:`CapturedCall`)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Tensor, Tensor], Tensor],
        buckets: Buckets,
        batch_size: int,
        schedule: Callable[[Capacity], Sequence[Capacity]] | None = None,
        per_node: bool = False,
        max_norm: float | None = None,
        capture: Callable[..., Callable[..., Any]] = CapturedCall,
    ) -> None:
        options = {name: optimizer.defaults.get(name, False) for name in ("fused", "capturable")}
        if not all(options.values()):
            raise ValueError(f"optimizer: expected fused=True and capturable=True, got {options}")
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.per_node, self.max_norm, self.capture = per_node, max_norm, capture
        self.misfits = 0
        """The number of steps that ran in dynamic form."""
        self._sizes = _Sizes(buckets, batch_size, schedule)
        self._graphs: dict[tuple[Shapes, bool], Callable[..., Any]] = {}

    def __call__(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None,
        batch: Tensor,
        y: Tensor,
        batch_size: int,
    ) -> Tensor:
        """Performs a training step and returns the loss, detached."""
        capacity, shapes = self._sizes.of(x, edge_index, batch_size)
        if shapes is not None:
            padded = pad(x, edge_index, edge_attr, batch, capacity, self._sizes.batch_size)
            inputs = [*(tensor for tensor in padded if tensor is not None), self._padded(y, capacity)]
            key = (shapes, self.model.training)
            if key not in self._graphs:
                self._graphs[key] = self._captured(inputs, shapes, edge_attr is not None)
            loss, overflow = self._graphs[key](*inputs)
            if not bool(overflow):
                return loss.clone()
        self.misfits += 1
        result = self.model(x, edge_index, edge_attr, batch, batch_size)
        self._sizes.grow(capacity, result.tree, x.size(0))
        return self._step(result, y)

    def _padded(self, y: Tensor, capacity: Capacity) -> Tensor:
        more = (capacity.nodes if self.per_node else self._sizes.batch_size) - y.size(0)
        return torch.cat(
            [y, y.new_full((more, *y.shape[1:]), torch.nan if y.is_floating_point() else IGNORED)]
        )

    def _captured(self, inputs: Sequence[Tensor], shapes: Shapes, has_attr: bool) -> Callable[..., Any]:
        def run(skips: bool, *tensors: Tensor) -> tuple[Tensor, Tensor]:
            x, edge_index, *rest = tensors
            padded = PaddedBatch(x, edge_index, rest[0] if has_attr else None, rest[-2])
            result = self.model(*padded, self._sizes.batch_size, capacity=shapes)
            overflow = result.tree.overflow
            # Optimisers skip the step if this is 1.
            self.optimizer.found_inf = (overflow | skips).to(torch.float32)  # type: ignore[attr-defined]
            loss = self._step(result, rest[-1])
            self.optimizer.found_inf = None  # type: ignore[attr-defined]
            return loss, overflow

        return self.capture(
            lambda *tensors: run(False, *tensors), inputs, warm_up=lambda *tensors: run(True, *tensors)
        )

    def _step(self, result: Any, y: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(result[0], y)
        loss.backward()
        if self.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        return loss.detach()
