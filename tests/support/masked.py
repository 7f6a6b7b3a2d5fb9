"""An environment with action masks, and one of several agents, for any interpreter that has gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

BOX, MASK = gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Box(0, 1, (3,), np.uint8)


class Masked(gymnasium.Env):
    """Eight steps, in each of which another choice out of three is illegal, which raises an error.

    where: the mask is in the `info`, but for that of the last step; in the `observation`; or what the `method` action_masks
        returns
    """

    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, where: str = "info"):
        self._where = where
        seen = {"observation": BOX, "action_mask": MASK}
        self.observation_space = gymnasium.spaces.Dict(seen) if where == "observation" else BOX
        if where == "method":
            self.action_masks = lambda: self._mask != 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._drawn()

    def _drawn(self) -> tuple[Any, dict[str, Any]]:
        self._obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self._mask = np.ones(3, np.int8)
        self._mask[self.np_random.integers(3)] = 0
        if self._where == "observation":
            return {"observation": self._obs, "action_mask": self._mask.astype(np.uint8)}, {}
        return self._obs, {"action_mask": self._mask} if self._where == "info" and self._steps < 8 else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self._mask[action], "an illegal choice"
        reward = float((action - 1) * self._obs[0])
        self._steps += 1
        obs, info = self._drawn()
        return obs, reward, self._steps == 8, False, info


class Several:
    """An environment of several agents, as far as PettingZoo's say so when they are made."""

    possible_agents = ("first", "second")
