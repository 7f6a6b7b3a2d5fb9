"""Independent members: random search where a space is tuned, else independent seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from shoal.core.keys import derive, draws
from shoal.core.population import Decision, Init, PopulationStats, PureEvolver, Seed
from shoal.core.space import Range, SearchSpace
from shoal.core.types import Tunable
from shoal.methods.method import Method, same_for_all
from shoal.methods.ranges import nearest, sample, validate


@dataclass(frozen=True, kw_only=True)
class Tuning(Method):
    """Base of the methods whose members differ in hyperparameters."""

    initial: Literal["sampled", "default"] = "sampled"
    """initial hyperparameters: sampled from each range, or default; the `initial` of a range comes first"""

    tunes: ClassVar[bool] = True

    def initial_values(self, search: SearchSpace) -> Init:
        """Return the initial hyperparameters of members, as `initial` says."""
        for name, r in search.ranges.items():
            validate(name, r)

        def init(key: Seed, uid: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
            hyper = same_for_all(search.fixed, len(uid))
            for name, r in search.ranges.items():
                at = search.defaults.get(name) if self.initial == "default" else r.initial_value
                sampled = sample(r, draws(derive(key, "prior", name), uid, 1)[:, 0])
                hyper[name] = sampled if at is None else nearest(r, np.full(len(uid), at))
            return (), hyper

        return init


def unchanged(stats: PopulationStats, rows: np.ndarray) -> Decision:
    """The decision that members go on as they are."""
    return Decision(rows, {name: x[rows] for name, x in stats.hyper.items()})


@dataclass(frozen=True, kw_only=True)
class Independent(Tuning):
    """Independent members, of which none copies another: random search with a `space`, independent seeds without one.

    This is the control: each member has a seed of its own and learns for itself. What a method is worth is what it
    does better than this.
    """

    title: ClassVar[str] = "independent members"

    def space(self, agent: Tunable) -> dict[str, Range]:
        """Return no ranges: without a `space` members differ by their seeds alone."""
        return {}

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        def decide(key: Seed, state: Any, stats: PopulationStats, rows: np.ndarray) -> tuple[Any, Decision]:
            return state, unchanged(stats, rows)

        return PureEvolver(self.initial_values(search), decide)
