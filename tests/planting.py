"""What the tables of planted bugs share: tests/mutants.py (Python) and tests/cpp/mutants.py (C++ and CUDA).

Every bug is a change of one exact text of one file. It is made in a copy of the sources, so the product
itself never carries a bug; a text that no longer occurs exactly once is an error, so a table cannot fall
behind the sources. A bug that survives the test that must notice it fails the run.
"""

import argparse
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

ROOT = Path(__file__).resolve().parent.parent


class Bug(Protocol):
    """A row of a table."""

    name: str
    file: str
    old: str
    new: str
    test: str
    quick: bool
    more: tuple[tuple[str, str], ...]


Row = TypeVar("Row", bound=Bug)
Item = TypeVar("Item")


def plant(bug: Bug, sources: Path) -> None:
    """Makes the change.

    Raises:
        LookupError: if a text is not there, or more than once.
    """
    file = sources / bug.file
    text = file.read_text()
    for old, new in ((bug.old, bug.new), *bug.more):
        if text.count(old) != 1:
            raise LookupError(f"{bug.file} has this text {text.count(old)} times, expected once:\n{old}")
        text = text.replace(old, new)
    file.write_text(text)


def run(command: list[str], timeout: float, **options: object) -> tuple[int, str]:
    """Exit status and output; running out of time counts as 124, as with timeout(1)."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False, **options
        )
    except subprocess.TimeoutExpired:
        return 124, "emulation: no end in time"
    return done.returncode, done.stdout.decode(errors="replace")


def first_problem(check: Callable[[Item], str | None], items: Sequence[Item], jobs: int) -> str | None:
    """What a check says of the first item that does not pass it; ``jobs`` at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        return next(filter(None, pool.map(check, items)), None)


def main(
    description: str,
    table: Sequence[Row],
    prepare: Callable[[list[Row], int], str | None],
    outcome: Callable[[Row], str | None],
) -> int:
    """The command: plants the bugs that are asked for; the exit code.

    Args:
        description: What it does.
        table: The bugs.
        prepare: Given those that are asked for and how many things may be done at a time, makes sure that
            their tests pass without a bug, as a failure would prove nothing otherwise; else the reason.
        outcome: None if a bug was caught as it should be, else what happened instead.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--quick", action="store_true", help="only those marked as quick")
    parser.add_argument("--verbose", action="store_true", help="also print what was caught")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--note", type=Path, help="a file of bugs that were caught on these sources: skip them, add to it"
    )
    arguments = parser.parse_args()
    names = [bug.name for bug in table]
    unknown = set(arguments.names) - set(names)
    if unknown or len(set(names)) < len(names):
        parser.error(f"no such bug: {', '.join(sorted(unknown))}" if unknown else "a name is used twice")
    chosen = [
        bug
        for bug in table
        if (not arguments.names or bug.name in arguments.names) and (bug.quick or not arguments.quick)
    ]
    if arguments.note and arguments.note.exists():
        caught = set(arguments.note.read_text().split())
        print(f"{sum(bug.name in caught for bug in chosen)} of {len(chosen)} were caught before")
        chosen = [bug for bug in chosen if bug.name not in caught]
    started = time.monotonic()
    if problem := prepare(chosen, arguments.jobs):
        print(problem)
        return 1

    survivors = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for bug, what in zip(chosen, pool.map(outcome, chosen), strict=True):
            if what is not None:
                survivors += 1
                print(f"SURVIVED {bug.name} ({bug.file}): {what}", flush=True)
                continue
            if arguments.verbose:
                print(f"caught {bug.name} ({bug.test})", flush=True)
            if arguments.note:
                with arguments.note.open("a") as file:
                    file.write(f"{bug.name}\n")
    seconds = time.monotonic() - started
    print(f"{len(chosen) - survivors} of {len(chosen)} planted bugs caught in {seconds:.0f} s")
    return 1 if survivors else 0
