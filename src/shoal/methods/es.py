"""Evolution strategies (Salimans et al. 2017, arXiv 1703.03864, algorithm 2): one policy, the mean, and members that are
perturbations of it.

    members 2k and 2k + 1 = mean + sigma ε[k], mean - sigma ε[k]         with ε[k] ~ N(0, 1)
    w = centred ranks of their returns, in [-0.5, 0.5]
    gradient = (sum of (w[2k] - w[2k + 1]) ε[k]) / (N sigma) - weight_decay mean
    ascend gradient by Adam, or SGD with momentum

A member is stored as its key only: its perturbation is sampled when it is evaluated, and again for the gradient, in
whichever process that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from shoal.agents.registry import POLICY, Declaration
from shoal.core.errors import BadField, check_least
from shoal.core.population import DistributionUpdate, PopulationStats, PureEvolver, Seed
from shoal.core.space import HyperparameterSpec, SearchSpace, declared
from shoal.core.types import Agent, SearchLearner
from shoal.methods.method import Method, same_for_all

STRETCH = 2.0  # of the mean length, where the cap of episodes adapts (section 2.1)


class EsHyper(NamedTuple):
    """The hyperparameters of evolution strategies, equal for all members of a generation."""

    sigma: Annotated[Any, HyperparameterSpec("standard deviation of the perturbations", least=1e-9, most=1e9)] = 0.05
    learning_rate: Annotated[Any, HyperparameterSpec("learning rate", least=0, most=1e9)] = 0.02
    momentum: Annotated[Any, HyperparameterSpec("momentum of SGD, or beta1 of Adam", least=0, most=0.9999)] = 0.9
    weight_decay: Annotated[
        Any,
        HyperparameterSpec("coefficient of the L2 penalty", least=0, most=1e9),
    ] = 0.005
    episode_cap: Annotated[Any, HyperparameterSpec("steps after which an episode is ended", least=1, most=1e9)] = 1e6


@dataclass(frozen=True)
class Es(Method):
    """Evolution strategies (OpenAI-ES): one policy, moved towards its perturbations with high returns.

    The mean then takes a step towards those that did well and away from those that did badly; no gradient of the
    policy is computed. Members come in pairs on opposite sides of the mean.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    """adam or sgd"""
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
    chunk: int = 48
    """members that a device evaluates at a time"""

    agents: ClassVar[dict[str, Declaration]] = {"policy": POLICY._replace(hyper=EsHyper())}
    title: ClassVar[str] = "evolution strategies"

    def __post_init__(self) -> None:
        for name in ("sigma_decay", "learning_rate_decay"):
            if not 0 < (factor := getattr(self, name)) <= 1:
                raise BadField(name, "must lie within (0, 1]", value=f"{factor:g}")
        check_least(0, self, "sigma_end", "learning_rate_end")
        check_least(1, self, "chunk")

    def learner(self, agent: Agent, population: int) -> SearchLearner:
        from shoal.methods.es_learner import EsLearner

        return EsLearner(agent._replace(hyper=EsHyper(), limit_overrides={}), self.optimizer, self.chunk).learner()

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        """Return the evolver, which weights members by centred ranks; its state is the steps of all so far."""
        limits = declared(EsHyper)

        def decide(key: Seed, state: Any, stats: PopulationStats, rows: np.ndarray) -> tuple[Any, DistributionUpdate]:
            hyper = {name: values[rows] for name, values in stats.hyper.items()}
            for name in ("sigma", "learning_rate"):
                factor, end = getattr(self, f"{name}_decay"), max(getattr(self, f"{name}_end"), limits[name].least)
                x = hyper[name]
                hyper[name] = np.where(x > end, np.maximum(np.float32(factor) * x, np.float32(end)), x)
            steps = stats.steps.sum()
            if self.adaptive_cap and (episodes := stats.episodes.sum()):
                hyper["episode_cap"] = np.full(len(rows), np.ceil(STRETCH * (steps - state) / episodes), np.float32)
            return np.array(steps), DistributionUpdate(centred_ranks(stats.fitness), hyper)

        return PureEvolver(lambda key, uid: (np.array(0), same_for_all(search.fixed, len(uid))), decide)


def centred_ranks(fitness: np.ndarray) -> np.ndarray:
    """Return ranks [M] from -0.5, the worst, to 0.5. Ties share their mean rank; non-finite fitness is worst."""
    x = np.where(np.isfinite(fitness), fitness, -np.inf)
    ordered = np.sort(x)
    below, upto = np.searchsorted(ordered, x, "left"), np.searchsorted(ordered, x, "right")
    rank = (below + upto - 1) / 2
    return (rank / max(len(x) - 1, 1) - 0.5).astype(np.float32)
