"""The interface of methods: how the members of a population learn from one another."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shoal.agents.registry import AGENTS, Declaration
from shoal.core.errors import BadField
from shoal.core.population import PureEvolver
from shoal.core.space import Range, SearchSpace, declared
from shoal.core.types import Agent, Learner, SearchLearner, Tunable


@dataclass(frozen=True)
class Method(ABC):
    """A learner and an evolver that go together. Subclasses are frozen dataclasses, and say what is different from here: the
    members live on, each learns for itself, and all have the same hyperparameters. Their fields are their options in a file:
    `method: {name: es, optimizer: sgd}`. Where they have `select` or `explore`, these name a selector and an explorer.
    Below its first line, the docstring of each describes for readers of the report what happens between generations.

    What a run knows of a method:

    title: its name in plain words, for the report of a run
    agents: the agents that it trains, by name; the first is the default
    tunes: whether members may differ in hyperparameters
    ends_members: whether members may end before the run does
    self_tuned: hyperparameters that it sets itself, each with the option that holds the possible values
    metric_descriptions: the metrics that its decisions record, each with what it is in plain words, for the report
    replay: the replay buffer of a child: its own (keep), or a copy of its parent's
    burn_in: environment steps of a member before it may copy
    race: whether members play more evaluations before a rung
    """

    title: ClassVar[str] = ""
    agents: ClassVar[dict[str, Declaration]] = AGENTS
    tunes: ClassVar[bool] = False
    ends_members: ClassVar[bool] = False
    self_tuned: ClassVar[dict[str, str]] = {}
    metric_descriptions: ClassVar[dict[str, str]] = {}
    replay = "keep"
    burn_in = 0
    race = False

    @property
    def copies(self) -> bool:
        """True where members may copy one another."""
        return False

    def holds_defaults(self, uid: np.ndarray, population: int) -> np.ndarray:
        """Mark the members that hold the default hyperparameters for the whole run, bool [N]."""
        return np.zeros(len(uid), bool)

    def too_few_tuned(self, population: int) -> bool:
        """True where a population of this size has too few tuned members for one to copy another."""
        return False

    @property
    def explanation(self) -> str:
        """An explanation of the decisions between generations, for readers of the report."""
        return " ".join((type(self).__doc__ or "").partition("\n\n")[2].split())

    @property
    def independent_learning(self) -> bool:
        """True where each member learns for itself, without a learner of the method's own."""
        return type(self).learner is Method.learner

    @property
    def supports_external_trainers(self) -> bool:
        """True where external trainers may train members: no learner of the method, and no member ends."""
        return self.independent_learning and not self.ends_members

    @property
    def rank_based(self) -> bool:
        """True where decisions depend on the ranks of the fitness alone, and not on its values."""
        return self.independent_learning

    @property
    def structure(self) -> Any:
        """The part that compiled programs depend on; without a learner of its own, its decisions are none."""
        return (self.replay, self.agents) if self.independent_learning else self

    def agent_or_default(self, agent: Any) -> Any:
        """The agent that an experiment gives, or the first of the method's."""
        return next(iter(self.agents)) if agent is None else agent

    def declaration(self, agent: Any) -> Declaration | None:
        """The declaration of an agent of Shoal's; None for other agents, and for trainers."""
        return self.agents.get(agent) if isinstance(agent, str) else None

    def validate(self, agent: Tunable, population: int) -> None:  # noqa: B027 (most fit all)
        """Raise BadInput where its options do not fit the agent or the population."""

    def advice(self, members: int, episodes: int) -> str:
        """Advice on selection among so many members with so many episodes of each; empty where there is none."""
        return ""

    def learner(self, agent: Agent, population: int) -> Learner | SearchLearner:
        """The learner of the members. A SearchLearner samples them anew around a mean in every generation."""
        from shoal.rl.independent import independent

        return independent(agent)

    @abstractmethod
    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        """The evolver, which decides between generations."""

    def rung_sizes(self, population: int) -> list[tuple[float, int]]:
        """List (share of the run, members that train from there on): (0, population) first, then fewer each time."""
        return [(0.0, population)]

    def space(self, agent: Tunable) -> dict[str, Range]:
        """The hyperparameters that are tuned where the experiment has no `space`."""
        return agent.space if self.tunes else {}

    def tuned(self, space: Iterable[str]) -> list[str]:
        """Names of the hyperparameters that have a schedule, which a replay follows: those of the `space`."""
        return sorted(space)


def same_for_all(values: dict[str, float], members: int) -> dict[str, np.ndarray]:
    """Hyperparameters float32 [N], of which all members have the same."""
    return {name: np.full(members, value, np.float32) for name, value in values.items()}


def check_limits(agent: Tunable, place: str, name: str, value: float) -> None:
    """Raise BadInput where an agent's hyperparameter cannot have a value, given at `place`."""
    low, high = agent.limits.get(name, (-math.inf, math.inf))
    if not low <= value <= high:
        known = declared(type(agent.hyper)).get(name)  # trainers declare none
        advice = f"raise {known.limited_by}" if known and known.limited_by and value > high else ""
        raise BadField(place, f"must lie within [{low:g}, {high:g}]", advice, value=f"{value:g}")
