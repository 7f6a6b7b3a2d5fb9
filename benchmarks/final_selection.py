"""What the final selection is worth: its champion, the play-off of four that it replaces, and the highest fitness of all.

All three come from one and the same run. The highest fitness is that of the whole run; the play-off has the fittest
members of the four fittest generations on 100 new episodes, 25 each; the final selection is `fitness.final_selection`.
Each champion plays the same 256 other episodes. Settings of experiments/studies/population.yaml.

    python benchmarks/final_selection.py [--tasks reacher maze --members 1 8 32 --seeds 3 --generations 30]
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from common import table

from shoal.core.candidates import Candidate, Candidates, SmoothedFitness
from shoal.core.population import PopulationStats
from shoal.experiment.experiment import Experiment, Fitness
from shoal.members.acting import Policy
from shoal.run import loop
from shoal.run.final_selection import select_champion
from shoal.run.train import train

TASKS: dict[str, dict[str, Any]] = {
    "reacher": {"env": "gymnax:Reacher-misc"},
    "point robot": {"env": "gymnax:PointRobot-misc"},
    "maze": {"env": "gymnax:MetaMaze-misc"},
    "pendulum": {"env": "Pendulum-v1", "config": {"normalize_rewards": True}},
}
CONFIG = {"num_envs": 8, "rollout_length": 128, "num_minibatches": 8}
SPACE = {
    "learning_rate": [1e-6, 0.1, "log"],
    "discount": [0.8, 0.9999, "one_minus_log"],
    "gae_lambda": [0.8, 0.9999, "one_minus_log"],
    "clip_range": [0, 0.5],
    "entropy_coefficient": [0, 0.5],
    "value_coefficient": [0, 1],
    "max_gradient_norm": [0, 1],
    "epochs": {"low": 1, "high": 8, "integer": True},
}
WAYS = ("highest fitness", "play-off of four", "final selection")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--members", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--generations", type=int, default=30)
    options = parser.parse_args()
    for task in options.tasks:
        rows = []
        for members in options.members:
            for method in ["defaults"] if members == 1 else ["pbt", "random search"]:
                runs = [scores(task, members, method, seed, options.generations) for seed in range(options.seeds)]
                each = [", ".join(f"{run[i]:.3g}" for run in runs) for i in range(len(WAYS))]
                rows.append([f"{members}, {method}", *each, *(f"{x:.4g}" for x in np.mean(runs, axis=0))])
                print(task, rows[-1], flush=True)
        table(f"{task}: champions on 256 episodes", ["members", *WAYS, *(f"mean: {way}" for way in WAYS)], rows)


def scores(task: str, members: int, method: str, seed: int, count: int) -> list[float]:
    """The mean returns of the champions of a run, in the order of WAYS."""
    fittest: list[Candidate] = []  # the best member of each of the four fittest generations
    found: list[float] = []
    with_generation, rows_to_add, final_evaluation = (
        Candidates.with_generation,
        Candidates.rows_to_add,
        loop.final_evaluation,
    )

    def always_add_one(self: Candidates, stats: PopulationStats, last: int) -> list[int]:
        return rows_to_add(self, stats, max(last, 1))

    def noted(
        self: Candidates, stats: PopulationStats, rows: Sequence[int], learned: Sequence[Any], last: bool
    ) -> Candidates:
        best = zip(rows[:1], learned[:1], strict=True)
        fittest.extend(Candidate.at(stats, row, SmoothedFitness(), what) for row, what in best)
        fittest.sort(key=lambda one: -one.fitness)
        del fittest[4:]
        return with_generation(self, stats, rows, learned, last)

    def evaluated(c: Any, state: Any) -> dict[str, Any]:
        summary = final_evaluation(c, state)
        policies = [Policy(one.learned, one.hyper) for one in fittest]
        played = state.shard.test(policies, (seed, 1), 25, "").returns
        episodes = loop.episodes_of(c.experiment, state.steps, state.episode_length)
        champion, _ = select_champion(c.experiment, state.shard, state.candidates.ordered, episodes)
        three = [policies[0], policies[int(played.mean(1).argmax())], Policy(champion.learned, champion.hyper)]
        found.extend(state.shard.test(three, (seed, 2), 256, "").returns.mean(1))
        return summary

    how = {"pbt": "pbt", "random search": "independent", "defaults": {"name": "independent", "initial": "default"}}
    settings = {"interval": 10_240, "space": SPACE, **TASKS[task]}
    config = CONFIG | settings.pop("config", {})
    fitness = Fitness(episodes=8)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(Candidates, "rows_to_add", always_add_one),
        patch.object(Candidates, "with_generation", noted),
        patch.object(loop, "final_evaluation", evaluated),
    ):
        train(
            Experiment(
                **settings,
                **{"population": members, "generations": count, "seed": seed, "method": how[method], "config": config},
                fitness=fitness,
                run_dir=str(Path(folder) / "run"),
            )
        )
    return found


if __name__ == "__main__":
    main()
