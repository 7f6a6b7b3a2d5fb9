"""The population as evolution sees it, and decisions about it: no agent, no environment, and no JAX.

Axes in every docstring: N members of a shard, M visible members.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from shoal.core.space import Range

Values = dict[str, np.ndarray]  # of hyperparameters by name, float32 [N] each


class Tie(NamedTuple):
    """What is tied with a fitness, and what breaks the tie."""

    error: float  # the standard error of the fitness
    then: float  # of the best of those that are tied with it; may not be finite


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
    then: np.ndarray | None = None  # float64 [M], mean of what breaks ties of the fitness; None: nothing does

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Those [M] that there are, by name; without hyperparameters."""
        given = self._asdict().items()
        return {name: x for name, x in given if name not in ("hyper", "progress") and x is not None}

    @property
    def best(self) -> float:
        """The highest fitness; -inf where there is none."""
        return float(np.max(self.fitness, where=np.isfinite(self.fitness), initial=-np.inf))

    @property
    def best_tie(self) -> Tie | None:
        """Of the highest fitness, where something breaks ties."""
        if self.then is None or not np.isfinite(self.fitness).any():
            return None
        highest = np.argmax(np.where(np.isfinite(self.fitness), self.fitness, -np.inf))
        best = np.nanargmax(self.ranked().fitness)
        error = self.std[highest] / np.sqrt(max(self.episodes[highest], 1))
        return Tie(float(np.nan_to_num(error, posinf=0.0)), float(self.then[best]))

    def take(self, rows: np.ndarray) -> PopulationStats:
        """The stats of some members."""
        arrays = {name: x[rows] for name, x in self.arrays.items()}
        return self._replace(**arrays, hyper={name: values[rows] for name, values in self.hyper.items()})

    def with_more(self, rows: np.ndarray, returns: np.ndarray, then: np.ndarray | None = None) -> PopulationStats:
        """The same after more episodes of the members in K rows, returns [K, E], which the others have not played: these are
        easier or harder for all who play them, so the mean of the K members stays; and so for `then` [K, E]."""
        n, (_, k) = self.episodes[rows], returns.shape
        std, episodes = self.std.copy(), self.episodes.copy()
        fitness, means = _merged(self.fitness, rows, n, returns)
        squares = (n - 1) * np.nan_to_num(std[rows]) ** 2 + np.square(returns - means[:, None]).sum(1)
        std[rows] = np.sqrt(np.where(n + k > 2, squares / np.maximum(n + k - 2, 1), np.nan))
        episodes[rows] = n + k
        breaks = self.then if self.then is None or then is None else _merged(self.then, rows, n, then)[0]
        return self._replace(fitness=fitness, std=std, episodes=episodes, then=breaks)

    def ranked(self) -> PopulationStats:
        """The same, with `ranks` as fitness where something breaks its ties; as they are exact, without a standard
        deviation."""
        if self.then is None:
            return self
        rank = ranks(self.fitness, self.std, self.episodes, self.then)
        return self._replace(fitness=rank, std=np.zeros(len(rank)))


