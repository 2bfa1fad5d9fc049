"""Trains and tests a model on a data set, over folds and seeds.

    python -m models.train PROTEINS
    python -m models.train PROTEINS --model edgepool --folds 0-9 --seeds 0-19 --jobs 2
    python -m models.train Cora --set hidden=64 --set patience=200
    python -m models.train "my.package:MyDataset('data/mine')" --set task=graph

The settings are those of the preset models/presets/<dataset>.yaml; --set changes any of them, and
--show-settings prints them all. Graph tasks without splits of their own run 10-fold cross-validation: fold i
tests, fold i-1 validates, the rest trains, the folds being drawn by the seed. Node tasks run the ten splits
that come with the data. The figure of a run is the test result at the epoch of the lowest validation loss.

Written to OUTPUT/<dataset>/<model>/ are runs.jsonl, a line for every finished run; epochs/, a line for every
epoch of every run; checkpoints/, from which a run that was stopped goes on, to the same result, when the same
command is given again. Runs that are finished with the same settings are not repeated, and those that another
process is at are left to it: the same command, given in two shells, shares the work. Settings other than the
preset's have a folder of their own, OUTPUT/<dataset>/<model>-<digest of the settings>/.
`python -m models.report OUTPUT` makes tables of the results.

Several processes train one model together, on one machine or more, under torchrun:

    torchrun --nproc-per-node 2 -m models.train NCI1

The batch of the settings is then that of all processes together.
"""

import argparse
import contextlib
import dataclasses
import multiprocessing
import os
import platform
import shlex
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from . import config as configs
from . import data, jsonl
from .training import MODELS, Place, Run, digest, world


def numbers(text: str) -> list[int]:
    """``0-3,7`` as a list."""
    found: list[int] = []
    for part in text.split(","):
        first, separator, last = part.partition("-")
        try:
            found += range(int(first), int(last if separator else first) + 1)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"expected numbers and ranges such as 0-3,7, got {text!r}"
            ) from None
    if not found:
        raise argparse.ArgumentTypeError(f"expected at least one number, got {text!r}")
    return sorted(set(found))


def positive(text: str) -> int:
    """A number of processes or threads."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {text!r}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    manual = argparse.ArgumentParser(
        prog="python -m models.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"Presets: {', '.join(configs.presets())}.",
    )
    manual.add_argument(
        "dataset", help="a preset's name, a YAML file of settings, or the import path of a PyG data set"
    )
    manual.add_argument(
        "--model", choices=MODELS, default=None, help="gpn (default), or a baseline (graph tasks)"
    )
    manual.add_argument(
        "--folds", type=numbers, default=None, help="folds or splits, such as 0-9 (default: all)"
    )
    manual.add_argument("--seeds", type=numbers, default=[0], help="seeds, such as 0-19 (default: 0)")
    manual.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting; may be repeated"
    )
    manual.add_argument("--show-settings", action="store_true", help="print all settings, and end")
    manual.add_argument("--device", default="cpu", help="cpu, cuda or cuda:<number> (default: cpu)")
    manual.add_argument("--jobs", type=positive, default=1, help="runs at a time (default: 1)")
    manual.add_argument(
        "--threads",
        type=positive,
        default=None,
        help="CPU threads of a run (default: all cores, shared by the jobs)",
    )
    manual.add_argument(
        "--data-root",
        type=Path,
        default=Path("data"),
        help="folder of raw data, in PyG's layout (default: data)",
    )
    manual.add_argument(
        "--data-cache", type=Path, default=Path("data"), help="folder for prepared data (default: data)"
    )
    manual.add_argument(
        "--output", type=Path, default=Path("results"), help="folder for results (default: results)"
    )
    manual.add_argument(
        "--checkpoint-every", type=float, default=20.0, help="seconds between checkpoints (default: 20)"
    )
    manual.add_argument(
        "--keep-model", action="store_true", help="keep the weights of every run's reported epoch"
    )
    manual.add_argument("--quiet", action="store_true", help="no progress bars")
    return manual


def chosen(options: argparse.Namespace) -> configs.Config:
    """The settings that the command line asks for."""
    values = {} if options.model is None else {"model": options.model}
    config = configs.load(options.dataset, options.set, **values)
    if config.model not in MODELS:
        raise ValueError(f"model: expected one of {', '.join(MODELS)}, got {config.model!r}")
    return config


def run_folder(output: Path, config: configs.Config) -> Path:
    """Of a data set and a model; settings that differ from the preset have a folder of their own."""
    name = config.dataset.partition(":")[2].partition("(")[0] or config.dataset
    is_preset = not set(changed(config)) - {"task"}
    return output / name / (config.model if is_preset else f"{config.model}-{digest(config)}")


def finished(folder: Path, config: configs.Config, warn: bool = True) -> set[tuple[int, int]]:
    """Seed and fold of the runs that are done with these settings."""
    runs = jsonl.read(folder / "runs.jsonl", ("seed", "fold", "digest"), warn)
    return {(run["seed"], run["fold"]) for run in runs if run["digest"] == digest(config)}


def prepare(device: torch.device, threads: int) -> None:
    """Reproducible bits, for a given number of threads."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    # Some CUDA operators have no deterministic form: there it is a warning.
    torch.use_deterministic_algorithms(True, warn_only=device.type == "cuda")
    torch.utils.deterministic.fill_uninitialized_memory = False
    warnings.filterwarnings("ignore", message="Sparse")


