"""A folder is one run's at a time, in this process or another, and a process that is gone holds nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core.errors import BadInput
from shoal.run.lock import Lock

HOLD = """
import pathlib, sys
from shoal.run.lock import Lock
lock = Lock(pathlib.Path(sys.argv[1]), print)
print("has it", flush=True)
sys.stdin.read()
"""


def test_one_at_a_time(tmp_path: Path) -> None:
    notes: list[str] = []
    for folder in (tmp_path / "a", tmp_path / "b"):  # two runs of one process
        lock = Lock(folder, notes.append)
        with pytest.raises(
            BadInput, match=rf"run_dir: {folder} is in use: process {os.getpid()} on \S+ is at work on it"
        ):
            Lock(folder, notes.append)
        (folder / "file").touch()
        lock.release()
        Lock(folder, notes.append).release()
        assert [p.name for p in folder.iterdir()] == ["file"]
    assert notes == []


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "has it\n"
        with pytest.raises(BadInput, match=f"process {process.pid} on"):
            Lock(tmp_path, print)
        process.kill()
    Lock(tmp_path, print).release()


def test_what_was_made_in_vain_is_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    Lock(tmp_path / "mine/a/b", print).release()
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == ["mine"]
    with pytest.raises(FileExistsError):
        Lock(tmp_path / "mine", print, exist_ok=False)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        Lock(tmp_path / "file", print)


def test_a_folder_that_another_process_makes_first_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def be_slow(path: Path, *args: object, **options: object) -> None:
        make(path)
        make(path)

    monkeypatch.setattr(Path, "mkdir", be_slow)
    with pytest.raises(FileExistsError):
        Lock(tmp_path / "run", print, exist_ok=False)
    assert (tmp_path / "run").is_dir()


def test_a_lock_that_its_holder_removes_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened while another had it, locked after that one has removed it: such a lock keeps nobody out."""
    first, flock = Lock(tmp_path, print), fcntl.flock

    def late(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        first.release()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    second = Lock(tmp_path, print)
    with pytest.raises(BadInput):
        Lock(tmp_path, print)
    second.release()


def test_a_file_system_without_locks_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    notes: list[str] = []
    Lock(tmp_path, notes.append).release()
    told = f"{tmp_path}: no lock can be had here (No locks available); let no second process train in it"
    assert notes == [told]
