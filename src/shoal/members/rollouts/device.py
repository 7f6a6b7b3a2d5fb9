"""Device environments: rollouts that learn as they go, in one compiled program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.keys import at, environment_keys, jax_key, member_keys, stream
from shoal.core.population import Seed
from shoal.core.types import START, Learner, Member, Metrics, Population, PyTree, Rollout, RunProgress, TimeStep
from shoal.environments.device import DeviceEnvironment, auto_reset, with_values
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.levels import at_levels
from shoal.environments.spaces import to_bounds
from shoal.members.devices import MEMBERS, OF_POPULATION, REPLICATED, DeviceLayout
from shoal.members.rollouts import episodes
from shoal.members.rollouts.device_episodes import DeviceEpisodes
from shoal.members.rollouts.episodes import EpisodeSums, Interval, Progress, TrainedInterval
from shoal.rl.schedules import scheduled, share_done


class World(NamedTuple):
    """The state of the environments of N members between two calls; every leaf is [N, B, ...]."""

    state: PyTree
    obs: PyTree
    carry: PyTree
    progress: Progress


class TrainState(NamedTuple):
    """The state of an interval between two calls, whose memory each takes over.

    metrics: their sums so far. ended: the episodes that have ended in it
    """

    members: Member
    shared: PyTree
    world: World
    metrics: Metrics
    ended: EpisodeSums


class DeviceRollouts(DeviceEpisodes):
    """N members in B device environments each, which they learn from; and whole episodes beside them."""

    _learner: Learner

    def __init__(
        self, environment: DeviceEnvironment, learner: Learner, layout: DeviceLayout, evaluation: EvaluationConfig
    ):
        super().__init__(environment, learner, layout, evaluation)
        self._begin = layout.program(self._reset, MEMBERS, MEMBERS, REPLICATED)
        state = TrainState(MEMBERS, REPLICATED, world=MEMBERS, metrics=MEMBERS, ended=MEMBERS)  # type: ignore[arg-type]
        self._train = layout.program(self._train_members, state, MEMBERS, *[REPLICATED] * 4, out=state, donate=(0,))
        self.world: World | None = None
        self._metrics: list[str] = []  # of a rollout and its update; siblings have the same list
        self.programs = (self._begin, self._train, self._test)

    def prepare(self, shapes: Callable[[], Population], uid: np.ndarray, count: int) -> None:
        """Begin to compile `train`, and `evaluate` for so many episodes, side by side, for a population of these shapes.

        Where training episodes are the fitness, nothing is evaluated."""
        if self._train.begun:
            return
        key, population = jax.random.key(0), shapes()
        world = jax.eval_shape(self._reset, uid, population.env_parameters, key)
        with suppress(Exception):  # errors are raised where the programs are called
            self._train.begin(*self._train_arguments(population, world, uid, key))
        if self._evaluation.source == "training":
            return
        self._test.begin(*self._test_arguments(population, jax.random.split(key, (len(uid), count)), "validation"))

    def begin(self, uid: np.ndarray, env_parameters: PyTree, key: Seed) -> None:
        """Reset every environment; `env_parameters` [N] each."""
        place = self._layout.place
        self.world = self._begin(place(uid), env_parameters, place(jax_key(key), REPLICATED))

    def train(self, population: Population, uid: np.ndarray, key: jax.Array, interval: Interval) -> TrainedInterval:
        """Train for an interval, with results that do not depend on its `chunk`."""
        assert self.world is not None
        state, who, key, *_ = self._train_arguments(population, self.world, uid, key)
        done = 0
        while done < interval.iterations:
            count = min(interval.chunk, interval.iterations - done)
            state = self._train(state, who, key, interval.progress, np.int32(done), np.int32(count))
            done += count
            self.world = state.world
            interval.pause(state.metrics, done)
        ended = jax.tree.map(np.asarray, state.ended)
        population = population._replace(members=state.members, shared=state.shared)
        return TrainedInterval(population, episodes.mean_metrics(state.metrics), ended, ended)

    def _train_arguments(self, population: Population, world: World, uid: np.ndarray, key: jax.Array) -> Any:
        place = self._layout.place
        if not self._metrics:
            specs, arguments = (OF_POPULATION, MEMBERS, MEMBERS, *[REPLICATED] * 3), (population, world, uid, key)
            names = self._layout.shapes(self._measure, specs, MEMBERS, *arguments, START, np.int32(0))
            self._metrics += names
        metrics = place(episodes.no_metrics(np, self._metrics, len(uid)))
        ended = place(episodes.no_episodes(np, len(uid)))
        who = place(uid), population.hyper, population.env_parameters
        state = TrainState(population.members, population.shared, world, metrics, ended)
        return state, who, place(key, REPLICATED), START, np.int32(0), np.int32(0)

    def _train_members(
        self, state: TrainState, who: tuple, key: jax.Array, progress: RunProgress, first: jax.Array, count: jax.Array
    ) -> TrainState:
        """The state after some iterations. who: uid, hyper and env_parameters, [N] each"""
        uid, hyper, env_parameters = who

        def iteration(i: jax.Array, state: TrainState) -> TrainState:
            population = Population(state.members, state.shared, hyper, env_parameters)
            population, world, new, finished = self._iterate(population, state.world, uid, key, progress, i)
            metrics = episodes.add_metrics(jnp, state.metrics, new)
            ended = episodes.merge(jnp, state.ended, *finished)
            return TrainState(population.members, population.shared, world, metrics, ended)

        return jax.lax.fori_loop(first, first + count, iteration, state)

    def _iterate(
        self, population: Population, world: World, uid: jax.Array, key: jax.Array, progress: RunProgress, i: jax.Array
    ) -> tuple[Population, World, Metrics, tuple]:
        key = jax.random.fold_in(key, i)
        world, rollout, finished = self._collect(population, world, uid, key)
        update_keys = member_keys(stream(key, "update"), uid)
        now = population._replace(hyper=scheduled(population.hyper, share_done(progress, i)))
        population, metrics = self._learner.update(now, rollout, update_keys)
        return population, world, metrics | {"steps/broken": episodes.broken(rollout)}, finished

    def _measure(self, *arguments: Any) -> Metrics:
        """The metrics of `_iterate`."""
        _, _, metrics, _ = self._iterate(*arguments)
        return metrics

    def _collect(
        self, population: Population, world: World, uid: jax.Array, key: jax.Array
    ) -> tuple[World, Rollout, tuple]:
        """T steps of every environment. Leaves of the rollout: [N, T, B, ...]; of the finished episodes: [T, N, B]."""
        environment, agent, before = self._environment, self._learner.agent, world.carry
        reset_all = self._in_training(lambda tuned, key: tuned.reset(key), population.env_parameters)
        step_all = self._in_training(auto_reset, population.env_parameters)
        keys = {"act": member_keys(stream(key, "act"), uid)}
        keys |= {name: environment_keys(stream(key, name), uid, agent.num_envs) for name in ("step", "reset")}
        once = None if environment.fresh_resets else reset_all(keys.pop("reset"))

        def step(world: World, t: jax.Array) -> tuple[World, tuple]:
            now_keys = at(keys, t)
            action, carry, extras = self._learner.act(population, world.obs, world.carry, now_keys["act"])
            inside = to_bounds(environment.spec.action, action)
            start = reset_all(now_keys["reset"]) if environment.fresh_resets else once
            state, now = step_all(now_keys["step"], world.state, inside, start)
            done = now.terminated | now.truncated
            after = self._after(population, now, carry)
            carry = tree.where(done, agent.carry(done.shape), carry)
            progress, *finished = episodes.advance(jnp, world.progress, now.reward, done)
            taken = Rollout(world.obs, action, now.reward, (), now.terminated, now.truncated, extras)._replace(**after)
            return World(state, now.obs, carry, progress), (taken, tuple(finished))

        world, (rollout, finished) = jax.lax.scan(step, world, jnp.arange(agent.rollout_length))
        if self._learner.value is not None:
            goes_on = ~(rollout.terminated[-1] | rollout.truncated[-1])
            value = self._learner.value(population, world.obs, world.carry)
            last = jnp.where(goes_on, value, rollout.bootstrap_value[-1])
            rollout = rollout._replace(bootstrap_value=rollout.bootstrap_value.at[-1].set(last))
        rollout = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), rollout)
        return world, rollout._replace(carry=before), finished

    def _after(self, population: Population, now: TimeStep, carry: PyTree) -> Metrics:
        """The part of the observations after a step that the rollout keeps: themselves, or their values where truncated."""
        value = self._learner.value
        if value is None:
            return {"next_obs": now.final_obs}
        needed = now.truncated & ~now.terminated
        values = jax.lax.cond(
            needed.any(),
            lambda: value(population, now.final_obs, carry),
            lambda: jnp.zeros(needed.shape, jnp.float32),
        )
        return {"bootstrap_value": jnp.where(needed, values, 0.0)}

    def _in_training(self, function: Callable, env_parameters: PyTree) -> Callable:
        """`function` of an environment and its arguments, in all environments that members train in: (arguments [N, B])."""

        def of_member(env_parameters: PyTree, *arguments: PyTree) -> PyTree:
            environment = with_values(self._environment, env_parameters)
            if self._evaluation.levels:
                environment = at_levels(environment, self._evaluation.levels["train"])
            return jax.vmap(lambda *given: function(environment, *given))(*arguments)

        return lambda *arguments: jax.vmap(of_member)(env_parameters, *arguments)

    def _reset(self, uid: jax.Array, env_parameters: PyTree, key: jax.Array) -> World:
        shape = (uid.shape[0], self._learner.agent.num_envs)
        reset_all = self._in_training(lambda tuned, key: tuned.reset(key), env_parameters)
        obs, state = reset_all(environment_keys(key, uid, shape[1]))
        return World(state, obs, self._learner.agent.carry(shape), episodes.begin(jnp, *shape))

    def overwrite(self, copied: np.ndarray) -> None:
        """Members where `copied` [N] have new weights: their episodes under way no longer count."""
        assert self.world is not None
        progress = self.world.progress
        carry = episodes.forget(self.world.carry, self._learner.agent.carry(progress.counts.shape), copied)
        carry, counts = self._layout.place((carry, episodes.disown(progress, copied)))
        self.world = self.world._replace(carry=carry, progress=progress._replace(counts=counts))

    def state(self) -> PyTree:
        """The state of all environments, for a checkpoint."""
        return self.world

    def restore(self, state: PyTree) -> None:
        self.world = state
