"""Individuals that may become the champion of a run, and what is remembered of them from generation to generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from shoal.core.population import PopulationStats, of_row, ranks


@dataclass(frozen=True)
class SmoothedFitness:
    """The mean of the best fitness of a generation and of those just before it: generations play different episodes, so
    that one fitness says more of the episodes than of the individual.

    error, tie_breaker: of the ties of these, where something breaks them
    """

    fitness: float = 0.0
    error: float = 0.0
    tie_breaker: float | None = None

    def after(self, stats: PopulationStats, count: int) -> SmoothedFitness:
        """Return the state after one more generation, which has the weight 1 / `count`."""

        def toward(new: float, before: float) -> float:
            return before + new / count - before / count  # as their difference may be infinite

        error, tie_breaker, tie = self.error, self.tie_breaker, stats.best_tie
        if tie is not None:
            error = toward(tie.error, error)
            if np.isfinite(tie.tie_breaker):
                tie_breaker = tie.tie_breaker if tie_breaker is None else toward(tie.tie_breaker, tie_breaker)
        return SmoothedFitness(toward(stats.best, self.fitness), error, tie_breaker)


@dataclass(frozen=True)
class Candidate:
    """An individual as it was after a generation.

    learned: a tree of arrays
    fitness: as it was measured then, in the episodes of that generation
    smoothed: fitness of that generation
    """

    learned: Any = None
    uid: int = -1
    generation: int = -1
    fitness: float = -np.inf
    hyper: dict[str, float] = field(default_factory=dict)
    smoothed: SmoothedFitness = SmoothedFitness()

    @classmethod
    def at(cls, stats: PopulationStats, row: int, smoothed: SmoothedFitness, learned: Any) -> Candidate:
        """Return the individual at a row of the stats, with what it has learned."""
        identity = int(stats.uid[row]), int(stats.generation[row])
        return cls(learned, *identity, float(stats.fitness[row]), of_row(stats.hyper, row), smoothed)

    def manifest(self) -> dict[str, Any]:
        """Return its fields for a manifest: all but what it has learned."""
        fields = asdict(replace(self, learned=None))
        del fields["learned"]
        return fields


NO_CANDIDATE = Candidate(smoothed=SmoothedFitness(-np.inf))
SMOOTHING = 4  # generations over which the best fitness is smoothed, about
EARLIER = 4  # generations whose best member stays a candidate by smoothed fitness, and as many by fitness


@dataclass(frozen=True)
class Candidates:
    """The individuals of whom the final selection finds the champion.

    earlier: the best member of each of the generations of the highest smoothed fitness, and of those of the highest
        fitness, which may be no luck; the highest smoothed fitness first
    last: members of the last generation, once there is one, the fittest first
    smoothed: fitness of the newest generation, whose number among those that have one is `measured`
    smoothing: generations over which the best fitness is smoothed, about; 1 where fitness is exact
    """

    earlier: tuple[Candidate, ...] = ()
    last: tuple[Candidate, ...] = ()
    smoothed: SmoothedFitness = SmoothedFitness()
    measured: int = 0
    smoothing: int = SMOOTHING

    @property
    def champion(self) -> Candidate:
        """The best individual so far."""
        return self.earlier[0] if self.earlier else NO_CANDIDATE

    @property
    def ordered(self) -> list[Candidate]:
        """All candidates, each once: by turns the best by smoothed fitness, by fitness in the last generation, in any."""
        fittest = sorted(self.earlier, key=lambda one: one.fitness, reverse=True)
        by_turns = [one for turn in zip_longest(self.earlier, self.last, fittest) for one in turn if one is not None]
        return list({(one.uid, one.generation): one for one in by_turns}.values())

    def rows_to_add(self, stats: PopulationStats, last: int) -> list[int]:
        """Return the rows of the members to add after a generation, the fittest first.

        last: how many to add of the last generation; 0 for an earlier one, of which the fittest is added if its smoothed
            fitness or its fitness is among the highest. A member without fitness is never added
        """
        fitness = stats.ranked().fitness
        fitness = np.where(np.isfinite(fitness), fitness, -np.inf)
        order = [int(row) for row in np.argsort(-fitness, kind="stable") if np.isfinite(fitness[row])]
        if last or not order:
            return order[:last]
        new = Candidate.at(stats, order[0], self._smoothed(stats), None)
        return order[:1] if any(one is new for one in _best((new, *self.earlier))) else []

    def with_generation(
        self, stats: PopulationStats, rows: Sequence[int], learned: Sequence[Any], last: bool
    ) -> Candidates:
        """Return the candidates after a generation, with the individuals at the rows to add and what each has learned.

        Of equal smoothed fitness the latest is the first.
        """
        if not np.isfinite(stats.fitness).any():
            return replace(self, last=())
        smoothed = self._smoothed(stats)
        new = tuple(Candidate.at(stats, row, smoothed, what) for row, what in zip(rows, learned, strict=True))
        earlier = _best((*new[:1], *self.earlier))
        newest = new if last else ()
        return Candidates(earlier, newest, smoothed, self.measured + 1, self.smoothing)

    def _smoothed(self, stats: PopulationStats) -> SmoothedFitness:
        """The smoothed fitness with one more generation: the mean of all at first, then an exponential one."""
        return self.smoothed.after(stats, min(self.measured + 1, self.smoothing))


def _best(individuals: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The EARLIER highest by smoothed fitness, and as many by fitness. By smoothed fitness, and where it is tied by what
    breaks ties; of equals the first leads."""
    smoothed = [one.smoothed for one in individuals]
    fitness, error = np.array([x.fitness for x in smoothed]), np.array([x.error for x in smoothed])
    tie_breaker = np.array([x.tie_breaker for x in smoothed], float)  # NaN where there is none
    order = np.argsort(-ranks(fitness, error, np.ones(len(fitness)), tie_breaker), kind="stable")
    by_smoothed = [individuals[row] for row in order]
    fittest = sorted(individuals, key=lambda one: one.fitness, reverse=True)
    kept = {id(one) for one in by_smoothed[:EARLIER] + fittest[:EARLIER]}
    return tuple(one for one in by_smoothed if id(one) in kept)
