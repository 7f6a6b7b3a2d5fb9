"""DvD-TD3 (Parker-Holder et al. 2020, arXiv 2002.00632): actors with shared critics, rewarded for behaving differently.

One update, for actors pi[1..N] and probe states x from the shared memory, with λ = `hyper.diversity`:

    descend the loss of the critics, over a batch of each actor          as TD3
    b[i] = pi[i](x), the behaviour of an actor
    K[i, j] = exp(-|b[i] - b[j]|² / 2), with the mean over entries       equation 5
    every `policy_delay` updates:
        ascend (1 - λ) sum over i of Q1(s, pi[i](s)) + λ log det K
        move the target networks                                         as TD3
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp

from shoal.agents import td3
from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.evolution import Number, declared
from shoal.core.keys import member_keys
from shoal.core.types import Agent, Learner, Member, Population, Rollout
from shoal.methods import shared_critic
from shoal.rl import diversity
from shoal.rl import replay_memory as ring
from shoal.rl.independent import independent
from shoal.rl.steps import usable

if TYPE_CHECKING:
    from shoal.core.types import PyTree


TD3 = declared(td3.Hyper)


class Hyper(NamedTuple):
    """The hyperparameters of TD3, and the weight of diversity against values."""

    policy_learning_rate: Annotated[Any, TD3["policy_learning_rate"]] = 1e-3
    critic_learning_rate: Annotated[Any, TD3["critic_learning_rate"]] = 1e-3
    discount: Annotated[Any, TD3["discount"]] = 0.99
    tau: Annotated[Any, TD3["tau"]] = 0.005
    exploration_noise: Annotated[Any, TD3["exploration_noise"]] = 0.1
    target_noise: Annotated[Any, TD3["target_noise"]] = 0.2
    noise_clip: Annotated[Any, TD3["noise_clip"]] = 0.5
    policy_delay: Annotated[Any, TD3["policy_delay"]] = 2.0
    update_ratio: Annotated[
        Any, Number("joint updates per step of a member: each of them takes a batch of every actor", least=0)
    ] = 1.0
    diversity: Annotated[Any, Number("lambda; the weight of the values is 1 - lambda", least=0, most=1)] = 0.5


class Shared(NamedTuple):
    """The state that all members share."""

    critic: shared_critic.Critic
    memory: ring.Memory  # [S, N * B, ...]: the steps of all members side by side
    owed: jax.Array  # float32, the fraction of an update that is still to be made


def dvd(agent: Agent, population: int, *, probes: int = 20, redraw: int = 20) -> Learner:
    """The learner of N = `population` actors of `agent`, which is TD3; all of them share its critics and its memory.

    After a rollout of T steps in B environments of every member it makes T x B x `update_ratio` joint updates: every
    actor learns as often as if it were alone, as in the paper. `config.capacity` and `config.warm_up` count the steps of
    all members.

    probes: states in which behaviours are compared
    redraw: updates after which new states are sampled; each rollout also brings new ones

    Raises BadInput where they do not fit.
    """
    net, n = shared_critic.networks_of(agent, "dvd"), population
    config = net.config
    if n < 2:
        raise BadField("population", "method dvd compares members", "it needs at least 2", value=n)
    for name, value in (("probes", probes), ("redraw", redraw)):
        if value < 1:
            raise BadField(f"method.{name}", "must be at least 1", value=value)
    environments, steps = n * config.environments, config.rollout * config.environments
    slots = -(-config.capacity // (config.rollout * environments)) * config.rollout
    bound = steps * config.updates_per_step

    def behaviours(policies: PyTree, states: PyTree) -> jax.Array:
        """Embeddings [N, probes * A]."""
        return jax.vmap(net.policy, (0, None))(policies, states).reshape(n, -1)

    def bonus(policies: PyTree, hyper: Hyper, states: PyTree) -> jax.Array:
        embeddings, weight = behaviours(policies, states), hyper.diversity[:, None]
        constant = jax.lax.stop_gradient(embeddings)
        weighted = constant + weight * (embeddings - constant)  # same values; gradients times each member's weight
        return diversity.log_determinant(diversity.kernel(diversity.squared_distances(weighted)))

    joint = shared_critic.joint_update(net, bonus, lambda hyper: 1 - hyper.diversity)

    def init(key: jax.Array, uid: jax.Array, hyper: Hyper) -> Population:
        own_key, common_key = jax.random.split(key)
        members = jax.vmap(one.init)(member_keys(own_key, uid), hyper)
        critic = shared_critic.new_critic(net.init(common_key)[1])
        return Population(members, Shared(critic, ring.empty(net.spec, slots, environments), jnp.float32(0)), hyper)

    def update(population: Population, rollout: Rollout, keys: jax.Array) -> tuple[Population, dict[str, jax.Array]]:
        common, hyper = population.shared, population.hyper
        together = side_by_side(rollout)
        memory = ring.store(common.memory, together, usable(together), common.memory.owner)
        ready = memory.filled.sum() >= config.warm_up
        owed = jnp.where(ready, common.owed + hyper.update_ratio[0] * steps, 0.0)
        count = jnp.clip(jnp.floor(owed), 0, bound).astype(jnp.int32)
        batch_keys, noise_keys, probe_keys = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
        batches = shared_critic.batches(memory, batch_keys, (bound, config.batch), hyper.discount)
        states = ring.sample(memory, probe_keys[0], (-(-bound // redraw), probes), 1, hyper.discount[0]).obs

        def body(i: jax.Array, state: tuple) -> tuple:
            actors, critic, sums = state
            batch = jax.tree.map(lambda x: x[i], batches)
            noise = jax.vmap(jax.random.fold_in, (0, None))(noise_keys, i)
            actors, critic, metrics = joint(actors, critic, hyper, batch, noise, tree.take(states, i // redraw))
            return actors, critic, jax.tree.map(jnp.add, sums, metrics)

        nothing = dict.fromkeys(shared_critic.METRICS, jnp.zeros(len(keys)))
        start = (population.members.learned, common.critic, nothing)
        actors, critic, sums = jax.lax.fori_loop(0, count, body, start)
        metrics = {name: x / count.astype(jnp.float32) for name, x in sums.items()}  # NaN where there was no update
        metrics |= compared(actors, tree.take(states, 0))
        common = Shared(critic, memory, owed - count.astype(jnp.float32))
        return Population(Member(actors, (), ()), common, hyper), metrics

    def compared(actors: shared_critic.Actor, states: PyTree) -> dict[str, jax.Array]:
        """Diversity of the members; distances are root mean squares of differences between actions."""
        squared = diversity.squared_distances(behaviours(actors.policy, states))
        volume, distance = diversity.log_determinant(diversity.kernel(squared)), jnp.sqrt(squared)
        return {
            "diversity/determinant": jnp.broadcast_to(jnp.exp(volume), n),
            "diversity/log_determinant": jnp.broadcast_to(volume, n),
            "diversity/distance": distance.sum(-1) / (n - 1),
            **{f"diversity/to {i}": distance[:, i] for i in range(n)},
        }

    one = agent._replace(
        init=lambda key, hyper: Member(shared_critic.new_actor(net.init(key)[0]), (), ()),
        hyper=Hyper(),
        cut=lambda member: member,  # the memory is not theirs, and each of its steps is learned from alone
    )
    return independent(one)._replace(init=init, update=update, together=True)


def side_by_side(rollout: Rollout) -> Rollout:
    """A rollout of all members as one of a single member: [N, T, B, ...] -> [T, N * B, ...]."""

    def join(x: jax.Array) -> jax.Array:
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], -1, *x.shape[3:])

    return jax.tree.map(join, rollout._replace(extras=()))
