"""Faults at random instants: nobody who survives crashes, nothing half-written is adopted, and every run goes on.

What was done is printed, whatever pytest captures.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.ancestry import check_ancestry
from support.runs import COMMAND, mpiexec, same_run, settings, start, tiny

from shoal.experiment.experiment import Checkpoint
from shoal.run.train import resume, train

pytestmark = pytest.mark.slow
FAULTS = 160
RUN = {"generations": 60, "shards": 2, "checkpoint": {"keep": 2}}


def tell(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")


def test_workers_of_a_directory_under_fire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).parents[1] / "support" / "puppets.py"
    command = [sys.executable, str(script), str(tmp_path / "space"), str(FAULTS), "0"]
    (tmp_path / "space").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    tell(
        capsys,
        f"{sum(told['faults'].values())} faults: {told['faults']}; {told['adopted']} states adopted since the last",
    )
    assert not told["crashes"], told["crashes"][0]
    assert set(told["ended"].values()) == {0}
    assert sum(told["faults"].values()) >= FAULTS and len(told["faults"]) == 8
    assert told["adopted"] > 0 and min(told["generations"].values()) > 10
    assert check_ancestry(tmp_path / "space") > 100


def expected(path: Path | None, generations: int, **changes: Any) -> None:
    """The run that nobody disturbs."""
    train(tiny(path, **RUN | {"generations": generations, "checkpoint": Checkpoint(keep=2)} | changes))


def newest(run: Path) -> int:
    return max((int(p.name) for p in (run / "checkpoints").glob("[0-9]*")), default=-1)


def kill_at_work(command: Sequence[object], run: Path, folder: Path, draw: random.Random) -> None:
    """Start a command, and kill it with all it has started some time after its next checkpoint."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    before, end = newest(run), time.monotonic() + 180
    with subprocess.Popen([str(part) for part in command], **pipes, start_new_session=True) as process:
        while newest(run) <= before:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(draw.random())
        for pid in at_work(folder):
            with suppress(ProcessLookupError):  # it ended together with one that was killed before
                os.kill(pid, signal.SIGKILL)
            if draw.random() < 0.5:
                time.sleep(0.1 * draw.random())  # somebody may outlive the others for a moment
        process.communicate(timeout=60)
    while at_work(folder):
        assert time.monotonic() < end, "a process outlived the others"
        time.sleep(0.01)


def at_work(folder: Path) -> list[int]:
    """Python processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            python, *rest = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else [b""]
            if python.endswith(b"python") and any(str(folder).encode() in part for part in rest):
                found.append(int(entry.name))
    return found


def test_a_worker_that_is_killed_again_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Alone in its directory, it ends as the run that was never stopped."""
    draw, space = random.Random(1), tmp_path / "space"
    run = space / "workers" / "a"
    command = [*COMMAND, "train", "--exchange", "directory", "--workspace", str(space), "--worker", "a", "--quiet"]
    for _ in range(3):
        kill_at_work([*command, *settings(**RUN | {"generations": 4000})], run, tmp_path, draw)
    tell(capsys, f"3 kills of a worker in {newest(run) + 1} generations")
    resume(run, generations=newest(run) + 3)
    other = {"exchange": {"name": "directory", "workspace": str(tmp_path / "other"), "worker": "a"}}
    expected(None, newest(run) + 1, **other)
    same_run(run, tmp_path / "other" / "workers" / "a")


def test_workers_that_copy_one_another_are_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At any moment, saving and publishing among them: no record of a copy names a life that its parent never had."""
    draw, given = random.Random(3), settings(**RUN | {"generations": 4000, "shards": 1, "select": "tournament"})
    command = ["train", "--exchange", "directory", "--workspace", tmp_path, "--quiet", *given, "--worker"]
    alive = {name: start(*command, name) for name in ("a", "b")}
    try:
        for name in "aba":
            run, end = tmp_path / "workers" / name, time.monotonic() + 180
            before = newest(run)
            while newest(run) <= before + 1:
                assert alive[name].poll() is None, alive[name].communicate()
                assert time.monotonic() < end
                time.sleep(0.01)
            time.sleep(0.3 * draw.random())
            alive[name].kill()
            alive[name].communicate(timeout=60)
            alive[name] = start(*command, name)
        for name, process in alive.items():
            before = newest(tmp_path / "workers" / name)
            while newest(tmp_path / "workers" / name) <= before + 1:
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
        told = {name: process.communicate(timeout=60) for name, process in alive.items()}
        assert {process.returncode for process in alive.values()} == {3}, told
    finally:
        for process in alive.values():
            process.kill()
            process.communicate()
    tell(capsys, f"3 kills of two workers; {check_ancestry(tmp_path)} copies from one to the other explained")


def test_ranks_that_are_killed_again_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where one of two goes first, the run goes on from the last complete generation all the same."""
    draw, run = random.Random(2), tmp_path / "run"
    first = ["train", "--exchange", "mpi", "--run-dir", str(run), "--quiet", *settings(**RUN | {"generations": 4000})]
    kill_at_work(mpiexec(2, *COMMAND, *first), run, tmp_path, draw)
    for ranks in (1, 2):
        kill_at_work(mpiexec(ranks, *COMMAND, "resume", run, "--quiet"), run, tmp_path, draw)
    tell(capsys, f"3 kills of one or two ranks in {newest(run) + 1} generations")
    resume(run, generations=newest(run) + 3)
    expected(tmp_path / "whole", newest(run) + 1)
    same_run(run, tmp_path / "whole")
