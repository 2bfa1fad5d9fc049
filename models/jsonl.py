"""Files of JSON lines, a line for every finished run."""

import fcntl
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any


def lock(file: IO[Any], wait: bool = True) -> bool:
    """Locks a file until it is closed; False if another process has it. Where the file system has no locks,
    there is none, and what is done goes on."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        print(f"warning: {file.name}: not locked ({error.strerror})", file=sys.stderr)
    return True


def read(path: Path, needed: Iterable[str] = (), warn: bool = True) -> list[dict[str, Any]]:
    """The records of a file, none if there is no file. What is none, such as a line that was cut short when
    its process was stopped, or lacks a key, is skipped, with a warning unless ``warn`` is off."""
    records = []
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            missing = [key for key in needed if key not in record]
            if missing:
                raise ValueError(f"no {', '.join(missing)}")
        except (ValueError, TypeError) as error:
            if warn:
                print(f"warning: {path}, line {number}: skipped, no complete run ({error})", file=sys.stderr)
            continue
        records.append(record)
    return records


def append(path: Path, record: dict[str, Any]) -> None:
    """Adds a record, on a line of its own even if the last one was cut short. Processes that append to the
    same file take turns."""
    with path.open("a+b") as file:
        lock(file)
        size = file.seek(0, os.SEEK_END)
        cut = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        file.write((b"\n" if cut else b"") + json.dumps(record).encode() + b"\n")
