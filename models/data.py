"""Data sets for the training code: all graphs in a few long tensors, and their splits."""

import contextlib
import errno
import importlib
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data, Dataset
from torch_geometric.utils import degree, is_undirected, to_undirected

from . import files
from .config import Config, import_path, presets

# Those of the paper, and one for tests; any other name is taken for one of these too.
TU = ("PROTEINS", "DD", "NCI1", "NCI109", "FRANKENSTEIN", "MUTAG")
# Of these, the node features are attributes: without them there is nothing to learn from.
WITH_ATTRIBUTES = ("FRANKENSTEIN",)
PLANETOID = ("Cora", "CiteSeer", "PubMed")
MOLECULES = ("HIV", "Tox21")
HETEROPHILOUS = ("Minesweeper", "Tolokers")
NUM_FOLDS = 10
# The order of data sets in tables and pictures.
ORDER = (*TU, *PLANETOID, "Film", *HETEROPHILOUS, *MOLECULES)

Made = TypeVar("Made")


def position(known: Sequence[str], name: str) -> int:
    """The position of a name; unknown names come last."""
    return known.index(name) if name in known else len(known)


class Batch(NamedTuple):
    """Several graphs as one disconnected graph."""

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    batch: Tensor
    y: Tensor

    @property
    def num_graphs(self) -> int:
        return self.y.size(0)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Batch":
        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype if tensor.is_floating_point() else None, non_blocking=True)

        return Batch(*(None if tensor is None else moved(tensor) for tensor in self))


class Split(NamedTuple):
    """The numbers of the graphs (or nodes) to train, validate and test on."""

    train: Tensor
    val: Tensor
    test: Tensor


@dataclass
class Graphs:
    """All graphs of a data set. Node ids of ``edge_index`` count from 0 in every graph."""

    x: Tensor
    edge_index: Tensor
    edge_attr: Tensor | None
    y: Tensor
    """A row per graph, or per node for node tasks."""
    node_ptr: Tensor
    """The nodes of graph g are ``node_ptr[g]`` to ``node_ptr[g + 1]``."""
    edge_ptr: Tensor
    out_channels: int
    x_sizes: list[int] = field(default_factory=list)
    """The number of values of every categorical feature (molecules)."""
    edge_sizes: list[int] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    """The splits that come with the data, if any."""
    smiles: list[str] = field(default_factory=list)
    """Of every molecule, where they come with it; atoms are numbered alike."""

    @property
    def num_graphs(self) -> int:
        return self.node_ptr.numel() - 1

    def split(self, fold: int, seed: int) -> Split:
        """The split that comes with the data, or of scikit-learn's folds for this seed: fold ``fold`` tests,
        the one before validates, the others train."""
        if self.splits:
            if fold >= len(self.splits):
                raise ValueError(f"fold: expected below {len(self.splits)}, got {fold}")
            return self.splits[fold]
        from sklearn.model_selection import KFold

        if not 0 <= fold < NUM_FOLDS:
            raise ValueError(f"fold: expected below {NUM_FOLDS}, got {fold}")
        if self.y.size(0) < NUM_FOLDS:
            raise ValueError(
                f"data: expected at least {NUM_FOLDS} graphs for cross-validation, got {self.y.size(0)}"
            )
        folds = [
            torch.from_numpy(test)
            for _, test in KFold(NUM_FOLDS, shuffle=True, random_state=seed).split(range(self.y.size(0)))
        ]
        train = torch.ones(self.y.size(0), dtype=torch.bool)
        train[folds[fold]] = train[folds[fold - 1]] = False
        return Split(train.nonzero().view(-1), folds[fold - 1], folds[fold])

    @property
    def num_folds(self) -> int:
        return len(self.splits) or NUM_FOLDS

    def take(self, index: Tensor) -> Batch:
        """The graphs with these numbers, as one batch."""
        nodes, num_nodes = _ranges(self.node_ptr, index)
        edges, num_edges = _ranges(self.edge_ptr, index)
        offset = (num_nodes.cumsum(0) - num_nodes).repeat_interleave(num_edges)
        return Batch(
            x=self.x.index_select(0, nodes),
            edge_index=self.edge_index.index_select(1, edges) + offset,
            edge_attr=None if self.edge_attr is None else self.edge_attr.index_select(0, edges),
            batch=torch.arange(index.numel()).repeat_interleave(num_nodes),
            y=self.y.index_select(0, index),
        )

    def batches(self, parts: list[Tensor], device: torch.device, dtype: torch.dtype) -> Iterator[Batch]:
        """Iterates over batches; each is prepared while the previous one is in use."""

        def prepare(index: Tensor) -> Batch:
            return self.take(index).to(device, dtype)

        with ThreadPoolExecutor(1) as worker:
            ahead = worker.submit(prepare, parts[0]) if parts else None
            for k in range(len(parts)):
                batch = ahead.result()
                if k + 1 < len(parts):
                    ahead = worker.submit(prepare, parts[k + 1])
                yield batch


