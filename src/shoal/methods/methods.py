"""The methods: how the members of a population learn from one another. Each is a learner and an evolver.

The fields of a method are its options in an experiment file: `method: {name: es, optimiser: sgd}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from shoal.core.errors import BadField, unknown
from shoal.core.knobs import split
from shoal.methods.pbt.explore import Perturb

if TYPE_CHECKING:
    from shoal.core.types import Agent, Evolver, Learner, Range, SearchLearner, Tunable

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
    shares_evaluation: whether workers of a shared directory measure one population together, instead of having one each
    chosen: hyperparameters that the method itself sets, each with the option that says how
    memory: replay memory of a child: its own, or a copy of its parent's

    Its fields are its options. Where it has `select` or `explore`, these name a selector and an explorer.
    """

    agents: ClassVar[dict[str, str]]
    own_agents: ClassVar[bool]
    trainers: ClassVar[bool]
    drawn: ClassVar[bool]
    copies: ClassVar[bool]
    tunes: ClassVar[bool]
    title: ClassVar[str]
    shares_evaluation: ClassVar[bool]
    chosen: ClassVar[dict[str, str]]
    memory: Any

    def fit(self, agent: Tunable, population: int) -> None:
        """Raise BadInput where its options do not fit the agent or the population."""

    def learner(self, agent: Agent, population: int) -> Learner | SearchLearner:
        """The learner of the members: a SearchLearner where they are drawn. Raises BadInput as `fit` does."""

    def evolver(self, space: dict[str, Range], start: dict[str, float]) -> Evolver:
        """The evolver, which decides between generations. space: what is tuned; start: the values of all else."""

    def space(self, agent: Tunable) -> dict[str, Range]:
        """The hyperparameters that are tuned where the experiment has no `space`."""

    def explanation(self, population: int) -> str:
        """What happened between generations, in a sentence or two for readers of the report who do not know the method."""


@dataclass(frozen=True)
class Seeds:
    """The control: independent members that differ in their seeds and, with a `space`, in hyperparameters."""

    agents: ClassVar[dict[str, str]] = AGENTS
    own_agents: ClassVar[bool] = True
    trainers: ClassVar[bool] = True
    drawn: ClassVar[bool] = False
    copies: ClassVar[bool] = False
    tunes: ClassVar[bool] = True
    title: ClassVar[str] = "independent members"
    shares_evaluation: ClassVar[bool] = False
    chosen: ClassVar[dict[str, str]] = {}
    memory = "own"

    def fit(self, agent: Tunable, population: int) -> None:
        """Its options fit all."""

    def learner(self, agent: Agent, population: int) -> Learner:
        from shoal.methods.independent import independent

        return independent(agent)

    def evolver(self, space: dict[str, Range], start: dict[str, float]) -> Evolver:
        from shoal.methods.pbt.evolver import keep

        return keep(space, start)

    def space(self, agent: Tunable) -> dict[str, Range]:
        return {}

    def explanation(self, population: int) -> str:
        return (
            "This is the control: each member has a seed of its own and learned for itself. What a method is worth is "
            "what it does better than this."
        )


@dataclass(frozen=True)
class Schedule(Seeds):
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

    def evolver(self, space: dict[str, Range], start: dict[str, float]) -> Evolver:
        from shoal.methods.schedule import scheduled

        return scheduled([start | row for row in self.rows])

    def explanation(self, population: int) -> str:
        return "Each member learned for itself; all of them followed the same schedule of hyperparameters."


@dataclass(frozen=True)
class Pbt(Seeds):
    """Population-based training: members copy better ones, and explore hyperparameters."""

    select: Any = "truncation"
    """who copies whom: truncation, winner_takes_all, tournament, threshold, t_test or keep"""
    explore: Any = "perturb"
    """how children's hyperparameters change: perturb, resample, mutate, gaussian or keep"""
    start_after: int = 0
    """environment steps of a member before it may copy or explore"""
    memory: Literal["own", "copy"] = "own"
    """replay memory of a child (td3, sac, dqn): it keeps its own, or takes over its parent's (copy)"""

    copies: ClassVar[bool] = True
    title: ClassVar[str] = "population-based training"

    def __post_init__(self) -> None:
        if self.start_after < 0:
            raise BadField("start_after", "must be at least 0", value=self.start_after)

    def fit(self, agent: Tunable, population: int) -> None:
        if population < (needs := getattr(self.select, "needs", 1)):
            raise BadField(
                "population",
                f"selection by {type(self.select).__name__} needs at least {needs}",
                "for a single agent write method: seeds",
                value=population,
            )

    def evolver(self, space: dict[str, Range], start: dict[str, float]) -> Evolver:
        from shoal.methods.pbt.evolver import pbt

        return pbt(self.select, self.explore, space, start, self.start_after)

    def space(self, agent: Tunable) -> dict[str, Range]:
        return agent.space

    def explanation(self, population: int) -> str:
        return (
            "Weak members then gave up their weights, copied those of a stronger member together with its "
            "hyperparameters, and went on with slightly changed values."
        )


