"""Members that are sampled anew in every generation, around one policy: the mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.keys import jax_key, of_words, words
from shoal.core.population import Decision, DistributionUpdate, PopulationStats, Seed
from shoal.core.types import START, Array, Metrics, Population, PyTree, RunProgress, SearchLearner
from shoal.environments.registry import Environment
from shoal.members.acting import Policy, acting_members
from shoal.members.compiled import Compiled
from shoal.members.devices import MEMBERS, OF_POPULATION, REPLICATED
from shoal.members.mean import OfMean, mean_of
from shoal.members.protocol import Outcome, Setup, Shard
from shoal.members.rollouts.episodes import add_metrics, mean_metrics, no_metrics, of_levels, summarise
from shoal.members.rollouts.search import DeviceSearch, HostSearch
from shoal.members.shards import CompiledShard, InTurn
from shoal.rl.schedules import scheduled, share_done

SHOWN = 100  # parts that an interval is shown in
MEASURED = 4  # numbers per member in `measured`
TEST = 16  # episodes that policies play at a time


class SampledShard(CompiledShard):
    """N members of one learner in one environment. Learning uses the episodes that measure them; these count as steps.

    The one individual is the mean. uid: of its members, [N].
    """

    device_rollouts, host_rollouts = DeviceSearch, HostSearch
    rollouts: DeviceSearch | HostSearch

    def __init__(self, kind: Sampled, uid: np.ndarray, setup: Setup):
        super().__init__(kind, uid, setup)
        self._learner, layout = kind.learner, self._layout
        learner = kind.learner
        self._draw = layout.program(learner.draw, OF_POPULATION, MEMBERS, REPLICATED, out=OF_POPULATION)
        improved, rest = (OF_POPULATION, MEMBERS), [REPLICATED] * 4
        self._improve = layout.program(self._improve_members, *improved, *rest, out=improved, donate=(0, 1))
        updated, rest = (OF_POPULATION, REPLICATED), [REPLICATED] * 3
        self._update_distribution = layout.gather(learner.tell, OF_POPULATION, *rest, out=updated)
        self._make_keys = layout.gather(self._keys_of, REPLICATED, out=REPLICATED)
        self._mean = jax.jit(learner.mean)
        self._sound = jax.jit(lambda population: tree.finite(learner.mean(population), 0))
        self._programs += (self._draw, self._improve, self._update_distribution, self._make_keys)
        self._known_keys: tuple[int, Any] = (-1, None)  # a generation and its keys
        self._new_steps, self._measured_in = np.zeros(len(uid), np.int64), -1
        self._of_mean = OfMean()
        self._names: list[str] = []  # of an update's metrics; siblings have the same list

    def begin(self, hyper: dict[str, np.ndarray], learned: Sequence[PyTree] | None = None) -> None:
        """See `Shard.begin`; there is nothing to prepare for training."""
        self.population = self._init(*self._beginning(hyper))
        if learned is not None:
            self.population = self._layout.place(self._learner.with_mean(self.population, learned[0]), OF_POPULATION)
        if not self._names:
            self._names += jax.eval_shape(self._learner.improve, self.population, self._keys[0])[1]

    def train(self, generation: int, iterations: int, chunk: int, progress: RunProgress = START) -> Metrics:
        """Sample the members and make this generation's updates; `chunk` of the `iterations` parts of them at a time."""
        self._generation, place = generation, self._layout.place
        if self._learner.stored:
            self.population = self._draw(self.population, place(self.uid), self._keys[0])
        hyper = self.population.hyper._replace(**self.hyper)
        count = self._learner.updates(hyper, int(self._steps.sum()), int(self._new_steps.sum()))
        sums = no_metrics(np, self._names, len(self.uid))
        if count:
            sums, key = place(sums), place(jax_key(self._key(generation, "train")), REPLICATED)
            progress = progress._replace(per_iteration=np.float32(progress.per_iteration * iterations / count))
            size, done = -(-count * chunk // iterations), 0
            while done < count:
                now = min(size, count - done)
                times = progress, np.int32(done), np.int32(now)
                self.population, sums = self._improve(self.population, sums, key, *times)
                done += now
                self.pause(sums, done / count * iterations)
        return mean_metrics(sums)

    def _improve_members(
        self, population: Population, sums: PyTree, key: Array, progress: RunProgress, first: Array, count: Array
    ) -> tuple[Population, PyTree]:
        hyper = population.hyper

        def body(i: jax.Array, state: tuple[Population, PyTree]) -> tuple[Population, PyTree]:
            now = state[0]._replace(hyper=scheduled(hyper, share_done(progress, i)))
            population, metrics = self._learner.improve(now, jax.random.fold_in(key, i))
            return population._replace(hyper=hyper), add_metrics(jnp, state[1], metrics)

        return jax.lax.fori_loop(first, first + count, body, (population, sums))

    def evaluate(self, generation: int) -> Metrics:
        """Measure every member and the mean; the same episodes for all of them, new ones in each generation.

        Where there are levels, members are measured on those to train on, as they learn from it; the mean on others too.
        """
        cap = self._learner.cap(self.population.hyper._replace(**self.hyper))
        shared, returns, lengths = self.rollouts.measure(self.population, self.uid, *self._keys, cap, self.pause)
        self.population = self.population._replace(shared=shared)
        self._measured_in, members = generation, lengths[:-1].sum(1, dtype=np.int64)
        self._steps, self._new_steps = self._steps + members, members
        fitness, std, counted = summarise(returns)
        fitness = np.where(np.isfinite(fitness), fitness, np.nan)
        self._fitness, self._std, self._counted = fitness[:-1], std[:-1], counted[:-1]
        if self._learner.stored:  # else they are finite where their mean is
            self._fitness = np.where(self._finite(self.population.members), self._fitness, np.nan)
        sound = bool(self._sound(self.population))
        first = fitness[-1] if sound else np.nan
        self._of_mean = OfMean(first, std[-1], counted[-1], first, steps=int(lengths[-1].sum(dtype=np.int64)))
        if self._evaluation.levels:
            self._measure_mean(generation, sound)
        self._count_mean()
        return {}

    def _measure_mean(self, generation: int, sound: bool) -> None:
        """Measure the mean on levels that nobody has learned from."""
        hyper = {name: float(x[0]) for name, x in self.hyper.items()}
        key = self._key(generation, "evaluate validation")
        policy = Policy(self._mean(self.population), hyper)
        played = self.test([policy], key, self._evaluation.episodes, "validation")
        mean, std, counted = (x[0] for x in summarise(played.returns))
        trained = self._of_mean
        metrics = of_levels(np.array([trained.fitness]), np.array([mean if sound else np.nan]))
        if self._evaluation.measured_on == "validation":
            fitness = mean if sound and np.isfinite(mean) else np.nan
            trained = trained._replace(fitness=fitness, std=std, episodes=counted)
        self._of_mean = trained._replace(metrics=metrics, steps=trained.steps + played.steps)

    def _count_mean(self) -> None:
        """Count its evaluation once, though every shard makes it: budgets must not depend on shards."""
        if self.uid[0] == 0:
            self.count_evaluation(self._of_mean.steps)

    def measured(self) -> np.ndarray:
        """The results of the last `evaluate`, float64 [N, MEASURED]: steps, fitness, standard deviation, episodes."""
        return np.stack([self._new_steps, self._fitness, self._std, self._counted], 1).astype(np.float64)

    def accept(self, generation: int, rows: np.ndarray, other: SampledShard) -> None:
        """Take the results `rows` of another process where this shard has not measured; those of the mean from `other`."""
        self._of_mean = other._of_mean
        if self._measured_in != generation:
            self._measured_in, self._generation = generation, generation
            self._new_steps, self._counted = rows[:, 0].astype(np.int64), rows[:, 3].astype(np.int64)
            self._fitness, self._std = rows[:, 1], rows[:, 2]
            self._steps = self._steps + self._new_steps
            self._count_mean()
        self.take_shared(other)

    def individuals(self, stats: PopulationStats, metrics: Metrics) -> tuple[PopulationStats, Metrics]:
        """Return the stats and metrics of the mean, the only individual."""
        return mean_of(stats, metrics, self._of_mean)

    def snapshot(self, row: int) -> PyTree:
        """See `Shard.snapshot`: the mean, which has no replay buffer. Nobody waits for it here."""
        return self._mean(self.population), ()

    def learned(self) -> Callable[[int], PyTree]:
        mean, population = self._mean, self.population
        return lambda row: mean(population)

    def apply(self, decision: Decision | DistributionUpdate, arrived: Mapping[int, PyTree]) -> dict[str, float]:
        if isinstance(decision, Decision):
            raise BadField("method", "its evolver decides whom members copy, but its learner samples them anew")
        uid, weights = np.arange(len(decision.weights), dtype=np.uint32), decision.weights.astype(np.float32)
        new, metrics = self._update_distribution(self.population, uid, weights, self._keys[0])
        known = self.population  # its hyperparameters are on this side
        self.population = new._replace(hyper=known.hyper, env_parameters=known.env_parameters)
        self.set_hyper(decision.hyper)
        return {name: float(x) for name, x in jax.device_get(metrics).items()}

    def test(self, policies: Sequence[Policy], key: Seed, episodes: int, levels: str) -> Outcome:
        acting, n = partial(acting_members, self._agent, self._layout), self._layout.devices
        # With levels, in every generation too.
        at_a_time = min(self._evaluation.episodes, TEST) if self._evaluation.levels else TEST
        return self.rollouts.play(acting, policies, key, episodes, (n, -(-at_a_time // n)), levels, self.pause)

    def state(self) -> list[PyTree]:
        """The state for a checkpoint; members are not in it but as they stand in the population, to be sampled anew."""
        of_mean = {"new_steps": self._new_steps, "fitness_of_mean": np.float64(self._of_mean.fitness)}
        return self._state((), self.population, **of_mean)

    def restore(self, states: Sequence[PyTree], generation: int) -> None:
        state = states[0]
        self._restore(state, state["rest"]["population"], generation)
        counters = state["rest"]["counters"]
        self._new_steps, self._of_mean = counters["new_steps"], OfMean(float(counters["fitness_of_mean"]))

    @property
    def _keys(self) -> tuple[jax.Array, jax.Array]:
        """The key of this generation's members and those of its episodes [E], on every device."""
        if self._known_keys[0] != self._generation:
            two = [words(self._key(self._generation, purpose), 2) for purpose in ("draw", "evaluate")]
            self._known_keys = self._generation, self._make_keys(np.array(two, np.uint32))
        return self._known_keys[1]

    def _keys_of(self, two: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One program: a key by itself takes a tenth of a millisecond, and as long to be placed."""
        drawn, played = (of_words(first, second) for first, second in two)
        return drawn, jax.random.split(played, self._evaluation.episodes)


class SharedEvaluation(InTurn):
    """A group in which every worker has all shards, but measures only those that no other worker measures.

    Members derive from keys, and the mean's step from the returns, so that all workers have the same mean. Each of them
    measures the mean itself.
    """

    def __init__(self, shards: Sequence[SampledShard], setup: Setup):
        super().__init__(shards, setup)
        assert setup.returns is not None
        self._returns = setup.returns

    def evaluate(self, generation: int) -> Metrics:
        shards = self._shards
        measured: SampledShard | None = None
        shape = len(shards[0].uid), MEASURED  # all parts have as many members
        for part in self._returns.to_measure(generation, len(shards), shape):
            shard = shards[part]
            shard.to_device()
            shard.evaluate(generation)
            self._returns.publish(generation, part, shard.measured())
            self._make_room(shard)
            measured = measured or shard
        assert measured is not None
        for part, shard in enumerate(shards):
            shard.accept(generation, self._returns.rows[part], measured)
        return {}


class Sampled(Compiled):
    """Members that are sampled anew in every generation, around one policy: the mean."""

    shard_type, sampled = SampledShard, True

    def __init__(self, environment: Environment, learner: SearchLearner, copies_replay: bool = False):
        super().__init__(environment, learner, copies_replay)
        self.side_by_side = 2 if learner.pairs else 1

    def snapshot_of(self, population: Population) -> PyTree:
        """Snapshot of the mean, without a replay buffer."""
        return self.learner.mean(population), ()

    def interval(self, steps: int, generations: int, population: int) -> tuple[int, int]:
        """Return the number of parts to show, and 0, as an interval is whole episodes; see `Kind.interval`."""
        return SHOWN, 0

    def copies(self, members: int, devices: int, episodes: int) -> int:
        return min(members + 1, self.learner.chunk * devices) * episodes

    def shard(self, uids: Sequence[np.ndarray], setup: Setup) -> Shard:
        if setup.returns is None:
            return super().shard(uids, setup)
        return SharedEvaluation([self.one_shard(uid, setup) for uid in uids], setup)
