"""A run may come from somebody else: what it can do to whoever opens it, by any command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cases import others_slow
from support.forged import forged, loud
from support.mutations import at_most
from support.runs import SETTINGS, shoal

from shoal import cli
from shoal.core.atomic import seal

LOADING: dict[str, list[list[str]]] = {  # what the run names
    "resume": [["run", "--generations", "9"], ["run", "--set", "checkpoint.every=2", "generations=9"]],
    "evaluate": [["run", "--episodes", "2"]],
    "play": [["run", "--video", "film.gif"], ["run", "--video", "film.gif", "--population"]],
    "export": [["run", "policy.npz"], ["run", "policy.onnx"]],
    "replay": [["run", "--quiet"]],
}
READING = {
    "train": [["own.yaml", "--init-from", "run/champion", "--quiet"], ["own.yaml", "--init-from", "run"], ["run"]],
    "report": [["run"], ["workspace"], ["study"], ["run", "--watch"]],
    "schedule": [["run"], ["run", "--format", "json"]],
    "replay": [["run", "own.yaml", "--quiet"]],
    "study": [["study.yaml", "--workspace", "study", "--quiet"]],
    "import": [["isaac", "run/experiment.yaml"]],
    "toy": [],
    "envs": [],
    "runs": [["."]],
    "status": [["workspace"]],
    "stop": [["workspace"]],
    "compare": [["run", "study/runs/a/0"], ["run", "workspace"]],
    "experiments": [],
    "init": [],
    "agents": [],
    "doctor": [["own.yaml", "--init-from", "run"], ["own.yaml", "--init-from", "run/champion"], ["run"]],
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


TOLD = (  # the lines of docs/how-to/security.md in their order, each with the tests that hold it
    ("commands/test_untrusted_runs.py", "test_trust_is_what_makes_the_difference"),
    ("experiment/test_trust.py", "test_code_is_refused", "test_what_is_shoals_or_given_is_not"),
    (
        "commands/test_untrusted_runs.py",
        "test_no_command_runs_code_of_a_run_unasked",
        "test_a_task_of_rl_games_needs_trust",
    ),
    ("commands/test_untrusted_runs.py", "test_no_command_runs_what_the_repository_around_a_run_names"),
    ("trainers/test_file.py", "test_a_file_that_a_run_names_is_not_loaded_unasked"),
    (
        "commands/test_untrusted_runs.py",
        "test_what_is_no_file_of_the_run_is_refused_in_one_line",
        "test_a_run_under_a_link_goes_on",
    ),
    (
        "commands/test_untrusted_runs.py",
        "test_a_file_with_a_hole_is_refused_in_one_line",
        "test_a_champion_larger_than_the_memory",
    ),
    ("test_fuzz.py", "test_mutated_runs"),
    (
        "commands/test_escapes.py",
        "test_experiments",
        "test_records",
        "test_a_forged_name_does_not_rewrite_why_it_is_refused",
    ),
    ("commands/test_escapes.py", "test_tables_hold_no_formulas"),
    ("commands/test_runs.py", "test_no_odd_run_hides_another"),
    ("commands/test_study.py", "test_a_run_of_another_experiment_is_not_the_studys"),
    ("commands/test_study.py", "test_what_a_study_did_not_make_stays"),
    ("records/test_wandb.py", "test_each_member_has_a_run_that_goes_on_when_resumed"),
    ("commands/test_untrusted_runs.py", "test_scores_are_measured_anew"),
    ("commands/test_untrusted_runs.py", "test_a_file_that_is_named_is_trusted"),
)


def test_every_line_about_trust_is_a_test() -> None:
    tests = Path(__file__).parents[1]
    lines = [
        line for line in (tests.parent / "docs/how-to/security.md").read_text().splitlines() if line.startswith("- ")
    ]
    for line, (file, *names) in zip(lines, TOLD, strict=True):
        text = (tests / file).read_text()
        assert all(f"\ndef {name}(" in text for name in names), line


def test_scores_are_measured_anew(place: Path) -> None:
    """A run that claims another score than its champion's shows what it claims; evaluating does not believe it."""
    assert shoal("train", "own.yaml", "--quiet").code == 0
    honest = shoal("evaluate", "mine", "--episodes", "4").out
    result = json.loads((place / "mine/result.json").read_text())
    result["champion"]["evaluation"]["mean"] = 31337.0
    (place / "mine/result.json").write_text(json.dumps(result))
    assert shoal("report", "mine").code == 0 and "31337" in (place / "mine/report.html").read_text().replace(",", "")
    assert shoal("evaluate", "mine", "--episodes", "4").out == honest


