"""Files of JSON lines: one line per finished run, or per epoch of a run."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import files

NUMBER = (int, float)
Types = type | tuple[type, ...]


def read(
    path: Path, needed: Mapping[str, Types] | None = None, warn: bool = True, what: str = "run"
) -> list[dict[str, Any]]:
    """The records of a file; none if there is no file. Invalid lines are skipped, with a warning unless
    ``warn`` is off: lines cut short when their process was stopped, or with a missing key or a value of the
    wrong type."""
    with files.named(path):
        lines = path.read_bytes().splitlines() if path.exists() else []
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(parsed(line, needed or {}))
        except ValueError as error:
            if warn:
                files.warn(f"{path}, line {number}", f"skipped, no complete {what} ({error})")
    return records


def parsed(line: bytes, needed: Mapping[str, Types]) -> dict[str, Any]:
    """The record of a line.

    Raises:
        ValueError: if it is not a record, or if a required key is missing or its value has the wrong type.
    """
    try:
        record = json.loads(line.decode(errors="replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected {{...}}, got {type(record).__name__}")
    missing = [key for key in needed if key not in record]
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    for key, types in needed.items():
        types = types if isinstance(types, tuple) else (types,)
        if type(record[key]) not in types:
            names = " or ".join(each.__name__ for each in types)
            raise ValueError(f"{key}: expected {names}, got {type(record[key]).__name__}")
    return record


def append(path: Path, record: dict[str, Any]) -> None:
    """Appends a record, on a line of its own even if the last one was cut short. On return it is on disk; if
    this fails, the file is unchanged. Processes that append to the same file take turns."""
    with files.named(path), path.open("a+b", buffering=0) as file:
        files.lock(file)
        size = file.seek(0, os.SEEK_END)
        cut = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        files.append(file, (b"\n" if cut else b"") + encoded(record), sync=True)


def encoded(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def missing(numbers: Iterable[int], last: int) -> str:
    """The missing numbers from 1 to ``last``, as in ``2-4, 7``; empty if there are none."""
    absent = sorted(set(range(1, last + 1)) - set(numbers))
    runs: list[list[int]] = []
    for number in absent:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{final}" if final > first else str(first) for first, final in runs)
