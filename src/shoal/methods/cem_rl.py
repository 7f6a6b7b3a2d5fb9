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
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from shoal.agents.declared import AGENTS, Declaration, td3_hyper
from shoal.core.errors import BadField
from shoal.core.keys import member_keys
from shoal.core.population import DistributionUpdate, PopulationStats, PureEvolver, Seed
from shoal.core.space import HyperparameterSpec, SearchSpace
from shoal.core.types import Agent, Member, Population, PyTree, Rollout, SearchLearner, Tunable
from shoal.methods.method import Method, same_for_all

if TYPE_CHECKING:
    import jax

    from shoal.methods import shared_critic
    from shoal.rl import replay_buffer as ring

CHUNK = 64  # largest number of rows that are evaluated at a time
RATIO = HyperparameterSpec("joint updates per environment step of the generation before", None, 0, 1e6)
# Without exploration noise, as sampled parameters explore.
HYPER = td3_hyper("CemRlHyper", left_out="exploration_noise", update_ratio=(1.0, RATIO))._replace(policy_delay=1.0)


class Distribution(NamedTuple):
    """The diagonal normal distribution that the parameters of actors are sampled from."""

    mean: PyTree
    variance: PyTree
    noise: jax.Array  # float32, added to the variance at the next step


class CemRlShared(NamedTuple):
    """The state that all members share."""

    distribution: Distribution
    critic: shared_critic.Critic
    replay_buffer: ring.ReplayBuffer  # [S, 1, ...]: steps of all members, in no order; none is the successor of another


