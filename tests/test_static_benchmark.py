"""The benchmark of the static form: what it counts as padding, and the levels that it measures."""

import importlib
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="the benchmark trains models of torch_geometric")
pytest.importorskip("yaml", reason="models needs pyyaml")

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture
def static(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("static")


@pytest.fixture
def real(static, tmp_path):
    if not SHARED.is_dir():
        pytest.skip("no raw data beside the checkout")
    config = static.configs.load("PROTEINS").replace(dropout=0.0, hidden=8, gnn_layers=1)
    return config, static.data.load(config, SHARED, tmp_path)


def test_padding_is_what_is_added_to_all_batches(static, real):
    config, graphs = real
    buckets = static.Buckets.of(static.sizes(graphs, static.epoch(graphs, config.batch_size, 0)))
    found = static.padding(graphs, config.batch_size, buckets)
    per_epoch = -(-graphs.num_graphs // config.batch_size)
    assert sum(bucket["batches"] for bucket in found) == static.EPOCHS * per_epoch
    assert sum(bucket["real_nodes"] for bucket in found) == static.EPOCHS * graphs.x.size(0)
    assert sum(bucket["real_edges"] for bucket in found) == static.EPOCHS * graphs.edge_index.size(1)
    for bucket in found:
        assert bucket["batches"] * bucket["nodes"] > bucket["real_nodes"]
        assert bucket["batches"] * bucket["edges"] >= bucket["real_edges"]
    from pages.static import _added

    for what in ("nodes", "edges"):
        padded = sum(bucket["batches"] * bucket[what] for bucket in found)
        real_ones = sum(bucket[f"real_{what}"] for bucket in found)
        assert _added(found, what) == f"{padded / real_ones - 1:.1%}"
        # What the buckets promise, on real data.
        assert padded < 1.15 * real_ones


def test_levels_are_enough_for_the_batches_they_come_from(static, real):
    config, graphs = real
    torch.manual_seed(0)
    model = static.make_model(config, graphs)
    batches = static.epoch(graphs, config.batch_size, 1)[:2]
    buckets = static.Buckets.of(static.sizes(graphs, batches))
    room = static.levels(model, graphs, batches, buckets, torch.device("cpu"))
    form = static.StaticForm(model, buckets, config.batch_size, lambda capacity: (capacity, *room[1:]))
    for each in batches:
        batch = graphs.take(each)
        got, expected = (
            called(batch.x, batch.edge_index, None, batch.batch, batch.num_graphs).out
            for called in (form, model)
        )
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    assert form.misfits == 0


def test_report(static):
    bucket = {"nodes": 110, "edges": 220, "batches": 2, "real_nodes": 200, "real_edges": 400}
    seconds = {"dynamic": 0.3, "static": 0.4, "static, compiled": 0.2}
    result = {"dataset": "NCI1", "batch_size": 4, "hidden": 8, "seconds": seconds, "buckets": [bucket]}
    text = static.report({"results": [result]})
    assert "| NCI1, 4 graphs, 8 channels | 300 | 400 | 200 | 1.50 |" in text
    assert "| NCI1 | 110 nodes, 220 edges | 2 | 10.0% | 10.0% |" in text
    assert "| NCI1 | all | 2 | 10.0% | 10.0% |" in text
    del result["seconds"]  # where only the padding was counted
    assert static.report({"results": [result]}) == text[text.index("Padding, of") :]
