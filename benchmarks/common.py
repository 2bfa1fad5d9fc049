"""Helpers of all benchmarks: graphs, exact memory and time, machine facts, saving, tables, plots.

Every benchmark validates before it measures. Times are medians of repeated runs after a warm-up, with
the device synchronised; figures that are compared come from the same run.
"""

import argparse
import json
import math
import multiprocessing
import os
import platform
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler announces every start and stop otherwise
sys.path.append(str(Path(__file__).resolve().parent.parent))  # for models, which is not installed

import extra  # noqa: F401 (before what it looks for)
import torch
from torch import Tensor

from gpn_ops.visualisation import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from models.common import commit, table

CPU = torch.device("cpu")
RESULTS = Path(__file__).resolve().parent / "results"
COLOURS = (BLUE, RED, GREEN, PURPLE, SKY, ORANGE, BLACK, GREY)


class Timing(NamedTuple):
    """Seconds: median, and the quartiles around it."""

    median: float
    low: float
    high: float


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of every benchmark."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, or the accelerator that torch finds: cuda")
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="one thread, timed by its processor's clock: for a machine that has other work",
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for JSON and plots")
    return parser


def add_limits(parser: argparse.ArgumentParser) -> None:
    """The options of benchmarks that run every point in its own process."""
    parser.add_argument("--memory-limit", type=int, default=12, help="GiB a point may take")
    parser.add_argument("--time-limit", type=float, default=60, help="seconds a point may take (quick: 4)")


def limits(options: argparse.Namespace) -> dict[str, Any]:
    """The limits as arguments of :func:`isolated`."""
    seconds = min(options.time_limit, 4) if options.quick else options.time_limit
    device = torch.device(options.device)
    return {"memory_bytes": options.memory_limit << 30, "seconds": seconds, "device": device}


def stated_limits(options: argparse.Namespace) -> dict[str, Any]:
    """The limits as saved with results: they define "out of memory" and "out of time"."""
    return {"memory_gib": options.memory_limit, "seconds": limits(options)["seconds"], "clock": clock}


WALL, PROCESSOR = "wall time", "processor time"
clock = WALL  # of all times that are measured; forked processes inherit it


def prepare(options: argparse.Namespace) -> torch.device:
    """Set the threads and the clock; stop at once if the device does not exist."""
    global clock
    if options.device != "cpu":
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        if accelerator is None or accelerator.type != options.device:
            wanted = f"--device {options.device}: torch finds no {options.device.upper()} device"
            sys.exit(f"{wanted} on this machine. Run with --device {accelerator or CPU}.")
    if options.processor_time:
        if options.device != "cpu":
            sys.exit("--processor-time: the processor's clock knows nothing of another device's work")
        clock, options.threads = PROCESSOR, 1
    torch.set_num_threads(options.threads)
    return torch.device(options.device)


# ------------------------------------------------------------------------------------------------------------
# Graphs
# ------------------------------------------------------------------------------------------------------------


def sort_by_row(edge_index: Tensor) -> Tensor:
    """The edges in PyG's order: by row, and by column inside a row."""
    num_nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    return edge_index[:, torch.argsort(edge_index[0] * num_nodes + edge_index[1])]


