"""A run is the same, bit for bit, whatever else is set on the machine; and what could make it differ is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import others_slow
from support.runs import CONFIG, build_run, flags, same_run, tiny

from shoal.core.types import START, Learner
from shoal.members.gradient_trained import GradientTrainedShard
from shoal.members.rollouts.device import DeviceRollouts

MAIN = "from shoal.cli import main; main()"
REPLAY = {
    "layers": [8],
    "rollout_length": 16,
    "num_envs": 2,
    "buffer_size": 256,
    "learning_starts": 32,
    "batch_size": 8,
}
KINDS: dict[str, dict[str, Any]] = {
    "ppo": {"config": CONFIG},
    "dqn": {"config": REPLAY},
    "sac": {"env": "Pendulum-v1", "config": REPLAY},
    "td3": {"env": "Pendulum-v1", "config": REPLAY},
    "policy": {"config": {"layers": [8], "lstm_hidden_size": 4}, "method": "es"},
    "dvd": {"env": "Pendulum-v1", "agent": "td3", "config": REPLAY, "method": "dvd"},
    "cem_rl": {"env": "Pendulum-v1", "agent": "td3", "config": REPLAY, "method": "cem_rl"},
}


@pytest.mark.parametrize("kind", others_slow(KINDS, "ppo", "policy"))
def test_nothing_is_left_to_lapack(kind: str) -> None:
    """Its last bits depend on OPENBLAS_CORETYPE and on threads."""
    parts = build_run(tiny(**{"agent": kind} | KINDS[kind]))
    learner, key, uid = parts.learner, jax.random.key(0), np.arange(4, dtype=np.uint32)
    hyper = learner.agent.hyper._replace(**{name: jnp.zeros(4) for name in learner.agent.hyper._fields})
    programs = [jax.jit(learner.init).lower(key, uid, hyper)]
    population = jax.eval_shape(learner.init, key, uid, hyper)
    if isinstance(learner, Learner):
        assert isinstance(parts.shard, GradientTrainedShard)
        rollouts = parts.shard.rollouts
        assert isinstance(rollouts, DeviceRollouts)
        # Their programs are private: none runs anything else.
        world = jax.eval_shape(rollouts._reset, uid, {}, key)
        programs.append(jax.jit(rollouts._iterate).lower(population, world, uid, key, START, jnp.int32(0)))
    else:
        programs.append(jax.jit(learner.tell).lower(population, uid, jnp.zeros(4), key))
        programs.append(jax.jit(learner.improve).lower(population, key))
    for program in programs:
        assert "lapack" not in program.as_text()


@pytest.mark.slow  # where programs are compiled as thoroughly as those of users
def test_environment_variables_and_cores_change_nothing(tmp_path: Path) -> None:
    """A run with an emptied environment, another kind of core for OpenBLAS and a single core; as many devices."""
    given = ("PATH", "PYTHONPATH", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
    bare = {name: os.environ[name] for name in given if name in os.environ} | {"OPENBLAS_CORETYPE": "Prescott"}
    pinned = f"import os; os.sched_setaffinity(0, [{min(os.sched_getaffinity(0))}]); {MAIN}"
    wide = {"config": CONFIG | {"layers": [64]}, "generations": 1}  # narrower matrices are the same on all cores
    for name, code, environment in (("usual", MAIN, dict(os.environ)), ("bare", pinned, bare)):
        command = [sys.executable, "-c", code, *flags(tmp_path / name, "--quiet", **wide)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    same_run(tmp_path / "usual", tmp_path / "bare")
