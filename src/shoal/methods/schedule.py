"""Independent members that all follow one schedule of hyperparameters, such as the champion's of another run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shoal.core.env_parameters import split
from shoal.core.errors import BadField, unknown
from shoal.core.population import Decision, PopulationStats, PureEvolver, Seed
from shoal.core.space import SearchSpace
from shoal.core.types import Tunable
from shoal.methods.method import Method, check_limits, same_for_all


@dataclass(frozen=True)
class Schedule(Method):
    """Independent members that all follow one schedule of hyperparameters (`shoal replay` writes it).

    Each member learns for itself; all follow the same schedule of hyperparameters.
    """

    rows: tuple[dict[str, float], ...] = ()
    """hyperparameters by generation; after the last row, that one"""

    title: ClassVar[str] = "a schedule of hyperparameters"

    def validate(self, agent: Tunable, population: int) -> None:
        if not self.rows:
            raise BadField("method.rows", "needs the hyperparameters of at least one generation")
        env_parameters = split(self.rows[0])[1]
        for i, row in enumerate(self.rows):
            own, others = split(row)
            if others.keys() != env_parameters.keys():
                problem = f"has the environment parameters {sorted(others)}, and the first row {sorted(env_parameters)}"
                raise BadField(f"method.rows.{i}", problem, "all rows need the same")
            for name, value in own.items():
                if name not in agent.hyper._fields:
                    raise unknown(f"method.rows.{i}", name, agent.hyper._fields)
                check_limits(agent, f"method.rows.{i}.{name}", name, value)

    def tuned(self, space: Iterable[str]) -> list[str]:
        return sorted({name for row in self.rows for name in row})

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        def values(generation: int, members: int) -> dict[str, np.ndarray]:
            return same_for_all(search.fixed | self.rows[min(generation, len(self.rows) - 1)], members)

        def decide(key: Seed, state: Any, stats: PopulationStats, rows: np.ndarray) -> tuple[Any, Decision]:
            return state, Decision(rows, values(int(stats.generation.max()) + 1, len(rows)))

        return PureEvolver(lambda key, uid: ((), values(0, len(uid))), decide)
