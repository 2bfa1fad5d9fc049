"""partition: against a sort, on all forms."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.library import opcheck

from gpn_ops.ops import partition
from gpn_ops.ops.partition import plain_partition

BATCHES = st.lists(st.integers(-1, 6), max_size=40)


@given(batch=BATCHES, wanted=st.lists(st.integers(0, 1), max_size=6))
def test_wanted_nodes_come_first_each_kind_in_its_order(batch, wanted):
    stays = [0 <= graph < len(wanted) and wanted[graph] == 1 for graph in batch]
    expected = sorted(range(len(batch)), key=lambda node: not stays[node])
    arguments = (torch.tensor(wanted, dtype=torch.int64), torch.tensor(batch, dtype=torch.int64), sum(stays))
    for form in (partition, plain_partition):
        order, number = form(*arguments)
        assert order.tolist() == expected
        assert number[order].tolist() == list(range(len(batch)))


def test_on_every_device(device):
    torch.manual_seed(0)
    wanted, batch = torch.randint(2, (50,), device=device), torch.randint(50, (20_000,), device=device)
    num_wanted = int(wanted[batch].sum())
    expected = plain_partition(wanted.cpu(), batch.cpu(), num_wanted)
    assert all(
        torch.equal(got.cpu(), want)
        for got, want in zip(partition(wanted, batch, num_wanted), expected, strict=True)
    )
    opcheck(torch.ops.gpn.partition, (wanted, batch, num_wanted))


@pytest.mark.parametrize("form", [partition, plain_partition])
def test_another_number_is_named(form):
    with pytest.raises(RuntimeError, match="num_wanted: expected 2, got 1"):
        form(torch.tensor([0, 1]), torch.tensor([0, 0, 1, 1]), 1)
