"""The population as evolution sees it, and decisions about it: no agent, no environment, and no JAX.

Axes in every docstring: N members of a shard, M visible members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from shoal.core.space import Range

Values = dict[str, np.ndarray]  # of hyperparameters by name, float32 [N] each


class PopulationStats(NamedTuple):
    """The data of M members that selection uses. About a hundred bytes each; NumPy, so that any trainer can make them."""

    uid: np.ndarray  # int64 [M], the number of a member, which never changes
    generation: np.ndarray  # int64 [M]
    steps: np.ndarray  # int64 [M], environment steps trained
    fitness: np.ndarray  # float64 [M], always maximised; NaN: diverged, or not measured
    std: np.ndarray  # float64 [M], sample standard deviation of the episodes behind the fitness, NaN below two
    episodes: np.ndarray  # int64 [M], the number of these episodes
    hyper: dict[str, np.ndarray]  # float32 [M] each
    progress: float = np.float64(0.0)  # share of the run that is done, evaluation included; 1: all of it

    def take(self, rows: np.ndarray) -> PopulationStats:
        """The stats of some members."""
        arrays = {name: getattr(self, name)[rows] for name in ARRAYS}
        return self._replace(**arrays, hyper={name: values[rows] for name, values in self.hyper.items()})


ARRAYS = tuple(name for name in PopulationStats._fields if name not in ("hyper", "progress"))  # of stats, [M] each


@dataclass(frozen=True)
class ChampionSoFar:
    """The individual of the highest fitness so far; of equal ones the latest, which has trained longest."""

    learned: Any = None  # a tree of arrays
    uid: int = -1
    generation: int = -1
    fitness: float = -np.inf
    hyper: dict[str, float] = field(default_factory=dict)

    def beaten_by(self, stats: PopulationStats) -> int | None:
        """The row of the best of these members if it is at least as good, else None."""
        fitness = np.where(np.isfinite(stats.fitness), stats.fitness, -np.inf)
        row = int(np.argmax(fitness))
        return row if np.isfinite(fitness[row]) and fitness[row] >= self.fitness else None

    @classmethod
    def crowned(cls, stats: PopulationStats, row: int, learned: Any) -> ChampionSoFar:
        """The individual at a row of the stats, with what it has learned."""
        hyper = {name: float(x[row]) for name, x in stats.hyper.items()}
        return cls(learned, int(stats.uid[row]), int(stats.generation[row]), float(stats.fitness[row]), hyper)

    def about(self) -> dict[str, Any]:
        """Fields of the manifest."""
        return {"uid": self.uid, "generation": self.generation, "fitness": self.fitness, "hyper": self.hyper}


NOBODY = ChampionSoFar()


@dataclass(frozen=True)
class Contenders:
    """The fittest individuals of different generations so far, the best first, of whom a play-off finds the champion."""

    most: int
    best: tuple[ChampionSoFar, ...] = ()

    @property
    def champion(self) -> ChampionSoFar:
        """The fittest so far."""
        return self.best[0] if self.best else NOBODY

    def joined_by(self, stats: PopulationStats) -> int | None:
        """The row of the best of these members if it is one of them from now on, else None."""
        return (self.best[-1] if len(self.best) == self.most else NOBODY).beaten_by(stats)

    def joined(self, new: ChampionSoFar) -> Contenders:
        """Add a new one; of equal ones the latest is the first."""
        best = sorted((new, *self.best), key=lambda one: one.fitness, reverse=True)
        return replace(self, best=tuple(best[: self.most]))


class Selection(NamedTuple):
    """Decision of a selector for N members.

    parents: int64 [N], a row of the stats for each member; its own row: it keeps its weights
    explore: bool [N], the members whose hyperparameters are perturbed
    """

    parents: np.ndarray
    explore: np.ndarray


class Decision(NamedTuple):
    """Decision of an evolver for N members that are trained by gradients: whom they copy."""

    parents: np.ndarray  # int64 [N], rows of the stats; its own row: a member keeps its weights
    hyper: dict[str, np.ndarray]  # float32 [N] each
    metrics: Mapping[str, float] = MappingProxyType({})  # to be recorded
    ends: tuple[int, ...] = ()  # rows of the N members that train no more

    def part(self, rows: np.ndarray, parents: np.ndarray) -> Decision:
        """Return the decision for some of the members, `rows` int64 [K], in that order.

        parents: int64 [K], their rows among those that will do it
        """
        ends = tuple(i for i, row in enumerate(rows.tolist()) if row in self.ends)
        hyper = {name: x[rows] for name, x in self.hyper.items()}
        return self._replace(parents=parents, hyper=hyper, ends=ends)


class DistributionUpdate(NamedTuple):
    """Decision of an evolver whose members are sampled around a mean: the weight of each of all M in the next mean."""

    weights: np.ndarray  # float32 [M], in the order of the stats; the uids count from 0
    hyper: dict[str, np.ndarray]  # float32 [N] each
    metrics: Mapping[str, float] = MappingProxyType({})  # to be recorded

    @property
    def parents(self) -> np.ndarray:
        """Parents int64 [M]: nobody copies."""
        return np.arange(len(self.weights))

    def part(self, rows: np.ndarray, parents: np.ndarray) -> DistributionUpdate:
        """Return the part, as `Decision` does; the weights are those of all."""
        return self._replace(hyper={name: x[rows] for name, x in self.hyper.items()})


Seed = tuple[int, ...]  # (seed, generation, purpose, ...): all random numbers of evolution derive from one


# (key, stats [M], mine): of the M visible members; mine int64 [N], the rows of the members to decide for
Select = Callable[[Seed, PopulationStats, np.ndarray], Selection]
# (key, hyper [N], space, uid) -> new values, from those that are inherited; uid int64 [N] keys each member's random numbers
Explore = Callable[[Seed, Values, dict[str, Range], np.ndarray], Values]
# (key, uid [N]) -> (state, hyper): the first hyperparameters, float32 [N] each; state: arrays to be saved
Init = Callable[[Seed, np.ndarray], tuple[Any, Values]]
# (key, state, stats [M], mine [N]) -> (state, Decision), or DistributionUpdate with a SearchLearner
Decide = Callable[[Seed, Any, PopulationStats, np.ndarray], tuple[Any, Decision | DistributionUpdate]]


class PureEvolver(NamedTuple):
    """The decisions between generations, as pure functions. They depend on stats, never on agents."""

    init: Init
    decide: Decide
