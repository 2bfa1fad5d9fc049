"""Measured times beside those of the cost model, on any device."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import common
import gpu_cases
import predicted
from pages import sections

OTHER_CARD = predicted.Peaks(None, gpu_cases.Card(1e12, 1e13))
ENTRY = {
    "both": {
        "launches": 100,
        "waits": 2,
        "bytes": 8e9,
        "operations": 6e9,
        "host_ms": 0.53,
        "ms": {"H100": 4.0},
    }
}


def test_layers_are_measured_beside_predictions(device, tmp_path, monkeypatch):
    def here(function, *arguments, **limits):
        assert limits["device"] == device
        return function(*arguments)

    monkeypatch.setattr(common, "isolated", here)
    peaks = ["--bandwidth", "1000", "--operations", "50"]
    chosen = ["--quick", "--method", "ParsePooling", "TopK", "--workload", "a", "--threads", "1", *peaks]
    where = ["--device", device.type, "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["predicted.py", *chosen, *where])
    predicted.main()
    content = json.loads((tmp_path / f"predicted_{device.type}.json").read_text())
    found = {(result["method"], result["form"]) for result in content["results"]}
    assert found == {(m, f) for m in ("ParsePooling", "TopK") for f in ("layer", "hierarchy")}
    for result in content["results"]:
        assert result["seconds"] > 0
        assert result["peak_bytes"] > 0
        assert result["predicted"] > 0
    page = predicted.report(content)
    assert "Layer, forward and backward" in page
    assert "Hierarchy, forward and backward" in page
    assert gpu_cases.LOADS["a"].text in page


def test_predictions_are_those_of_the_card():
    assert predicted.seconds_predicted(ENTRY, predicted.Peaks("H100", None)) == pytest.approx(4e-3)
    # Of another card: bytes over 0.8 of its bandwidth, here more than operations and the host's time.
    assert predicted.seconds_predicted(ENTRY, OTHER_CARD) == pytest.approx(8e9 / 0.8e12)
    assert predicted.seconds_predicted(ENTRY, predicted.Peaks(None, None)) is None
    assert predicted.seconds_predicted(None, OTHER_CARD) is None


def test_predictions_need_no_measurement_to_be_shown():
    result = {"method": "EdgePool", "form": "layer", "workload": "c", "outcome": "out of time"}
    content = {"workloads": {"c": "a graph"}, "results": [{**result, "predicted": 8.8}]}
    assert "| EdgePool | c | out of time | - | 8800.000 | - |" in predicted.report(content)


@pytest.mark.parametrize("workload", gpu_cases.LOADS)
def test_workloads_have_their_full_size(workload):
    """The sizes that their texts name."""
    size = gpu_cases.whole(workload)
    wanted = {"a": (256, 30, 32), "b": (10, 1000, 10**5), "c": (1, 10**6, 2 * 10**6)}[workload]
    assert (size.graphs, size.nodes, size.pairs) == wanted


def test_the_report_has_a_section_for_it():
    assert "predicted.py" in [section.command for section in sections.SECTIONS]
