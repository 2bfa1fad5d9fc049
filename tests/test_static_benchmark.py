"""The benchmark of the static form: what it counts as padding, and the levels that it measures."""

import importlib
import re
from functools import partial
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


@pytest.fixture
def in_every_form(static, real, monkeypatch):
    """Compiled without inductor, which takes minutes."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    config, graphs = real
    config = config.replace(batch_size=24, max_height=2)
    buckets = static.Buckets.of(static.sizes(graphs, static.epoch(graphs, config.batch_size, 0)))
    return static.forms(config, graphs, buckets, torch.device("cpu"))


def test_forms_agree_on_batches_of_one_size(static, in_every_form):
    model, calls, batches = in_every_form
    assert list(calls) == ["dynamic", "static", "static, compiled"]
    assert len(batches) == static.MEASURED
    for form in calls.values():
        for batch in batches:
            assert static.check(model, form, batch) < static.TOLERANCE
    for name in ("static", "static, compiled"):
        assert calls[name].misfits == 0


@pytest.mark.parametrize("name", ["head.4.bias", "levels.pool.multiset.norm1.bias", "encoder.0.weight"])
def test_a_wrong_gradient_of_any_parameter_is_found(static, in_every_form, name):
    """However small it is beside the others."""
    model, _, (batch, *_) = in_every_form
    static.step(model, model, batch, batch.y)
    parameter = dict(model.named_parameters())[name]
    more = 0.01 * parameter.grad.norm() * parameter.numel() ** -0.5

    def wrong(*given):
        result = model(*given)
        extra = (parameter - parameter.detach()).sum() * more
        return result._replace(out=result.out + extra * torch.tensor([1.0, -1.0]))

    with pytest.raises(AssertionError, match=f"{re.escape(name)}: off by .* of its norm"):
        static.check(model, wrong, batch)


def test_graphs_whose_trees_differ_are_left_out(static, in_every_form):
    model, calls, (batch, *_) = in_every_form
    tree, other = (static.call(calls[form], batch).tree for form in ("static", "static"))
    assert static.same_trees(tree, other, batch).all()
    level = other.levels[0]
    graph = int(batch.batch[-1])
    node = (level.batch == graph).nonzero().view(-1)
    clusters = level.cluster[node]
    assert len(set(clusters.tolist())) > 1
    level.cluster[node[clusters == clusters[0]][-1]] = clusters[-1]
    assert (~static.same_trees(tree, other, batch)).nonzero().tolist() == [[graph]]

    def differs(*given):
        return model(*given)._replace(tree=other)

    with pytest.raises(AssertionError, match=r"the trees of 4.2% of the graphs differ"):
        static.check(model, differs, batch)


def test_times_of_every_form(static, real, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    config, graphs = real
    config = config.replace(batch_size=24, max_height=1)
    buckets = static.Buckets.of(static.sizes(graphs, static.epoch(graphs, config.batch_size, 0)))
    times = static.timed(config, graphs, buckets, torch.device("cpu"), seconds=0.1)
    assert list(times) == ["dynamic", "static", "static, compiled"]
    assert min(times.values()) > 0


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
