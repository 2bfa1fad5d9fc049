"""Data sets: what is read from which files, how it is made ready, and cut into batches and folds."""

import gzip
import hashlib
import json
import shutil
import threading
import time
import urllib.error
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("sklearn", reason="models needs scikit-learn")
pytest.importorskip("yaml", reason="models needs pyyaml")

import synthetic
from synthetic import small, trained
from torch_geometric.data import Batch, Data
from torch_geometric.utils import is_undirected

from models import config as configs
from models import data, train

CPU = torch.device("cpu")
SHARED = synthetic.ROOT.parent / "shared" / "data"
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of ogb
]


@pytest.fixture
def no_network(monkeypatch):
    """Every download fails at once, with what urllib raises."""

    def fail(*_, **__):
        raise urllib.error.URLError("no network in this test")

    monkeypatch.setattr("urllib.request.urlopen", fail)
    monkeypatch.setattr("torch_geometric.io.fs.cp", fail)


# ------------------------------------------------------------------------------------------------------------
# Batches
# ------------------------------------------------------------------------------------------------------------


def loaded(dataset, tmp_path, **values):
    return data.load(small(dataset, **values), tmp_path)


@pytest.mark.parametrize(
    "index", [[0], [3, 1, 2], [5, 5, 0], [], list(range(12)), [11, 0, 7]], ids=lambda index: str(len(index))
)
@pytest.mark.parametrize(("dataset", "task"), [("Rings(12, 3)", "graph"), ("Molecules(12)", "molecule")])
def test_taking_graphs_is_pygs_batch(dataset, task, index, tmp_path):
    graphs = loaded(f"synthetic:{dataset}", tmp_path, task=task, degree=False)
    items = synthetic.Rings(12, 3) if task == "graph" else synthetic.Molecules(12)
    taken = graphs.take(torch.tensor(index, dtype=torch.int64))
    assert taken.num_graphs == len(index)
    if not index:
        assert taken.x.shape == (0, items[0].x.size(1))
        assert taken.edge_index.shape == (2, 0)
        return
    expected = Batch.from_data_list([items[k] for k in index])
    assert torch.equal(taken.x, expected.x)
    assert torch.equal(taken.edge_index, expected.edge_index)
    assert torch.equal(taken.batch, expected.batch)
    torch.testing.assert_close(taken.y, expected.y, equal_nan=True)
    if task == "molecule":
        assert torch.equal(taken.edge_attr, expected.edge_attr)
    else:
        assert taken.edge_attr is None


def test_batches_come_in_order_and_in_the_dtype(tmp_path):
    graphs = loaded("synthetic:Rings(12)", tmp_path)
    parts = [torch.tensor(part) for part in ([3, 1], [0], [5, 4, 2])]
    for part, batch in zip(parts, graphs.batches(parts, CPU, torch.float64), strict=True):
        taken = graphs.take(part)
        assert batch.x.dtype == torch.float64
        assert batch.y.dtype == batch.edge_index.dtype == torch.int64
        assert torch.equal(batch.x, taken.x.double())
        assert torch.equal(batch.y, taken.y)
    assert list(graphs.batches([], CPU, torch.float32)) == []


def test_the_next_batch_is_prepared_while_one_is_in_use(tmp_path, monkeypatch):
    graphs = loaded("synthetic:Rings(12)", tmp_path)
    taken, take = [], data.Graphs.take

    def noted(self, index):
        taken.append(int(index))
        return take(self, index)

    def wait_for(number):
        end = time.monotonic() + 10
        while len(taken) < number and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.02)
        return taken == list(range(number))

    monkeypatch.setattr(data.Graphs, "take", noted)
    batches = graphs.batches([torch.tensor([k]) for k in range(5)], CPU, torch.float32)
    next(batches)
    assert wait_for(2)
    next(batches)
    assert wait_for(3)
    threads = threading.active_count()
    batches.close()
    assert threading.active_count() < threads


def test_what_goes_wrong_while_preparing_is_raised(tmp_path):
    graphs = loaded("synthetic:Rings(12)", tmp_path)
    batches = graphs.batches([torch.tensor([0]), torch.tensor([12])], CPU, torch.float32)
    next(batches)
    with pytest.raises(IndexError):
        next(batches)


