"""Files: whole or not there at all, and a damaged one is never taken for good. The full disk is a real one
where a file system can be mounted, else a limit on the size of files."""

import errno
import os
import re
import subprocess
import warnings

import pytest
import torch

pytest.importorskip("torch_geometric", reason="models needs torch_geometric")

from synthetic import small_disk, small_files

from models import common, files

STATE = {"digest": "abc", "best": {"epoch": 1, "val": 0.25}, "model": {"a": torch.arange(12.0), "b": None}}


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(left[key], right[key]) for key in left)
        )
    return left == right


def test_what_is_saved_is_loaded(tmp_path):
    path = tmp_path / "new" / "state.pt"
    files.save(STATE, path)
    assert same(files.load(path), STATE)
    assert same(torch.load(path, weights_only=True), STATE)
    assert list(path.parent.iterdir()) == [path]


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    """Every byte of a file, with one of its bits flipped: an error, or what was saved."""
    path = tmp_path / "state.pt"
    files.save(STATE, path)
    whole = path.read_bytes()
    reasons = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in range(len(whole)):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(damaged)
            try:
                state = files.load(path)
            except ValueError as error:
                reasons.append(str(error))
            else:
                assert same(state, STATE), place
    assert len(reasons) > len(whole) // 4
    assert not any("\n" in reason for reason in reasons)


@pytest.mark.parametrize("content", [b"", b"\0" * 4000, b"PK\3\4", bytes(range(256)) * 20])
def test_other_files_are_errors(tmp_path, content):
    path = tmp_path / "state.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="BadZipFile"):
        files.load(path)


def test_every_cut_is_an_error(tmp_path):
    path = tmp_path / "state.pt"
    files.save(STATE, path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="BadZipFile"):
            files.load(path)


def test_code_in_a_file_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    path = tmp_path / "state.pt"
    torch.save(Evil(), path)
    with pytest.raises(ValueError, match="UnpicklingError"):
        files.load(path)
    assert not (tmp_path / "made").exists()


def check_failed_save(path, number, reason):
    """The old content is there, and nothing else."""
    with pytest.raises(OSError, match=reason) as caught:
        files.save({"a": torch.zeros(100_000)}, path)
    assert caught.value.errno == number
    assert caught.value.filename == str(path)
    assert same(files.load(path), STATE)
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_leaves_what_was_there(tmp_path):
    with small_disk(tmp_path / "disk", 65536) as disk:
        path = disk / "state.pt"
        files.save(STATE, path)
        check_failed_save(path, errno.ENOSPC, "No space left")


def test_a_file_too_large_leaves_what_was_there(tmp_path):
    path = tmp_path / "state.pt"
    files.save(STATE, path)
    with small_files(65536):
        check_failed_save(path, errno.EFBIG, "too large")


def test_what_reads_back_as_something_else_is_not_taken(tmp_path, monkeypatch):
    path = tmp_path / "state.pt"
    files.save(STATE, path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(len(data))))
    check_failed_save(path, errno.EIO, "something else")


def test_appending_is_all_or_nothing(tmp_path):
    path = tmp_path / "lines"
    with path.open("ab", buffering=0) as file:
        files.append(file, b"first\n")
        with small_files(10), pytest.raises(OSError, match="File too large"):
            files.append(file, b"second, which is longer\n")
    assert path.read_bytes() == b"first\n"


def test_set_aside(tmp_path, capsys):
    file, folder = tmp_path / "state.pt", tmp_path / "processed"
    for content in ("first", "second"):
        file.write_text(content)
        folder.mkdir()
        (folder / "data").write_text(content)
        for path in (file, folder):
            files.set_aside(path, "the reason", "it is made anew")
            assert not path.exists()
    assert (tmp_path / "state.pt.unusable").read_text() == "second"
    assert (tmp_path / "processed.unusable" / "data").read_text() == "second"
    assert capsys.readouterr().err.splitlines()[0] == (
        f"warning: {file}: cannot be used (the reason); it is kept as state.pt.unusable, and it is made anew"
    )


def test_errors_of_the_system_are_sentences(tmp_path, capsys):
    def fails():
        raise OSError(errno.ENOSPC, "No space left on device")

    def fails_in_a_file():
        with files.named(tmp_path / "x"):
            fails()

    assert common.attempt(lambda: 0) == 0
    assert common.attempt((tmp_path / "none" / "x").mkdir) == 1
    assert common.attempt(fails_in_a_file) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"error: {tmp_path / 'none' / 'x'}: No such file or directory",
        f"error: {tmp_path / 'x'}: No space left on device",
    ]


def test_the_commit_takes_no_lock(tmp_path, monkeypatch):
    """Also where the index is out of date, which `git status` else would write anew."""

    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=x", "-c", "user.email=x", *arguments], cwd=tmp_path, check=True
        )

    monkeypatch.setattr(common, "ROOT", tmp_path)
    git("init", "-q")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-qm", "first")
    first = common.commit()
    assert re.fullmatch("[0-9a-f]{12}", first)
    os.utime(tmp_path / "file", (1, 1))
    index = tmp_path / ".git" / "index"
    before = index.read_bytes()
    assert common.commit() == first
    assert index.read_bytes() == before
    (tmp_path / "file").write_text("two")
    assert common.commit() == f"{first}-dirty"
