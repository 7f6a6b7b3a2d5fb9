"""Members that live on, and copy one another: they train as one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.keys import jax_key
from shoal.core.population import Decision, DistributionUpdate, Seed
from shoal.core.types import START, Learner, Member, Metrics, Population, PyTree, RunProgress
from shoal.environments.registry import Environment
from shoal.members.acting import Policy, acting_members
from shoal.members.compiled import Compiled
from shoal.members.devices import MEMBERS, OF_POPULATION, REPLICATED
from shoal.members.protocol import EPISODES, Outcome, Setup, Shard
from shoal.members.rollouts.device import DeviceRollouts
from shoal.members.rollouts.episodes import EpisodeSums, Interval, no_episodes, noise, of_levels, summarise
from shoal.members.rollouts.host import HostRollouts
from shoal.members.shards import CompiledShard, InTurn

EPISODES_ON_DEVICE = 32  # of a member and evaluation, where all are played at once: champions owe less to luck
INT32 = 2**31 - 1


class GradientTrainedShard(CompiledShard):
    """N members of one learner in one environment, which train as one compiled program. uid: of its members, [N]."""

    device_rollouts, host_rollouts = DeviceRollouts, HostRollouts
    rollouts: DeviceRollouts | HostRollouts

    def __init__(self, kind: GradientTrained, uid: np.ndarray, setup: Setup):
        super().__init__(kind, uid, setup)
        layout = self._layout
        self._copies_replay = kind.copies_replay
        self._inherit = layout.gather(tree.take, MEMBERS, REPLICATED)
        self._insert = layout.gather(_inserted, MEMBERS, REPLICATED, REPLICATED, donate=(0,))
        self._snapshot = jax.jit(tree.take)
        self._programs += (self._inherit,)
        self._outcome = no_episodes(np, len(uid))

    def begin(self, hyper: dict[str, np.ndarray], learned: Sequence[PyTree] | None = None) -> None:
        """See `Shard.begin`; what training needs is compiled ahead."""
        arguments = self._beginning(hyper)
        specs = MEMBERS, MEMBERS, REPLICATED
        shapes = partial(self._layout.shapes, self._first, specs, OF_POPULATION, *arguments)
        self.rollouts.prepare(shapes, self.uid, self._evaluation.episodes)
        self.population = self._init(*arguments)
        if learned is not None:
            together = self._layout.place(jax.tree.map(lambda *each: np.stack(each), *learned))
            self.population = self._with(self.population.members._replace(learned=together))
        self._begin_episodes(0)

    def _with(self, members: Member) -> Population:
        return self.population._replace(members=members)

    def _begin_episodes(self, generation: int) -> None:
        """Reset every training environment."""
        self.rollouts.begin(self.uid, self.population.env_parameters, self._key(generation, "reset"))

    def train(self, generation: int, iterations: int, chunk: int, progress: RunProgress = START) -> Metrics:
        """One interval: `iterations` rollouts and updates. Returns metrics [N], their mean over the interval."""
        agent, self._generation = self._agent, generation
        key = jax_key(self._key(generation, "train"))
        interval = Interval(iterations, chunk, self.pause, progress)
        trained = self.rollouts.train(self.population, self.uid, key, interval)
        self.population, self._outcome, returned = trained.population, trained.fitness, trained.returns
        self._steps = self._steps + iterations * agent.rollout_length * agent.num_envs
        nothing = np.where(returned.episodes > 0, np.float32(0), np.float32(np.nan))
        return trained.metrics | {
            "episode/return": returned.mean + nothing,
            "episode/length": returned.length + nothing,
        }

    def evaluate(self, generation: int) -> Metrics:
        """Measure the fitness of every member; the same episodes for all of them, new ones in each generation.

        Returns metrics [N]: the noise of fitness; where there are levels, the returns on those of each purpose.
        """
        sound = np.asarray(self._finite(self.population.members))
        metrics: Metrics = {}
        if self._evaluation.source == "training":
            measured = _of_training(self._outcome)
        else:
            if self._evaluation.levels:
                on = {name: self._values(generation, f"evaluate {name}", name) for name in ("train", "validation")}
                metrics = of_levels(*(np.where(sound, summarise(value)[0], np.nan) for value, *_ in on.values()))
                value, *tie_breaker = on[self._evaluation.measured_on]
            else:
                value, *tie_breaker = self._values(generation, "evaluate", "")
            measured = summarise(value)
            metrics |= noise(value)
            self._tie_breaker = summarise(tie_breaker[0])[0] if tie_breaker else None
        self._fitness, self._std, self._counted = measured
        self._fitness = np.where(sound & np.isfinite(self._fitness), self._fitness, np.nan)
        return metrics

    def _values(self, generation: int, purpose: str, levels: str) -> tuple[np.ndarray, ...]:
        """Values of every member [N, E] by each measure, at these levels, in the same episodes."""
        key, episodes = jax_key(self._key(generation, purpose)), self._evaluation.episodes
        keys = jnp.broadcast_to(jax.random.split(key, episodes), (len(self.uid), episodes))
        played = self.rollouts.evaluate(self.population, keys, levels, self.pause)
        self.count_evaluation(int(played.lengths.sum(dtype=np.int64)))
        return played.values

    def snapshot(self, row: int) -> PyTree:
        """See `Shard.snapshot`: `learned`, and the replay buffer where that is copied. Nobody waits for it here."""
        if self._is_on_host:
            return jax.tree.map(np.array, tree.take(self._copied, row))
        return self._snapshot(*self._layout.beside(self._copied, row))

    def learned(self) -> Callable[[int], PyTree]:
        of_all, beside, take = self.population.members.learned, self._layout.beside, self._snapshot
        if self._is_on_host:
            return lambda row: jax.tree.map(np.array, tree.take(of_all, row))
        return lambda row: take(*beside(of_all, row))

    def apply(self, decision: Decision | DistributionUpdate, arrived: Mapping[int, PyTree]) -> dict[str, float]:
        if isinstance(decision, DistributionUpdate):
            raise BadField("method", "its evolver weighs members for a mean, which those of its learner do not have")
        parents = decision.parents
        changed, place = parents != np.arange(len(self.uid)), self._layout.place
        if changed.any() or arrived:  # what `_insert` changes is new: see `learned`
            self._copied = self._inherit(self._copied, place(parents.astype(np.int32), REPLICATED))
        for row, state in arrived.items():
            where, new = place((np.int32(row), state), REPLICATED)
            self._copied = self._insert(self._copied, where, new)
            changed[row] = True
        if changed.any():
            self.rollouts.overwrite(changed)
        self.set_hyper(decision.hyper)
        return {}

    @property
    def _copied(self) -> tuple[PyTree, PyTree]:
        """The part of all members that children copy: `learned`, and the replay buffer where that is copied."""
        members = self.population.members
        return members.learned, members.replay_buffer if self._copies_replay else ()

    @_copied.setter
    def _copied(self, new: tuple[PyTree, PyTree]) -> None:
        members = self.population.members
        buffer = new[1] if self._copies_replay else members.replay_buffer
        self.population = self._with(members._replace(learned=new[0], replay_buffer=buffer))

    def test(self, policies: Sequence[Policy], key: Seed, episodes: int, levels: str) -> Outcome:
        shape = len(self.uid), self._evaluation.episodes
        return self.rollouts.play(self._acting, policies, key, episodes, shape, levels, self.pause)

    def _acting(self, policies: Sequence[Policy]) -> Population:
        """The members with the policies of others, as many as there are members."""
        others = acting_members(self._agent, self._layout, policies)
        members = self.population.members._replace(learned=others.members.learned)
        return self._with(members)._replace(hyper=others.hyper)

    def state(self) -> list[PyTree]:
        members = self.population.members
        return self._state(members.learned, self._with(members._replace(learned=())))

    def restore(self, states: Sequence[PyTree], generation: int) -> None:
        state = _of_members(states[0], self.uid)
        population = state["rest"]["population"]
        members = population.members._replace(learned=state["learned"])
        self._restore(state, population._replace(members=members), generation)
        self.rollouts.prepare(lambda: self.population, self.uid, self._evaluation.episodes)
        if self.rollouts.resumes_exactly:
            self.rollouts.restore(self._layout.place(state["rest"]["rollouts"]))
        else:
            self.population = self._with(self._agent.end_episodes(self.population.members))
            self._begin_episodes(generation + 1)


class AsOnePart(InTurn):
    """Shards that are one part of a checkpoint, which does not depend on how many devices there are."""

    def state(self) -> list[PyTree]:
        return [_joined(super().state())]

    def restore(self, states: Sequence[PyTree], generation: int) -> None:
        super().restore([*states] * len(self._shards), generation)
        for other in self._shards[1:]:
            other.count_evaluation(-other.evaluation_steps)  # all of them are the first one's


class GradientTrained(Compiled):
    """Members that live on, and copy one another."""

    shard_type = GradientTrainedShard

    def __init__(self, environment: Environment, learner: Learner, copies_replay: bool = False):
        super().__init__(environment, learner, copies_replay)
        self.episodes = EPISODES_ON_DEVICE if self.on_device else EPISODES

    def snapshot_of(self, population: Population) -> PyTree:
        """Snapshot of the first member."""
        members = tree.take(population.members, 0)
        return members.learned, members.replay_buffer if self.copies_replay else ()

    def interval(self, steps: int, generations: int, population: int) -> tuple[int, int]:
        """Return the number of whole rollouts, rounded up, and their steps; see `Kind.interval`."""
        agent, together = self.agent, self.together
        iterations = -(-steps // (agent.rollout_length * agent.num_envs))
        if iterations > INT32:
            raise BadField("interval", "must be less than 2**31 rollouts", value=steps)
        rounded = iterations * agent.rollout_length * agent.num_envs
        known = generations * rounded * (population if together else 1)
        if agent.learning_starts > known:
            who = "the members make" if together else "a member makes"
            made = f"{who} {known} steps in total (generations {generations} x interval {steps})"
            raise BadField(
                "config.learning_starts", f"nothing would ever be learned, for {made}", value=agent.learning_starts
            )
        return iterations, rounded

    def width(self, members: int, end: bool) -> int:
        """See `Compiled.width`. On a CPU members train in turn anyway: one per device, and all sizes share programs."""
        one_each = end and self.on_device and jax.default_backend() == "cpu"
        return self.layout(members).devices if one_each else members

    def shard(self, uids: Sequence[np.ndarray], setup: Setup) -> Shard:
        parts = [*uids[0].reshape(-1, self.width(len(uids[0]), setup.ends_members))]
        if len(parts) == 1:
            return super().shard(uids, setup)
        return AsOnePart([self.one_shard(uid, setup) for uid in parts], setup)


def _of_training(outcome: EpisodeSums) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fitness, standard deviation and number of the interval's training episodes [N]; NaN where none ended."""
    n = np.asarray(outcome.episodes, np.float64)
    fitness = np.where(n > 0, np.asarray(outcome.mean, np.float64), np.nan)
    variance = np.asarray(outcome.squares, np.float64) / np.maximum(n - 1, 1)
    return fitness, np.where(n > 1, np.sqrt(variance), np.nan), n.astype(np.int64)


