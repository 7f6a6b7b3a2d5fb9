"""Methods of one's own, which nothing in the package knows by name; and some whose halves do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from shoal.agents.registry import POLICY, Declaration
from shoal.core.population import Decision, DistributionUpdate, PureEvolver
from shoal.core.space import SearchSpace
from shoal.core.types import Member, Population, SearchLearner
from shoal.methods.independent import Independent
from shoal.methods.method import Method
from shoal.rl.independent import independent


class Hyper(NamedTuple):
    radius: Any = 0.3  # how far members lie from the mean, in each parameter


@dataclass(frozen=True)
class Nearby(Method):
    """Random search around the mean.

    The best of the members becomes the next mean.
    """

    agents: ClassVar[dict[str, Declaration]] = {"policy": POLICY._replace(hyper=Hyper())}
    title: ClassVar[str] = "a search nearby"

    def learner(self, agent: Any, population: int) -> SearchLearner:
        agent = agent._replace(hyper=Hyper(), limit_overrides={})
        alone = independent(agent)

        def init(key: Any, uid: Any, hyper: Any) -> Population:
            return Population(Member((), (), ()), agent.init(key, hyper).learned, hyper)

        def around(mean: Any, radius: Any, uid: Any, key: Any) -> Any:
            flat, unravel = ravel_pytree(mean.params)
            noise = jax.random.uniform(jax.random.fold_in(key, uid), flat.shape, minval=-1.0)
            return mean._replace(params=unravel(flat + radius * noise))

        def actors(population: Population, rows: Any, uid: Any, key: Any) -> Any:
            n = population.hyper.radius.shape[0]
            radius = jnp.where(rows < n, population.hyper.radius[jnp.minimum(rows, n - 1)], 0.0)
            return jax.vmap(around, (None, 0, 0, None))(population.shared, radius, uid, key)

        def tell(population: Population, uid: Any, weights: Any, key: Any) -> Any:
            best = around(population.shared, population.hyper.radius[0], uid[weights.argmax()], key)
            return population._replace(shared=best), {}

        return SearchLearner(
            *(init, alone.act, alone.act_deterministic, agent, actors, tell),
            mean=lambda population: population.shared,
            with_mean=lambda population, learned: population._replace(shared=learned),
            chunk=8,
        )

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        def init(key: Any, uid: np.ndarray) -> Any:
            return (), {name: np.full(len(uid), x, np.float32) for name, x in search.fixed.items()}

        def decide(key: Any, state: Any, stats: Any, rows: np.ndarray) -> Any:
            best = np.argmax(np.nan_to_num(stats.fitness, nan=-np.inf))
            return state, DistributionUpdate((np.arange(len(stats.uid)) == best).astype(np.float32), dict(stats.hyper))

        return PureEvolver(init, decide)


class SampledButCopying(Nearby):
    """Its evolver decides about parents, which members that are sampled do not have."""

    def evolver(self, *arguments: Any) -> PureEvolver:
        init = super().evolver(*arguments).init
        return PureEvolver(init, lambda key, state, stats, rows: (state, Decision(rows, dict(stats.hyper))))


class GradientTrainedButWeighing(Independent):
    """Its evolver weighs members for a mean, which members that live on do not have."""

    def evolver(self, *arguments: Any) -> PureEvolver:
        init = super().evolver(*arguments).init
        even = np.float32(0.25)
        return PureEvolver(
            init, lambda key, state, stats, rows: (state, DistributionUpdate(even + 0 * rows, dict(stats.hyper)))
        )
