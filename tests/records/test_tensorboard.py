"""Curves: complete after a kill, and no reason for a run to end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import Signals, curves, flags, shoal, tiny

from shoal.records import tensorboard
from shoal.records.callback import Callback, Start
from shoal.records.generation import Generation
from shoal.records.tensorboard import TensorBoard
from shoal.run.train import resume, train


def test_what_keeps_it_from_writing_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, heard = tmp_path / "run", Signals(9, "never")

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensorboard, "scalars", full)
    assert train(tiny(run, generations=3), [heard, TensorBoard()]).summary["status"] == "done"
    assert heard.notes == ["TensorBoard curves are no longer written: No space left on device"]
    outcome = shoal(*flags(tmp_path / "other", "--quiet"))
    assert outcome.code == 0 and outcome.out.count("TensorBoard curves are no longer written") == 1
    assert "video:        shoal play" in outcome.out and "tensorboard --logdir" not in outcome.out


class Harm(Callback):
    """Does something to the folder of curves: before there are any, or after the first generation, once they are there."""

    def __init__(self, run: Path, harm: Callable[[Path], object], before: bool):
        self._folder, self._harm, self._before = run / "tensorboard", harm, before

    def on_training_start(self, event: Start) -> None:
        if self._before:
            self._harm(self._folder)

    def on_generation_end(self, event: Generation) -> None:
        if event.generation == 1 and not self._before:
            while not list(self._folder.glob("*")):
                time.sleep(0.01)
            self._harm(self._folder)


@pytest.mark.parametrize(
    ("harm", "before"),
    [
        (shutil.rmtree, False),
        (lambda folder: [file.unlink() for file in folder.iterdir()], False),
        (Path.touch, True),  # a file where the folder belongs
        (lambda folder: folder.symlink_to("nowhere"), True),
    ],
    ids=["folder removed", "file removed", "no folder", "a link"],
)
def test_nothing_is_printed_but_one_note(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], harm: Callable[[Path], object], before: bool
) -> None:
    """Whatever becomes of the folder while the run goes on: not even by a thread that ends."""
    run, heard = tmp_path / "run", Signals(9, "never")
    experiment = tiny(run, generations=3)
    assert train(experiment, [heard, Harm(run, harm, before), TensorBoard()]).summary["status"] == "done"
    assert len(heard.notes) == 1 and heard.notes[0].startswith("TensorBoard curves are no longer written: "), (
        heard.notes
    )
    assert "\n" not in heard.notes[0] and capfd.readouterr().err == ""


def test_after_an_error_there_are_no_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later generations are written on resume, in order."""
    run, points, calls = tmp_path / "run", tensorboard.scalars, []

    def hiccup(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise ValueError("only once")
        return points(*arguments)

    monkeypatch.setattr(tensorboard, "scalars", hiccup)
    heard = Signals(9, "never")
    train(tiny(run, generations=3), [heard, TensorBoard()])
    assert len(calls) == 2 and heard.notes[0].startswith(
        "TensorBoard curves are no longer written: ValueError: only once"
    )
    monkeypatch.setattr(tensorboard, "scalars", points)
    resume(run, generations=4, callbacks=[TensorBoard()])
    assert [step for step, _ in curves(run)["fitness/member0"]] == [64, 128, 192, 256]


def lost(run: Path) -> None:
    shutil.rmtree(run / "tensorboard")


def half_written(run: Path) -> None:
    (events,) = (run / "tensorboard").iterdir()
    shutil.copy(events, events.with_name("later.tfevents"))
    events.write_bytes(events.read_bytes()[:-5])


def garbage(run: Path) -> None:
    (events,) = (run / "tensorboard").iterdir()
    events.write_bytes(b"no events")


@pytest.fixture(scope="module")
def past_and_whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of three generations, and the same of four."""
    place = tmp_path_factory.mktemp("curves")
    past, whole = (train(tiny(place / str(n), generations=n), [TensorBoard()]).run_dir for n in (3, 4))
    return past, whole


@pytest.mark.parametrize("damage", [lost, half_written, garbage])
def test_resumed_curves_are_those_of_the_lines(
    past_and_whole: tuple[Path, Path], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Whatever became of the event files, a run that goes on shows each point of its past once."""
    past, whole = past_and_whole
    run = shutil.copytree(past, tmp_path / "run")
    before = curves(run)
    damage(run)
    resume(run, generations=4, callbacks=[TensorBoard()])
    after, expected = curves(run), curves(whole)
    assert len(list((run / "tensorboard").iterdir())) == 1 and after.keys() == expected.keys()
    for tag, points in after.items():
        assert [step for step, _ in points] == [64, 128, 192, 256]
        np.testing.assert_equal(points[:3], before[tag])
        if tag != "population/steps_per_second":
            np.testing.assert_equal(points, expected[tag])
