"""The reconstruction task: graphs, the auto-encoder's way back from a pooled graph, and the command."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("matplotlib", reason="the command draws")
pytest.importorskip("tqdm", reason="the command shows its progress")

from torch.nn import functional

from models import jsonl, reconstruct
from models.autoencoder import DENSE, DROPPING, HELD, POOLS, AutoEncoder, pooling

# PyG's ASAPooling makes sparse tensors of a kind that torch warns about.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")

ROOT = Path(__file__).parent.parent.parent
CHANNELS = 8


# ------------------------------------------------------------------------------------------------------------
# Graphs
# ------------------------------------------------------------------------------------------------------------


def test_ring():
    position, edge_index = reconstruct.ring(10)
    torch.testing.assert_close(position.norm(dim=1), torch.ones(10))
    assert edge_index.size(1) == 20
    assert edge_index[0].bincount().tolist() == [2] * 10
    length = (position[edge_index[0]] - position[edge_index[1]]).norm(dim=1)
    torch.testing.assert_close(length, torch.full((20,), 2 * math.sin(math.pi / 10)))


def test_grid():
    position, edge_index = reconstruct.grid(16)
    assert position.unique(dim=0).size(0) == 16
    assert position.amin(dim=0).tolist() == [-1, -1]
    assert position.amax(dim=0).tolist() == [1, 1]
    assert sorted(edge_index[0].bincount().tolist()) == [2] * 4 + [3] * 8 + [4] * 4
    length = (position[edge_index[0]] - position[edge_index[1]]).norm(dim=1)
    torch.testing.assert_close(length, torch.full((48,), 2 / 3))
    assert edge_index.unique(dim=1).size(1) == 48


# ------------------------------------------------------------------------------------------------------------
# The auto-encoder
# ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def graph():
    return reconstruct.ring(20)


@pytest.fixture
def features():
    return torch.randn(20, CHANNELS, generator=torch.Generator().manual_seed(0))


def make(pool):
    torch.manual_seed(0)
    return pooling(pool, CHANNELS, 20, 0.3)


@pytest.mark.parametrize("pool", DROPPING)
def test_unpooling_of_dropped_nodes(graph, features, pool):
    layer = make(pool)
    out, *_, kept = layer.layer(features, graph.edge_index)[: 5 if pool == "asap" else -1]
    assert len(set(kept.tolist())) == 6
    pooled = layer(features, graph.edge_index)
    lifted = pooled.unpool(pooled.x)
    torch.testing.assert_close(pooled.x, out)
    for node in range(20):
        expected = out[kept.tolist().index(node)] if node in kept else torch.zeros(CHANNELS)
        torch.testing.assert_close(lifted[node], expected)


@pytest.mark.parametrize("pool", DENSE)
def test_unpooling_of_mixtures(graph, features, pool):
    layer = make(pool)
    pooled = layer(features, graph.edge_index)
    assert pooled.x.shape == (6, CHANNELS)
    # The same matrix S both ways: S^T X, and S Z.
    S = pooled.unpool(torch.eye(6))
    assert S.shape == (20, 6)
    torch.testing.assert_close(S.sum(dim=1), torch.ones(20))
    torch.testing.assert_close(S.t() @ features, pooled.x)
    z = torch.randn(6, CHANNELS)
    torch.testing.assert_close(pooled.unpool(z), S @ z)
    assert pooled.extra_loss.requires_grad


def test_unpooling_of_clusters(graph, features):
    layer = make("gpn").eval()
    out = layer.layer(features, graph.edge_index)
    pooled = layer(features, graph.edge_index)
    torch.testing.assert_close(pooled.x, out.x)
    size = out.cluster.bincount()
    assert 1 < size.numel() < 20
    lifted = pooled.unpool(pooled.x)
    for node, cluster in enumerate(out.cluster.tolist()):
        # A part of a ring with k nodes has k - 1 edges, in both directions.
        expected = out.x[cluster] / (2 * (int(size[cluster]) - 1))
        torch.testing.assert_close(lifted[node], expected)


@pytest.mark.parametrize(("name", "share"), [("ring", 1 / 3), ("grid", 2 / 7)])
def test_parsing_keeps_about_30_percent_of_the_nodes(name, share):
    """What independent random scores would keep; without dropout next to nothing is left."""
    graph = reconstruct.GRAPHS[name](400)
    torch.manual_seed(0)
    model = AutoEncoder(400)
    for _ in range(3):
        assert model(*graph).num_kept == pytest.approx(400 * share, rel=0.15)
    assert model.eval()(*graph).num_kept < 20


def test_a_draw_that_is_held():
    """Every pass has the same clusters, and what others draw stays as it would be; gpn's passes differ."""
    position, edge_index = reconstruct.ring(100)

    def passes(pool):
        torch.manual_seed(0)
        model = AutoEncoder(100, pool=pool)
        torch.manual_seed(1)
        with torch.no_grad():
            return [model(position, edge_index).x for _ in range(2)], torch.rand(())

    (first, second), drawn = passes(HELD)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(()))
    assert torch.equal(first, second)
    (first, second), _ = passes("gpn")
    assert not torch.equal(first, second)