# ------------------------------------------------------------------------------------------------------------
# Folds
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_graphs", [10, 43])
def test_fold_tests_and_the_one_before_validates(tmp_path, num_graphs):
    from sklearn.model_selection import KFold

    graphs = loaded(f"synthetic:Rings({num_graphs})", tmp_path)
    assert graphs.num_folds == 10
    for seed in (0, 5):
        splits = [graphs.split(fold, seed) for fold in range(10)]
        folds = KFold(10, shuffle=True, random_state=seed).split(torch.zeros(num_graphs))
        for k, (split, (_, test)) in enumerate(zip(splits, folds, strict=True)):
            assert split.test.tolist() == test.tolist()
            assert torch.equal(split.val, splits[k - 1].test)
            assert torch.cat(split).sort().values.tolist() == list(range(num_graphs))
        tested = torch.cat([split.test for split in splits])
        assert tested.sort().values.tolist() == list(range(num_graphs))
    assert not torch.equal(graphs.split(0, 0).test, graphs.split(0, 5).test)


def test_folds_that_there_are_not(tmp_path):
    graphs = loaded("synthetic:Rings(12)", tmp_path)
    for fold in (10, -1):
        with pytest.raises(ValueError, match=f"fold: expected below 10, got {fold}"):
            graphs.split(fold, 0)
    with pytest.raises(ValueError, match="expected at least 10 graphs for cross-validation, got 9"):
        loaded("synthetic:Rings(9)", tmp_path).split(0, 0)
    nodes = loaded("synthetic:Communities(30, 2)", tmp_path, task="node")
    with pytest.raises(ValueError, match="fold: expected below 2, got 2"):
        nodes.split(2, 0)


# ------------------------------------------------------------------------------------------------------------
# Preparing
# ------------------------------------------------------------------------------------------------------------


@data.register
class Odd(list):
    """Directed edges, a node without any, a self-loop, a graph without edges; features if wanted."""

    def __init__(self, with_x=True, copies=5):
        one_way = torch.tensor([[2, 0, 1, 1], [1, 1, 2, 1]])
        sizes = [4, 3]
        edges = [one_way, one_way[:, :0]]
        for k in range(2 * copies):
            x = torch.full((sizes[k % 2], 2), float(k)) if with_x else None
            item = Data(x, edges[k % 2], y=k % 2)
            item.num_nodes = sizes[k % 2]
            self.append(item)


@data.register
class DirectedMolecules(list):
    def __init__(self):
        for k in range(10):
            edge_index = torch.tensor([[0, 1, 2], [1, 2, 1]])
            self.append(
                Data(
                    torch.tensor([[k, 1], [0, 2], [1, 0]]),
                    edge_index,
                    torch.tensor([[1, 5], [2, 0], [3, 0]]),
                    y=torch.tensor([[0.0]]),
                )
            )


@pytest.mark.parametrize("with_x", [True, False])
def test_undirected_with_degrees(tmp_path, with_x):
    graphs = data.load(small(f"test_data:Odd({with_x})"), tmp_path)
    first = graphs.take(torch.tensor([0]))
    assert first.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 1], [1, 2], [2, 1]]
    degree = [[0, 1, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0]]
    expected = [[0, 0, *row] for row in degree] if with_x else degree
    assert first.x.tolist() == expected
    last = graphs.take(torch.tensor([9]))
    assert last.x.tolist() == [([9, 9] if with_x else []) + [1, 0, 0, 0]] * 3
    assert graphs.y.tolist() == [0, 1] * 5
    assert graphs.out_channels == 2


def test_without_degrees(tmp_path):
    graphs = data.load(small("test_data:Odd", degree=False), tmp_path)
    assert graphs.x.size(1) == 2
    with pytest.raises(ValueError, match="expected node features x; without any, set degree=true"):
        data.load(small("test_data:Odd(False)", degree=False), tmp_path)


def test_complete_graphs(tmp_path):
    graphs = data.load(small("test_data:Odd", complete=True), tmp_path)
    plain = data.load(small("test_data:Odd"), tmp_path)
    assert graphs.edge_ptr.tolist() == [0, 12, 18, 30, 36, 48, 54, 66, 72, 84, 90]
    first = graphs.take(torch.tensor([0]))
    assert sorted(first.edge_index.t().tolist()) == [[i, j] for i in range(4) for j in range(4) if i != j]
    assert torch.equal(graphs.x, plain.x)  # Degrees are those of the graph that was.
    with pytest.raises(ValueError, match="complete: expected false for molecules"):
        data.load(small("synthetic:Molecules", task="molecule", complete=True), tmp_path)


