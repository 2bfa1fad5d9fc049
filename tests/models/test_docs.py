"""docs/models.md: its commands are understood, its program runs, its links lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")
pytest.importorskip("matplotlib", reason="the program draws")

from models import config, demo, draw, expressive, reconstruct, report, substructures, train

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "models.md").read_text()
PARSERS = {
    each.__name__: each.parser()
    for each in (demo, draw, expressive, reconstruct, report, substructures, train)
}
COMMANDS = re.findall(r"^ {4}(?:python|torchrun [-\w ]+) -m (models\.\w+)(.*)$", PAGE, re.MULTILINE)


def test_every_command_is_there():
    assert {name for name, _ in COMMANDS} == set(PARSERS)
    assert sum("models." in line for line in re.findall(r"^ {4}\S.*", PAGE, re.MULTILINE)) == len(COMMANDS)


@pytest.mark.parametrize(("name", "arguments"), COMMANDS)
def test_commands_are_understood(name, arguments):
    options = PARSERS[name].parse_args(shlex.split(arguments, comments=True))
    if name == "models.train" and not options.dataset.endswith(".yaml"):
        config.load(options.dataset, options.set)


def test_settings_that_are_named_exist():
    settings = [setting for setting in re.findall(r"--set (\w+=[\w.]+)", PAGE) if setting != "key=value"]
    assert len(settings) > 5
    config.load("PROTEINS", settings)


def test_program_runs():
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(program, names)
    assert names["figure"].get_suptitle() == "a path"


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
