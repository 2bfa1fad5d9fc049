"""Memory and time of a training step of whole models, ours and others', with the settings of the presets.

    python benchmarks/training.py --device cpu|cuda [--datasets PROTEINS,NCI1,DD] [--models gpn,topk]
                                  [--data-root data] [--processor-time] [--quick]

All models of `models/` run on the same batches. A training step is forward, backward, clipping and optimiser,
after two warm-up steps; "forward" is evaluation without gradients. Memory is the peak of the bytes that
torch's allocator handed out during the step, above those held before: batch, weights and the optimiser's
state. Every peak comes from its own process; for times, the models of a data set take turns. Before anything
is measured, the loss and all gradients of a step must be finite.
"""

import argparse
import functools
import json
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
from pages.training import DATASETS, plots, report
from torch import Tensor
from tqdm import tqdm

from models import config as configs
from models import data
from models.training import Place, Run, prepare

sys.path.insert(0, str(common.RESULTS.parent.parent))


ROOT = common.RESULTS.parent.parent


# A model's name, the settings that differ from the preset, and what tables call it.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    configs.NAMES["gpn"]: ("gpn", {}),
    "GPN, recompute=true": ("gpn", {"recompute": True}),
    "GPN, recompute=false": ("gpn", {"recompute": False}),
    **{name: (model, {}) for model, name in configs.NAMES.items() if model != "gpn"},
}


# The most nodes of a batch on the CPU; beyond, torch's profiler would need more memory than the model.
PROFILED = {configs.NAMES["edgepool"]: 10_000}
SHARES = (0.25, 0.5, 1, 2)  # of the preset's batch size


@functools.cache
def loaded(dataset: str, root: Path) -> data.Graphs:
    """A data set, shared by all models: it is read once, and forked processes inherit it."""
    return data.load(configs.load(dataset), root, Path("data"))


def first_graphs(dataset: str, num_graphs: int, root: Path) -> tuple[Tensor, int]:
    """The first graphs of the training set, and their number of nodes."""
    graphs = loaded(dataset, root)
    chosen = graphs.split(0, 0).train[:num_graphs]
    return chosen, int((graphs.node_ptr[chosen + 1] - graphs.node_ptr[chosen]).sum())


def make_run(
    variant: str, dataset: str, num_graphs: int, root: Path, device: torch.device
) -> tuple[Run, data.Batch]:
    """A model and a batch."""
    model, settings = VARIANTS[variant]
    config = configs.load(dataset, model=model, **settings)
    graphs = loaded(dataset, root)
    run = Run(config, graphs, 0, 0, Place(Path("results/training"), device, quiet=True))
    chosen, _ = first_graphs(dataset, num_graphs, root)
    return run, graphs.take(chosen).to(device, run.dtype)


def training_step(run: Run, batch: data.Batch) -> Callable[[], None]:
    def step() -> None:
        run.model.train()
        torch.manual_seed(0)
        run.step(batch, 0, batch.num_graphs)

    return step


def forward_step(run: Run, batch: data.Batch) -> Callable[[], None]:
    def step() -> None:
        run.model.eval()
        with torch.no_grad():
            run.forward(batch)

    return step


def validate(run: Run, batch: data.Batch) -> None:
    """Checks that loss and gradients of a step are finite, and that it changes every weight with a
    gradient."""
    run.model.train()
    loss, _ = run.step(batch, 0, batch.num_graphs)
    assert math.isfinite(loss), f"the loss is {loss}"
    for name, parameter in run.model.named_parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all()), f"gradient of {name}"


def measure_peaks(
    variant: str, dataset: str, num_graphs: int, root: Path, device: torch.device, threads: int
) -> dict[str, int]:
    """Peak bytes of one step."""
    prepare(device, threads)
    run, batch = make_run(variant, dataset, num_graphs, root, device)
    validate(run, batch)
    step = training_step(run, batch)
    step()
    run.optimizer.zero_grad()  # gradients are made in the step, and count
    return {
        "training": common.peak_bytes(step, device),
        "forward": common.peak_bytes(forward_step(run, batch), device),
    }