_graphs: dict[str, data.Graphs] = {}


def load(config: configs.Config, options: argparse.Namespace) -> data.Graphs:
    """The data set, read once for all runs of this process."""
    key = f"{config.dataset} {config.task} {config.complete} {config.degree} {options.data_root}"
    if key not in _graphs:
        _graphs.clear()
        _graphs[key] = data.load(config, options.data_root, options.data_cache)
    return _graphs[key]


@contextlib.contextmanager
def claimed(config: configs.Config, fold: int, seed: int, place: Place) -> Iterator[bool]:
    """Whether a run is to be made here: it is not if it is finished, or if another process is at it.

    Raises:
        ValueError: if that process has other settings, and would write into the same files.
    """
    with contextlib.ExitStack() as opened:
        here = [True]
        if world()[0] == 0:
            path = place.file("checkpoints", fold, seed).with_suffix(".lock")
            file = opened.enter_context(path.open("a+"))
            if jsonl.lock(file, wait=False):
                file.truncate(0)
                file.write(digest(config))
                file.flush()
                here = [(seed, fold) not in finished(place.folder, config, warn=False)]
            else:
                file.seek(0)
                if file.read() not in ("", digest(config)):
                    raise ValueError(
                        f"seed {seed} fold {fold}: another process trains it with other settings, in "
                        f"{place.folder}: wait for it, or name another folder with --output"
                    )
                here = [False]
        if world()[1] > 1:
            dist.broadcast_object_list(here, 0)
        yield here[0]


def one_run(
    config: configs.Config, fold: int, seed: int, place: Place, options: argparse.Namespace
) -> dict[str, Any] | None:
    """Trains one model, and appends the record of the run to runs.jsonl; nothing if another process does."""
    with claimed(config, fold, seed, place) as here:
        return _trained(config, fold, seed, place, options) if here else None


def _trained(
    config: configs.Config, fold: int, seed: int, place: Place, options: argparse.Namespace
) -> dict[str, Any]:
    prepare(place.device, options.threads)
    run = Run(config, load(config, options), fold, seed, place)
    record = run.train()
    if run.rank == 0:
        record = {
            "dataset": config.dataset,
            "model": config.model,
            "metric": config.metric,
            **record,
            "digest": digest(config),
            "changed": changed(config),
            "command": options.command,
            "commit": options.commit,
            "torch": torch.__version__,
            "threads": options.threads,
            "processes": run.world,
            "device": str(place.device)
            if place.device.type == "cpu"
            else torch.cuda.get_device_name(place.device),
        }
        jsonl.append(place.folder / "runs.jsonl", record)
    run.finish()
    return record


def changed(config: configs.Config) -> dict[str, Any]:
    """The settings that differ from those of the preset."""
    try:
        preset = configs.load(config.dataset).to_dict()
    except ValueError:
        preset = {field.name: field.default for field in dataclasses.fields(config)}
    return {
        key: value
        for key, value in config.to_dict().items()
        if value != preset[key] and key not in ("dataset", "model")
    }


