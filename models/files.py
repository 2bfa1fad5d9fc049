"""Files that a kill, a full disk or a flipped bit cannot silently damage.

A file is first saved under a temporary name beside its own, read back, and renamed. So its own name always
refers to the complete old or the complete new file. Loading checks the file first: torch saves zip archives,
and does not verify their checksums itself.
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
    """An error as one line; for those of the operating system, the path and the reason."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Adds the name of the file to errors of reading and writing, which lack it."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def warn(where: object, text: str) -> None:
    print(f"warning: {where}: {text}", file=sys.stderr)


def lock(file: IO[Any], wait: bool = True) -> bool:
    """Locks a file until it is closed; False if another process holds the lock. On a file system without
    locks, it takes none and work goes on."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        warn(file.name, f"not locked ({error.strerror})")
    return True


def append(file: IO[bytes], data: bytes, sync: bool = False) -> None:
    """Appends to an unbuffered file all or nothing. With ``sync``, the data is on disk on return."""
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
    """The path to which :func:`save` writes first."""
    return path.with_name(f"{path.name}.tmp")


def save(state: Any, path: Path) -> None:
    """Saves as ``torch.save`` does, all or nothing. One process at a time may save to a path.

    Raises:
        OSError: with the path; the old file is untouched, and no temporary file is left.
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
    """Loads what :func:`save` saved.

    Raises:
        ValueError: for an incomplete file, or one that is not torch's; the message is the reason alone.
        OSError: for a file that cannot be read.
    """
    with named(path):
        data = path.read_bytes()
    check_archive(io.BytesIO(data))
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # Whatever the unpickler stumbles over.
        raise ValueError(f"{type(error).__name__}: {_first_line(error)}") from error


def check_archive(file: IO[bytes] | Path) -> None:
    """Verifies the checksums in a file of torch.

    Raises:
        ValueError: if they are wrong, or if it is not such a file.
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
    """Renames a file that is of no use, and prints that it did."""
    kept = path.with_name(f"{path.name}.unusable")
    if kept.is_dir():
        shutil.rmtree(kept)  # Of an earlier time: a folder does not make way for another.
    os.replace(path, kept)
    warn(path, f"cannot be used ({reason}); it is kept as {kept.name}, and {then}")
