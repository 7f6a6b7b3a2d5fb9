"""TD3 of many actors with one pair of critics and one replay buffer: what CEM-RL and DvD have in common.

The critics learn from a batch of each actor, with targets from that actor's own target policy: their loss is the mean over
all these transitions. Every actor ascends the first critic. The critics' learning rate and `tau`, and the policy delay, are
those of the first actor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from shoal.agents.td3 import Networks, critic_step, is_due, targets
from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.types import Agent, Hyper, Member, PyTree
from shoal.rl import replay_buffer as ring
from shoal.rl.off_policy import ADAM, adam_step, polyak_update
from shoal.rl.replay_buffer import Batch, ReplayBuffer

METRICS = ("loss/critic", "value/mean", "value/target")  # of a joint update, [N] each


class Actor(NamedTuple):
    """The state of one member; td3's `act_deterministic` takes it like its own `Learned`."""

    policy: Any
    target_policy: Any
    policy_optimizer: Any
    updates: jax.Array  # int32, those behind these weights


class Critic(NamedTuple):
    """The critics that all actors share; leaves are stacked, [2, ...]."""

    critics: Any
    target_critics: Any
    optimizer: Any
    updates: jax.Array  # int32, those behind these weights


def networks_of(agent: Agent, method: str) -> Networks:
    """The networks of an agent. Raises BadInput where it is not TD3."""
    if not isinstance(agent.networks, Networks):
        raise BadField("method", "trains the actors of td3", "take agent: td3", value=method)
    return agent.networks


def actor_of(agent: Agent, hyper: Hyper) -> Agent:
    """An agent of which the critics are not a member's own."""
    net = agent.networks
    return agent._replace(init=lambda key, _: Member(new_actor(net.init(key)[0]), (), ()), hyper=hyper)


def new_actor(policy: PyTree) -> Actor:
    """An actor that begins with these parameters."""
    return Actor(policy=policy, target_policy=policy, policy_optimizer=ADAM.init(policy), updates=jnp.int32(0))


def new_critic(critics: PyTree) -> Critic:
    """Critics that begin with these parameters."""
    return Critic(critics=critics, target_critics=critics, optimizer=ADAM.init(critics), updates=jnp.int32(0))


def batches(buffer: ReplayBuffer, keys: jax.Array, shape: tuple[int, ...], discount: jax.Array) -> Batch:
    """Transitions of one step for each of N actors, each with its key [N] and discount [N].

    shape: (..., batch). Returns leaves [..., N, batch, *].
    """
    axis = len(shape) - 1
    return jax.vmap(lambda key, d: ring.sample(buffer, key, shape, 1, d), out_axes=axis)(keys, discount)


def joint_update(
    net: Networks, bonus: Callable = lambda *_: 0.0, value_weight: Callable = lambda hyper: 1.0
) -> Callable:
    """The function that makes one update of all actors and of the critics that they share:

    (actors [N], critic, hyper [N], batch [N, batch, ...], keys [N], *arguments) -> (actors, critic, metrics [N])

    bonus: (policies [N], hyper, *arguments) -> a number that all policies maximise together, beside their values
    value_weight: (hyper) -> [N], the weight of the values for each policy
    """

    def update(
        actors: Actor, critic: Critic, hyper: Hyper, batch: Batch, keys: jax.Array, *arguments: Any
    ) -> tuple[Actor, Critic, dict[str, jax.Array]]:
        first = jax.tree.map(lambda x: x[0], hyper)
        next_action = jax.vmap(net.target_action)(actors.target_policy, hyper, batch.next_obs, keys)
        flat, next_action = _flat((batch, next_action))
        target = targets(net, critic.target_critics, flat, next_action)
        counts = tree.finite(next_action)[None]  # leaves out actors that have diverged
        critics, optimizer, loss, value = critic_step(
            net, first.critic_learning_rate, critic.critics, critic.optimizer, flat, target, counts
        )
        critic = critic._replace(critics=critics, optimizer=optimizer, updates=critic.updates + 1)
        actors = actors._replace(updates=actors.updates + 1)
        due, unchanged = is_due(critic.updates, first.policy_delay), lambda actors, critic, *_: (actors, critic)
        given = actors, critic, hyper, batch.obs, *arguments
        actors, critic = jax.lax.cond(due, improve_policies, unchanged, *given)
        each = (len(keys), -1)
        values = value.mean(0).reshape(each).mean(-1), target.reshape(each).mean(-1)
        return actors, critic, dict(zip(METRICS, (jnp.broadcast_to(loss, len(keys)), *values), strict=True))

    def improve_policies(actors: Actor, critic: Critic, hyper: Hyper, obs: PyTree, *more: Any) -> tuple[Actor, Critic]:
        def loss(policies: Any) -> jax.Array:
            action = jax.vmap(net.policy)(policies, obs)
            value = net.q1(critic.critics, _flat(obs), _flat(action)).reshape(action.shape[:2]).mean(-1)
            return -(value_weight(hyper) * value).sum() - bonus(policies, hyper, *more)

        gradient = jax.grad(loss)(actors.policy)
        rates = hyper.policy_learning_rate
        policies, optimizer = jax.vmap(adam_step)(rates, gradient, actors.policy, actors.policy_optimizer)
        actors = actors._replace(
            policy=policies,
            policy_optimizer=optimizer,
            target_policy=jax.vmap(polyak_update)(actors.target_policy, policies, hyper.tau),
        )
        followed = polyak_update(critic.target_critics, critic.critics, hyper.tau[0])
        return actors, critic._replace(target_critics=followed)

    return update


def _flat(batches: PyTree) -> PyTree:
    """The batches of all actors as one batch: leaves [N, batch, ...] -> [N * batch, ...]."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batches)
