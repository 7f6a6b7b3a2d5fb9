"""The last line of the display: the bar, what is done, the time left."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.runs import ended, tiny

from shoal.experiment.plan import make_plan
from shoal.records import console as module
from shoal.records.console import Display
from shoal.records.recorder import Start
from shoal.records.screen import Screen


def test_the_bar_never_runs_backwards() -> None:
    """Through two generations and the last test."""
    display = Display(Screen(file=StringIO(), width=100))
    display.start(Start(make_plan(tiny()), 1, Path("somewhere"), 0))
    seen = []

    def share() -> float:
        with (console := Screen(file=StringIO(), width=100)).capture() as shown:
            console.print(display.view())
        return float(shown.get().split("%")[0].split()[-1])

    for generation in range(2):
        for phase, fraction in (("train", 0.0), ("train", 0.5), ("evaluate", 0.0), ("evaluate", 0.3), ("evolve", 0.0)):
            display.progress(generation, phase, fraction)
            seen.append(share())
        display.generation(ended(generation, np.ones(4)))
        seen.append(share())
    display.progress(1, "champion", 0.0)
    seen.append(share())
    assert seen == [0, 25, 50, 50, 50, 50, 50, 75, 100, 100, 100, 100, 100]


def test_the_time_left_falls_and_fits_into_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five generations of 100 s."""
    now = 0.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    console = Screen(file=StringIO(), width=60)
    display = Display(console)
    display.start(Start(make_plan(tiny(generations=5)), 1, Path("somewhere"), 0))
    told = []

    def show(seconds: float, phase: str) -> None:
        nonlocal now
        now = seconds
        display.progress(1, phase, 0.1)
        with console.capture() as shown:
            console.print(display.view())
        told.append(shown.get().splitlines()[-1].partition("% ")[2].strip())

    show(50, "train")
    now = 100
    display.generation(ended(0, np.ones(4)))
    show(100, "train")
    show(180, "train")
    show(700, "evaluate")  # later than was expected
    assert told == ["training", "training, 6:40 left", "training, 5:20 left", "evaluating, 0:00 left"]


def test_it_is_drawn_as_often_as_eyes_can_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it hears of something; what it heard last is there in the end."""
    drawn, view = [], Display.view
    monkeypatch.setattr(Display, "view", lambda display: drawn.append(1) or view(display))
    screen = Screen(file=StringIO(), width=100, force_terminal=True)
    display = Display(screen)
    display.start(Start(make_plan(tiny(generations=200)), 1, Path("somewhere"), 0))
    began = time.monotonic()
    for generation in range(200):
        display.progress(generation, "train", 0.5)
        display.generation(ended(generation, np.ones(4)))
    display.finish(None)
    assert len(drawn) < 10 + 10 * (time.monotonic() - began)
    assert "200/200" in screen.file.getvalue()
