"""Copies of an environment that a library in C++ steps all at once, made to end as every environment of Shoal does."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.core.spec import each
from shoal.core.types import PyTree, TimeStep
from shoal.environments.copies import broken, put
from shoal.environments.objective import Objective, Told, teller


class Moved(NamedTuple):
    """What a library says of one step of n copies; every leaf is [n, ...]."""

    obs: PyTree  # an array, or a dictionary of arrays; the last observation where an episode has ended
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: dict[str, Any]  # arrays [n, ...], or dicts of them


class Simulators(Protocol):
    """Several copies, of which one whose episode has ended waits until it is reset."""

    def start(self, seeds: list[int]) -> PyTree:
        """Begin the first episode of every copy, each with its seed. Returns obs [n, ...]."""

    def step(self, action: np.ndarray) -> Moved:
        """One step of every copy."""

    def again(self, copies: np.ndarray) -> PyTree:
        """Begin new episodes of some copies, int64 [k], with the random numbers that follow. Returns obs [k, ...]."""

    def rest(self, copies: np.ndarray) -> None:
        """See `Vector`."""

    def close(self) -> None: ...


class Pool:
    """A `Vector` of such copies: those whose episodes end are reset within the same step.

    Nothing is lost: a library that resets at the next step is asked to do it at once, so that the observation, the reward
    and the info of an episode's end are those of the episode.
    """

    def __init__(self, simulators: Simulators, objective: Objective):
        self._simulators, self._objective = simulators, objective

    def reset(self, seeds: list[int]) -> PyTree:
        return self._simulators.start(seeds)

    def step(self, action: np.ndarray) -> tuple[TimeStep, Told | None]:
        final, reward, terminated, truncated, info = self._simulators.step(action)
        reward = reward.astype(np.float32)
        lost = broken(final, reward)
        reward[lost] = np.nan
        obs, ended = final, np.flatnonzero(terminated | truncated | lost)
        if len(ended):
            obs = each(lambda x, first: put(x, ended, first), final, self._simulators.again(ended))
        step = TimeStep(obs, reward, terminated, truncated | lost, final)
        return step, teller(self._objective, lambda i: _of_copy(info, i))

    def rest(self, copies: np.ndarray) -> None:
        self._simulators.rest(copies)

    def turn(self, knobs: dict[str, np.ndarray]) -> None:
        """Their numbers cannot be reached, so that none is called a knob."""

    def close(self) -> None:
        self._simulators.close()


def _of_copy(info: dict[str, Any], copy: int) -> dict[str, Any]:
    return {name: _of_copy(x, copy) if isinstance(x, dict) else x[copy] for name, x in info.items()}
