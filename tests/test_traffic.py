"""The predictions of docs/cuda.md are those of benchmarks/traffic.py, whose measuring part runs here too."""

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def traffic(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import traffic

    return traffic


def test_the_page_has_the_predictions(traffic):
    page = (ROOT / "docs" / "cuda.md").read_text()
    assert traffic.kernel_table() in page
    assert traffic.prediction_table(traffic.DOCUMENTED) in page


def test_bounds_are_in_order(traffic):
    for operator in traffic.SYNCHRONISATIONS:
        for step in traffic.steps_of(operator, traffic.DOCUMENTED):
            assert 0 <= step.low(traffic.DOCUMENTED) <= step.high(traffic.DOCUMENTED)
    with pytest.raises(ValueError, match="expected a known one"):
        traffic.steps_of("sort", traffic.DOCUMENTED)


def test_measuring_runs(traffic):
    table = traffic.measured_table(traffic.Size(300, 2000, 100, 3), torch.device("cpu"), 10.0)
    assert all(f"`{operator}`" in table for operator in traffic.SYNCHRONISATIONS)
