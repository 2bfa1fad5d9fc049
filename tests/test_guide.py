"""docs/guide.md: its programs run, and learn."""

import inspect
import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

import graphs
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import gpn_ops.nn
from gpn_ops.nn import ParsePooling

GUIDE = (Path(__file__).parent.parent / "docs" / "guide.md").read_text()


def program(containing: str) -> str:
    """The one code block of the guide with this text in it."""
    blocks = [block for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if containing in block]
    assert len(blocks) == 1
    return blocks[0]


def run(code: str) -> dict:
    names = {}
    exec(compile(code, "guide.md", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def one_thread():
    # Graphs this small do not repay a second thread.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["GraphClassifier", "NodeClassifier"])
def test_models_are_short(name):
    assert sum(bool(line.strip()) for line in program(f"class {name}").splitlines()) < 40


def test_drop_in():
    names = run(program("TopKPooling"))
    assert names["x"].size(0) == names["score"].size(0) == int(names["cluster"].max()) + 1


def test_graph_classifier_learns_rings_from_stars():
    names = run(program("class GraphClassifier"))
    data = []
    for n in range(4, 36):
        for label, edge_index in enumerate((graphs.ring(n), graphs.star(n))):
            data.append(Data(x=torch.randn(n, 3), edge_index=edge_index, y=torch.tensor([label])))
    model = names["GraphClassifier"](3, 16, 2)
    names["train"](model, DataLoader(data, batch_size=16, shuffle=True), epochs=30)
    everything = next(iter(DataLoader(data, batch_size=len(data))))
    assert (model(everything).argmax(dim=1) == everything.y).float().mean() > 0.8


def test_node_classifier_learns_two_halves_of_a_path():
    names = run(program("class NodeClassifier"))
    n = 60
    y = (torch.arange(n) >= n // 2).long()
    x = torch.randn(n, 4) + 0.5 * y[:, None]
    data = Data(x=x, edge_index=graphs.path(n), y=y, train_mask=torch.arange(n) % 2 == 0)
    model = names["NodeClassifier"](4, 16, 2)
    assert names["train"](model, data, epochs=40) < 0.4
    out = model.eval()(data)
    assert out.shape == (n, 2)
    assert (out.argmax(dim=1) == y).float().mean() > 0.8


def test_ways_to_tame_masks():
    names = run(program("LayerNorm"))
    out = names["out"]
    mean = names["pool"].multiset(names["x"], out.cluster, out.x.size(0))
    mean_score = names["scaled"] / mean
    assert ((mean_score > 0) & (mean_score < 1)).all()
    names["scaled"].sum().backward()
    assert any(parameter.grad.any() for parameter in names["pool"].select.parameters())


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("name", ["LeanGNN", "LeanSAGE"])
def test_lean_networks_are_trained_at_every_level(name):
    model = run(program(f"class {name}"))["model"]
    x = torch.randn(20, 16)
    out, tree = model(x, graphs.path(20))
    assert len(tree.levels) > 1
    out.square().sum().backward()
    assert all(parameter.grad.any() for parameter in model.gnn.parameters())


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_static_classifier_gives_what_the_model_gives():
    names = run(program("class StaticClassifier"))
    data = [Data(x=torch.randn(n, 3), edge_index=graphs.ring(n)) for n in range(4, 20)]
    loader = DataLoader(data, batch_size=4)
    model = names["StaticClassifier"](3, 16, 2)
    static = names["in_static_form"](model, loader)
    for _ in range(2):
        for batch in loader:
            given = (batch.x, batch.edge_index, None, batch.batch, batch.num_graphs)
            torch.testing.assert_close(static(*given).out, model(*given).out, rtol=1e-4, atol=1e-4)
    assert 0 < static.misfits < 8


def test_option_table_is_complete_and_right_about_defaults():
    documented = re.findall(r"^\| `(\w+)` \(([^)]*)\) \|", GUIDE, re.MULTILINE)
    parameters = inspect.signature(ParsePooling).parameters.values()
    words = {
        "on": True,
        "off": False,
        '`"deepsets"`': "deepsets",
        '`"sum"`': "sum",
        "0": 0,
        "1": 1,
        "2": 2,
        "none": None,
    }
    assert [(name, words[default]) for name, default in documented] == [
        (parameter.name, parameter.default) for parameter in parameters if parameter.name != "in_channels"
    ]


def test_names_in_the_guide_exist():
    for name in re.findall(r"from gpn_ops\.nn import (.*)", GUIDE):
        for part in name.split(", "):
            assert hasattr(gpn_ops.nn, part)