@dataclass(frozen=True)
class CemRl(Method):
    """CEM-RL: actors sampled around a mean, half of which learn from shared critics before all are evaluated.

    Before they are evaluated, some of them may learn by gradient steps from a critic that all share. The best of the
    members, the elites, make the next mean, and their differences from the old one how widely members are sampled
    around it.
    """

    trained: int | None = None
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
            ("noise_decay", "must lie within 0 and 1", 0 <= self.noise_decay <= 1),
        ):
            if not fits:
                raise BadField(name, problem, value=getattr(self, name))

    def validate(self, agent: Tunable, population: int) -> None:
        if population < 2:
            raise BadField("population", "method cem_rl draws at least 2 members", value=population)
        if self.mirrored and population % 2:
            problem = "method.mirrored draws members in pairs"
            raise BadField("population", problem, "take an even number", value=population)
        for name, least in (("elites", 1), ("trained", 0)):
            if (count := getattr(self, name)) is not None and not least <= count <= population:
                raise BadField(f"method.{name}", f"must lie within {least} and population = {population}", value=count)

    def learner(self, agent: Agent, population: int) -> SearchLearner:
        """All members share critics and a replay buffer. Raises BadInput where the agent is not TD3."""
        import jax
        import jax.numpy as jnp
        import optax

        from shoal.core import tree
        from shoal.methods import shared_critic
        from shoal.rl import replay_buffer as ring
        from shoal.rl.independent import independent
        from shoal.rl.steps import usable

        net = shared_critic.networks_of(agent, "cem_rl")
        settings, joint = net.config, shared_critic.joint_update(net)
        trained = population // 2 if self.trained is None else self.trained

        def act(learned: Any, hyper: Any, obs: jax.Array, carry: Any, key: jax.Array) -> tuple[Any, Any, Any]:
            return *agent.greedy(learned, obs, carry), ()

        def init(key: jax.Array, uid: jax.Array, hyper: Any) -> Population:
            first_key, draw_key = jax.random.split(key)
            mean, critics = net.init(first_key)
            wide = jax.tree.map(lambda x: jnp.full_like(x, self.variance), mean)
            buffer = ring.empty(net.spec, settings.capacity, 1, observations=2 * settings.capacity)
            distribution = Distribution(mean, wide, jnp.float32(self.variance))
            common = CemRlShared(distribution, shared_critic.new_critic(critics), buffer)
            members = jax.vmap(lambda _: Member(shared_critic.new_actor(mean), (), ()))(uid)
            return draw(Population(members, common, hyper), uid, draw_key)

        def draw(population: Population, uid: jax.Array, key: jax.Array) -> Population:
            distribution = population.shared.distribution
            half = len(uid) // 2
            steps = member_keys(key, jnp.tile(uid[:half], 2) if self.mirrored else uid)
            sign = jnp.where(self.mirrored & (jnp.arange(len(uid)) >= half), -1.0, 1.0)

            def one(key: jax.Array, sign: jax.Array) -> Member:
                noise = optax.tree.random_like(key, distribution.mean)
                mean, variance, _ = distribution
                policy = jax.tree.map(lambda m, v, n: m + sign * jnp.sqrt(v) * n, mean, variance, noise)
                return Member(shared_critic.new_actor(policy), (), ())

            return population._replace(members=jax.vmap(one)(steps, sign))

        def actors(population: Population, rows: jax.Array, uid: jax.Array, key: jax.Array) -> shared_critic.Actor:
            members = population.members.learned
            drawn = tree.take(members, jnp.minimum(rows, members.updates.shape[0] - 1))
            means = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(rows), *x.shape)), mean(population))
            return tree.where(rows < members.updates.shape[0], drawn, means)

        def improve(population: Population, key: jax.Array) -> tuple[Population, dict[str, jax.Array]]:
            common, everyone = population.shared, population.members.learned
            actors, hyper = tree.take((everyone, population.hyper), slice(trained))
            batch_key, noise_key = jax.random.split(key)
            keys = jax.random.split(batch_key, trained)
            batch = shared_critic.batches(common.replay_buffer, keys, (settings.batch,), hyper.discount)
            actors, critic, metrics = joint(actors, common.critic, hyper, batch, jax.random.split(noise_key, trained))
            members = jax.tree.map(lambda x, new: x.at[:trained].set(new), everyone, actors)
            rest = everyone.updates.shape[0] - trained
            metrics = {k: jnp.pad(x, (0, rest), constant_values=jnp.nan) for k, x in metrics.items()}
            return Population(Member(members, (), ()), common._replace(critic=critic), population.hyper), metrics

        def updates(hyper: Any, steps: int, last: int) -> int:
            """Number of updates: `update_ratio` times the environment steps of the generation before (algorithm 1)."""
            return int(last * float(hyper.update_ratio[0])) if steps >= settings.warm_up else 0

        def watch(common: CemRlShared, rows: jax.Array, step: Rollout, alive: jax.Array) -> CemRlShared:
            # The mean is evaluated, but its steps are not learned from.
            kept = alive & (rows < 0)[:, None] & usable(step)
            # Neighbours in the replay buffer come from different episodes: each is a transition of its own.
            single = step._replace(truncated=jnp.ones_like(step.truncated), extras=())
            flat, kept = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), (single, kept))
            buffer = common.replay_buffer
            return common._replace(replay_buffer=ring.store(buffer, flat, kept, buffer.owner))

        def tell(population: Population, uid: jax.Array, weights: jax.Array, key: jax.Array) -> tuple[Population, Any]:
            """Equations 1 and 2, with the actors as they are after training; the variance is around the old mean."""
            distribution = population.shared.distribution
            mean, noise = distribution.mean, distribution.noise
            actors = population.members.learned.policy

            def total(x: jax.Array) -> jax.Array:
                w = weights.reshape(-1, *[1] * (x.ndim - 1))
                return jnp.where(w > 0, w * x, 0.0).sum(0)  # leaves out the NaN of a diverged actor

            new = Distribution(
                jax.tree.map(total, actors),
                jax.tree.map(lambda x, m: total(jnp.square(x - m[None])) + noise, actors, mean),
                self.noise_decay * noise + (1 - self.noise_decay) * self.noise_end,
            )
            any_fitness = (weights > 0).any()  # else the distribution does not change
            new = jax.tree.map(lambda a, b: jnp.where(any_fitness, a, b), new, distribution)
            std, ones = jax.tree.map(jnp.sqrt, new.variance), jax.tree.map(jnp.ones_like, mean)
            metrics = {
                "elites/trained": jnp.where(population.members.learned.updates > 0, weights, 0.0).sum(),
                "step/norm": optax.tree.norm(jax.tree.map(jnp.subtract, new.mean, mean)),
                "distribution/std": optax.tree.norm(std) / optax.tree.norm(ones),
                "distribution/noise": new.noise,
            }
            return population._replace(shared=population.shared._replace(distribution=new)), metrics

        def mean(population: Population) -> shared_critic.Actor:
            return shared_critic.new_actor(population.shared.distribution.mean)

        def with_mean(population: Population, learned: shared_critic.Actor) -> Population:
            """Sample members around this policy as widely as at first; the critics are new."""
            distribution = population.shared.distribution._replace(mean=learned.policy)
            return population._replace(shared=population.shared._replace(distribution=distribution))

        one = shared_critic.actor_of(agent, HYPER)._replace(act=act, narrower={})
        alone, chunk = independent(one), min(population + 1, CHUNK)
        given = init, alone.act, alone.greedy, one, actors, tell, mean, with_mean
        learner = SearchLearner(*given, chunk=chunk, stored=True, draw=draw, together=True)
        return learner._replace(improve=improve, updates=updates, watches=True, watch=watch) if trained else learner

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        """The cross-entropy method: weights by the logarithm of the rank; hyperparameters do not change."""

        def decide(key: Seed, state: Any, stats: PopulationStats, mine: np.ndarray) -> tuple[Any, DistributionUpdate]:
            elites = max(len(stats.fitness) // 2, 1) if self.elites is None else self.elites
            hyper = {name: values[mine] for name, values in stats.hyper.items()}
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
