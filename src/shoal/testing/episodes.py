"""Episodes that a trainee plays by `act`, in an environment of this process."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.trainers.process import Recipe
from shoal.trainers.recipe import environment
from shoal.trainers.remote import RemoteTrainer

LONGEST = 5_000  # steps of an episode that is played


def made(recipe: Recipe) -> Any:
    """The environment of a recipe, as trainers make it with gymnasium; None where that is not possible here."""
    try:
        return environment(recipe.env, recipe.env_options)
    except Exception:  # of other people's code, which may need what only the trainer's interpreter has
        return None


def episode(env: Any, member: RemoteTrainer, dtype: str, seed: int) -> float | None:
    """The return of the episode of a seed; None where it does not end."""
    obs, total = env.reset(seed=seed)[0], 0.0
    for _ in range(LONGEST):
        (action,) = member.act(np.asarray(obs, dtype)[None])
        obs, reward, terminated, truncated, _ = env.step(np.asarray(action, env.action_space.dtype))
        total += float(reward)
        if terminated or truncated:
            return total
    return None
