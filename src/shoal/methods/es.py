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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from shoal.agents.declared import POLICY, Declaration
from shoal.core.errors import BadField, check_least
from shoal.core.population import DistributionUpdate, PopulationStats, PureEvolver, Seed
from shoal.core.space import HyperparameterSpec, SearchSpace, declared
from shoal.core.types import Agent, Hyper, Member, Population, PyTree, Rollout, SearchLearner
from shoal.methods.method import Method, same_for_all

if TYPE_CHECKING:
    import jax
    import optax

BLOCKS = 8  # parts of the population that are summed up separately, so that sums do not depend on the devices
STRETCH = 2.0  # of the mean length, where the cap of episodes adapts (section 2.1)


class EsHyper(NamedTuple):
    """The numbers of evolution strategies, equal for all members of a generation."""

    sigma: Annotated[Any, HyperparameterSpec("standard deviation of the perturbations", least=1e-9, most=1e9)] = 0.05
    learning_rate: Annotated[Any, HyperparameterSpec("of the optimiser", least=0, most=1e9)] = 0.02
    momentum: Annotated[Any, HyperparameterSpec("of SGD, or of Adam's first moment", least=0, most=0.9999)] = 0.9
    weight_decay: Annotated[
        Any, HyperparameterSpec("share of the parameters that the gradient takes away", least=0, most=1e9)
    ] = 0.005
    episode_cap: Annotated[Any, HyperparameterSpec("steps after which an episode is ended", least=1, most=1e9)] = 1e6


class EsShared(NamedTuple):
    """The state that all members share."""

    policy: PyTree  # the mean, as the agent's `learned`: `params`, and statistics of observations where it has them
    optimiser: PyTree
    seen: PyTree  # these statistics with this generation's observations, for the next generation


