"""Trains and tests a model on a data set, over folds and seeds.

    python -m models.train PROTEINS
    python -m models.train PROTEINS --model edgepool --folds 0-9 --seeds 0-19 --jobs 2
    python -m models.train ENZYMES
    python -m models.train Cora --set hidden=64 --set patience=200
    python -m models.train "my.package:MyDataset('data/mine')" --set task=graph

The settings come from the preset in models/presets; other TUDatasets use the defaults. --set changes a
setting, and --show-settings prints all of them. Graph tasks whose data has no splits run 10-fold
cross-validation: fold i tests, fold i-1 validates, the others train, and the seed draws the folds. Node tasks
run the ten splits that come with the data. A run reports the test result at the epoch with the lowest
validation loss.

The command writes to OUTPUT/<dataset>/<model>/: runs.jsonl has a line per finished run, epochs/ a line per
epoch of each run, and checkpoints/ lets the same command resume a stopped run with the same result. Finished
runs with the same settings are not repeated, and runs that another process is working on are skipped, so the
same command in two shells shares the work. Settings that differ from the preset get their own folder,
OUTPUT/<dataset>/<model>-<digest of the settings>/. `python -m models.report OUTPUT` prints tables of the
results.

Under torchrun, several processes train one model together, on one machine or more:

    torchrun --nproc-per-node 2 -m models.train NCI1

The batch size is then the total over all processes.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tqdm import tqdm

from . import config as configs
from . import data, files, jsonl
from .common import attempt, commit, device_name, device_named, fail, numbers, positive
from .training import Place, Run, digest, prepare, world

# What a run comes to: the same again, where the same bits come out.
RESULT = ("epoch", "val", "val_loss", "test", "test_loss", "height", "height_std", "epochs")
Record = dict[str, Any]
NEEDED = {"seed": int, "fold": int, "digest": str}


def parser() -> argparse.ArgumentParser:
    manual = argparse.ArgumentParser(
        prog="python -m models.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"Presets of the paper: {', '.join(configs.presets('paper'))}. Our own: "
        f"{', '.join(configs.presets('own'))}.",
    )
    manual.add_argument(
        "dataset",
        help="the name of a preset or of another TUDataset, a YAML file of settings, or an import path",
    )
    manual.add_argument(
        "--model",
        choices=configs.NAMES,
        default=None,
        help="gpn (default), or a baseline (for graph tasks; gcn and gin also for molecules)",
    )
    manual.add_argument(
        "--folds", type=numbers, default=None, help="folds or splits, such as 0-9 (default: all)"
    )
    manual.add_argument("--seeds", type=numbers, default=[0], help="seeds, such as 0-19 (default: 0)")
    manual.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting; may be repeated"
    )
    manual.add_argument(
        "--trust", action="store_true", help="let a YAML file name an import path, whose code will run"
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
        "--checkpoint-every", type=_seconds, default=20.0, help="seconds between checkpoints (default: 20)"
    )
    manual.add_argument(
        "--keep-model",
        action="store_true",
        help="keep the weights of every run's reported epoch; finished runs without them are repeated",
    )
    manual.add_argument("--quiet", action="store_true", help="no progress bars")
    return manual


def _seconds(text: str) -> float:
    try:
        if (seconds := float(text)) >= 0:
            return seconds
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected a number of seconds, got {text!r}")


def chosen(options: argparse.Namespace) -> configs.Config:
    """The settings that the command line asks for."""
    values = {} if options.model is None else {"model": options.model}
    return configs.load(options.dataset, options.set, options.trust, **values)


def run_folder(output: Path, config: configs.Config) -> Path:
    """The folder of a data set and a model; settings that differ from the preset have their own."""
    is_preset = not set(changed(config)) - {"task"}
    model = config.model if is_preset else f"{config.model}-{digest(config)}"
    return output / configs.folder_name(config.dataset) / model


def recorded(
    folder: Path, config: configs.Config, warn: bool = True
) -> dict[tuple[int, int], dict[str, Any]]:
    """The records of the runs with these settings, by seed and fold; for a repeated run, the last."""
    runs = jsonl.read(folder / "runs.jsonl", NEEDED, warn)
    return {(run["seed"], run["fold"]): run for run in runs if run["digest"] == digest(config)}


def finished(place: Place, config: configs.Config, warn: bool = True) -> set[tuple[int, int]]:
    """Seed and fold of the finished runs with these settings: they are recorded, and their weights exist if
    they are to be kept."""
    runs = set(recorded(place.folder, config, warn))
    if place.keep_model:
        runs = {(seed, fold) for seed, fold in runs if has_weights(place, config, fold, seed, warn)}
    return runs


def has_weights(place: Place, config: configs.Config, fold: int, seed: int, warn: bool) -> bool:
    """Whether the weights of a run exist, are readable, and have these settings."""
    path = place.file("weights", fold, seed)
    if not path.exists():
        return False
    try:
        return digest(configs.Config.from_dict(files.load(path)["config"])) == digest(config)
    except (ValueError, TypeError, KeyError) as error:
        if warn:
            files.warn(path, f"cannot be used ({error}); the run is made again")
        return False


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
    """Whether this process should make a run: not if it is finished, or if another process is working on it.
    Removes what a killed process has left of the run.

    Raises:
        ValueError: if the other process has other settings, and would write into the same files.
    """
    with contextlib.ExitStack() as opened:
        here = [True]
        if world()[0] == 0:
            path = place.file("checkpoints", fold, seed).with_suffix(".lock")
            path.parent.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context(path.open("a+"))
            if files.lock(file, wait=False):
                with files.named(path):
                    file.truncate(0)
                    file.write(digest(config))
                    file.flush()
                place.remove_temporaries(fold, seed)
                here = [(seed, fold) not in finished(place, config, warn=False)]
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
) -> Record | None:
    """Trains one model and adds its record to runs.jsonl; does nothing if another process does the run."""
    with claimed(config, fold, seed, place) as here:
        return _trained(config, fold, seed, place, options) if here else None


def _trained(
    config: configs.Config, fold: int, seed: int, place: Place, options: argparse.Namespace
) -> Record:
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
            "device": device_name(place.device),
        }
        _add(record, place, config)
    run.remove_checkpoint()
    return record


def _add(record: Record, place: Place, config: configs.Config) -> None:
    """Adds a record. A run repeated for its weights gets a second line only if the result differs."""
    before = recorded(place.folder, config, warn=False).get((record["seed"], record["fold"]))
    if before is not None:
        if all(json.dumps(before.get(key)) == json.dumps(record.get(key)) for key in RESULT):
            return
        print(
            f"seed {record['seed']} fold {record['fold']}: made again for its weights, with another result: "
            f"test {record['test']:.2f}, before {before.get('test')}. The last one counts.",
            file=sys.stderr,
        )
    jsonl.append(place.folder / "runs.jsonl", record)


def changed(config: configs.Config) -> dict[str, Any]:
    """The settings that differ from the preset and change results."""
    try:
        preset = configs.load(config.dataset).to_dict()
    except ValueError:
        preset = configs.Config(config.dataset).to_dict()
    return {
        key: value
        for key, value in config.to_dict().items()
        if (key not in preset or value != preset[key]) and key not in ("dataset", "model", *configs.NEUTRAL)
    }


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        config = chosen(options)
    except (ValueError, OSError) as error:
        return fail(error, 2)
    if options.show_settings:
        print(config.to_yaml(), end="")
        return 0

    together = int(os.environ.get("WORLD_SIZE", "1"))
    try:
        device = device_named(options.device)
    except ValueError as error:
        return fail(error, 2)
    if together > 1:
        if options.jobs != 1:
            return fail("--jobs: expected 1 under torchrun", 2)
        if device.type != "cpu":
            device = torch.device(device.type, int(os.environ["LOCAL_RANK"]))
            torch.accelerator.set_device_index(device.index)
        dist.init_process_group(dist.get_default_backend_for_device(device))
    if options.threads is None:
        processes = options.jobs * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        options.threads = max(len(os.sched_getaffinity(0)) // processes, 1)
    if arguments is None:
        arguments = sys.argv[1:]
    options.command = "python -m models.train " + shlex.join(arguments)
    options.commit = commit()
    try:
        return attempt(lambda: _all_runs(config, options, device))
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _all_runs(config: configs.Config, options: argparse.Namespace, device: torch.device) -> int:
    folder = run_folder(options.output, config)
    folder.mkdir(parents=True, exist_ok=True)
    if world()[0] == 0:
        settings = folder / f"settings-{digest(config)}.yaml"
        with files.named(settings):
            settings.write_text(config.to_yaml())

    def place() -> Place:
        return Place(folder, device, options.checkpoint_every, 0, options.quiet, options.keep_model)

    folds = options.folds
    if folds is None:
        folds = list(range(load(config, options).num_folds))
    wanted = [(seed, fold) for seed in options.seeds for fold in folds]
    done = finished(place(), config)
    runs = [run for run in wanted if run not in done]
    if world()[1] > 1:  # The first process's: another command may have finished one since.
        known = [runs]
        dist.broadcast_object_list(known, 0)
        (runs,) = known
    if len(runs) < len(wanted) and world()[0] == 0:
        print(f"{len(wanted) - len(runs)} of {len(wanted)} runs were finished before")
    if world()[0] == 0:
        again = set(recorded(folder, config, warn=False)).intersection(runs)
        if again:
            print(f"{len(again)} finished runs have no weights to keep, and are made again")

    start, failures, elsewhere = time.monotonic(), 0, 0
    if options.jobs == 1:
        for seed, fold in runs:
            record = one_run(config, fold, seed, place(), options)
            elsewhere += record is None
            _tell(record, options)
    else:
        context = multiprocessing.get_context("spawn")
        positions = context.Queue()
        for position in range(options.jobs):
            positions.put(position)
        with ProcessPoolExecutor(options.jobs, context, _start_worker, (positions,)) as pool:
            try:
                futures = {
                    pool.submit(_in_worker, config, fold, seed, place(), options): (seed, fold)
                    for seed, fold in runs
                }
                for future in as_completed(futures):
                    seed, fold = futures[future]
                    try:
                        record = future.result()
                        elsewhere += record is None
                        _tell(record, options)
                    except Exception as error:
                        failures += 1
                        fail(f"seed {seed} fold {fold}: {error}")
            except KeyboardInterrupt:
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
            fail(f"{failures} runs failed; the same command tries them again")
    return 1 if failures else 0


def _start_worker(positions: Any) -> None:
    global _position
    # Ctrl-C reaches every process. The command ends its workers; one that ended its run itself would take
    # the next run that waits.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    # Its own is a semaphore of the system's, which a worker that is ended leaves behind.
    tqdm.set_lock(threading.RLock())
    _position = positions.get()


def _end_with_the_command() -> None:
    """Ends a worker with its command. A killed command cannot do so: its workers would wait for ever."""
    command = multiprocessing.parent_process()
    assert command is not None
    command.join()
    os._exit(1)


def _in_worker(
    config: configs.Config, fold: int, seed: int, place: Place, options: argparse.Namespace
) -> Record | None:
    place.bar_position = _position + 1
    try:
        return one_run(config, fold, seed, place, options)
    except (ValueError, OSError, FloatingPointError) as error:
        raise RuntimeError(f"{type(error).__name__}: {files.sentence(error)}") from None
    except Exception as error:
        raise RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}") from None


def _tell(record: Record | None, options: argparse.Namespace) -> None:
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