def commit() -> str | None:
    """The checkout's commit, with a plus sign where files differ from it."""

    def git(*arguments: str) -> str:
        root = Path(__file__).parent
        return subprocess.run(
            ("git", *arguments), cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        config = chosen(options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.show_settings:
        print(config.to_yaml(), end="")
        return 0

    together = int(os.environ.get("WORLD_SIZE", "1"))
    try:
        device = torch.device(options.device)
    except RuntimeError:
        print(
            f"error: --device: expected cpu, cuda or cuda:<number>, got {options.device!r}", file=sys.stderr
        )
        return 2
    if device.type == "cuda":
        if not torch.cuda.is_available():
            print("error: --device cuda: this torch sees no CUDA device", file=sys.stderr)
            return 2
        if together > 1:
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
    if together > 1:
        if options.jobs != 1:
            print("error: --jobs: expected 1 under torchrun", file=sys.stderr)
            return 2
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if options.threads is None:
        processes = options.jobs * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        options.threads = max(len(os.sched_getaffinity(0)) // processes, 1)
    if arguments is None:
        arguments = sys.argv[1:]
    options.command = "python -m models.train " + shlex.join(arguments)
    options.commit = commit()

    folder = run_folder(options.output, config)
    folder.mkdir(parents=True, exist_ok=True)
    if world()[0] == 0:
        (folder / f"settings-{digest(config)}.yaml").write_text(config.to_yaml())
    try:
        return _all_runs(config, options, device, folder)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    except (ValueError, FileNotFoundError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _all_runs(config: configs.Config, options: argparse.Namespace, device: torch.device, folder: Path) -> int:
    folds = options.folds
    if folds is None:
        folds = list(range(load(config, options).num_folds))
    wanted = [(seed, fold) for seed in options.seeds for fold in folds]
    done = finished(folder, config)
    runs = [run for run in wanted if run not in done]
    if world()[1] > 1:  # The first process's: another command may have finished one since.
        known = [runs]
        dist.broadcast_object_list(known, 0)
        (runs,) = known
    if len(runs) < len(wanted) and world()[0] == 0:
        print(f"{len(wanted) - len(runs)} of {len(wanted)} runs were finished before")

    def place(position: int) -> Place:
        return Place(folder, device, options.checkpoint_every, position, options.quiet, options.keep_model)

    start, failures, elsewhere = time.monotonic(), 0, 0
    if options.jobs == 1:
        for seed, fold in runs:
            record = one_run(config, fold, seed, place(0), options)
            elsewhere += record is None
            _tell(record, options)
    else:
        context = multiprocessing.get_context("spawn")
        positions = context.Queue()
        for position in range(options.jobs):
            positions.put(position)
        with ProcessPoolExecutor(options.jobs, context, _start_worker, (positions,)) as pool:
            futures = {
                pool.submit(_in_worker, config, fold, seed, place(0), options): (seed, fold)
                for seed, fold in runs
            }
            try:
                for future in as_completed(futures):
                    seed, fold = futures[future]
                    try:
                        record = future.result()
                        elsewhere += record is None
                        _tell(record, options)
                    except Exception as error:
                        failures += 1
                        print(f"error: seed {seed} fold {fold}: {error}", file=sys.stderr)
            except KeyboardInterrupt:
                # A worker would take the next run that waits, whatever became of the last.
                for process in multiprocessing.active_children():
                    process.terminate()
                pool.shutdown(cancel_futures=True)
                raise
    if world()[0] == 0:
        spent = time.monotonic() - start
        made = len(runs) - failures - elsewhere
        print(f"{made} runs in {spent:.0f} s on {platform.machine()}, results in {folder}")
        if elsewhere:
            print(f"{elsewhere} of {len(wanted)} runs were left to other processes")
        if failures:
            print(f"error: {failures} runs failed; the same command tries them again", file=sys.stderr)
    return 1 if failures else 0


def _start_worker(positions: Any) -> None:
    global _position
    _position = positions.get()


def _in_worker(
    config: configs.Config, fold: int, seed: int, place: Place, options: argparse.Namespace
) -> dict[str, Any] | None:
    place.bar_position = _position + 1
    try:
        return one_run(config, fold, seed, place, options)
    except Exception as error:
        raise RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}") from None


def _tell(record: dict[str, Any] | None, options: argparse.Namespace) -> None:
    if record is not None and world()[0] == 0 and not options.quiet:
        height = f", height {record['height']:.1f}" if "height" in record else ""
        print(
            f"seed {record['seed']} fold {record['fold']}: test {record['metric']} {record['test']:.2f} "
            f"(validation {record['val']:.2f}, epoch {record['epoch']} of {record['epochs']}{height}, "
            f"{record['seconds']:.0f} s)",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
