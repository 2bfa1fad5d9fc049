"""The ``device`` fixture: every test that takes it runs on the CPU and on CUDA.

``--device cpu|cuda|all`` selects. Where a test cannot run on CUDA it is shown as skipped, with the reason,
and never left out in silence.
"""

import pytest
import torch
from devices import why_no_cuda

DEVICES = ("cpu", "cuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", choices=[*DEVICES, "all"], default="all", help="run only the tests of this device"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", DEVICES, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the other device runs; a test without a device belongs to the CPU.

    A ``gpu`` (tests/test_cuda.py) is CUDA, or a stand-in on the CPU.
    """
    wanted = config.getoption("--device")
    if wanted == "all":
        return

    def device_of(item: pytest.Item) -> str:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        return "cuda" if "cuda" in (params.get("device"), params.get("gpu")) else "cpu"

    kept = [item for item in items if device_of(item) == wanted]
    config.hook.pytest_deselected(items=[item for item in items if device_of(item) != wanted])
    items[:] = kept


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and (reason := why_no_cuda()) is not None:
        pytest.skip(reason)
    return torch.device(request.param)
