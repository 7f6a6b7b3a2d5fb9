"""A process that was stopped in the middle of anything, and replaced, and goes on: it changes nothing any more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.core.atomic import Staging, write_file
from shoal.core.candidates import Candidate
from shoal.core.errors import BadInput
from shoal.core.spec import Discrete, Spec
from shoal.distributed.directory import Workspace
from shoal.experiment.experiment import Experiment
from shoal.run.rundir import RunDirectory

SPEC = Spec((3,), "float32", Discrete(2))
CALLS = [(Path, "rename"), (Path, "replace"), (Path, "mkdir"), (Path, "unlink"), (os, "fsync"), (shutil, "rmtree")]


class Life:
    """A worker that writes all that a worker writes, with numbers of its own in it."""

    def __init__(self, path: Path, number: int):
        self.number = number
        self.space = Workspace(path, 2, lambda: None, lambda message: None)
        self.space.join("a")
        self.files = RunDirectory(path / "workers" / "a", 2, self.space.staging)
        self.files.path.mkdir(exist_ok=True)
        self.files.reopen(Experiment(seed=number), {}, 3, Candidate(), SPEC)

    def go_on(self, generation: int) -> None:
        row, state = {"generation": generation, "number": self.number}, np.full(50, self.number, np.uint8)
        self.files.lineage.write([row])
        self.files.metrics.write([row])
        best = Candidate({"x": state}, 1, generation, float(self.number), {})
        self.files.save(generation, {"run": {"x": state}}, {"seconds": self.number}, 1, best, SPEC)
        self.space.publish(generation, ["uid"], np.array([[1.0]]), [state])
        self.files.write("result.json", str(self.number))


def seen(path: Path) -> dict[str, bytes]:
    """All that others may read."""
    files = (p for p in path.rglob("*") if p.is_file() and ".work/" not in str(p) and p.parent.name != "leases")
    return {str(p.relative_to(path)): p.read_bytes() for p in files}


def take_over(path: Path) -> None:
    """What another process does that finds the lease void: it goes on behind the third generation."""
    (path / "leases" / "a").unlink()
    life = Life(path, 2)
    for generation in (3, 4):
        life.go_on(generation)
    life.files.close()
    life.space.leave()


def test_stopped_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = 0
    for moment in range(1000):
        path, after = tmp_path / str(moment), {}
        life = Life(path, 1)
        for generation in (0, 1, 2):
            life.go_on(generation)
        with monkeypatch.context() as patch:
            calls = iter(range(10**6))

            def stopped(real: Callable[..., Any]) -> Callable[..., Any]:
                def call(*arguments: Any, **options: Any) -> Any:
                    if next(calls) == moment:  # noqa: B023
                        take_over(path)  # noqa: B023
                        after.update(seen(path))  # noqa: B023
                    return real(*arguments, **options)

                return call

            for owner, name in CALLS:
                patch.setattr(owner, name, stopped(getattr(owner, name)))
            try:
                life.go_on(3)
            except OSError:
                done += 1
        life.files.close()
        if not after:
            break
        assert seen(path) == after, f"stopped before call {moment}"
        shutil.rmtree(path)
    assert moment == done > 20


def test_a_place_that_was_lost_before_the_work_began_is_left_alone(tmp_path: Path) -> None:
    other = Staging(tmp_path, "other")
    other.open()

    def lost() -> None:
        raise OSError("somebody else has it")

    mine = Staging(tmp_path, "mine")
    with pytest.raises(OSError, match="somebody else"):
        mine.open(lost)
    assert [p.name for p in tmp_path.iterdir()] == [".other.work"]
    other.write(tmp_path / "file", b"x")


def test_one_that_was_paused_while_it_began_takes_nothing_from_who_came_after(tmp_path: Path) -> None:
    """It had seen that the place was its own, and goes on when another has just made its folder."""
    paused, mine = Staging(tmp_path, "paused"), Staging(tmp_path, "mine")
    held = iter([paused.open, lambda: None])
    mine.open(lambda: next(held)())
    assert [p.name for p in tmp_path.iterdir()] == [".mine.work"]
    mine.write(tmp_path / "file", b"mine")
    with pytest.raises(FileNotFoundError):
        paused.write(tmp_path / "file", b"paused")
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_who_has_lost_the_place_leaves_the_folder_that_another_has_just_made(tmp_path: Path) -> None:
    lost, run = Staging(tmp_path, "lost"), tmp_path / "run"
    lost.open()
    Staging(tmp_path, "other").open()
    run.mkdir()
    with pytest.raises(BadInput, match="run_dir"):
        RunDirectory(run, 2, lost).create(Experiment(), {})
    assert run.is_dir()


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    killed = Staging(tmp_path, "killed")
    killed.open()
    (killed.path / "half").mkdir()
    (killed.path / "half" / "file").write_text("x")
    kept = [".gitignore", ".env.work.local", "experiment.yaml", "00000003"]
    for name in kept:
        (tmp_path / name).write_text("x")
    mine = Staging(tmp_path, "mine")
    mine.open()
    mine.remove(tmp_path / "nowhere")
    mine.remove(tmp_path / "00000003")
    mine.close()
    assert {p.name for p in tmp_path.iterdir()} == set(kept) - {"00000003"}


@pytest.mark.parametrize("ends", [b"ab", b""])
def test_zeros_take_no_place_on_the_disk(tmp_path: Path, ends: bytes) -> None:
    """A replay buffer that is nearly empty is; the file reads as if they were there, at its end too."""
    empty = bytes(4_000_000)
    data = b"begin" + empty + b"middle" + empty + ends
    write_file(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == data
    assert (tmp_path / "file").stat().st_blocks * 512 < 1_000_000
