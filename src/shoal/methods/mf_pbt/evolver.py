"""Multiple-frequencies population-based training (arXiv 2506.03225): sub-populations that evolve at their own pace.

Often is greedy, seldom is slow: members that copy every round favour what pays at once, those that copy every fiftieth
what pays in the end. Sub-population m holds the members with uid = m modulo the number of periods, and evolves in every
`periods[m]`-th round. In such a round, of its members from the best to the worst:

    the first two quarters keep weights and hyperparameters
    third quarter:   each takes the weights of the best member of other sub-populations that none here has taken yet, where
                     that one is better: with its hyperparameters where it comes from a slower sub-population, else with
                     those of the best member here. They are not perturbed.
    bottom quarter:  the k-th from below takes weights and hyperparameters of the k-th best, and explores
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.core.evolution import Cards, Decision, Evolver, Explore, FirstValues, Range, Seed
from shoal.core.keys import derive, draws
from shoal.methods.pbt import select as selectors
from shoal.methods.pbt.evolver import inherit, pbt


def mf_pbt(
    explore: Explore,
    space: dict[str, Range],
    start: dict[str, float],
    periods: Sequence[int],
    first_values: FirstValues = "range",
) -> Evolver:
    """The evolver. periods: of each sub-population, in generations. The others: as those of `pbt`.

    A member with fitness that is not finite copies in every generation: the best of its sub-population, or of all.
    """
    beginning = pbt(selectors.Keep(), explore, space, start, 0, first_values).init

    def decide(key: Seed, state: tuple[()], cards: Cards, mine: np.ndarray) -> tuple[tuple[()], Decision]:
        done = int(cards.generation[mine[0]]) + 1
        parents, donors, explores = _decided(derive(key, "select"), cards, done, periods)
        hyper = inherit(explore, key, cards, mine, donors[mine], explores[mine], space)
        homes = cards.uid % len(periods)
        migrants = int((homes[parents] != homes)[mine].sum())
        evolving = sum(done % period == 0 for period in periods)
        return state, Decision(parents[mine], hyper, {"mf_pbt/evolving": evolving, "mf_pbt/migrants": migrants})

    return Evolver(beginning, decide)


def _decided(key: Seed, cards: Cards, done: int, periods: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """After so many rounds, for all M members: whose weights and whose hyperparameters each goes on with, int64 [M], and
    whether it explores, bool [M]."""
    parents, donors = np.arange(len(cards.uid)), np.arange(len(cards.uid))
    explores = np.zeros(len(cards.uid), bool)
    finite = np.isfinite(cards.fitness)
    order = np.lexsort((draws(key, cards.uid, 1)[:, 0], -np.where(finite, cards.fitness, -np.inf)))  # the best first
    period = np.array(periods)[cards.uid % len(periods)]
    for sub, pace in enumerate(periods):
        here = cards.uid[order] % len(periods) == sub
        rows, outsiders = order[here], order[~here & finite[order]]
        for row in rows[~finite[rows]]:
            better = [*rows[finite[rows]], *outsiders][:1]
            parents[row] = donors[row] = better[0] if better else row
            explores[row] = bool(better)
        rows = rows[finite[rows]]
        if done % pace or len(rows) < 2:
            continue
        quarter = max(1, len(rows) // 4)
        bottom, third = rows[-quarter:], rows[-2 * quarter : -quarter] if len(rows) >= 4 else rows[:0]
        parents[bottom] = donors[bottom] = rows[:quarter][::-1]
        explores[bottom] = True
        for row in third:
            if len(outsiders) and cards.fitness[outsiders[0]] > cards.fitness[row]:
                parents[row], outsiders = outsiders[0], outsiders[1:]
                donors[row] = parents[row] if period[parents[row]] > pace else rows[0]
    return parents, donors, explores
