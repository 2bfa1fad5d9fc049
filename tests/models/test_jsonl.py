"""Files of finished runs outlive a process that was stopped while writing."""

import json
import multiprocessing

import pytest

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")

from models import jsonl


def test_a_line_that_was_cut_short_is_skipped_and_spoils_no_other(tmp_path, capsys):
    path = tmp_path / "runs.jsonl"
    assert jsonl.read(path) == []
    jsonl.append(path, {"fold": 0})
    with path.open("a") as file:
        file.write('{"fold": 1, "te')
    jsonl.append(path, {"fold": 2})
    jsonl.append(path, {"fold": 3})
    assert jsonl.read(path) == [{"fold": 0}, {"fold": 2}, {"fold": 3}]
    assert "line 2: skipped" in capsys.readouterr().err


def test_a_record_without_a_needed_key_is_skipped(tmp_path, capsys):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"seed": 0}\n7\n{"seed": 1, "fold": 2}\n')
    assert jsonl.read(path, {"seed": int, "fold": int}) == [{"seed": 1, "fold": 2}]
    error = capsys.readouterr().err
    assert "line 1: skipped, no complete run (no fold)" in error
    assert "line 2" in error


def _append_many(path, number):
    for k in range(100):
        jsonl.append(path, {"number": number, "k": k, "text": "x" * 500})


def test_processes_append_whole_lines(tmp_path):
    path = tmp_path / "runs.jsonl"
    workers = [multiprocessing.Process(target=_append_many, args=(path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((record["number"], record["k"]) for record in found) == [
        (number, k) for number in range(3) for k in range(100)
    ]
