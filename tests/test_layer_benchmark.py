"""The layer needs no more memory than TopKPooling, at the size where its tiles weigh most."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")

from gpn_ops.ops.tiles import DEVICE_TILE_BYTES

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def tile_bytes(device):
    """The tile's budget, which comes on top of what the layer itself takes: a cache on the CPU."""
    return 0 if device.type == "cpu" else DEVICE_TILE_BYTES


def test_the_layer_gives_what_the_formulas_give(device):
    import layer

    layer.validate(device)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "forward_and_backward"])
def test_no_more_memory_than_topk(device, backward):
    from memory import measure
    from methods import METHODS

    made = {method.name: method for method in METHODS}
    threads = torch.get_num_threads()
    ours, topk = (
        measure(made[name], 10_000, device, backward, threads) for name in ("ParsePooling", "TopKPooling")
    )
    assert ours <= topk + tile_bytes(device)


@pytest.mark.parametrize("scorer_layers", [1, 2])
def test_no_row_of_features_per_edge(device, scorer_layers):
    # 40 edges a node: a row per undirected edge would be 20 times the features.
    from common import peak_bytes

    from gpn_ops.nn import ParsePooling

    n, channels = 4000, 128
    edge_index = torch.randint(n, (2, 20 * n), generator=torch.Generator().manual_seed(0))
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1).to(device)
    x = torch.randn(n, channels, device=device, requires_grad=True)
    pool = ParsePooling(channels, scorer_layers=scorer_layers).to(device)

    def forward_backward():
        pool(x, edge_index).x.sum().backward()

    features, indices = x.nbytes, edge_index.nbytes
    assert peak_bytes(forward_backward, device) < 5 * features + 2 * indices + tile_bytes(device)
