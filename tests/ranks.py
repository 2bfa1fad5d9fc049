"""Groups of processes for the tests of gpn_ops.distributed.

A rank is a process of its own, started afresh, and whatever happens to it the parent gets an answer in time:
the group has a timeout, and a process that outlives the deadline is killed and reported as hung.
"""

import datetime
import multiprocessing
import pickle
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


class Outcome(NamedTuple):
    """What became of a rank: what its function returned, the error it raised, or neither if it was killed."""

    result: Any = None
    error: str | None = None
    exitcode: int | None = None
    seconds: float = 0.0


def run(
    function: Callable[..., Any],
    size: int,
    folder: Path,
    *arguments: Any,
    group_timeout: float = 30.0,
    deadline: float = 120.0,
) -> list[Outcome]:
    """Call ``function(rank, *arguments)`` in ``size`` new processes that form a gloo group; what each did."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_work, args=(function, rank, size, folder, group_timeout, arguments))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    end = time.monotonic() + deadline
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    outcomes = []
    for rank, process in enumerate(processes):
        if process.is_alive():
            process.kill()
            process.join()
            outcomes.append(Outcome(error=f"hung: killed after {deadline} s", exitcode=process.exitcode))
        elif (folder / f"outcome{rank}").exists():
            outcomes.append(pickle.loads((folder / f"outcome{rank}").read_bytes()))
        else:
            outcomes.append(Outcome(exitcode=process.exitcode))
    return outcomes


def _work(
    function: Callable[..., Any],
    rank: int,
    size: int,
    folder: Path,
    group_timeout: float,
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=group_timeout),
    )
    start = time.monotonic()
    try:
        outcome = Outcome(result=function(rank, *arguments), exitcode=0)
    except Exception as error:
        outcome = Outcome(error=f"{error}\n{traceback.format_exc()}", exitcode=1)
    (folder / f"outcome{rank}").write_bytes(pickle.dumps(outcome._replace(seconds=time.monotonic() - start)))
    if outcome.error is None:
        dist.destroy_process_group()


def shards(total: int, size: int, seed: int) -> list[slice]:
    """``total`` edges cut into ``size`` shards at random places: some are empty, and with the seed it varies
    which."""
    random = torch.Generator().manual_seed(seed)
    cuts = torch.randint(total + 1, (size - 1,), generator=random).sort().values.tolist()
    return [slice(begin, end) for begin, end in zip([0, *cuts], [*cuts, total], strict=True)]
