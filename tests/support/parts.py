"""Environments whose observations are dictionaries of arrays, on the device and on the host."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from support.tiny import walk

from shoal.core.spec import Spec
from shoal.environments.device import DeviceEnvironment

SHAPES = {"state": (2,), "privileged_state": (1,), "bytes": (2, 2)}
DTYPES = {"state": "float32", "privileged_state": "float32", "bytes": "uint8"}
ASYMMETRIC = {"actor": ["state"], "critic": ["state", "privileged_state"]}


def spec_of(action: Any) -> Spec:
    return Spec(SHAPES, DTYPES, action)


def in_parts(actions: str = "continuous") -> DeviceEnvironment:
    """`walk`, with its time for critics alone, and a picture of its place."""
    whole = walk(actions)

    def seen(state: Any, obs: jax.Array) -> dict[str, jax.Array]:
        picture = jnp.full((2, 2), jnp.clip(100 * (obs[0] + 2), 0, 255), jnp.uint8)
        return {"state": obs, "privileged_state": state[1].astype(jnp.float32)[None], "bytes": picture}

    def reset(key: jax.Array) -> Any:
        obs, state = whole.reset(key)
        return seen(state, obs), state

    def step(*arguments: Any) -> Any:
        obs, state, *rest = whole.step(*arguments)
        return seen(state, obs), state, *rest

    return DeviceEnvironment(spec_of(whole.spec.action), reset, step)


class Rooms(gymnasium.Env):
    """Observations that are a dictionary: of numbers, bytes, one of three rooms, and a dictionary again.

    The seed is the first place; an episode ends after three steps.
    """

    observation_space = gymnasium.spaces.Dict(
        {
            "place": gymnasium.spaces.Box(-99, 99, (2,), np.float64),
            "bytes": gymnasium.spaces.Box(0, 255, (1, 2), np.uint8),
            "room": gymnasium.spaces.Discrete(3),
            "deep": gymnasium.spaces.Dict({name: gymnasium.spaces.Box(-9, 9, (1,)) for name in "ab"}),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.time = -1 if seed is None else seed % 10, 0
        return self._see(), {}

    def step(self, action: np.ndarray) -> Any:
        self.time += 1
        return self._see(), float(action[0]), self.time == 3, False, {}

    def _see(self) -> dict[str, Any]:
        deep = {"a": np.full(1, self.time, np.float32), "b": np.ones(1, np.float32)}
        place, picture = np.array([self.place, self.time], np.float64), np.full((1, 2), self.time, np.uint8)
        return {"place": place, "bytes": picture, "room": self.time % 3, "deep": deep}
