"""An external optimiser as an arm of a study: Optuna's TPE suggests hyperparameters for runs of single members.

It needs `pip install optuna`. Any optimiser with an ask-and-tell interface works in the same way.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import optuna
from rich.console import Console

from shoal import Range
from shoal.study.results import read_results
from shoal.study.scheduler import run_study

STUDY = """
base:
  env: CartPole-v1
  population: 4
  generations: 4
  interval: 2048
  space: {learning_rate: [1.0e-5, 1.0e-2, log], epochs: {low: 1, high: 8, integer: true}}
arms:
  pbt: {method: pbt}
  halving: {method: successive_halving}
  tpe: {tune: {optimizer: own_optimizer:Tpe, trials: 4}}   # four runs of one member, of four generations each
seeds: 2
"""


class Tpe:
    """The tree-structured Parzen estimator. With the same seed and the same results it suggests the same values again."""

    def __init__(self, space: Mapping[str, Range], seed: int, trials: int):
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(2, trials // 4))
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.space = {name: distribution(r) for name, r in space.items()}

    def ask(self) -> dict[str, float]:
        """The hyperparameters of the next run: a number for each name."""
        self.trial = self.study.ask(self.space)
        return dict(self.trial.params)

    def tell(self, hyper: Mapping[str, float], fitness: float) -> None:
        """`fitness`: that of the champion of the run with `hyper`; NaN if it has diverged."""
        state = optuna.trial.TrialState.FAIL if math.isnan(fitness) else None
        self.study.tell(self.trial, None if state else fitness, state)


def distribution(r: Range) -> optuna.distributions.BaseDistribution:
    """A range as an Optuna distribution; Optuna has no scale for discounts."""
    if r.choices is not None:
        return optuna.distributions.CategoricalDistribution(r.choices)
    if r.integer:
        return optuna.distributions.IntDistribution(int(r.low), int(r.high), log=r.scale == "log")
    return optuna.distributions.FloatDistribution(r.low, r.high, log=r.scale == "log")


def main() -> None:
    # In a shell: shoal study compare.yaml, where Python finds own_optimizer.
    file = Path("compare.yaml")
    file.write_text(STUDY)
    place, failed = run_study(file, Path("runs"), Console())
    results = read_results(place)
    reached = ", ".join(f"{arm} {results.scores(arm).mean():.0f}" for arm in results.study.arms)
    print(f"{failed} runs failed; of 500 the champions reach: {reached}")


if __name__ == "__main__":
    main()
