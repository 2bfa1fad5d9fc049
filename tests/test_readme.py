"""README.md: its programs run and say what they give."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

README = (Path(__file__).parent.parent / "README.md").read_text()
PICTURE = Path(__file__).parent.parent / "docs" / "_static" / "levels.svg"


def test_programs_run():
    pytest.importorskip("torch_geometric", reason="gpn_ops.nn needs torch_geometric")
    names = {}
    programs = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(programs) == 2
    layer, operators = programs
    exec(layer, names)
    assert names["x"].shape == (int(names["cluster"].max()) + 1, 16)
    exec(operators, names)
    assert torch.equal(names["cluster"], torch.tensor([0, 0, 1, 1]))
    assert torch.equal(names["coarse"].edge_index, torch.tensor([[0, 1], [1, 0]]))


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (Path(__file__).parent.parent / target).exists(), target


def test_every_make_target_that_is_named_exists():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    targets = re.findall(r"^ {4}make ([a-z0-9.-]+)", README, re.MULTILINE)
    assert targets == ["demo", "test"]
    for target in targets:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


def test_files_that_contributors_are_sent_to_exist():
    root = Path(__file__).parent.parent
    named = re.findall(
        r"`((?:csrc|gpn_ops|models|tests|docs)/[\w/.]+\.\w+)`", (root / "CONTRIBUTING.md").read_text()
    )
    assert len(named) > 20
    for path in named:
        assert (root / path).exists(), path


def test_the_picture_is_what_its_program_draws(tmp_path):
    """To the words: where matplotlib puts its lines depends on its version."""
    pytest.importorskip("matplotlib", reason="docs/picture.py draws with matplotlib")
    root = Path(__file__).parent.parent
    drawn = tmp_path / "levels.svg"
    subprocess.run([sys.executable, root / "docs" / "picture.py", drawn], check=True)
    words, shown = (re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text()) for path in (drawn, PICTURE))
    assert shown == words
    sizes = [int(word.split()[2]) for word in words]
    assert sizes[-1] == 1
    alt = re.search(r"!\[([^\]]*)\]\(docs/_static/levels.svg\)", README)[1]
    assert re.findall(r"\d+", alt) == list(map(str, sizes[:-1]))
