"""Pictures of training and of trees: the figures in them, and what the command says to bad input."""

import json
import shutil

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("matplotlib", reason="drawing needs matplotlib")

from matplotlib.collections import FillBetweenPolyCollection, PathCollection

from models import communities, config, draw, pictures
from models.training import make_model

DATASET = "models.communities:Communities(12)"


def log(path, heights, deviations=None, losses=None):
    """A log with these heights, an epoch each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"epoch": k + 1, "loss": 1.0, "height": height, "height_std": deviations[k] if deviations else 0.0}
        for k, height in enumerate(heights)
    ]
    for line, loss in zip(lines, losses or [], strict=False):
        if loss is not None:
            line["val_loss"] = loss
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# ------------------------------------------------------------------------------------------------------------
# Heights
# ------------------------------------------------------------------------------------------------------------


def test_heights_by_hand(tmp_path):
    logs = [
        log(tmp_path / "a", [2.0, 4.0, 5.0], [3.0, 0.0, 1.0], [0.9, 0.5, 0.7]),
        log(tmp_path / "b", [10.0, 4.0], [3.0, 2.0], [None, 0.8]),
        log(tmp_path / "c", [6.0], [3.0], [0.1]),
    ]
    heights = pictures.read_heights(logs)
    # The third epoch has one run of three, less than half of them.
    assert heights.epochs == [1, 2]
    assert heights.mean == [6.0, 4.0]
    # Over all graphs: the mean variance inside the runs, and the variance of their means (16 + 16 + 0) / 3.
    assert heights.deviation == pytest.approx([(9 + 32 / 3) ** 0.5, 2**0.5])
    # The lowest losses are in the epochs 2, 2 and 1, where heights are 4, 4 and 6.
    assert heights.best_epoch == pytest.approx(5 / 3)
    assert heights.best_height == pytest.approx(14 / 3)
    assert heights.runs == 3


def test_half_of_the_runs_is_enough(tmp_path):
    heights = pictures.read_heights([log(tmp_path / "a", [1.0, 3.0]), log(tmp_path / "b", [2.0])])
    assert heights.epochs == [1, 2]
    assert heights.mean == [1.5, 3.0]
    assert heights.best_epoch is None


def test_line_that_was_cut_short(tmp_path, capsys):
    path = log(tmp_path / "a", [1.0, 3.0])
    path.write_text(path.read_text() + '{"epoch": 3, "hei')
    assert pictures.read_heights([path]).epochs == [1, 2]
    assert f"warning: {path}, line 3: skipped, no complete epoch" in capsys.readouterr().err


def test_epochs_without_a_line_are_named(tmp_path, capsys):
    path = log(tmp_path / "a", [1.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[3] + lines[5])
    pictures.read_heights([path])
    assert capsys.readouterr().err == f"warning: {path}: no lines of epochs 2-3, 5\n"


def test_logs_without_heights(tmp_path):
    path = tmp_path / "a"
    path.write_text('{"epoch": 1, "loss": 1.0}\n')
    with pytest.raises(ValueError, match="expected epochs with heights"):
        pictures.read_heights([path])


def test_every_data_set_and_settings_have_a_panel(tmp_path):
    def logs(path, folds=1):
        return [log(tmp_path / path / "epochs" / f"seed0-fold{fold}.jsonl", [1.0]) for fold in range(folds)]

    expected = {
        "PROTEINS": logs("PROTEINS/gpn", 2),
        "PROTEINS, 0123456789ab": logs("PROTEINS/gpn-0123456789ab"),
        "Cora": logs("more/Cora/gpn"),
        "Mine": logs("Mine/gpn"),
    }
    logs("PROTEINS/gcn")
    logs("Cora/gcn-0123456789ab")
    begun = tmp_path / "NCI1" / "gpn" / "epochs" / "seed0-fold0.jsonl"
    begun.parent.mkdir(parents=True)
    begun.touch()
    found = pictures.find_logs(tmp_path)
    assert found == expected
    assert list(found) == list(expected)


def test_packed_logs_give_the_same_heights(tmp_path, capsys):
    runs = tmp_path / "Cora" / "gpn"
    for fold in range(3):
        log(runs / "epochs" / f"seed1-fold{fold}.jsonl", [2.0, 4.0 + fold], [0.5, 0.0], [None, 0.3])
    log(tmp_path / "Cora" / "gcn" / "epochs" / "seed0-fold0.jsonl", [1.0])
    (runs / "runs.jsonl").write_text("".join(f'{{"seed": 1, "fold": {fold}}}\n' for fold in range(2)))
    before = pictures.read_heights(pictures.find_logs(tmp_path)["Cora"])
    assert draw.main(["pack", str(tmp_path)]) == 0
    assert "packed the epochs of 2 runs" in capsys.readouterr().out
    # The third is not finished, and the baseline has none that is.
    assert [path.name for path in (runs / "epochs").iterdir()] == ["seed1-fold2.jsonl"]
    assert pictures.read_heights(pictures.find_logs(tmp_path)["Cora"]) == before
    # A run that is made again counts once, before and after it is packed once more.
    log(runs / "epochs" / "seed1-fold0.jsonl", [2.0, 8.0], [0.5, 0.0], [None, 0.3])
    again = pictures.read_heights(pictures.find_logs(tmp_path)["Cora"])
    assert (again.runs, again.mean) == (3, [2.0, 19 / 3])
    pictures.pack(tmp_path)
    assert pictures.read_heights(pictures.find_logs(tmp_path)["Cora"]).mean == pytest.approx(again.mean)


def test_sizes_of_clusters(tmp_path, capsys):
    """Only runs that have noted them; packed or not."""
    runs = tmp_path / "Cora" / "gpn"
    for fold, sizes in enumerate(([2.0, 3.0], [4.0, 5.0], None)):
        path = log(runs / "epochs" / f"seed0-fold{fold}.jsonl", [1.0, 1.0], None, [0.5, 0.3])
        if sizes is not None:
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            lines = [line | {"cluster_size": size} for line, size in zip(lines, sizes, strict=True)]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    log(tmp_path / "PubMed" / "gpn" / "epochs" / "seed0-fold0.jsonl", [1.0])
    (runs / "runs.jsonl").write_text("".join(f'{{"seed": 0, "fold": {fold}}}\n' for fold in range(3)))

    def check():
        found = pictures.find_logs(tmp_path, "cluster_size")
        assert list(found) == ["Cora"]
        sizes = pictures.read_heights(found["Cora"], "cluster_size")
        assert (sizes.runs, sizes.mean, sizes.deviation) == (2, [3.0, 4.0], [1.0, 1.0])
        assert (sizes.best_epoch, sizes.best_height) == (2, 4.0)
        assert pictures.read_heights(pictures.find_logs(tmp_path)["Cora"]).runs == 3
        (panel,) = pictures.draw_heights(found, "cluster_size").axes
        assert (panel.get_title(), panel.get_ylabel()) == ("Cora (2 runs)", "nodes a first-level cluster")

    check()
    pictures.pack(tmp_path)
    assert (runs / "epochs.jsonl").exists()
    check()
    assert draw.main(["clusters", str(tmp_path), "--output", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").stat().st_size > 10_000
    shutil.rmtree(runs)
    assert draw.main(["clusters", str(tmp_path)]) == 1
    assert "gpn/epochs/*.jsonl in it, with cluster_size" in capsys.readouterr().err


def test_drawn_heights(tmp_path):
    logs = {
        name: [log(tmp_path / name, [1.0 + k, 3.0 + k], [0.5, 0.5], [0.9, 0.2])]
        for k, name in enumerate(("one", "two", "three", "four", "five"))
    }
    panels = [axes for axes in pictures.draw_heights(logs).axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == [f"{name} (1 run)" for name in logs]
    for k, axes in enumerate(panels):
        (line,) = axes.get_lines()
        assert line.get_xydata().tolist() == [[1, 1 + k], [2, 3 + k]]
        (shadow,) = (each for each in axes.collections if isinstance(each, FillBetweenPolyCollection))
        assert shadow.get_paths()[0].get_extents().extents.tolist() == [1, 0.5 + k, 2, 3.5 + k]
        (star,) = (each for each in axes.collections if type(each) is PathCollection)
        assert star.get_offsets().tolist() == [[2, 3 + k]]
        assert axes.get_ylim() == panels[0].get_ylim()


# ------------------------------------------------------------------------------------------------------------
# Trees
# ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return config.load(DATASET, ["hidden=8", "gnn_layers=1"])


@pytest.fixture(scope="module")
def graphs(small):
    return communities.load(small)


@pytest.fixture
def weights(small, graphs):
    torch.manual_seed(7)
    return make_model(small, graphs).state_dict()


@pytest.mark.parametrize("graph", [0, 11])
def test_tree_of_a_prediction_is_that_of_the_graph_in_its_batch(small, graphs, weights, graph):
    model = make_model(small, graphs).eval()
    model.load_state_dict(weights)
    batch = graphs.take(torch.arange(12))
    with torch.no_grad():
        together = model(batch.x, batch.edge_index, None, batch.batch, 12)
    alone = pictures.predict(small, graphs, graph, weights)
    torch.testing.assert_close(alone.out[0], together.out[graph])
    assert int(alone.height) == int(together.height[graph])
    assert torch.equal(
        alone.tree.levels[0].edge_index,
        graphs.edge_index[:, graphs.edge_ptr[graph] : graphs.edge_ptr[graph + 1]],
    )


def test_titles(small, graphs, weights):
    untrained = pictures.draw_prediction(small, graphs, 4, None).get_suptitle()
    assert untrained == "Communities(12), graph 4 of class 1, untrained model"
    predicted = int(pictures.predict(small, graphs, 4, weights).out.argmax())
    trained = pictures.draw_prediction(small, graphs, 4, weights).get_suptitle()
    assert trained == f"Communities(12), graph 4 of class 1, predicted {predicted}"


def test_weights_are_used(small, graphs, weights):
    first, second = pictures.predict(small, graphs, 4, None), pictures.predict(small, graphs, 4, weights)
    assert not torch.allclose(first.out, second.out)
    assert torch.equal(first.out, pictures.predict(small, graphs, 4, None).out)


@pytest.mark.parametrize(
    ("graph", "model", "complaint"),
    [(12, "gpn", "from 0 to 11, as .* has 12 graphs, got 12"), (-1, "gpn", "got -1"), (0, "topk", "no tree")],
)
def test_what_cannot_be_drawn(small, graphs, graph, model, complaint):
    with pytest.raises(ValueError, match=complaint):
        pictures.predict(small.replace(model=model), graphs, graph, None)


def test_weights_that_do_not_fit(small, graphs, weights):
    with pytest.raises(ValueError, match="do not fit"):
        pictures.predict(small.replace(hidden=9), graphs, 0, weights)


# ------------------------------------------------------------------------------------------------------------
# The command
# ------------------------------------------------------------------------------------------------------------


def test_command_draws_a_tree(tmp_path, small, weights, capsys):
    file, picture = tmp_path / "weights.pt", tmp_path / "new" / "tree.png"
    torch.save({"config": small.to_dict(), "model": weights}, file)
    command = ["tree", DATASET, "--graph", "3", "--weights", str(file), "--output", str(picture)]
    assert draw.main(command) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in capsys.readouterr().out


def test_command_draws_heights(tmp_path):
    log(tmp_path / "PROTEINS" / "gpn" / "epochs" / "seed0-fold0.jsonl", [1.0, 2.0])
    picture = tmp_path / "heights.png"
    assert draw.main(["heights", str(tmp_path), "--output", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_command_with_bad_input(tmp_path, small, weights, capsys):
    other, broken = tmp_path / "other.pt", tmp_path / "broken.pt"
    torch.save({"config": small.replace(dataset="Cora").to_dict(), "model": weights}, other)
    broken.write_text("no weights")
    for command, complaint in (
        (["heights", str(tmp_path / "missing")], "there is no folder"),
        (["heights", str(tmp_path)], "no runs in"),
        (["tree", "no thing"], "expected one of"),
        (["tree", DATASET, "--graph", "12"], "from 0 to 11"),
        (["tree", DATASET, "--weights", str(tmp_path / "missing.pt")], "there is no file"),
        (["tree", DATASET, "--weights", str(broken)], "expected a file saved by models.train"),
        (["tree", DATASET, "--weights", str(other)], "got one of Cora"),
    ):
        assert draw.main([*command, "--output", str(tmp_path / "none.png")]) != 0
        assert complaint in capsys.readouterr().err
    assert not (tmp_path / "none.png").exists()
