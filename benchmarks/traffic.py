"""The bytes that the CUDA kernels must move, the time that this implies on known cards, and how close a GPU
gets to it.

    python benchmarks/traffic.py --device cuda    # time each operator and compare with the bounds

benchmarks/gpu_model.py models the launches and the cost of a layer without a GPU.

Traffic has two bounds. Low: every word counts once, as if all accesses to neighbouring words met in a cache.
High: an access to an unpredictable place costs a memory sector of 32 bytes. A time far above that of the high
bound is worth a look with a profiler.
"""

from collections.abc import Callable
from typing import Any

import common
import torch
from pages.traffic import report
from torch import Tensor
from traffic_model import CARDS, Size, steps_of

import gpn_ops

DRIVER_NAMES = {"A100-SXM4-80GB": "A100 80GB SXM", "H100 80GB HBM3": "H100 SXM"}  # as torch reports them
OPERATORS = ("dominant", "parse", "components", "coarsen", "mask", "reduce", "pair_dot")
DOCUMENTED = Size(nodes=1_000_000, edges=10_000_000, clusters=400_000, channels=64)


def calls(size: Size, device: torch.device) -> tuple[Size, dict[str, Callable[[], object]]]:
    """The operators on a random graph of about this size, and the resulting sizes."""
    edge_index, scores = (part.to(device) for part in common.random_graph(size.nodes, size.edges // 2))
    cluster = gpn_ops.parse(edge_index, scores, size.nodes)
    clusters = int(cluster.max()) + 1
    x = torch.randn(size.nodes, size.channels, device=device)
    weight = torch.randn(size.channels, device=device)
    pairs: Tensor = edge_index
    return Size(size.nodes, edge_index.size(1), clusters, size.channels), {
        "dominant": lambda: gpn_ops.dominant(edge_index, scores, size.nodes),
        "parse": lambda: gpn_ops.parse(edge_index, scores, size.nodes),
        "components": lambda: gpn_ops.components(edge_index, size.nodes),
        "coarsen": lambda: gpn_ops.coarsen(edge_index, cluster),
        "mask": lambda: gpn_ops.mask(edge_index, scores, cluster, clusters),
        "reduce": lambda: gpn_ops.reduce(x, cluster, clusters),
        "pair_dot": lambda: gpn_ops.pair_dot(x, weight, pairs),
    }


def peak_bandwidth(name: str) -> float | None:
    """GB/s of a card by the name that torch reports, if the card is known."""
    names = {card: card for card in CARDS} | DRIVER_NAMES
    return next((CARDS[card] for reported, card in names.items() if reported in name), None)


def measure(size: Size, device: torch.device, bandwidth: float | None) -> dict[str, Any]:
    """Seconds of every operator, and the bytes that it is predicted to move."""
    size, functions = calls(size, device)
    results = []
    for operator, timing in common.timed(functions, device).items():
        steps = steps_of(operator, size)
        low, high = (sum(getattr(step, bound)(size) for step in steps) for bound in ("low", "high"))
        results.append({"operator": operator, "seconds": timing.median, "low": low, "high": high})
    return {"size": size._asdict(), "bandwidth": bandwidth, "results": results}


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument(
        "--bandwidth", type=float, help="peak GB/s of this device (default: that of a known card)"
    )
    options = parser.parse_args()
    device = common.prepare(options)
    bandwidth = options.bandwidth
    if bandwidth is None and device.type != "cpu":
        bandwidth = peak_bandwidth(common.card(device)["name"])
    size = DOCUMENTED if not options.quick else Size(10_000, 100_000, 4_000, 16)
    content = measure(size, device, bandwidth)
    print(report(content))
    common.save(options.output / f"traffic_{device.type}.json", device, **content)


if __name__ == "__main__":
    main()
