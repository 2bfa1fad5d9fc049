"""Small data sets that tests name by import path, as ``synthetic:Rings(40)``, and processes of their own that
train on them."""

import contextlib
import io
import os
import resource
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from models import config as configs
from models import train
from models.data import register
from models.training import Place, Run

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def both(edges):
    """Both directions of some edges, sorted."""
    edge_index = torch.tensor(edges, dtype=torch.int64).view(-1, 2).t()
    return torch.cat([edge_index, edge_index.flip(0)], dim=1).unique(dim=1)


def ring(num_nodes):
    return both([(i, (i + 1) % num_nodes) for i in range(num_nodes)])


def star(num_nodes):
    return both([(0, i) for i in range(1, num_nodes)])


@register
class Rings(list):
    """Rings and stars, which their degrees tell apart, with noise for features. Only every ``edged``-th graph
    has its edges."""

    def __init__(self, num_graphs=40, edged=1, features=3):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for k in range(num_graphs):
            label = k % 2
            num_nodes = int(torch.randint(4, 9, (), generator=generator))
            edge_index = star(num_nodes) if label else ring(num_nodes)
            if k % edged:
                edge_index = edge_index[:, :0]
            x = torch.randn(num_nodes, features, generator=generator)
            self.append(Data(x, edge_index, y=torch.tensor([label])))


@register
class Molecules(list):
    """Rings and stars of atoms and bonds; two tasks, of which some labels are missing."""

    def __init__(self, num_graphs=40):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for k, graph in enumerate(Rings(num_graphs)):
            x = torch.randint(4, (graph.num_nodes, 2), generator=generator)
            bond = torch.full((graph.num_edges, 1), k % 3)
            y = torch.tensor([[float(k % 2), float(k % 3 == 0)]])
            if k % 4 == 3:
                y[0, k % 2] = torch.nan
            self.append(Data(x, graph.edge_index, bond, y=y))


@register
class Communities(list):
    """One graph of two communities, its nodes' labels, and ``splits`` splits."""

    def __init__(self, num_nodes=60, splits=2):
        generator = torch.Generator().manual_seed(0)
        y = torch.arange(num_nodes) % 2
        pairs = torch.combinations(torch.arange(num_nodes))
        chance = torch.where(y[pairs[:, 0]] == y[pairs[:, 1]], 0.15, 0.01)
        edges = pairs[torch.rand(len(pairs), generator=generator) < chance]
        x = torch.rand(num_nodes, 5, generator=generator) + 0.5 * torch.nn.functional.one_hot(y, 5)
        graph = Data(x, both(edges.tolist()), y=y)
        part = torch.stack([torch.randperm(num_nodes, generator=generator) % 3 for _ in range(splits)], dim=1)
        graph.train_mask, graph.val_mask, graph.test_mask = part == 0, part == 1, part == 2
        super().__init__([graph])


class Stored(InMemoryDataset):
    """A data set of PyG's own kind, with a folder."""

    def __init__(self, root, num_graphs=20):
        self.num = num_graphs
        super().__init__(root)
        self.load(self.processed_paths[0])

    @property
    def processed_file_names(self):
        return f"{self.num}.pt"

    def process(self):
        self.save(list(Rings(self.num)), self.processed_paths[0])


class Failing(Rings):
    """Loads, but the graphs of one class have features that are not numbers, so that every run fails."""

    def __init__(self, num_graphs=40):
        super().__init__(num_graphs)
        for graph in self[::2]:
            graph.x = graph.x * torch.nan


def environment(**variables):
    """For processes that are to import this file and ``models``."""
    path = os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables}


def arguments(dataset, folder, settings, *others):
    """Those of a training command: one fold, one thread, with these settings, all files in one folder."""
    fixed = [
        "--folds",
        "0",
        "--threads",
        "1",
        "--quiet",
        "--output",
        str(folder),
        "--data-cache",
        str(folder),
    ]
    chosen = [part for setting in settings for part in ("--set", setting)]
    return [dataset, *fixed, *chosen, *map(str, others)]


def folder_of(command):
    """Where the training command writes to."""
    options = train.parser().parse_args(list(map(str, command)))
    return train.run_folder(options.output, train.chosen(options))


def start(*arguments, launcher=(), **options):
    """Starts ``python -m models.train`` with these arguments; the output is text, in one stream."""
    command = [sys.executable, *launcher, "-m", "models.train", *map(str, arguments)]
    # Tests that a script runs in the background ignore Ctrl-C, and what they start would do so too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment(),
            **options,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def small(dataset, *overrides, **values):
    """Settings with which a run takes a second."""
    settings = {
        "hidden": 8,
        "gnn_layers": 1,
        "warmup": 0,
        "lr": 0.01,
        "batch_size": 8,
        "max_epochs": 4,
        "dropout": 0.2,
    }
    return configs.load(dataset, list(overrides), **{**settings, **values})


class Killed(BaseException):
    """Stands for the end of a process: nothing in the code takes care of it."""


def trained(config, graphs, folder, kill_after=None, fold=0, seed=0, **place):
    """The record of a run, and its lines of epochs/; with ``kill_after``, ended after so many epochs."""

    class Mortal(Run):
        def train_epoch(self):
            if self.epoch == kill_after:
                raise Killed
            return super().train_epoch()

    options = {"checkpoint_every": 0.0, "quiet": True, **place}
    run = Mortal(config, graphs, fold, seed, Place(folder, torch.device("cpu"), **options))
    try:
        record = run.train()
    except Killed:
        return None
    run.remove_checkpoint()
    record.pop("seconds")
    return record, run.place.file("epochs", fold, seed).read_text()


@contextlib.contextmanager
def small_disk(folder, size):
    """A folder that holds so many bytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextlib.contextmanager
def small_files(size):
    """No file of this process may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def flipped(content):
    """A file of torch with one bit of its largest tensor flipped."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        tensor = archive.read(max(archive.infolist(), key=lambda entry: entry.file_size))
    place = content.index(tensor) + len(tensor) // 2
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
