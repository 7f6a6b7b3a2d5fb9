"""Environments of a user's own, as Isaac Lab's are: tensors, all in one object that knows how many there are, states for
the critic, and a curriculum. A point is pushed to the origin."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv


class Reach:
    num_envs = 4

    def __init__(self, length=10):
        self.length = length


class ReachVecEnv(IVecEnv):
    def __init__(self, name, num_actors, **options):
        self.env = env_configurations.configurations[name]["env_creator"](**options)
        self._level, self._generator = 1.0, torch.Generator()

    def seed(self, seed):
        self._generator.manual_seed(seed)

    def get_env_info(self):
        box = gymnasium.spaces.Box
        spaces = {name: box(-9, 9, (n,), np.float32) for name, n in (("observation_space", 2), ("state_space", 3))}
        return {**spaces, "action_space": box(-1, 1, (2,), np.float32)}

    def get_env_state(self):
        return {"level": self._level}

    def set_env_state(self, state):
        self._level = state["level"]

    def reset(self):
        self._position, self._age = self._start(), torch.zeros(Reach.num_envs)
        return self._obs()

    def step(self, actions):
        self._position = self._position + 0.3 * actions
        self._age = self._age + 1 + torch.rand(Reach.num_envs, generator=self._generator).round()
        rewards, dones = -self._position.norm(dim=-1), self._age >= self.env.length
        if dones.any():
            self._level = min(self._level * 1.01, 3.0)
        self._position = torch.where(dones[:, None], self._start(), self._position)
        self._age = torch.where(dones, 0.0, self._age)
        return self._obs(), rewards, dones, {"time_outs": dones, "episode": {"Curriculum/level": self._level}}

    def _start(self):
        return self._level * torch.randn((Reach.num_envs, 2), generator=self._generator)

    def _obs(self):
        return {"obs": self._position, "states": torch.cat([self._position, self._age[:, None]], -1)}


vecenv.register("REACH", ReachVecEnv)
env_configurations.register("reach", {"vecenv_type": "REACH", "env_creator": lambda **options: Reach(**options)})