@dataclass(frozen=True)
class MfPbt(Seeds):
    """Population-based training in sub-populations, each with a period of its own; the best migrate between them."""

    periods: tuple[int, ...] = (1, 10, 25, 50)
    """of each sub-population, the generations from one copying to the next; member `uid` is in that of uid modulo their
    number"""
    explore: Any = Perturb(factors=(0.8, 1.25), resample_probability=0.0)
    """how children's hyperparameters change: perturb, resample, mutate, gaussian or keep"""
    memory: Literal["own", "copy"] = "own"
    """replay memory of a child (td3, sac, dqn): it keeps its own, or takes over its parent's (copy)"""

    copies: ClassVar[bool] = True
    title: ClassVar[str] = "population-based training at several paces"

    def __post_init__(self) -> None:
        if not self.periods or min(self.periods) < 1:
            raise BadField("periods", "needs one at least, and each must be at least 1", value=list(self.periods))

    def fit(self, agent: Tunable, population: int) -> None:
        least = 2 * len(self.periods)
        if population < least:
            problem = f"its {len(self.periods)} sub-populations need at least {least} members, and better twice as many"
            raise BadField("population", problem, "or give fewer method.periods", value=population)

    def evolver(self, space: dict[str, Range], start: dict[str, float]) -> Evolver:
        from shoal.methods.mf_pbt.evolver import mf_pbt

        return mf_pbt(self.explore, space, start, self.periods)

    def space(self, agent: Tunable) -> dict[str, Range]:
        return agent.space

    def explanation(self, population: int) -> str:
        paces = ", ".join(str(period) for period in self.periods)
        return (
            f"Members live in {len(self.periods)} sub-populations, which evolve every {paces} generations: the weakest "
            "quarter of one then copied its best and explored, and the next quarter took over better members of others."
        )


@dataclass(frozen=True)
class _Fixed:
    """Methods whose members all have the same hyperparameters."""

    own_agents: ClassVar[bool] = False
    trainers: ClassVar[bool] = False
    drawn: ClassVar[bool] = False
    copies: ClassVar[bool] = False
    tunes: ClassVar[bool] = False
    shares_evaluation: ClassVar[bool] = False
    chosen: ClassVar[dict[str, str]] = {}
    memory = "own"

    def fit(self, agent: Tunable, population: int) -> None:
        """Its options fit all."""

    def space(self, agent: Tunable) -> dict[str, Range]:
        return {}


@dataclass(frozen=True)
class Es(_Fixed):
    """Evolution strategies (OpenAI-ES): one policy, moved towards its perturbations with high returns."""

    optimiser: Literal["adam", "sgd"] = "adam"
    """the optimiser that makes a step from the estimated gradient: adam or sgd"""
    sigma_decay: float = 1.0
    """factor of hyper.sigma after each generation"""
    sigma_end: float = 0.0
    """where its decay ends"""
    learning_rate_decay: float = 1.0
    """factor of hyper.learning_rate after each generation"""
    learning_rate_end: float = 0.0
    """where its decay ends"""
    adaptive_cap: bool = False
    """end episodes at twice the mean length of those of the generation before"""
    chunk: int = 32
    """members that a device measures at a time; memory depends on this, not on the population"""

    agents: ClassVar[dict[str, str]] = {"policy": "shoal.agents.policy:policy"}
    drawn: ClassVar[bool] = True
    title: ClassVar[str] = "evolution strategies"
    own_agents: ClassVar[bool] = True
    shares_evaluation: ClassVar[bool] = True

    def fit(self, agent: Tunable, population: int) -> None:
        for name in ("sigma", "learning_rate"):
            factor, end = getattr(self, f"{name}_decay"), getattr(self, f"{name}_end")
            if not 0 < factor <= 1:
                raise BadField(f"method.{name}_decay", "must lie within (0, 1]", value=f"{factor:g}")
            if end < 0:
                raise BadField(f"method.{name}_end", "must be at least 0", value=f"{end:g}")
        if self.chunk < 1:
            raise BadField("method.chunk", "must be at least 1", value=self.chunk)

    def learner(self, agent: Agent, population: int) -> SearchLearner:
        from shoal.methods.es.learner import evolution_strategy

        return evolution_strategy(agent, self.optimiser, self.chunk)

    def evolver(self, space: dict[str, Range], start: dict[str, float]) -> Evolver:
        from shoal.methods.es.evolver import Decay, openai_es
        from shoal.methods.es.learner import LIMITS

        decays = {
            "sigma": Decay(self.sigma_decay, max(self.sigma_end, LIMITS["sigma"][0])),
            "learning_rate": Decay(self.learning_rate_decay, self.learning_rate_end),
        }
        return openai_es(start, decays, self.adaptive_cap)

    def explanation(self, population: int) -> str:
        return (
            "The mean then took a step towards those that did well and away from those that did badly; no gradient of "
            "the policy was computed. Members come in pairs on opposite sides of the mean."
        )


