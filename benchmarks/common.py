"""What the benchmarks share: graphs, exact memory and time, machine facts, saving, tables, plots.

Every benchmark validates first and measures then. Times are medians of repeated runs after a warm-up, with
the device synchronised; figures that are compared come from the same run.
"""

import argparse
import json
import math
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler announces every start and stop otherwise

import torch
from torch import Tensor

for _module in ("matplotlib", "scipy", "torch_geometric", "tqdm"):
    if find_spec(_module) is None:
        raise ImportError(
            f"benchmarks need {_module}. In the root of the checkout, install gpn_ops with its extra "
            "'bench': pip install --no-build-isolation -e '.[bench]'"
        )

RESULTS = Path(__file__).resolve().parent / "results"

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")


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
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for JSON and plots")
    return parser


def add_limits(parser: argparse.ArgumentParser) -> None:
    """The options of benchmarks that run every point in a process of its own."""
    parser.add_argument("--memory-limit", type=int, default=12, help="GiB a point may take")
    parser.add_argument("--time-limit", type=float, default=60, help="seconds a point may take (quick: 4)")


def limits(options: argparse.Namespace) -> dict[str, Any]:
    """What :func:`isolated` takes."""
    seconds = min(options.time_limit, 4) if options.quick else options.time_limit
    return {"memory_bytes": options.memory_limit << 30, "seconds": seconds}


def prepare(options: argparse.Namespace) -> torch.device:
    """Set the threads; stop at once where the device is not there."""
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda: torch finds no CUDA device on this machine. Run with --device cpu.")
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


# ------------------------------------------------------------------------------------------------------------
# Measuring
# ------------------------------------------------------------------------------------------------------------


def elapsed(call: Callable[[], Any], device: torch.device) -> float:
    """Seconds of one call, with the device synchronised."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def timed(
    methods: dict[str, Callable[[], Any]], device: torch.device, seconds: float = 1.0, most: int = 50
) -> dict[str, Timing]:
    """Time each call: warm up, then repeat for about this long in all.

    The methods take turns, so that a passing load on the machine meets them alike.
    """
    runs = {name: [elapsed(call, device)] for name, call in methods.items()}
    repeats = {name: min(most, max(3, int(seconds / first))) for name, (first,) in runs.items()}
    slow = {name for name, (first,) in runs.items() if first > seconds}
    for turn in range(max(repeats.values())):
        for name, call in methods.items():
            if turn < repeats[name] and name not in slow:
                call()  # the turn's own warm-up: caches and sleeping threads are as the one before left them
                runs[name].append(elapsed(call, device))

    def summary(times: list[float]) -> Timing:
        measured = times[1:] or times  # the first call was the warm-up, unless it is all there is
        low, median, high = statistics.quantiles(measured, n=4) if len(measured) > 1 else measured * 3
        return Timing(median, low, high)

    return {name: summary(times) for name, times in runs.items()}


def peak_bytes(function: Callable[[], Any], device: torch.device) -> int:
    """The most that the allocator has handed out during a call, above what was held before. Exact.

    On CUDA by the allocator's own peak; on the CPU by the running sum over every allocation and release that
    torch's allocator reports to the profiler.
    """
    if device.type == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
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


def isolated(measure: Callable[..., Any], *arguments: Any, memory_bytes: int, seconds: float) -> Any:
    """``measure(*arguments)`` in a process with limits; else OUT_OF_MEMORY, OUT_OF_TIME or the error's text.

    The process is a fork, so it starts at once; this one must not have run anything on a GPU or on several
    threads before.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        warnings.simplefilter("ignore")  # of the peers, about their own ways
        try:
            sender.send(measure(*arguments))
        except MemoryError:
            sender.send(OUT_OF_MEMORY)
        except RuntimeError as error:
            text = str(error)
            lack = "not enough memory" in text or "can't allocate memory" in text or "out of memory" in text
            sender.send(OUT_OF_MEMORY if lack else f"error: {text.splitlines()[0]}")
        except Exception as error:
            sender.send(f"error: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")

    process = context.Process(target=work, daemon=True)
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds) else OUT_OF_TIME
    except EOFError:  # killed by the system: nothing else ends a process without a word here
        return OUT_OF_MEMORY
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


def machine(device: torch.device) -> dict[str, Any]:
    """What a reader needs to place the figures."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(RESULTS.parent.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def commit() -> str:
        # Results and the pages made of them are what a benchmark writes, not what it ran.
        written = (":!benchmarks/results", ":!docs", ":!README.md")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *written)
        return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("-dirty" if changed else "")

    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        processor = names[0] if names else processor
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "processor": processor,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def save(path: Path, device: torch.device, **content: Any) -> None:
    """Write a result with the machine it came from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(device), **content}, indent=1) + "\n")
    print(f"saved {path}")


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def curves(results: Iterable[dict[str, Any]], what: str) -> dict[str, list[tuple[float, float]]]:
    """(nodes, figure) of every method, where it came to an end."""
    found: dict[str, list[tuple[float, float]]] = {}
    for result in results:
        if not isinstance(result[what], str):
            found.setdefault(result["method"], []).append((result["num_nodes"], result[what]))
    return found


def comparison(
    results: Sequence[dict[str, Any]],
    what: str,
    methods: Iterable[Any],
    properties: Sequence[str],
    show: Callable[[Any, int], str],
) -> str:
    """A Markdown table: a row a method, with its properties, its figure at every size, and how it grows."""
    sizes = sorted({result["num_nodes"] for result in results})
    cells = {(result["method"], result["num_nodes"]): result[what] for result in results}
    grown = curves(results, what)

    def cell(name: str, size: int) -> str:
        figure = cells.get((name, size))
        return "-" if figure is None else figure if isinstance(figure, str) else show(figure, size)

    rows = [
        [
            method.name,
            *method.properties(),
            *(cell(method.name, size) for size in sizes),
            f"{exponent(grown.get(method.name, [])):.2f}",
        ]
        for method in methods
    ]
    return table(["method", *properties, *(f"n = {size:,}" for size in sizes), "grows as n^"], rows)


def plot_loglog(
    path: Path, title: str, x_label: str, y_label: str, curves: dict[str, Sequence[tuple[float, float]]]
) -> None:
    """Curves over sizes, each labelled at its end; PNG and SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for colour, (name, points) in zip(COLOURS, curves.items(), strict=False):
        if points:
            x, y = zip(*points, strict=True)
            axes.loglog(x, y, marker="o", markersize=4, linewidth=1.8, color=colour)
            axes.annotate(
                name,
                (x[-1], y[-1]),
                xytext=(6, 0),
                textcoords="offset points",
                color=colour,
                va="center",
                fontsize=9,
            )
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    axes.margins(x=0.25)
    axes.grid(True, which="major", alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)
    print(f"plotted {path.with_suffix('.png')}")
