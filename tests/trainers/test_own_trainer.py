"""The example of a trainer of one's own, held to the conformance kit, and run as its page says."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core.errors import BadField
from shoal.testing import TrainerContract
from shoal.trainers.process import Recipe, TrainerProcess

EXAMPLES = str(Path(__file__).parents[2] / "examples")
PYTHON = os.environ.get("SHOAL_TRAINERS_PYTHON", sys.executable)
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None and "SHOAL_TRAINERS_PYTHON" not in os.environ,
    reason="PyTorch is not installed here, and SHOAL_TRAINERS_PYTHON names no interpreter that has it",
)


class TestOwnPpo(TrainerContract):
    python, path = PYTHON, (EXAMPLES,)
    trainer, env, steps = "own_trainer:OwnPpo", "CartPole-v1", 128
    config = {"n_envs": 2, "n_steps": 32, "hidden": 16}  # noqa: RUF012
    values = {"clip_range": 0.001}  # noqa: RUF012


@pytest.mark.parametrize(
    "env, config, message",
    [
        ("Pendulum-v1", {}, "this PPO needs one choice out of n as action, not Box"),
        ("CartPole-v1", {"n_env": 2}, "unexpected keyword argument 'n_env'|does not take it"),
    ],
)
def test_what_it_cannot_train(tmp_path, env, config, message):
    process = TrainerProcess(PYTHON, Recipe("own_trainer:OwnPpo", env, {}, config, (EXAMPLES,)), tmp_path / "log")
    try:
        with pytest.raises(BadField, match=message):
            _ = process.description
    finally:
        process.close()


def test_it_trains_as_its_page_says(tmp_path):
    """From the folder of the file, four members in as many processes as there are cores."""
    told = "--agent own_trainer:OwnPpo --env CartPole-v1 --population 4 --generations 2 --interval 512"
    command = [sys.executable, "-m", "shoal", "train", *told.split(), "--run-dir", str(tmp_path / "run")]
    done = subprocess.run([*command, "--python", PYTHON], cwd=EXAMPLES, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "run" / "lineage.jsonl").read_text().splitlines()]
    assert len(lines) == 8 and {line["uid"] for line in lines} == set(range(4))
    assert all(line["steps"] == 512 * (line["generation"] + 1) for line in lines)
    assert (tmp_path / "run" / "trainers" / "0.log").exists()
