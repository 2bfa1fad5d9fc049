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
