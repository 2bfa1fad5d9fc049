"""The house: what may import what."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "benchmarks").rglob("*.py"))
COMMANDS = {path.stem for path in FILES if "__main__" in path.read_text()}


def imported(path: Path) -> set[str]:
    """Modules that a file imports by their own names, at whatever depth of the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_benchmark_imports_a_command(path):
    """What commands share stands beside them, or in pages/."""
    assert {"parse", "memory", "report", "emulated", "gpu_model"} < COMMANDS
    assert not imported(path) & COMMANDS