def _ranges(ptr: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers from ``ptr[g]`` up to ``ptr[g + 1]`` for every g in ``index``, and their count for each
    g."""
    start = ptr.index_select(0, index)
    size = ptr.index_select(0, index + 1) - start
    first = size.cumsum(0) - size
    return torch.arange(int(size.sum())) + (start - first).repeat_interleave(size), size


# ------------------------------------------------------------------------------------------------------------
# Loading
# ------------------------------------------------------------------------------------------------------------


def load(config: Config, root: Path = Path("data"), cache: Path | None = None) -> Graphs:
    """Loads a data set. PyG downloads missing raw files.

    Args:
        config: The settings; ``dataset``, ``task``, ``complete`` and ``degree`` matter.
        root: The folder of raw files, in PyG's layout, such as ``TUDataset/PROTEINS/raw``.
        cache: Where PyG may write prepared files. (default: ``root``)

    Raises:
        FileNotFoundError: if the raw files are missing and cannot be had.
        OSError: if the disk is full, or cannot be written to.
        ValueError: if the data does not fit the task.
    """
    name = config.dataset
    splits: list[Split] = []
    x_sizes: list[int] = []
    edge_sizes: list[int] = []
    cache = root if cache is None else cache
    with _alone(name, cache):
        if ":" in name:
            dataset = _imported(name)
        else:
            dataset, splits = _known(name, root, cache)
    graphs = [_undirected(dataset[k]) for k in range(len(dataset))]
    if not graphs:
        raise ValueError(f"{name}: expected at least one graph, got none")

    if config.task == "node":
        return _node_task(graphs, name)
    if config.task == "molecule":
        x_sizes, edge_sizes = _category_sizes(name, graphs)
    if any(graph.y is None for graph in graphs):
        raise ValueError(f"{name}: expected graphs with labels y, got one without")
    if config.task == "graph" and config.degree:
        _append_degree(graphs)
    if any(graph.x is None for graph in graphs):
        raise ValueError(f"{name}: expected node features x; without any, set degree=true")
    if config.complete:
        if config.task == "molecule":
            raise ValueError("complete: expected false for molecules, whose bonds have features")
        graphs = [_complete(graph) for graph in graphs]

    y = torch.cat([torch.as_tensor(graph.y).view(1, -1) for graph in graphs])
    if config.task == "graph":
        if y.size(1) != 1 or y.is_floating_point():
            raise ValueError(f"{name}: expected one integer label a graph, got {y.dtype} {list(y.shape)}")
        if int(y.min()) < 0:
            raise ValueError(f"{name}: expected labels that count from 0, got {int(y.min())}")
        y = y.view(-1)
    else:
        y = y.to(torch.float32)
    has_attr = config.task == "molecule"
    return Graphs(
        x=torch.cat([graph.x for graph in graphs]),
        edge_index=torch.cat([graph.edge_index for graph in graphs], dim=1),
        edge_attr=torch.cat([graph.edge_attr for graph in graphs]) if has_attr else None,
        y=y,
        node_ptr=_pointers([graph.num_nodes for graph in graphs]),
        edge_ptr=_pointers([graph.num_edges for graph in graphs]),
        out_channels=int(y.max()) + 1 if config.task == "graph" else y.size(1),
        x_sizes=x_sizes,
        edge_sizes=edge_sizes,
        splits=splits,
        smiles=[graph.smiles for graph in graphs] if name in MOLECULES else [],
    )


def _pointers(sizes: list[int]) -> Tensor:
    return torch.tensor([0, *sizes]).cumsum(0)


def _known(name: str, root: Path, cache: Path) -> tuple[Any, list[Split]]:
    """A data set by its name, and the splits that come with it."""
    from torch_geometric import datasets

    def made(folder: Path, make: Callable[[], Any], *aliases: str) -> tuple[Any, list[Split]]:
        return _prepared(name, folder, root, cache, make, aliases), []

    if name in PLANETOID:
        planetoid = str(cache / "Planetoid")
        folder = Path("Planetoid", name, "geom-gcn")
        return made(folder, lambda: datasets.Planetoid(planetoid, name, split="geom-gcn"))
    if name == "Film":
        return made(Path("Actor"), lambda: datasets.Actor(str(cache / "Actor")))
    if name in HETEROPHILOUS:
        heterophilous = str(cache / "HeterophilousGraphDataset")
        folder = Path("HeterophilousGraphDataset", name.lower())
        return made(folder, lambda: datasets.HeterophilousGraphDataset(heterophilous, name))
    if name in MOLECULES:
        folder = Path("MoleculeNet", name.lower())
        dataset, _ = made(folder, lambda: datasets.MoleculeNet(str(cache / "MoleculeNet"), name), name)
        return dataset, [scaffold_split([graph.smiles for graph in dataset])]
    if name.startswith("ogbg-"):
        return _ogb(name, root, cache)
    tu = str(cache / "TUDataset")
    try:
        dataset, splits = made(
            Path("TUDataset", name), lambda: datasets.TUDataset(tu, name, use_node_attr=True)
        )
    except FileNotFoundError as error:
        if name in TU:
            raise
        raise FileNotFoundError(
            f"{error} No preset has this name ({', '.join(presets())}), so it was taken for a TUDataset's."
        ) from error
    if name in WITH_ATTRIBUTES and dataset.num_node_attributes == 0:
        # PyG takes the file for one that the set does not have. Degrees alone would train, to no purpose.
        raw = root / "TUDataset" / name / "raw" / f"{name}_node_attributes.txt"
        raise FileNotFoundError(
            f"{name}: expected a row of attributes for every node in {raw}, which is missing. Put it there, "
            f"and remove {cache / 'TUDataset' / name / 'processed'}."
        )
    return dataset, splits


def _ogb(name: str, root: Path, cache: Path) -> tuple[Any, list[Split]]:
    try:
        from ogb.graphproppred import PygGraphPropPredDataset
    except ImportError as error:
        raise FileNotFoundError(f"{name}: needs the package ogb: pip install ogb") from error
    from torch_geometric.data import data, storage

    torch.serialization.add_safe_globals(
        [data.Data, data.DataEdgeAttr, data.DataTensorAttr, storage.GlobalStorage]
    )

    def make() -> tuple[Any, list[Split]]:
        dataset = PygGraphPropPredDataset(name, str(cache / "ogb"))
        split = dataset.get_idx_split()
        return dataset, [Split(split["train"], split["valid"], split["test"])]

    return _prepared(name, Path("ogb", name.replace("-", "_")), root, cache, make)


def scaffold_split(smiles: Sequence[str]) -> Split:
    """Splits molecules into 80, 10 and 10 per cent so that molecules with the same scaffold (Bemis and
    Murcko's: rings and their linkers) stay together. Common scaffolds train, rare ones test, as in
    MoleculeNet.

    A scaffold goes to the first part with room for all its molecules. Scaffolds with more molecules come
    first, and among equals the one that appears later in the data.
    """
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    by_scaffold: dict[str, list[int]] = {}
    for number, each in enumerate(smiles):
        by_scaffold.setdefault(MurckoScaffoldSmiles(each), []).append(number)
    train: list[int] = []
    val: list[int] = []
    test: list[int] = []
    for members in sorted(by_scaffold.values(), key=lambda found: (len(found), found[0]), reverse=True):
        if 10 * (len(train) + len(members)) <= 8 * len(smiles):
            train += members
        elif 10 * (len(train) + len(val) + len(members)) <= 9 * len(smiles):
            val += members
        else:
            test += members
    return Split(*(torch.tensor(sorted(part), dtype=torch.int64) for part in (train, val, test)))


@contextlib.contextmanager
def _alone(name: str, cache: Path) -> Iterator[None]:
    """A lock, because two processes that prepare the same files would damage each other's."""
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):  # In a folder that cannot be written to there is nothing to spoil.
            cache.mkdir(parents=True, exist_ok=True)
            path = cache / f".{re.sub(r'[^A-Za-z0-9]+', '-', name)[:100]}.lock"
            files.lock(opened.enter_context(path.open("w")))
        yield


# What a disk says, and no failed download.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)


def _prepared(
    name: str, folder: Path, root: Path, cache: Path, make: Callable[[], Made], aliases: Sequence[str] = ()
) -> Made:
    """The result of ``make``, which reads ``folder`` of the cache and adds missing files.

    Prepared files that are damaged, for example by a kill or a flipped bit, or that PyG cannot read, are set
    aside and prepared again. Unfinished files are removed.

    Raises:
        FileNotFoundError: if raw files are missing and cannot be downloaded.
        OSError: if the disk is full, or cannot be written to.
    """
    target = cache / folder
    processed = target / "processed"
    try:
        _link_raw_files(folder, root, target, aliases)
        _check_prepared(processed)
        if any(processed.glob("*.pt")):
            try:
                return make()
            except pickle.UnpicklingError as error:  # Whole, but of another version.
                files.set_aside(processed, str(error).partition("\n")[0], "made anew")
        raw_was_there = (target / "raw").exists()
        try:
            return make()
        except BaseException:
            if processed.exists():  # Raw files are complete before these are begun.
                shutil.rmtree(processed, ignore_errors=True)
            elif not raw_was_there:
                shutil.rmtree(target / "raw", ignore_errors=True)
            raise
    except (OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            error.filename = error.filename or str(target)
            raise
        # A failed download is an OSError, whatever the reason.
        raise FileNotFoundError(
            f"{name}: no raw files in {root / folder / 'raw'}, and no download ({error}). "
            f"Put them there, or name the folder that holds {folder} with --data-root."
        ) from error


def _link_raw_files(folder: Path, root: Path, target: Path, aliases: Sequence[str]) -> None:
    """Links the raw files of ``folder`` from ``root`` into the cache."""
    places = [root / folder, *(root / folder.parent / alias for alias in aliases)]
    source = next((place for place in places if (place / "raw").is_dir()), None)
    if source is None or source.resolve() == target.resolve():
        return
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        link = target / entry.name
        if link.is_symlink() and not link.exists():
            link.unlink()  # What it led to has moved.
        elif link.is_dir() and not link.is_symlink() and not any(link.iterdir()):
            link.rmdir()  # Left by a failed download.
        if entry.name != "processed" and not link.exists():
            os.symlink(entry.resolve(), link)


def _check_prepared(processed: Path) -> None:
    """Sets the folder aside if one of its files is damaged."""
    for path in sorted(processed.glob("*.pt")):
        try:
            files.check_archive(path)
        except ValueError as error:
            files.set_aside(processed, f"{path.name}: {error}", "made anew")
            return


_registered: set[type] = set()


def register(cls: type) -> type:
    """Decorates a class that import paths may name although it is not one of PyG's data sets. It has a
    length, and a ``Data`` for every index.

    Example:
        >>> from models.data import register
        >>> @register
        ... class Mine(list):
        ...     pass
    """
    _registered.add(cls)
    return cls


def _imported(path: str) -> Any:
    """The data set that ``package.module:Class(root, key=value)`` names.

    Raises:
        ValueError: if there is no such class, or if it is not a data set; it is then not called.
    """
    module, name, arguments, keywords = import_path(path)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"dataset: {path!r} cannot be imported ({error})") from error
    if not isinstance(found, type) or not issubclass(found, (Dataset, *_registered)):
        raise ValueError(
            f"dataset: expected a class of torch_geometric.data.Dataset, or one that "
            f"models.data.register knows, got {path!r}"
        )
    return found(*arguments, **keywords)


# ------------------------------------------------------------------------------------------------------------
# Preparing
# ------------------------------------------------------------------------------------------------------------


def _undirected(graph: Data) -> Data:
    """Both directions of every edge, sorted; both have the features of the bond."""
    graph = graph.clone()
    if graph.edge_attr is None:
        graph.edge_index = to_undirected(graph.edge_index, num_nodes=graph.num_nodes)
    elif not is_undirected(graph.edge_index, num_nodes=graph.num_nodes):
        graph.edge_index, graph.edge_attr = to_undirected(
            graph.edge_index, graph.edge_attr, num_nodes=graph.num_nodes, reduce="max"
        )
    return graph


def _append_degree(graphs: list[Data]) -> None:
    """Appends every node's degree to its features, one-hot, with columns up to the largest degree."""
    degrees = [degree(graph.edge_index[0], graph.num_nodes, torch.int64) for graph in graphs]
    width = max(int(each.max()) for each in degrees if each.numel() > 0) + 1
    for graph, each in zip(graphs, degrees, strict=True):
        one_hot = torch.nn.functional.one_hot(each, width).to(torch.float32)
        parts = [one_hot] if graph.x is None else [graph.x.to(torch.float32).view(each.numel(), -1), one_hot]
        graph.x = torch.cat(parts, dim=1)


def _complete(graph: Data) -> Data:
    node = torch.arange(graph.num_nodes)
    pairs = torch.cartesian_prod(node, node)
    graph.edge_index = pairs[pairs[:, 0] != pairs[:, 1]].t().contiguous()
    graph.edge_attr = None
    return graph


def _category_sizes(name: str, graphs: list[Data]) -> tuple[list[int], list[int]]:
    """The number of values of every feature of atoms and of bonds."""
    if name.startswith("ogbg-"):
        from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

        return get_atom_feature_dims(), get_bond_feature_dims()
    if name in MOLECULES:
        from torch_geometric.utils.smiles import e_map, x_map

        return [len(values) for values in x_map.values()], [len(values) for values in e_map.values()]
    for graph in graphs:
        if graph.x is None or graph.edge_attr is None or graph.x.is_floating_point() or graph.x.dim() != 2:
            raise ValueError(f"{name}: expected integer x [n, f] and edge_attr [m, f] in every molecule")
    return (
        [int(size) + 1 for size in torch.cat([graph.x for graph in graphs]).amax(0)],
        [int(size) + 1 for size in torch.cat([graph.edge_attr for graph in graphs]).amax(0)],
    )


def _node_task(graphs: list[Data], name: str) -> Graphs:
    if len(graphs) != 1:
        raise ValueError(f"{name}: a node task expects one graph, got {len(graphs)}")
    (graph,) = graphs
    if graph.x is None or graph.y is None:
        raise ValueError(f"{name}: expected node features x and labels y")
    total = graph.x.sum(dim=1, keepdim=True)
    splits = []
    if "train_mask" in graph:
        masks = [graph[key].view(graph.num_nodes, -1) for key in ("train_mask", "val_mask", "test_mask")]
        splits = [
            Split(*(mask[:, min(k, mask.size(1) - 1)].nonzero().view(-1) for mask in masks))
            for k in range(masks[0].size(1))
        ]
    return Graphs(
        x=graph.x if name in HETEROPHILOUS else graph.x / total.clamp(min=1),
        edge_index=graph.edge_index,
        edge_attr=None,
        y=graph.y.view(-1),
        node_ptr=_pointers([graph.num_nodes]),
        edge_ptr=_pointers([graph.num_edges]),
        out_channels=int(graph.y.max()) + 1,
        splits=splits,
    )
