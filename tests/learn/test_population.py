"""Populations learn the published tasks from priors so wide that most random members fail; several seeds each."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import wilcoxon

import shoal
from shoal.experiment import load

pytestmark = pytest.mark.slow
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SEEDS = (0, 1, 2)


def outcome(name: str, seed: int, folder: Path, **changes) -> tuple[np.ndarray, dict]:
    """The final fitness of every member [N], -inf where it diverged, and what result.json says of the champion."""
    experiment = replace(
        load(EXPERIMENTS / f"{name}.yaml"), seed=seed, run_dir=str(folder / f"{name}-{seed}"), **changes
    )
    summary = shoal.train(experiment).summary
    fitness = [-np.inf if x is None else x for x in summary["fitness"].values()]
    return np.array(fitness), summary["champion"]["evaluation"]


@pytest.mark.parametrize("seed", SEEDS)
def test_cartpole(seed, tmp_path):
    fitness, champion = outcome("cartpole", seed, tmp_path)
    assert fitness.mean() >= 475
    assert champion["mean"] == 500


@pytest.mark.parametrize("seed", SEEDS)
def test_acrobot(seed, tmp_path):
    fitness, champion = outcome("acrobot", seed, tmp_path)
    assert np.median(fitness) >= -100
    assert champion["mean"] >= -100


@pytest.mark.parametrize("seed", SEEDS)
def test_pendulum(seed, tmp_path):
    fitness, champion = outcome("pendulum", seed, tmp_path)
    assert np.median(fitness) >= -200
    assert champion["mean"] >= -200


def test_lunarlander(tmp_path):
    _, champion = outcome("lunarlander", 0, tmp_path)
    assert champion["mean"] >= 200


@pytest.mark.parametrize(("name", "seeds"), [("cartpole", 6), ("pendulum", 5)])
def test_pbt_beats_independent_members(name, seeds, tmp_path):
    """The population's median against the same priors without copying, at equal steps.

    A signed-rank test over seeds, for the gains are far from normal: where the prior happens to suit most members,
    both reach the same ceiling.
    """
    gains = []
    for seed in range(seeds):
        evolved, _ = outcome(name, seed, tmp_path / "pbt")
        control, _ = outcome(name, seed, tmp_path / "control", select="keep", explore="keep")
        gains.append(np.median(evolved) - np.median(control))
    assert wilcoxon(gains, alternative="greater").pvalue < 0.05, gains
