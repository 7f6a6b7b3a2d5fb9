"""Environments that run on the host: many copies that step together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.core.spec import Spec, each, none_legal
from shoal.core.types import PyTree, TimeStep
from shoal.environments.objective import InfoOf


class VectorEnv(Protocol):
    """Several copies of one environment, which step together and reset automatically."""

    def reset(self, seeds: list[int]) -> PyTree:
        """Reset every copy, each with its seed. Returns obs, every leaf [n, ...]."""

    def step(self, action: np.ndarray) -> tuple[TimeStep, InfoOf]:
        """Step every copy. Returns the time step, every leaf [n, ...], and what gives the info of a copy after it: of
        the episode that ended with it, or else of the one that goes on."""

    def mark_unused(self, copies: np.ndarray) -> None:
        """Mark copies, bool [n], whose steps are not used before the next reset: they need not step where possible."""

    def set_env_parameters(self, env_parameters: dict[str, np.ndarray]) -> None:
        """Set environment parameters, [n] each, one value per copy. Only called with those that the environment has."""

    def close(self) -> None: ...


class HostEnvironment(NamedTuple):
    """An environment on the host.

    open: (n) -> n copies
    at_levels: (first, end) -> the same environment, every episode of which draws its level from first <= level < end,
        uniformly, by the seed of its copy; None: it has no levels
    measured: what evaluations are played in, where that is another one: the same task without what only helps to learn it
    env_parameters: numbers of it that members may have their own of while they train, by name, with their defaults
    normalising: what each copy scales by what it has seen so far, and by which wrapper, in words
    episode_limit: steps after which every episode ends, where that is known
    drawn: makes one of gymnasium that draws itself, where the environment is the user's and has no id by which to ask
    """

    spec: Spec
    open: Callable[[int], VectorEnv]
    at_levels: Callable[[int, int], HostEnvironment] | None = None
    measured: HostEnvironment | None = None
    env_parameters: Mapping[str, float] = MappingProxyType({})
    drawn: Callable[[], Any] | None = None
    normalising: tuple[str, ...] = ()
    episode_limit: int | None = None


class VectorStep(NamedTuple):
    """The result of one step of n copies; every leaf is [n, ...]."""

    obs: PyTree  # an array, or a dictionary of arrays; the last observation where an episode has ended
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: InfoOf
    begun: PyTree = None  # where the library itself has reset those: what to act on next


class AutoResetVectorEnv(VectorEnv):
    """Copies that a library steps. Those whose episodes end, or are lost, are reset within the same step.

    Nothing is lost: a library that resets at the next step is asked to do it at once, so that the observation, the reward
    and the info of an episode's end are those of the episode.

    masked: observations say which choices are legal
    """

    masked = False

    def step_raw(self, action: np.ndarray) -> VectorStep:
        """Step every copy, without resets."""
        raise NotImplementedError

    def reset_copies(self, copies: np.ndarray) -> PyTree:
        """Begin new episodes of some copies, int64 [k], with the random numbers that follow. Returns obs [k, ...]."""
        raise NotImplementedError

    @np.errstate(over="ignore")  # numbers too large for float32 become infinite, which is handled here
    def step(self, action: np.ndarray) -> tuple[TimeStep, InfoOf]:
        final, reward, terminated, truncated, info, begun = self.step_raw(action)
        reward = reward.astype(np.float32)
        done = terminated | truncated
        lost = _broken(final, reward)
        if self.masked:
            lost |= none_legal(final) & ~done
        reward[lost] = np.nan
        obs, waiting = (final, done | lost) if begun is None else (begun, lost & ~done)
        if waiting.any():
            rows = np.flatnonzero(waiting)
            obs = each(lambda x, first: put(x, rows, first), obs, self.reset_copies(rows))
        return TimeStep(obs, reward, terminated, truncated | lost, final), info

    def mark_unused(self, copies: np.ndarray) -> None:
        """A library that cannot leave out some copies steps them all."""

    def set_env_parameters(self, env_parameters: dict[str, np.ndarray]) -> None:
        """Refuse: an environment whose numbers cannot be reached has no environment parameters."""


def info_at(infos: Mapping[str, Any], copy: int) -> dict[str, Any]:
    """The info of one copy, from that of all, arrays [n, ...] or dictionaries of them.

    Where an array `_NAME` stands beside one, as gymnasium has it, it says which copies have NAME.
    """
    there = (name for name in infos if not name.startswith("_"))
    names = [name for name in there if f"_{name}" not in infos or infos[f"_{name}"][copy]]
    return {name: info_at(x, copy) if isinstance(x := infos[name], Mapping) else x[copy] for name in names}


def _broken(obs: PyTree, reward: np.ndarray) -> np.ndarray:
    """Mark the copies whose reward or observation, every leaf [n, ...], is not finite: bool [n]."""
    found = ~np.isfinite(reward)
    for x in obs.values() if isinstance(obs, Mapping) else [obs]:
        if x.dtype != np.uint8:
            found |= ~np.isfinite(x).reshape(len(x), -1).all(1)
    return found


def own(tree: Any) -> Any:
    """The same dictionaries, lists and tuples, with copies of the arrays in them: an environment may hand out a buffer that
    it changes in place later."""
    if isinstance(tree, np.ndarray):
        return tree.copy()
    if isinstance(tree, Mapping):
        return {key: own(x) for key, x in tree.items()}
    return type(tree)(map(own, tree)) if type(tree) in (list, tuple) else tree


def put(x: np.ndarray, rows: np.ndarray, values: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """A copy of an array [n, ...] with other values in some rows."""
    x = x.copy()
    x[rows] = values
    return x
