"""Successive halving (Jamieson & Talwalkar 2016, arXiv 1502.07943): at each rung the better members go on, and make the
steps of those that end. Between the rungs members may copy and explore as in population-based training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from shoal.core.errors import BadField, check_least
from shoal.core.population import Decision, PopulationStats, PureEvolver, Seed
from shoal.core.space import SearchSpace
from shoal.core.types import Tunable
from shoal.methods.independent import unchanged
from shoal.methods.pbt import Pbt
from shoal.methods.select import significantly_better


@dataclass(frozen=True, kw_only=True)
class SuccessiveHalving(Pbt):
    """Successive halving: weak members end, and the steps that they would have made go to the others.

    At each rung some members go on, and the others end. Members that hold the default hyperparameters end separately
    from those that are tuned, so that what learns fast at first does not take the places of what learns more in the
    end. Between the rungs weak tuned members may copy stronger ones and explore their hyperparameters.
    """

    default_members: float = 0.5
    """share of members that hold the default hyperparameters, copy nobody and are not explored"""
    eta: int = 2
    """reduction factor: one in eta members survives each rung"""
    min_members: int = 1
    """members that train to the end"""
    rungs: tuple[float, ...] | None = None
    """rungs as shares of the run, such as [0.1, 0.3, 0.6] for 8 members"""
    between_rungs: Literal["pbt", "none"] = "pbt"
    """tuned members between rungs: pbt: they copy and explore; none: they do neither"""
    last_choice: Literal["t_test", "fitness"] = "t_test"
    """the last tuned member survives if significantly better (t_test), or if fitter (fitness)"""
    race: bool = False
    """at a rung, members near the cut play more episodes before the choice"""

    ends_members: ClassVar[bool] = True
    title: ClassVar[str] = "successive halving"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(2, self, "eta")
        check_least(1, self, "min_members")

    @property
    def copies(self) -> bool:
        return self.between_rungs == "pbt" and super().copies

    def validate(self, agent: Tunable, population: int) -> None:
        if self.min_members > population:
            problem = f"must be at most population = {population}"
            raise BadField("method.min_members", problem, value=self.min_members)
        members = self._members(population)
        if self.rungs is not None:
            ascending = [*self.rungs] == sorted({*self.rungs}) and all(0 < rung < 1 for rung in self.rungs)
            if len(self.rungs) != len(members) - 1 or not ascending:
                then = " then ".join(map(str, members))
                problem = f"{then} members need {len(members) - 1} rungs, ascending within (0, 1)"
                raise BadField("method.rungs", problem, value=list(self.rungs))

    def _members(self, population: int) -> list[int]:
        """Return the numbers of members, from the start to the last rung."""
        members = [population]
        while members[-1] > self.min_members:
            members.append(max(self.min_members, members[-1] // self.eta))
        return members

    def rung_sizes(self, population: int) -> list[tuple[float, int]]:
        members = self._members(population)
        last = len(members) - 1
        default = (0.5 * (self.eta**k - 1) / (self.eta**last - 1) for k in range(1, last + 1))
        return list(zip((0.0, *(default if self.rungs is None else self.rungs)), members, strict=True))

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        pbt, sizes = super().evolver(search, population), self.rung_sizes(population)

        def init(key: Seed, uid: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
            return {"rungs": np.array(0)}, pbt.init(key, uid)[1]

        def remaining(state: Any, stats: PopulationStats) -> int:
            """Members that go on at the rung that is due; 0 where none is."""
            rung = int(state["rungs"]) + 1
            due = rung < len(sizes) and is_due(sizes[rung][0], stats.progress, int(stats.generation.max()) + 1)
            return sizes[rung][1] if due else 0

        def decide(key: Seed, state: Any, stats: PopulationStats, rows: np.ndarray) -> tuple[Any, Decision]:
            if members := remaining(state, stats):
                kept = self.kept(stats, members, population)
                ends = tuple(np.flatnonzero(~kept[rows]).tolist())
                return {"rungs": state["rungs"] + 1}, unchanged(stats, rows)._replace(ends=ends)
            if self.between_rungs == "none":
                return state, unchanged(stats, rows)
            return state, pbt.decide(key, (), stats, rows)[1]  # type: ignore[return-value]

        def in_doubt(state: Any, stats: PopulationStats, round_: int) -> np.ndarray:
            members = remaining(state, stats) if self.race else 0
            return self.near_the_cut(stats, members, population, round_) if members else np.arange(0)

        return PureEvolver(init, decide, in_doubt)

    def kept(self, stats: PopulationStats, members: int, population: int) -> np.ndarray:
        """Mark the members that go on, bool [M]. Ties go to the lower uid. Members without a fitness end first: places of a
        group that has no more members with one go to the other group."""
        groups, finite = self._groups(stats.uid, members, population), np.isfinite(stats.fitness)
        fitness = np.where(finite, stats.fitness, -np.inf)
        default = self.holds_defaults(stats.uid, population)
        if len(groups) == 1 and self.last_choice == "t_test" and default.any() and (~default).any():
            fitness = np.where(default | _significantly_better(stats, fitness, default), fitness, -np.inf)
        rank, beyond = np.zeros((2, len(default)), np.int64)
        for group, places in groups:
            best_first = _best_first(fitness, stats.uid, group)
            rank[best_first] = np.arange(len(best_first))
            beyond[best_first[places:]] = 1
        kept = np.zeros(len(default), bool)
        kept[np.lexsort((stats.uid, rank, beyond, ~finite))[:members]] = True
        return kept

    def near_the_cut(self, stats: PopulationStats, members: int, population: int, round_: int) -> np.ndarray:
        """The rows of members on both sides of where a rung cuts, of each group half as many from round to round: those that
        are clearly better or worse need no more episodes (Bubeck, Wang & Viswanathan 2013)."""
        rows, kept, finite = [], self.kept(stats, members, population), np.isfinite(stats.fitness)
        for group, _ in self._groups(stats.uid, members, population):
            best_first = _best_first(stats.fitness, stats.uid, group & finite)
            places = int(kept[best_first].sum())
            width = (min(places, len(best_first) - places) + 1) // 2 >> round_
            rows += best_first[places - width : places + width].tolist()
        return np.array(rows, np.int64)

    def _groups(self, uid: np.ndarray, members: int, population: int) -> list[tuple[np.ndarray, int]]:
        """The groups, bool [M], that end separately, each with how many of it go on."""
        default, held = self.holds_defaults(uid, population), self.defaults_among(members)
        if held < members and default.any() and (~default).any():
            return [(default, held), (~default, members - held)]
        return [(np.ones(len(uid), bool), members)]


def is_due(rung: float, progress: float, generations: int) -> bool:
    """True at the end of the generation that is nearest to the share of the run after which a rung comes; at the end of the
    run there is none."""
    return rung <= progress * (1 + 0.5 / generations) and progress < 1


def at_generations(sizes: list[tuple[float, int]], generations: int) -> list[tuple[float, int]]:
    """`Method.rung_sizes` as they come in so many generations: at most one rung at the end of each."""
    reached, done = sizes[:1], 0
    for rung, members in sizes[1:]:
        nearest = range(max(done + 1, int(rung * generations) - 1), generations)
        done = next((end for end in nearest if is_due(rung, end / generations, end)), generations)
        if done < generations:
            reached.append((done / generations, members))
    return reached


def _best_first(fitness: np.ndarray, uid: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The rows of the members of a group, the fittest first."""
    best_first = np.lexsort((uid, -fitness))
    return best_first[group[best_first]]


def _significantly_better(stats: PopulationStats, fitness: np.ndarray, default: np.ndarray) -> np.ndarray:
    """Mark the members, bool [M], that are significantly fitter than the fittest default one (t-test).

    Before anything is learned, a higher fitness is luck. All are marked where the fitness has no standard deviation.
    """
    rows, best = np.arange(len(default)), np.where(default, fitness, -np.inf).argmax()
    sure = np.isfinite(fitness) & np.isfinite(stats.std) & (stats.episodes >= 2)
    return ~sure | ~sure[best] | significantly_better(stats, rows, np.full(len(rows), best))
