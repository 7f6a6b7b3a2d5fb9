"""Host environments: whole episodes, and rollouts that learn as they go.

All environments of a population are one flat vector that steps on the host; acting and learning is on the device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.evolution import Seed
from shoal.core.keys import at, derive, member_keys, stream, words
from shoal.core.types import Learner, Member, Population, PyTree, Rollout, SearchLearner
from shoal.environments.host import HostEnvironment, Vector
from shoal.environments.levels import at_levels
from shoal.environments.measurement import Measurement
from shoal.environments.objective import Told
from shoal.environments.spaces import to_bounds
from shoal.members.devices import OF_POPULATION, Layout, Program
from shoal.members.rollouts.episodes import (
    EpisodeSums,
    add_metrics,
    advance,
    begin,
    broken,
    disown,
    forget,
    mean_metrics,
    merge,
    no_episodes,
    no_metrics,
)


class HostEpisodes:
    """Whole episodes of N members in host environments, without learning; one policy call for all of them per step."""

    resumes_exactly = False

    def __init__(
        self,
        environment: HostEnvironment,
        learner: Learner | SearchLearner,
        layout: Layout,
        measurement: Measurement,
    ):
        self._environment, self._learner, self._layout = environment, learner, layout
        self._measurement = measurement
        self._play_members = self._greedy_members if measurement.greedy else self._sample_members
        self._test = layout.program(self._play_members, OF_POPULATION, True, True, True, False)
        self._testing: dict[str, tuple[Vector, int]] = {}  # by purpose of the levels: the copies, and how many
        self.programs: tuple[Program, ...] = (self._test,)

    def sibling(self) -> Self:
        """The same of other members, with the same programs and with simulators of their own."""
        other = copy.copy(self)
        other._testing = {}
        return other

    def evaluate(
        self, population: Population, keys: jax.Array, levels: str, pause: Callable
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `DeviceEpisodes.evaluate`."""
        return self._play(self._test, population, keys, self._measurement.step_limit, levels, lambda *_: None, pause)

    @np.errstate(over="ignore", invalid="ignore")
    def _play(
        self,
        act: Program,
        population: Population,
        keys: jax.Array,
        limit: int,
        levels: str,
        watch: Callable,
        pause: Callable,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths [N, E] of whole episodes with keys [N, E]; `watch` gets every step, and which are alive."""
        place, shape = self._layout.place, keys.shape
        vector = self._copies(levels, keys.size)
        seeds, act_keys = _seeds_and_act_keys(keys)
        obs = _arranged(vector.reset(np.asarray(seeds).tolist()), shape)
        carry = jax.tree.map(np.asarray, self._learner.agent.carry(shape))
        progress, alive = begin(np, *shape), np.ones(shape, bool)
        returns, lengths = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        population, act_keys = place(population, OF_POPULATION), place(act_keys)
        for t in range(limit):
            turn = place(np.int32(t), members=False)
            action, carry = jax.tree.map(np.asarray, act(population, place(obs), place(carry), act_keys, turn))
            step, told = self._step(vector, action)
            reward, terminated, truncated = (x.reshape(shape) for x in (step.reward, step.terminated, step.truncated))
            done = terminated | truncated
            final_obs = _arranged(step.final_obs, shape)
            watch(Rollout(obs, action, reward, final_obs, terminated, truncated, ()), alive)
            progress, total, length, _ = advance(np, progress, reward, done)
            value = _worth(told, total, reward, alive & (done | (t == limit - 1)))
            returns, lengths = np.where(alive, value, returns), np.where(alive, length, lengths)
            alive &= ~done
            obs = _arranged(step.obs, shape)
            pause(None, 0)
            if not alive.any():
                break
            if done.any():
                vector.rest(~alive.reshape(-1))
        return returns, lengths

    def _copies(self, levels: str, count: int) -> Vector:
        """Copies that only measure, at the levels of a purpose where there are levels."""
        purpose = levels if self._measurement.levels else ""
        if purpose in self._testing and self._testing[purpose][1] != count:
            self._testing.pop(purpose)[0].close()
        if purpose not in self._testing:
            measured = self._environment.measured or self._environment
            self._testing[purpose] = self._open(measured, levels, count), count
        return self._testing[purpose][0]

    def _open(self, environment: HostEnvironment, levels: str, count: int) -> Vector:
        environment = (
            at_levels(environment, self._measurement.levels[levels]) if self._measurement.levels else environment
        )
        return environment.open(count, self._measurement.objective)

    def _greedy_members(
        self, population: Population, obs: PyTree, carry: PyTree, keys: jax.Array, turn: jax.Array
    ) -> Any:
        return self._learner.greedy(population, obs, carry)

    def _sample_members(
        self, population: Population, obs: PyTree, carry: PyTree, keys: jax.Array, turn: jax.Array
    ) -> Any:
        return self._learner.act(population, obs, carry, at(keys, turn))[:2]

    def _step(self, vector: Vector, action: np.ndarray) -> tuple[Any, Told | None]:
        flat = action.reshape(-1, *action.shape[2:])
        return vector.step(to_bounds(self._environment.spec.action, flat))

    def state(self) -> PyTree:
        """Nothing: simulators on the host cannot be saved, so a resumed run begins new episodes."""
        return ()

    def restore(self, state: PyTree) -> None:
        """See `state`."""

    def close(self) -> None:
        """Close the simulators."""
        for vector, _ in self._testing.values():
            vector.close()
        self._testing = {}


class HostRollouts(HostEpisodes):
    """N members in B host environments each, which they learn from; and whole episodes beside them."""

    _learner: Learner

    def __init__(self, environment: HostEnvironment, learner: Learner, layout: Layout, measurement: Measurement):
        super().__init__(environment, learner, layout, measurement)
        kept = (True, False)  # (learned, shared): with and without the member axis
        self._act = layout.program(self._act_members, (*kept, True), True, True, True, False, False)
        # Weights are not donated: off-policy agents act with the old ones while new ones are computed.
        self._update = layout.program(
            self._update_members, kept, True, True, True, True, False, out=(kept, True, True), donate=(1,)
        )
        self._value = layout.program(self._value_members, (*kept, True), True, True) if learner.value else None
        self._turns = [layout.place(np.int32(t), members=False) for t in range(learner.agent.rollout)]
        self._training: Vector | None = None
        self._obs: PyTree = ()
        self._carry: PyTree = ()
        self._fresh: PyTree = ()  # the carry at the start of episodes
        self._progress = begin(np, 0, 0)
        self.programs = (self._act, self._update, self._test, *([self._value] if self._value else []))

    def sibling(self) -> Self:
        other = super().sibling()
        other._training = None
        return other

    def prepare(self, population: Population, uid: np.ndarray, episodes: int) -> None:
        """Nothing is compiled ahead: these programs are small, and are compiled at their first call."""

    def begin(self, uid: np.ndarray, knobs: PyTree, key: Seed) -> None:
        """Reset every environment, each with its own seed; `knobs` [N] each."""
        shape = (len(uid), self._learner.agent.environments)
        self._training = self._training or self._open(self._environment, "train", shape[0] * shape[1])
        self._turn(knobs)
        seeds = [seed for u in uid for seed in words(derive(key, int(u)), shape[1])]
        self._obs = _arranged(self._training.reset(seeds), shape)
        self._carry = self._fresh = jax.tree.map(np.asarray, self._learner.agent.carry(shape))
        self._progress = begin(np, *shape)

    @np.errstate(over="ignore", invalid="ignore")  # returns too large for float32 become infinite
    def train(
        self, population: Population, uid: np.ndarray, key: jax.Array, iterations: int, chunk: int, pause: Callable
    ) -> tuple[Population, dict[str, np.ndarray], EpisodeSums, EpisodeSums]:
        """`iterations` times a rollout and an update; see `DeviceRollouts.train`. `pause` is called after each update.

        An off-policy agent acts with the weights before the last update, so that environments step while the device
        learns.
        """
        place, hyper, off_policy = self._layout.place, population.hyper, self._learner.agent.off_policy
        who = place(uid)
        self._turn(population.knobs)
        returned = measured = no_episodes(np, len(uid))
        metrics = None
        sums: dict[str, Any] = {}
        (learned, memory, own), shared = population.members, population.shared
        acting = (learned, shared, hyper)
        for i in range(iterations):
            now = jax.random.fold_in(key, i)
            act_key, update_key = (place(stream(now, purpose), members=False) for purpose in ("act", "update"))
            rollout, finished = self._collect(acting, who, act_key)
            total, value, length, counted = finished
            returned = merge(np, returned, total, length, counted)
            measured = merge(np, measured, value, length, counted)
            if off_policy:
                pause(metrics, i)  # the last round of updates, which ran beside this rollout
                acting = (learned, shared, hyper)
            (learned, shared), (memory, own), metrics = self._update(
                (learned, shared), (memory, own), hyper, place(rollout), who, update_key
            )
            if not off_policy:
                pause(metrics, i + 1)
                acting = (learned, shared, hyper)
            sums = add_metrics(jnp, sums or no_metrics(jnp, metrics, len(uid)), metrics)
        pause(metrics, iterations)
        population = population._replace(members=Member(learned, memory, own), shared=shared)
        return population, mean_metrics(sums), returned, measured

    def _turn(self, knobs: PyTree) -> None:
        """Give the copies that members train in the `knobs` [N] of theirs."""
        if knobs:
            assert self._training is not None
            copies = self._learner.agent.environments
            self._training.set_knobs({name: np.repeat(np.asarray(x), copies) for name, x in knobs.items()})

    def _collect(self, acting: tuple, uid: jax.Array, key: jax.Array) -> tuple[Rollout, list[np.ndarray]]:
        assert self._training is not None
        agent, place = self._learner.agent, self._layout.place
        shape, before = self._progress.counts.shape, self._carry
        steps, ends = [], []
        for t in range(agent.rollout):
            chosen = self._act(acting, place(self._obs), place(self._carry), uid, key, self._turns[t])
            action, carry, extras = jax.tree.map(np.asarray, chosen)
            step, told = self._step(self._training, action)
            terminated, truncated = step.terminated.reshape(shape), step.truncated.reshape(shape)
            done = terminated | truncated
            reward = step.reward.reshape(shape)
            self._progress, total, length, counted = advance(np, self._progress, reward, done)
            ends.append((total, _worth(told, total, reward, done), length, counted))
            final_obs = _arranged(step.final_obs, shape)
            taken = Rollout(self._obs, action, reward, (), terminated, truncated, extras)
            if self._value is None:
                steps.append(taken._replace(next_obs=final_obs))
            else:
                needed = (truncated | (t == agent.rollout - 1)) & ~terminated
                steps.append(taken._replace(next_value=self._values(acting, final_obs, carry, needed)))
            self._obs = _arranged(step.obs, shape)
            self._carry = self._restart(carry, done)
        rollout = jax.tree.map(lambda *x: np.stack(x, 1), *steps)
        return rollout._replace(carry=before), [np.stack(x) for x in zip(*ends, strict=True)]

    def _values(self, acting: tuple, obs: PyTree, carry: PyTree, needed: np.ndarray) -> np.ndarray:
        """The values of observations [N, B, ...] where `needed` [N, B], 0 elsewhere."""
        assert self._value is not None
        if not needed.any():
            return np.zeros(needed.shape, np.float32)
        place = self._layout.place
        return np.where(needed, self._value(acting, place(obs), place(carry)), np.float32(0))

    def _restart(self, carry: PyTree, done: np.ndarray) -> PyTree:
        """What agents remember, fresh where an episode is `done`."""
        if not done.any():  # as at nearly every step
            return carry
        return tree.where(done, self._fresh, carry)

    def _act_members(
        self, acting: tuple, obs: PyTree, carry: PyTree, uid: jax.Array, key: jax.Array, turn: jax.Array
    ) -> Any:
        learned, shared, hyper = acting
        population = Population(Member(learned, (), ()), shared, hyper)
        keys = member_keys(jax.random.fold_in(key, turn), uid)
        return self._learner.act(population, obs, carry, keys)

    def _value_members(self, acting: tuple, obs: PyTree, carry: PyTree) -> jax.Array:
        assert self._learner.value is not None
        learned, shared, hyper = acting
        return self._learner.value(Population(Member(learned, (), ()), shared, hyper), obs, carry)

    def _update_members(
        self, kept: tuple, spent: tuple, hyper: PyTree, rollout: Rollout, uid: jax.Array, key: jax.Array
    ) -> Any:
        population = Population(Member(kept[0], *spent), kept[1], hyper)
        population, metrics = self._learner.update(population, rollout, member_keys(key, uid))
        metrics |= {"steps/broken": broken(rollout)}
        members = population.members
        return (members.learned, population.shared), (members.memory, members.own), metrics

    def overwrite(self, copied: np.ndarray) -> None:
        """See `DeviceRollouts.overwrite`."""
        self._progress = self._progress._replace(counts=disown(self._progress, copied))
        self._carry = forget(self._carry, self._fresh, copied)

    def close(self) -> None:
        if self._training is not None:
            self._training.close()
        super().close()


def _arranged(obs: PyTree, shape: tuple[int, ...]) -> PyTree:
    """Observations of all copies by member and copy: leaves [N * B, ...] -> [*shape, ...]."""
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), obs)


def _worth(told: Told | None, total: np.ndarray, reward: np.ndarray, over: np.ndarray) -> np.ndarray:
    """What the episodes [N, B] are worth that are `over`: their return, or the objective; NaN where they were broken."""
    return total if told is None else told((over & ~np.isnan(reward)).reshape(-1)).reshape(over.shape)


@jax.jit
def _seeds_and_act_keys(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For episodes with keys [N, E]: a seed for each reset [N * E], and a key for the actions of each member [N]."""
    bits = jax.vmap(jax.random.bits)(stream(keys, "reset").reshape(-1))
    return (bits >> 1).astype(jnp.int32), stream(keys[:, 0], "act")
