"""Survivors train longer: a population that halves as it learns, at the same steps per generation. It is successive halving
(Jamieson & Talwalkar 2016, arXiv 1502.07943), with the copies and the exploration of the method between the halvings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoal.core.errors import BadField
from shoal.core.evolution import Cards, Decide, Decision, PureEvolver, Range, Seed
from shoal.methods.method import Method
from shoal.methods.select import told_better


@dataclass(frozen=True, kw_only=True)
class Shrinking(Method):
    """What the methods have in common whose populations may shrink."""

    survivors: int | None = None
    """the population halves as it learns until so many members are left, which train for longer; by default nobody ends"""
    halvings: tuple[int, ...] | None = None
    """the generations after which it halves, such as [2, 6, 15] from 8 members to 1; by default within the first half of the
    run, where each size lasts twice as long as the one before"""

    def settled(self, population: int, space: dict[str, Range] | None, generations: int | None) -> Method:
        if self.survivors is None or self.halvings is not None or generations is None:
            return self
        sizes = halving(population, self.survivors)
        if generations < len(sizes):
            raise BadField("generations", f"{_told(sizes)} needs one for each size", value=generations)
        return replace(self, halvings=soon(len(sizes) - 1, generations))

    def sizes(self, population: int, generations: int) -> np.ndarray:
        if self.survivors is not None and not 1 <= self.survivors <= population:
            problem = f"must be at least 1, and at most population = {population}"
            raise BadField("method.survivors", problem, value=self.survivors)
        if self.survivors is None and self.halvings is not None:
            raise BadField("method.halvings", "is when a population halves", "it needs survivors")
        sizes, after = halving(population, self.survivors), self.halvings or ()
        if len(after) != len(sizes) - 1 or any(np.diff([0, *after]) < 1):
            problem = f"{_told(sizes)} needs {len(sizes) - 1} generations, ascending from 1"
            raise BadField("method.halvings", problem, value=list(after))
        return shrinking(sizes, after, generations)

    def explanation(self, population: int) -> str:
        if self.survivors is None or self.survivors == population:
            return ""
        left = "one was left, which made" if self.survivors == 1 else f"{self.survivors} were left, which made"
        return f" As the members learned, the population halved until {left} the rest of the steps."


def halving(population: int, survivors: int | None) -> list[int]:
    """The sizes of a population that halves until so many are left; where that is None, nobody ends."""
    sizes = [population]
    while survivors is not None and sizes[-1] > max(survivors, 1):
        sizes.append(max(survivors, sizes[-1] // 2))
    return sizes


def _told(sizes: Sequence[int]) -> str:
    return f"a population of {' then '.join(map(str, sizes))} members"


def soon(halvings: int, generations: int) -> tuple[int, ...]:
    """After which generations a population halves: within the first half of all, if there are enough, and each size lasts
    twice as long as the one before, so that each member trains four times as long with it."""
    half, after = max(halvings, generations // 2), list[int]()
    for i in range(halvings):
        after.append(max(i + 1, round(half * (2 ** (i + 1) - 1) / (2**halvings - 1))))
    return tuple(after)


def shrinking(sizes: Sequence[int], halvings: Sequence[int], generations: int) -> np.ndarray:
    """int64 [G]: the members of each generation. sizes: one after another; halvings: how many generations end each."""
    return np.array(sizes)[np.searchsorted(halvings, np.arange(generations), "right")]


def outliving(evolver: PureEvolver, sizes: np.ndarray, halves: bool) -> PureEvolver:
    """The same evolver where the population shrinks: `sizes` int64 [G], its members in each generation.

    The members that live on are the first ones by uid, and go on as those of the highest fitness: before the population
    shrinks, members of the better half whose own places end are copied to places of the worse half that stay.

    halves: half of the members began in another way than the others. Each half then copies, and shrinks, by itself until one
    member of it is left, so that what learns fast at first does not take the places of what learns more in the end.
    """

    def decide(key: Seed, state: object, cards: Cards, mine: np.ndarray) -> tuple[object, Decision]:
        following = int(cards.generation.max()) + 1
        stays = cards.uid < sizes[min(following, len(sizes) - 1)]
        parts = [odd(cards.uid), ~odd(cards.uid)]
        if not (halves and all((stays & part).any() for part in parts)):
            cards = _proven(cards, ~odd(cards.uid)) if halves and not stays.all() else cards
            parts = [np.ones(len(stays), bool)]
        parents, hyper = mine.copy(), {name: x[mine] for name, x in cards.hyper.items()}
        for rows in map(np.flatnonzero, parts):
            here = np.isin(mine, rows)
            state, decided = alone(key, state, cards.take(rows), stays[rows], np.searchsorted(rows, mine[here]))
            parents[here] = rows[decided.parents]
            for name, x in decided.hyper.items():
                hyper[name][here] = x
        return state, Decision(parents, hyper)

    def alone(key: Seed, state: object, cards: Cards, stays: np.ndarray, mine: np.ndarray) -> tuple[object, Decision]:
        if stays.all():
            return evolver.decide(key, state, cards, mine)  # type: ignore[return-value]
        parents = _moved(cards, stays)[mine]
        return state, Decision(parents, {name: x[parents] for name, x in cards.hyper.items()})

    deciding: Decide = decide
    return evolver._replace(decide=deciding) if (sizes != sizes[0]).any() else evolver


def odd(uid: np.ndarray) -> np.ndarray:
    """bool [N]: whether the uid has an odd number of binary ones. So it is for half of all, and half of every second, every
    fourth, ..., such as the members of a sub-population, and half of the first two, four, ..., as those that live on."""
    return np.array([int(u).bit_count() % 2 == 1 for u in uid], bool)


def _proven(cards: Cards, usual: np.ndarray) -> Cards:
    """The same, where of the others only those outlive the fittest usual one, bool [M], that are told apart from it:
    before anything is learned, what looks better is luck. Where nothing says how sure fitness is, the higher one counts."""
    finite = np.isfinite(cards.fitness)
    fitness = np.where(finite, cards.fitness, -np.inf)
    rows, best = np.arange(len(usual)), np.where(usual, fitness, -np.inf).argmax()
    sure = finite & np.isfinite(cards.deviation) & (cards.episodes >= 2)
    proven = usual | ~sure | ~sure[best] | told_better(cards, rows, np.full(len(rows), best))
    return cards._replace(fitness=np.where(proven, fitness, -np.inf))


def _moved(cards: Cards, stays: np.ndarray) -> np.ndarray:
    """Rows int64 [M] whose weights and hyperparameters members go on with, so that the fittest have the places that stay,
    bool [M]. Of equal ones those of the lower uid live on."""
    order = np.argsort(cards.uid)
    fitness = np.where(np.isfinite(cards.fitness), cards.fitness, -np.inf)[order]
    best = np.zeros(len(order), bool)
    best[np.argsort(-fitness, kind="stable")[: stays.sum()]] = True
    parents, stays = np.arange(len(order)), stays[order]
    parents[order[stays & ~best]] = order[best & ~stays]
    return parents
