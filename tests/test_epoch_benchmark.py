"""The benchmark of a training epoch: all products are recorded, and none is added when they run alone."""

import importlib
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="the benchmark trains models of torch_geometric")
pytest.importorskip("yaml", reason="models needs pyyaml")

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture
def epoch(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("epoch")


def test_products_of_a_layer_forward_and_backward(epoch):
    layer, x = torch.nn.Linear(3, 5), torch.randn(7, 3, requires_grad=True)
    with epoch.Products() as products:
        layer(x).relu().sum().backward()
    shapes = sorted(tuple(shape for shape, _ in call) for call in products.calls)
    # y = x W^T, then the gradients of x, [7, 5] [5, 3], and of W, [5, 7] [7, 3].
    assert shapes == [((5, 7), (7, 3)), ((7, 3), (3, 5)), ((7, 5), (5, 3))]
    assert products.operations == 3 * 2 * 7 * 3 * 5


def test_the_replay_runs_every_product_once_with_its_strides(epoch, monkeypatch):
    with epoch.Products() as products:
        torch.mm(torch.randn(4, 6), torch.randn(2, 6).t())
        torch.mv(torch.randn(4, 6), torch.randn(6))
        torch.bmm(torch.randn(2, 3, 4), torch.randn(2, 4, 5))
        torch.addmm(torch.randn(2), torch.randn(4, 6), torch.randn(6, 2))
        torch.randn(4) + 1  # no product
    seen = []
    matmul = torch.matmul

    def recorded(a, b, out):
        seen.append(((tuple(a.shape), a.stride()), (tuple(b.shape), b.stride())))
        assert out.shape == matmul(a, b).shape
        return matmul(a, b, out=out)

    replay = products.replay(torch.device("cpu"), torch.float64)
    monkeypatch.setattr(torch, "matmul", recorded)
    replay()
    assert seen == products.calls
    assert len(seen) == 4
    assert seen[0][1] == ((6, 2), (1, 6))
    assert products.operations == 2 * (4 * 6 * 2 + 4 * 6 + 2 * 3 * 4 * 5 + 4 * 6 * 2)


@pytest.mark.skipif(not SHARED.is_dir(), reason="no raw data beside the checkout")
def test_an_epoch_of_real_data(epoch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    device, threads = torch.device("cpu"), torch.get_num_threads()
    epoch.validate("MUTAG", SHARED, device)
    try:
        result = epoch.measure("MUTAG", SHARED, device, repeats=1, threads=1)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
    assert result["seconds"] > result["limit"] > 0
    assert result["ratio"] == pytest.approx(result["seconds"] / result["limit"])
    assert result["products"] > 50
    assert "MUTAG" in epoch.report({"results": [result]})
