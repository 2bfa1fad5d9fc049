"""The device of tests/standin keeps its word: what would go wrong on a GPU goes wrong on it.

And what only shows on a device that is not the CPU: memory that runs out, processes that were forked, how
often the host waits.
"""

import os
import signal
import subprocess
import sys

import graphs
import pytest
import standin
import torch

import gpn_ops
from gpn_ops.nn import ParsePooling


def python(code, *arguments):
    """Runs code with the device loaded."""
    command = [sys.executable, "-c", f"import torch\n{code}", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **standin.environment()}
    )


@pytest.fixture
def on_standin(accelerator):
    if accelerator.type != standin.NAME:
        pytest.skip("of the stand-in alone")
    return accelerator


def test_host_code_that_follows_a_pointer_of_the_device_dies(on_standin):
    read = "x = torch.ones(5, device='standin')\n{}\nprint(x.sum().item())"
    assert python(read.format("")).stdout == "5.0\n"
    assert python(read.format("torch.standin.read_on_host(x)")).returncode == -signal.SIGSEGV


def test_a_kernel_under_the_wrong_device_dies(on_standin):
    """The host code of the operators makes the tensor's device the current one; here it cannot."""
    code = """
import gpn_ops
x = torch.ones(5, device='standin:1')
torch.accelerator.set_device_index(int({!r}))
torch.standin.read_on_device(x)
"""
    assert python(code.format("1")).returncode == 0
    assert python(code.format("0")).returncode == -signal.SIGSEGV


def test_new_memory_is_not_zero(on_standin):
    assert int(torch.empty(4, dtype=torch.uint8, device=on_standin)[0]) == 0xA5


def test_a_forked_process_may_not_use_the_device(on_standin):
    """As with CUDA, once the device was used; a spawned one may."""
    code = """
import multiprocessing, sys
def use(queue):
    try:
        queue.put(torch.ones(3, device="standin").sum().item())
    except RuntimeError as error:
        queue.put(str(error))
if __name__ == "__main__":
    torch.ones(1, device="standin")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=use, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
"""
    assert "in forked subprocess" in python(code).stdout


def test_the_device_has_random_numbers_of_its_own(on_standin):
    torch.manual_seed(1)
    first = torch.rand(5, device=on_standin)
    torch.rand(100)
    torch.manual_seed(1)
    torch.rand(100)
    assert torch.equal(torch.rand(5, device=on_standin), first)
    with pytest.raises(RuntimeError, match="generator"):
        torch.empty(5, device=on_standin).uniform_(generator=torch.Generator())


def test_statistics_of_memory_are_rounded_as_by_cuda(on_standin):
    before = torch.accelerator.memory_allocated()
    held = torch.empty(1, device=on_standin)
    assert torch.accelerator.memory_allocated() - before == 512
    torch.accelerator.reset_peak_memory_stats()
    torch.empty(1000, dtype=torch.uint8, device=on_standin)
    assert torch.accelerator.max_memory_allocated() - before == 512 + 1024
    del held
    assert torch.accelerator.memory_allocated() == before


# ------------------------------------------------------------------------------------------- out of memory


@pytest.fixture
def full(accelerator):
    """A device on which nothing more can be allocated."""
    module = torch.get_device_module(accelerator)
    total = module.get_device_properties(accelerator).total_memory
    held = torch.accelerator.memory_allocated()

    def fill():
        torch.accelerator.empty_cache()
        module.set_per_process_memory_fraction((torch.accelerator.memory_allocated() + 1024) / total)

    yield fill
    module.set_per_process_memory_fraction(1.0)
    assert torch.accelerator.memory_allocated() >= held


@pytest.mark.parametrize("strided", [False, True], ids=["result", "copy"])
def test_out_of_memory_is_the_error_of_torch(accelerator, full, strided):
    """Whichever of an operator's allocations fails, and called as an operator of torch too."""
    n = 2_000_000
    edge_index = torch.arange(2 * n, device=accelerator).view(n, 2).t() % n
    if not strided:
        edge_index = edge_index.contiguous()
    scores = torch.ones(n, device=accelerator)
    full()
    with pytest.raises(torch.OutOfMemoryError, match=r"out of memory\. Tried to allocate"):
        gpn_ops.parse(edge_index, scores, n)
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch.ops.gpn.components(edge_index, n)


def test_out_of_memory_in_backward(accelerator, full):
    cluster = torch.arange(2_000_000, device=accelerator) // 2
    x = torch.ones(2_000_000, 2, device=accelerator, requires_grad=True)
    out = gpn_ops.reduce(x, cluster, 1_000_000).sum()
    full()
    with pytest.raises(torch.OutOfMemoryError):
        out.backward()


# --------------------------------------------------------------------------------------------- host waits


def waits(function):
    before = torch.standin.waits()
    function()
    return torch.standin.waits() - before


@pytest.mark.parametrize("training", [False, True])
def test_a_layer_waits_for_its_sizes_and_for_nothing_else(on_standin, training):
    """Once for the undirected pairs and once for the sizes of a level: docs/cuda.md."""
    edge_index = graphs.ring(60).to(on_standin)
    x = torch.randn(60, 8, device=on_standin, requires_grad=training)
    batch = torch.zeros(60, dtype=torch.int64, device=on_standin)
    pool = ParsePooling(8).to(on_standin)

    def step():
        with torch.set_grad_enabled(training):
            out = pool(x, edge_index, batch=batch)
            if training:
                out.x.sum().backward()

    step()
    assert waits(step) <= 2