def test_directed_bonds_go_with_both_directions(tmp_path):
    graphs = data.load(small("test_data:DirectedMolecules", task="molecule"), tmp_path)
    first = graphs.take(torch.tensor([0]))
    assert first.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert first.edge_attr.tolist() == [[1, 5], [1, 5], [3, 0], [3, 0]]
    assert graphs.x_sizes == [10, 3]
    assert graphs.edge_sizes == [4, 6]


def test_nodes_features_are_normalised_by_row(tmp_path):
    graphs = loaded("synthetic:Communities(30, 3)", tmp_path, task="node")
    (item,) = synthetic.Communities(30, 3)
    torch.testing.assert_close(graphs.x.sum(dim=1), item.x.sum(dim=1).clamp(max=1))
    torch.testing.assert_close(graphs.x, item.x / item.x.sum(dim=1, keepdim=True).clamp(min=1))
    assert graphs.num_folds == 3
    for k in range(3):
        split = graphs.split(k, seed=7)
        for nodes, mask in zip(split, (item.train_mask, item.val_mask, item.test_mask), strict=True):
            assert nodes.tolist() == mask[:, k].nonzero().view(-1).tolist()


@data.register
class Strange(list):
    """Ten graphs, wrong in one way."""

    def __init__(self, **wrong):
        for _ in range(10):
            item = Data(torch.zeros(2, 1), torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0]))
            for key, value in wrong.items():
                item[key] = None if value is None else torch.tensor(value)
            self.append(item)


@pytest.mark.parametrize(
    ("arguments", "task", "message"),
    [
        ("y=None", "graph", "expected graphs with labels y, got one without"),
        ("y=[0.5]", "graph", "expected one integer label a graph, got torch.float32"),
        ("y=[0, 1]", "graph", "expected one integer label a graph, got torch.int64"),
        ("y=[-1]", "graph", "expected labels that count from 0, got -1"),
        ("y=[[0.0]]", "molecule", r"expected integer x \[n, f\] and edge_attr"),
        ("y=[[0.0]], x=[[1], [0]]", "molecule", r"expected integer x \[n, f\] and edge_attr"),
        ("", "node", "a node task expects one graph, got 10"),
        ("", "edge", "task: expected graph, node or molecule, got 'edge'"),
    ],
)
def test_strange_data(tmp_path, arguments, task, message):
    with pytest.raises(ValueError, match=message):
        data.load(small(f"test_data:Strange({arguments})", task=task), tmp_path)


@data.register
class OneNodeless(list):
    def __init__(self):
        super().__init__([Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)])


def test_node_task_without_features(tmp_path):
    with pytest.raises(ValueError, match="expected node features x and labels y"):
        data.load(small("test_data:OneNodeless", task="node"), tmp_path)


# ------------------------------------------------------------------------------------------------------------
# Import paths
# ------------------------------------------------------------------------------------------------------------


def test_a_data_set_of_pyg_by_import_path(tmp_path):
    graphs = loaded(f"synthetic:Stored({str(tmp_path / 'own')!r}, num_graphs=23)", tmp_path)
    assert graphs.num_graphs == 23
    assert (tmp_path / "own" / "processed" / "23.pt").exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("synthetic:", "expected package.module:Class, with literal arguments if any"),
        ("synthetic:Rings(", "expected package.module:Class, with literal arguments if any"),
        ("synthetic:Rings(len('x'))", "expected package.module:Class, with literal arguments if any"),
        ("synthetic:Rings(**{})", "expected package.module:Class, with literal arguments if any"),
        ("synthetic:Rings(0)", "expected at least one graph, got none"),
        ("synthetic:Rings()[0]", "expected package.module:Class, with literal arguments if any"),
        ("synthetic:__import__('os').getcwd()", "expected package.module:Class"),
        ("synthetic:Missing(3)", "cannot be imported .*no attribute 'Missing'"),
        ("no.such.module:Rings", "cannot be imported .*No module named 'no'"),
    ],
)
def test_bad_import_paths(tmp_path, path, message):
    with pytest.raises(ValueError, match=message):
        loaded(path, tmp_path)


