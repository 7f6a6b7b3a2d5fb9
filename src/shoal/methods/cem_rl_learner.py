"""The learner of CEM-RL: how actors are sampled, which learn, and how the distribution moves; `cem_rl` has the equations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from shoal.core import tree
from shoal.core.keys import member_keys
from shoal.core.types import Agent, Hyper, Member, Metrics, Population, PyTree, Rollout, SearchLearner
from shoal.methods import shared_critic
from shoal.rl import replay_buffer as ring
from shoal.rl.independent import independent
from shoal.rl.steps import valid_steps

CHUNK = 64  # largest number of rows that are evaluated at a time


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


class CemRlLearner:
    """The functions of a SearchLearner; all members share critics and a replay buffer."""

    def __init__(
        self,
        agent: Agent,
        hyper: Hyper,
        trained: int,
        *,
        mirrored: bool,
        variance: float,
        noise_decay: float,
        noise_end: float,
    ):
        """hyper: CEM-RL's own. Options: as the method has them. Raises BadInput where the agent is not TD3."""
        self.net = shared_critic.networks_of(agent, "cem_rl")
        self.config, self.joint = self.net.config, shared_critic.joint_update(self.net)
        self.trained, self.mirrored, self.variance = trained, mirrored, variance
        self.noise_decay, self.noise_end = noise_decay, noise_end

        def act(learned: Any, hyper: Any, obs: jax.Array, carry: Any, key: jax.Array) -> tuple[Any, Any, Any]:
            return *agent.act_deterministic(learned, obs, carry), ()

        self.actor = shared_critic.actor_of(agent, hyper)._replace(act=act, limit_overrides={})

    def learner(self, population: int) -> SearchLearner:
        alone, chunk = independent(self.actor), min(population + 1, CHUNK)
        given = (
            self.init,
            alone.act,
            alone.act_deterministic,
            self.actor,
            self.actors,
            self.tell,
            self.mean,
            self.with_mean,
        )
        learner = SearchLearner(*given, chunk=chunk, stored=True, draw=self.sample, together=True)
        if not self.trained:
            return learner
        return learner._replace(improve=self.improve, updates=self.updates, watches=True, watch=self.watch)

    def init(self, key: jax.Array, uid: jax.Array, hyper: Hyper) -> Population:
        first_key, draw_key = jax.random.split(key)
        mean, critics = self.net.init(first_key)
        wide = jax.tree.map(lambda x: jnp.full_like(x, self.variance), mean)
        buffer = ring.empty(self.net.spec, self.config.buffer_size, 1, observations=2 * self.config.buffer_size)
        distribution = Distribution(mean, wide, jnp.float32(self.variance))
        common = CemRlShared(distribution, shared_critic.new_critic(critics), buffer)
        members = jax.vmap(lambda _: Member(shared_critic.new_actor(mean), (), ()))(uid)
        return self.sample(Population(members, common, hyper), uid, draw_key)

    def mean(self, population: Population) -> shared_critic.Actor:
        return shared_critic.new_actor(population.shared.distribution.mean)

    def with_mean(self, population: Population, learned: shared_critic.Actor) -> Population:
        """Sample members around this policy as widely as at first; the critics are new."""
        distribution = population.shared.distribution._replace(mean=learned.policy)
        return population._replace(shared=population.shared._replace(distribution=distribution))

    def sample(self, population: Population, uid: jax.Array, key: jax.Array) -> Population:
        """Sample the actors of a generation, each ~ N(mean, diag(variance))."""
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

    def actors(self, population: Population, rows: jax.Array, uid: jax.Array, key: jax.Array) -> shared_critic.Actor:
        members = population.members.learned
        drawn = tree.take(members, jnp.minimum(rows, members.updates.shape[0] - 1))
        means = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(rows), *x.shape)), self.mean(population))
        return tree.where(rows < members.updates.shape[0], drawn, means)

    def improve(self, population: Population, key: jax.Array) -> tuple[Population, Metrics]:
        """Make one TD3 update of those that learn, with the shared critics and buffer."""
        common, everyone, trained = population.shared, population.members.learned, self.trained
        actors, hyper = tree.take((everyone, population.hyper), slice(trained))
        batch_key, noise_key = jax.random.split(key)
        keys = jax.random.split(batch_key, trained)
        batch = shared_critic.batches(common.replay_buffer, keys, (self.config.batch_size,), hyper.discount)
        noise_keys = jax.random.split(noise_key, trained)
        actors, critic, metrics = self.joint(actors, common.critic, hyper, batch, noise_keys)
        members = jax.tree.map(lambda x, new: x.at[:trained].set(new), everyone, actors)
        rest = everyone.updates.shape[0] - trained
        metrics = {k: jnp.pad(x, (0, rest), constant_values=jnp.nan) for k, x in metrics.items()}
        return Population(Member(members, (), ()), common._replace(critic=critic), population.hyper), metrics

    def updates(self, hyper: Hyper, steps: int, last: int) -> int:
        """Number of updates: `update_ratio` times the environment steps of the generation before (algorithm 1)."""
        return int(last * float(hyper.update_ratio[0])) if steps >= self.config.learning_starts else 0

    def watch(self, common: CemRlShared, rows: jax.Array, step: Rollout, alive: jax.Array) -> CemRlShared:
        """Store the steps of members; the mean is evaluated, but its steps are not learned from."""
        kept = alive & (rows < 0)[:, None] & valid_steps(step)
        # Neighbours in the replay buffer come from different episodes: each is a transition of its own.
        single = step._replace(truncated=jnp.ones_like(step.truncated), extras=())
        flat, kept = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), (single, kept))
        buffer = common.replay_buffer
        return common._replace(replay_buffer=ring.store(buffer, flat, kept, buffer.owner))

    def tell(
        self, population: Population, uid: jax.Array, weights: jax.Array, key: jax.Array
    ) -> tuple[Population, Metrics]:
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
