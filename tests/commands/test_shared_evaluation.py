"""Workers of a shared directory that measure one population together: evolution strategies, where returns are enough."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import COMMAND, record, rows, settings, shoal

RUN: dict[str, Any] = {
    "method": {"name": "es", "adaptive_cap": True},
    "population": 16,
    "shards": 4,
    "generations": 12,
    "config": {"layers": [8], "normalize_observations": True},
}

pytestmark = pytest.mark.slow


def command(*more: object, **changes: Any) -> list[str]:
    return [*COMMAND, "train", "--quiet", *settings(**RUN | changes), *map(str, more)]


def at_work(space: Path, name: str, **changes: Any) -> subprocess.Popen:
    more = ("--exchange", "directory", "--workspace", space, "--worker", name)
    return subprocess.Popen(command(*more, **changes), start_new_session=True, stdout=subprocess.DEVNULL)


def same_policy(one: Path, other: Path) -> None:
    """Equal in everything, the steps of evaluations too."""
    a, b = record(one), record(other)
    assert a["arrays"].keys() == b["arrays"].keys()
    for name, value in a["arrays"].items():
        np.testing.assert_array_equal(value, b["arrays"][name], name)
    assert a["lineage"] == b["lineage"]
    assert a["result"]["champion"] == b["result"]["champion"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run in one process, that knows of no directory."""
    run = tmp_path_factory.mktemp("runs") / "alone"
    subprocess.run(command("--run-dir", run), check=True)
    return run


def test_workers_together_are_the_run_of_one_process(alone: Path, tmp_path: Path) -> None:
    """Bit for bit, though one of three is killed in the middle and another comes when all is done."""
    three = {name: at_work(tmp_path, name) for name in ("a", "b", "victim")}
    began = time.monotonic()
    while len(list((tmp_path / "returns").glob("*/*.json"))) < 8 and time.monotonic() - began < 120:
        time.sleep(0.01)
    os.killpg(three["victim"].pid, signal.SIGKILL)
    three["victim"].wait()
    assert [three[name].wait(timeout=120) for name in ("a", "b")] == [0, 0]
    assert at_work(tmp_path, "late").wait(timeout=120) == 0
    for name in ("a", "b", "late"):
        same_policy(tmp_path / "workers" / name, alone)
        done, whole = (rows(run / "metrics.jsonl")[-1] for run in (tmp_path / "workers" / name, alone))
        assert (done["steps"], done["evaluation_steps"]) == (whole["steps"], whole["evaluation_steps"])
    assert not list((tmp_path / "returns").rglob("*.claim"))


def test_a_killed_worker_comes_back(alone: Path, tmp_path: Path) -> None:
    first = at_work(tmp_path, "a")
    began = time.monotonic()
    while not list((tmp_path / "workers").glob("a/checkpoints/0*")) and time.monotonic() - began < 120:
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert at_work(tmp_path, "a").wait(timeout=120) == 0
    same_policy(tmp_path / "workers" / "a", alone)


def test_all_must_cut_it_alike(tmp_path: Path) -> None:
    more = ("--exchange", "directory", "--workspace", tmp_path, "--quiet")
    assert shoal("train", *settings(**RUN | {"generations": 1}), *more).code == 0
    outcome = shoal("train", *settings(**RUN | {"generations": 1, "shards": 2}), *more)
    assert outcome.code == 2
    assert "differs in shards" in outcome.err


def test_by_default_it_is_cut_into_whole_pairs(tmp_path: Path) -> None:
    given = {name: value for name, value in RUN.items() if name != "shards"} | {"population": 12, "generations": 1}
    outcome = shoal("train", *settings(**given), "--exchange", "directory", "--workspace", tmp_path, "--quiet")
    assert outcome.code == 0
    assert len(list((tmp_path / "returns" / "00000000").glob("*.json"))) == 6
    assert json.loads((tmp_path / "workers" / "0" / "result.json").read_text())["method"] == "es"


def test_members_of_ones_own_method_are_measured_together_too(tmp_path: Path) -> None:
    given = settings(**RUN | {"method": "support.own_method:Nearby", "generations": 2, "config": {"layers": [8]}})
    assert shoal("train", *given, "--run-dir", tmp_path / "alone", "--quiet").code == 0
    assert (
        shoal("train", *given, "--exchange", "directory", "--workspace", tmp_path, "--worker", "a", "--quiet").code == 0
    )
    same_policy(tmp_path / "workers" / "a", tmp_path / "alone")