def test_a_file_that_is_named_is_trusted(place: Path) -> None:
    loud(place / "run" / "evil", place / "heard")
    (place / "named.yaml").write_text(yaml.safe_dump(SETTINGS | CODE["agent"]))
    assert shoal("train", "named.yaml", "--quiet").code == 2 and (place / "heard").exists()


def test_every_command_is_here() -> None:
    assert {command.__name__ for command in cli.COMMANDS} == {*LOADING, *READING}


@pytest.mark.parametrize("code", others_slow(CODE, "everything"))
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


def test_no_command_runs_what_the_repository_around_a_run_names(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run directory that is one, git would start the programs of its settings."""
    run = forged(place / "run")
    subprocess.run(("git", "init", "-q", run), check=True)
    (place / "loud").write_text(f"#!/bin/sh\necho ran >> {place / 'heard'}\n")
    (place / "loud").chmod(0o755)
    subprocess.run(("git", "-C", run, "config", "core.fsmonitor", place / "loud"), check=True)
    monkeypatch.chdir(run)
    own = [place / "own.yaml", "--init-from", "champion", "--run-dir", place / "mine"]
    for call in (
        ["replay", ".", "--quiet", "--run-dir", place / "again"],
        ["train", *own, "--quiet"],
        ["resume", place / "mine", "--generations", "2", "--quiet"],
        ["doctor", place / "own.yaml", "--init-from", "champion"],
    ):
        told = shoal(*call)
        assert told.code == 0, (call, told)
        assert not (place / "heard").exists(), call


@pytest.mark.parametrize("command", LOADING)
def test_a_task_of_rl_games_needs_trust(place: Path, command: str) -> None:
    """It is a file, anywhere, which a process of its own would read."""
    forged(place / "run", agent=f"rl_games:{place / 'task.yaml'}", env="gym:CartPole-v1", config={})
    os.mkfifo(place / "task.yaml")
    with at_most(20):
        told = shoal(command, *LOADING[command][0])
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), told
    assert "agent = rl_games:task.yaml: the run names code" in told.err, told


# ---------------------------------------------------------------------------------------- files that are none


READERS = {
    "experiment.yaml": ("report", "schedule", "resume", "evaluate", "replay"),
    "lineage.jsonl": ("report", "schedule", "resume", "replay"),
    "metrics.jsonl": ("report", "schedule", "resume", "replay"),
    "result.json": ("report", "schedule", "resume", "replay"),
    "method.json": ("report", "schedule", "resume", "replay"),
    "champion": ("evaluate", "export", "resume"),
    "champion/manifest.json": ("evaluate", "export"),
    "champion/state.safetensors": ("evaluate", "export"),
    "checkpoints": ("resume",),
    "tensorboard": ("resume",),
    "trainers": ("resume",),
    "wandb": ("resume",),
    "init_from.json": ("resume",),
    ".lock": ("resume",),
}
MORE = {"resume": ["--generations", "9", "--quiet"], "export": ["policy.npz"]}
IN_THE_WAY: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, other: path.symlink_to(other),
    "pipe": lambda path, other: os.mkfifo(path),
}


@pytest.mark.parametrize("kind", IN_THE_WAY)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_of_the_run_is_refused_in_one_line(place: Path, name: str, kind: str) -> None:
    """Nothing waits for a pipe, and nothing changes or takes what a link leads to, although that would do."""
    run, path = forged(place / "run"), place / "run" / name
    other = path.rename(place / "other") if path.exists() else place / "other"
    if not other.exists():
        other.mkdir() if "." not in name else other.write_text("mine")
    IN_THE_WAY[kind](path, other)
    before = {p: p.read_bytes() if p.is_file() else b"" for p in [other, *other.rglob("*")]}
    what = "a link" if kind == "link" else "a pipe or a device"
    for command in READERS[name]:
        with at_most(60):
            told = shoal(command, "run", *MORE.get(command, []))
        assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), (command, told)
        assert f"{path.relative_to(place)} is {what}, where " in told.err or "holds no run" in told.err, (command, told)
        assert {p: p.read_bytes() if p.is_file() else b"" for p in [other, *other.rglob("*")]} == before
    assert not (place / "policy.npz").exists() and not run.joinpath("report.html").exists()


HOLES = {
    "experiment.yaml": ("report", "schedule", "resume", "evaluate", "replay"),
    "lineage.jsonl": ("report", "schedule", "replay"),
    "metrics.jsonl": ("report", "replay"),
    "provenance.jsonl": ("report",),
    "result.json": ("report", "schedule"),
    "method.json": ("report",),
    "champion/manifest.json": ("evaluate", "export"),
    "champion/state.safetensors": ("evaluate", "export"),
}


@pytest.mark.parametrize("name", HOLES)
def test_a_file_with_a_hole_is_refused_in_one_line(place: Path, name: str) -> None:
    """It takes no room in an archive, and would take all memory: text ends somewhere, and arrays have the size they had."""
    run, path = forged(place / "run"), place / "run" / name
    path.touch()
    os.truncate(path, 2**40)
    for command in HOLES[name]:
        with at_most(30):
            told = shoal(command, "run", *MORE.get(command, []))
        assert (told.code, told.out, told.err.count("\n")) == (2, "", 1), (command, told)
        assert (
            f"{run.relative_to(place) / name} has " in told.err and "bytes, which are all that belong there" in told.err
        ), told


@pytest.mark.parametrize("name", ["own.yaml", "study.yaml"])
def test_a_hole_in_a_file_that_is_named(place: Path, name: str) -> None:
    os.truncate(place / name, 2**40)
    told = shoal("train" if name == "own.yaml" else "study", name)
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1) and f"{name} has more than" in told.err, told


def test_a_champion_larger_than_the_memory(place: Path) -> None:
    """A manifest may vouch for its size."""
    folder = forged(place / "run") / "champion"
    os.truncate(folder / "state.safetensors", size := 2**43)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["manifest_crc32"]
    (folder / "manifest.json").write_bytes(seal(manifest | {"bytes": size}))
    told = shoal("evaluate", "run")
    assert (told.code, told.err.count("\n")) == (2, 1) and "bytes, which are all that belong there" in told.err, told


def test_a_run_under_a_link_goes_on(place: Path) -> None:
    """The directory that is named may be a link itself, and lie under others."""
    (place / "disk/deep").mkdir(parents=True)
    (place / "runs").symlink_to("disk")
    (place / "disk/deep/run").mkdir()
    (place / "runs/mine").symlink_to("deep/run")
    assert shoal("train", "own.yaml", "--run-dir", "runs/mine", "--quiet").code == 0
    (place / "here").symlink_to(place / "runs/mine")
    for command in (
        ["resume", "here", "--generations", "2", "--quiet"],
        ["report", "here"],
        ["evaluate", "here"],
        ["schedule", "here"],
    ):
        assert shoal(*command).code == 0, command
    assert (place / "disk/deep/run/report.html").is_file()
