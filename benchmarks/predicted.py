"""Time of the layers and models of the cost model on a device, compared with its predictions.

    python benchmarks/predicted.py --device cuda [--method ParsePooling TopK] [--workload a b] [--quick]

The same modules on the same workloads as in gpu_model.py, at full size, forward and backward in training.
Every point has its own process, with limits; one that runs out of memory or time is marked so. The
predictions come from results/gpu_model.json. For a card that is not in it, give its peaks: --bandwidth in
GB/s and --operations in float32 TFLOP/s (without tensor cores). The prediction then uses the sums of bytes
and operations, as if all were one kernel, and is lower than the sum over kernels.
"""

import argparse
import json
import sys
from typing import Any, NamedTuple

import common
import gpu_cases
import torch
from pages.predicted import report
from torch import Tensor
from tqdm import tqdm

from gpn_ops import reference
from gpn_ops.nn import ParsePooling


class Peaks(NamedTuple):
    """The card of a prediction: one of the model by name, or another by its peaks."""

    name: str | None
    peaks: gpu_cases.Card | None


def inputs(workload: str, device: torch.device, quick: bool) -> tuple[Tensor, Tensor, Tensor]:
    """x, edge_index and batch; if quick, of the size that the model runs or smaller."""
    torch.manual_seed(0)
    size = gpu_cases.whole(workload)
    if quick:
        size = size._replace(graphs=min(size.graphs, 2), nodes=min(size.nodes, 60), pairs=min(size.pairs, 60))
    edge_index = size.edge_index().to(device)
    batch = torch.arange(size.graphs, device=device).repeat_interleave(size.nodes)
    return torch.randn(batch.numel(), gpu_cases.CHANNELS, device=device), edge_index, batch


def validate(device: torch.device) -> bool:
    """Whether the layer's clusters are those of the reference on its scores."""
    x, edge_index, batch = inputs("a", device, quick=False)
    pool = ParsePooling(gpu_cases.CHANNELS).to(device)
    with torch.no_grad():
        cluster = pool(x, edge_index, batch=batch).cluster
        scores = pool.select.scorer(x, edge_index)
    return torch.equal(cluster, reference.parse(edge_index, scores, x.size(0)))


def measure(method: str, form: str, workload: str, device: torch.device, quick: bool) -> dict[str, float]:
    """Median seconds of a step, forward and backward, and its peak memory."""
    x, edge_index, batch = inputs(workload, device, quick)
    model = gpu_cases.module(method, form, gpu_cases.LOADS[workload].run.nodes).to(device).train()
    num_graphs = int(batch[-1]) + 1

    def step() -> None:
        features = x.clone().requires_grad_()
        out = gpu_cases.called(model, form, features, edge_index, batch, num_graphs)
        torch.autograd.backward(out, [torch.ones_like(tensor) for tensor in out])

    seconds = common.timed({"step": step}, device, seconds=0.1 if quick else 3.0)["step"].median
    return {"seconds": seconds, "peak_bytes": common.peak_bytes(step, device)}


def seconds_predicted(entry: dict[str, Any] | None, card: Peaks) -> float | None:
    """The predicted seconds of an entry of gpu_model.json."""
    if entry is None:
        return None
    both = entry["both"]
    if card.name in both["ms"]:
        return both["ms"][card.name] / 1e3
    if card.peaks is None:
        return None
    at_once = gpu_cases.Kernel("all", both["launches"], both["waits"], both["bytes"], both["operations"])
    return max(both["host_ms"] / 1e3, at_once.seconds(card.peaks))


def card_of(options: argparse.Namespace, device: torch.device) -> Peaks:
    if options.bandwidth and options.operations:
        return Peaks(None, gpu_cases.Card(options.bandwidth * 1e9, options.operations * 1e12))
    name = "" if device.type == "cpu" else common.card(device)["name"]
    return Peaks(next((card for card in gpu_cases.CARDS if card in name), None), None)


def main() -> None:
    parser = common.arguments(__doc__)
    common.add_limits(parser)
    parser.add_argument("--method", nargs="*", choices=gpu_cases.METHODS, default=gpu_cases.METHODS)
    parser.add_argument("--workload", nargs="*", choices=gpu_cases.LOADS, default=list(gpu_cases.LOADS))
    parser.add_argument("--bandwidth", type=float, help="peak of this card, GB/s")
    parser.add_argument("--operations", type=float, help="peak of this card, float32 TFLOP/s")
    options = parser.parse_args()
    device = common.prepare(options)
    if not validate(device):
        sys.exit("the layer's clusters differ from the reference's")
    model = json.loads((common.RESULTS / "gpu_model.json").read_text())["results"]
    known = {(entry["method"], entry["form"], entry["workload"]): entry for entry in model}
    card = card_of(options, device)
    results = []
    points = [
        point
        for point in gpu_cases.points(options.method, options.workload)
        if not options.quick or (point[1] != "classifier" and point[2] == "a")
    ]
    for point in tqdm(points, file=sys.stderr):
        limits = {**common.limits(options), "device": device}
        found = common.isolated(measure, *point, device, options.quick, **limits)
        results.append(
            {
                **dict(zip(("method", "form", "workload"), point, strict=True)),
                **(found if isinstance(found, dict) else {"outcome": found}),
                "predicted": seconds_predicted(known.get(point), card),
            }
        )
    content = {
        "card": card.name,
        "workloads": {name: gpu_cases.LOADS[name].text for name in options.workload},
        "limits": common.stated_limits(options),
        "results": results,
    }
    print(report(content))
    common.save(options.output / f"predicted_{device.type}.json", device, **content)


if __name__ == "__main__":
    main()
