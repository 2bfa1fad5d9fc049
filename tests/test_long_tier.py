"""The long tier's command (tests/long_tier.py), with steps that take no time."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAM = """
import long_tier, sys
long_tier.ROWS = ({rows[0]}, {rows[1]})
long_tier.STEPS = {{**long_tier.ROWS[0], **long_tier.ROWS[1]}}
sys.exit(long_tier.main())
"""
# Each step counts its runs in a file that git ignores.
COUNT = "echo x >> build/{name}; {then}"


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "tests").mkdir()
    shutil.copy(HERE / "long_tier.py", tmp_path / "tests")
    (tmp_path / ".gitignore").write_text("build/\n__pycache__/\n")
    (tmp_path / "source").write_text("1")
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    return tmp_path


def start(checkout, *arguments, **steps):
    steps = {name: COUNT.format(name=name, then=then) for name, then in steps.items()}
    first = dict(list(steps.items())[:1])
    rows = (first, {name: command for name, command in steps.items() if name not in first})
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(rows=rows), *arguments],
        cwd=checkout / "tests",
        stdout=subprocess.PIPE,
        text=True,
    )


def run(checkout, *arguments, **steps):
    process = start(checkout, *arguments, **steps)
    return process.communicate(timeout=60)[0], process.returncode


def runs(checkout, name):
    file = checkout / "build" / name
    return len(file.read_text().split()) if file.exists() else 0


def test_what_passed_is_not_run_again_until_a_source_changes(checkout):
    steps = {"a": "true", "b": "echo why; exit 3", "c": "true"}
    output, status = run(checkout, **steps)
    assert status == 1
    assert "why" in output
    summary = output.split("result\n")[1]
    assert [line.split()[0] for line in summary.splitlines()] == ["a", "b", "c"]
    assert summary.count("passed") == 2
    assert summary.count("FAILED") == 1
    steps["b"] = "true"
    assert run(checkout, **steps)[1] == 0
    assert [runs(checkout, name) for name in "abc"] == [1, 2, 1]
    assert run(checkout, "c", **steps)[1] == 0
    assert [runs(checkout, name) for name in "abc"] == [1, 2, 2]

    (checkout / "source").write_text("2")
    output, status = run(checkout, "--list", **steps)
    assert status == 1
    assert output.count("on other sources") == 3
    assert run(checkout, **steps)[1] == 0
    (checkout / "new").write_text("3")
    assert run(checkout, **steps)[1] == 0
    assert [runs(checkout, name) for name in "abc"] == [3, 4, 4]


def test_an_interruption_ends_its_steps_and_keeps_the_others(checkout):
    process = start(checkout, a="sleep 600", b="true")
    record = checkout / "build" / "long-tier" / "record.json"
    until = time.monotonic() + 30
    while not (record.exists() and runs(checkout, "a")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 1
    assert list(json.loads(record.read_text())) == ["b"]
    assert run(checkout, a="true", b="true")[1] == 0
    assert [runs(checkout, name) for name in "ab"] == [2, 1]


def test_a_step_whose_sources_changed_under_it_has_not_passed(checkout):
    output, status = run(checkout, a="echo 5 > source")
    assert status == 1
    assert "changed meanwhile" in output


def test_unknown_steps_are_named(checkout):
    process = subprocess.run(
        [sys.executable, "long_tier.py", "cuda", "nothing"], cwd=checkout / "tests", stderr=subprocess.PIPE
    )
    assert process.returncode == 2
    assert b"no such step: nothing" in process.stderr
