"""The benchmark of whole models: peaks and times of real models on real data, tables and plots of them."""

import importlib
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="the benchmark trains models of torch_geometric")
pytest.importorskip("yaml", reason="models needs pyyaml")
pytest.importorskip("matplotlib", reason="benchmarks needs matplotlib")

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
CPU = torch.device("cpu")
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="no raw data beside the checkout")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


@pytest.fixture
def training(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    deterministic = torch.are_deterministic_algorithms_enabled()
    yield importlib.import_module("training")
    torch.use_deterministic_algorithms(deterministic)


CONTENT = {
    "dataset": "PROTEINS",
    "results": [
        {"method": "GPN", "share": share, "training": int(2**20 * 40 * share), "forward": 2**20, **sizes}
        for share, sizes in ((0.5, {"num_nodes": 100}), (1, {"num_nodes": 200}))
    ]
    + [
        {"method": "TopK", "share": 1, "training": 2**20 * 50, "forward": 2**20, "num_nodes": 200},
        {"method": "MinCut", "share": 0.5, "training": "out of memory", "forward": "out of memory"},
    ],
    "seconds": {
        what: {name: {"median": 0.2, "low": 0.1, "high": 0.3} for name in ("GPN", "TopK")}
        for what in ("training", "forward")
    },
    "accuracy": {"GPN": {"runs": 10, "accuracy": 75.0, "epochs": 60.5, "seconds": 100.0, "commits": ["a"]}},
}


def test_report_and_highlights(training):
    text = training.report(CONTENT)
    assert "| GPN | 40 | 200 | 1 | 200 | 1.00 |" in text
    assert "| TopK | 50 | 200 | 1 | 200 | - |" in text
    assert "| MinCut | out of memory | - | out of memory | - | - |" in text
    assert "| GPN | 10 | 75.0 | 60.5 | 100.0 |" in text
    from pages.training import highlights

    (row,) = highlights(CONTENT)
    assert row == ["training step of a GPN, PROTEINS: peak memory / that of TopK", "0.80"]
    (plot,) = training.plots(CONTENT).values()
    assert plot.curves == {"GPN": [(100, 20 * 2**20), (200, 40 * 2**20)], "TopK": [(200, 50 * 2**20)]}


def test_committed_runs_are_read(training):
    found = training.to_accuracy("PROTEINS")
    assert {"GPN", "TopK"} <= set(found)
    assert 60 < found["GPN"]["accuracy"] < 90
    assert found["GPN"]["seconds"] > 0


@needs_data
def test_a_step_of_real_models(training):
    made = {name: training.measure_peaks(name, "MUTAG", 32, SHARED, CPU, 1) for name in ("GPN", "TopK")}
    assert made["GPN"]["num_nodes"] == made["TopK"]["num_nodes"]
    for peaks in made.values():
        assert 0 < peaks["forward"] <= peaks["training"]
    less = training.measure_peaks("GPN, recompute=true", "MUTAG", 32, SHARED, CPU, 1)
    more = training.measure_peaks("GPN, recompute=false", "MUTAG", 32, SHARED, CPU, 1)
    assert less["training"] < more["training"]
    times = training.measure_times(["GPN", "TopK"], "MUTAG", SHARED, CPU, 1, 0.01)
    assert all(timing.median > 0 for found in times.values() for timing in found.values())


# MiB that a training step of the TopK model took while dropout still kept its masks.
MOST = {"PROTEINS": 50, "NCI1": 63, "DD": 210}


@needs_data
@pytest.mark.parametrize("dataset", MOST)
def test_a_gpn_trains_in_no_more_than_a_topk_model_took(training, dataset):
    peaks = training.measure_peaks("GPN", dataset, None, SHARED, CPU, 1)
    assert peaks["training"] <= MOST[dataset] * 2**20
