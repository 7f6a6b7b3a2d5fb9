"""A run may come from somebody else: what it can do to whoever opens it, by any command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.forged import forged, loud
from support.runs import SETTINGS, shoal

from shoal import cli

LOADING: dict[str, list[list[str]]] = {  # what the run names
    "resume": [["run", "--generations", "9"], ["run", "--set", "checkpoint.every=2", "generations=9"]],
    "evaluate": [["run", "--episodes", "2"]],
    "play": [["run", "--video", "film.gif"], ["run", "--video", "film.gif", "--population"]],
    "export": [["run", "policy.npz"], ["run", "policy.onnx"]],
    "replay": [["run", "--quiet"]],
}
READING = {
    "train": [["own.yaml", "--start", "run/champion", "--quiet"], ["own.yaml", "--start", "run"], ["run"]],
    "report": [["run"], ["workspace"], ["study"], ["run", "--watch"]],
    "schedule": [["run"], ["run", "--format", "json"]],
    "replay": [["run", "own.yaml", "--quiet"]],
    "study": [["study.yaml", "--workspace", "study", "--quiet"]],
    "import": [["isaac", "run/experiment.yaml"]],
    "toy": [],
    "envs": [],
    "doctor": [["own.yaml", "--start", "run"], ["own.yaml", "--start", "run/champion"], ["run"]],
}
CODE: dict[str, dict[str, Any]] = {
    "agent": {"agent": "run.evil.x:C"},  # asking where that is imports run.evil
    "everything": {
        "agent": "run.evil.x:C",
        "env": "run.evil.x:C",
        "method": {"name": "pbt", "select": "run.evil.x:C", "explore": {"name": "run.evil:C"}},
        "config": {"network": "run.evil.x:C", "imports": ["run.evil.x"], "policy_kwargs": {"activation_fn": "run.evil:C"}},
        "python": "./loud",
    },
    "method": {"method": "run.evil.x:C"},
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, in which Python finds modules, as with `python -m shoal`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(SETTINGS | {"run_dir": "mine", "generations": 1}))
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({"base": SETTINGS, "arms": {"a": {}}, "seeds": 1}))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "run"]:
        del sys.modules[name]


def opened(place: Path, code: dict[str, Any]) -> Path:
    """A run that names code, wherever commands look for one; and the file in which that code tells of itself."""
    for run in ("run", "workspace/workers/0", "study/runs/a/0"):
        forged(place / run, **code)
        loud(place / run / "evil", place / "heard")
    (place / "workspace/slots").mkdir()
    (place / "study/study.yaml").write_text((place / "study.yaml").read_text())
    (place / "loud").write_text(f"#!/bin/sh\necho ran >> {place / 'heard'}\n")
    (place / "loud").chmod(0o755)
    return place / "heard"


def test_every_command_is_here() -> None:
    assert {command.__name__ for command in cli.COMMANDS} == {*LOADING, *READING}


@pytest.mark.usefixtures("shared_programs")
@pytest.mark.parametrize("code", CODE)
def test_no_command_runs_code_of_a_run_unasked(place: Path, code: str) -> None:
    heard = opened(place, CODE[code])
    for name, calls in LOADING.items():
        for call in calls:
            told = shoal(name, *call)
            assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), (name, call, told)
            assert "the run names code" in told.err and "add --trust-code" in told.err, told
            assert not heard.exists(), (name, call, heard.read_text())
    for name, calls in READING.items():
        for call in calls:
            told = shoal(name, *call)
            assert "Traceback" not in told.err, told
            assert not heard.exists(), (name, call, heard.read_text())


@pytest.mark.parametrize("command", LOADING)
def test_trust_is_what_makes_the_difference(place: Path, command: str) -> None:
    heard = opened(place, CODE["agent"])
    for call in LOADING[command]:
        told = shoal(command, *call, "--trust-code")
        assert told.code == 2 and "run.evil.x" in told.err, told
    assert heard.read_text().startswith("run.evil\n")
