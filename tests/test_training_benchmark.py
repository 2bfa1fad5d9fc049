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
        {"method": "SAG", "share": 1, "training": 2**20 * 20, "forward": 2**20, "num_nodes": 200},
        {"method": "MinCut", "share": 0.5, **dict.fromkeys(("training", "forward"), "out of memory")}
        | {"num_nodes": 100},
    ],
    "seconds": {
        what: {
            name: {"median": median, "low": 0.1, "high": 0.3}
            for name, median in {"GPN": 0.2, "TopK": 0.1, "SAG": 0.4}.items()
        }
        for what in ("training", "forward")
    },
    "machine": {"threads": 1, "clock": "processor time"},
    "accuracy": {"GPN": {"runs": 10, "accuracy": 75.0, "epochs": 60.5, "seconds": 100.0, "commits": ["a"]}},
}


def test_report_summary_and_plot(training):
    text = training.report(CONTENT)
    assert "| GPN | 40 | 200 | 1 | 200 | 1.00 |" in text
    assert "| TopK | 50 | 100 | 1 | 100 | - |" in text
    assert "| MinCut | out of memory | - | out of memory | - | - |" in text
    assert "| GPN | 10 | 75.0 | 60.5 | 100.0 |" in text
    from pages.training import summary

    # In bold what a peer needs less of, memory and time apart.
    words, table = summary([CONTENT, CONTENT | {"dataset": "DD"}])
    assert "(1 thread, processor time)" in words
    assert table.splitlines()[0] == "| memory, time | GPN | TopK | SAG | MinCut |"
    line = "40 MiB, 200 ms | 0.800, **2.00** | **2.00**, 0.500 | out of memory |"
    assert table.splitlines()[2:] == [f"| PROTEINS | {line}", f"| DD | {line}"]
    assert summary([]) == []
    # What the profiler could not hold has a time alone.
    timed = {what: times | {"EdgePool": {"median": 0.8}} for what, times in CONTENT["seconds"].items()}
    edgepool = {"method": "EdgePool", "training": 2**20 * 80, "forward": 1, "num_nodes": 100}
    contents = [
        CONTENT | {"seconds": timed, "results": [*CONTENT["results"], edgepool | {"share": share}]}
        for share in (1, 0.5)
    ]
    cells = [line.split("|")[-2].strip() for line in summary(contents)[1].splitlines()]
    assert cells == ["EdgePool", "---", "0.500, 0.250", "-, 0.250"]
    (plot,) = training.plots(CONTENT).values()
    mebibyte = 2**20
    assert plot.curves == {
        "GPN": [(100, 20 * mebibyte), (200, 40 * mebibyte)],
        "TopK": [(200, 50 * mebibyte)],
        "SAG": [(200, 20 * mebibyte)],
    }
    assert plot.exhausted == {"MinCut": 100}


def test_committed_runs_are_read(training):
    found = training.to_accuracy("PROTEINS")
    assert {"GPN", "TopK"} <= set(found)
    assert 60 < found["GPN"]["accuracy"] < 90
    assert found["GPN"]["seconds"] > 0


@needs_data
def test_a_step_of_real_models(training):
    made = {name: training.measure_peaks(name, "MUTAG", 32, SHARED, CPU, 1) for name in ("GPN", "TopK")}
    for peaks in made.values():
        assert 0 < peaks["forward"] <= peaks["training"]
    less = training.measure_peaks("GPN, recompute=true", "MUTAG", 32, SHARED, CPU, 1)
    more = training.measure_peaks("GPN, recompute=false", "MUTAG", 32, SHARED, CPU, 1)
    assert less["training"] < more["training"]
    times = training.measure_times(["GPN", "TopK"], "MUTAG", SHARED, CPU, 1, 0.01)
    assert all(timing.median > 0 for found in times.values() for timing in found.values())


@needs_data
def test_gradients_count_in_a_step(training):
    """With one small graph there is little else."""
    run, _ = training.make_run("GPN", "MUTAG", 1, SHARED, CPU)
    gradients = sum(parameter.numel() * parameter.element_size() for parameter in run.model.parameters())
    peaks = training.measure_peaks("GPN", "MUTAG", 1, SHARED, CPU, 1)
    assert peaks["training"] > gradients > peaks["forward"]


@needs_data
def test_what_ran_out_is_not_tried_again(training, monkeypatch):
    tried, timed = [], []

    def isolated(measure, *arguments, **limits):
        if measure is training.measure_times:
            timed.extend(arguments[0])
            return {"training": {}, "forward": {}}
        name, _, num_graphs, *_ = arguments
        tried.append((name, num_graphs))
        return "out of memory" if name == "TopK" and num_graphs > 64 else {"training": 2, "forward": 1}

    monkeypatch.setattr(training.common, "isolated", isolated)
    monkeypatch.setattr("sys.argv", ["training.py", "--models", "topk,sag", "--data-root", str(SHARED)])
    options = training.parser().parse_args()
    results = training.measure("MUTAG", options, CPU)["results"]
    sizes = [("TopK", size) for size in (32, 64, 128)], [("SAG", size) for size in (32, 64, 128, 151)]
    assert tried == [*sizes[0], *sizes[1]]
    assert timed == ["SAG"]
    last = results[2]
    assert (last["method"], last["share"], last["training"]) == ("TopK", 1, "out of memory")
    assert last["num_nodes"] == results[5]["num_nodes"] > results[1]["num_nodes"]


# MiB that a training step of the TopK model took while dropout still kept its masks.
MOST = {"PROTEINS": 50, "NCI1": 63, "DD": 210}


@needs_data
@pytest.mark.parametrize("dataset", MOST)
def test_a_gpn_trains_in_no_more_than_a_topk_model_took(training, dataset):
    batch_size = training.configs.load(dataset).batch_size
    peaks = training.measure_peaks("GPN", dataset, batch_size, SHARED, CPU, 1)
    assert peaks["training"] <= MOST[dataset] * 2**20
