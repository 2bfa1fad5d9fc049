"""The classifier in static form beside its dynamic form, and what padding costs.

    python benchmarks/static.py --device cpu [--dataset PROTEINS] [--padding] [--data-root data] [--quick]

Padding: the batches of ten epochs of `python -m models.train <dataset>`, in buckets chosen by one epoch
before. Time: forward and backward of one such batch, by the preset's settings without dropout: in dynamic
form, in static form with its levels as measured, and that compiled by inductor. In static form the time
includes padding the batch and reading whether it did fit. Outputs and gradients of all three are compared
before anything is timed. With --padding nothing is timed: compiling takes minutes.
"""

import sys
from pathlib import Path
from typing import Any

import common
import torch
from pages.static import DATASETS, report
from torch import Tensor
from torch.nn import functional

from gpn_ops.nn import Buckets, Capacity, StaticForm, measured
from models import config as configs
from models import data
from models.config import Config
from models.training import make_model

EPOCHS = 10
MEASURED = 5  # batches that the capacities of levels come from


def epoch(graphs: data.Graphs, batch_size: int, seed: int) -> list[Tensor]:
    """The graphs of every batch of an epoch."""
    order = torch.randperm(graphs.num_graphs, generator=torch.Generator().manual_seed(seed))
    return list(order.split(batch_size))


def sizes(graphs: data.Graphs, batches: list[Tensor]) -> list[tuple[int, int]]:
    """Their numbers of nodes and edges."""
    nodes, edges = graphs.node_ptr.diff(), graphs.edge_ptr.diff()
    return [(int(nodes[batch].sum()), int(edges[batch].sum())) for batch in batches]


def padding(graphs: data.Graphs, batch_size: int, buckets: Buckets) -> list[dict[str, Any]]:
    """How much is added to the batches, by the size they are padded to."""
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


def levels(
    model: torch.nn.Module, graphs: data.Graphs, batches: list[Tensor], buckets: Buckets, device: torch.device
) -> tuple[Capacity, ...]:
    """For the first batch's size, capacities of levels that were enough for some batches."""
    rooms: list[tuple[Capacity, ...]] = []
    capacity = buckets(*sizes(graphs, batches[:1])[0])
    with torch.no_grad():
        for each in batches:
            batch = graphs.take(each).to(device, torch.float32)
            tree = model(batch.x, batch.edge_index, None, batch.batch, batch.num_graphs).tree
            rooms.append(measured(capacity, tree, batch.x.size(0)))
    height = max(map(len, rooms))
    rooms = [room + room[-1:] * (height - len(room)) for room in rooms]
    return tuple(
        Capacity(max(c.nodes for c in level), max(c.edges for c in level))
        for level in zip(*rooms, strict=True)
    )


def forms(
    config: Config, graphs: data.Graphs, buckets: Buckets, device: torch.device
) -> tuple[torch.nn.Module, dict[str, Any], data.Batch]:
    """The model, how it is called in every form, and a batch."""
    torch.manual_seed(0)
    model = make_model(config, graphs).to(device).train()
    batches = epoch(graphs, config.batch_size, 1)[:MEASURED]
    room = levels(model, graphs, batches, buckets, device)
    static, compiled = (
        StaticForm(model, buckets, config.batch_size, lambda _: room, compiled=made)
        for made in (None, torch.compile(model, fullgraph=True, dynamic=False))
    )
    calls = {"dynamic": model, "static": static, "static, compiled": compiled}
    return model, calls, graphs.take(batches[0]).to(device, torch.float32)


def timed(
    config: Config, graphs: data.Graphs, buckets: Buckets, device: torch.device, seconds: float
) -> dict[str, float]:
    """Median seconds of a step in every form."""
    model, calls, batch = forms(config, graphs, buckets, device)

    def step(form: Any) -> list[Tensor]:
        model.zero_grad()
        out = form(batch.x, batch.edge_index, None, batch.batch, batch.num_graphs).out
        functional.cross_entropy(out, batch.y).backward()
        grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        return [out.detach(), torch.cat(grads)]

    expected = step(model)
    for name, form in calls.items():
        for got, wanted in zip(step(form), expected, strict=True):
            error = float((got - wanted).norm() / wanted.norm())
            assert error < 1e-2, f"{name}: off by {error:.1e} of its norm"
    assert all(form.misfits == 0 for form in calls.values() if isinstance(form, StaticForm))
    times = common.timed(
        {name: lambda form=form: step(form) for name, form in calls.items()}, device, seconds
    )
    return {name: time.median for name, time in times.items()}


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
