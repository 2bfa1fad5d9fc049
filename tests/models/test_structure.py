"""How the modules hang together."""

import ast
from pathlib import Path

import pytest

MODELS = Path(__file__).parent.parent.parent / "models"


def imported(path: Path) -> set[str]:
    """The modules of this package that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {node.module} if node.module else {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.py")), ids=lambda path: path.stem)
def test_no_module_imports_a_command(path):
    """What commands share stands beside them."""
    commands = {other.stem for other in MODELS.glob("*.py") if "__main__" in other.read_text()}
    assert commands == {"train", "report", "draw", "reconstruct", "demo", "expressive", "substructures"}
    assert not imported(path) & commands
