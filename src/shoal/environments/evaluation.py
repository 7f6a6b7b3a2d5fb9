"""Configuration of evaluations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from shoal.environments.levels import Spans
from shoal.environments.objective import Objective


@dataclass(frozen=True)
class EvaluationConfig:
    """Settings of the evaluations that give members their fitness and test champions.

    source: whole episodes without learning, the training episodes of the interval, or what is to be exploited in a policy
        of a game, which is known exactly
    episodes: E, per member and evaluation
    deterministic: act without exploration noise in evaluations
    step_limit: of an evaluation, for environments that never end
    measures: the numbers of an episode: the objective, or its return (None); then the one that breaks ties, where there is
        one
    levels: of each purpose; empty where there are no levels. measured_on: the purpose whose levels give the fitness
    """

    source: Literal["evaluation", "training", "exploitability"] = "evaluation"
    episodes: int = 8
    deterministic: bool = True
    step_limit: int = 100_000
    measures: tuple[Objective, ...] = (None,)
    levels: Spans = field(default_factory=dict)
    measured_on: Literal["validation", "train"] = "validation"

    @property
    def purposes(self) -> int:
        """Number of purposes of which an evaluation plays E episodes each: with levels two, train and validation."""
        return 2 if self.levels else 1
