"""The classifier in static form compared with its dynamic form, and the cost of padding.

    python benchmarks/static.py --device cpu [--dataset PROTEINS] [--padding] [--data-root data] [--quick]

Padding: the batches of ten epochs of `python -m models.train <dataset>`, in buckets chosen from the epoch
before them. Time: forward and backward of some batches that are padded to the same size, with the preset's
settings without dropout, in three forms: dynamic, static with measured levels, and static compiled by
inductor. The time of the static forms includes padding the batch and reading whether it fitted. Outputs and
the gradient of every parameter are compared before anything is timed. --padding times nothing, because
compiling takes minutes.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import common
import torch
from pages.static import DATASETS, report
from torch import Tensor
from torch.nn import functional

from gpn_ops.nn import Buckets, Capacity, ParseTree, StaticForm
from models import config as configs
from models import data
from models.config import Config
from models.gpn import Prediction
from models.training import make_model

EPOCHS = 10
MEASURED = 3  # batches that are timed, and that the capacities of levels come from
AGREE = 0.97  # of the graphs of a batch have the same tree in all forms
TOLERANCE = 1e-3  # of the norm of what is compared


def epoch(graphs: data.Graphs, batch_size: int, seed: int) -> list[Tensor]:
    """The graphs of every batch of an epoch."""
    order = torch.randperm(graphs.num_graphs, generator=torch.Generator().manual_seed(seed))
    return list(order.split(batch_size))


def sizes(graphs: data.Graphs, batches: list[Tensor]) -> list[tuple[int, int]]:
    """The numbers of nodes and edges of batches."""
    nodes, edges = graphs.node_ptr.diff(), graphs.edge_ptr.diff()
    return [(int(nodes[batch].sum()), int(edges[batch].sum())) for batch in batches]


def padding(graphs: data.Graphs, batch_size: int, buckets: Buckets) -> list[dict[str, Any]]:
    """The padding that is added to the batches, by their padded size."""
    found: dict[Capacity, list[tuple[int, int]]] = {}
    for seed in range(1, EPOCHS + 1):
        for size in sizes(graphs, epoch(graphs, batch_size, seed)):
            found.setdefault(buckets(*size), []).append(size)
    return [
        {
            "nodes": capacity.nodes,
            "edges": capacity.edges,
            "batches": len(inside),
            "real_nodes": sum(nodes for nodes, _ in inside),
            "real_edges": sum(edges for _, edges in inside),
        }
        for capacity, inside in sorted(found.items(), reverse=True)
    ]


def of_one_size(
    graphs: data.Graphs, batch_size: int, buckets: Buckets, device: torch.device
) -> list[data.Batch]:
    """The first batches of an epoch among those padded to the most frequent size."""
    by_size: dict[Capacity, list[Tensor]] = {}
    for batch in epoch(graphs, batch_size, 1):
        by_size.setdefault(buckets(*sizes(graphs, [batch])[0]), []).append(batch)
    chosen = max(by_size.values(), key=len)[:MEASURED]
    return [graphs.take(batch).to(device, torch.float32) for batch in chosen]


def call(form: Callable[..., Prediction], batch: data.Batch) -> Prediction:
    return form(batch.x, batch.edge_index, None, batch.batch, batch.num_graphs)


def levels(
    model: torch.nn.Module, batches: list[data.Batch], buckets: Buckets, batch_size: int
) -> Sequence[Capacity]:
    """The capacities that the static form settles on for batches of one size."""
    used: list[Sequence[Capacity]] = []

    def noted(*given: Any, capacity: Sequence[Capacity]) -> Prediction:
        used.append(capacity)
        return model(*given, capacity=capacity)

    form, misfits = StaticForm(model, buckets, batch_size, compiled=noted), -1
    with torch.no_grad():
        while misfits < form.misfits:
            misfits = form.misfits
            for batch in batches:
                call(form, batch)
    return used[-1]


def forms(
    config: Config, graphs: data.Graphs, buckets: Buckets, device: torch.device
) -> tuple[torch.nn.Module, dict[str, Callable[..., Prediction]], list[data.Batch]]:
    """The model, how it is called in every form, and batches of one size."""
    torch.manual_seed(0)
    model = make_model(config, graphs).to(device).train()
    batches = of_one_size(graphs, config.batch_size, buckets, device)
    room = levels(model, batches, buckets, config.batch_size)
    static, compiled = (
        StaticForm(model, buckets, config.batch_size, lambda _: room, compiled=made)
        for made in (None, torch.compile(model, fullgraph=True, dynamic=False))
    )
    return model, {"dynamic": model, "static": static, "static, compiled": compiled}, batches


def step(model: torch.nn.Module, form: Callable[..., Prediction], batch: data.Batch, y: Tensor) -> Prediction:
    """Forward and backward."""
    model.zero_grad()
    result = call(form, batch)
    functional.cross_entropy(result.out, y).backward()
    return result


def parents(tree: ParseTree, num_nodes: int) -> list[Tensor]:
    """For every level, the representative of the cluster of each node that represents a cluster of the level
    below; all other nodes represent themselves."""
    found, below = [], torch.arange(num_nodes, device=tree.height.device)
    for level in tree.levels:
        node = below if level.index is None else below[level.index]
        below = node[level.representative]
        found.append(torch.arange(num_nodes, device=node.device).index_copy(0, node, below[level.cluster]))
    return found


def same_trees(one: ParseTree, other: ParseTree, batch: data.Batch) -> Tensor:
    """The graphs that two forms parse into the same trees. Not quite all: two scores that differ only by
    rounding may compare differently, and the computation then takes another course."""
    same = one.height == other.height
    # A graph with a cluster at a level that only one form has differs in height already.
    pairs = zip(*(parents(tree.trimmed(), batch.x.size(0)) for tree in (one, other)), strict=False)
    for ours, theirs in pairs:
        same[batch.batch[ours != theirs]] = False
    return same


def check(model: torch.nn.Module, form: Callable[..., Prediction], batch: data.Batch) -> float:
    """Checks that a form has the same outputs and gradients of all parameters as the model, on graphs whose
    trees agree; all but a few do. Returns the largest error relative to the norm."""
    # With gradients: without, the compiled form would be compiled once more.
    same = same_trees(*(call(each, batch).tree.detach() for each in (model, form)), batch)
    share = float(same.double().mean())
    assert share >= AGREE, f"the trees of {1 - share:.1%} of the graphs differ"
    y = batch.y.masked_fill(~same, -100)  # which the loss passes over
    results = []
    for each in (model, form):
        out = step(model, each, batch, y).out.detach()[same]
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        results.append({"output": out, **grads})
    expected, found = results
    assert expected.keys() == found.keys()
    errors = {name: float((found[name] - e).norm() / e.norm()) for name, e in expected.items()}
    worst = max(errors, key=lambda name: errors[name])
    assert errors[worst] < TOLERANCE, f"{worst}: off by {errors[worst]:.1e} of its norm"
    return errors[worst]


def timed(
    config: Config, graphs: data.Graphs, buckets: Buckets, device: torch.device, seconds: float
) -> dict[str, float]:
    """Median seconds of a step in every form."""
    model, calls, batches = forms(config, graphs, buckets, device)
    for name, form in calls.items():
        if not isinstance(form, StaticForm):  # the model itself, with which it is compared
            continue
        error = max(check(model, form, batch) for batch in batches)
        assert form.misfits == 0
        print(f"{name}: the largest error of an output or a gradient is {error:.1e} of its norm")

    def steps(form: Callable[..., Prediction]) -> None:
        for batch in batches:
            step(model, form, batch, batch.y)

    times = common.timed({name: partial(steps, form) for name, form in calls.items()}, device, seconds)
    return {name: time.median / len(batches) for name, time in times.items()}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--dataset", choices=DATASETS, default=DATASETS[0])
    parser.add_argument("--padding", action="store_true", help="time nothing")
    parser.add_argument(
        "--data-root", type=Path, default=Path("data"), help="folder of raw data, PyG's layout"
    )
    options = parser.parse_args()
    device = common.prepare(options)
    config = configs.load(options.dataset).replace(dropout=0.0)
    if options.quick:
        config = config.replace(hidden=8, max_height=1, gnn_layers=1)
    try:
        graphs = data.load(config, options.data_root, Path("data"))
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"{options.dataset}: {error}")
    buckets = Buckets.of(sizes(graphs, epoch(graphs, config.batch_size, 0)))
    result = {
        "dataset": config.dataset,
        "batch_size": config.batch_size,
        "hidden": config.hidden,
        "buckets": padding(graphs, config.batch_size, buckets),
    }
    if not options.padding:
        result["seconds"] = timed(config, graphs, buckets, device, 1 if options.quick else 5)
    content = {"results": [result]}
    print(report(content))
    common.save(options.output / f"static_{options.dataset}_{options.device}.json", device, **content)


if __name__ == "__main__":
    main()