def _merged(before: np.ndarray, rows: np.ndarray, n: np.ndarray, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means [M] of which those in K rows, of n [K] episodes, have more [K, E], and keep their own mean; and the means of
    the new ones [K]."""
    merged, k = before.copy(), more.shape[1]
    means = np.where(np.isfinite(more), more, np.nan).mean(1)
    pooled = (n * before[rows] + k * means) / (n + k)
    known = np.isfinite(pooled)
    merged[rows] = pooled + (before[rows] - pooled)[known].sum() / max(known.sum(), 1)
    return merged, means


def of_row(values: Mapping[str, Any], row: int) -> dict[str, float]:
    """The hyperparameters of the member in a row of arrays [N] by name."""
    return {name: float(x[row]) for name, x in values.items()}


def ranks(fitness: np.ndarray, std: np.ndarray, episodes: np.ndarray, then: np.ndarray) -> np.ndarray:
    """How many of M are worse than each, float64 [M]; NaN where its fitness is not finite.

    From the best on, members are tied with whoever is fitter by no more than the standard error of that one's fitness,
    and the others are worse; of tied members, the one of which `then` is more is better.
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
    then = np.where(np.isfinite(then), then, -np.inf)
    worse = (group > group[:, None]) | ((group == group[:, None]) & (then < then[:, None]))
    return np.where(finite, worse.sum(1, dtype=np.float64), np.nan)


@dataclass(frozen=True)
class ChampionSoFar:
    """An individual as it was after a generation.

    learned: a tree of arrays
    fitness: as it was measured then, in the episodes of that generation
    smoothed_fitness: the mean of the best fitness of that generation and of those just before it: generations play
        different episodes, so that one fitness says more of the episodes than of the individual
    smoothed_error, smoothed_then: of the ties of these, where something breaks them
    """

    learned: Any = None
    uid: int = -1
    generation: int = -1
    fitness: float = -np.inf
    hyper: dict[str, float] = field(default_factory=dict)
    smoothed_fitness: float = 0.0
    smoothed_error: float = 0.0
    smoothed_then: float | None = None

    @classmethod
    def at(
        cls, stats: PopulationStats, row: int, smoothed: tuple[float, float, float | None], learned: Any
    ) -> ChampionSoFar:
        """The individual at a row of the stats, with what it has learned."""
        about = int(stats.uid[row]), int(stats.generation[row]), float(stats.fitness[row])
        return cls(learned, *about, of_row(stats.hyper, row), *smoothed)

    def about(self) -> dict[str, Any]:
        """Fields of the manifest: all but what it has learned."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "learned"}


NOBODY = ChampionSoFar(smoothed_fitness=-np.inf)
SMOOTHING = 4  # generations over which the best fitness is smoothed, about
EARLIER = 4  # generations whose best member stays a contender by smoothed fitness, and as many by fitness


@dataclass(frozen=True)
class Contenders:
    """The individuals of whom the final selection finds the champion.

    earlier: the best member of each of the generations of the highest smoothed fitness, and of those of the highest
        fitness, which may be no luck; the highest smoothed fitness first
    last: members of the last generation, once there is one, the fittest first
    smoothed_fitness: of the newest generation, whose number among those that have one is `measured`
    smoothed_error, smoothed_then: of the same, where something breaks ties
    smoothing: generations over which the best fitness is smoothed, about; 1 where fitness is exact
    """

    earlier: tuple[ChampionSoFar, ...] = ()
    last: tuple[ChampionSoFar, ...] = ()
    smoothed_fitness: float = 0.0
    measured: int = 0
    smoothing: int = SMOOTHING
    smoothed_error: float = 0.0
    smoothed_then: float | None = None

    @property
    def champion(self) -> ChampionSoFar:
        """The best so far."""
        return self.earlier[0] if self.earlier else NOBODY

    @property
    def entrants(self) -> list[ChampionSoFar]:
        """All of them, each once: by turns the best by smoothed fitness, by fitness in the last generation, and in any."""
        fittest = sorted(self.earlier, key=lambda one: one.fitness, reverse=True)
        by_turns = [one for turn in zip_longest(self.earlier, self.last, fittest) for one in turn if one is not None]
        return list({(one.uid, one.generation): one for one in by_turns}.values())

    def wanted(self, stats: PopulationStats, last: int) -> list[int]:
        """The rows of those that join after a generation, the fittest first: so many of the `last` one, else the fittest if
        its smoothed fitness or its fitness is among the highest. Whoever has no fitness never joins."""
        fitness = stats.ranked().fitness
        fitness = np.where(np.isfinite(fitness), fitness, -np.inf)
        order = [int(row) for row in np.argsort(-fitness, kind="stable") if np.isfinite(fitness[row])]
        if last or not order:
            return order[:last]
        new = ChampionSoFar.at(stats, order[0], self._smoothed(stats), None)
        return order[:1] if any(one is new for one in _best((new, *self.earlier))) else []

    def joined(self, stats: PopulationStats, rows: Sequence[int], learned: Sequence[Any], last: bool) -> Contenders:
        """After a generation, with the individuals at the `wanted` rows and what each has learned.

        Of equal smoothed fitness the latest is the first.
        """
        if not np.isfinite(stats.fitness).any():
            return replace(self, last=())
        smoothed = self._smoothed(stats)
        new = tuple(ChampionSoFar.at(stats, row, smoothed, what) for row, what in zip(rows, learned, strict=True))
        earlier = _best((*new[:1], *self.earlier))
        newest = new if last else ()
        fitness, error, then = smoothed
        return Contenders(earlier, newest, fitness, self.measured + 1, self.smoothing, error, then)

    def _smoothed(self, stats: PopulationStats) -> tuple[float, float, float | None]:
        """The smoothed fitness, error and tie-breaker with one more generation: means of all at first, then exponential
        ones."""
        count = min(self.measured + 1, self.smoothing)

        def toward(new: float, before: float) -> float:
            return before + new / count - before / count  # as their difference may be infinite

        error, then, tie = self.smoothed_error, self.smoothed_then, stats.best_tie
        if tie is not None:
            error = toward(tie.error, error)
            if np.isfinite(tie.then):
                then = tie.then if then is None else toward(tie.then, then)
        return toward(stats.best, self.smoothed_fitness), error, then


def _best(individuals: tuple[ChampionSoFar, ...]) -> tuple[ChampionSoFar, ...]:
    """The EARLIER highest by smoothed fitness, and as many by fitness. By smoothed fitness, and where it is tied by what
    breaks ties; of equals the first leads."""
    fitness, error = (np.array([getattr(one, f"smoothed_{x}") for one in individuals]) for x in ("fitness", "error"))
    then = np.array([one.smoothed_then for one in individuals], float)  # NaN where there is none
    order = np.argsort(-ranks(fitness, error, np.ones(len(fitness)), then), kind="stable")
    by_smoothed = [individuals[row] for row in order]
    fittest = sorted(individuals, key=lambda one: one.fitness, reverse=True)
    kept = {id(one) for one in by_smoothed[:EARLIER] + fittest[:EARLIER]}
    return tuple(one for one in by_smoothed if id(one) in kept)


@dataclass(frozen=True)
class Trend:
    """The course of the best fitness of a generation, which may stop a run early.

    One such fitness is partly luck, so improvement is one of the mean of several. All means are of equally many, because a
    mean of fewer is lucky more often. Where something breaks ties, means are compared as `ranks` does it.

    recent: of the last SMOOTHING generations that have one, the newest last
    highest: the highest mean of so many, once there is one
    since: generations since then, or since the mean of what breaks ties has risen while this one was tied
    errors, then: of the ties of so many generations; of those alone where `then` is finite
    highest_error, highest_then: their means, of the last improvement; None where there are too few
    """

    recent: list[float] = field(default_factory=list)
    highest: float | None = None
    since: int = 0
    errors: list[float] = field(default_factory=list)
    then: list[float] = field(default_factory=list)
    highest_error: float = 0.0
    highest_then: float | None = None

    def after(self, best: float, tie: Tie | None = None) -> Trend:
        """The same with one more generation; best: -inf where nobody had a fitness."""
        recent, errors, then = self.recent, self.errors, self.then
        if np.isfinite(best):
            recent = [*recent, best][-SMOOTHING:]
            errors = [*errors, tie.error][-SMOOTHING:] if tie else errors
            then = [*then, tie.then][-SMOOTHING:] if tie and np.isfinite(tie.then) else then
        new = replace(self, recent=recent, errors=errors, then=then)
        if len(recent) < SMOOTHING:
            return new
        mean, error = _mean(recent), _mean(errors) * (1 + 1e-9)  # as in `ranks`
        mean_then = _mean(then) if len(then) == SMOOTHING else None
        if self.highest is None or mean - error > self.highest:
            return replace(new, highest=mean, since=0, highest_error=error, highest_then=mean_then)
        tied = mean >= self.highest - self.highest_error
        if tied and mean_then is not None and (self.highest_then is None or mean_then > self.highest_then):
            highest, error = max((mean, error), (self.highest, self.highest_error))
            return replace(new, highest=highest, since=0, highest_error=error, highest_then=mean_then)
        return replace(new, since=self.since + 1)


def _mean(values: list[float]) -> float:
    """Exact, so that their order does not matter."""
    return math.fsum(x / SMOOTHING for x in values)


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
# (state, stats [M], round) -> rows [K] of members that play more episodes before the decision, in a round; none: it is made
InDoubt = Callable[[Any, PopulationStats, int], np.ndarray]
# (key, state, stats [M], mine [N]) -> (state, Decision), or DistributionUpdate with a SearchLearner
Decide = Callable[[Seed, Any, PopulationStats, np.ndarray], tuple[Any, Decision | DistributionUpdate]]


class PureEvolver(NamedTuple):
    """The decisions between generations, as pure functions. They depend on stats, never on agents."""

    init: Init
    decide: Decide
    in_doubt: InDoubt = lambda state, stats, round_: np.arange(0)
