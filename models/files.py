"""Files that a kill, a full disk or a flipped bit cannot turn into silently wrong ones.

What is saved here is written beside its place, read back, and renamed: under its own name there is always the
whole of the old or the whole of the new. What is loaded is checked first: a file of torch is a zip archive,
whose checksums torch itself does not look at.
"""

import contextlib
import errno
import fcntl
import io
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch


def sentence(error: BaseException) -> str:
    """An error as one line; of the operating system's, the path and what is wrong with it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Errors of reading and writing do not say in which file: here they do."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def warn(where: object, text: str) -> None:
    print(f"warning: {where}: {text}", file=sys.stderr)


def lock(file: IO[Any], wait: bool = True) -> bool:
    """Locks a file until it is closed; False if another process has it. Where the file system has no locks,
    there is none, and what is done goes on."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        warn(file.name, f"not locked ({error.strerror})")
    return True


def append(file: IO[bytes], data: bytes, sync: bool = False) -> None:
    """Adds to an unbuffered file all or nothing, on disk when this returns if ``sync``."""
    descriptor = file.fileno()
    size = os.fstat(descriptor).st_size
    try:
        _write(descriptor, data)
        if sync:
            os.fsync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, size)
        raise


def _write(descriptor: int, data: bytes) -> None:
    while data:  # A disk that fills up takes a part without complaint.
        data = data[os.write(descriptor, data) :]


# ------------------------------------------------------------------------------------------------------------
# Files of torch
# ------------------------------------------------------------------------------------------------------------


def temporary(path: Path) -> Path:
    """Where :func:`save` writes first."""
    return path.with_name(f"{path.name}.tmp")


def save(state: Any, path: Path) -> None:
    """Saves as ``torch.save`` does, all or nothing. One process at a time may save to a path.

    Raises:
        OSError: with the path; what was there before is untouched, and nothing is left beside it.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = temporary(path)
    with named(path):
        try:
            with beside.open("wb", buffering=0) as file:
                _write(file.fileno(), data)
                os.fsync(file.fileno())
            if beside.read_bytes() != data:
                raise OSError(errno.EIO, "reads back as something else than was written", str(path))
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # The new name, too, has to be on disk.
        finally:
            os.close(folder)


def load(path: Path) -> Any:
    """What :func:`save` saved.

    Raises:
        ValueError: for a file that is not whole, or none of torch's, with the reason alone.
        OSError: for one that cannot be read at all.
    """
    with named(path):
        data = path.read_bytes()
    check_archive(io.BytesIO(data))
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # Whatever the unpickler stumbles over.
        raise ValueError(f"{type(error).__name__}: {_first_line(error)}") from error


def check_archive(file: IO[bytes] | Path) -> None:
    """Compares what a file of torch holds with the checksums in it.

    Raises:
        ValueError: if they differ, or if it is no such file.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
    except OSError:
        raise
    except Exception as error:  # A damaged directory of the archive shows in many ways.
        raise ValueError(f"{type(error).__name__}: {_first_line(error)}") from error
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} in it does not fit")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def set_aside(path: Path, reason: str, then: str) -> None:
    """Renames what is of no use, so that it is in nobody's way, and says so."""
    kept = path.with_name(f"{path.name}.unusable")
    if kept.is_dir():
        shutil.rmtree(kept)  # Of an earlier time: a folder does not make way for another.
    os.replace(path, kept)
    warn(path, f"cannot be used ({reason}); it is kept as {kept.name}, and {then}")
