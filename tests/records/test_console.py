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
from shoal.records.callback import Start
from shoal.records.console import Display
from shoal.records.screen import Screen


def test_the_bar_never_runs_backwards() -> None:
    """Through two generations and the final evaluation."""
    display = Display(Screen(file=StringIO(), width=100))
    display.on_training_start(Start(make_plan(tiny()), 1, Path("somewhere"), 0))
    seen = []

    def share() -> float:
        with (console := Screen(file=StringIO(), width=100)).capture() as shown:
            console.print(display.view())
        return float(shown.get().split("%")[0].split()[-1])

    for generation in range(2):
        for phase, fraction in (("train", 0.0), ("train", 0.5), ("evaluate", 0.0), ("evaluate", 0.3), ("evolve", 0.0)):
            display.on_progress(generation, phase, fraction)
            seen.append(share())
        display.on_generation_end(ended(generation, np.ones(4)))
        seen.append(share())
    display.on_progress(1, "champion", 0.0)
    seen.append(share())
    assert seen == [0, 25, 50, 50, 50, 50, 50, 75, 100, 100, 100, 100, 100]


def test_the_time_left_falls_and_fits_into_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five generations of 100 s, the first of which took 40 s more, to compile."""
    now = 0.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    console = Screen(file=StringIO(), width=60)
    display = Display(console)
    display.on_training_start(Start(make_plan(tiny(generations=5)), 1, Path("somewhere"), 0))
    told = []

    def show(seconds: float, phase: str) -> None:
        nonlocal now
        now = seconds
        display.on_progress(1, phase, 0.1)
        with console.capture() as shown:
            console.print(display.view())
        told.append(shown.get().splitlines()[-1].partition("% ")[2].strip())

    show(50, "train")
    now = 140
    display.on_generation_end(ended(0, np.ones(4), compiling=40.0))
    show(140, "train")
    show(220, "train")
    show(740, "evaluate")  # later than was expected
    assert told == ["training", "training, 6:40 left", "training, 5:20 left", "evaluating, 0:00 left"]


def test_it_is_drawn_as_often_as_eyes_can_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it hears of something; what it heard last is there in the end."""
    drawn, view = [], Display.view
    monkeypatch.setattr(Display, "view", lambda display: drawn.append(1) or view(display))
    screen = Screen(file=StringIO(), width=100, force_terminal=True)
    display = Display(screen)
    display.on_training_start(Start(make_plan(tiny(generations=200)), 1, Path("somewhere"), 0))
    began = time.monotonic()
    for generation in range(200):
        display.on_progress(generation, "train", 0.5)
        display.on_generation_end(ended(generation, np.ones(4)))
    display.on_training_end(None)
    assert len(drawn) < 10 + 10 * (time.monotonic() - began)
    assert "200/200" in screen.file.getvalue()


def test_what_is_compiling_is_told_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    display = Display(Screen(file=StringIO(), width=60))
    display.on_training_start(Start(make_plan(tiny(generations=9)), 1, Path("somewhere"), 3))
    told = []
    for moment, generation, phase, fraction in (
        (0.0, 3, "train", 0.0),
        (7.0, 3, "train", 0.0),
        (8.0, 3, "train", 0.1),
        (9.0, 3, "evaluate", 0.0),
        (11.0, 3, "evaluate", 0.0),
        (12.0, 4, "train", 0.0),
    ):
        now = moment
        display.on_progress(generation, phase, fraction)
        with (console := Screen(file=StringIO(), width=60)).capture() as shown:
            console.print(display.view())
        told.append(shown.get().splitlines()[-1].partition("% ")[2].strip())
    assert told == [
        *("compiling training, 0 s", "compiling training, 7 s", "training"),
        *("compiling evaluating, 0 s", "compiling evaluating, 2 s", "training"),
    ]


@pytest.mark.parametrize(
    ("variables", "terminal", "redraws"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm", "FORCE_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "FORCE_COLOR": "1"}, True, True),
    ],
)
def test_where_a_table_is_drawn_in_its_place(
    variables: dict[str, str], terminal: bool, redraws: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets its colours where these are asked for, and nothing that moves the cursor."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    file = StringIO()
    file.isatty = lambda: terminal  # type: ignore[method-assign]
    screen = Screen(file=file, width=100)
    display = Display(screen)
    display.on_training_start(Start(make_plan(tiny()), 1, Path("somewhere"), 0))
    with screen.status("playing"):
        display.on_generation_end(ended(0, np.ones(4)))
    display.on_training_end(None)
    assert ("\x1b[?25l" in file.getvalue()) == redraws
    assert ("generation 1/2  best 1" in file.getvalue()) == (not redraws)
    assert ("\x1b[1m" in file.getvalue()) == ("FORCE_COLOR" in variables or redraws)
