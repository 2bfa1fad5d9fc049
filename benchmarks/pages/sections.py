"""All benchmarks that have a section in docs/benchmarks.md, and their saved results."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import common

from . import coarsen, epoch, layer, memory, parse, predicted, speed, static, traffic, training

DEVICES = ("cpu", "cuda")


class Section(NamedTuple):
    """One benchmark: its file of results, how it is made, and what a reader should know."""

    stem: str
    title: str
    command: str
    module: Any
    notes: str


SECTIONS = [
    Section("parse", "Parsing", "parse.py --instructions", parse, parse.NOTES),
    Section("coarsen", "Coarsening", "coarsen.py", coarsen, coarsen.NOTES),
    Section("layer", "The layer beside its own matrix products", "layer.py", layer, layer.NOTES),
    Section("parse_hubs", "Parsing a real graph with hubs", "parse.py --hubs", parse, ""),
    Section("parse_busy", "Parsing beside a busy process", "parse.py --busy 1", parse, parse.BUSY),
    Section("coarsen_hubs", "Coarsening a real graph with hubs", "coarsen.py --hubs", coarsen, ""),
    Section("layer_hubs", "The layer on a real graph with hubs", "layer.py --hubs", layer, ""),
    Section("memory_forward", "Memory, forward", "memory.py", memory, memory.NOTES),
    Section("memory_backward", "Memory, forward and backward", "memory.py --backward", memory, ""),
    *(
        Section(
            f"training_{dataset}",
            f"Whole models on {dataset}",
            f"training.py --datasets {dataset} --processor-time",
            training,
            training.NOTES if dataset == training.DATASETS[-1] else "",
        )
        for dataset in training.DATASETS
    ),
    *(
        Section(
            f"static_{dataset}",
            f"Static form, {dataset}",
            f"static.py --dataset {dataset} --processor-time",
            static,
            static.NOTES if dataset == static.DATASETS[-1] else "",
        )
        for dataset in static.DATASETS
    ),
    Section("epoch", "A training epoch", "epoch.py --threads 1", epoch, epoch.NOTES),
    Section("speed_forward", "Time, forward", "speed.py", speed, speed.NOTES),
    Section("speed_backward", "Time, forward and backward", "speed.py --backward", speed, ""),
    Section("speed_paper_forward", "Time, forward, the paper's batches", "speed.py --paper", speed, ""),
    Section(
        "speed_paper_backward",
        "Time, forward and backward, the paper's batches",
        "speed.py --paper --backward",
        speed,
        "",
    ),
    Section("traffic", "Operators beside their predictions", "traffic.py", traffic, ""),
    Section(
        "predicted", "Layers and models beside their predictions", "predicted.py", predicted, predicted.NOTES
    ),
]


class Saved(NamedTuple):
    """A section's results on one device."""

    section: Section
    device: str
    path: Path
    content: dict[str, Any]

    def plots(self) -> dict[str, common.Plot]:
        """What is drawn of them, by the ending of the file's name."""
        module = self.section.module
        return module.plots(self.content) if hasattr(module, "plots") else {}


def saved(devices: tuple[str, ...] = DEVICES) -> Iterator[Saved]:
    """All results that there are: section by section, a card's beside the CPU's."""
    for section in SECTIONS:
        for device in devices:
            path = common.RESULTS / f"{section.stem}_{device}.json"
            if path.exists():
                yield Saved(section, device, path, json.loads(path.read_text()))


def machine_line(content: dict[str, Any]) -> str:
    """Where and how figures were measured."""
    machine, limits = content["machine"], content.get("limits")
    where = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    card = "".join(
        f", {name.replace('_', ' ')} {value}"
        for name, value in machine.get("card", {}).items()
        if name != "name"
    )
    text = (
        f"Measured on {where}{card}, {common.how(machine)}, torch {machine['torch']}, "
        f"Python {machine['python']}, commit {machine['commit']}, {machine['date']}."
    )
    if limits:
        of_clock = f" of {common.PROCESSOR}" if limits.get("clock") == common.PROCESSOR else ""
        text += f" A point had {limits['memory_gib']} GiB and {limits['seconds']:g} seconds{of_clock}."
    return text
