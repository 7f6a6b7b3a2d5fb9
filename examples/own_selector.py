"""Your own selector: a function of the members' statistics that decides who copies whom."""

from dataclasses import dataclass

import numpy as np

from shoal import Experiment, PopulationStats, Selection, train
from shoal.core.keys import draws

GENERATIONS, INTERVAL = 4, 4096


@dataclass(frozen=True)
class RankLottery:
    """The worst members copy parents sampled by rank: the better a member, the higher its probability."""

    share: float = 0.5
    """fraction of the population that is replaced"""

    def __call__(self, key: tuple[int, ...], stats: PopulationStats, rows: np.ndarray) -> Selection:
        """`rows`: the members to decide for. A parent is a row too; a member that is its own parent keeps its weights."""
        fitness = np.where(np.isfinite(stats.fitness), stats.fitness, -np.inf)  # a diverged member ranks last
        rank = np.argsort(np.argsort(-fitness))  # 0 is the best
        kept = max(1, round(len(rank) * (1 - self.share)))
        tickets = np.maximum(kept - rank, 0)
        uniform = draws(key, stats.uid[rows], 1)[:, 0]  # in [0, 1), one for each member, the same in every process
        drawn = np.searchsorted(np.cumsum(tickets) / tickets.sum(), uniform, side="right")
        parents = np.where(rank[rows] < kept, rows, drawn)
        return Selection(parents, explore=parents != rows)


def main() -> None:
    # In an experiment file: method: {name: pbt, select: {name: my_module:RankLottery, share: 0.5}}
    select = RankLottery(share=0.5)
    method = {"name": "pbt", "select": select}
    result = train(Experiment(env="CartPole-v1", method=method, generations=GENERATIONS, interval=INTERVAL))
    print(f"with {select} the champion reaches {result.summary['champion']['evaluation']['mean']:.0f} of 500")


if __name__ == "__main__":
    main()