@dataclass(frozen=True)
class Es(Method):
    """Evolution strategies (OpenAI-ES): one policy, moved towards its perturbations with high returns.

    The mean then takes a step towards those that did well and away from those that did badly; no gradient of the
    policy is computed. Members come in pairs on opposite sides of the mean.
    """

    optimiser: Literal["adam", "sgd"] = "adam"
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
        """Make the learner; it perturbs `learned.params` of the agent alone."""
        import jax
        import jax.numpy as jnp
        import optax
        from jax.flatten_util import ravel_pytree

        from shoal.core import tree
        from shoal.rl.batching import spread
        from shoal.rl.independent import independent
        from shoal.rl.observations import update_all_statistics

        agent = agent._replace(hyper=EsHyper(), narrower={})
        learned = jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper)).learned
        normalises = bool(jax.tree.leaves(getattr(learned, "observations", ())))

        def first(hyper: Hyper) -> Hyper:
            """Return the hyperparameters of the generation, from the equal ones of its members [N]."""
            return jax.tree.map(lambda x: x[0], hyper)

        def direction(hyper: EsHyper) -> optax.GradientTransformation:
            if self.optimiser == "adam":
                return optax.scale_by_adam(b1=hyper.momentum)
            return optax.trace(decay=hyper.momentum)

        def init(key: jax.Array, uid: jax.Array, hyper: Hyper) -> Population:
            return with_mean(Population(Member((), (), ()), (), hyper), agent.init(key, hyper).learned)

        def with_mean(population: Population, learned: PyTree) -> Population:
            seen = learned.observations if normalises else ()
            optimiser = direction(first(population.hyper)).init(learned.params)
            return population._replace(shared=EsShared(learned, optimiser, seen))

        def noise(key: jax.Array, pair: jax.Array, size: int) -> jax.Array:
            return jax.random.normal(jax.random.fold_in(key, pair), (size,))

        def actors(population: Population, rows: jax.Array, uid: jax.Array, key: jax.Array) -> PyTree:
            """Sample members: 2k and 2k + 1 are the two sides of perturbation k."""
            policy, members = population.shared.policy, population.hyper.sigma.shape[0]
            flat, unravel = ravel_pytree(policy.params)
            scale = jnp.where(rows < members, population.hyper.sigma[jnp.minimum(rows, members - 1)], 0.0)
            step = scale[::2, None] * jax.vmap(noise, (None, 0, None))(key, uid[::2] // 2, flat.size)
            sides = jnp.stack([flat[None] + step, flat[None] - step], 1).reshape(len(rows), flat.size)
            every = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(rows), *x.shape)), policy)
            return every._replace(params=jax.vmap(unravel)(sides))

        def tell(population: Population, uid: jax.Array, weights: jax.Array, key: jax.Array) -> tuple[Population, Any]:
            """Take a step along the estimated gradient; `uid` and `weights` [M] in order of uid, from an even one on."""
            (policy, state, seen), hyper = population.shared, first(population.hyper)
            flat, unravel = ravel_pytree(policy.params)
            pairs, weights = uid[::2] // 2, weights[::2] - weights[1::2]
            blocks = BLOCKS if len(pairs) >= BLOCKS else 1
            count = -(-len(pairs) // (blocks * self.chunk))
            width = -(-len(pairs) // (blocks * count))
            padded = (jnp.pad(x, (0, blocks * count * width - len(x))) for x in (pairs, weights))
            parts = spread(tuple(x.reshape(blocks, count, width) for x in padded))

            def add(total: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
                directions = jax.vmap(noise, (None, 0, None))(key, part[0], flat.size)
                return total + part[1] @ directions, None

            sums = jax.vmap(lambda block: jax.lax.scan(add, jnp.zeros_like(flat), block)[0])(parts)
            # Always in this order:
            total = jax.lax.scan(lambda total, x: (total + x, None), jnp.zeros_like(flat), sums)[0]
            ascent = total / (uid.shape[0] * hyper.sigma) - hyper.weight_decay * flat
            step, state = direction(hyper).update(unravel(-ascent), state)
            params = jax.tree.map(lambda p, d: p - hyper.learning_rate * d, policy.params, step)
            length = hyper.learning_rate * optax.tree.norm(step)
            metrics = {"gradient/norm": jnp.linalg.norm(ascent), "step/norm": length}
            policy = policy._replace(params=params)
            if normalises:
                policy = policy._replace(observations=seen)
            return population._replace(shared=EsShared(policy, state, seen)), metrics

        def watch(shared: EsShared, rows: jax.Array, step: Rollout, alive: jax.Array) -> EsShared:
            """Update the statistics of observations by the mean's episodes, which are the same in every process."""
            row = jnp.argmax(rows == 0)[None]  # this row only: the others differ between processes
            obs = tree.take(step.obs, row)
            seen = alive[row] & (rows[row] == 0)[:, None] & tree.finite(obs, 2)
            return shared._replace(seen=update_all_statistics(shared.seen, obs, seen))

        def mean(population: Population) -> PyTree:
            return population.shared.policy

        def cap(hyper: Hyper) -> int:
            return int(hyper.episode_cap[0])

        alone = independent(agent)
        given = init, alone.act, alone.greedy, agent, actors, tell, mean, with_mean
        learner = SearchLearner(*given, chunk=self.chunk, cap=cap, pairs=True)
        return learner._replace(watches=True, watch=watch) if normalises else learner

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        """Return the evolver, which weights members by centred ranks; its state is the steps of all so far."""
        limits = declared(EsHyper)

        def decide(key: Seed, state: Any, stats: PopulationStats, mine: np.ndarray) -> tuple[Any, DistributionUpdate]:
            hyper = {name: values[mine] for name, values in stats.hyper.items()}
            for name in ("sigma", "learning_rate"):
                factor, end = getattr(self, f"{name}_decay"), max(getattr(self, f"{name}_end"), limits[name].least)
                x = hyper[name]
                hyper[name] = np.where(x > end, np.maximum(np.float32(factor) * x, np.float32(end)), x)
            steps = stats.steps.sum()
            if self.adaptive_cap and (episodes := stats.episodes.sum()):
                hyper["episode_cap"] = np.full(len(mine), np.ceil(STRETCH * (steps - state) / episodes), np.float32)
            return np.array(steps), DistributionUpdate(centred_ranks(stats.fitness), hyper)

        return PureEvolver(lambda key, uid: (np.array(0), same_for_all(search.fixed, len(uid))), decide)


def centred_ranks(fitness: np.ndarray) -> np.ndarray:
    """Return ranks [M] from -0.5, the worst, to 0.5. Ties share their mean rank; non-finite fitness is worst."""
    x = np.where(np.isfinite(fitness), fitness, -np.inf)
    ordered = np.sort(x)
    below, upto = np.searchsorted(ordered, x, "left"), np.searchsorted(ordered, x, "right")
    rank = (below + upto - 1) / 2
    return (rank / max(len(x) - 1, 1) - 0.5).astype(np.float32)
