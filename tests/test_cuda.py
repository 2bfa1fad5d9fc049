"""What only a GPU can show: devices, streams, graphs, synchronisation, memory, device-side assertions.

That results are right is shown by the other tests, which run on every device. The tests here take a ``gpu``:
CUDA where there is a GPU, and a stand-in on the CPU that gives every test's body something to run on, so that
no mistake in it waits for someone with a GPU. A pass with the stand-in says nothing about CUDA.
"""

import contextlib
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import graphs
import pytest
import standin
import torch
from classifiers import CLASSES, Classifier, Replayed, adam, rings
from devices import why_no_cuda
from torch import Tensor
from torch.nn import functional

import gpn_ops
from gpn_ops.nn import Buckets, Capacity, CapturedCall, CapturedTraining, halving, pad

SYNCHRONISING = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy")


class Cuda:
    """What the tests do with a GPU."""

    first = torch.device("cuda", 0)
    captured: Callable[..., object] = CapturedCall
    bad_id_text = "device-side assert"

    def second(self) -> torch.device:
        if torch.cuda.device_count() < 2:
            pytest.skip("one GPU, and the test needs two")
        return torch.device("cuda", 1)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)

    def keep_busy(self) -> None:
        """Work on the current stream, so that what follows on another one would come too early."""
        torch.cuda._sleep(50_000_000)

    @contextlib.contextmanager
    def no_synchronisation_by_torch(self) -> Iterator[None]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def capture(self, function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """A call that runs the captured function again, and the tensor it writes to."""
        with self.side_stream():
            function()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = function()
        return graph.replay, out

    def peak_bytes(self, function: Callable[[], object]) -> int:
        """The most memory in use during the call beyond what was in use before."""
        function()  # whatever is allocated once
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = function()
        torch.cuda.synchronize()
        del result
        return torch.cuda.max_memory_allocated() - before

    def synchronisations(self, function: Callable[[], object]) -> int:
        def count(call: Callable[[], object]) -> int:
            activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
            with torch.profiler.profile(activities=activities) as profiler:
                call()
            return sum(event.count for event in profiler.key_averages() if event.key in SYNCHRONISING)

        function()
        return count(function) - count(lambda: None)  # the profiler synchronises too

    def without_nan(self, scores: Tensor) -> Tensor:
        return scores


class StandIn(Cuda):
    """The same on the CPU."""

    captured = Replayed
    first = torch.device("cpu")
    bad_id_text = "edge_index: expected node ids from 0 to num_nodes - 1"

    def second(self) -> torch.device:
        return torch.device("cpu")

    def synchronize(self) -> None:
        pass

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        yield

    def keep_busy(self) -> None:
        pass

    @contextlib.contextmanager
    def no_synchronisation_by_torch(self) -> Iterator[None]:
        yield

    def capture(self, function: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        out = function()
        return lambda: out.copy_(function()), out

    def peak_bytes(self, function: Callable[[], object]) -> int:
        function()
        return 0

    def synchronisations(self, function: Callable[[], object]) -> int:
        function()
        return 0

    def without_nan(self, scores: Tensor) -> Tensor:
        """Scores in the order that CUDA promises; the CPU refuses NaN."""
        lowest = torch.finfo(scores.dtype).min
        return torch.where(scores.isnan(), -graphs.INF, scores.clamp(min=lowest))


class Emulated(StandIn):
    """The same on the device of tests/standin, whose kernels are those of CUDA: a pass says that they are
    right, and that nothing waits for the device where it should not."""

    bad_id_text = Cuda.bad_id_text

    @property
    def first(self) -> torch.device:
        return torch.device(standin.NAME, 0)

    def second(self) -> torch.device:
        return torch.device(standin.NAME, 1)

    def synchronize(self) -> None:
        torch.accelerator.synchronize()

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[None]:
        stream = torch.Stream(standin.NAME)
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            yield
        torch.accelerator.current_stream().wait_stream(stream)

    @contextlib.contextmanager
    def no_synchronisation_by_torch(self) -> Iterator[None]:
        before = torch.standin.waits()
        yield
        assert torch.standin.waits() == before

    def peak_bytes(self, function: Callable[[], object]) -> int:
        before = torch.accelerator.memory_allocated()
        torch.accelerator.reset_peak_memory_stats()
        function()
        return torch.accelerator.max_memory_allocated() - before

    def synchronisations(self, function: Callable[[], object]) -> int:
        before = torch.standin.waits()
        function()
        return torch.standin.waits() - before

    def without_nan(self, scores: Tensor) -> Tensor:
        return scores


@pytest.fixture(params=["cuda", "stand-in", standin.NAME])
def gpu(request: pytest.FixtureRequest) -> Cuda:
    if request.param != "cuda":
        return Emulated() if request.param == standin.NAME else StandIn()
    if (reason := why_no_cuda()) is not None:
        pytest.skip(reason)
    return Cuda()


def random_graph(num_nodes: int, num_edges: int, dtype: torch.dtype = torch.float32) -> graphs.Graph:
    generator = torch.Generator().manual_seed(num_edges)
    edge_index = torch.randint(num_nodes, (2, num_edges), generator=generator)
    return graphs.Graph(edge_index, torch.randn(num_edges, generator=generator).to(dtype), num_nodes)


def on(device: torch.device, graph: graphs.Graph) -> graphs.Graph:
    return graphs.Graph(graph.edge_index.to(device), graph.scores.to(device), graph.num_nodes)


def test_every_call_of_the_gpu_class_exists():
    """The calls into torch.cuda run here too, against its own signatures: names and arguments are right."""
    calls = "device_count synchronize current_stream Stream stream _sleep CUDAGraph graph set_sync_debug_mode"
    calls += " memory_allocated max_memory_allocated reset_peak_memory_stats"
    with contextlib.ExitStack() as stack:
        for name in calls.split():
            stack.enter_context(mock.patch.object(torch.cuda, name, autospec=True))
        for name in ("stream", "graph"):
            getattr(torch.cuda, name).return_value = contextlib.nullcontext()
        torch.cuda.device_count.return_value = 2
        torch.cuda.memory_allocated.return_value = 100
        torch.cuda.max_memory_allocated.return_value = 300
        cuda = Cuda()
        assert cuda.second() == torch.device("cuda", 1)
        cuda.synchronize()
        cuda.keep_busy()
        with cuda.side_stream(), cuda.no_synchronisation_by_torch():
            pass
        replay, out = cuda.capture(lambda: torch.ones(1))
        replay()
        assert out.tolist() == [1]
        assert cuda.peak_bytes(lambda: None) == 200
        assert torch.cuda.set_sync_debug_mode.call_args_list == [mock.call("error"), mock.call("default")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler misses CUDA
        assert cuda.synchronisations(lambda: None) == 0
    assert cuda.without_nan(out) is out


# ------------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("dtype", graphs.SCORE_DTYPES, ids=lambda t: str(t).removeprefix("torch."))
@pytest.mark.parametrize("by_row", [True, False], ids=["sorted", "unsorted"])
def test_equal_to_the_cpu_at_size(gpu, dtype, by_row):
    graph = random_graph(60_000, 300_007, dtype)
    if by_row:
        order = graph.edge_index[0].argsort(stable=True)
        graph = graphs.Graph(graph.edge_index[:, order], graph.scores, graph.num_nodes)
    given = on(gpu.first, graph)
    assert torch.equal(gpn_ops.dominant(*given).cpu(), gpn_ops.dominant(*graph))
    assert torch.equal(gpn_ops.parse(*given).cpu(), gpn_ops.parse(*graph))
    components = gpn_ops.components(given.edge_index, given.num_nodes)
    assert torch.equal(components.cpu(), gpn_ops.components(graph.edge_index, graph.num_nodes))


def test_the_same_bits_in_every_run(gpu):
    graph = on(gpu.first, random_graph(1000, 50_000, torch.bfloat16))
    runs = [gpn_ops.parse(*graph) for _ in range(20)]
    assert all(torch.equal(run, runs[0]) for run in runs)


def test_pooling_operators_equal_the_cpu(gpu):
    graph = random_graph(5000, 40_000)
    cluster = gpn_ops.parse(*graph)
    num_clusters = int(cluster.max()) + 1
    x = torch.randn(graph.num_nodes, 17, generator=torch.Generator().manual_seed(0))
    given, given_cluster, given_x = on(gpu.first, graph), cluster.to(gpu.first), x.to(gpu.first)

    coarse = gpn_ops.coarsen(graph.edge_index, cluster)
    given_coarse = gpn_ops.coarsen(given.edge_index, given_cluster)
    assert torch.equal(given_coarse.edge_index.cpu(), coarse.edge_index)
    total, count = gpn_ops.mask(graph.edge_index, graph.scores, cluster, num_clusters)
    given_total, given_count = gpn_ops.mask(given.edge_index, given.scores, given_cluster, num_clusters)
    assert torch.equal(given_count.cpu(), count)
    # Terms of both signs cancel: what rounding may do is bounded by their sizes, not by their sum.
    rounding = float(graph.scores.abs().sum()) * torch.finfo(torch.float32).eps
    torch.testing.assert_close(given_total.cpu(), total, rtol=0, atol=rounding)
    for reduce in ("sum", "mean", "max"):
        expected = gpn_ops.reduce(x, cluster, num_clusters, reduce)
        reduced = gpn_ops.reduce(given_x, given_cluster, num_clusters, reduce)
        rounding = float(x.abs().sum(0).max()) * torch.finfo(torch.float32).eps
        torch.testing.assert_close(reduced.cpu(), expected, rtol=0, atol=rounding)


def test_nan_sorts_below_everything(gpu):
    edge_index = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [1, 2, 3, 0, 2, 1, 3]], device=gpu.first)
    nan, infinity = graphs.NAN, graphs.INF
    scores = torch.tensor([nan, -infinity, nan, nan, nan, nan, -1.0], device=gpu.first)
    chosen = gpn_ops.dominant(edge_index, gpu.without_nan(scores), 4)
    assert chosen.tolist() == [1, 3, 6, -1]


# ------------------------------------------------------------------------------------- devices and streams


def test_second_device(gpu):
    graph = random_graph(1000, 5000)
    given = on(gpu.second(), graph)
    cluster = gpn_ops.parse(*given)  # while the first device is the current one
    assert cluster.device == given.edge_index.device
    assert torch.equal(cluster.cpu(), gpn_ops.parse(*graph))
    assert torch.equal(gpn_ops.parse(given.edge_index, given.scores).cpu(), gpn_ops.parse(*graph[:2]))


def test_side_stream(gpu):
    graph = random_graph(100_000, 500_000)
    given = on(gpu.first, graph)
    scores = torch.zeros_like(given.scores)
    gpu.synchronize()
    with gpu.side_stream():
        gpu.keep_busy()
        scores.copy_(given.scores)  # a kernel on another stream would read zeros
        cluster = gpn_ops.parse(given.edge_index, scores, given.num_nodes)
    assert torch.equal(cluster.cpu(), gpn_ops.parse(*graph))


# ------------------------------------------------------------------------------- synchronisation and memory


def test_capture_in_a_graph(gpu):
    """A capture fails if anything in it waits for the device."""
    graph = on(gpu.first, random_graph(5000, 20_000))
    edge_index, scores = graph.edge_index.clone(), graph.scores.clone()
    replay, cluster = gpu.capture(lambda: gpn_ops.parse(edge_index, scores, graph.num_nodes))
    for seed in range(3):
        other = random_graph(5000, 20_000)
        shuffled = other.scores[torch.randperm(20_000, generator=torch.Generator().manual_seed(seed))]
        scores.copy_(shuffled)
        replay()
        expected = gpn_ops.parse(other.edge_index, shuffled, other.num_nodes)
        assert torch.equal(cluster.cpu(), expected)


def test_a_step_of_training_without_synchronisation(gpu):
    """Of a model in static form: forward, backward, clipping and the optimiser's step."""
    torch.manual_seed(0)
    model = Classifier().to(gpu.first)
    optimizer = adam(model)
    x, edge_index, _, batch, size = rings(9, 12, 20)
    y = torch.arange(size).to(gpu.first)
    shapes = halving(Buckets(64, 128)(41, 82), size, 4)
    padded = pad(x.to(gpu.first), edge_index.to(gpu.first), None, batch.to(gpu.first), shapes[0], size)

    def step():
        optimizer.zero_grad()
        result = model(*padded, size, shapes)
        functional.cross_entropy(result.out, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return result

    step()  # which makes the state of the optimiser
    with gpu.no_synchronisation_by_torch():
        result = step()
    assert gpu.synchronisations(step) == 0
    assert not result.tree.overflow


@pytest.mark.parametrize("fits", [True, False], ids=["fits", "does not fit"])
def test_captured_training_is_that_of_the_cpu(gpu, fits):
    """Step after step, on batches of several sizes; where nothing fits, the graphs change nothing."""
    torch.manual_seed(0)
    model, expected = Classifier().to(gpu.first, torch.float64), Classifier().double()
    expected.load_state_dict(model.state_dict())
    shapes = (lambda c: halving(c, 4, 5)) if fits else (lambda c: (c, Capacity(4, 4)))
    train = CapturedTraining(
        model,
        adam(model),
        functional.cross_entropy,
        Buckets(64, 128),
        4,
        shapes,
        max_norm=1.0,
        capture=gpu.captured,
    )
    theirs = adam(expected)
    for sizes in [(9, 12, 20), (10, 9), (30,), (9, 13, 19)]:
        x, edge_index, _, batch, size = rings(*sizes)
        x, y = x.double(), torch.arange(size) % CLASSES
        loss = train(
            *(t.to(gpu.first) for t in (x, edge_index)), None, batch.to(gpu.first), y.to(gpu.first), size
        )
        theirs.zero_grad()
        wanted = functional.cross_entropy(expected(x, edge_index, None, batch, size).out, y)
        wanted.backward()
        torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
        theirs.step()
        torch.testing.assert_close(loss.cpu(), wanted.detach(), rtol=1e-5, atol=1e-6)
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=1e-4, atol=1e-5)
    assert train.misfits == (0 if fits else 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["packed", "wide"])
def test_no_synchronisation(gpu, dtype):
    edge_index, scores, num_nodes = on(gpu.first, random_graph(1000, 5000, dtype))
    with gpu.no_synchronisation_by_torch():
        gpn_ops.parse(edge_index, scores, num_nodes)
    assert gpu.synchronisations(lambda: gpn_ops.parse(edge_index, scores, num_nodes)) == 0
    assert gpu.synchronisations(lambda: gpn_ops.parse(edge_index, scores)) <= 1


def test_coarsen_synchronises_at_most_once(gpu):
    edge_index, scores, num_nodes = on(gpu.first, random_graph(1000, 5000))
    cluster = gpn_ops.parse(edge_index, scores, num_nodes)
    assert gpu.synchronisations(lambda: gpn_ops.coarsen(edge_index, cluster)) <= 1


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1_000_000, 2_000_000), (100_000, 4_000_000)])
def test_peak_memory(gpu, num_nodes, num_edges):
    """Beyond the result, at most 16 bytes a node, whatever the number of edges."""
    graph = on(gpu.first, random_graph(num_nodes, num_edges))
    result = 8 * num_nodes
    assert gpu.peak_bytes(lambda: gpn_ops.parse(*graph)) <= result + 16 * num_nodes + (1 << 20)


# ------------------------------------------------------------------------------------------------ bad values

BAD_ID = """
import sys, torch, gpn_ops
edge_index = torch.tensor([[0, 1, 2], [1, 2, 9]]).to(sys.argv[1])
scores = torch.ones(3).to(sys.argv[1])
print(gpn_ops.parse(edge_index, scores, 3).tolist())
"""


def test_an_id_out_of_range_is_asserted_on_the_device(gpu):
    """In a process of its own: after a device-side assertion its CUDA context is lost."""
    command = [sys.executable, "-c", BAD_ID, str(gpu.first)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode != 0
    assert gpu.bad_id_text in done.stderr


def test_kernels_of_the_library_are_used(gpu):
    """Not the plain PyTorch that stands in where the CUDA library is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpn_ops.parse(*on(gpu.first, random_graph(10, 20)))