def random_graph(num_nodes: int, undirected_edges: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Erdos-Renyi with this many undirected edges drawn, both directions stored and equally scored, in PyG's
    order."""
    random = torch.Generator().manual_seed(seed)
    row = torch.randint(num_nodes, (undirected_edges,), generator=random)
    col = (row + torch.randint(1, num_nodes, (undirected_edges,), generator=random)) % num_nodes
    scores = torch.rand(undirected_edges, generator=random).repeat(2)
    edge_index = torch.stack([torch.cat([row, col]), torch.cat([col, row])])
    order = torch.argsort(edge_index[0] * num_nodes + edge_index[1], stable=True)
    return edge_index[:, order].contiguous(), scores[order].contiguous()


HUBS = "npm dependencies"
HUBS_FILE = Path("data", "large", "npm_dependencies_2016.npz")


def hub_file() -> Path | None:
    """The file of a real graph with hubs, in the checkout or beside it; None, with a note, if missing."""
    root = RESULTS.parent.parent
    for path in (root / HUBS_FILE, root.parent / "shared" / HUBS_FILE):
        if path.exists():
            return path
    print(f"!! the graph with hubs is left out: there is no {HUBS_FILE}", file=sys.stderr)
    return None


def hub_graph(path: Path) -> tuple[Tensor, Tensor]:
    """The dependencies among the packages of a registry: no self-loops, no duplicates, both directions stored
    with the same random score, in PyG's order. Three nodes in ten are neighbours of the largest hub."""
    import numpy as np

    with np.load(path) as file:
        pairs = torch.from_numpy(np.concatenate([file["dependencies"], file["dev_dependencies"]])).long()
        num_nodes = int(file["num_nodes"])
    low, high = pairs.amin(dim=1), pairs.amax(dim=1)
    key = torch.unique((low * num_nodes + high)[low != high])
    row, col = key // num_nodes, key % num_nodes
    scores = torch.rand(key.numel(), generator=torch.Generator().manual_seed(0)).repeat(2)
    edge_index = torch.stack([torch.cat([row, col]), torch.cat([col, row])])
    order = torch.argsort(edge_index[0] * num_nodes + edge_index[1])
    return edge_index[:, order].contiguous(), scores[order].contiguous()


AS_LARGE = "random, as large"


def add_hubs(parser: argparse.ArgumentParser) -> None:
    """The option of benchmarks that can measure a real graph with hubs instead of random ones."""
    text = f"a real graph with hubs ({HUBS_FILE}) beside a random one as large, instead"
    parser.add_argument("--hubs", action="store_true", help=text)


QUICK_HUB_NODES = 5_000


def around_the_hub(edge_index: Tensor, scores: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """The subgraph of the largest hub and this many of its neighbours, renumbered."""
    row, col = edge_index
    hub = row.bincount().argmax()
    inside = torch.zeros(int(row.max()) + 1, dtype=torch.bool)
    inside[hub] = inside[col[row == hub][: num_nodes - 1]] = True
    kept = inside[row] & inside[col]
    return (inside.cumsum(0) - 1)[edge_index[:, kept]], scores[kept]


def hubs_and_random(quick: bool) -> Iterator[tuple[str, Tensor, Tensor, int]]:
    """Kind, edge_index, scores and nodes of the graph with hubs (if quick, of a part of it), and of a random
    one with as many nodes and edges."""
    path = hub_file()
    if path is None:
        sys.exit(f"--hubs: put {HUBS_FILE.name} there")
    edge_index, scores = hub_graph(path)
    if quick:
        edge_index, scores = around_the_hub(edge_index, scores, QUICK_HUB_NODES)
    num_nodes = int(edge_index.max()) + 1
    yield HUBS, edge_index, scores, num_nodes
    yield AS_LARGE, *random_graph(num_nodes, scores.numel() // 2), num_nodes


# ------------------------------------------------------------------------------------------------------------
# Measuring
# ------------------------------------------------------------------------------------------------------------


def synchronise(device: torch.device) -> None:
    """Wait for all launches on a device; does nothing on the CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


def elapsed(call: Callable[[], Any], device: torch.device) -> float:
    """Seconds of one call, with the device synchronised."""
    # That of the process goes in ticks of the system, milliseconds, while there is a limit on it.
    now = time.thread_time if clock == PROCESSOR else time.perf_counter
    synchronise(device)
    start = now()
    call()
    synchronise(device)
    return now() - start


def repeated(
    methods: dict[str, Callable[[], Any]], device: torch.device, seconds: float = 1.0, most: int = 50
) -> dict[str, list[float]]:
    """The seconds of each call: warm up, then repeat for about this long in total. A call that takes longer
    is made only once, and its warm-up counts.

    The methods take turns, so that a passing load on the machine affects all of them.
    """
    runs = {name: [elapsed(call, device)] for name, call in methods.items()}
    repeats = {name: min(most, max(3, int(seconds / first))) for name, (first,) in runs.items()}
    slow = {name for name, (first,) in runs.items() if first > seconds}
    for turn in range(max(repeats.values())):
        for name, call in methods.items():
            if turn < repeats[name] and name not in slow:
                call()  # the turn's own warm-up: caches and sleeping threads are as the one before left them
                runs[name].append(elapsed(call, device))
    return {name: times if name in slow else times[1:] for name, times in runs.items()}


def summary(times: Sequence[float]) -> Timing:
    """Median and quartiles."""
    low, median, high = statistics.quantiles(times, n=4) if len(times) > 1 else [*times] * 3
    return Timing(median, low, high)


def timed(
    methods: dict[str, Callable[[], Any]], device: torch.device, seconds: float = 1.0, most: int = 50
) -> dict[str, Timing]:
    """Median and quartiles of :func:`repeated` calls."""
    return {name: summary(times) for name, times in repeated(methods, device, seconds, most).items()}


def peak_bytes(function: Callable[[], Any], device: torch.device) -> int:
    """The most that the allocator has handed out during a call, above what was held before. Exact.

    On accelerators by the allocator's own peak; on the CPU by the running sum over every allocation and
    release that torch's allocator reports to the profiler.
    """
    if device.type != "cpu":
        synchronise(device)
        before = torch.accelerator.memory_allocated()
        torch.accelerator.reset_peak_memory_stats()
        function()
        synchronise(device)
        return torch.accelerator.max_memory_allocated() - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        function()
    held = peak = 0
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


# ------------------------------------------------------------------------------------------------------------
# Each point in a process of its own
# ------------------------------------------------------------------------------------------------------------

OUT_OF_MEMORY = "out of memory"
OUT_OF_TIME = "out of time"
START_SECONDS = 300  # a fresh process imports torch and starts the device before its time counts
READY = "ready"
PATIENCE = 30  # times a limit of processor time, until a point is taken to have stopped altogether


def _limit_processor_time(seconds: float) -> None:
    """The system ends this process after this much more processor time."""
    most = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))


def _limit_memory(device: torch.device, memory_bytes: int) -> None:
    """Limit the memory of this process: by the system on the CPU, elsewhere by the device's allocator.

    CUDA maps more address space than there is memory, so it does not survive the system's limits.
    """
    if device.type == "cpu":
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    else:
        module = torch.get_device_module(device)
        total = module.get_device_properties(device).total_memory
        module.set_per_process_memory_fraction(min(1.0, memory_bytes / total))


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is out of memory: by type for Python and accelerators, by text for the CPU's
    allocator."""
    texts = ("not enough memory", "can't allocate memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
    )


def _work(
    sender: Connection,
    device: torch.device,
    memory_bytes: int,
    processor_seconds: float | None,
    measure: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    """The process of a point: sends READY, then the measurement."""
    warnings.simplefilter("ignore")  # of the peers, about their own ways
    try:
        _limit_memory(device, memory_bytes)
        sender.send(READY)
        if processor_seconds is not None:
            _limit_processor_time(processor_seconds)
        sender.send(measure(*arguments))
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
        sender.send(OUT_OF_MEMORY if _is_out_of_memory(error) else f"error: {kind}{first}")


def isolated(
    measure: Callable[..., Any],
    *arguments: Any,
    memory_bytes: int,
    seconds: float,
    device: torch.device = CPU,
) -> Any:
    """``measure(*arguments)`` in a process with limits; else OUT_OF_MEMORY, OUT_OF_TIME or the error's text.
    The limit in seconds uses the same clock as the measured times.

    On the CPU the process is a fork, so it starts at once; this one must not have run anything on several
    threads before. On other devices it is spawned: a fork of a process that has as much as asked for CUDA may
    not use it. A function and arguments for such a device must be picklable.
    """
    context = multiprocessing.get_context("fork" if device.type == "cpu" else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    by_processor = clock == PROCESSOR
    bounds = device, memory_bytes, seconds if by_processor else None
    process = context.Process(target=_work, args=(sender, *bounds, measure, arguments), daemon=True)
    process.start()
    sender.close()
    first = None
    try:
        if not receiver.poll(START_SECONDS):
            raise RuntimeError(f"the process of a point did not start within {START_SECONDS} seconds")
        first = receiver.recv()
        if first != READY:  # what went wrong before anything was measured
            return first
        waits = seconds * PATIENCE if by_processor else seconds
        return receiver.recv() if receiver.poll(waits) else OUT_OF_TIME
    except EOFError:
        if first is None:
            raise RuntimeError("the process of a point ended before it began: see its own message") from None
        process.join()
        number = -(process.exitcode or 0)
        if number == signal.SIGXCPU:
            return OUT_OF_TIME
        # The system kills. On the CPU, code that gets no memory under the limit also aborts or crashes; the
        # allocators of other devices raise.
        if number == signal.SIGKILL or device.type == "cpu":
            return OUT_OF_MEMORY
        ending = f"signal {number} ({signal.strsignal(number)})" if number > 0 else f"code {-number}"
        return f"error: the process ended with {ending}"
    finally:
        process.kill()
        process.join()


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the log-log fit: how a cost grows with size."""
    if len(points) < 2:
        return math.nan
    x, y = ([math.log(value) for value in values] for values in zip(*points, strict=True))
    return statistics.linear_regression(x, y).slope


# ------------------------------------------------------------------------------------------------------------
# Saving and showing
# ------------------------------------------------------------------------------------------------------------


CARD = {  # as we name it: as nvidia-smi does
    "driver": "driver_version",
    "clock": "clocks.max.sm",
    "memory_clock": "clocks.max.memory",
    "power_limit": "power.limit",
    "memory": "memory.total",
}


def card(device: torch.device) -> dict[str, Any]:
    """Name, driver, clocks, power limit and memory of an accelerator, from nvidia-smi for the card that torch
    uses, else from torch."""
    properties = torch.get_device_module(device).get_device_properties(device)
    name, identity = properties.name, getattr(properties, "uuid", None)
    if identity is not None and shutil.which("nvidia-smi"):
        query = f"--query-gpu={','.join(CARD.values())}"
        command = ["nvidia-smi", f"--id=GPU-{identity}", query, "--format=csv,noheader"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        values = [value.strip() for value in run.stdout.strip().split(",")]
        if run.returncode == 0 and len(values) == len(CARD):
            return {"name": name, **dict(zip(CARD, values, strict=True))}
    facts = {"name": name, "memory": f"{properties.total_memory >> 20} MiB"}
    if (kilohertz := getattr(properties, "clock_rate", None)) is not None:
        facts["clock"] = f"{kilohertz // 1000} MHz"
    return facts


def machine(device: torch.device) -> dict[str, Any]:
    """The facts about the machine that a reader needs to judge the figures."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        processor = names[0] if names else processor
    facts = {} if device.type == "cpu" else {"card": card(device)}
    return {
        "device": facts["card"]["name"] if facts else "cpu",
        **facts,
        "processor": processor,
        "threads": torch.get_num_threads(),
        "clock": clock,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit() or "unknown",
        "date": time.strftime("%Y-%m-%d"),
    }


def how(machine: dict[str, Any]) -> str:
    """Threads, and the clock if it is not the usual one."""
    threads = f"{machine['threads']} thread" + ("s" if machine["threads"] > 1 else "")
    clock = machine.get("clock", WALL)
    return threads if clock == WALL else f"{threads}, {clock}"


def command() -> str:
    """This benchmark and its arguments, the same if it was resumed."""
    return shlex.join(
        [Path(sys.argv[0]).name, *(argument for argument in sys.argv[1:] if argument != "--resume")]
    )


def save(path: Path, device: torch.device, **content: Any) -> dict[str, Any]:
    """Write a result with its machine and command; returns what was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine(device), "command": command(), **content}
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"saved {path}")
    return content


def add_resume(parser: argparse.ArgumentParser) -> None:
    """The option of benchmarks that save after every step."""
    text = "go on where the same command stopped, at the same commit; else begin anew"
    parser.add_argument("--resume", action="store_true", help=text)


def resumed(path: Path, resume: bool) -> list[dict[str, Any]]:
    """The results that the same command saved at the same commit; none unless asked for, or where there are
    none. A file never holds results of two commits under the name of one."""
    if not resume or not path.exists():
        return []
    found = json.loads(path.read_text())
    same = found["machine"]["commit"] == commit() and found["command"] == command()
    return found["results"] if same else []


def curves(results: Iterable[dict[str, Any]], what: str) -> dict[str, list[tuple[float, float]]]:
    """(nodes, figure) of every method, for the sizes that it completed."""
    found: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        if not isinstance(result[what], str):
            found.setdefault(result["method"], []).append((result["num_nodes"], result[what]))
    return found


def medians(results: Iterable[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """(nodes, median seconds) of every method, from results that hold all methods of a size."""
    found: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        for name, run in result["seconds"].items():
            found.setdefault(name, []).append((result["num_nodes"], run["median"]))
    return found


def exhausted(results: Iterable[dict[str, Any]], what: str) -> dict[str, int]:
    """The number of nodes at which a method ran out of memory or time."""
    return {
        result["method"]: result["num_nodes"]
        for result in results
        if result[what] in (OUT_OF_MEMORY, OUT_OF_TIME)
    }


def comparison(
    results: Sequence[dict[str, Any]],
    what: str,
    methods: Iterable[Any],
    properties: Sequence[str],
    show: Callable[[Any, int], str],
) -> str:
    """A Markdown table: a row per method, with its properties, its figure at every size, and its growth."""
    sizes = sorted({result["num_nodes"] for result in results})
    cells = {(result["method"], result["num_nodes"]): result[what] for result in results}
    grown = curves(results, what)

    def cell(name: str, size: int) -> str:
        figure = cells.get((name, size))
        return "-" if figure is None else figure if isinstance(figure, str) else show(figure, size)

    def growth(name: str) -> str:
        points = grown.get(name, [])
        return f"{exponent(points):.2f}" if len(points) > 1 else "-"

    measured = {result["method"] for result in results}
    rows = [
        [
            method.name,
            *method.properties(),
            *(cell(method.name, size) for size in sizes),
            growth(method.name),
        ]
        for method in methods
        if method.name in measured
    ]
    return table(["method", *properties, *(f"n = {size:,}" for size in sizes), "grows as n^"], rows)


OURS = "ParsePooling"
NOT_PEERS = (OURS, "GCN + ParsePooling", "UndirectedGCN + ParsePooling", "UndirectedGCN + TopKPooling")


def at_size(results: Iterable[dict[str, Any]], what: str, size: int) -> tuple[Any, dict[str, Any]]:
    """Our layer's figure at a size, and those of its peers; a text for a method that did not finish."""
    found = {result["method"]: result[what] for result in results if result["num_nodes"] == size}
    return found.get(OURS), {name: figure for name, figure in found.items() if name not in NOT_PEERS}


def times(ratio: float) -> str:
    """A ratio in three digits, without an exponent."""
    return f"{ratio:#.3g}" if ratio < 99.5 else f"{ratio:,.0f}"


def cell(ratio: float | str) -> str:
    """A table cell: our figure divided by a peer's; bold if the peer needs less."""
    if isinstance(ratio, str):
        return ratio
    return f"**{times(ratio)}**" if ratio > 1 else times(ratio)


def beside(results: Iterable[dict[str, Any]], what: str, size: int) -> dict[str, float | str]:
    """Our figure divided by each peer's at this size; a text for a peer that did not finish."""
    ours, peers = at_size(results, what, size)
    if not isinstance(ours, int | float):
        return {}
    return {name: figure if isinstance(figure, str) else ours / figure for name, figure in peers.items()}


def better_and_worse(results: Sequence[dict[str, Any]], what: str, less: str, more: str) -> str:
    """The peers that need less and more than our layer, and by what factor, at the smallest and the largest
    size for which our layer has a figure."""
    sizes = [size for size, _ in sorted(curves(results, what).get(OURS, []))]
    lines = []
    for size in dict.fromkeys(sizes[:1] + sizes[-1:]):
        ours, peers = at_size(results, what, size)
        ratios = sorted(
            (figure / ours, name) for name, figure in peers.items() if not isinstance(figure, str)
        )
        better = [f"{name} {times(1 / ratio)} times" for ratio, name in ratios if ratio < 1]
        worse = [f"{name} {times(ratio)} times" for ratio, name in reversed(ratios) if ratio >= 1]
        failed = [f"{name} {figure}" for name, figure in peers.items() if isinstance(figure, str)]
        lines.append(
            f"- n = {size:,}. {less} than {OURS}: {', '.join(better) or 'none'}. "
            f"{more}: {', '.join(worse + failed) or 'none'}."
        )
    return "\n".join(lines)


class Plot(NamedTuple):
    """The data of a plot: points of every curve, and the size at which a method ran out of memory or time."""

    title: str
    x_label: str
    y_label: str
    curves: dict[str, list[tuple[float, float]]]
    exhausted: dict[str, int]


DASHES, MARKERS = ("-", "--", ":", "-."), "os^D"
ROW = 0.045  # of the height of the axes: from one "x" to the next above it


def _spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Heights between 0 and 1, in the same order, at least a gap apart and near the given ones."""
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    heights, lowest = [0.0] * len(wanted), 0.0
    for place in order:
        heights[place] = max(wanted[place], lowest)
        lowest = heights[place] + gap
    highest = 1.0
    for place in reversed(order):
        heights[place] = min(heights[place], highest)
        highest = heights[place] - gap
    return heights


def draw_loglog(plot: Plot) -> Any:
    """Curves over sizes as a matplotlib figure, each with its name to the right of the axes.

    An "x" above the curves marks the size at which a method ran out of memory or time, as in the paper. More
    curves than colours get other dashes and markers.
    """
    from matplotlib.figure import Figure

    names = [
        name for name in {**plot.curves, **plot.exhausted} if plot.curves.get(name) or name in plot.exhausted
    ]
    figure = Figure(figsize=(9, max(5.0, 1.5 + 0.22 * len(names))), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel=plot.x_label, ylabel=plot.y_label)
    note = "\nx: ran out of memory or time at this size" if plot.exhausted else ""
    axes.set_title(plot.title + note, fontsize=11)
    styles = {}
    for position, name in enumerate(names):
        turn, colour = divmod(position, len(COLOURS))
        styles[name] = {
            "color": COLOURS[colour],
            "linestyle": DASHES[turn % len(DASHES)],
            "marker": MARKERS[turn % len(MARKERS)],
        }
    ends: dict[str, tuple[float, float]] = {}
    for name in names:
        if points := plot.curves.get(name):
            axes.plot(*zip(*points, strict=True), **styles[name], label=name, markersize=4, linewidth=1.8)
            ends[name] = points[-1]

    # The marks stand in rows above all figures, because what failed has none.
    low, high = (math.log10(limit) for limit in axes.get_ylim())
    rows: dict[int, int] = {}
    most = max((list(plot.exhausted.values()).count(size) for size in plot.exhausted.values()), default=0)
    high = low + (high - low) / (1 - ROW * (most + 0.5)) if most else high
    for name, size in plot.exhausted.items():
        row = rows[size] = rows.get(size, 0) + 1
        mark = size, 10 ** (high - (high - low) * ROW * row)
        if name in ends:
            axes.plot(
                *zip(ends[name], mark, strict=True), color=styles[name]["color"], linestyle=":", alpha=0.5
            )
        axes.plot(*mark, color=styles[name]["color"], marker="x", markersize=7, markeredgewidth=1.8)
        ends[name] = mark
    axes.set_ylim(10**low, 10**high)

    figure.draw_without_rendering()  # the layout: how high the axes are
    in_axes = axes.transScale + axes.transLimits
    points_high = axes.get_window_extent().height * 72 / figure.dpi
    heights = _spread([in_axes.transform(ends[name])[1] for name in names], gap=12 / points_high)
    last = max(x for x, _ in ends.values())
    for name, height in zip(names, heights, strict=True):
        # From a curve that ends early this line crosses the axes, where only dots look unlike figures.
        dashes = styles[name]["linestyle"] if ends[name][0] == last else (0, (1, 4))
        axes.annotate(
            name,
            ends[name],
            xytext=(1.03, height),
            textcoords="axes fraction",
            color=styles[name]["color"],
            va="center",
            fontsize=9,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": styles[name]["color"],
                "linestyle": dashes,
                "linewidth": 0.8,
                "alpha": 0.5,
                "shrinkA": 0,
                "shrinkB": 4,
                "relpos": (0, 0.5),
            },
        )
    axes.grid(True, which="major", alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def save_plots(path: Path, plots: dict[str, Plot]) -> None:
    """Each plot as PNG and SVG, named like the results with the plot's own ending.

    The same results give the same bytes, and names stay text in the SVG, so that they can be searched.
    """
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "gpn_ops"}):
        for ending, plot in plots.items():
            target = path.with_name(path.stem + ending)
            figure = draw_loglog(plot)
            for suffix, options in ((".png", {"dpi": 150}), (".svg", {"metadata": {"Date": None}})):
                unfinished = target.with_suffix(f".unfinished{suffix}")  # A kill leaves the old plot whole.
                figure.savefig(unfinished, **options)
                unfinished.replace(target.with_suffix(suffix))
            print(f"plotted {target.with_suffix('.png')}")
