"""Helpers of all commands, including those of benchmarks/: options, tables, the commit, errors."""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from . import files

ROOT = Path(__file__).resolve().parent.parent
# Results and the pages made of them are what a command writes, not what it ran.
_WRITTEN = (":!benchmarks/results", ":!models/results", ":!docs", ":!README.md")


def numbers(text: str) -> list[int]:
    """``0-3,7`` as a list; not more than a million at a time."""
    found: list[int] = []
    for part in text.split(","):
        first, separator, last = part.partition("-")
        try:
            wanted = range(int(first), int(last if separator else first) + 1)
            if len(wanted) > 10**6:
                raise ValueError
            found += wanted
        except (ValueError, OverflowError):  # The latter of the length of a range.
            raise argparse.ArgumentTypeError(
                f"expected numbers and ranges such as 0-3,7, got {text!r}"
            ) from None
    if not found:
        raise argparse.ArgumentTypeError(f"expected at least one number, got {text!r}")
    return sorted(set(found))


def positive(text: str) -> int:
    """A positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {text!r}")
    return int(text)


def device_named(text: str) -> torch.device:
    """The device that ``--device`` names: the CPU, or the accelerator that torch sees.

    Raises:
        ValueError: if there is no such device.
    """
    try:
        device = torch.device(text)
    except RuntimeError:
        raise ValueError(f"--device: expected cpu, cuda or cuda:<number>, got {text!r}") from None
    if device.type != "cpu":
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        if accelerator is None or accelerator.type != device.type:
            raise ValueError(f"--device {device.type}: this torch sees no {device.type.upper()} device")
        count = torch.accelerator.device_count()
        if device.index is not None and device.index >= count:
            raise ValueError(f"--device: expected a number below {count}, of which there are, got {text!r}")
    return device


def device_name(device: torch.device) -> str:
    """The card's name, for records."""
    return "cpu" if device.type == "cpu" else torch.get_device_module(device).get_device_name(device)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def commit() -> str | None:
    """The commit of the checkout, marked as dirty if files differ from it; None outside a checkout."""

    def git(*arguments: str) -> str:
        # Without locks: to ask must not write the index, which a kill or a full disk would leave locked.
        command = ("git", "--no-optional-locks", *arguments)
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *_WRITTEN)
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def fail(error: object, code: int = 1) -> int:
    """Prints an error and returns the exit code."""
    print(f"error: {files.sentence(error) if isinstance(error, BaseException) else error}", file=sys.stderr)
    return code


def attempt(command: Callable[[], int]) -> int:
    """Runs a command. Errors of the user or the disk are reported as one sentence, without a traceback."""
    try:
        return command()
    except (ValueError, OSError, FloatingPointError) as error:
        return fail(error)
