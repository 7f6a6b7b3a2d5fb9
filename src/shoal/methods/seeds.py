"""The controls: members that do not learn from one another, each with values of its own, or all by one schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shoal.core.errors import BadField, unknown
from shoal.core.evolution import Cards, Decision, FirstValues, Init, PureEvolver, Range, Seed
from shoal.core.keys import derive, draws
from shoal.core.knobs import split
from shoal.methods.method import Method, check_limits, same_for_all
from shoal.methods.ranges import nearest, sample, validate
from shoal.methods.survivors import Shrinking, odd

if TYPE_CHECKING:
    from shoal.core.types import Tunable


@dataclass(frozen=True, kw_only=True)
class Tuning(Method):
    """What the methods have in common whose members differ in hyperparameters."""

    first_values: FirstValues = "range"
    """where members begin: range (anywhere in the range of each hyperparameter), usual (at its usual value) or half (half of
    them there)"""

    tunes: ClassVar[bool] = True

    def beginning(self, space: dict[str, Range], start: dict[str, float]) -> Init:
        """The first values: sampled from the ranges of the space, or their `start`; of all else those of `start`."""
        for name, r in space.items():
            validate(name, r)

        def init(key: Seed, uid: np.ndarray) -> tuple[Any, dict[str, np.ndarray]]:
            hyper = same_for_all(start, len(uid))
            for name, r in space.items():
                anywhere = sample(r, draws(derive(key, "prior", name), uid, 1)[:, 0])
                usual = anywhere if r.start is None else nearest(r, np.full(len(uid), r.start))
                hyper[name] = np.where(odd(uid), anywhere, usual) if self.first_values == "half" else usual
            return (), hyper

        return init


@dataclass(frozen=True, kw_only=True)
class Seeds(Tuning, Shrinking):
    """The control: independent members that differ in their seeds and, with a `space`, in hyperparameters."""

    title: ClassVar[str] = "independent members"

    def settled(self, population: int, space: dict[str, Range] | None, generations: int | None) -> Method:
        found = replace(self, first_values="usual") if self.first_values == "range" and not space else self
        return super(Seeds, found).settled(population, space, generations)

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> PureEvolver:
        def decide(key: Seed, state: Any, cards: Cards, mine: np.ndarray) -> tuple[Any, Decision]:
            return state, Decision(mine, {name: x[mine] for name, x in cards.hyper.items()})

        return PureEvolver(self.beginning(space, start), decide)

    def explanation(self, population: int) -> str:
        return (
            "This is the control: each member has a seed of its own and learned for itself. What a method is worth is "
            "what it does better than this." + super().explanation(population)
        )


@dataclass(frozen=True)
class Schedule(Method):
    """Independent members that all follow one schedule of hyperparameters (`shoal replay` writes it)."""

    rows: tuple[dict[str, float], ...] = ()
    """hyperparameters by generation; after the last row, that one"""

    title: ClassVar[str] = "a schedule of hyperparameters"

    def fit(self, agent: Tunable, population: int) -> None:
        if not self.rows:
            raise BadField("method.rows", "needs the hyperparameters of at least one generation")
        knobs = split(self.rows[0])[1]
        for i, row in enumerate(self.rows):
            own, others = split(row)
            if others.keys() != knobs.keys():
                problem = f"has the knobs {sorted(others)}, and the first row {sorted(knobs)}"
                raise BadField(f"method.rows.{i}", problem, "all rows need the same")
            for name, value in own.items():
                if name not in agent.hyper._fields:
                    raise unknown(f"method.rows.{i}", name, agent.hyper._fields)
                check_limits(agent, f"method.rows.{i}.{name}", name, value)

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> PureEvolver:
        def values(generation: int, members: int) -> dict[str, np.ndarray]:
            return same_for_all(start | self.rows[min(generation, len(self.rows) - 1)], members)

        def decide(key: Seed, state: Any, cards: Cards, mine: np.ndarray) -> tuple[Any, Decision]:
            return state, Decision(mine, values(int(cards.generation.max()) + 1, len(mine)))

        return PureEvolver(lambda key, uid: ((), values(0, len(uid))), decide)

    def explanation(self, population: int) -> str:
        return "Each member learned for itself; all of them followed the same schedule of hyperparameters."
