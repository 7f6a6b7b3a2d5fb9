"""A shard of members that are sampled around one policy, the mean, in every generation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.keys import derive, jax_key
from shoal.core.types import Cards, Member, Population, PyTree, Seed
from shoal.population.devices import OF_POPULATION, covered
from shoal.population.rollouts.episodes import add_metrics, mean_metrics, no_metrics, summarise
from shoal.population.shard import MemberShard

MEASURED = 4  # numbers per member in `measured`
TEST = 16  # episodes that the champion plays at a time


class SearchShard(MemberShard):
    """N members of a learner with `drawn`. Learning uses the episodes that measure them; these count as their steps.

    Snapshots, cards for records, and the champion are those of the mean.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        assert self._learner.drawn is not None
        self._drawn, layout = self._learner.drawn, self._layout
        draw = self._drawn.draw
        self._draw = layout.program(draw, OF_POPULATION, True, False, out=OF_POPULATION) if draw else None
        self._improve = layout.program(
            self._improve_members, OF_POPULATION, True, False, False, False, out=(OF_POPULATION, True), donate=(0, 1)
        )
        recombined = (OF_POPULATION, False)
        self._recombine = layout.gather(self._drawn.recombine, OF_POPULATION, False, False, False, out=recombined)
        self._mean = jax.jit(self._drawn.mean)
        self._sound = jax.jit(lambda population: _is_finite(self._drawn.mean(population)))
        self._drawn_with: tuple[int, Any] = (-1, None)  # a generation and its key
        self._new_steps, self._measured_in = np.zeros(len(self.uid), np.int64), -1
        self._of_mean = (np.nan, np.nan, 0)
        self._names: list[str] = []  # of the metrics of an update
        self._shape: PyTree = None  # of a snapshot
        self.programs = tuple(p for p in (self._draw, self._improve, self._recombine) if p is not None)

    def begin(self, hyper: dict[str, np.ndarray], train: bool = True) -> None:
        super().begin(hyper, train=False)

    def begin_episodes(self, generation: int) -> None:
        """Nothing to do: there are no training episodes."""

    def train(self, generation: int, iterations: int, chunk: int) -> dict[str, np.ndarray]:
        """Sample the members and make this generation's updates; `chunk` of the `iterations` parts of them at a time."""
        self._generation, place, n = generation, self._layout.place, len(self.uid)
        if self._draw is not None:
            self.population = self._draw(self.population, place(self.uid), self._draw_key())
        if self._drawn.improve is None:
            return {}
        hyper = self.population.hyper._replace(**self.hyper)
        count = self._drawn.updates(hyper, int(self._steps.sum()), int(self._new_steps.sum()))
        key = place(jax_key(self._key(generation, "train")), False)
        self._names = self._names or list(jax.eval_shape(self._drawn.improve, self.population, key)[1])
        sums = place(no_metrics(np, self._names, n))
        size, done = -(-count * chunk // iterations), 0
        while done < count:
            now = min(size, count - done)
            self.population, sums = self._improve(self.population, sums, key, np.int32(done), np.int32(now))
            done += now
            self.pause(sums, done / count * iterations)
        return mean_metrics(sums)

    def _improve_members(
        self, population: Population, sums: PyTree, key: jax.Array, first: jax.Array, count: jax.Array
    ) -> tuple[Population, PyTree]:
        improve = self._drawn.improve
        assert improve is not None

        def body(i: jax.Array, state: tuple[Population, PyTree]) -> tuple[Population, PyTree]:
            population, metrics = improve(state[0], jax.random.fold_in(key, i))
            return population, add_metrics(jnp, state[1], metrics)

        return jax.lax.fori_loop(first, first + count, body, (population, sums))

    def evaluate(self, generation: int) -> None:
        """Measure every member and the mean; the same episodes for all of them, new ones in each generation."""
        keys = jax.random.split(jax_key(self._key(generation, "evaluate")), self._episodes)
        cap = self._drawn.cap(self.population.hyper._replace(**self.hyper))
        measured = self.rollouts.measure(self.population, self.uid, self._draw_key(), keys, cap, self.pause)
        shared, returns, lengths = measured
        self.population = self.population._replace(shared=shared)
        self._measured_in, members = generation, lengths[:-1].sum(1).astype(np.int64)
        self._steps, self._new_steps = self._steps + members, members
        self.evaluation_steps += int(lengths[-1].sum())
        fitness, deviation, counted = summarise(returns)
        fitness = np.where(np.isfinite(fitness), fitness, np.nan)
        self._fitness, self._deviation, self._counted = fitness[:-1], deviation[:-1], counted[:-1]
        if self._draw is not None:  # else they are finite where their mean is
            self._fitness = np.where(self._finite(self.population.members), self._fitness, np.nan)
        sound = bool(self._sound(self.population))
        self._of_mean = fitness[-1] if sound else np.nan, deviation[-1], counted[-1]

    def measured(self) -> np.ndarray:
        """The results of the last `evaluate`, float64 [N, MEASURED]: steps, fitness, deviation, episodes."""
        return np.stack([self._new_steps, self._fitness, self._deviation, self._counted], 1).astype(np.float64)

    def accept(self, generation: int, rows: np.ndarray, other: SearchShard) -> None:
        """Take the results `rows` of another process where this shard has not measured; those of the mean from `other`."""
        if self._measured_in != generation:
            self._measured_in, self._generation = generation, generation
            self._new_steps, self._counted = rows[:, 0].astype(np.int64), rows[:, 3].astype(np.int64)
            self._fitness, self._deviation = rows[:, 1], rows[:, 2]
            self._steps = self._steps + self._new_steps
        self._of_mean = other._of_mean
        self.agree(other)

    def card_of_mean(self) -> Cards:
        """The card of the mean, as if it were the only member; its steps are those of all members."""
        fitness, deviation, counted = (np.array([x]) for x in self._of_mean)
        whole = self.cards()
        return whole.take(np.zeros(1, np.int64))._replace(
            uid=np.zeros(1, np.int64),
            steps=whole.steps.sum(keepdims=True),
            fitness=fitness.astype(np.float64),
            deviation=deviation.astype(np.float64),
            episodes=counted.astype(np.int64),
        )

    def recombine(self, uid: np.ndarray, weights: np.ndarray) -> dict[str, float]:
        """Update the mean with the weights of an evolver; `uid`, `weights` [M] are those of the members of all shards."""
        arguments = self._layout.place((uid.astype(np.uint32), weights.astype(np.float32)), False)
        self.population, metrics = self._recombine(self.population, *arguments, self._draw_key())
        return {name: float(x) for name, x in jax.device_get(metrics).items()}

    def agree(self, other: SearchShard) -> None:
        """Take the mean of another shard, which has recombined the same members."""
        self.population = self.population._replace(shared=other.population.shared)

    def snapshot(self, row: int) -> PyTree:
        return jax.tree.map(np.asarray, (self._mean(self.population), ()))

    def snapshot_shape(self) -> PyTree:
        if self._shape is None:
            self._shape = jax.eval_shape(lambda population: (self._drawn.mean(population), ()), self.population)
        return self._shape

    def test(self, learned: PyTree, hyper: dict[str, float], key: Seed, episodes: int) -> np.ndarray:
        n = self._layout.devices
        same = self._hyper({name: np.full(n, value) for name, value in hyper.items()})
        every = jax.tree.map(lambda x: np.broadcast_to(x, (n, *np.shape(x))), learned)
        population = self._layout.place(Population(Member(every, (), ()), (), same))
        size, results = -(-min(episodes, TEST) // n), []
        for round_ in range(-(-episodes // (n * size))):
            keys = jax.random.split(jax_key(derive(key, round_)), (n, size))
            results.append(self.rollouts.evaluate(population, keys, self.pause)[0].reshape(-1))
        return np.concatenate(results)[:episodes].astype(np.float64)

    def state(self) -> dict[str, PyTree]:
        state = super().state()
        state[self.name]["counters"]["new_steps"] = self._new_steps
        return state

    def restore(self, states: dict[str, PyTree], generation: int) -> None:
        super().restore(states, generation)
        self._new_steps = states[self.name]["counters"]["new_steps"]

    @property
    def compile_seconds(self) -> float:
        return super().compile_seconds + covered([p.compiling for p in self.programs])

    def _draw_key(self) -> jax.Array:
        """The key of this generation's members, on every device."""
        if self._drawn_with[0] != self._generation:
            key = jax_key(self._key(self._generation, "draw"))
            self._drawn_with = self._generation, self._layout.place(key, False)
        return self._drawn_with[1]


def _is_finite(learned: PyTree) -> jax.Array:
    return tree.finite(jax.tree.map(lambda x: x[None], learned))[0]