def measure_times(
    variants: list[str], dataset: str, root: Path, device: torch.device, threads: int, seconds: float
) -> dict[str, dict[str, common.Timing]]:
    """Seconds of a step: all models in turns."""
    prepare(device, threads)
    batch_size = configs.load(dataset).batch_size
    made = {variant: make_run(variant, dataset, batch_size, root, device) for variant in variants}
    steps = {"training": training_step, "forward": forward_step}
    return {
        name: common.timed({variant: step(*made[variant]) for variant in variants}, device, seconds)
        for name, step in steps.items()
    }


def to_accuracy(dataset: str) -> dict[str, dict[str, float]]:
    """The cost of the committed runs up to the epoch that they report, as means over all runs."""
    found = {}
    for model, name in configs.NAMES.items():
        path = ROOT / "models" / "results" / dataset / model / "runs.jsonl"
        if path.exists():
            runs = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = {
                "runs": len(runs),
                "accuracy": statistics.mean(run["test"] for run in runs),
                "epochs": statistics.mean(run["epoch"] for run in runs),
                "seconds": statistics.mean(run["seconds"] * run["epoch"] / run["epochs"] for run in runs),
                "commits": sorted({str(run["commit"]) for run in runs}),
            }
    return found


def measure(dataset: str, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """All measurements of a data set."""
    limits = common.limits(options) | {"seconds": options.time_limit}
    wanted = options.models.split(",") if options.models else list(configs.NAMES)
    if unknown := set(wanted) - set(configs.NAMES):
        sys.exit(f"--models: expected names among {', '.join(configs.NAMES)}, got {', '.join(unknown)}")
    variants = [name for name, (model, _) in VARIANTS.items() if model in wanted]
    preset = configs.load(dataset)
    results: list[dict[str, Any]] = []
    failed: set[str] = set()
    for variant in tqdm(variants, desc=f"{dataset}: memory"):
        for share in (0.5, 1) if options.quick else SHARES:
            chosen, num_nodes = first_graphs(
                dataset, max(1, round(share * preset.batch_size)), options.data_root
            )
            if device.type == "cpu" and num_nodes > PROFILED.get(variant, math.inf):
                break
            size = chosen.numel()
            peaks = common.isolated(
                measure_peaks, variant, dataset, size, options.data_root, device, options.threads, **limits
            )
            found = {"training": peaks, "forward": peaks} if isinstance(peaks, str) else peaks
            results.append(
                {"method": variant, "share": share, "num_graphs": size, "num_nodes": num_nodes, **found}
            )
            if isinstance(peaks, str):
                failed |= {variant} if share <= 1 else set()
                break
    seconds = common.isolated(
        measure_times,
        [variant for variant in variants if variant not in failed],
        dataset,
        options.data_root,
        device,
        options.threads,
        0.2 if options.quick else 1.0,
        **(limits | {"seconds": 3600}),
    )
    if isinstance(seconds, str):
        sys.exit(f"{dataset}: {seconds}")
    return {
        "dataset": dataset,
        "results": results,
        "seconds": {
            what: {name: timing._asdict() for name, timing in found.items()}
            for what, found in seconds.items()
        },
        "accuracy": to_accuracy(preset.dataset),
    }


def parser() -> argparse.ArgumentParser:
    parser = common.arguments(__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS), help="names, separated by commas")
    parser.add_argument("--models", default="", help="names, separated by commas (default: all)")
    parser.add_argument(
        "--data-root", type=Path, default=Path("data"), help="folder of raw data, PyG's layout"
    )
    common.add_limits(parser)
    parser.set_defaults(time_limit=600.0)
    return parser


def main() -> None:
    options = parser().parse_args()
    device = common.prepare(options)
    for dataset in options.datasets.split(","):
        path = options.output / f"training_{dataset}_{device.type}.json"
        measured = measure(dataset, options, device)
        content = common.save(path, device, limits=common.stated_limits(options), **measured)
        print("\n" + report(content))
        common.save_plots(path, plots(content))


if __name__ == "__main__":
    main()
