"""Host environments: whole episodes without learning.

All environments of a population are one flat vector that steps on the host; acting is on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core.keys import at, stream
from shoal.core.types import AnyLearner, Population, PyTree, Rollout
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.host import HostEnvironment, VectorEnv
from shoal.environments.levels import at_levels
from shoal.environments.objective import FIELDS, InfoOf, Objective, in_infos
from shoal.environments.spaces import to_bounds
from shoal.members.devices import MEMBERS, OF_POPULATION, REPLICATED, DeviceLayout, Program
from shoal.members.rollouts.episodes import PlayedEpisodes, WholeEpisodes, advance, begin


class HostEpisodes(WholeEpisodes):
    """Whole episodes of N members in host environments, without learning; one policy call for all of them per step."""

    resumes_exactly = False

    def __init__(
        self, environment: HostEnvironment, learner: AnyLearner, layout: DeviceLayout, evaluation: EvaluationConfig
    ):
        super().__init__(environment, learner, layout, evaluation)
        self._test = layout.program(self._play_members, OF_POPULATION, MEMBERS, MEMBERS, MEMBERS, REPLICATED)
        self._testing: dict[str, tuple[VectorEnv, int]] = {}  # by purpose of the levels: the copies, and how many
        self.programs: tuple[Program, ...] = (self._test,)

    def sibling(self) -> Self:
        other = super().sibling()
        other._testing = {}
        return other

    def evaluate(self, population: Population, keys: jax.Array, levels: str, pause: Callable) -> PlayedEpisodes:
        """See `WholeEpisodes.evaluate`."""
        return self._play(self._test, population, keys, self._evaluation.step_limit, levels, lambda *_: None, pause)

    @np.errstate(over="ignore", invalid="ignore")
    def _play(
        self, act: Program, population: Population, keys: jax.Array, limit: int, levels: str, watch: Any, pause: Any
    ) -> PlayedEpisodes:
        """Play whole episodes with keys [N, E]; `watch` gets every step, and which episodes still run."""
        place, shape = self._layout.place, keys.shape
        vector = self._copies(levels, keys.size)
        seeds, act_keys = _seeds_and_act_keys(keys)
        obs = arranged(vector.reset(np.asarray(seeds).tolist()), shape)
        carry = jax.tree.map(np.asarray, self._learner.agent.carry(shape))
        progress, alive = begin(np, *shape), np.ones(shape, bool)
        measures = self._evaluation.measures
        values, lengths = [np.zeros(shape, np.float32) for _ in measures], np.zeros(shape, np.float32)
        population, act_keys = place(population, OF_POPULATION), place(act_keys)
        for t in range(limit):
            turn = place(np.int32(t), REPLICATED)
            action, carry = jax.tree.map(np.asarray, act(population, place(obs), place(carry), act_keys, turn))
            step, info_of = self._step(vector, action)
            reward, terminated, truncated = (x.reshape(shape) for x in (step.reward, step.terminated, step.truncated))
            done = terminated | truncated
            final_obs = arranged(step.final_obs, shape)
            watch(Rollout(obs, action, reward, final_obs, terminated, truncated, ()), alive)
            progress, total, length, _ = advance(np, progress, reward, done)
            over = alive & (done | (t == limit - 1))
            now = [
                episode_values(*measure, info_of, total, reward, over)
                for measure in zip(measures, FIELDS, strict=False)
            ]
            values = [np.where(alive, new, old) for new, old in zip(now, values, strict=True)]
            lengths = np.where(alive, length, lengths)
            alive &= ~done
            obs = arranged(step.obs, shape)
            pause(None, 0)
            if not alive.any():
                break
            if done.any():
                vector.mark_unused(~alive.reshape(-1))
        return PlayedEpisodes(tuple(values), lengths)

    def _copies(self, levels: str, count: int) -> VectorEnv:
        """Copies that only measure, at the levels of a purpose where there are levels."""
        purpose = levels if self._evaluation.levels else ""
        if purpose in self._testing and self._testing[purpose][1] != count:
            self._testing.pop(purpose)[0].close()
        if purpose not in self._testing:
            measured = self._environment.measured or self._environment
            self._testing[purpose] = self._open(measured, levels, count), count
        return self._testing[purpose][0]

    def _open(self, environment: HostEnvironment, levels: str, count: int) -> VectorEnv:
        if self._evaluation.levels:
            environment = at_levels(environment, self._evaluation.levels[levels])
        return environment.open(count)

    def _play_members(
        self, population: Population, obs: PyTree, carry: PyTree, keys: jax.Array, turn: jax.Array
    ) -> Any:
        if self._evaluation.deterministic:
            return self._learner.act_deterministic(population, obs, carry)
        return self._learner.act(population, obs, carry, at(keys, turn))[:2]

    def _step(self, vector: VectorEnv, action: np.ndarray) -> tuple[Any, InfoOf]:
        flat = action.reshape(-1, *action.shape[2:])
        return vector.step(to_bounds(self._environment.spec.action, flat))

    def close(self) -> None:
        for vector, _ in self._testing.values():
            vector.close()
        self._testing = {}


def arranged(obs: PyTree, shape: tuple[int, ...]) -> PyTree:
    """Observations of all copies by member and copy: leaves [N * B, ...] -> [*shape, ...]."""
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), obs)


def episode_values(
    objective: Objective, field: str, info_of: InfoOf, total: np.ndarray, reward: np.ndarray, over: np.ndarray
) -> np.ndarray:
    """Values of the episodes [N, B] that are `over`: their return, or the objective; NaN where they were broken."""
    if objective is None:
        return total
    return in_infos(objective, info_of, (over & ~np.isnan(reward)).reshape(-1), field).reshape(over.shape)


@jax.jit
def _seeds_and_act_keys(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a seed for each reset [N * E] and a key for the actions of each member [N], from keys [N, E]."""
    bits = jax.vmap(jax.random.bits)(stream(keys, "reset").reshape(-1))
    return (bits >> 1).astype(jnp.int32), stream(keys[:, 0], "act")
