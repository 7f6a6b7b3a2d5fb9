"""Wrappers that Stable-Baselines3 needs around an environment. Part of the adapter `sb3.py`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from shoal_trainers.recipe import BadRecipe

MASK = "action_mask"


class Kept(gymnasium.ObservationWrapper):
    """Hands out observations that stay as they are: SB3 begins the next episode before it copies the last one of this."""

    def observation(self, observation: Any) -> Any:
        return copy.deepcopy(observation)


class WithMasks(gymnasium.Wrapper):
    """Has the method `action_masks` that MaskablePPO calls: the mask of the last observation, or of its info."""

    def reset(self, **how: Any) -> Any:
        obs, info = self.env.reset(**how)
        self._mask = self._found(obs, info)
        return obs, info

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if not (terminated or truncated):  # after the last step nobody acts, and there may be no mask
            self._mask = self._found(obs, info)
        return obs, reward, terminated, truncated, info

    def _found(self, obs: Any, info: Mapping[str, Any]) -> np.ndarray:
        return np.hstack((obs if isinstance(obs, Mapping) and MASK in obs else info)[MASK]) != 0

    def action_masks(self) -> np.ndarray:
        return self._mask


def with_masks(env: gymnasium.Env, name: str) -> gymnasium.Env:
    """The environment with a method `action_masks`. Raises BadRecipe where it says nowhere which actions are legal."""
    if env.has_wrapper_attr("action_masks"):
        return env
    env = WithMasks(env)
    try:
        env.reset()
    except KeyError as error:
        problem = "has no action masks: no method action_masks, and no action_mask in its observations or info"
        raise BadRecipe("env", f"{name} {problem}") from error
    return env
