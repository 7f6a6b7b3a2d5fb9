"""Populations learn the published tasks from priors so wide that most random members fail."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.experiment.experiment import Fitness
from shoal.experiment.files import load
from shoal.records.callback import Callback
from shoal.records.generation import Generation

pytestmark = pytest.mark.slow
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
RATES = dict.fromkeys(("policy_learning_rate", "critic_learning_rate", "temperature_learning_rate"), 1e-3)


class Enough(Callback):
    """Ends a run once its champion has this fitness."""

    def __init__(self, fitness: float):
        self.fitness = fitness

    def on_generation_end(self, event: Generation) -> bool:
        return event.champion.fitness < self.fitness


def outcome(name: str, seed: int, folder: Path, enough: float = np.inf, **changes) -> tuple[np.ndarray, dict]:
    """The final fitness of every member [N], -inf where it diverged, and what result.json says of the champion."""
    experiment = replace(
        load(EXPERIMENTS / f"{name}.yaml"), seed=seed, run_dir=str(folder / f"{name}-{seed}"), **changes
    )
    summary = shoal.train(experiment, [Enough(enough)]).summary
    fitness = [-np.inf if x is None else x for x in summary["fitness"].values()]
    return np.array(fitness), summary["champion"]["evaluation"]


def test_breakout_by_q_learning(tmp_path):
    """Chance gets about 0.5 points."""
    outcome("breakout-dqn", 0, tmp_path, enough=4, generations=5)
    lines = (tmp_path / "breakout-dqn-0" / "metrics.jsonl").read_text().splitlines()
    best = [json.loads(line)["fitness"]["best"] for line in lines]
    assert best[-1] >= 4
    assert best[-1] > best[0] + 2


def test_pendulum_from_memory(tmp_path):
    """Two seeds of SAC with one set of hyperparameters; RL Zoo has it at -157 after 20,000 steps. TD3 learns in CEM-RL."""
    changes = {"population": 2, "generations": 10, "interval": 2000, "method": "independent", "space": {}}
    fitness, champion = outcome(
        "fastpbrl/pbt-sac-small", 0, tmp_path, **changes, fitness=Fitness(episodes=100), hyper=RATES
    )
    assert (fitness >= -170).all(), fitness
    assert champion["mean"] >= -170


def test_cartpole_on_the_host(tmp_path):
    """Chance gets about 22; this run ends with its first champion of 475."""
    _, champion = outcome("cartpole", 0, tmp_path, enough=475, env="gym:CartPole-v1", population=4)
    assert champion["mean"] >= 400


@pytest.mark.parametrize(
    ("env", "package"),
    [("envpool:CartpoleBalance-v1", "envpool"), ("playground:CartpoleBalance", "mujoco_playground")],
)
def test_cartpole_balance(env, package, tmp_path):
    """A robot of MuJoCo Playground's, of at most 1000: what has learned nothing gets 160 to 420."""
    pytest.importorskip(package)
    changes = {"population": 2, "generations": 8, "interval": 32_768, "method": "independent", "space": {}}
    config = {"num_envs": 16, "rollout_length": 64, "num_minibatches": 8, "normalize_observations": True}
    changes |= {"hyper": {"learning_rate": 1e-3, "discount": 0.995}, "config": config, "final_episodes": 8}
    _, champion = outcome("robots/cartpole-balance", 0, tmp_path, enough=900, env=env, **changes)
    assert champion["mean"] >= 800


def test_pendulum(tmp_path):
    """Chance gets about -1200. The whole run ends with a median above -250; this one, with its first champion of -180."""
    _, champion = outcome("pendulum", 0, tmp_path, enough=-180)
    assert champion["mean"] >= -250


def test_cartpole(tmp_path):
    """What a population is worth against members that never copy is a study: experiments/studies/cartpole.yaml."""
    fitness, champion = outcome("cartpole", 0, tmp_path)
    assert np.median(fitness) >= 475 and champion["mean"] >= 495
