"""docs/contract.md says what the code does: its examples run, its error texts are the tested ones."""

import doctest
import inspect
import re
from pathlib import Path

import graphs

import gpn_ops

CONTRACT = Path(__file__).parent.parent / "docs" / "contract.md"


def test_examples_run():
    failed, attempted = doctest.testfile(str(CONTRACT), module_relative=False)
    assert attempted > 0
    assert failed == 0


def test_error_texts_are_those_of_the_bad_inputs():
    def expectation(text):
        return re.sub(r"\d+", "N", text.split(", got ")[0])

    documented = re.findall(r"^\|.*\| `(\w+: expected .*)` \|$", CONTRACT.read_text(), re.MULTILINE)
    tested = {expectation(bad.message) for bad in graphs.BAD_INPUTS}
    two_devices = "scores: expected on the same device as edge_index (cpu)"
    assert {expectation(text) for text in documented} == {*tested, two_devices}


def sections() -> dict[str, str]:
    """The text of every section of the operators, by the name in its heading."""
    operators = re.search(r"^## Operators$(.*?)^## ", CONTRACT.read_text(), re.MULTILINE | re.DOTALL)[1]
    _, *parts = re.split(r"^### `(\w+)`$", operators, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_public_operator_has_its_section():
    functions = [name for name in gpn_ops.__all__ if inspect.isfunction(getattr(gpn_ops, name))]
    assert sorted(sections()) == sorted(functions)


def test_sections_say_everything_and_show_it():
    for name, text in sections().items():
        labels = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
        assert [label for label in labels if label != "Gradient"] == [
            "Inputs",
            "Result",
            "Determinism",
            "Errors",
            "Cost",
        ], name
        assert f">>> gpn_ops.{name}(" in text or f"= gpn_ops.{name}(" in text
        documented = re.search(rf"^`{name}\((.*?)\)`", text, re.MULTILINE | re.DOTALL)[1]
        signature = inspect.signature(getattr(gpn_ops, name))
        assert [part.split("=")[0] for part in documented.split(", ")] == list(signature.parameters)
