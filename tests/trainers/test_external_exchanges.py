"""External trainers across processes and agents: MPI, a shared directory, a schedule that Shoal's own PPO found."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ancestry import check_ancestry
from support.runs import COMMAND, mpiexec, rows, shoal, tiny

from shoal.experiment.experiment import Experiment, Fitness
from shoal.experiment.files import dump
from shoal.report.schedule import schedule
from shoal.run.train import train
from shoal.trainers.trainers import TrainerProcesses

HERE = sys.executable if importlib.util.find_spec("stable_baselines3") else ""
SB3 = os.environ.get("SHOAL_TRAINERS_PYTHON", HERE)
RL_GAMES = os.environ.get("SHOAL_TRAINERS_PYTHON", "")
TASK = Path(__file__).parents[1] / "support" / "rl_games" / "cartpole.yaml"

# Two shards of one process against two ranks of one shard each.
FLAGS = "--env gym:CartPole-v1 --agent sb3:PPO --population 4 --generations 3 --interval 32 --shards 2 --quiet"
FLAGS += " --set processes.count=1 --set final_episodes=4 --set fitness.episodes=2 --set config.n_steps=32"
FLAGS += " --method pbt --set method.select=winner_takes_all"  # so that somebody copies from elsewhere


@pytest.mark.slow
@pytest.mark.skipif(not SB3, reason="SHOAL_TRAINERS_PYTHON names no interpreter that has Stable-Baselines3")
def test_sb3_over_mpi(tmp_path: Path) -> None:
    lineages = []
    for ranks in (1, 2):
        run = tmp_path / f"{ranks}"
        command = [*COMMAND, "train", *FLAGS.split(), "--python", SB3, "--run-dir", str(run)]
        if ranks > 1:
            command = mpiexec(ranks, *command, "--exchange", "mpi")
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        lineages.append(rows(run / "lineage.jsonl"))
    one, two = lineages
    assert one == two and any(row["parent"] // 2 != row["uid"] // 2 for row in one), "states travelled"


@pytest.mark.slow
@pytest.mark.skipif(not RL_GAMES, reason="SHOAL_TRAINERS_PYTHON names no interpreter that has rl_games")
def test_rl_games_through_a_directory(tmp_path: Path) -> None:
    """Workers one after another: the later one copies what the first has published."""
    best = {"name": "pbt", "select": "winner_takes_all"}
    for worker in ("a", "b"):
        train(
            Experiment(
                **{"env": "gym:CartPole-v1", "agent": f"rl_games:{TASK}", "python": RL_GAMES, "population": 2},
                **{"generations": 3, "interval": 64, "final_episodes": 2, "method": best, "seed": 1},
                exchange={"name": "directory", "workspace": str(tmp_path / "shared"), "worker": worker},
                fitness=Fitness(episodes=2),
                processes=TrainerProcesses(count=1),
            )
        )
    assert check_ancestry(tmp_path / "shared") >= 1


@pytest.mark.slow
@pytest.mark.skipif(not SB3, reason="SHOAL_TRAINERS_PYTHON names no interpreter that has Stable-Baselines3")
def test_sb3_follows_what_ppo_found(tmp_path: Path) -> None:
    train(tiny(tmp_path / "own"))
    theirs = Experiment(
        **{"env": "gym:CartPole-v1", "agent": "sb3:PPO", "python": SB3, "final_episodes": 1},
        config={"n_steps": 32, "n_envs": 2, "policy_kwargs": {"net_arch": [8]}},
        fitness=Fitness(episodes=1),
    )
    (tmp_path / "theirs.yaml").write_text(dump(theirs))
    outcome = shoal("replay", tmp_path / "own", tmp_path / "theirs.yaml", "--quiet")
    assert outcome.code == 0, outcome.err
    names = {"learning_rate": "learning_rate", "discount": "gamma", "entropy_coefficient": "ent_coef"}
    followed = rows(tmp_path / "own-replay" / "lineage.jsonl")
    for row, found in zip(followed, schedule(tmp_path / "own"), strict=True):
        assert all(row["hyper"][there] == pytest.approx(found[here], rel=1e-6) for here, there in names.items())
