"""docs/: the site builds without a warning, its programs run, and its reference names everything public."""

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMES = [str(page.relative_to(ROOT / "docs")) for page in PAGES]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda p: p.stem
)
def test_programs_run(page):
    """Blocks with prompts show what they give, the others stand on their own."""
    pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")
    pytest.importorskip("matplotlib", reason="one program draws")
    torch.manual_seed(0)
    shown = 0
    for block in BLOCK.findall(page.read_text()):
        if block.startswith(">>>"):
            shown += block.count(">>>")
        else:
            exec(compile(block, str(page), "exec"), {"__name__": "page"})
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert failed == 0
    assert attempted == shown


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def public_names() -> dict[str, list[str]]:
    """What users may import, by module."""
    pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")
    import gpn_ops.distributed
    import gpn_ops.nn
    import gpn_ops.visualisation

    def defined(module):
        return [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
        ]

    return {
        "gpn_ops": [name for name in gpn_ops.__all__ if name not in ("__version__", "reference")],
        "gpn_ops.nn": gpn_ops.nn.__all__,
        "gpn_ops.distributed": defined(gpn_ops.distributed),
        "gpn_ops.visualisation": defined(gpn_ops.visualisation),
        # The others are the plain forms of operators.
        "gpn_ops.reference": [name for name in gpn_ops.reference.__all__ if name not in gpn_ops.__all__],
    }


def test_the_reference_has_everything_public():
    documented = set()
    for page in (ROOT / "docs" / "api").glob("*.md"):
        module = "gpn_ops"
        for directive, argument in re.findall(r"^\.\. (\w+):: ([\w.]+)", page.read_text(), re.MULTILINE):
            if directive == "currentmodule":
                module = argument
            elif directive in ("autofunction", "autoclass"):
                documented.add(argument if argument.startswith("gpn_ops.") else f"{module}.{argument}")
    expected = {f"{module}.{name}" for module, names in public_names().items() for name in names}
    assert documented == expected


def test_extras_that_are_named_exist():
    page = (ROOT / "docs" / "installation.md").read_text()
    extras = re.search(
        r"^\[project.optional-dependencies\]$(.*?)^\[", (ROOT / "pyproject.toml").read_text(), re.M | re.S
    )
    known = re.findall(r"^([\w-]+) = ", extras[1], re.MULTILINE)
    rows = re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]
    assert named
    assert set(named) <= set(known)


def test_every_example_is_shown():
    page = (ROOT / "docs" / "examples.md").read_text()
    for path in (ROOT / "examples").glob("*.py"):
        assert f"../examples/{path.name}" in page or f"`examples/{path.name}`" in page


def test_pages_name_targets_that_exist_and_no_package_that_does_not():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        text = page.read_text()
        assert not re.search(r"pip install ['\"]?gpn_ops", text), "gpn_ops is not on PyPI"
        for target in re.findall(r"^ {4}make ([a-z0-9.-]+)|`make ([a-z0-9.-]+)", text, re.MULTILINE):
            name = re.escape("".join(target))
            assert re.search(rf"^(?:[\w.-]+ )*{name}(?: [\w.-]+)*:", makefile, re.MULTILINE), target


def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("sphinx", "myst_parser", "furo", "sphinx-mathjax-offline"):
        pytest.importorskip(package, reason="`make docs` installs what the site needs")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-W",
            "--keep-going",
            "-q",
            "-b",
            "html",
            "docs",
            str(tmp_path / "site"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "site" / "index.html").read_text()
    for page in PAGES:
        name = str(page.relative_to(ROOT / "docs").with_suffix(".html"))
        assert f'href="{name}"' in start or name == "index.html"