made = []


def make(*arguments):
    made.append(arguments)
    return synthetic.Rings()


class Unregistered:
    def __init__(self):
        made.append(())


@pytest.mark.parametrize("path", ["test_data:make('x')", "test_data:Unregistered", "os:mkdir('made')"])
def test_only_classes_of_data_sets_are_called(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    made.clear()
    with pytest.raises(ValueError, match=r"dataset: expected a class of torch_geometric\.data\.Dataset, or"):
        loaded(path, tmp_path)
    assert not made
    assert not (tmp_path / "made").exists()


def test_names_without_a_preset_are_those_of_tu_sets(tmp_path, no_network):
    with pytest.raises(
        ValueError, match=r"dataset: expected one of CiteSeer, Cora, .*TUDataset.*got 'no/thing'"
    ):
        configs.load("no/thing")
    with pytest.raises(FileNotFoundError, match=r"Nothing: no raw files.*No preset has this name \(CiteSeer"):
        data.load(configs.load("Nothing"), tmp_path)
    write_tu(tmp_path, "MINE")
    folders = [f"--{name}={tmp_path}" for name in ("data-root", "data-cache", "output")]
    assert train.main(["MINE", *folders, "--folds", "0", "--set", "max_epochs=1", "--quiet"]) == 0
    (runs,) = (tmp_path / "MINE").rglob("runs.jsonl")
    assert json.loads(runs.read_text())["dataset"] == "MINE"


class Counting(synthetic.Rings):
    """Takes a while, and notes how many are being made at a time."""

    now, most = 0, 0

    def __init__(self, root):
        cls = type(self)
        cls.now += 1
        cls.most = max(cls.most, cls.now)
        time.sleep(0.1)
        super().__init__()
        cls.now -= 1


def test_one_process_prepares_at_a_time(tmp_path):
    config = small(f"test_data:Counting({str(tmp_path)!r})")
    threads = [threading.Thread(target=data.load, args=(config, tmp_path)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counting.most == 1


# ------------------------------------------------------------------------------------------------------------
# Files
# ------------------------------------------------------------------------------------------------------------


def write_tu(folder: Path, name: str, num_graphs=24, attributes=6):
    """A data set in the text format of the TU collection, with node attributes as FRANKENSTEIN has."""
    raw = folder / "TUDataset" / name / "raw"
    raw.mkdir(parents=True)
    items = synthetic.Rings(num_graphs, features=attributes)
    edges, graph_of, rows, first = [], [], [], 1
    for number, item in enumerate(items, 1):
        edges += [f"{first + i}, {first + j}" for i, j in item.edge_index.t().tolist()]
        graph_of += [str(number)] * item.num_nodes
        rows += [", ".join(f"{value:.4f}" for value in row) for row in item.x.tolist()]
        first += item.num_nodes
    labels = ["1" if int(item.y) else "-1" for item in items]
    contents = {"A": edges, "graph_indicator": graph_of, "graph_labels": labels, "node_attributes": rows}
    for suffix, lines in contents.items():
        (raw / f"{name}_{suffix}.txt").write_text("\n".join(lines) + "\n")
    return items


def write_ogb(folder: Path, num_graphs=24, tasks=128):
    """ogbg-molpcba in OGB's format: bonds in one direction, some labels missing."""
    base = folder / "ogb" / "ogbg_molpcba"
    items = synthetic.Rings(num_graphs)
    generator = torch.Generator().manual_seed(0)
    sizes = (119, 5, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)
    edges = [item.edge_index[:, item.edge_index[0] < item.edge_index[1]].t() for item in items]
    labels = []
    for _ in range(num_graphs):
        row = torch.randint(3, (tasks,), generator=generator).tolist()
        labels.append(["" if value == 2 else f"{value}.0" for value in row])

    def categories(rows, sizes):
        return torch.stack([torch.randint(n, (rows,), generator=generator) for n in sizes], 1).tolist()

    tables = {
        "raw/edge": torch.cat(edges).tolist(),
        "raw/num-node-list": [[item.num_nodes] for item in items],
        "raw/num-edge-list": [[len(each)] for each in edges],
        "raw/node-feat": categories(sum(item.num_nodes for item in items), sizes[0]),
        "raw/edge-feat": categories(sum(map(len, edges)), sizes[1]),
        "raw/graph-label": labels,
        "split/scaffold/train": [[k] for k in range(num_graphs) if k % 3 == 0],
        "split/scaffold/valid": [[k] for k in range(num_graphs) if k % 3 == 1],
        "split/scaffold/test": [[k] for k in range(num_graphs) if k % 3 == 2],
    }
    for name, rows in tables.items():
        path = base / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.write("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    (base / "RELEASE_v1.txt").write_text("")
    return items, edges


SMILES = ("CCO", "c1ccccc1", "C", "CC(=O)O", "C1CCCCC1N", "O=C=O", "CC#N", "[Na+].[Cl-]", "C/C=C/C")


def write_tox21(folder: Path, num_graphs=24, folder_name="tox21"):
    raw = folder / "MoleculeNet" / folder_name / "raw"
    raw.mkdir(parents=True)
    lines = [",".join([*(f"task{k}" for k in range(12)), "mol_id", "smiles"])]
    for k in range(num_graphs):
        labels = ["" if (k + task) % 5 == 0 else str((k + task) % 2) for task in range(12)]
        lines.append(",".join([*labels, f"TOX{k}", SMILES[k % len(SMILES)]]))
    (raw / "tox21.csv").write_text("\n".join(lines) + "\n")


def listing(folder: Path) -> list:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*"))


def check_training(config, graphs, tmp_path):
    """Finite losses, and a run that was killed ends as one that was not."""
    record, epochs = trained(config, graphs, tmp_path / "whole")
    losses = [json.loads(line)["loss"] for line in epochs.splitlines()]
    assert len(losses) == config.max_epochs
    assert all(0 < loss < 100 for loss in losses)
    assert trained(config, graphs, tmp_path / "parts", kill_after=2) is None
    assert trained(config, graphs, tmp_path / "parts") == (record, epochs)
    return record


@pytest.mark.usefixtures("no_network")
def test_frankenstein_from_its_files(tmp_path):
    items = write_tu(tmp_path / "root", "FRANKENSTEIN")
    (tmp_path / "root" / "TUDataset" / "FRANKENSTEIN" / "processed").mkdir()
    before = listing(tmp_path / "root")
    config = small("FRANKENSTEIN", dropout=0.2)
    graphs = data.load(config, tmp_path / "root", tmp_path / "cache")
    assert listing(tmp_path / "root") == before
    assert graphs.num_graphs == 24
    assert graphs.y.tolist() == [int(item.y) for item in items]
    widest = max(int(item.edge_index[0].bincount().max()) for item in items)
    assert graphs.x.size(1) == 6 + widest + 1
    torch.testing.assert_close(graphs.x[:, :6], torch.cat([item.x for item in items]), atol=1e-4, rtol=0)
    assert graphs.splits == []
    check_training(config, graphs, tmp_path)
    # The second time from what PyG has prepared, the raw files being gone.
    (tmp_path / "root").rename(tmp_path / "elsewhere")
    assert torch.equal(data.load(config, tmp_path / "elsewhere", tmp_path / "cache").x, graphs.x)


@pytest.mark.usefixtures("no_network")
def test_molpcba_from_its_files(tmp_path):
    pytest.importorskip("ogb", reason="ogbg-molpcba needs ogb")
    items, edges = write_ogb(tmp_path / "root")
    before = listing(tmp_path / "root")
    config = small("ogbg-molpcba", encoder_layers=2, max_epochs=3, eval_every=3)
    assert (config.task, config.metric, config.clip) == ("molecule", "ap", None)
    graphs = data.load(config, tmp_path / "root", tmp_path / "cache")
    assert listing(tmp_path / "root") == before
    assert graphs.x.shape == (sum(item.num_nodes for item in items), 9)
    assert graphs.edge_attr.shape == (2 * sum(map(len, edges)), 3)
    assert graphs.x_sizes == [119, 5, 12, 12, 10, 6, 6, 2, 2]
    assert graphs.edge_sizes == [5, 6, 2]
    assert graphs.y.shape == (24, 128)
    assert 0.2 < float(graphs.y.isnan().float().mean()) < 0.5
    (split,) = graphs.splits
    assert [part.tolist() for part in split] == [list(range(k, 24, 3)) for k in range(3)]
    first = graphs.take(torch.tensor([0]))
    assert is_undirected(first.edge_index, first.edge_attr, num_nodes=first.x.size(0))
    record = check_training(config, graphs, tmp_path)
    assert 0 < record["test"] < 100


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("folder_name", ["tox21", "Tox21"])
def test_tox21_from_its_files(tmp_path, folder_name):
    pytest.importorskip("rdkit", reason="MoleculeNet needs rdkit")
    write_tox21(tmp_path / "root", folder_name=folder_name)
    config = small("Tox21", encoder_layers=2)
    graphs = data.load(config, tmp_path / "root", tmp_path / "cache")
    assert graphs.y.shape == (24, 12)
    assert int(graphs.y.isnan().sum()) == sum((k + task) % 5 == 0 for k in range(24) for task in range(12))
    assert graphs.num_graphs == 24
    assert 0 in graphs.edge_ptr.diff().tolist()  # methane, and salt
    # Everything without a ring has one scaffold, none; there is no room left for two sets of rings.
    assert [part.tolist() for part in graphs.split(0, 0)] == [
        [k for k in range(24) if k % 9 not in (1, 4)],
        [4, 13, 22],
        [1, 10, 19],
    ]
    assert graphs.num_folds == 1
    if folder_name == "tox21":
        check_training(config, graphs, tmp_path)


def test_scaffold_split_by_hand():
    pytest.importorskip("rdkit", reason="scaffolds need rdkit")
    benzenes = ["c1ccccc1", "Cc1ccccc1", "Oc1ccccc1", "CCc1ccccc1C", "c1ccccc1Cl"]
    pyridines = ["c1ccncc1", "Cc1ccncc1", "C[C@H](O)c1ccncc1"]  # What hangs on a ring is no part of it.
    furan, cyclohexane = ["c1ccoc1"], ["C1CCCCC1"]
    # Of ten, eight train: the two sets with the most. Then one each, the later one first.
    smiles = [*furan, *pyridines[:2], *benzenes, *cyclohexane, pyridines[2]]
    split = data.scaffold_split(smiles)
    assert [part.tolist() for part in split] == [[1, 2, 3, 4, 5, 6, 7, 9], [8], [0]]
    split = data.scaffold_split([*pyridines, *benzenes, *furan * 2])
    assert [part.tolist() for part in split] == [[*range(8)], [], [8, 9]]
    # A set that does not fit is no reason to stop filling: of fourteen, nine and two train, not three.
    split = data.scaffold_split([*benzenes, *pyridines, *benzenes[:4], *furan * 2])
    assert [part.tolist() for part in split] == [[*range(5), *range(8, 14)], [5, 6, 7], []]


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("FRANKENSTEIN", "TUDataset/FRANKENSTEIN"),
        ("CiteSeer", "Planetoid/CiteSeer/geom-gcn"),
        ("Film", "Actor"),
        ("HIV", "MoleculeNet/hiv"),
        ("ogbg-molpcba", "ogb/ogbg_molpcba"),
    ],
)
def test_missing_files_and_no_network(tmp_path, name, folder):
    if name.startswith("ogb"):
        pytest.importorskip("ogb", reason="ogbg-molpcba needs ogb")
    with pytest.raises(FileNotFoundError) as caught:
        data.load(configs.load(name), tmp_path / "root", tmp_path / "cache")
    message = str(caught.value)
    assert message.startswith(f"{name}: no raw files in {tmp_path / 'root' / folder / 'raw'}")
    assert "no network in this test" in message
    assert message.endswith(f"name the folder that holds {folder} with --data-root.")


@pytest.mark.usefixtures("no_network")
def test_files_that_come_after_a_failed_download(tmp_path):
    """PyG leaves an empty folder where the files should have been."""
    config, cache = small("FRANKENSTEIN"), tmp_path / "cache"
    with pytest.raises(FileNotFoundError):
        data.load(config, cache, cache)
    write_tu(tmp_path / "root", "FRANKENSTEIN")
    assert data.load(config, tmp_path / "root", cache).num_graphs == 24


def test_a_cache_that_cannot_be_written_to(tmp_path, monkeypatch):
    write_tu(tmp_path, "FRANKENSTEIN")
    config = small("FRANKENSTEIN")
    data.load(config, tmp_path)

    def refuse(*_, **__):
        raise PermissionError

    monkeypatch.setattr(Path, "open", refuse)
    assert data.load(config, tmp_path).num_graphs == 24


@pytest.mark.usefixtures("no_network")
def test_a_set_without_the_attributes_that_make_it_is_an_error(tmp_path):
    write_tu(tmp_path, "FRANKENSTEIN")
    attributes = tmp_path / "TUDataset" / "FRANKENSTEIN" / "raw" / "FRANKENSTEIN_node_attributes.txt"
    content = attributes.read_text()
    attributes.unlink()
    for _ in range(2):  # Also of what was prepared without them.
        with pytest.raises(
            FileNotFoundError, match="FRANKENSTEIN: expected a row of attributes for every node"
        ) as caught:
            data.load(configs.load("FRANKENSTEIN"), tmp_path)
        assert str(attributes) in str(caught.value)
    attributes.write_text(content)
    shutil.rmtree(tmp_path / "TUDataset" / "FRANKENSTEIN" / "processed")
    assert data.load(configs.load("FRANKENSTEIN"), tmp_path).num_graphs == 24
    # Other sets may have none.
    write_tu(tmp_path, "OTHER")
    (tmp_path / "TUDataset" / "OTHER" / "raw" / "OTHER_node_attributes.txt").unlink()
    assert data.load(configs.load("OTHER"), tmp_path).num_graphs == 24


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("damage", [synthetic.flipped, lambda content: content[:100], lambda content: b""])
def test_prepared_files_that_are_damaged_are_made_anew(tmp_path, capsys, damage):
    write_tu(tmp_path, "FRANKENSTEIN")
    config = configs.load("FRANKENSTEIN")
    whole = data.load(config, tmp_path)
    folder = tmp_path / "TUDataset" / "FRANKENSTEIN"
    (path,) = [path for path in folder.glob("processed*/*.pt") if path.stat().st_size > 3000]
    path.write_bytes(damage(path.read_bytes()))
    capsys.readouterr()
    again = data.load(config, tmp_path)
    assert torch.equal(again.x, whole.x)
    assert torch.equal(again.edge_index, whole.edge_index)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert line.startswith(f"warning: {path.parent}: cannot be used ({path.name}: ")
    assert (path.parent.with_name(f"{path.parent.name}.unusable") / path.name).exists()


@pytest.mark.parametrize("size", [500, 10_000])
def test_a_full_disk_while_preparing_leaves_nothing_behind(tmp_path, size):
    write_tu(tmp_path, "FRANKENSTEIN")
    config = configs.load("FRANKENSTEIN")
    with synthetic.small_files(size), pytest.raises(OSError, match="File too large") as caught:
        data.load(config, tmp_path)
    assert str(tmp_path / "TUDataset" / "FRANKENSTEIN") in str(caught.value.filename)
    assert not list((tmp_path / "TUDataset" / "FRANKENSTEIN").glob("processed*"))
    assert data.load(config, tmp_path).num_graphs == 24


def test_files_that_moved_before_they_were_read(tmp_path):
    cache = tmp_path / "cache"
    write_tu(tmp_path / "root", "FRANKENSTEIN")
    (cache / "TUDataset" / "FRANKENSTEIN").mkdir(parents=True)
    (cache / "TUDataset" / "FRANKENSTEIN" / "raw").symlink_to(tmp_path / "gone")
    assert data.load(small("FRANKENSTEIN"), tmp_path / "root", cache).num_graphs == 24


def test_molpcba_without_ogb(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ogb.graphproppred", None)
    with pytest.raises(FileNotFoundError, match="ogbg-molpcba: needs the package ogb: pip install ogb"):
        data.load(configs.load("ogbg-molpcba"), tmp_path)


# ------------------------------------------------------------------------------------------------------------
# The real data sets, where they are
# ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(no_network):
    """The folder of raw data, which loading must leave as it was."""
    if not SHARED.is_dir():
        pytest.skip("the raw data sets are not here")

    def listed():
        return hashlib.sha256(repr(listing(SHARED)).encode()).hexdigest()

    before = listed()
    yield SHARED
    assert listed() == before


@pytest.mark.parametrize(
    ("name", "graphs", "features", "classes"),
    [
        ("MUTAG", 188, 7 + 5, 2),
        ("PROTEINS", 1113, 4 + 26, 2),
        pytest.param("NCI1", 4110, 37 + 5, 2, marks=pytest.mark.slow),
        pytest.param("NCI109", 4127, 38 + 6, 2, marks=pytest.mark.slow),
        pytest.param("DD", 1178, 89 + 20, 2, marks=pytest.mark.slow),
    ],
)
def test_tu_sets(shared, tmp_path, name, graphs, features, classes):
    found = data.load(configs.load(name), shared, tmp_path)
    assert (found.num_graphs, found.x.size(1), found.out_channels) == (graphs, features, classes)
    assert found.splits == []
    assert is_undirected(found.take(torch.arange(graphs)).edge_index)


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "sizes"),
    [
        ("Cora", 2708, 10556, 1433, 7, (1192, 796, 497)),
        ("Film", 7600, None, 932, 5, (3648, 2432, 1520)),
        pytest.param("CiteSeer", 3327, 9104, 3703, 6, (1596, 1065, 666), marks=pytest.mark.slow),
        pytest.param("PubMed", 19717, 88648, 500, 3, (9463, 6310, 3944), marks=pytest.mark.slow),
    ],
)
def test_node_sets(shared, tmp_path, name, nodes, edges, features, classes, sizes):
    found = data.load(configs.load(name), shared, tmp_path)
    assert found.x.shape == (nodes, features)
    assert found.out_channels == classes
    row, col = found.edge_index
    if edges is None:
        assert int((row < col).sum()) == int((row > col).sum()) == 26659
    else:
        assert found.edge_index.size(1) == edges
    assert is_undirected(found.edge_index)
    assert found.num_folds == 10
    assert tuple(part.numel() for part in found.split(0, seed=3)) == sizes
    for split in found.splits:
        assert torch.cat(split).unique().numel() == sum(part.numel() for part in split)
    total = found.x.sum(dim=1)
    assert bool((total <= 1 + 1e-5).all())


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "positive"),
    [("Minesweeper", 10000, 78804, 7, 2000), ("Tolokers", 11758, 1038000, 10, 2566)],
)
def test_heterophilous_sets(shared, tmp_path, name, nodes, edges, features, positive):
    config = configs.load(name)
    assert (config.task, config.metric) == ("node", "auc")
    found = data.load(config, shared, tmp_path)
    assert found.x.shape == (nodes, features)
    assert found.edge_index.size(1) == edges
    assert is_undirected(found.edge_index)
    assert (found.out_channels, int(found.y.sum()), found.num_folds) == (2, positive, 10)
    for split in found.splits:
        assert [round(4 * part.numel() / nodes, 2) for part in split] == [2, 1, 1]
        assert torch.cat(split).unique().numel() == nodes
    raw = np.load(shared / "HeterophilousGraphDataset" / name.lower() / "raw" / f"{name.lower()}.npz")
    assert torch.equal(found.x, torch.from_numpy(raw["node_features"]))  # As they are, not normalised.


