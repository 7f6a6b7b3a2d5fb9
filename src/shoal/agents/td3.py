"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477), for one member.

One update (algorithm 1), on a batch of transitions (s, a, r, s') from the replay buffer, with the policy pi, the critics Q1
and Q2, and their target networks pi', Q1', Q2':

    a' = clip(pi'(s') + clip(noise, -c, c), -1, 1)                     equation 14
    y = r + γ min(Q1'(s', a'), Q2'(s', a'))                            equation 10
    descend mean of (y - Q1(s, a))² + mean of (y - Q2(s, a))²          by Adam
    every `policy_delay` updates:
        ascend mean of Q1(s, pi(s)) in the parameters of pi            equation 1, by Adam
        each target' = target' + τ (its network - target')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from shoal.agents.registry import Td3Config, Td3Hyper
from shoal.core.schema import build
from shoal.core.types import Agent, Array, Member, Metrics
from shoal.rl import off_policy
from shoal.rl.batching import when
from shoal.rl.off_policy import ADAM, TwinCritics, adam_step, polyak_update

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import PyTree
    from shoal.rl.replay_buffer import Batch


class Td3Learned(NamedTuple):
    """The part of a TD3 agent that a child copies. Leaves of critics are stacked, [2, ...]."""

    policy: Any
    critics: Any
    target_policy: Any
    target_critics: Any
    policy_optimizer: Any
    critic_optimizer: Any
    updates: jax.Array  # int32, made so far


class Networks(TwinCritics):
    """The networks of TD3, for one member or for a population whose actors share their critics; policies ascend `q1`."""

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        """Return new parameters: (policy, critics)."""
        actor_key, *critic_keys = jax.random.split(key, 3)
        return self.initial_parameters(actor_key, critic_keys)

    def policy(self, params: Any, obs: PyTree) -> jax.Array:
        """Actions [..., A] in [-1, 1] for observations [..., *]."""
        return jnp.tanh(self.outputs(params, obs))

    def target_action(self, target_policy: Any, hyper: Td3Hyper, obs: PyTree, key: jax.Array) -> jax.Array:
        """Actions [..., A] of the target policy, smoothed by clipped noise, in [-1, 1] (equation 14)."""
        action = self.policy(target_policy, obs)
        noise = hyper.target_noise * jax.random.normal(key, action.shape)
        return jnp.clip(action + jnp.clip(noise, -hyper.noise_clip, hyper.noise_clip), -1, 1)


def targets(networks: Networks, critics: Any, batch: Batch, next_action: jax.Array) -> jax.Array:
    """Return the target values of a batch, [batch]; `critics` are the target critics, `next_action` is `target_action`."""
    next_value = networks.values(critics, batch.next_obs, next_action).min(0)  # equation 10
    return batch.reward + batch.bootstrap * next_value


def critic_step(
    networks: Networks, rate: Array, critics: Any, optimizer: Any, batch: Batch, target: Array, counts: Array = True
) -> tuple[Any, Any, jax.Array, jax.Array]:
    """Take a gradient step of both critics towards `target` [batch], on the transitions that `counts` [batch] marks.

    Returns the new critics, their optimiser state, the loss, and the values [2, batch].
    """

    def loss(params: Any) -> tuple[jax.Array, jax.Array]:
        value = networks.values(params, batch.obs, batch.action)
        return jnp.square(jnp.where(counts, value - target[None], 0.0)).mean(-1).sum(), value

    (error, value), gradient = jax.value_and_grad(loss, has_aux=True)(critics)
    critics, optimizer = adam_step(rate, gradient, critics, optimizer)
    return critics, optimizer, error, value


def is_due(updates: jax.Array, policy_delay: jax.Array) -> jax.Array:
    """True where the update with this number also updates the policy and the target networks."""
    return updates % jnp.round(policy_delay).astype(jnp.int32) == 0


def td3(spec: Spec, **settings: Any) -> Agent:
    """TD3 for continuous actions; `settings` are the fields of `Td3Config`. Raises BadInput where they do not fit."""
    config = build(Td3Config, settings, "config.")
    net = Networks(spec, config, "td3", outputs=1)

    def init(key: jax.Array, hyper: Td3Hyper) -> Member:
        network_key, buffer_key = jax.random.split(key)
        params, critics = net.init(network_key)
        learned = Td3Learned(
            policy=params,
            critics=critics,
            target_policy=params,
            target_critics=critics,
            policy_optimizer=ADAM.init(params),
            critic_optimizer=ADAM.init(critics),
            updates=jnp.int32(0),
        )
        return Member(learned, *off_policy.initial(spec, config, buffer_key))

    def act(learned: Td3Learned, hyper: Td3Hyper, obs: PyTree, carry: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        noise_key, random_key = jax.random.split(key)
        mean = net.policy(learned.policy, obs)
        noisy = mean + hyper.exploration_noise * jax.random.normal(noise_key, mean.shape)
        random = jax.random.uniform(random_key, mean.shape, minval=-1, maxval=1)
        return jnp.where(learned.updates > 0, jnp.clip(noisy, -1, 1), random), carry, ()

    def act_deterministic(learned: Td3Learned, obs: PyTree, carry: Any) -> tuple[jax.Array, Any]:
        return net.policy(learned.policy, obs), carry

    def improve(learned: Td3Learned, hyper: Td3Hyper, batch: Batch, key: jax.Array) -> tuple[Td3Learned, Metrics]:
        """Update the critics, and every `hyper.policy_delay`-th time the policy (algorithm 1)."""
        next_action = net.target_action(learned.target_policy, hyper, batch.next_obs, key)
        target = targets(net, learned.target_critics, batch, next_action)
        critics, optimizer, loss, value = critic_step(
            net, hyper.critic_learning_rate, learned.critics, learned.critic_optimizer, batch, target
        )
        learned = learned._replace(critics=critics, critic_optimizer=optimizer, updates=learned.updates + 1)
        learned = when(is_due(learned.updates, hyper.policy_delay), improve_policy, learned, hyper, batch.obs)
        return learned, {"loss/critic": loss, "value/mean": value.mean(), "value/target": target.mean()}

    def improve_policy(learned: Td3Learned, hyper: Td3Hyper, obs: PyTree) -> Td3Learned:
        def policy_loss(params: Any) -> jax.Array:
            return -net.q1(learned.critics, obs, net.policy(params, obs)).mean()

        gradient = jax.grad(policy_loss)(learned.policy)
        params, optimizer = adam_step(hyper.policy_learning_rate, gradient, learned.policy, learned.policy_optimizer)
        return learned._replace(
            policy=params,
            policy_optimizer=optimizer,
            target_policy=polyak_update(learned.target_policy, params, hyper.tau),
            target_critics=polyak_update(learned.target_critics, learned.critics, hyper.tau),
        )

    keys = net.observation_keys
    return off_policy.agent(
        config, Td3Hyper(), init, act, act_deterministic, improve, networks=net, observation_keys=keys
    )
