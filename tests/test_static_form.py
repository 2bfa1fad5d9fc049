"""StaticForm and the captured training step: what fits in static form, what does not in dynamic form."""

import copy
import itertools

import pytest
import torch
from classifiers import CLASSES, Classifier, Replayed, adam, rings
from torch import Tensor
from torch.nn import functional

from gpn_ops.nn import (
    Buckets,
    Capacity,
    CapturedTraining,
    ParseHierarchy,
    ParsePooling,
    StaticForm,
    halving,
)
from gpn_ops.nn.static import _Sizes

BUCKETS = Buckets(64, 128)
BATCHES = [rings(9, 12, 20), rings(10, 9, 18), rings(30), rings(5, 6, 7, 9, 13)]


def on(device, given):
    return [t.to(device) if isinstance(t, Tensor) else t for t in given]


@pytest.mark.parametrize(
    "schedule", [None, lambda capacity: halving(capacity, 6, 5)], ids=["measured", "halving"]
)
@pytest.mark.parametrize("per_node", [False, True], ids=["graphs", "nodes"])
def test_in_place_of_the_model(device, per_node, schedule):
    torch.manual_seed(0)
    model = Classifier(per_node).to(device)
    static = StaticForm(model, BUCKETS, 6, schedule, per_node=per_node)
    for given in [*BATCHES, *BATCHES]:
        given = on(device, given)
        expected, got = model(*given), static(*given)
        assert got.out.shape == expected.out.shape
        torch.testing.assert_close(got.out, expected.out, rtol=1e-4, atol=1e-5)
        weight = torch.randn(expected.out.shape).to(device)
        grads = [
            torch.autograd.grad((result.out * weight).sum(), model.head.weight) for result in (got, expected)
        ]
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-4)
    # Three sizes of batches: without a schedule, the first of each is measured.
    assert static.misfits == (3 if schedule is None else 0)
    assert list(static.state_dict()) == [f"model.{name}" for name in model.state_dict()]
    # Without the number of graphs it is counted.
    given = on(device, BATCHES[0])[:4]
    torch.testing.assert_close(static(*given).out, model(*given).out, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_goes_through_the_dynamic_form():
    torch.manual_seed(0)
    model = Classifier()
    calls = []

    def noted(*given, capacity):
        result = model(*given, capacity=capacity)
        calls.append(bool(result.tree.overflow))
        assert result.out.isnan().any() == calls[-1]
        return result

    tight = StaticForm(model, BUCKETS, 6, lambda capacity: (capacity, Capacity(4, 4)), compiled=noted)
    for given in BATCHES:
        assert torch.equal(tight(*given).out, model(*given).out)
    assert calls == [True] * 4
    assert tight.misfits == 4


def test_measured_sizes_grow_until_everything_fits():
    torch.manual_seed(0)
    model = Classifier(self_loops=True)
    static = StaticForm(model, BUCKETS, 8)
    small = rings(20, 21, seed=1)
    # A batch of the same size, which keeps many more nodes: no edges for most of them.
    x, _, _, batch, _ = rings(41, seed=2)
    sparse = (x, torch.tensor([[0, 1], [1, 0]]).repeat(1, 41), None, batch, 1)
    counts = []
    for given in (small, small, small, sparse, sparse, sparse, small):
        static(*given)
        counts.append(static.misfits)
    # The second time there is a level at which nothing shrinks, as self-loops compete.
    assert counts[0] == 1
    assert counts[2] == counts[1] <= 2
    assert counts[3] == counts[2] + 1
    assert counts[5:] == [counts[4]] * 2


def test_edges_without_reverses_are_pairs_of_their_own():
    """Measured too: there are more pairs than by default there is room for."""
    torch.manual_seed(0)
    x, edge_index, _, batch, size = rings(20, 21, seed=1)
    static = StaticForm(ParseHierarchy(ParsePooling(8)), BUCKETS, 8)
    for _ in range(3):
        static(x, edge_index[:, edge_index[0] < edge_index[1]], None, batch, size)
    assert static.misfits == 1
    # As many edges of a ring as there are self-loops.
    loops = torch.arange(41).expand(2, -1)
    static = StaticForm(ParseHierarchy(ParsePooling(8)), BUCKETS, 8)
    for _ in range(3):
        static(x, torch.cat([edge_index, loops], dim=1), None, batch, size)
    assert static.misfits == 1


def test_a_given_number_of_pairs_that_is_too_small_grows():
    torch.manual_seed(0)
    static = StaticForm(Classifier(), Buckets(64, 128, 4), 8)
    for _ in range(5):
        static(*rings(20, 21, seed=1))
    assert static.misfits <= 2


def test_what_was_dropped_at_random_needs_more_room_not_more_levels():
    """A tree that does not fit is followed by a smaller one, which is measured."""
    torch.manual_seed(0)
    given = rings(20, 21, seed=1)
    tree, capacity, sizes = Classifier()(*given).tree, BUCKETS(41, 82), _Sizes(BUCKETS, 8, None)
    found = []
    for _ in range(4):
        sizes.grow(capacity, tree, 41)
        found.append(sizes.shapes[capacity])
    # A level at which nothing shrinks comes first: of that one too, the tree tells nothing.
    assert [len(shapes) - len(tree.levels) for shapes in found] == [1, 2, 2, 2]
    for before, after in itertools.pairwise(found[1:]):
        assert after[0] == before[0] == capacity
        for one, other, below in zip(before[1:], after[1:], after[:-1], strict=True):
            assert one.nodes < other.nodes or other.nodes == below.nodes
            assert one.edges < other.edges or other.edges == below.edges


def test_more_graphs_than_said():
    with pytest.raises(ValueError, match="batch_size: expected at most 2, got 3"):
        StaticForm(Classifier(), BUCKETS, 2)(*BATCHES[0])
    with pytest.raises(ValueError, match="batch_size: expected at least 1, got 0"):
        StaticForm(Classifier(), BUCKETS, 0)


# ---- training


@pytest.mark.parametrize("schedule", ["measured", "halving", "tight"])
def test_a_captured_training_is_the_training(device, schedule):
    """The same weights, whether batches fit or not; warming up and a step that did not fit change nothing."""
    schedules = {
        "measured": None,
        "halving": lambda capacity: halving(capacity, 6, 5),
        "tight": lambda capacity: (capacity, Capacity(4, 4)),
    }
    torch.manual_seed(0)
    model = Classifier().to(device, torch.float64)
    expected = copy.deepcopy(model)
    ours, theirs = adam(model), adam(expected)
    Replayed.count = 0
    train = CapturedTraining(
        model,
        ours,
        functional.cross_entropy,
        BUCKETS,
        6,
        schedules[schedule],
        max_norm=1.0,
        capture=Replayed,
    )
    for given in [*BATCHES, *BATCHES]:
        x, edge_index, edge_attr, batch, size = on(device, given)
        x, y = x.double(), torch.arange(size, device=device) % CLASSES
        loss = train(x, edge_index, edge_attr, batch, y, size)
        theirs.zero_grad()
        wanted = functional.cross_entropy(expected(x, edge_index, edge_attr, batch, size).out, y)
        wanted.backward()
        torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
        theirs.step()
        torch.testing.assert_close(loss, wanted.detach())
        for one, other in zip(model.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    # Trees change as the scorer learns: what was measured may be too small once more.
    assert 3 <= Replayed.count <= (4 if schedule == "measured" else 3)
    assert train.misfits in {"measured": (3, 4), "halving": (0,), "tight": (8,)}[schedule]


def test_labels_of_nodes_and_of_tasks():
    """A row of labels per node; labels of tasks, which are floats, with NaN where there is none."""
    seen = []

    def loss(rows, y):
        seen.append(y)
        return rows.where(~y.isnan().any(1, keepdim=True), 0).square().sum()

    model = Classifier(per_node=True)
    train = CapturedTraining(
        model,
        adam(model),
        loss,
        BUCKETS,
        6,
        lambda capacity: halving(capacity, 6, 5),
        per_node=True,
        capture=Replayed,
    )
    x, edge_index, _, batch, size = BATCHES[0]
    y = torch.rand(x.size(0), CLASSES)
    train(x, edge_index, None, batch, y, size)
    assert train.misfits == 0
    assert torch.equal(seen[-1][: x.size(0)], y)
    assert seen[-1][x.size(0) :].isnan().all()


def test_other_optimizers_are_refused():
    model = Classifier()
    for kind, options in (
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.Adam, {"capturable": True}),
        (torch.optim.SGD, {"fused": True}),
    ):
        optimizer = kind(model.parameters(), **options)
        with pytest.raises(ValueError, match="optimizer: expected fused=True and capturable=True"):
            CapturedTraining(model, optimizer, functional.cross_entropy, BUCKETS, 6)
