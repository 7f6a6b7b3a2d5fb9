"""Survivors train longer: a population that halves as it learns, at the same steps per generation. It is successive halving
(Jamieson & Talwalkar 2016, arXiv 1502.07943), with the copies and the exploration of the method between the halvings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core.errors import BadField
from shoal.core.evolution import Cards, Decide, Decision, PureEvolver, Seed
from shoal.methods.method import Method


@dataclass(frozen=True, kw_only=True)
class Shrinking(Method):
    """What the methods have in common whose populations may shrink."""

    survivors: int | None = None
    """the population halves, at equal shares of the run, until so many members are left, which train for longer; by default
    nobody ends"""

    def sizes(self, population: int, generations: int) -> np.ndarray:
        if self.survivors is not None and not 1 <= self.survivors <= population:
            problem = f"must be at least 1, and at most population = {population}"
            raise BadField("method.survivors", problem, value=self.survivors)
        sizes = [population]
        while self.survivors is not None and sizes[-1] > self.survivors:
            sizes.append(max(self.survivors, sizes[-1] // 2))
        if generations < len(sizes):
            problem = f"a population of {' then '.join(map(str, sizes))} members needs one for each size"
            raise BadField("generations", problem, value=generations)
        return np.array(sizes)[np.arange(generations) * len(sizes) // generations]


def outliving(evolver: PureEvolver, sizes: np.ndarray) -> PureEvolver:
    """The same evolver where the population shrinks: `sizes` int64 [G], its members in each generation.

    The members that live on are the first ones by uid, and go on as those of the highest fitness: before the population
    shrinks, members of the better half whose own places end are copied to places of the worse half that stay.
    """

    def decide(key: Seed, state: object, cards: Cards, mine: np.ndarray) -> tuple[object, Decision]:
        following = int(cards.generation.max()) + 1
        left = int(sizes[min(following, len(sizes) - 1)])
        if left == len(cards.uid):
            return evolver.decide(key, state, cards, mine)  # type: ignore[return-value]
        parents = _moved(cards, left)[mine]
        return state, Decision(parents, {name: x[parents] for name, x in cards.hyper.items()})

    deciding: Decide = decide
    return evolver._replace(decide=deciding) if (sizes != sizes[0]).any() else evolver


def _moved(cards: Cards, left: int) -> np.ndarray:
    """Rows int64 [M] whose weights and hyperparameters members go on with, so that the `left` fittest have the first
    uids. Of equal ones those of the lower uid live on."""
    order = np.argsort(cards.uid)
    fitness = np.where(np.isfinite(cards.fitness), cards.fitness, -np.inf)[order]
    best = np.zeros(len(order), bool)
    best[np.argsort(-fitness, kind="stable")[:left]] = True
    parents, stays = np.arange(len(order)), np.arange(len(order)) < left
    parents[order[stays & ~best]] = order[best & ~stays]
    return parents
