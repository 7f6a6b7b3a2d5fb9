"""Champions with random weights, and their files as another program runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnxruntime
from support.tiny import make_agent, space_of

from shoal.agents.policy import policy
from shoal.agents.ppo import ppo
from shoal.core.candidates import Candidate
from shoal.core.spec import ActionSpace, Spec
from shoal.core.types import Agent
from shoal.experiment.experiment import Experiment
from shoal.members.acting import by_agent
from shoal.run.champion import Champion


def champion_of(agent: Agent, spec: Spec) -> Champion:
    """A champion with random numbers for all that it could have learned."""
    random = np.random.default_rng(1)

    def draw(x: Any) -> np.ndarray:
        drawn = random.normal(size=x.shape)
        return (0.5 * drawn if x.ndim > 1 else 0.1 * np.abs(drawn)).astype(x.dtype)  # deviations are positive

    learned = jax.tree.map(draw, jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper)).learned)
    return Champion(by_agent(agent, spec), spec, Candidate(learned, 3, 7, 1.5), Experiment())


def made(name: str, actions: str, obs: tuple[int, ...] = (3,), dtype: str = "float32", **settings: Any) -> Champion:
    spec = Spec(obs, dtype, space_of(actions))
    if name == "policy":
        return champion_of(policy(spec, layers=(8,), normalize_observations=True, **settings), spec)
    return champion_of(make_agent(name, actions, obs, dtype, **settings), spec)


def of_ppo(action: ActionSpace) -> Champion:
    """One for actions of any kind."""
    spec = Spec((3,), "float32", action)
    return champion_of(ppo(spec, layers=(8,), normalize_observations=True), spec)


def session_of(file: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
