"""Settings: the presets are the paper's, and what is given by hand is checked."""

import pytest

pytest.importorskip("yaml", reason="models needs pyyaml")
pytest.importorskip("torch_geometric", reason="models needs torch_geometric")

from synthetic import ROOT

from models import config as configs

PAPER = ROOT / "tests" / "models" / "paper_settings.md"


@pytest.mark.parametrize("name", configs.presets())
def test_every_preset_loads(name):
    config = configs.load(name)
    assert name == config.dataset or name.startswith(f"{config.dataset}-")
    assert configs.load(name.lower()) == config


def paper():
    """The table of the paper's settings: by data set, then by row."""
    rows = [line.strip("|").split("|") for line in PAPER.read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in rows]
    names = [cell.split(" ")[0] for cell in rows[0][1:]]
    return {name: {row[0]: row[k] for row in rows[2:]} for k, name in enumerate(names, 1)}


def test_presets_are_the_papers():
    table = paper()
    assert len(table) == 10
    assert set(table) == set(configs.presets("paper"))
    for name, wanted in table.items():
        config = configs.load(name)
        node = wanted["task"] == "node"
        assert config.task == ("node" if node else "molecule" if name.startswith("ogbg") else "graph"), name
        shared = wanted["GNN layers, multiset (GNN')"] == "shared"
        multiset = None if shared else int(wanted["GNN layers, multiset (GNN')"])
        max_epochs, patience = (2000, 20) if node else map(int, wanted["max epochs / patience"].split("/"))
        expected = {
            "hidden": int(wanted["hidden channels"]),
            "gnn_layers": int(wanted["GNN layers, scoring (GNN)"]),
            "multiset_gnn_layers": multiset,
            "deepsets_layers": int(wanted["DeepSets layers (each of its two MLPs)"]),
            "scorer_layers": int(wanted["edge-score MLP layers"]),
            "mlp_layers": int(wanted["input / output MLP layers"].split(" ")[0]),
            "dropout": float(wanted["dropout"]),
            "drop_edge": float(wanted["drop-edge while parsing"]),
            "self_loops": wanted["self-loops compete while parsing"] == "yes",
            "act_last": wanted["activation and dropout after a block's last layer"] == "yes",
            "lr": float(wanted["learning rate"]),
            "weight_decay": float(wanted["weight decay"]),
            "warmup": (200 if node else 50) if wanted["cosine schedule with warm-up"] == "yes" else 0,
            "clip": None if wanted["gradient-norm clip"] == "none" else float(wanted["gradient-norm clip"]),
            "max_epochs": max_epochs,
            "patience": patience,
            "eval_every": 10 if node else 1,
            "conv": "gcn",
            "multiset": "deepsets",
            "weighted": False,
            "readout": "sum",
            "select": "loss",
        }
        if node:
            expected["decoder_layers"] = config.gnn_layers if multiset is None else multiset
        else:
            expected["batch_size"] = int(wanted["batch size"])
        found = {key: getattr(config, key) for key in expected}
        assert found == expected, name


OWN = configs.presets("own")


def test_presets_of_our_own_live_apart():
    assert not set(OWN) & set(configs.presets("paper"))
    assert set(OWN) | set(configs.presets("paper")) == set(configs.presets())


@pytest.mark.parametrize("name", [name for name in OWN if configs.load(name).dataset != name])
def test_presets_of_our_own_are_the_papers_but_for_training(name):
    config = configs.load(name)
    own, paper = config.to_dict(), configs.load(config.dataset).to_dict()
    changed = {key for key in own if own[key] != paper.get(key)}
    assert changed
    assert changed <= {"input_dropout", "warmup", "eval_every", "patience", "average"}


def test_trials_are_no_settings_of_the_main_configuration():
    plain = configs.load("Cora").to_dict()
    for key, value in {"input_dropout": 0.5, "directed_scores": True, "average": 0.5}.items():
        assert not hasattr(configs.load("Cora"), key)
        assert key not in plain
        config = configs.load("Cora", [f"{key}={value}"])
        assert getattr(config.trial, key) == value
        assert config.to_dict() == {**plain, key: value}
        assert configs.Config.from_dict(config.to_dict()) == config
        assert config.to_yaml().endswith(f"{key}: {value}\n")
    with pytest.raises(ValueError, match=r"input_dropout: expected from 0 to 1, got 1\.5"):
        configs.load("Cora", ["input_dropout=1.5"])


