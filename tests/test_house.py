"""The house: what may import what."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("gpn_ops", "models", "benchmarks", "examples")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def dotted(path: Path) -> str:
    """The name of a module. Programs of benchmarks and examples are imported by their own names."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] in ("benchmarks", "examples") else parts)


COMMANDS = {dotted(path) for path in FILES if "__main__" in path.read_text()}


def imported(path: Path) -> set[str]:
    """The full names of all that a file imports, at whatever depth of the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = dotted(path).split(".")[: -node.level] if node.level > 0 else []
            module = ".".join([*package, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def module_of(name: str) -> str:
    """The module that an imported name is or comes from."""
    folder, _, _ = name.rpartition(".")
    at = ROOT / name.replace(".", "/")
    return name if at.is_dir() or at.with_suffix(".py").exists() or not folder else folder


@pytest.mark.parametrize(
    "path",
    # Examples are all programs, some of which go on from another.
    [path for path in FILES if path.parent.name != "examples"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_module_imports_a_command(path):
    """What commands share stands beside them."""
    assert {"parse", "gpu_model", "models.train", "gpn_ops.collect_env", "graph_unet"} < COMMANDS
    found = imported(path)
    assert not (found | {module_of(name) for name in found}) & COMMANDS


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_underscored_module_is_imported_across_packages(path):
    for name in imported(path):
        module = module_of(name).split(".")
        private = [depth for depth, part in enumerate(module) if part.startswith("_") and part[1] != "_"]
        if private and module[0] in PACKAGES:
            owner = ".".join(module[: private[0]])
            assert dotted(path).startswith(owner + ".") or dotted(path) == owner, name


def test_nothing_that_is_ignored_is_tracked():
    """Such as an environment: where it is tracked as a link, git replaces the folders of all who merge."""
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout == ""
