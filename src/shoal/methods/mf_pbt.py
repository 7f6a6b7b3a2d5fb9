"""Multiple-frequencies population-based training (arXiv 2506.03225): sub-populations that evolve at their own pace.

Frequent copies are greedy, rare ones are slow: members that copy every round favour quick gains, members that copy every
fiftieth round favour late ones. Sub-population m holds the members with uid = m modulo the number of periods, and evolves
in every `periods[m]`-th round. In such a round, of its members from the best to the worst:

    the first two quarters keep weights and hyperparameters
    third quarter:   each takes the weights of the best member of other sub-populations that none here has taken yet, where
                     that one is better: with its hyperparameters where it comes from a slower sub-population, else with
                     those of the best member here. They are not perturbed.
    bottom quarter:  the k-th from below takes weights and hyperparameters of the k-th best, and explores
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shoal.core.errors import BadField
from shoal.core.keys import derive, draws
from shoal.core.population import Decision, PopulationStats, PureEvolver, Seed
from shoal.core.space import SearchSpace
from shoal.core.types import Tunable
from shoal.methods.explore import Perturb
from shoal.methods.pbt import Copying, inherit


@dataclass(frozen=True, kw_only=True)
class MfPbt(Copying):
    """Population-based training in sub-populations, each with a period of its own; the best migrate between them.

    Of each sub-population that evolves, the weakest quarter then copies its best and explores, and the next quarter
    takes over better members of others.
    """

    periods: tuple[int, ...] = (1, 10, 25, 50)
    """generations between copies, of each sub-population; member uid belongs to number uid modulo their count"""
    explore: Any = Perturb(factors=(0.8, 1.25), resample_probability=0.0)
    """how children's hyperparameters change: perturb, resample, mutate, gaussian or none"""

    title: ClassVar[str] = "population-based training at several paces"
    metric_descriptions: ClassVar[dict[str, str]] = {
        "mf_pbt/evolving": "sub-populations that evolved",
        "mf_pbt/migrants": "members that copied weights from another sub-population",
    }

    def __post_init__(self) -> None:
        if not self.periods or min(self.periods) < 1:
            raise BadField("periods", "needs one at least, and each must be at least 1", value=list(self.periods))

    def validate(self, agent: Tunable, population: int) -> None:
        least = 2 * len(self.periods)
        if population < least:
            problem = f"its {len(self.periods)} sub-populations need at least {least} members, and better twice as many"
            raise BadField("population", problem, "or give fewer method.periods", value=population)

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        """Decide for all members. One without finite fitness always copies the best of its sub-population, or of all."""

        def decide(key: Seed, state: Any, stats: PopulationStats, rows: np.ndarray) -> tuple[Any, Decision]:
            done = int(stats.generation[rows[0]]) + 1
            parents, donors, explores = self._decided(derive(key, "select"), stats, done)
            hyper = inherit(self.explore, key, stats, rows, donors[rows], explores[rows], search.ranges)
            homes = stats.uid % len(self.periods)
            migrants = int((homes[parents] != homes)[rows].sum())
            evolving = sum(done % period == 0 for period in self.periods)
            return state, Decision(parents[rows], hyper, {"mf_pbt/evolving": evolving, "mf_pbt/migrants": migrants})

        return PureEvolver(self.initial_values(search), decide)

    def _decided(self, key: Seed, stats: PopulationStats, done: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for all M members, after so many rounds: the donors of weights and of hyperparameters, int64 [M], and which
        ones explore, bool [M]."""
        parents, donors = np.arange(len(stats.uid)), np.arange(len(stats.uid))
        explores = np.zeros(len(stats.uid), bool)
        finite = np.isfinite(stats.fitness)
        ties = draws(key, stats.uid, 1)[:, 0]
        order = np.lexsort((ties, -np.where(finite, stats.fitness, -np.inf)))  # the best first
        period = np.array(self.periods)[stats.uid % len(self.periods)]
        for sub, pace in enumerate(self.periods):
            here = stats.uid[order] % len(self.periods) == sub
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
                if len(outsiders) and stats.fitness[outsiders[0]] > stats.fitness[row]:
                    parents[row], outsiders = outsiders[0], outsiders[1:]
                    donors[row] = parents[row] if period[parents[row]] > pace else rows[0]
        return parents, donors, explores
