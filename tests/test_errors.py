"""The same mistake gives the same error, whichever way it came in: compiled kernel, plain form, fake kernel,
typed function. For every operator of the schema, every argument is spoilt in every way that applies."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

import gpn_ops
from gpn_ops.ops.edge_logits import plain_edge_logits, plain_edge_logits_backward
from gpn_ops.ops.plain import PLAIN_FORMS
from gpn_ops.ops.residual import plain_residual, plain_residual_backward

Arguments = dict[str, Any]

PLAIN = {
    **PLAIN_FORMS,
    "edge_logits": plain_edge_logits,
    "edge_logits_backward": plain_edge_logits_backward,
    "residual": plain_residual,
    "residual_backward": plain_residual_backward,
}

# A path of five nodes, sorted, both directions; clusters {0, 1}, {2, 3}, {4}.
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
CLUSTER = torch.tensor([0, 0, 1, 1, 2])
PAIRS = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
SEED = torch.tensor(7)


def numbers(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def layers() -> list[Tensor]:
    """Weight, bias and those of a LayerNorm, then the last layer."""
    return [numbers(6, 6), numbers(6), numbers(6), numbers(6), numbers(1, 6), numbers(1)]


def block() -> list[Tensor]:
    """Weight and bias of two layers, then those of a LayerNorm."""
    return [numbers(6, 6), numbers(6), numbers(6, 6), numbers(6), numbers(6), numbers(6)]


VALID: dict[str, Arguments] = {
    "parse": {"edge_index": EDGES, "scores": numbers(8), "num_nodes": 5},
    "dominant": {"edge_index": EDGES, "scores": numbers(8), "num_nodes": 5},
    "components": {"edge_index": EDGES, "num_nodes": 5},
    "coarsen": {
        "edge_index": EDGES,
        "cluster": CLUSTER,
        "batch": torch.zeros(5, dtype=torch.int64),
        "takes_part": torch.ones(8, dtype=torch.bool),
    },
    "coarsen_padded": {
        "edge_index": EDGES,
        "cluster": CLUSTER,
        "num_clusters": 4,
        "num_edges": 9,
        "batch": torch.zeros(5, dtype=torch.int64),
    },
    "undirected": {"edge_index": EDGES, "num_nodes": 5},
    "undirected_padded": {"edge_index": EDGES, "num_nodes": 5, "num_pairs": 4},
    "sorted_pairs": {"edge_index": EDGES, "num_nodes": 5, "num_pairs": 4},
    "partition": {"wanted": torch.tensor([0, 1]), "batch": torch.tensor([0, 0, 1, 1, 1]), "num_wanted": 3},
    "progress": {
        "edge_index": EDGES,
        "batch": torch.zeros(5, dtype=torch.int64),
        "num_graphs": 1,
        "cluster": CLUSTER,
        "coarse": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        "representative": torch.tensor([0, 2, 4]),
    },
    "mask": {"edge_index": EDGES, "scores": numbers(8), "cluster": CLUSTER, "num_clusters": 3},
    "mask_backward": {"grad": numbers(3), "edge_index": EDGES, "cluster": CLUSTER},
    "reduce": {"x": numbers(5, 6), "cluster": CLUSTER, "num_clusters": 3, "reduce": "max"},
    "reduce_max_backward": {
        "grad": numbers(3, 6),
        "x": numbers(5, 6),
        "maximum": numbers(3, 6),
        "cluster": CLUSTER,
    },
    "cluster_sizes": {"cluster": CLUSTER, "num_clusters": 3},
    "accumulate_": {"out": numbers(3, 6), "x": numbers(5, 6), "cluster": CLUSTER},
    "lift": {"x": numbers(3, 6), "cluster": CLUSTER},
    "pair_dot": {"h": numbers(5, 6), "weight": numbers(6), "pairs": PAIRS},
    "pair_dot_backward": {"grad": numbers(4), "h": numbers(5, 6), "weight": numbers(6), "pairs": PAIRS},
    "pair_product": {"h": numbers(5, 6), "pairs": PAIRS},
    "pair_product_backward_": {
        "grad_h": numbers(5, 6),
        "grad_product": numbers(4, 6),
        "h": numbers(5, 6),
        "pairs": PAIRS,
    },
    "dropout": {"x": numbers(5, 6), "seed": SEED, "p": 0.5},
    "dropout_": {"x": numbers(5, 6), "seed": SEED, "p": 0.5},
    "edge_logits": {
        "h": numbers(5, 6),
        "pairs": PAIRS,
        "parameters": layers(),
        "product": torch.float32,
        "dropout": 0.5,
        "seed": SEED,
        "tile_rows": 2,
    },
    "edge_logits_backward": {
        "grad": numbers(4),
        "h": numbers(5, 6),
        "pairs": PAIRS,
        "parameters": layers(),
        "product": torch.float32,
        "dropout": 0.5,
        "seed": SEED,
        "tile_rows": 2,
    },
    "residual": {
        "x": numbers(5, 6),
        "cluster": CLUSTER,
        "num_clusters": 3,
        "parameters": block(),
        "product": torch.float32,
        "dropout": 0.5,
        "seed": SEED,
        "tile_rows": 2,
        "keep": True,
    },
    "residual_backward": {
        "grad": numbers(3, 6),
        "x": numbers(5, 6),
        "cluster": CLUSTER,
        "parameters": block(),
        "product": torch.float32,
        "dropout": 0.5,
        "seed": SEED,
        "tile_rows": 2,
        "kept": numbers(70),
    },
}

# The typed function takes weights of any floating dtype, and hands them over in that of h.
OTHER_FLOATING = {
    f"weight: expected a {a} tensor, got {b}" for a, b in (("float32", "float16"), ("float16", "float32"))
}

HUGE = (2**62, 2**63 - 1, -(2**63), -7)


def spoilt_metadata(value: Any) -> Iterator[tuple[str, Any]]:
    """What a look at dtypes, shapes, devices and numbers tells."""
    if isinstance(value, Tensor):
        yield "int16", value.to(torch.int16)
        yield "bool", value.bool()
        yield "complex", value.to(torch.complex64)
        yield "dtype", value.float() if value.dtype == torch.int64 else value.long()
        yield "float16", value.half()
        yield "rank + 1", value.unsqueeze(-1)
        yield "leading dimension", value.unsqueeze(0)
        yield "scalar", value.flatten()[0].clone() if value.dim() else value.view(1)
        for dim in range(value.dim()):
            yield f"longer in {dim}", torch.cat([value, value.narrow(dim, 0, 1)], dim)
            yield f"shorter in {dim}", value.narrow(dim, 0, value.size(dim) - 1)
            yield f"empty in {dim}", value.narrow(dim, 0, 0)
    elif isinstance(value, list):
        yield "one less", value[:-1]
        yield "none", []
        for i, each in enumerate(value):
            for name, bad in spoilt_metadata(each):
                yield f"[{i}] {name}", [*value[:i], bad, *value[i + 1 :]]
    elif isinstance(value, float):
        yield from ((str(bad), bad) for bad in (-0.5, 1.5, float("nan"), float("inf")))
    elif isinstance(value, int):
        yield "-1", -1
        yield "lowest", -(2**62)


def spoilt_values(value: Any) -> Iterator[tuple[str, Any]]:
    """What only the values tell."""
    if isinstance(value, Tensor) and value.dtype == torch.int64 and value.dim() > 0:
        for bad in HUGE:
            changed = value.clone()
            changed[..., -1] = bad
            yield str(bad), changed
        yield "non-contiguous", torch.stack([value, value + 99], -1)[..., 1]
    elif isinstance(value, Tensor) and value.dim() > 0:
        yield "NaN", value.masked_fill(value == value.flatten()[-1], torch.nan)
    elif type(value) is int:
        yield "0", 0
    elif isinstance(value, str):
        yield "unknown", "median"


def cases(spoil: Callable[[Any], Iterator[tuple[str, Any]]]) -> Iterator[Any]:
    for op, valid in VALID.items():
        for argument, value in valid.items():
            for name, bad in spoil(value):
                yield pytest.param(op, {**valid, argument: bad}, argument, id=f"{op}: {argument}: {name}")


def copied(value: Any) -> Any:
    return (
        value.clone()
        if isinstance(value, Tensor)
        else [copied(each) for each in value]
        if isinstance(value, list)
        else value
    )


def outcome(function: Callable[..., Any], arguments: Arguments) -> str | None:
    """The text of the error; None if there was none. Any other type of error fails the test."""
    arguments = {name: copied(value) for name, value in arguments.items()}
    before = {name: copied(value) for name, value in arguments.items()}
    caught: RuntimeError | None = None
    try:
        with torch.no_grad():
            function(**arguments)
    except RuntimeError as error:
        caught = error
    if caught is None:
        return None
    # NotImplementedError is a RuntimeError too, and no error of a user's.
    assert type(caught) is RuntimeError, repr(caught)
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            assert torch.equal(value.nan_to_num(), before[name].nan_to_num()), f"{name} was changed"
    return str(caught)


def faked(op: str) -> Callable[..., Any]:
    def function(**arguments: Any) -> Any:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        mode = FakeTensorMode(shape_env=ShapeEnv())
        arguments = torch.utils._pytree.tree_map_only(
            Tensor, lambda tensor: mode.from_tensor(tensor, static_shapes=True), arguments
        )
        with mode:
            return getattr(torch.ops.gpn, op)(**arguments)

    return function


def ways(op: str, arguments: Arguments) -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "kernel", getattr(torch.ops.gpn, op)
    yield "plain form", PLAIN[op]
    typed = getattr(gpn_ops, op, None)
    if typed is not None and set(arguments) <= set(inspect.signature(typed).parameters):
        yield "typed function", typed


def assert_says_what_came(text: str, arguments: Arguments) -> None:
    name, _, rest = text.partition(": ")
    assert re.sub(r"\[.*", "", name.split(",")[0]) in arguments, text
    assert rest.startswith("expected "), text
    assert ", got " in rest or "tensors where" in rest or "contiguous" in rest, text


def test_every_operator_is_here():
    names = {name.removeprefix("gpn::") for name in torch._C._dispatch_get_all_op_names()}
    operators = {name for name in names if "::" not in name and "." not in name}
    # Beside what only tests call, and what stands in for another.
    assert operators - set(VALID) == {"_dominant", "_edge_logits_backward_tiles"}
    for op, arguments in VALID.items():
        for way, function in ways(op, arguments):
            assert outcome(function, arguments) is None, way
        assert outcome(faked(op), arguments) is None


@pytest.mark.parametrize(
    ("op", "arguments", "argument"),
    [case for case in cases(spoilt_metadata) if case.id != "progress: representative: empty in 0"],
)
def test_wrong_metadata(op, arguments, argument):
    texts = {way: outcome(function, arguments) for way, function in ways(op, arguments)}
    if op == "pair_dot" and texts["kernel"] in OTHER_FLOATING:
        assert texts.pop("typed function") is None
    assert len(set(texts.values())) == 1, texts
    fake = outcome(faked(op), arguments)
    said = texts["kernel"]
    if said is None or fake is not None:
        assert fake == said
    else:  # An empty or shorter tensor may only be wrong for its values, which a fake one has not.
        assert re.search(r"\bids?\b|no edges|no node|reverse|sorted|^num_pairs|^num_wanted", said), said
    if said is not None:
        assert_says_what_came(said, arguments)


@pytest.mark.parametrize(
    ("op", "arguments", "argument"),
    # gpn::progress reads what other operators have made. Its plain form waits for nothing, so it checks none.
    [case for case in cases(spoilt_values) if case.values[0] != "progress"],
)
def test_wrong_values(op, arguments, argument):
    texts = {way: outcome(function, arguments) for way, function in ways(op, arguments)}
    assert len(set(texts.values())) == 1, texts
    if texts["kernel"] is not None:
        assert_says_what_came(texts["kernel"], arguments)


def on_meta(value: Any) -> Any:
    return torch.utils._pytree.tree_map_only(Tensor, lambda tensor: tensor.to("meta"), value)


@pytest.mark.parametrize(
    ("op", "argument"),
    [
        (op, argument)
        for op, valid in VALID.items()
        for argument, value in valid.items()
        if isinstance(value, (Tensor, list))
        and sum(isinstance(v, (Tensor, list)) for v in valid.values()) > 1
    ],
)
def test_two_devices(op, argument):
    """The operator goes to the fake kernel then."""
    arguments = {**VALID[op], argument: on_meta(VALID[op][argument])}
    texts = {way: outcome_on_two(function, arguments) for way, function in ways(op, arguments)}
    assert len(set(texts.values())) == 1, texts
    assert re.search(r": expected on the same device as \w+ \((cpu|meta)\), got (cpu|meta)$", texts["kernel"])


def outcome_on_two(function: Callable[..., Any], arguments: Arguments) -> str | None:
    with pytest.raises(RuntimeError) as error, torch.no_grad():
        function(**arguments)
    return str(error.value)


@pytest.mark.parametrize(
    ("op", "argument", "other"),
    [
        ("accumulate_", "out", "x"),
        ("pair_product_backward_", "grad_h", "h"),
        ("pair_product_backward_", "grad_h", "grad_product"),
    ],
)
def test_memory_that_is_read_is_not_written(op, argument, other):
    """It would be read by some threads before and by others after."""
    arguments = dict(VALID[op])
    rows, columns = arguments[argument].size(0), arguments[argument].size(1)
    memory = numbers((rows + arguments[other].size(0)) * columns)
    written = memory[: rows * columns].view(rows, columns)
    beside = memory[rows * columns :].view(-1, columns)
    over = memory[(rows - 1) * columns : -columns].view(-1, columns)
    for _, function in ways(op, arguments):
        function(**{**arguments, argument: written, other: beside})
        with pytest.raises(RuntimeError, match=rf"^{argument}: expected .*, got memory of {other}$"):
            function(**{**arguments, argument: written, other: over})
        every_second = torch.stack([over, beside], 1)[:, 0]
        function(**{**arguments, argument: written, other: every_second})
