"""Seconds of a training epoch, compared with the matrix products that it needs.

    python benchmarks/epoch.py --device cpu|cuda [--datasets NCI1,PROTEINS,Cora] [--data-root data] [--quick]

An epoch of `python -m models.train <dataset>` with the preset's settings: batches, forward, backward,
clipping and optimiser. Its limit is the time of its dense matrix products, forward and backward: they are
recorded during an epoch, then run alone with the same shapes, strides and threads, into preallocated memory.
Epochs and replays take turns. Before anything is timed, the gradients of a step are compared with float64.
"""

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
from pages.epoch import report
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm import tqdm

from models import config as configs
from models import data
from models.training import Place, Run, loss_sum, prepare

DATASETS = ("NCI1", "PROTEINS", "Cora")
FACTORS = {"mm": (0, 1), "addmm": (1, 2), "addmm_": (1, 2), "mv": (0, 1), "addmv": (1, 2), "bmm": (0, 1)}


class Products(TorchDispatchMode):
    """Records the matrix products that run while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.operations = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: Any = None
    ) -> Any:
        factors = FACTORS.get(function.overloadpacket.__name__)
        if factors is not None and function.namespace == "aten":
            left, right = (arguments[k] for k in factors)
            self.calls.append(tuple((tuple(t.shape), t.stride()) for t in (left, right)))
            self.operations += 2 * left.numel() * (right.size(-1) if right.dim() > 1 else 1)
        return function(*arguments, **(keywords or {}))

    def replay(self, device: torch.device, dtype: torch.dtype) -> Callable[[], None]:
        """Runs the products alone, on preallocated tensors of the same shapes and strides."""
        tensors: dict[Any, Tensor] = {}

        def tensor(shape: tuple[int, ...], stride: tuple[int, ...], key: str) -> Tensor:
            made = tensors.get((shape, stride, key))
            if made is None:
                made = torch.empty_strided(shape, stride, device=device, dtype=dtype).normal_()
                tensors[shape, stride, key] = made
            return made

        work = []
        for left, right in self.calls:
            a, b = tensor(*left, "left"), tensor(*right, "right")
            shape = (*a.shape[:-1], *b.shape[a.dim() - 1 :])
            out = tensor(shape, torch.empty(shape, device="meta").stride(), "out")
            work.append((a, b, out))

        def run() -> None:
            for a, b, out in work:
                torch.matmul(a, b, out=out)

        return run


def make_run(dataset: str, root: Path, device: torch.device, double: bool = False) -> Run:
    config = configs.load(dataset).replace(double=double, average=0.0)  # not the average of weights
    graphs = data.load(config, root, Path("data"))
    return Run(config, graphs, 0, 0, Place(Path("results/epoch"), device, quiet=True))


def validate(dataset: str, root: Path, device: torch.device) -> None:
    """Checks that the gradients of a step agree with float64, to the rounding of float32."""
    found = []
    for double in (False, True):
        run = make_run(dataset, root, device, double)
        weights = make_run(dataset, root, device).model.state_dict()
        run.model.load_state_dict(weights)
        run.model.eval()  # without dropout
        batch = run.whole or run.graphs.take(run.split.train[:32]).to(device, run.dtype)
        prediction = run.forward(batch)
        loss_sum(prediction.out, batch.y).backward()
        found.append([p.grad.double() for p in run.model.parameters() if p.grad is not None])
    for single, double_ in zip(*found, strict=True):
        error = float((single - double_).norm() / double_.norm().clamp(min=1e-12))
        assert error < 1e-2, f"{dataset}: a gradient is off by {error:.1e} of its norm"


def measure(dataset: str, root: Path, device: torch.device, repeats: int, threads: int) -> dict[str, Any]:
    prepare(device, threads)
    run = make_run(dataset, root, device)

    def epoch() -> None:
        run.epoch = 1  # always the same batches
        run.train_epoch()

    epoch()
    with Products() as products:
        epoch()
    replay = products.replay(device, run.dtype)
    replay()

    times = [
        (common.elapsed(epoch, device), common.elapsed(replay, device))
        for _ in tqdm(range(repeats), desc=dataset, leave=False)
    ]
    return {
        "dataset": dataset,
        "seconds": statistics.median(each[0] for each in times),
        "limit": statistics.median(each[1] for each in times),
        "ratio": statistics.median(each[0] / each[1] for each in times),
        "lowest_ratio": min(each[0] / each[1] for each in times),
        "highest_ratio": max(each[0] / each[1] for each in times),
        "products": len(products.calls),
        "operations": products.operations,
        "repeats": repeats,
    }


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS), help="names, separated by commas")
    parser.add_argument(
        "--data-root", type=Path, default=Path("data"), help="folder of raw data, PyG's layout"
    )
    options = parser.parse_args()
    device = common.prepare(options)
    names = options.datasets.split(",")[-1:] if options.quick else options.datasets.split(",")
    results = []
    for name in names:
        try:
            validate(name, options.data_root, device)
        except (FileNotFoundError, ValueError) as error:
            sys.exit(f"{name}: {error}")
        results.append(measure(name, options.data_root, device, 3 if options.quick else 7, options.threads))
    content = {"results": results}
    print(report(content))
    common.save(options.output / f"epoch_{options.device}.json", device, **content)


if __name__ == "__main__":
    main()
