"""Survivors train longer: a population that halves as it learns, at the same steps per generation. It is successive halving
(Jamieson & Talwalkar 2016, arXiv 1502.07943), with the copies and the exploration of the method between the halvings."""

from __future__ import annotations

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
    """the population halves, at equal shares of the run, until so many members are left, which train for longer; by default
    nobody ends"""
    within: int | None = None
    """generations that these shares are of; by default all that the run begins with. Where it is given more, those that are
    left go on"""

    def settled(self, population: int, space: dict[str, Range] | None, generations: int | None) -> Method:
        if self.survivors is None or self.within is not None or generations is None:
            return self
        return replace(self, within=generations)

    def sizes(self, population: int, generations: int) -> np.ndarray:
        if self.survivors is None and self.within is not None:
            raise BadField("method.within", "is how long a population takes to shrink", "it needs survivors")
        if self.survivors is not None and not 1 <= self.survivors <= population:
            problem = f"must be at least 1, and at most population = {population}"
            raise BadField("method.survivors", problem, value=self.survivors)
        return halved(population, generations, self.survivors, self.within)


def halved(population: int, generations: int, survivors: int | None, within: int | None) -> np.ndarray:
    """int64 [G]: the members of each generation of a population that halves at equal shares of `within` generations, or of
    all; where `survivors` is None, nobody ends. Raises BadInput where there are fewer generations than sizes."""
    sizes, shared = [population], generations if within is None else within
    while survivors is not None and sizes[-1] > survivors:
        sizes.append(max(survivors, sizes[-1] // 2))
    if shared < len(sizes):
        problem = f"a population of {' then '.join(map(str, sizes))} members needs one for each size"
        raise BadField("generations" if shared == generations else "method.within", problem, value=shared)
    return np.array(sizes)[np.minimum(np.arange(generations) * len(sizes) // shared, len(sizes) - 1)]


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
            cards = _proven(cards, ~odd(cards.uid)) if halves else cards
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