@pytest.mark.parametrize("pool", POOLS)
def test_nothing_goes_around_pooling(device, monkeypatch, pool):
    """The features reach the result through pooling only: when that is held fast, the result does not see a
    change of the features."""
    graph = reconstruct.Graph(*(tensor.to(device) for tensor in reconstruct.ring(20)))
    torch.manual_seed(0)
    model = AutoEncoder(20, pool=pool, hidden=CHANNELS).to(device).eval()
    seen = model(graph.position, graph.edge_index).x
    given = model.pool(torch.randn(20, CHANNELS, device=device), graph.edge_index)
    monkeypatch.setattr(model.pool, "forward", lambda x, edge_index: given)
    unseen = model(graph.position, graph.edge_index).x
    assert torch.equal(unseen, model(-graph.position, graph.edge_index).x)
    assert not torch.equal(unseen, seen)


@pytest.mark.parametrize("pool", POOLS)
def test_every_parameter_learns(device, graph, pool):
    graph = reconstruct.Graph(*(tensor.to(device) for tensor in graph))
    torch.manual_seed(0)
    model = AutoEncoder(20, pool=pool, hidden=CHANNELS).to(device)
    out = model(*graph)
    assert out.x.shape == (20, 2)
    (functional.mse_loss(out.x, graph.position) + out.extra_loss).backward()
    for name, parameter in model.named_parameters():
        if pool in ("sag", "asap") and name == "pool.layer.select.weight":
            continue  # PyG's layer uses it to rank only
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert bool(parameter.grad.any()), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": "gcn"}, r"pool: expected one of gpn, gpn-held, .*, got 'gcn'"),
        ({"pool": "topk", "ratio": 0.0}, r"ratio: expected a number between 0 and 1, got 0.0"),
    ],
    ids=str,
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        AutoEncoder(20, **options)


# ------------------------------------------------------------------------------------------------------------
# Training
# ------------------------------------------------------------------------------------------------------------

SETTINGS = {"hidden": 16, "ratio": 0.3, "lr": 5e-3, "patience": 1000}


@pytest.mark.parametrize("method", POOLS)
def test_training_lowers_the_error(graph, method):
    untrained = reconstruct.fit(graph, method, 0, epochs=0, **SETTINGS)
    trained = reconstruct.fit(graph, method, 0, epochs=100, **SETTINGS)
    assert (untrained.epochs, trained.epochs) == (0, 100)
    # The nodes' mean has an error of 0.5; what drops nodes hardly learns more than where the kept ones are.
    assert trained.error < (0.45 if method in DROPPING else 0.25)
    assert trained.error < 0.8 * untrained.error
    if method != "gpn":  # which is not the same in every pass
        assert functional.mse_loss(trained.position, graph.position).item() == pytest.approx(trained.error)


def test_the_same_seed_gives_the_same_run(graph):
    first, again, other = (reconstruct.fit(graph, "gpn", seed, epochs=20, **SETTINGS) for seed in (0, 0, 1))
    assert torch.equal(first.position, again.position)
    assert not torch.equal(first.position, other.position)


def test_training_stops_after_patience(graph, monkeypatch):
    monkeypatch.setattr(reconstruct, "TOLERANCE", 0.999)  # only the first error is an improvement
    result = reconstruct.fit(graph, "topk", 0, epochs=50, **{**SETTINGS, "patience": 7})
    assert result.epochs == 8


def test_the_result_is_that_of_the_lowest_error(graph, monkeypatch):
    """A learning rate that destroys what was learned leaves the first parameters the best."""
    untrained = reconstruct.fit(graph, "topk", 0, epochs=0, **SETTINGS)
    ruined = reconstruct.fit(graph, "topk", 0, epochs=5, **{**SETTINGS, "lr": 1e3})
    assert ruined.error == pytest.approx(untrained.error)


