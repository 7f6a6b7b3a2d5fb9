"""The population as evolution sees it, and decisions about it: no agent, no environment, and no JAX.

Axes in every docstring: N members of a shard, M visible members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from shoal.core.space import Range

Values = dict[str, np.ndarray]  # of hyperparameters by name, float32 [N] each


class Tie(NamedTuple):
    """The margin within which others are tied with a fitness, and the highest tie-breaker among them."""

    error: float  # the standard error of the fitness
    tie_breaker: float  # may not be finite


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
    tie_breaker: np.ndarray | None = None  # float64 [M], mean of what breaks ties of the fitness; None: nothing does

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Per-member arrays [M] by name, without hyperparameters."""
        given = self._asdict().items()
        return {name: x for name, x in given if name not in ("hyper", "progress") and x is not None}

    @property
    def best(self) -> float:
        """The highest fitness; -inf where there is none."""
        return float(np.max(self.fitness, where=np.isfinite(self.fitness), initial=-np.inf))

    @property
    def best_tie(self) -> Tie | None:
        """Margin of the highest fitness and the best tie-breaker within it; None without a tie-breaker or a fitness."""
        if self.tie_breaker is None or not np.isfinite(self.fitness).any():
            return None
        highest = np.argmax(np.where(np.isfinite(self.fitness), self.fitness, -np.inf))
        best = np.nanargmax(self.ranked().fitness)
        error = self.std[highest] / np.sqrt(max(self.episodes[highest], 1))
        return Tie(float(np.nan_to_num(error, posinf=0.0)), float(self.tie_breaker[best]))

    def take(self, rows: np.ndarray) -> PopulationStats:
        """Return the stats of the members in `rows`, int64 [K]."""
        arrays = {name: x[rows] for name, x in self.arrays.items()}
        return self._replace(**arrays, hyper={name: values[rows] for name, values in self.hyper.items()})

    def with_more(
        self, rows: np.ndarray, returns: np.ndarray, tie_breaker: np.ndarray | None = None
    ) -> PopulationStats:
        """Return the stats after E more episodes of the K members in `rows`.

        returns: float [K, E]. tie_breaker: float [K, E], of these episodes

        The mean over the K members does not change, because the others did not play these episodes, which may be easier or
        harder. A member with a broken episode loses its fitness.
        """
        n, (_, k) = self.episodes[rows], returns.shape
        std, episodes = self.std.copy(), self.episodes.copy()
        fitness, means = _merged(self.fitness, rows, n, returns)
        squares = (n - 1) * np.nan_to_num(std[rows]) ** 2 + np.square(returns - means[:, None]).sum(1)
        std[rows] = np.sqrt(np.where(n + k > 2, squares / np.maximum(n + k - 2, 1), np.nan))
        episodes[rows] = n + k
        merged = self.tie_breaker
        if merged is not None and tie_breaker is not None:
            merged, _ = _merged(merged, rows, n, tie_breaker)
        return self._replace(fitness=fitness, std=std, episodes=episodes, tie_breaker=merged)

    def ranked(self) -> PopulationStats:
        """Return the stats with `ranks` as fitness and a standard deviation of 0, if there is a tie-breaker."""
        if self.tie_breaker is None:
            return self
        rank = ranks(self.fitness, self.std, self.episodes, self.tie_breaker)
        return self._replace(fitness=rank, std=np.zeros(len(rank)))


def _merged(before: np.ndarray, rows: np.ndarray, n: np.ndarray, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means [M] after more episodes of K members, and the means [K] of these episodes.

    before: means [M]. n: their episodes so far, of the K members. more: [K, E]. The mean over the K members does not change
    """
    merged, k = before.copy(), more.shape[1]
    means = np.where(np.isfinite(more), more, np.nan).mean(1)
    pooled = (n * before[rows] + k * means) / (n + k)
    known = np.isfinite(pooled)
    merged[rows] = np.where(known, pooled + (before[rows] - pooled)[known].sum() / max(known.sum(), 1), np.nan)
    return merged, means


def of_row(values: Mapping[str, Any], row: int) -> dict[str, float]:
    """Return the hyperparameters of one member, by name, from arrays [N]."""
    return {name: float(x[row]) for name, x in values.items()}


def ranks(fitness: np.ndarray, std: np.ndarray, episodes: np.ndarray, tie_breaker: np.ndarray) -> np.ndarray:
    """For each of M the number of those that are worse, float64 [M]; NaN where its fitness is not finite.

    From the best on, members are tied with whoever is fitter by no more than the standard error of that one's fitness,
    and the others are worse; of tied members, the one with the higher `tie_breaker` is better.
    """
    finite = np.isfinite(fitness)
    fitness = np.where(finite, fitness, -np.inf)
    error = np.nan_to_num(std / np.sqrt(np.maximum(episodes, 1)))
    group, least, last = np.zeros(len(fitness), np.int64), np.inf, 0
    for row in np.argsort(-fitness, kind="stable"):
        if fitness[row] < least:
            last += 1
            least = fitness[row] - error[row] * (1 + 1e-9)  # one success of n is by one error above none
        group[row] = last
    tie_breaker = np.where(np.isfinite(tie_breaker), tie_breaker, -np.inf)
    worse = (group > group[:, None]) | ((group == group[:, None]) & (tie_breaker < tie_breaker[:, None]))
    return np.where(finite, worse.sum(1, dtype=np.float64), np.nan)


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
        """Rows int64 [M] of the parents: each member its own, as none copies."""
        return np.arange(len(self.weights))

    def part(self, rows: np.ndarray, parents: np.ndarray) -> DistributionUpdate:
        """Return the decision for some of the members, as `Decision.part` does; the weights are those of all."""
        return self._replace(hyper={name: x[rows] for name, x in self.hyper.items()})


Seed = tuple[int, ...]  # (seed, generation, purpose, ...): all random numbers of evolution derive from one


# (key, stats [M], rows): of the M visible members; rows int64 [N]: the members to decide for
Select = Callable[[Seed, PopulationStats, np.ndarray], Selection]
# (key, hyper [N], space, uid) -> new values, from those that are inherited; uid int64 [N] keys each member's random numbers
Explore = Callable[[Seed, Values, dict[str, Range], np.ndarray], Values]
# (key, uid [N]) -> (state, hyper): the first hyperparameters, float32 [N] each; state: arrays to be saved
Init = Callable[[Seed, np.ndarray], tuple[Any, Values]]
# (state, stats [M], round) -> rows [K] of members that play more episodes before the decision, in a round; none: it is made
InDoubt = Callable[[Any, PopulationStats, int], np.ndarray]
# (key, state, stats [M], rows [N]) -> (state, Decision), or DistributionUpdate with a SearchLearner
Decide = Callable[[Seed, Any, PopulationStats, np.ndarray], tuple[Any, Decision | DistributionUpdate]]


class PureEvolver(NamedTuple):
    """The decisions between generations, as pure functions. They depend on stats, never on agents."""

    init: Init
    decide: Decide
    in_doubt: InDoubt = lambda state, stats, round_: np.arange(0)
