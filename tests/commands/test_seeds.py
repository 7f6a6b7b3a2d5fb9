"""`shoal train --seeds`: a run of each, stopped and continued by one command, and the page that compares them."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from support.messages import Said
from support.runs import flags, same_run, shoal, tiny

from shoal.records.console import Display
from shoal.run.loop import train


def test_the_command_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, _, *rest = flags(tmp_path)
    command = ["train", "--seeds", "3", "7", *rest]
    folder, ended = tmp_path / "runs/CartPole-v1-ppo-seeds", Display.generation

    def stop(self: Display, event: Any) -> None:
        ended(self, event)
        if (folder / "seed-7").exists():
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Display, "generation", stop)
        outcome = shoal(*command, "--quiet")
    assert outcome.code == 3
    said(*outcome.out.splitlines()[-1:])
    first = (folder / "seed-3/result.json").stat().st_mtime_ns
    for _ in range(2):
        outcome = shoal(*command, "--quiet")
        assert outcome.code == 0, outcome.err
        heads, *rows, page, mean = outcome.out.splitlines()
        assert [row.split()[0] for row in rows] == ["seed-3", "seed-7"]
        assert page == "open runs/CartPole-v1-ppo-seeds/comparison.html" and mean.startswith("mean of 2 seeds: ")
    assert first == (folder / "seed-3/result.json").stat().st_mtime_ns, "what is done stays"
    train(tiny(tmp_path / "alone", seed=7))
    same_run(folder / "seed-7", tmp_path / "alone")
    other = shoal(*command, "--run-dir", folder, "--set", "interval=128")
    assert other.code == 2
    said(other.err)


@pytest.mark.parametrize(
    "given",
    [
        ["--seeds", "1"],
        ["--seeds", "1", "1"],
        ["--seeds", "1", "-1"],
        ["--seeds", "1", "2.5"],
        ["--seeds", "1", "2", "--seed", "3"],
        ["--seeds", "1", "2", "--set", "population=auto"],
        ["--seeds", "1", "2", "--exchange", "mpi"],
        ["--seeds", "1", "2", "--workers", "2"],
    ],
    ids=" ".join,
)
def test_seeds_that_make_no_runs(given: list[str], tmp_path: Path, said: Said) -> None:
    outcome = shoal(*flags(tmp_path / "run"), *given)
    assert outcome.code == 2 and not (tmp_path / "run").exists()
    said(outcome.err)