# ------------------------------------------------------------------------------------------------------------
# The command
# ------------------------------------------------------------------------------------------------------------


def command(*arguments):
    given = [sys.executable, "-m", "models.reconstruct", *map(str, arguments)]
    return subprocess.run(given, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


def quick(folder, *arguments):
    options = ["--nodes", "16", "--epochs", "3", "--hidden", "8", "--output", str(folder), *arguments]
    reconstruct.main(options)
    return [json.loads(line) for line in (folder / f"{arguments[0]}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("graph", ["ring", "grid"])
def test_a_run_writes_its_files(tmp_path, capsys, graph):
    runs = quick(tmp_path, graph, "--seeds", "1-2")
    assert [(run["method"], run["seed"]) for run in runs] == [(m, s) for m in POOLS for s in (1, 2)]
    for run in runs:
        assert run["graph"] == graph
        assert run["epochs"] == 3
        assert run["options"]["nodes"] == 16
        assert run["versions"]["torch"] == torch.__version__
        assert len(run["position"]) == 16
        if run["method"] != "gpn":
            error = functional.mse_loss(torch.tensor(run["position"]), reconstruct.GRAPHS[graph](16).position)
            assert error.item() == pytest.approx(run["error"], abs=2e-3)
            assert run["kept"] == 5 or (run["method"] == HELD and run["kept"] < 16)
    assert (tmp_path / f"{graph}.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / f"{graph}.svg").read_text()
    assert "<svg" in drawn
    printed = (tmp_path / f"{graph}.md").read_text()
    assert printed in capsys.readouterr().out
    for method in POOLS:
        errors = [run["error"] for run in runs if run["method"] == method]
        assert f"| {reconstruct.NAMES[method]} | {sum(errors) / 2:.2e} ±" in printed


def test_finished_runs_are_not_run_again(tmp_path, capsys, monkeypatch):
    some = ["ring", "--methods", "topk,gpn", "--seeds"]
    first = quick(tmp_path, *some, "0")
    path = tmp_path / "ring.jsonl"
    # As if the command had been stopped while writing.
    path.write_text(path.read_text() + '{"method": "topk", "se')
    again = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    assert again == first

    fitted = []
    fit = reconstruct.fit
    monkeypatch.setattr(
        reconstruct, "fit", lambda graph, *run, **s: fitted.append(run) or fit(graph, *run, **s)
    )
    reconstruct.main(
        [*some, "0-1", "--nodes", "16", "--epochs", "3", "--hidden", "8", "--output", str(tmp_path)]
    )
    assert fitted == [("topk", 1), ("gpn", 1)]
    assert "topk, seed 0: error" in capsys.readouterr().out
    runs = jsonl.read(path)
    assert [(run["method"], run["seed"]) for run in runs] == [
        ("topk", 0),
        ("gpn", 0),
        ("topk", 1),
        ("gpn", 1),
    ]
    assert runs[:2] == first

    fitted.clear()
    reconstruct.main(
        [*some, "0-1", "--nodes", "16", "--epochs", "4", "--hidden", "8", "--output", str(tmp_path)]
    )
    assert len(fitted) == 4  # other options, other runs
    table = (tmp_path / "ring.md").read_text()
    assert table.count("| 4 | 2 |") == 2


def test_command_line(tmp_path):
    done = command(
        "ring", "--nodes", 12, "--epochs", 2, "--methods", "gpn", "--seeds", 0, "--output", tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "| GPN |" in done.stdout
    assert len((tmp_path / "ring.jsonl").read_text().splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_cuda_stops_at_once(tmp_path):
    with pytest.raises(SystemExit, match="this torch sees no CUDA device") as stop:
        reconstruct.main(["ring", "--device", "cuda", "--output", str(tmp_path / "none")])
    assert stop.value.code != 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grid", "--nodes", "17"], "expected a square number for a grid, got 17"),
        (["ring", "--methods", "gpn,gcn"], "expected some of gpn,gpn-held,.*, got 'gcn'"),
        (["ring", "--seeds", "1-x"], "expected numbers and ranges such as 0-3,7, got '1-x'"),
        (["tree"], "invalid choice: 'tree'"),
    ],
    ids=str,
)
def test_bad_command_lines(tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        reconstruct.main([*arguments, "--output", str(tmp_path)])
    assert stop.value.code != 0
    said = capsys.readouterr().err + str(stop.value.code)
    assert re.search(message, said)
