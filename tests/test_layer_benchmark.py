"""What benchmarks/layer.py promises about memory, at the size where tiles weigh most."""

import importlib.util
from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

SOURCE = Path(__file__).parent.parent / "benchmarks" / "layer.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("layer_benchmark", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_validates(device, benchmark):
    benchmark.validate(device)


@pytest.mark.parametrize("kind", ["forward", "forward + backward"])
def test_no_more_memory_than_topk(device, benchmark, kind):
    row = benchmark.memory(10_000, device)
    assert row[f"ParsePooling {kind}"] <= row[f"TopKPooling {kind}"]


@pytest.mark.parametrize("scorer_layers", [1, 2])
def test_no_row_of_features_per_edge(device, benchmark, scorer_layers):
    # 40 edges a node: a row per undirected edge would be 20 times the features.
    from gpn_ops.nn import ParsePooling

    n, channels = 4000, 128
    edge_index = torch.randint(n, (2, 20 * n), generator=torch.Generator().manual_seed(0))
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1).to(device)
    x = torch.randn(n, channels, device=device, requires_grad=True)
    pool = ParsePooling(channels, scorer_layers=scorer_layers).to(device)

    def forward_backward():
        pool(x, edge_index).x.sum().backward()

    features, indices = x.nbytes, edge_index.nbytes
    assert benchmark.peak_bytes(forward_backward, device) < 5 * features + 2 * indices
