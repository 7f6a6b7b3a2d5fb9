"""An environment whose return is its level: one step, whatever the action. So every number tells where it was measured."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core.spec import Discrete, Spec
from shoal.core.types import TimeStep
from shoal.environments.device import DeviceEnvironment
from shoal.environments.host import HostEnvironment

SPEC = Spec((1,), "float32", Discrete(2))
NOWHERE = -1  # the level where no levels were asked for


def on_device() -> DeviceEnvironment:
    def between(first: Any, end: Any) -> DeviceEnvironment:
        def reset(key: jax.Array) -> tuple[jax.Array, Any]:
            level = first + jnp.floor(jax.random.uniform(key) * (end - first))
            return level[None] / 1e9, level

        def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
            return jnp.zeros(1), state, state, jnp.bool(True), jnp.bool(False)

        return DeviceEnvironment(SPEC, reset, step, at_levels=lambda first, end: between(*map(number, (first, end))))

    def number(x: Any) -> jax.Array:
        return jnp.asarray(x).astype(jnp.float32) if isinstance(x, jax.Array) else jnp.float32(x)

    return between(number(NOWHERE), number(NOWHERE + 1))


class Copies:
    def __init__(self, n: int, first: int, end: int):
        self._draws: list[Any] = []
        self._span, self._n = (first, end), n

    def _drawn(self) -> np.ndarray:
        return np.array([draw.integers(*self._span) for draw in self._draws], np.float32)

    def reset(self, seeds: list[int]) -> np.ndarray:
        assert len(seeds) == self._n
        self._draws = [np.random.default_rng(seed) for seed in seeds]
        self._now = self._drawn()
        return self._now[:, None] / np.float32(1e9)

    def step(self, action: np.ndarray) -> tuple[TimeStep, None]:
        level, self._now = self._now, self._drawn()
        obs, last = self._now[:, None] / np.float32(1e9), np.zeros((self._n, 1), np.float32)
        return TimeStep(obs, level, np.ones(self._n, bool), np.zeros(self._n, bool), last), None

    def mark_unused(self, copies: np.ndarray) -> None:
        pass

    def close(self) -> None:
        pass


def on_host() -> HostEnvironment:
    def between(first: int, end: int) -> HostEnvironment:
        return HostEnvironment(SPEC, lambda n: Copies(n, first, end), between)

    return between(NOWHERE, NOWHERE + 1)