def _inserted(inheritance: PyTree, row: jax.Array, state: PyTree) -> PyTree:
    """The part of all members that children copy, with another state at `row`."""
    return jax.tree.map(lambda x, new: x.at[row].set(new), inheritance, state)


def _of_members(state: PyTree, uid: np.ndarray) -> PyTree:
    """The state of the members uid [N], from that of a shard that has them and others."""
    if np.array_equal(state["uid"], uid):
        return state
    rows = np.searchsorted(state["uid"], uid)
    return _each(lambda x: x[rows], lambda total: total, state)


def _joined(states: Sequence[PyTree]) -> PyTree:
    """The state of the members of several shards."""
    return _each(lambda *parts: np.concatenate(parts), lambda *counts: np.int64(sum(counts)), *states)


def _each(members: Callable[..., np.ndarray], total: Callable[..., Any], *states: PyTree) -> PyTree:
    """One state, of what `members` makes of every leaf with the member axis, and `total` of the evaluation steps."""
    states = jax.device_get(states)
    by_part = [(state["rest"]["counters"].pop("evaluation_steps"), state) for state in states]
    every = jax.tree.map(members, *(state for _, state in by_part))
    every["rest"]["counters"]["evaluation_steps"] = total(*(count for count, _ in by_part))
    return every
