"""Selectors: who copies whom. Each is a frozen dataclass, called as `(key, stats [M], rows [N]) -> Selection`; rows: the
members to decide for.

What holds for all of them:

- Members with NaN or infinite fitness rank last, never become parents, and copy a member with finite fitness. Where no
  fitness is finite, all members keep weights and hyperparameters. (`NoSelection` ignores fitness, and without parents nobody
  copies.)
- Members of equal fitness are ranked at random, so that they sometimes copy. The best is never overwritten.
- A member's random numbers depend only on the key and its uid: every process decides the same, in any order of the
  stats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from shoal.core.errors import BadField
from shoal.core.keys import draws
from shoal.core.population import PopulationStats, Seed, Selection


class RankedMembers(NamedTuple):
    """All members, ordered by uid. At least one of them has finite fitness.

    fitness:   float64 [n], -inf where it is not finite
    std:       float64 [n], sample standard deviation of the episodes behind the fitness
    episodes:  int64 [n], the number of these episodes
    finite:    bool [n]
    rank:      int64 [n], 0 is the best; equal fitness in random order, non-finite last
    uniform:   float64 [n], uniform in [0, 1): chooses each member's parent or opponent
    """

    fitness: np.ndarray
    std: np.ndarray
    episodes: np.ndarray
    finite: np.ndarray
    rank: np.ndarray
    uniform: np.ndarray


@dataclass(frozen=True)
class Selector:
    """Base of selectors: order and rank the members of the stats, and let `choose` decide."""

    min_population: ClassVar[int] = 2  # the smallest one that the selector makes sense for
    copies: ClassVar[bool] = True  # members may copy one another

    def advice(self, members: int, episodes: int) -> str:
        """Advice for so many members with so many episodes of each; empty where there is none."""
        return ""

    def choose(self, members: RankedMembers) -> tuple[np.ndarray, np.ndarray]:
        """Return parents int64 [n] (indices into the members) and explore bool [n]."""
        raise NotImplementedError

    def __call__(self, key: Seed, stats: PopulationStats, rows: np.ndarray) -> Selection:
        parents, explore = np.arange(len(stats.uid)), np.zeros(len(stats.uid), bool)
        if np.isfinite(stats.fitness).any():
            by_uid = np.argsort(stats.uid)
            chosen, explore[by_uid] = self.choose(_ranked(key, stats.take(by_uid)))
            parents[by_uid] = by_uid[chosen]
        return Selection(parents[rows], explore[rows])


@dataclass(frozen=True)
class Truncation(Selector):
    """The worst members copy random members from the top, and explore (PBT, arXiv 1711.09846).

    Both fractions are rounded down, but at least one member is replaced and at least one is a parent. All members with
    non-finite fitness are replaced too.
    fastpbrl (arXiv 2206.08888) uses bottom = 0.4 with parents = above.
    """

    bottom: float = 0.25
    """fraction that is replaced: rounded down, at least one member, and diverged ones"""
    top: float = 0.25
    """fraction of the population that is copied from, with parents: top"""
    parents: Literal["top", "above", "none"] = "top"
    """copied from: the top fraction, all above the bottom, or none (exploring alone)"""

    def __post_init__(self) -> None:
        if not (0 < self.bottom < 1 and 0 < self.top < 1):
            raise BadField("bottom", f"it and top = {self.top} must lie between 0 and 1", value=self.bottom)
        if self.parents == "top" and self.bottom + self.top > 1:
            raise BadField("bottom", f"overlaps with top = {self.top}", "together at most 1", value=self.bottom)

    @property
    def copies(self) -> bool:  # type: ignore[override]
        return self.parents != "none"

    def advice(self, members: int, episodes: int) -> str:
        less = f"bottom = {self.bottom:g} of {members} is less than one member; one is replaced anyway"
        return less if self.bottom * members < 1 else ""

    def choose(self, members: RankedMembers) -> tuple[np.ndarray, np.ndarray]:
        n = len(members.rank)
        above = n - min(_share(self.bottom, n), n - 1)
        replaced = (members.rank >= above) | ~members.finite
        if self.parents == "none":
            return np.arange(n), replaced
        count = above if self.parents == "above" else min(_share(self.top, n), above)
        pool = np.flatnonzero(members.finite & (members.rank < count))
        return _copying(np.where(replaced, _draw(pool, members.uniform), np.arange(n)))


@dataclass(frozen=True)
class WinnerTakesAll(Selector):
    """All members but the best become children of the best and explore (EVO)."""

    def choose(self, members: RankedMembers) -> tuple[np.ndarray, np.ndarray]:
        return _copying(np.full(len(members.rank), members.rank.argmin()))


@dataclass(frozen=True)
class Tournament(Selector):
    """Each member has a random opponent; if that is better, it copies it and explores (PBT's binary tournament).

    Opponents have finite fitness, so that a diverged member always finds a parent.
    """

    def choose(self, members: RankedMembers) -> tuple[np.ndarray, np.ndarray]:
        opponents = _opponents(members)
        return _copying(np.where(members.rank[opponents] < members.rank, opponents, np.arange(len(opponents))))


@dataclass(frozen=True)
class Threshold(Selector):
    """Members clearly below the mean copy members clearly above it and explore (DexPBT, Isaac Lab).

    Mean and standard deviation are those of the finite fitness. A member is below or above when its distance from the
    mean exceeds both thresholds. When none is above, a member below keeps its weights and explores; a diverged one then
    copies a random member with finite fitness.
    """

    threshold_std: float = 0.1
    """distance from the mean in standard deviations"""
    threshold_abs: float = 0.025
    """distance from the mean in units of fitness"""

    def __post_init__(self) -> None:
        if not (self.threshold_std >= 0 and self.threshold_abs >= 0):
            problem = f"it and threshold_abs = {self.threshold_abs} must not be negative"
            raise BadField("threshold_std", problem, value=self.threshold_std)

    def choose(self, members: RankedMembers) -> tuple[np.ndarray, np.ndarray]:
        finite = members.fitness[members.finite]
        with np.errstate(over="ignore", invalid="ignore"):  # overflow, with fitness near the ends of float64: no copies
            margin = max(self.threshold_std * finite.std(), self.threshold_abs)
            # Rounding must not move the mean away from equal members.
            mean = np.clip(finite.mean(), finite.min(), finite.max())
            below, above = members.fitness < mean - margin, members.fitness > mean + margin
        itself = np.arange(len(below))
        if above.any():
            leaders = _draw(np.flatnonzero(above), members.uniform)
        else:
            leaders = np.where(members.finite, itself, _draw(np.flatnonzero(members.finite), members.uniform))
        below |= ~members.finite
        return np.where(below, leaders, itself), below


@dataclass(frozen=True)
class TTest(Selector):
    """Each member has a random opponent; if that is significantly better, it copies it and explores (PBT's t-test).

    Better: higher mean return of its episodes, by Welch's t-test. With fewer than two episodes of either member there
    is no copy; when the returns of neither vary, any difference is significant. Opponents as in a tournament; a diverged
    member copies its opponent without a test.
    """

    p: float = 0.05
    """two-sided significance level of Welch's test; needs fitness.episodes of 2 or more"""

    def __post_init__(self) -> None:
        if not 0 < self.p < 1:
            raise BadField("p", "must lie between 0 and 1", value=self.p)

    def advice(self, members: int, episodes: int) -> str:
        return "t_test never copies with one episode: set fitness.episodes to 2 or more" if episodes < 2 else ""

    def choose(self, members: RankedMembers) -> tuple[np.ndarray, np.ndarray]:
        opponents, itself = _opponents(members), np.arange(len(members.rank))
        better = ~members.finite & members.finite[opponents] | significantly_better(members, opponents, itself, self.p)
        return _copying(np.where(better, opponents, itself))


def significantly_better(
    found: PopulationStats | RankedMembers, rows: np.ndarray, others: np.ndarray, p: float = 0.05
) -> np.ndarray:
    """Mark, bool [N], where the members in rows, int64 [N], are significantly better than the others, int64 [N].

    Welch's t-test of their episodes, with the two-sided significance level p; never where either has fewer than two.
    """
    from scipy.stats import ttest_ind_from_stats

    enough = np.isfinite(found.fitness) & (found.episodes >= 2)
    tested, values = enough[rows] & enough[others], np.ones(len(rows))
    a, b = ([x[i[tested]] for x in (found.fitness, found.std, found.episodes)] for i in (rows, others))
    with np.errstate(all="ignore"):  # no variance: p is 0, or NaN where the means are equal too; overflow: 1 or NaN
        values[tested] = ttest_ind_from_stats(*a, *b, equal_var=False).pvalue
    return (found.fitness[rows] > found.fitness[others]) & (values < p)


@dataclass(frozen=True)
class NoSelection(Selector):
    """No member copies: the control, many independent runs."""

    min_population: ClassVar[int] = 1
    copies: ClassVar[bool] = False

    explore: bool = False
    """every member explores in place"""

    def __call__(self, key: Seed, stats: PopulationStats, rows: np.ndarray) -> Selection:
        return Selection(rows.copy(), np.full(len(rows), self.explore))


SELECTORS: dict[str, type[Selector]] = {
    "truncation": Truncation,
    "winner_takes_all": WinnerTakesAll,
    "tournament": Tournament,
    "threshold": Threshold,
    "t_test": TTest,
    "none": NoSelection,
}


def _ranked(key: Seed, stats: PopulationStats) -> RankedMembers:
    finite = np.isfinite(stats.fitness)
    fitness = np.where(finite, stats.fitness, -np.inf)
    uniform, tie_break = draws(key, stats.uid, 2).T
    rank = np.empty(len(fitness), np.int64)
    rank[np.lexsort((tie_break, -fitness))] = np.arange(len(fitness))
    return RankedMembers(fitness, stats.std, stats.episodes, finite, rank, uniform)


def _share(fraction: float, n: int) -> int:
    """Return a fraction of n, rounded down, at least 1; without the tiny addition 0.57 x 100 would become 56."""
    return max(1, int(fraction * n + 1e-9))


def _draw(pool: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Draw one of `pool` for each number in `uniform`, uniformly."""
    return pool[(uniform * len(pool)).astype(int)]


def _opponents(members: RankedMembers) -> np.ndarray:
    """Draw for each member one of the others with finite fitness, uniformly; itself where there is none."""
    finite, itself = np.flatnonzero(members.finite), np.arange(len(members.rank))
    others = len(finite) - members.finite
    # Of the finite without itself, which is where as many are before it.
    chosen = (members.uniform * others).astype(int)
    chosen += members.finite & (chosen >= np.cumsum(members.finite) - 1)
    return np.where(others > 0, finite[np.minimum(chosen, len(finite) - 1)], itself)


def _copying(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the parents, and mark members that copy as exploring."""
    return parents, parents != np.arange(len(parents))
