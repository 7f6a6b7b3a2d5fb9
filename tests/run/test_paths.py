"""Paths are as they were where the run began, wherever its environment goes; and `~` is the home that it is in a shell."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import others_slow
from support.runs import Signals, tiny

from shoal import BadInput, Experiment, evaluate, load_champion, load_run, resume, train
from shoal.core.atomic import absolute
from shoal.core.interrupts import Interrupted
from shoal.experiment.files import of_run
from shoal.study.study_file import Study, experiment_of

IDLE = {"agent": "support.clocked:clocked", "config": {}}  # quick to compile, under the name that a file has for it


class Wanderer(gymnasium.Wrapper):
    """Goes elsewhere as soon as it is made, or as it steps."""

    def __init__(self, place: str, late: bool):
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=20))
        self._place, self._late = place, late
        if not late:
            os.chdir(place)

    def step(self, action: Any) -> Any:
        if self._late:
            os.chdir(self._place)
        return super().step(action)


@pytest.mark.parametrize("late", others_slow([False, True], True))
def test_an_environment_that_goes_elsewhere_takes_nothing_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)
    world = {"env": f"{__name__}:Wanderer", "env_options": {"place": str(there), "late": late}} | IDLE
    with pytest.raises(Interrupted) as stopped:
        train(tiny(Path("run"), **world), [Signals(0, "evolve")])
    assert str(here / "run") in str(stopped.value)
    os.chdir(here)
    assert resume("run", trust_code=True).run_dir == here / "run"
    os.chdir(here)
    assert train(tiny(**world, init_from="run")).run_dir == here / "runs/Wanderer-clocked-0"
    os.chdir(here)
    assert evaluate("run", episodes=2, trust_code=True)["episodes"] == 2
    assert list(there.iterdir()) == [] and {p.name for p in here.iterdir()} == {"run", "runs"}
    assert of_run(here / "run").run_dir == str(here / "run")


PARTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
NAMES = st.one_of(st.none(), st.just("~/x"), st.just("runs/../x"), PARTS)


@given(run_dir=NAMES, init_from=NAMES, python=NAMES, workspace=NAMES)
def test_what_is_located_stays_there(run_dir: Any, init_from: Any, python: Any, workspace: Any) -> None:
    """Every path is absolute, from anywhere the same place, and the same when it is located again."""
    exchange = {"name": "directory", "workspace": workspace}
    experiment = Experiment(run_dir=run_dir, init_from=init_from, python=python, exchange=exchange)
    made = replace(experiment, **experiment.absolute_paths)
    for before, after, is_command in (
        (run_dir, made.run_dir, False),
        (init_from, made.init_from, False),
        (workspace, made.exchange.workspace, False),
        (python, made.python, "/" not in (python or "")),
    ):
        if not before or is_command:
            assert after == before
        else:
            assert os.path.isabs(after) and Path(after) == Path(os.path.expanduser(before)).absolute()
    assert replace(made, **made.absolute_paths) == made
    assert (
        replace(made, run_dir=run_dir, init_from=init_from, python=python, exchange=experiment.exchange) == experiment
    )


def test_home_in_a_file_and_in_that_of_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert absolute("~/x") == tmp_path / "home/x" and absolute("~nobody-here/x") == tmp_path / "~nobody-here/x"
    study = Study(base={"init_from": "~/a", "python": "~/bin/python"}, arms={"pbt": {}})
    arm = experiment_of(study, "", "pbt")
    assert (arm.init_from, arm.python) == (str(tmp_path / "home/a"), str(tmp_path / "home/bin/python"))


def test_home_in_the_file_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = train(replace(tiny(generations=1, **IDLE), run_dir="~/mine/run"))
    assert result.run_dir == tmp_path / "mine/run" and (result.run_dir / "result.json").is_file()
    assert load_run("~/mine/run", trust_code=True).champion.uid == result.summary["champion"]["uid"]
    load_champion("~/mine/run", trust_code=True).save("~/best")
    assert (tmp_path / "best/champion").is_dir() and resume("~/mine/run", trust_code=True).run_dir == result.run_dir
    with pytest.raises(BadInput, match="is empty"):
        Path("e.yaml").touch()
        train("~/e.yaml")
    assert not Path("~").exists()
