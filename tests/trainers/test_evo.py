"""EVO's experiments with smaller rollouts: what they tune takes effect, which it did not there."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.trainees import member

from shoal.experiment.files import load
from shoal.experiment.plan import make_plan
from shoal.trainers.trainers import Trainers

PYTHON = os.environ.get("SHOAL_TRAINERS_PYTHON", sys.executable)
EXPERIMENTS = Path(__file__).parents[2] / "experiments" / "evo"
SMALL = {"n_envs": 2, "n_steps": 16, "batch_size": 8, "n_epochs": 1}
FIND = "import sys, importlib.util as u; sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))"


@pytest.mark.parametrize(
    "name, package, inputs", [("cartpole", "gymnasium", 4), ("ant-bullet", "pybullet_envs_gymnasium", 28)]
)
def test_rates_and_discounts_take_effect(tmp_path: Path, name: str, package: str, inputs: int) -> None:
    if subprocess.run([PYTHON, "-c", FIND, "stable_baselines3", package]).returncode:
        pytest.skip(
            f"{PYTHON} lacks Stable-Baselines3 or {package}; SHOAL_TRAINERS_PYTHON may name another interpreter"
        )
    experiment = load(EXPERIMENTS / f"{name}.yaml")
    trainers = make_plan(replace(experiment, python=PYTHON, config=experiment.config | SMALL)).kind.tunable
    assert isinstance(trainers, Trainers)
    try:
        (process,) = trainers.open(1, tmp_path)
        learned = []
        for uid, values in enumerate([{}, {"learning_rate": 9e-4}, {"gamma": 0.8}]):
            trained = member(process, uid)
            trained.train(1, 32)
            trained.hyper |= values
            assert trained.train(2, 32).report.steps == 32 and trained.state is not None
            weights = [x for name, x in trained.state.learned.items() if name.startswith("policy/")]
            assert trained.state.learned["policy/mlp_extractor.policy_net.0.weight"].shape[1] == inputs
            assert all(np.isfinite(x).all() for x in weights)
            learned.append(np.concatenate([x.ravel() for x in weights]))
        usual, faster, nearsighted = learned
        assert not np.array_equal(usual, faster) and not np.array_equal(usual, nearsighted)
    finally:
        trainers.close()
