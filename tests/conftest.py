"""The ``device`` fixture: every test that takes it runs on the CPU and on CUDA.

``--device cpu|cuda|all`` selects. Where a test cannot run on CUDA it is shown as skipped, with the reason,
and never left out in silence. ``--device standin`` runs the same tests on a device made for them, in host
memory (tests/standin).
"""

import os
from pathlib import Path
from typing import Any

import accelerator_lines
import pytest
import standin
import torch
from devices import why_no_cuda

DEVICES = ("cpu", "cuda")
RECORDER = pytest.StashKey[accelerator_lines.Recorder]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=[*DEVICES, standin.NAME, "all"],
        default="all",
        help="run only the tests of this device (all: but for the stand-in)",
    )
    parser.addoption("--record-lines", type=Path, help="see tests/accelerator_lines.py")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-lines") is not None:
        config.stash[RECORDER] = accelerator_lines.Recorder()
        config.stash[RECORDER].start()
    if config.getoption("--device") == standin.NAME:
        standin.build()
        standin.load()
        os.environ.update(standin.environment())  # for the processes that tests start


def pytest_unconfigure(config: pytest.Config) -> None:
    if RECORDER in config.stash:
        config.stash[RECORDER].save(config.getoption("--record-lines"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    on_standin = metafunc.config.getoption("--device") == standin.NAME
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", [standin.NAME] if on_standin else DEVICES, indirect=True)
    if "accelerator" in metafunc.fixturenames:
        metafunc.parametrize("accelerator", [standin.NAME if on_standin else "cuda"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the other device runs; a test without a device belongs to the CPU.

    A ``gpu`` (tests/test_cuda.py) is CUDA, the stand-in, or one on the CPU.
    """
    wanted = config.getoption("--device")

    def device_of(item: pytest.Item) -> str:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        named = [params.get(name) for name in ("device", "accelerator", "gpu")]
        return next((name for name in (standin.NAME, "cuda") if name in named), "cpu")

    kept = [
        item
        for item in items
        if device_of(item) == wanted or (wanted == "all" and device_of(item) != standin.NAME)
    ]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept


@pytest.fixture(autouse=True)
def _what_torch_has_not_for_the_standin(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor writes code for devices it knows, and one of opcheck's tests knows their dispatch keys by
    heart: on the stand-in the rest of the compiler runs without the first, opcheck without the second."""
    if request.config.getoption("--device") != standin.NAME:
        return
    from torch.testing._internal.optests.generate_tests import ALL_TEST_UTILS

    compiled = torch.compile

    def compile_without_inductor(*arguments: Any, **options: Any) -> Any:
        if options.get("backend", "inductor") == "inductor":
            options = {key: value for key, value in options.items() if key not in ("mode", "options")}
            options["backend"] = "aot_eager"
        return compiled(*arguments, **options)

    monkeypatch.setattr(torch, "compile", compile_without_inductor)
    monkeypatch.setitem(ALL_TEST_UTILS, "test_autograd_registration", lambda *_, **__: None)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    return _device(request)


@pytest.fixture
def accelerator(request: pytest.FixtureRequest) -> torch.device:
    """For tests that make no sense on the CPU."""
    return _device(request)


def _device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and (reason := why_no_cuda()) is not None:
        pytest.skip(reason)
    return torch.device(request.param)
