"""`shoal train --seeds`: a run of each, stopped and continued by one command, and the page that compares them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from support.messages import Said
from support.runs import flags, same_run, shoal, tiny
from support.synthetic_run import write_run

from shoal.commands.multi_run import show_seeds
from shoal.records.console import Display
from shoal.run.train import train
from shoal.study import seeds


def test_the_command_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, _, *rest = flags(tmp_path)
    command = ["train", "--seeds", "3", "7", *rest]
    folder, ended = tmp_path / "runs/CartPole-v1-ppo-seeds", Display.on_generation_end

    def stop(self: Display, event: Any) -> None:
        ended(self, event)
        if (folder / "seed-7").exists():
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Display, "on_generation_end", stop)
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
        ["--seeds"],
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


def test_seeds_without_a_champion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    """The mean is of the others, and the command fails, as a single run does whose members all diverged."""
    runs = []
    for seed, mean in ((1, 10.0), (2, None), (3, 20.0), (4, None)):
        run = write_run(tmp_path / f"seed-{seed}", 2, 2)
        result = json.loads((run / "result.json").read_text())
        result["champion"] = mean and result["champion"] | {"evaluation": {"mean": mean}}
        (run / "result.json").write_text(json.dumps(result))
        runs.append(run)
    monkeypatch.setattr(seeds, "train_seeds", lambda *_: runs)
    assert show_seeds(tiny(), (1, 2, 3, 4), (), quiet=True) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "mean of 2 of 4 seeds: 15 ± 5 (standard error)"
    said(err)
