"""GPN with something left out."""

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("yaml", reason="models needs pyyaml")


from synthetic import small, trained

from gpn_ops.nn import ParsePooling
from models import config as configs
from models import data
from models.ablations import RandomScores, Unmasked
from models.training import digest, make_model, seed_everything

RINGS = "synthetic:Rings(40)"
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


@pytest.fixture
def graphs(tmp_path):
    return data.load(small(RINGS), tmp_path)


def model_and_batch(graphs, **values):
    seed_everything(0)
    model = make_model(small(RINGS, dropout=0.0, **values), graphs).double()
    batch = graphs.take(torch.arange(12)).to(torch.device("cpu"), torch.float64)
    return model, (batch.x, batch.edge_index, None, batch.batch, 12)


def test_random_scores_do_not_look_at_the_features():
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    scorer = RandomScores()
    first, second = (scorer(torch.randn(4, 8), edge_index) for _ in range(2))
    assert not torch.equal(first, second)
    for scores in (first, second):
        assert torch.equal(scores[0::2], scores[1::2])  # Both directions of an edge.
        assert scores.unique().numel() == 3
    both = scorer(torch.randn(4, 8), edge_index, directed=True)
    assert both.unique().numel() == 6
    scorer.eval()
    assert torch.equal(scorer(torch.randn(4, 8), edge_index), scorer(torch.randn(4, 8), edge_index))


def test_random_scores_in_a_model(graphs):
    model, batch = model_and_batch(graphs, scores="random")
    assert not [name for name, _ in model.named_parameters() if "scorer" in name]
    other = make_model(small(RINGS, scores="random", dropout=0.0), graphs).double()
    trees = [each.eval()(*batch).tree.levels[0].cluster for each in (model, other)]
    assert torch.equal(*trees)  # Other weights, the same tree.
    assert torch.equal(model(*batch).out, model(*batch).out)
    learned = model_and_batch(graphs)[0].eval()(*batch)
    assert not torch.equal(learned.tree.levels[0].cluster, trees[0])


def test_without_the_mask_clusters_are_what_the_multiset_function_gives():
    torch.manual_seed(0)
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    x = torch.randn(6, 8, dtype=torch.float64)
    pool = ParsePooling(8).double()
    masked = pool(x, edge_index, record=True)
    multiset = pool.multiset
    unmasked = Unmasked(pool)
    for record in (True, False):
        found = unmasked(x, edge_index, record=record)
        torch.testing.assert_close(found.x, multiset(x, masked.cluster, masked.x.size(0)))
        torch.testing.assert_close(found.x * masked.score.unsqueeze(-1), masked.x)
        for key in ("edge_index", "batch", "cluster", "score"):
            assert torch.equal(getattr(found, key), getattr(masked, key))
    assert not torch.allclose(found.x, masked.x)


def test_without_the_mask_the_scorer_learns_nothing(graphs):
    for mask in (True, False):
        model, batch = model_and_batch(graphs, mask=mask)
        model(*batch).out.sum().backward()
        scorer = [value for name, value in model.named_parameters() if "scorer" in name]
        others = [value for name, value in model.named_parameters() if "scorer" not in name]
        assert scorer
        assert all((value.grad is not None and bool(value.grad.any())) == mask for value in scorer[-2:])
        assert all(value.grad is not None for value in others)


@pytest.mark.parametrize(
    "values", [{"scores": "random"}, {"mask": False}, {"scores": "random", "mask": False}]
)
def test_training_learns_and_resumes(graphs, tmp_path, values):
    config = small(RINGS, **values)
    assert digest(config) != digest(small(RINGS))
    whole = trained(config, graphs, tmp_path / "whole")
    trained(config, graphs, tmp_path / "parts", 3)
    assert trained(config, graphs, tmp_path / "parts") == whole


def test_scores_that_there_are_not():
    with pytest.raises(ValueError, match="scores: expected learned or random, got"):
        configs.Trial(scores="none")
