"""Runs as somebody else may have made them: whole, and with fields that name code which tells when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.runs import at_work, tiny
from support.synthetic_run import write_run
from support.whole_run import LEARNED, SPEC

from shoal.core.candidates import Candidate
from shoal.experiment.files import dump
from shoal.run.champion import save


def forged(run: Path, **fields: Any) -> Path:
    """A run of PPO on CartPole with records and a champion, whose experiment.yaml has these fields."""
    experiment = tiny(env="gymnax:CartPole-v1", hyper={}, space={"learning_rate": [1e-4, 1e-2, "log"]})
    write_run(run, population=4, generations=2)
    with at_work(run) as staging:
        save(run / "champion", Candidate(LEARNED, 1, 1, 9.0, {"learning_rate": 1e-3}), SPEC, staging)
    whole = tiny(**{"env": experiment.env, "hyper": {}, "space": experiment.space} | fields)
    (run / "experiment.yaml").write_text(dump(whole))
    return run


def loud(folder: Path, heard: Path) -> None:
    """A package in a folder, and a module `x` in it, each of which writes a line into the file `heard` when it runs."""
    folder.mkdir(parents=True)
    for name in ("__init__", "x"):
        (folder / f"{name}.py").write_text(f"with open({str(heard)!r}, 'a') as file:\n    print(__name__, file=file)\n")
