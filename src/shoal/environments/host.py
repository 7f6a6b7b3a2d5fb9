"""Environments that run on the host: many copies that step together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.core.spec import Spec
from shoal.core.types import PyTree, TimeStep
from shoal.environments.objective import Objective, Told


class Vector(Protocol):
    """Several copies of one environment, which step together and reset automatically."""

    def reset(self, seeds: list[int]) -> PyTree:
        """Reset every copy, each with its seed. Returns obs, every leaf [n, ...]."""

    def step(self, action: np.ndarray) -> tuple[TimeStep, Told | None]:
        """One step of every copy. Returns the time step, every leaf [n, ...], and what tells the objective after it, where
        one is named: of the episode that ended with it, or else of the one that goes on."""

    def rest(self, copies: np.ndarray) -> None:
        """Nobody looks at these copies, bool [n], before the next reset: they need not step, where that can be helped."""

    def turn(self, knobs: dict[str, np.ndarray]) -> None:
        """Set knobs, [n] each: every copy's own values. Called only where the environment says that it has these."""

    def close(self) -> None: ...


class HostEnvironment(NamedTuple):
    """An environment on the host.

    open: (n, objective) -> n copies; `objective`: a dotted key into the info of a step, a function of that info, or None
    at_levels: (first, end) -> the same environment, every episode of which draws its level from first <= level < end,
        uniformly, by the seed of its copy; None: it has no levels
    measured: what evaluations are played in, where that is another one: the same task without what only helps to learn it
    knobs: numbers of it that members may have their own of while they train, by name, with their usual values
    drawn: makes one of gymnasium that draws itself, where the environment is the user's and has no id by which to ask
    """

    spec: Spec
    open: Callable[[int, Objective], Vector]
    at_levels: Callable[[int, int], HostEnvironment] | None = None
    measured: HostEnvironment | None = None
    knobs: Mapping[str, float] = MappingProxyType({})
    drawn: Callable[[], Any] | None = None
