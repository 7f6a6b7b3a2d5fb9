"""SMAC as an arm of a study (`pip install smac`): Bayesian optimisation with random forests, Lindauer et al. 2022, arXiv
2109.09831. It looks for places in the unit cube of Shoal's ranges, so that discounts have their own scale there too.

Used as `tune: {optimizer: benchmarks.studies.smac_arm:Smac, trials: 8}`, from the folder that holds `benchmarks`, and with
`PYTHONHASHSEED=0` before the command: SMAC goes through sets, which Python orders otherwise in every process.
"""

import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from ConfigSpace import ConfigurationSpace
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory import TrialValue

from shoal import Range
from shoal.methods.ranges import values_at


class Smac:
    """Asks for the same again when it is given the same seed and told the same."""

    def __init__(self, space: Mapping[str, Range], seed: int, trials: int):
        if os.environ.get("PYTHONHASHSEED", "random") == "random":
            raise ValueError(
                "SMAC asks otherwise in every process: start with PYTHONHASHSEED=0, so that a study can go on"
            )
        self.space = space
        self.costs: list[float] = []  # costs; one that diverged is as bad as the worst
        places = ConfigurationSpace(dict.fromkeys(space, (0.0, 1.0)), seed=seed)
        scenario = Scenario(
            places,
            output_directory=Path(tempfile.mkdtemp(prefix="smac-")),
            deterministic=True,
            n_trials=trials,  # the first quarter of them at random
            seed=seed,
        )
        self.smac = HyperparameterOptimizationFacade(scenario, None, logging_level=False, overwrite=True)

    def ask(self) -> dict[str, float]:
        """The hyperparameters of the next run."""
        self.trial = self.smac.ask()
        return {name: float(values_at(r, np.array([self.trial.config[name]]))[0]) for name, r in self.space.items()}

    def tell(self, hyper: Mapping[str, float], fitness: float) -> None:
        """`fitness`: the highest that a run with `hyper` has reached; NaN where it has diverged."""
        self.costs.append(max(self.costs, default=0.0) if math.isnan(fitness) else -fitness)
        self.smac.tell(self.trial, TrialValue(cost=self.costs[-1]))
