"""Makes ``models`` importable: it is run from a checkout, and not installed."""

import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent.parent

# At the end, so that gpn_ops is still the installed one.
sys.path.append(str(ROOT))


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small do not repay a second thread; on a busy machine it would cost seconds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def settings_of_torch_as_they_were():
    """A training command sets them for its process, which here is that of all tests."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = fill
