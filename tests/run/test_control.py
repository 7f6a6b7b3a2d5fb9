"""What a signal does to a run, and what the run then says."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.messages import Said
from support.runs import Signals, tiny

from shoal.core.interrupts import Interrupted
from shoal.members.gradient_trained import GradientTrainedShard
from shoal.run import control
from shoal.run import start as beginning
from shoal.run.control import Control
from shoal.run.train import train


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that `control` sees, which pass as a test says."""
    now = [0.0]
    monkeypatch.setattr(control.time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.slow
def test_a_long_evaluation_is_abandoned_too(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """Training takes a second, and evaluation a minute."""

    def lasting(seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
        def done(*arguments: Any) -> Any:
            clock[0] += seconds
            return work(*arguments)

        return done

    monkeypatch.setattr(GradientTrainedShard, "train", lasting(1, GradientTrainedShard.train))
    monkeypatch.setattr(GradientTrainedShard, "evaluate", lasting(60, GradientTrainedShard.evaluate))
    signals = Signals(1, "evaluate")
    with pytest.raises(Interrupted) as error:
        train(tiny(tmp_path / "run"), [signals])
    said(error.value)
    assert signals.notes == ["stopping: this generation is abandoned"]


@pytest.mark.parametrize(("elapsed", "abandon"), [(0.0, True), (49.0, True), (51.0, False), (300.0, False)])
def test_what_is_left_decides(clock: list[float], elapsed: float, abandon: bool) -> None:
    held = Control([])
    held.last_seconds, held.last_generation = 1.0, 60.0
    held.enter(1, "train")
    clock[0] += elapsed
    held.enter(1, "evaluate")
    held.interrupt(signal.SIGINT)
    assert (held.stop, held.abandon) == (True, abandon)


@pytest.mark.parametrize("part", ["make_plan", "RunDirectory"])
def test_before_there_is_anything_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Before the run has a place, and before there is anything in it."""
    made = getattr(beginning, part)

    def stopped(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        monkeypatch.setattr(beginning, "check_memory", lambda plan, members: heard[0].attend())
        if part == "make_plan":
            heard[0].attend()
        return made(*arguments)

    heard: list[Control] = []
    lead = Control.lead
    monkeypatch.setattr(Control, "lead", lambda held, leading: (heard.append(held), lead(held, leading)))
    monkeypatch.setattr(beginning, part, stopped)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment.yaml").touch()  # of another run, in which the command is started
    with pytest.raises(Interrupted) as told:
        train(tiny(tmp_path / "run"))
    assert (str(told.value), told.value.code) == ("interrupted; start it again", 128 + signal.SIGTERM)
    assert not (tmp_path / "run").exists()


def test_who_is_interrupted_hears_what_a_resume_will_do(tmp_path: Path) -> None:
    """Before the first checkpoint there is nothing to go on with; one may be written while the run ends."""
    ended = Interrupted(tmp_path)
    assert str(ended) == f"interrupted before its first checkpoint; start over with: shoal resume {tmp_path}"
    (tmp_path / "checkpoints/00000000").mkdir(parents=True)
    assert str(ended) == f"interrupted; continue with: shoal resume {tmp_path}"
