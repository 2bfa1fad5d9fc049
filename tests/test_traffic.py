"""The bounds of benchmarks/traffic.py are in order, and its measuring part runs."""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def traffic(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import traffic

    return traffic


def test_bounds_are_in_order(traffic):
    for operator in traffic.OPERATORS:
        for step in traffic.steps_of(operator, traffic.DOCUMENTED):
            assert 0 <= step.low(traffic.DOCUMENTED) <= step.high(traffic.DOCUMENTED)
    with pytest.raises(ValueError, match="expected a known one"):
        traffic.steps_of("sort", traffic.DOCUMENTED)


def test_measuring_runs(traffic):
    content = traffic.measure(traffic.Size(300, 2000, 100, 3), torch.device("cpu"), 10.0)
    table = traffic.report(content)
    assert all(f"`{operator}`" in table for operator in traffic.OPERATORS)


def test_cards_are_known_by_the_names_that_torch_reports(traffic):
    reported = {
        "NVIDIA GeForce RTX 4090": 1008,
        "NVIDIA A100 80GB PCIe": 1935,
        "NVIDIA A100-SXM4-80GB": 2039,
        "NVIDIA H100 80GB HBM3": 3350,
        "NVIDIA T4": None,
    }
    assert {name: traffic.peak_bandwidth(name) for name in reported} == reported


def test_what_is_measured_stands_beside_the_prediction(traffic):
    results = [{"operator": "parse", "seconds": 0.004, "low": 10**9, "high": 2 * 10**9}]
    row = traffic.report({"bandwidth": 1000.0, "results": results}).splitlines()[-1]
    # 1 GB in 4 ms; 2 GB at 1000 GB/s are 2 ms, of which 4 ms are twice as much.
    assert row == "| `parse` | 4.000 | 250 | 2.000 | 2.00 |"
    unknown = traffic.report({"bandwidth": None, "results": results}).splitlines()[-1]
    assert unknown == "| `parse` | 4.000 | 250 | - | - |"
