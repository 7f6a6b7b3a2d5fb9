"""The methods: how the members of a population learn from one another. Each is a learner and an evolver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from shoal.core.errors import BadField
from shoal.methods.evolving import Ipbt, MfPbt, Pb2, Pbt
from shoal.methods.method import AGENTS, Independent, Schedule, Seeds

if TYPE_CHECKING:
    from shoal.core.evolution import Evolver, Range
    from shoal.core.types import Agent, Learner, SearchLearner, Tunable


@dataclass(frozen=True)
class _Fixed(Independent):
    """Methods of chosen agents, whose members all have the same hyperparameters."""

    own_agents: ClassVar[bool] = False
    trainers: ClassVar[bool] = False
    tunes: ClassVar[bool] = False


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

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
        from shoal.core.evolution import declared
        from shoal.methods.es.evolver import Decay, openai_es
        from shoal.methods.es.learner import EsHyper

        decays = {
            "sigma": Decay(self.sigma_decay, max(self.sigma_end, declared(EsHyper)["sigma"].least)),
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

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
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

    def evolver(self, space: dict[str, Range], start: dict[str, float], generations: int) -> Evolver:
        from shoal.methods.dvd.evolver import bandit

        return bandit(start, self.arms)

    def explanation(self, population: int) -> str:
        return (
            "All learned from one critic and one memory, and were rewarded not for return alone but also for behaving "
            "differently from one another; how much that counted was "
            f"{'chosen anew for each generation' if len(self.arms) > 1 else 'the same throughout'}."
        )


METHODS: dict[str, Any] = {"pbt": Pbt, "mf_pbt": MfPbt, "pb2": Pb2, "ipbt": Ipbt, "seeds": Seeds, "schedule": Schedule}
METHODS |= {"es": Es, "cem_rl": CemRl, "dvd": Dvd}