@pytest.mark.slow
@pytest.mark.parametrize(("name", "graphs", "tasks"), [("Tox21", 7823, 12), ("HIV", 41120, 1)])
def test_molecule_sets(shared, tmp_path, name, graphs, tasks):
    pytest.importorskip("rdkit", reason="MoleculeNet needs rdkit")
    config = configs.load(name)
    found = data.load(config, shared, tmp_path)
    assert abs(found.num_graphs - graphs) <= 10  # RDKit's versions differ in a few.
    assert found.y.size(1) == found.out_channels == tasks
    assert len(found.x_sizes) == 9
    assert len(found.edge_sizes) == 3
    split = found.split(0, 0)
    shares = [part.numel() / found.num_graphs for part in split]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=2e-4)
    assert torch.cat(split).sort().values.tolist() == list(range(found.num_graphs))
    if name == "HIV":  # As in the split of ogbg-molhiv, which was made in this way too.
        assert [int(found.y[part].sum()) for part in split] == [1232, 81, 130]
    if name == "Tox21":
        assert float(found.y.isnan().float().mean()) == pytest.approx(0.1706, abs=1e-3)
        found.splits = [data.Split(*torch.arange(96).split(32))]
        check_training(small(name, batch_size=16, max_epochs=3), found, tmp_path)
