"""What a method is, and the two in which members do not learn from one another.

A method is a learner and an evolver. Its fields are its options in an experiment file: `method: {name: es, optimiser: sgd}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from shoal.core.errors import BadField, unknown
from shoal.core.evolution import FirstValues
from shoal.core.knobs import split

if TYPE_CHECKING:
    from shoal.core.evolution import Evolver, Range
    from shoal.core.types import Agent, Learner, SearchLearner, Tunable

AGENTS = {name: f"shoal.agents.{name}:{name}" for name in ("ppo", "td3", "sac", "dqn")}


class Method(Protocol):
    """A method: the traits and functions that each must have.

    agents: the agents that it trains, name to `module:factory`; the first is the default
    own_agents: whether it also trains agents of the user's own
    trainers: whether members may be trained by other people's trainers; its learner is then not used
    drawn: whether members are drawn anew around a mean in every generation, instead of living on
    copies: whether members copy one another
    tunes: whether members may differ in hyperparameters
    title: its name in plain words, for the report of a run
    tells: the metrics that its decisions record, each with what it is in plain words, for the report too
    shares_evaluation: whether workers of a shared directory measure one population together, instead of having one each
    workers: whether workers of a shared directory may each decide for their own members
    chosen: hyperparameters that the method itself sets, each with the option that says how
    memory: replay memory of a child: its own, or a copy of its parent's

    Its fields are its options. Where it has `select` or `explore`, these name a selector and an explorer; where it has
    `first_values`, other than `range`, ranges get the usual value as their `start`.
    """

    agents: ClassVar[dict[str, str]]
    own_agents: ClassVar[bool]
    trainers: ClassVar[bool]
    drawn: ClassVar[bool]
    copies: ClassVar[bool]
    tunes: ClassVar[bool]
    title: ClassVar[str]
    tells: ClassVar[dict[str, str]]
    shares_evaluation: ClassVar[bool]
    workers: ClassVar[bool]
    chosen: ClassVar[dict[str, str]]
    memory: Any

    def fit(self, agent: Tunable, population: int) -> None:
        """Raise BadInput where its options do not fit the agent or the population."""

    def learner(self, agent: Agent, population: int) -> Learner | SearchLearner:
        """The learner of the members: a SearchLearner where they are drawn. Raises BadInput as `fit` does."""

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
        """The evolver, which decides between generations. space: what is tuned; start: the values of all else;
        generations: how many the run has."""

    def space(self, agent: Tunable) -> dict[str, Range]:
        """The hyperparameters that are tuned where the experiment has no `space`."""

    def explanation(self, population: int) -> str:
        """What happened between generations, in a sentence or two for readers of the report who do not know the method."""


@dataclass(frozen=True)
class Independent:
    """What methods share of which nothing else is said: their members live on, and each learns for itself."""

    agents: ClassVar[dict[str, str]] = AGENTS
    own_agents: ClassVar[bool] = True
    trainers: ClassVar[bool] = True
    drawn: ClassVar[bool] = False
    copies: ClassVar[bool] = False
    tunes: ClassVar[bool] = True
    tells: ClassVar[dict[str, str]] = {}
    shares_evaluation: ClassVar[bool] = False
    workers: ClassVar[bool] = True
    chosen: ClassVar[dict[str, str]] = {}
    memory = "own"

    def fit(self, agent: Tunable, population: int) -> None:
        """Its options fit all."""

    def learner(self, agent: Agent, population: int) -> Learner | SearchLearner:
        from shoal.rl.independent import independent

        return independent(agent)

    def space(self, agent: Tunable) -> dict[str, Range]:
        return {}


@dataclass(frozen=True)
class Seeds(Independent):
    """The control: independent members that differ in their seeds and, with a `space`, in hyperparameters."""

    first_values: FirstValues = "range"
    """where members begin: range (anywhere in the range of each hyperparameter), usual (at its usual value) or half (half of
    them there)"""

    title: ClassVar[str] = "independent members"

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
        from shoal.methods.pbt.evolver import keep

        return keep(space, start, self.first_values)

    def explanation(self, population: int) -> str:
        return (
            "This is the control: each member has a seed of its own and learned for itself. What a method is worth is "
            "what it does better than this."
        )


@dataclass(frozen=True)
class Schedule(Independent):
    """Independent members that all follow one schedule of hyperparameters (`shoal replay` writes it)."""

    rows: tuple[dict[str, float], ...] = ()
    """hyperparameters by generation; after the last row, that one"""

    tunes: ClassVar[bool] = False
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

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
        from shoal.methods.schedule import scheduled

        return scheduled([start | row for row in self.rows])

    def explanation(self, population: int) -> str:
        return "Each member learned for itself; all of them followed the same schedule of hyperparameters."


def check_limits(agent: Tunable, place: str, name: str, value: float) -> None:
    """Raise BadInput where an agent's hyperparameter cannot have a value, given at `place`."""
    low, high = agent.limits.get(name, (-math.inf, math.inf))
    if not low <= value <= high:
        raise BadField(place, f"must lie within [{low:g}, {high:g}]", value=f"{value:g}")
