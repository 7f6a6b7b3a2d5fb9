"""CEM-RL (Pourchot & Sigaud 2019, arXiv 1810.01222, algorithm 1): actors sampled around a mean, half of which learn.

each actor ~ N(mean, diag(variance))
half of the actors, with the shared critics, make TD3 updates from the shared memory
measure all actors; their steps go to the memory
w = proportional to log(elites + 1) - log(rank), 0 for all but the elites, with sum 1
mean' = sum of w actor                                               equation 1
variance = sum of w (actor - mean)² + noise; mean = mean'            equation 2
noise = noise_decay noise + (1 - noise_decay) noise_end
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.agents import td3
from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.evolution import Number, declared
from shoal.core.keys import member_keys
from shoal.core.types import Agent, Member, Population, Rollout, SearchLearner
from shoal.methods import shared_critic
from shoal.rl import replay_memory as ring
from shoal.rl.independent import independent
from shoal.rl.steps import usable

if TYPE_CHECKING:
    from shoal.core.types import PyTree

CHUNK = 64  # largest number of rows that are measured at a time


TD3 = declared(td3.Hyper)


class Hyper(NamedTuple):
    """The hyperparameters of TD3 without exploration noise, as sampled parameters explore; equal for all members."""

    policy_learning_rate: Annotated[Any, TD3["policy_learning_rate"]] = 1e-3
    critic_learning_rate: Annotated[Any, TD3["critic_learning_rate"]] = 1e-3
    discount: Annotated[Any, TD3["discount"]] = 0.99
    tau: Annotated[Any, TD3["tau"]] = 0.005
    target_noise: Annotated[Any, TD3["target_noise"]] = 0.2
    noise_clip: Annotated[Any, TD3["noise_clip"]] = 0.5
    policy_delay: Annotated[Any, TD3["policy_delay"]] = 1.0
    update_ratio: Annotated[
        Any, Number("joint updates per environment step of the generation before", None, 0, 1e6)
    ] = 1.0


class Distribution(NamedTuple):
    """What actors are drawn from: a normal distribution of their parameters, each on its own."""

    mean: PyTree
    variance: PyTree
    noise: jax.Array  # float32, added to the variance at the next step


class Shared(NamedTuple):
    """The state that all members share."""

    distribution: Distribution
    critic: shared_critic.Critic
    memory: ring.Memory  # [S, 1, ...]: steps of all members, in no order, so that none begins where another ends


def cem_rl(
    agent: Agent,
    population: int,
    *,
    trained: int | None = None,
    variance: float = 1e-3,
    noise_end: float = 1e-5,
    noise_decay: float = 0.95,
    mirrored: bool = False,
) -> SearchLearner:
    """The learner of N = `population` actors of `agent`, which is TD3; all of them share its critics and its memory.

    trained:     how many members learn before they are measured, by default half
    variance:    of each parameter at first, and of the noise that is added to it (sigma in the paper's table)
    noise_end:   the value that this noise decays to
    noise_decay: the factor of its decay, per generation
    mirrored:    members i and i + N / 2 deviate from the mean in opposite directions; by default one of each pair learns

    Raises BadInput where they do not fit.
    """
    net = shared_critic.networks_of(agent, "cem_rl")
    settings = net.config
    trained = population // 2 if trained is None else trained
    _check(population, trained, variance, noise_end, noise_decay, mirrored)
    joint = shared_critic.joint_update(net)

    def act(
        learned: shared_critic.Actor, hyper: Hyper, obs: jax.Array, carry: Any, key: jax.Array
    ) -> tuple[Any, Any, Any]:
        return *agent.greedy(learned, obs, carry), ()

    def init(key: jax.Array, uid: jax.Array, hyper: Hyper) -> Population:
        first_key, draw_key = jax.random.split(key)
        mean, critics = net.init(first_key)
        wide = jax.tree.map(lambda x: jnp.full_like(x, variance), mean)
        memory = ring.empty(net.spec, settings.capacity, 1, observations=2 * settings.capacity)
        common = Shared(Distribution(mean, wide, jnp.float32(variance)), shared_critic.new_critic(critics), memory)
        members = jax.vmap(lambda _: Member(shared_critic.new_actor(mean), (), ()))(uid)
        return draw(Population(members, common, hyper), uid, draw_key)

    def draw(population: Population, uid: jax.Array, key: jax.Array) -> Population:
        distribution = population.shared.distribution
        half = len(uid) // 2
        steps = member_keys(key, jnp.tile(uid[:half], 2) if mirrored else uid)
        sign = jnp.where(mirrored & (jnp.arange(len(uid)) >= half), -1.0, 1.0)

        def one(key: jax.Array, sign: jax.Array) -> Member:
            noise = _normal(key, distribution.mean)
            policy = jax.tree.map(
                lambda m, v, n: m + sign * jnp.sqrt(v) * n, distribution.mean, distribution.variance, noise
            )
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
        batch = shared_critic.batches(common.memory, keys, (settings.batch,), hyper.discount)
        actors, critic, metrics = joint(actors, common.critic, hyper, batch, jax.random.split(noise_key, trained))
        members = jax.tree.map(lambda x, new: x.at[:trained].set(new), everyone, actors)
        rest = everyone.updates.shape[0] - trained
        metrics = {k: jnp.pad(x, (0, rest), constant_values=jnp.nan) for k, x in metrics.items()}
        return Population(Member(members, (), ()), common._replace(critic=critic), population.hyper), metrics

    def updates(hyper: Hyper, steps: int, last: int) -> int:
        """`update_ratio` times the environment steps of the generation before (algorithm 1)."""
        return int(last * float(hyper.update_ratio[0])) if steps >= settings.warm_up else 0

    def watch(common: Shared, rows: jax.Array, step: Rollout, alive: jax.Array) -> Shared:
        kept = alive & (rows < 0)[:, None] & usable(step)  # the mean is measured, but its steps are not learned from
        # Steps that are neighbours in the memory come from different episodes: each is a transition of its own.
        single = step._replace(truncated=jnp.ones_like(step.truncated), extras=())
        flat, kept = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), (single, kept))
        return common._replace(memory=ring.store(common.memory, flat, kept, common.memory.owner))

    def recombine(population: Population, uid: jax.Array, weights: jax.Array, key: jax.Array) -> tuple[Population, Any]:
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
            noise_decay * noise + (1 - noise_decay) * noise_end,
        )
        any_fitness = (weights > 0).any()  # else the distribution does not change
        new = jax.tree.map(lambda a, b: jnp.where(any_fitness, a, b), new, distribution)
        metrics = {
            "elites/trained": jnp.where(population.members.learned.updates > 0, weights, 0.0).sum(),
            "step/norm": _norm(jax.tree.map(jnp.subtract, new.mean, mean)),
            "distribution/deviation": _norm(jax.tree.map(jnp.sqrt, new.variance))
            / _norm(jax.tree.map(jnp.ones_like, mean)),
            "distribution/noise": new.noise,
        }
        return population._replace(shared=population.shared._replace(distribution=new)), metrics

    def mean(population: Population) -> shared_critic.Actor:
        return shared_critic.new_actor(population.shared.distribution.mean)

    def with_mean(population: Population, learned: shared_critic.Actor) -> Population:
        """Members are drawn around this policy as widely as at first; the critics begin anew."""
        distribution = population.shared.distribution._replace(mean=learned.policy)
        return population._replace(shared=population.shared._replace(distribution=distribution))

    one = agent._replace(
        init=lambda key, hyper: Member(shared_critic.new_actor(net.init(key)[0]), (), ()),
        act=act,
        hyper=Hyper(),
        narrower={},
    )
    alone = independent(one)
    learner = SearchLearner(
        init=init,
        act=alone.act,
        greedy=alone.greedy,
        agent=one,
        actors=actors,
        recombine=recombine,
        mean=mean,
        with_mean=with_mean,
        chunk=min(population + 1, CHUNK),
        stored=True,
        draw=draw,
        together=True,
    )
    return learner._replace(improve=improve, updates=updates, watches=True, watch=watch) if trained else learner


def _normal(key: jax.Array, like: PyTree) -> PyTree:
    """Standard normal numbers in the shape of a tree."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(structure, [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)])


def _norm(x: PyTree) -> jax.Array:
    """The Euclidean norm of a tree as one vector."""
    return jnp.sqrt(sum((jnp.square(leaf).sum() for leaf in jax.tree.leaves(x)), start=jnp.float32(0)))


def _check(
    population: int, trained: int, variance: float, noise_end: float, noise_decay: float, mirrored: bool
) -> None:
    if population < 2:
        raise BadField("population", "method cem_rl draws at least 2 members", value=population)
    if not 0 <= trained <= population:
        raise BadField("method.trained", f"must lie within 0 and population = {population}", value=trained)
    if mirrored and population % 2:
        raise BadField("population", "method.mirrored draws members in pairs", "take an even number", value=population)
    if not 0 < variance < np.inf:
        raise BadField("method.variance", "must be above 0", value=variance)
    if not 0 <= noise_end < np.inf:
        raise BadField("method.noise_end", "must be at least 0", value=noise_end)
    if not 0 <= noise_decay <= 1:
        raise BadField("method.noise_decay", "must lie within 0 and 1", value=noise_decay)