def test_settings_by_hand():
    config = configs.load("PROTEINS", ["lr=5e-3", "clip=none", "hidden=64", "max_height = 3"], model="topk")
    assert (config.lr, config.clip, config.hidden, config.max_height, config.model) == (
        5e-3,
        None,
        64,
        3,
        "topk",
    )
    assert configs.load("PROTEINS", ["dropout=0"]).dropout == 0.0
    assert configs.load("PROTEINS", ["multiset_gnn_layers=None"]).multiset_gnn_layers is None
    assert configs.load("PROTEINS", ["self_loops=true"]).self_loops is True


def test_a_file_of_settings(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("dataset: package.module:Class('a', name='b')\nlr: 1e-4\nmax_height: none\n")
    config = configs.load(str(path), trust=True)
    assert (config.dataset, config.lr, config.max_height) == (
        "package.module:Class('a', name='b')",
        1e-4,
        None,
    )
    path.write_text("hidden: 3\n")
    with pytest.raises(ValueError, match="expected key: value lines with at least 'dataset' or 'base'"):
        configs.load(str(path))
    path.write_text("base: CiteSeer\nhidden: 3\n")
    assert configs.load(str(path)) == configs.load("CiteSeer", ["hidden=3"])
    path.write_text("base: Citeseer\n")
    with pytest.raises(ValueError, match=r"mine\.yaml: base: expected one of .*, got 'Citeseer'"):
        configs.load(str(path))
    path.write_text("dataset: x\nhiden: 3\n")
    with pytest.raises(ValueError, match=r"settings: expected one of dataset, .*, got 'hiden'"):
        configs.load(str(path))


def test_a_file_alone_names_no_code(tmp_path):
    """Whoever is handed a file of settings has not read it."""
    path = tmp_path / "mine.yaml"
    path.write_text("dataset: package.module:Class\nhidden: 3\n")
    message = r"mine\.yaml: dataset: expected the name .*, got the import path .*: allow it with --trust"
    with pytest.raises(ValueError, match=message):
        configs.load(str(path))
    with pytest.raises(ValueError, match=message):
        configs.load(str(path), ["lr=1"], hidden=4)
    assert configs.load(str(path), trust=True).dataset == "package.module:Class"
    # What was typed was chosen.
    assert configs.load(str(path), ["dataset=other.module:Other"]).dataset == "other.module:Other"
    assert configs.load("package.module:Class").dataset == "package.module:Class"
    path.write_text("base: Cora\ndataset: package.module:Class\n")
    with pytest.raises(ValueError, match=message):
        configs.load(str(path))


@pytest.mark.parametrize(
    "name",
    [
        "x:/abs/path",
        "x:../up",
        "../up",
        "/abs/path",
        "a/b",
        ".",
        "..",
        "",
        ".hidden",
        "x:",
        ":x",
        "os.:x",
        "a\nb",
    ],
)
def test_names_that_would_leave_a_folder(name):
    with pytest.raises(ValueError, match="dataset: expected "):
        configs.Config(name)


@pytest.mark.parametrize("name", ["x.y:Class('/abs/path', root='../up')", "ogbg-molpcba", "PROTEINS"])
def test_folders_are_names_alone(name):
    folder = configs.folder_name(configs.Config(name).dataset)
    assert folder in ("Class", name)
    assert "/" not in folder


def test_a_file_that_is_no_yaml(tmp_path):
    path = tmp_path / "mine.yaml"
    contents = (b"dataset: [", b"\xff\xfe\x00", b"dataset: !!python/object/apply:os.getcwd []", b"[" * 2000)
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"mine\.yaml: expected YAML, got ") as caught:
            configs.load(str(path))
        assert "\n" not in str(caught.value)
    path.write_text("dataset: MUTAG\nhidden: 8\nhidden: 16\n")
    with pytest.raises(ValueError, match=r"mine\.yaml: expected YAML, got hidden twice in "):
        configs.load(str(path))
    with pytest.raises(ValueError, match="expected key=value, got"):
        configs.load("PROTEINS", ["hidden=" + "[" * 2000])
    path.write_text("dataset: [x]\n")
    with pytest.raises(ValueError, match=r"dataset: expected str, got \['x'\]"):
        configs.load(str(path))
