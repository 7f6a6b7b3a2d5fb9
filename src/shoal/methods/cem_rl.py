"""CEM-RL (Pourchot & Sigaud 2019, arXiv 1810.01222, algorithm 1): actors sampled around a mean, half of which learn.

each actor ~ N(mean, diag(variance))
half of the actors, with the shared critics, make TD3 updates from the shared buffer
evaluate all actors; their steps go to the buffer
w = proportional to log(elites + 1) - log(rank), 0 for all but the elites, with sum 1
mean' = sum of w actor                                               equation 1
variance = sum of w (actor - mean)² + noise; mean = mean'            equation 2
noise = noise_decay noise + (1 - noise_decay) noise_end
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shoal.agents.registry import AGENTS, Declaration, td3_hyper
from shoal.core.errors import BadField
from shoal.core.population import DistributionUpdate, PopulationStats, PureEvolver, Seed
from shoal.core.space import HyperparameterSpec, SearchSpace
from shoal.core.types import Agent, SearchLearner, Tunable
from shoal.methods.method import Method, same_for_all

RATIO = HyperparameterSpec("joint updates per environment step of the generation before", None, 0, 1e6)
# Without exploration noise, as sampled parameters explore.
HYPER = td3_hyper("CemRlHyper", left_out="exploration_noise", update_ratio=(1.0, RATIO))._replace(policy_delay=1.0)


@dataclass(frozen=True)
class CemRl(Method):
    """CEM-RL: actors sampled around a mean, half of which learn from shared critics before all are evaluated.

    Before they are evaluated, some of them may learn by gradient steps from a critic that all share. The best of the
    members, the elites, make the next mean, and their differences from the old one how widely members are sampled
    around it.
    """

    gradient_members: int | None = None
    """members that make TD3 updates, by default half; 0: the cross-entropy method alone"""
    elites: int | None = None
    """members that form the next mean, by default half"""
    variance: float = 1e-3
    """of each parameter at first, and of the noise"""
    noise_end: float = 1e-5
    """the value that the noise decays to"""
    noise_decay: float = 0.95
    """factor of the noise after each generation"""
    mirrored: bool = False
    """sample members in pairs, on opposite sides of the mean; one of each learns"""

    agents: ClassVar[dict[str, Declaration]] = {"td3": AGENTS["td3"]._replace(hyper=HYPER)}
    title: ClassVar[str] = "CEM-RL"

    def __post_init__(self) -> None:
        for name, problem, fits in (
            ("variance", "must be above 0", 0 < self.variance < np.inf),
            ("noise_end", "must be at least 0", 0 <= self.noise_end < np.inf),
            ("noise_decay", "must lie between 0 and 1", 0 <= self.noise_decay <= 1),
        ):
            if not fits:
                raise BadField(name, problem, value=getattr(self, name))

    def validate(self, agent: Tunable, population: int) -> None:
        if population < 2:
            raise BadField("population", "method cem_rl samples at least 2 members", value=population)
        if self.mirrored and population % 2:
            problem = "method.mirrored samples members in pairs"
            raise BadField("population", problem, "take an even number", value=population)
        for name, least in (("elites", 1), ("gradient_members", 0)):
            if (count := getattr(self, name)) is not None and not least <= count <= population:
                raise BadField(f"method.{name}", f"must lie between {least} and population = {population}", value=count)

    def learner(self, agent: Agent, population: int) -> SearchLearner:
        """All members share critics and a replay buffer. Raises BadInput where the agent is not TD3."""
        from shoal.methods.cem_rl_learner import CemRlLearner

        trained = population // 2 if self.gradient_members is None else self.gradient_members
        noise = {"variance": self.variance, "noise_decay": self.noise_decay, "noise_end": self.noise_end}
        return CemRlLearner(agent, HYPER, trained, mirrored=self.mirrored, **noise).learner(population)

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        """The cross-entropy method: weights by the logarithm of the rank; hyperparameters do not change."""

        def decide(key: Seed, state: Any, stats: PopulationStats, rows: np.ndarray) -> tuple[Any, DistributionUpdate]:
            elites = max(len(stats.fitness) // 2, 1) if self.elites is None else self.elites
            hyper = {name: values[rows] for name, values in stats.hyper.items()}
            weights = log_ranks(stats.fitness, elites)
            returns = np.where(weights > 0, stats.fitness, 0.0)
            metrics = {"elites/return": float((weights * returns).sum()) if weights.any() else np.nan}
            return state, DistributionUpdate(weights, hyper, metrics)

        return PureEvolver(lambda key, uid: ((), same_for_all(search.fixed, len(uid))), decide)


def log_ranks(fitness: np.ndarray, elites: int) -> np.ndarray:
    """Weights [M], proportional to log(elites + 1) - log(rank), with sum 1; 0 for all but elites of finite fitness.

    Members of equal fitness have the mean of their weights. Where no fitness is finite, all weights are 0.
    """
    finite = np.isfinite(fitness)
    in_order = np.maximum(np.log(elites + 1) - np.log(np.arange(1, len(fitness) + 1)), 0.0)
    x = np.where(finite, fitness, -np.inf)
    by_rank = np.zeros(len(x))
    by_rank[np.argsort(-x, kind="stable")] = in_order
    _, tied = np.unique(x, return_inverse=True)
    weights = np.where(finite, (np.bincount(tied, by_rank) / np.bincount(tied))[tied], 0.0)
    return (weights / max(weights.sum(), np.finfo(np.float64).tiny)).astype(np.float32)
