"""ParsePooling as a pooler of torch-geometric-pool, with the real package."""

import re
import subprocess
import sys
import warnings

import pytest
import torch

pytest.importorskip("tgp.src", reason="torch-geometric-pool is not installed", exc_type=ImportError)

import graphs
import tgp.poolers as poolers
from tgp.src import PoolingOutput

from gpn_ops.nn import ParsePooling
from gpn_ops.nn.tgp import ParsePooler


@pytest.fixture
def example(device):
    generator = torch.Generator().manual_seed(0)
    edge_index = graphs.erdos_renyi(30, 40, generator).to(device)
    return torch.randn(30, 8, generator=generator).to(device), edge_index


def test_pools_as_the_layer_does(device, example):
    x, edge_index = example
    batch = (torch.arange(30, device=device) >= 15).long()
    edge_index = edge_index[:, batch[edge_index[0]] == batch[edge_index[1]]]
    pooler = ParsePooler(8, weighted=True).to(device)
    layer = ParsePooling(8, weighted=True).to(device)
    layer.load_state_dict(pooler.layer.state_dict())
    out, expected = pooler(x=x, adj=edge_index, batch=batch), layer(x, edge_index, batch=batch)
    assert isinstance(out, PoolingOutput)
    assert torch.equal(out.x, expected.x)
    assert torch.equal(out.edge_index, expected.edge_index)
    assert torch.equal(out.edge_weight, expected.edge_attr)
    assert torch.equal(out.batch, expected.batch)
    assert torch.equal(out.so.cluster_index, expected.cluster)
    lifted = pooler(x=out.x, so=out.so, lifting=True)
    torch.testing.assert_close(lifted, layer.unpool(expected.x, expected.cluster))


def test_behaves_as_a_pooler(device, example):
    x, edge_index = example
    pooler = ParsePooler(8).to(device)
    assert pooler.is_sparse
    assert pooler.is_trainable
    assert not pooler.has_loss
    assert "ParsePooling(8" in repr(pooler)
    before = [p.clone() for p in pooler.layer.select.scorer.lins.parameters()]
    pooler.reset_parameters()
    after = pooler.layer.select.scorer.lins.parameters()
    assert not any(torch.equal(p, q) for p, q in zip(before, after, strict=True))
    pooler(x=x, adj=edge_index).x.sum().backward()
    assert all(p.grad is not None for p in pooler.parameters())


def test_get_pooler_of_tgp_finds_the_options(monkeypatch):
    monkeypatch.setitem(poolers.pooler_map, "parse", ParsePooler)
    # Of the arguments that a script has for all poolers, those of others are dropped.
    pooler = poolers.get_pooler("parse", in_channels=8, ratio=0.5, k=3, scorer_layers=1, multiset="mean")
    assert pooler.layer.select.scorer.num_layers == 1
    with pytest.raises(TypeError, match="in_channels"):
        poolers.get_pooler("parse", ratio=0.5)


def test_no_warnings(example):
    x, edge_index = example
    pooler = ParsePooler(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = pooler(x=x.cpu(), adj=edge_index.cpu())
        pooler(x=out.x, so=out.so, lifting=True)


def test_foreign_arguments_are_refused_by_name():
    with pytest.raises(TypeError, match="ratio"):
        ParsePooler(8, ratio=0.5)


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("tgp", "needs torch-geometric-pool: pip install"),
        ("torch_scatter", "is installed but fails to import: .*torch_scatter"),
    ],
)
def test_what_is_missing_is_named(missing, text, tmp_path):
    # A stand-in for tgp, so that what it needs can be missing.
    (tmp_path / "tgp").mkdir()
    (tmp_path / "tgp" / "__init__.py").write_text(
        "import torch_scatter" if missing == "torch_scatter" else ""
    )
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
sys.modules[{missing!r}] = None
import gpn_ops.nn.tgp
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(f"ImportError: gpn_ops.nn.tgp .*{text}", done.stderr), done.stderr
