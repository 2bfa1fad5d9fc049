"""The lines that only a GPU's user reaches: none of them may run for the first time on a GPU.

    pytest --device standin --record-lines build/lines.json ...     # may be repeated, also on the CPU
    python tests/accelerator_lines.py build/lines.json

The first notes which of these lines have run, on the stand-in (tests/standin) or with torch.cuda patched; the
second fails on one that has not. A line counts if it asks torch for CUDA or the accelerator, or if it stands
in a branch for devices other than the CPU.
"""

import ast
import json
import re
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gpn_ops", "models", "benchmarks", "examples")
ASKS = re.compile(r"\btorch\.(cuda|accelerator)\.|\bget_device_module\(")
# Conditions that hold on the CPU, and those that do not.
ON_CPU = re.compile(r"""(device|\.type|accelerator)\b.*(==|\bis\b) ["']cpu["']|\.is_cpu\b""")
ELSEWHERE = re.compile(r"""(device|\.type|accelerator)\b.*!= ["']cpu["']|==\s*["']cuda["']|\.is_cuda\b""")


def _of_statements(body: list[ast.stmt]) -> set[int]:
    return {
        node.lineno
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.stmt)
        and not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Global | ast.Nonlocal)
    }


def lines_of(path: Path) -> set[int]:
    """The numbers of the lines in question."""
    source = path.read_text()
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If):
            condition = ast.get_source_segment(source, node.test) or ""
            if ELSEWHERE.search(condition):
                found |= _of_statements(node.body)
            elif ON_CPU.search(condition):
                found |= _of_statements(node.orelse)
        elif isinstance(node, ast.stmt) and not hasattr(node, "body"):
            text = ast.get_source_segment(source, node) or ""
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if ASKS.search(text) and not is_text:
                found.add(node.lineno)
    return found


def all_lines() -> dict[str, set[int]]:
    """By file."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if lines := lines_of(path):
                found[str(path.relative_to(ROOT))] = lines
    return found


class Recorder:
    """Notes which of the lines run in this process."""

    def __init__(self) -> None:
        self.wanted = {str(ROOT / name): lines for name, lines in all_lines().items()}
        self.ran: dict[str, set[int]] = {}
        self.codes: dict[CodeType, bool] = {}

    def start(self) -> None:
        sys.settrace(self.enter)
        threading.settrace(self.enter)

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in self.codes:
            wanted = self.wanted.get(code.co_filename, set())
            self.codes[code] = any(line in wanted for _, _, line in code.co_lines())
        return self.line if self.codes[code] else None

    def line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and frame.f_lineno in self.wanted[frame.f_code.co_filename]:
            self.ran.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return self.line

    def save(self, path: Path) -> None:
        """Adds what has run to what ran before, as long as the files are the same."""
        sys.settrace(None)
        threading.settrace(None)
        content = json.loads(path.read_text()) if path.exists() else {}
        for name, lines in self.ran.items():
            key = str(Path(name).relative_to(ROOT))
            text = Path(name).read_text().splitlines()
            content[key] = sorted({*content.get(key, []), *(text[line - 1].strip() for line in lines)})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n")


def missing(recorded: dict[str, list[str]]) -> list[str]:
    """What has not run: lines with their place."""
    found = []
    for name, lines in all_lines().items():
        text = (ROOT / name).read_text().splitlines()
        for line in sorted(lines):
            stripped = text[line - 1].strip()
            if stripped not in recorded.get(name, []):
                found.append(f"{name}:{line}: {stripped}")
    return found


def main() -> None:
    lines = missing(json.loads(Path(sys.argv[1]).read_text()))
    count = sum(len(lines) for lines in all_lines().values())
    if lines:
        sys.exit("\n".join(["lines that a GPU's user would be the first to run:", *lines]))
    print(f"all of the {count} lines that only an accelerator reaches have run")


if __name__ == "__main__":
    main()