@dataclass(frozen=True)
class CemRl(_Fixed):
    """CEM-RL: actors sampled around a mean; half of them learn from shared critics and memory before all are measured."""

    trained: int | None = None
    """how many members make TD3 updates, by default half; 0: the cross-entropy method alone"""
    elites: int | None = None
    """how many of the best members form the next mean, by default half"""
    variance: float = 1e-3
    """of each parameter at first, and of the noise that is added to it"""
    noise_end: float = 1e-5
    """the value that this noise decays to"""
    noise_decay: float = 0.95
    """factor of this noise after each generation"""
    mirrored: bool = False
    """sample members in pairs, on opposite sides of the mean"""

    agents: ClassVar[dict[str, str]] = {"td3": AGENTS["td3"]}
    drawn: ClassVar[bool] = True
    title: ClassVar[str] = "CEM-RL"

    def fit(self, agent: Tunable, population: int) -> None:
        if self.elites is not None and not 1 <= self.elites <= population:
            raise BadField("method.elites", f"must lie within 1 and population = {population}", value=self.elites)

    def learner(self, agent: Agent, population: int) -> SearchLearner:
        from shoal.methods.cem_rl.learner import cem_rl

        options = {name: getattr(self, name) for name in ("variance", "noise_end", "noise_decay", "mirrored")}
        return cem_rl(agent, population, trained=self.trained, **options)

    def evolver(self, space: dict[str, Range], start: dict[str, float]) -> Evolver:
        from shoal.methods.cem_rl.evolver import cem

        return cem(start, self.elites)

    def explanation(self, population: int) -> str:
        trained = population // 2 if self.trained is None else self.trained
        learned = f"Before they did, {trained} of them learned by gradient steps from a critic that all share. "
        return (learned if trained else "") + (
            "The best of the members, the elites, made the next mean, and their differences from the old one how widely "
            "members are drawn around it."
        )


@dataclass(frozen=True)
class Dvd(_Fixed):
    """DvD: actors with shared critics and memory, rewarded for behaving differently from one another."""

    arms: tuple[float, ...] = (0.0, 0.5)
    """possible weights of diversity against return; a bandit chooses one for each generation"""
    probes: int = 20
    """states in which behaviours are compared"""
    redraw: int = 20
    """updates after which new states are sampled"""

    agents: ClassVar[dict[str, str]] = {"td3": AGENTS["td3"]}
    title: ClassVar[str] = "DvD"
    chosen: ClassVar[dict[str, str]] = {"diversity": "arms"}

    def learner(self, agent: Agent, population: int) -> Learner:
        from shoal.methods.dvd.learner import dvd

        return dvd(agent, population, probes=self.probes, redraw=self.redraw)

    def evolver(self, space: dict[str, Range], start: dict[str, float]) -> Evolver:
        from shoal.methods.dvd.evolver import bandit

        return bandit(start, self.arms)

    def explanation(self, population: int) -> str:
        return (
            "All learned from one critic and one memory, and were rewarded not for return alone but also for behaving "
            "differently from one another; how much that counted was "
            f"{'chosen anew for each generation' if len(self.arms) > 1 else 'the same throughout'}."
        )


METHODS: dict[str, Any] = {"pbt": Pbt, "mf_pbt": MfPbt, "seeds": Seeds, "schedule": Schedule}
METHODS |= {"es": Es, "cem_rl": CemRl, "dvd": Dvd}


def check_limits(agent: Tunable, place: str, name: str, value: float) -> None:
    """Raise BadInput where an agent's hyperparameter cannot have a value, given at `place`."""
    low, high = agent.limits.get(name, (-math.inf, math.inf))
    if not low <= value <= high:
        raise BadField(place, f"must lie within [{low:g}, {high:g}]", value=f"{value:g}")
