"""The wheel in dist/, as `make wheel` leaves it, what the extras promise, and what workflows call.

Other tests: test_build.py.
"""

import ast
import email
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
WHEELS = sorted((ROOT / "dist").glob("*.whl"))

needs_wheel = pytest.mark.skipif(not WHEELS, reason="there is no wheel in dist/ (`make wheel` makes one)")


# ----------------------------------------------------------------------------------------------- the wheel


@pytest.fixture(scope="module")
def wheel_metadata():
    with zipfile.ZipFile(WHEELS[0]) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@needs_wheel
def test_one_wheel_serves_every_python_and_most_systems():
    assert [wheel.name for wheel in WHEELS] == [WHEELS[0].name]
    assert re.fullmatch(r"gpn_ops-[\d.]+-py3-none-manylinux_2_28_(x86_64|aarch64)\.whl", WHEELS[0].name)


@needs_wheel
def test_wheel_holds_the_package_and_nothing_else(wheel_metadata):
    with zipfile.ZipFile(WHEELS[0]) as archive:
        names = set(archive.namelist())
    info = f"gpn_ops-{wheel_metadata['Version']}.dist-info"
    assert {name.split("/")[0] for name in names} == {"gpn_ops", info}
    assert {"gpn_ops/libgpn_ops.so", "gpn_ops/_build_info.json", "gpn_ops/py.typed"} <= names
    assert f"{info}/licenses/LICENSE" in names


@needs_wheel
def test_links_of_the_long_description_are_absolute(wheel_metadata):
    text = wheel_metadata.get_payload()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 5, "the links were not found"
    assert [link for link in links if not link.startswith("https://")] == []


@needs_wheel
def test_metadata(wheel_metadata):
    names = {url.split(",")[0] for url in wheel_metadata.get_all("Project-URL")}
    assert {"Repository", "Documentation", "Changelog", "Issues"} <= names
    classifiers = wheel_metadata.get_all("Classifier")
    oldest = int(wheel_metadata["Requires-Python"].removeprefix(">=3."))
    versions = [int(v) for c in classifiers for v in re.findall(r"Python :: 3\.(\d+)$", c)]
    assert versions == list(range(oldest, versions[-1] + 1))


def test_no_page_installs_from_pypi_yet():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    assert len(pages) > 5, "the pages were not found"
    found = {
        page.name for page in pages if re.search(r"pip install (-\S+ )*['\"]?gpn[_-]ops", page.read_text())
    }
    assert found == set(), "remove this test when the package is on PyPI"


# ------------------------------------------------------------------------------------------------ the extras


def modules_of(folder: str) -> set[str]:
    """What the files of a folder import that is neither Python's nor their own."""
    files = list((ROOT / folder).rglob("*.py"))
    own = {file.stem for file in files} | {file.parent.name for file in files} | {"gpn_ops", "models"}
    found = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.split(".")[0])
    return found - own - set(sys.stdlib_module_names)


def distributions_of(extra: str) -> set[str]:
    """What installing gpn_ops with an extra installs by name."""
    found = set()
    for line in metadata.requires("gpn_ops"):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            found.add(requirement.name.lower().replace("-", "_"))
            for other in requirement.extras:
                found |= distributions_of(other)
    return found


@pytest.mark.parametrize(("folder", "extra"), [("models", "models"), ("benchmarks", "bench")])
def test_an_extra_installs_all_that_a_folder_imports(folder, extra):
    known = {"sklearn": "scikit_learn", "yaml": "pyyaml"}
    # torch-geometric-pool is a peer that benchmarks measure where it is installed.
    wanted = {known.get(module, module) for module in modules_of(folder)} - {"tgp"}
    assert "torch_geometric" in wanted, "the imports were not found"
    assert wanted - distributions_of(extra) == set()


FOLDERS = [str(ROOT), str(ROOT / "benchmarks")]


@pytest.mark.parametrize(
    ("module", "program", "said"),
    [
        ("torch_geometric", "import gpn_ops.nn", "or gpn_ops with its extra 'pyg'"),
        (
            "matplotlib.figure",
            "import torch, gpn_ops.visualisation as v\n"
            "v.draw_levels(torch.tensor([[0], [1]]), [torch.tensor([0, 0])], torch.rand(2, 2))",
            "or gpn_ops with its extra 'draw'",
        ),
        ("yaml", "import models.train", "pip install --no-build-isolation -e '.[models]'"),
        ("scipy", "import benchmarks.parse", "pip install --no-build-isolation -e '.[bench]'"),
    ],
)
def test_an_error_names_the_extra(module, program, said):
    # Folders of the checkout come last: the gpn_ops under test may be an installed one.
    program = f"import sys\nsys.path += {FOLDERS}\nsys.modules[{module!r}] = None\n{program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT / "tests")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("ImportError: "), done.stderr
    assert said in done.stderr


# --------------------------------------------------------------------------------------------- the workflows

WORKFLOWS = {file.name: file.read_text() for file in (ROOT / ".github" / "workflows").glob("*.yml")}
MAKEFILE = (ROOT / "Makefile").read_text()


def test_workflows_call_targets_that_exist():
    words = [word for text in WORKFLOWS.values() for word in re.findall(r"run: make ([a-z0-9. -]+)", text)]
    targets = {target for word in words for target in word.split()}
    assert {"lint", "test", "test-wheel", "test-all"} <= targets
    rules = re.findall(r"^([a-z0-9. -]+):", MAKEFILE, re.MULTILINE)
    assert targets - {target for rule in rules for target in rule.split()} == set()


def test_workflows_test_the_oldest_and_the_newest_torch():
    tested = re.findall(r'torch: "([\d.]+)"', WORKFLOWS["ci.yml"])
    oldest = next(
        requirement.specifier
        for requirement in map(Requirement, metadata.requires("gpn_ops"))
        if requirement.name == "torch"
    )
    newest = re.search(r"^TORCH_LATEST \?= (.*)$", MAKEFILE, re.MULTILINE)
    assert (f">={tested[0].removesuffix('.0')}", tested[-1]) == (str(oldest), f"{newest[1]}.0")


def test_workflows_say_that_they_have_never_run():
    assert len(WORKFLOWS) > 2, "the workflows were not found"
    assert [name for name, text in WORKFLOWS.items() if not text.startswith("# Never run yet")] == []
