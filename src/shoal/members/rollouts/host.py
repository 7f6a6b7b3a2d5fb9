"""Host environments: rollouts that learn as they go.

All environments of a population are one flat vector that steps on the host; acting and learning is on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.keys import derive, member_keys, stream, words
from shoal.core.population import Seed
from shoal.core.types import Hyper, Learner, Member, Metrics, Population, PyTree, Rollout
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.host import HostEnvironment, VectorEnv
from shoal.environments.objective import FIELDS
from shoal.members.devices import MEMBERS, REPLICATED, DeviceLayout
from shoal.members.rollouts import episodes
from shoal.members.rollouts.episodes import Interval, TrainedInterval
from shoal.members.rollouts.host_episodes import HostEpisodes, arranged, episode_values
from shoal.rl.schedules import scheduled, share_done


class Retained(NamedTuple):
    """The part of members that is not donated: off-policy agents act with the old one while the next is computed."""

    learned: PyTree
    shared: PyTree


class Donated(NamedTuple):
    """The rest of members, whose memory an update takes over."""

    replay_buffer: PyTree
    own: PyTree


class ActingState(NamedTuple):
    """The part of a population that acts."""

    learned: PyTree
    shared: PyTree
    hyper: Hyper

    def population(self) -> Population:
        return Population(Member(self.learned, (), ()), self.shared, self.hyper)


class HostRollouts(HostEpisodes):
    """N members in B host environments each, which they learn from; and whole episodes beside them."""

    _learner: Learner

    def __init__(
        self, environment: HostEnvironment, learner: Learner, layout: DeviceLayout, evaluation: EvaluationConfig
    ):
        super().__init__(environment, learner, layout, evaluation)
        retained, acting = Retained(MEMBERS, REPLICATED), ActingState(MEMBERS, REPLICATED, hyper=MEMBERS)
        self._act = layout.program(self._act_members, acting, *[MEMBERS] * 3, REPLICATED, REPLICATED)
        given, out = (retained, *[MEMBERS] * 4, REPLICATED, REPLICATED), (retained, MEMBERS, MEMBERS)
        self._update = layout.program(self._update_members, *given, out=out, donate=(1,))
        self._value = layout.program(self._value_members, acting, MEMBERS, MEMBERS) if learner.value else None
        self._turns = [layout.place(np.int32(t), REPLICATED) for t in range(learner.agent.rollout_length)]
        self._training: VectorEnv | None = None
        self._obs: PyTree = ()
        self._carry: PyTree = ()
        self._fresh: PyTree = ()  # the carry at the start of episodes
        self._progress = episodes.begin(np, 0, 0)
        self.programs = (self._act, self._update, self._test, *([self._value] if self._value else []))

    def sibling(self) -> Self:
        other = super().sibling()
        other._training = None
        return other

    def prepare(self, shapes: Callable[[], Population], uid: np.ndarray, count: int) -> None:
        """Do nothing: these programs are small, and are compiled at their first call."""

    def begin(self, uid: np.ndarray, env_parameters: PyTree, key: Seed) -> None:
        """Reset every environment, each with its own seed; `env_parameters` [N] each."""
        shape = (len(uid), self._learner.agent.num_envs)
        self._training = self._training or self._open(self._environment, "train", shape[0] * shape[1])
        self._set_env_parameters(env_parameters)
        seeds = [seed for u in uid for seed in words(derive(key, int(u)), shape[1])]
        self._obs = arranged(self._training.reset(seeds), shape)
        self._carry = self._fresh = jax.tree.map(np.asarray, self._learner.agent.carry(shape))
        self._progress = episodes.begin(np, *shape)

    @np.errstate(over="ignore", invalid="ignore")  # returns too large for float32 become infinite
    def train(self, population: Population, uid: np.ndarray, key: jax.Array, interval: Interval) -> TrainedInterval:
        """Train for an interval; `pause` is called after each update.

        An off-policy agent acts with the weights before the last update, so that environments step while the device
        learns.
        """
        place, hyper, off_policy = self._layout.place, population.hyper, self._learner.agent.off_policy
        who, pause = place(uid), interval.pause
        self._set_env_parameters(population.env_parameters)
        returned = measured = episodes.no_episodes(np, len(uid))
        metrics = None
        sums: dict[str, Any] = {}
        members = population.members
        retained, donated = Retained(members.learned, population.shared), Donated(members.replay_buffer, members.own)
        acting = ActingState(retained.learned, retained.shared, hyper)
        for i in range(interval.iterations):
            now = jax.random.fold_in(key, i)
            act_key, update_key = (place(stream(now, purpose), REPLICATED) for purpose in ("act", "update"))
            rollout, finished = self._collect(acting, who, act_key)
            total, value, length, counted = finished
            returned = episodes.merge(np, returned, total, length, counted)
            measured = episodes.merge(np, measured, value, length, counted)
            if off_policy:
                pause(metrics, i)  # the last round of updates, which ran beside this rollout
                acting = ActingState(retained.learned, retained.shared, hyper)
            when = interval.progress, np.int32(i)
            retained, donated, metrics = self._update(retained, donated, hyper, place(rollout), who, update_key, when)
            if not off_policy:
                pause(metrics, i + 1)
                acting = ActingState(retained.learned, retained.shared, hyper)
            sums = episodes.add_metrics(jnp, sums or episodes.no_metrics(jnp, metrics, len(uid)), metrics)
        pause(metrics, interval.iterations)
        population = population._replace(members=Member(retained.learned, *donated), shared=retained.shared)
        return TrainedInterval(population, episodes.mean_metrics(sums), returned, measured)

    def _set_env_parameters(self, env_parameters: PyTree) -> None:
        """Give the copies that members train in the `env_parameters` [N] of theirs."""
        if env_parameters:
            assert self._training is not None
            copies = self._learner.agent.num_envs
            values = {name: np.repeat(np.asarray(x), copies) for name, x in env_parameters.items()}
            self._training.set_env_parameters(values)

    def _collect(self, acting: ActingState, uid: jax.Array, key: jax.Array) -> tuple[Rollout, list[np.ndarray]]:
        assert self._training is not None
        agent, place = self._learner.agent, self._layout.place
        shape, before = self._progress.counts.shape, self._carry
        steps, ends = [], []
        for t in range(agent.rollout_length):
            chosen = self._act(acting, place(self._obs), place(self._carry), uid, key, self._turns[t])
            action, carry, extras = jax.tree.map(np.asarray, chosen)
            step, info_of = self._step(self._training, action)
            terminated, truncated = step.terminated.reshape(shape), step.truncated.reshape(shape)
            done = terminated | truncated
            reward = step.reward.reshape(shape)
            self._progress, total, length, counted = episodes.advance(np, self._progress, reward, done)
            value = episode_values(self._evaluation.measures[0], FIELDS[0], info_of, total, reward, done)
            ends.append((total, value, length, counted))
            final_obs = arranged(step.final_obs, shape)
            taken = Rollout(self._obs, action, reward, (), terminated, truncated, extras)
            if self._value is None:
                steps.append(taken._replace(next_obs=final_obs))
            else:
                needed = (truncated | (t == agent.rollout_length - 1)) & ~terminated
                steps.append(taken._replace(bootstrap_value=self._values(acting, final_obs, carry, needed)))
            self._obs = arranged(step.obs, shape)
            self._carry = tree.where(done, self._fresh, carry) if done.any() else carry  # as at nearly every step
        rollout = jax.tree.map(lambda *x: np.stack(x, 1), *steps)
        return rollout._replace(carry=before), [np.stack(x) for x in zip(*ends, strict=True)]

    def _values(self, acting: ActingState, obs: PyTree, carry: PyTree, needed: np.ndarray) -> np.ndarray:
        """The values of observations [N, B, ...] where `needed` [N, B], 0 elsewhere."""
        assert self._value is not None
        if not needed.any():
            return np.zeros(needed.shape, np.float32)
        place = self._layout.place
        return np.where(needed, self._value(acting, place(obs), place(carry)), np.float32(0))

    def _act_members(
        self, acting: ActingState, obs: PyTree, carry: PyTree, uid: jax.Array, key: jax.Array, turn: jax.Array
    ) -> Any:
        keys = member_keys(jax.random.fold_in(key, turn), uid)
        return self._learner.act(acting.population(), obs, carry, keys)

    def _value_members(self, acting: ActingState, obs: PyTree, carry: PyTree) -> jax.Array:
        assert self._learner.value is not None
        return self._learner.value(acting.population(), obs, carry)

    def _update_members(
        self,
        retained: Retained,
        donated: Donated,
        hyper: Hyper,
        rollout: Rollout,
        uid: jax.Array,
        key: jax.Array,
        when: tuple,
    ) -> tuple[Retained, Donated, Metrics]:
        """The members after the update of `when`: the progress of the run before the interval, and the iteration."""
        now = scheduled(hyper, share_done(*when))
        population = Population(Member(retained.learned, *donated), retained.shared, now)
        population, metrics = self._learner.update(population, rollout, member_keys(key, uid))
        metrics |= {"steps/broken": episodes.broken(rollout)}
        members = population.members
        return Retained(members.learned, population.shared), Donated(members.replay_buffer, members.own), metrics

    def overwrite(self, copied: np.ndarray) -> None:
        """See `DeviceRollouts.overwrite`."""
        self._progress = self._progress._replace(counts=episodes.disown(self._progress, copied))
        self._carry = episodes.forget(self._carry, self._fresh, copied)

    def close(self) -> None:
        if self._training is not None:
            self._training.close()
        super().close()
