"""A schedule that one kind of agent found, followed by another kind."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs import rows, shoal, tiny

from shoal.agents.registry import AGENTS
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import dump
from shoal.report.schedule import schedule
from shoal.run.train import train
from shoal.study import replay
from shoal.trainers.live import LIVE, of_sb3, translate


def renamed(run: Path, place: Path, agent: str, names: dict[str, str]) -> Path:
    """A copy of a run whose hyperparameters have other names, as if another agent had made it."""
    shutil.copytree(run, place)
    for file in (place / "experiment.yaml", place / "lineage.jsonl"):
        text = file.read_text().replace("agent: ppo", f"agent: {agent}")
        for old, new in names.items():
            text = text.replace(old, new)
        file.write_text(text)
    return place


def test_names_that_lead_nowhere() -> None:
    own = {name for agent in AGENTS.values() for name in agent.hyper._fields}
    for adapter, table in LIVE.items():
        standard = [live.standard for live in table.values() if live.standard]
        assert set(standard) <= own and len(set(standard)) == len(standard) > 5, adapter


def test_values_that_mean_the_same() -> None:
    """The critic's part of the loss: here and in rl_games half of the mean square counts, in SB3 all of it."""
    sb3, rl_games, own = LIVE["sb3"], LIVE["rl_games"], AGENTS["ppo"].hyper._fields
    errors = np.random.default_rng(0).normal(size=100)
    ours = translate({"vf_coef": 0.5, "n_epochs": 10}, sb3, own, {})
    assert ours == {"value_coefficient": 1.0, "epochs": 10}
    assert ours["value_coefficient"] * (errors**2 / 2).mean() == pytest.approx(0.5 * (errors**2).mean())
    theirs = translate({"critic_coef": 4.0, "tau": 0.9, "kl_threshold": 0.01}, rl_games, ("gae_lambda", "vf_coef"), sb3)
    assert theirs == {"vf_coef": 2.0, "gae_lambda": 0.9}
    # The `tau` of rl_games is no step of a target network, as everywhere else.
    assert translate({"tau": 0.005}, {}, ("tau", "gamma"), rl_games) == {}


def test_an_infinite_argument_of_sb3_is_no_hyperparameter() -> None:
    """A max_grad_norm of infinity clips nothing; a hyperparameter of a run is finite."""
    assert of_sb3("PPO", {"max_grad_norm": math.inf, "vf_coef": 0.5, "ent_coef": "auto"}) == {"vf_coef": 0.5}


def test_ppo_follows_what_sb3_found(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "discount": "gamma",
        "entropy_coefficient": "ent_coef",
        "gae_lambda": "vf_coef",
        "clip_range": "batch_size",
    }
    run = renamed(six, tmp_path / "r", "sb3:PPO", names)
    (tmp_path / "own.yaml").write_text(dump(tiny(interval=640, hyper={"epochs": 2.0})))
    asked: list[Experiment] = []

    def watch(experiment: Experiment, callbacks: Any) -> Any:
        asked.append(experiment)
        return train(experiment, callbacks)

    monkeypatch.setattr(replay, "train", watch)
    outcome = shoal("replay", run, tmp_path / "own.yaml", "--population", 4, "--quiet", "--run-dir", tmp_path / "again")
    assert outcome.code == 0, outcome.err
    assert "ppo has no batch_size: left out of the schedule" in outcome.out + outcome.err
    (experiment,) = asked
    assert (experiment.interval, experiment.generations, experiment.hyper) == (64, 6, {"epochs": 2.0})
    for row, found in zip(rows(tmp_path / "again" / "lineage.jsonl")[::4], schedule(six), strict=True):
        wanted = {name: found[name] for name in ("learning_rate", "discount", "entropy_coefficient")}
        wanted["value_coefficient"] = 2 * found["gae_lambda"]
        assert wanted.items() <= row["hyper"].items()


def test_an_agent_that_has_none_of_it(six: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("{env: none, agent: support.trainers:Sound}")
    outcome = shoal("replay", six, tmp_path / "own.yaml", "--run-dir", tmp_path / "again")
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert "has no schedule for support.trainers:Sound, which has none of clip_range, discount," in outcome.err
    assert not (tmp_path / "again").exists()
