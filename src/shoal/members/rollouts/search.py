"""Whole episodes of members that are sampled around a mean, and of the mean; some rows at a time, and learned from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.types import Member, Population, PyTree, Rollout, SearchLearner
from shoal.environments.evaluation import EvaluationConfig
from shoal.members.devices import MEMBERS, OF_POPULATION, REPLICATED, DeviceLayout
from shoal.members.rollouts.device_episodes import DeviceEpisodes
from shoal.members.rollouts.host_episodes import HostEpisodes


class DeviceSearch(DeviceEpisodes):
    """Evaluation of sampled members in device environments: all rows of a generation in one compiled program."""

    _learner: SearchLearner

    def __init__(self, environment: Any, learner: SearchLearner, layout: DeviceLayout, evaluation: EvaluationConfig):
        super().__init__(environment, learner, layout, evaluation)
        specs, out = (OF_POPULATION, MEMBERS, *[REPLICATED] * 4), (REPLICATED, MEMBERS, MEMBERS)
        self._measure = layout.program(self._measure_rows, *specs, out=out)
        self.programs = (self._test, self._measure)

    def measure(
        self, population: Population, uid: np.ndarray, key: jax.Array, keys: jax.Array, cap: int, pause: Callable
    ) -> tuple[PyTree, np.ndarray, np.ndarray]:
        """Play whole episodes of members that are sampled with `key`, and of the mean; keys [E], the same for all.

        Members learn from these episodes, so they are on train levels, where there are levels.

        cap: steps after which an episode is ended. Returns the population's `shared`, updated with the steps of these
        episodes, and returns and lengths [N + 1, E], those of the mean last.
        """
        limit = np.int32(min(cap, self._evaluation.step_limit))
        shared, *played = self._measure(population, uid, key, keys, limit, self._span("train"))
        pause(played, 0)
        # Every device has measured the mean too, with the same result.
        parts = [np.asarray(x).reshape(self._layout.devices, -1, len(keys)) for x in played]
        return shared, *(np.concatenate([x[:, :-1].reshape(-1, len(keys)), x[0, -1:]]) for x in parts)

    def _measure_rows(
        self, population: Population, uid: jax.Array, key: jax.Array, keys: jax.Array, limit: jax.Array, span: PyTree
    ) -> tuple[PyTree, jax.Array, jax.Array]:
        learner, members = self._learner, len(uid)
        chunks, width = _chunks(members, learner.chunk, 2)
        rows = jnp.arange(chunks * width).reshape(chunks, width)

        def chunk(shared: PyTree, rows: jax.Array) -> tuple[PyTree, tuple[jax.Array, jax.Array]]:
            who, where = uid[jnp.minimum(rows, members - 1)], rows - members

            def watch(shared: PyTree, step: Rollout, alive: jax.Array) -> PyTree:
                return learner.watch(shared, where, step, alive)

            actors = _actors(learner, population._replace(shared=shared), rows, who, key)
            every = jnp.broadcast_to(keys, (width, *keys.shape))
            ((returns,), lengths), shared = self._play(actors, every, limit, span, shared, watch)
            return shared, (returns, lengths)

        shared, played = jax.lax.scan(chunk, population.shared, rows)
        returns, lengths = (x.reshape(chunks * width, -1)[: members + 1] for x in played)
        return shared, returns, lengths


class HostSearch(HostEpisodes):
    """Evaluation of sampled members in host environments: one policy call for all rows of a chunk per step."""

    _learner: SearchLearner

    def __init__(self, environment: Any, learner: SearchLearner, layout: DeviceLayout, evaluation: EvaluationConfig):
        super().__init__(environment, learner, layout, evaluation)
        self._perform = layout.program(self._play_members, OF_POPULATION, MEMBERS, MEMBERS, MEMBERS, REPLICATED)
        self._actors = layout.gather(partial(_actors, learner), OF_POPULATION, REPLICATED, REPLICATED, REPLICATED)
        self._watch = layout.gather(learner.watch, REPLICATED, REPLICATED, MEMBERS, MEMBERS, out=REPLICATED)
        self.programs = (self._test, self._perform, self._actors, self._watch)

    def measure(
        self, population: Population, uid: np.ndarray, key: jax.Array, keys: jax.Array, cap: int, pause: Callable
    ) -> tuple[PyTree, np.ndarray, np.ndarray]:
        """See `DeviceSearch.measure`."""
        learner, place, members, devices = self._learner, self._layout.place, len(uid), self._layout.devices
        chunks, width = _chunks(members, learner.chunk * devices, 2 * devices)
        shared, results = population.shared, []
        for rows in np.arange(chunks * width, dtype=np.int32).reshape(chunks, width):
            mine = np.minimum(rows, members - 1)
            actors = self._actors(population, *place((rows, uid[mine], key), REPLICATED))
            where = place(rows - np.int32(members), REPLICATED)

            def watch(step: Rollout, alive: np.ndarray, where: Any = where) -> None:
                nonlocal shared
                if learner.watches:
                    shared = self._watch(shared, where, place(step), place(alive))

            every = jnp.broadcast_to(keys, (width, *keys.shape))
            limit = min(cap, self._evaluation.step_limit)
            (returns,), lengths = self._play(self._perform, actors, every, limit, "train", watch, pause)
            results.append((returns, lengths))
        returns, lengths = (np.concatenate(x)[: members + 1] for x in zip(*results, strict=True))
        return shared, returns, lengths


def _chunks(members: int, size: int, multiple: int) -> tuple[int, int]:
    """The number of chunks, and of rows in each, for the members and the mean: about `size` rows, a whole `multiple`."""
    count = -(-(members + 1) // size)
    return count, multiple * -(-(members + 1) // (multiple * count))


def _actors(
    learner: SearchLearner, population: Population, rows: jax.Array, uid: jax.Array, key: jax.Array
) -> Population:
    """The policies at rows [R] as a population, so that they can act; uid [R]: those of their members."""
    mine = jnp.minimum(rows, population.hyper[0].shape[0] - 1)
    return Population(Member(learner.actors(population, rows, uid, key), (), ()), (), tree.take(population.hyper, mine))
