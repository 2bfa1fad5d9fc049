"""docs/contract.md says what the code does: its examples run, its error texts are the tested ones."""

import doctest
import re
from pathlib import Path

import graphs

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
