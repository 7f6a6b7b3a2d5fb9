"""Curves: complete after a kill, and no reason for a run to end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.runs import Signals, curves, flags, shoal, tiny

from shoal.records.tensorboard import TensorBoard, cut_back
from shoal.run.loop import resume, train

pytestmark = pytest.mark.usefixtures("shared_programs")


def test_what_keeps_it_from_writing_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, heard = tmp_path / "run", Signals(9, "never")

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TensorBoard, "_write", full)
    assert train(tiny(run, generations=3), [heard, TensorBoard()]).summary["status"] == "done"
    assert heard.notes == ["no more curves are written: No space left on device"]
    outcome = shoal(*flags(tmp_path / "other", "--quiet"))
    assert outcome.code == 0 and outcome.out.count("no more curves are written") == 1
    assert "play:         shoal play" in outcome.out and "tensorboard --logdir" not in outcome.out


def test_after_an_error_there_are_no_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came after it is written on resume, in order."""
    run, write, calls = tmp_path / "run", TensorBoard._write, []

    def hiccup(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise ValueError("only once")
        write(*arguments)

    monkeypatch.setattr(TensorBoard, "_write", hiccup)
    heard = Signals(9, "never")
    train(tiny(run, generations=3), [heard, TensorBoard()])
    assert len(calls) == 2 and heard.notes[0].startswith("no more curves are written: ValueError: only once")
    monkeypatch.setattr(TensorBoard, "_write", write)
    resume(run, generations=4, recorders=[TensorBoard()])
    assert [step for step, _ in curves(run)["fitness/member0"]] == [64, 128, 192, 256]


def test_where_curves_end(tmp_path: Path) -> None:
    """Only the newest step can lack points, so only its own are looked for."""
    train(tiny(tmp_path / "run", generations=3), [TensorBoard()])
    folder = tmp_path / "run" / "tensorboard"
    (events,) = folder.iterdir()
    whole = events.read_bytes()
    every = set(curves(tmp_path / "run"))
    assert cut_back(folder, 192) == (192, every)
    assert events.read_bytes() == whole
    newest, tags = cut_back(folder, 191)
    assert (newest, tags) == (128, every) and whole.startswith(events.read_bytes())
    shutil.copy(events, folder / "later.tfevents")
    events.write_bytes(events.read_bytes()[:-5])
    assert cut_back(folder, 128) == (128, every)
    (folder / "later.tfevents").unlink()
    newest, tags = cut_back(folder, 128)
    assert newest == 128 and len(every - tags) == 1
    events.write_bytes(b"")
    assert cut_back(folder, 128) == (-1, set())
