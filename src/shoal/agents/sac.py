"""Soft actor-critic with a learned temperature (Haarnoja et al. 2018, arXiv 1812.05905), for one member.

One update (algorithm 1), on a batch of transitions (s, a, r, s') from the replay buffer, with the policy pi, the critics Q1
and Q2, their target networks Q1', Q2', the temperature α and the target entropy H; the three gradient steps start from
the same weights:

    a' ~ pi(.|s'), b ~ pi(.|s)
    y = r + γ (min(Q1'(s', a'), Q2'(s', a')) - α log pi(a'|s'))        equation 3
    descend mean of (Q1(s, a) - y)² / 2 + (Q2(s, a) - y)² / 2          equation 5, by Adam
    descend mean of α log pi(b|s) - min(Q1(s, b), Q2(s, b))            equation 9, in pi, by Adam
    descend mean of -α (log pi(b|s) + H)                               equation 18, in log α, by Adam
    each Q' = Q' + τ (Q - Q')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from shoal.agents.registry import SacConfig, SacHyper
from shoal.core.errors import BadField
from shoal.core.schema import build
from shoal.core.types import Agent, Member, Metrics
from shoal.rl import off_policy
from shoal.rl.auxiliary_loss import make_auxiliary_loss
from shoal.rl.networks import SquashedNormal, held_within
from shoal.rl.off_policy import ADAM, TwinCritics, adam_step, polyak_update

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import PyTree
    from shoal.rl.replay_buffer import Batch


class SacLearned(NamedTuple):
    """The part of a SAC agent that a child copies. Leaves of critics are stacked, [2, ...]."""

    policy: Any
    critics: Any
    target_critics: Any
    log_temperature: jax.Array
    policy_optimizer: Any
    critic_optimizer: Any
    temperature_optimizer: Any
    updates: jax.Array  # int32, made so far


def sac(spec: Spec, **settings: Any) -> Agent:
    """SAC for continuous actions; `settings` are the fields of `SacConfig`. Raises BadInput where they do not fit."""
    config = build(SacConfig, settings, "config.")
    net = TwinCritics(spec, config, "sac", outputs=2)
    if not config.initial_temperature > 0:
        raise BadField("config.initial_temperature", "must be above 0", value=config.initial_temperature)
    values, size, auxiliary_loss = net.values, spec.action.shape[0], make_auxiliary_loss(config.auxiliary_loss)

    def policy(params: Any, obs: PyTree) -> SquashedNormal:
        mean, log_std = jnp.split(net.outputs(params, obs), 2, -1)
        return SquashedNormal(mean, held_within(log_std, -20, 2))

    def init(key: jax.Array, hyper: SacHyper) -> Member:
        buffer_key, actor_key, *critic_keys = jax.random.split(key, 4)
        params, critics = net.initial_parameters(actor_key, critic_keys)
        temperature = jnp.log(jnp.float32(config.initial_temperature))
        learned = SacLearned(
            policy=params,
            critics=critics,
            target_critics=critics,
            log_temperature=temperature,
            policy_optimizer=ADAM.init(params),
            critic_optimizer=ADAM.init(critics),
            temperature_optimizer=ADAM.init(temperature),
            updates=jnp.int32(0),
        )
        return Member(learned, *off_policy.initial(spec, config, buffer_key))

    def act(learned: SacLearned, hyper: SacHyper, obs: PyTree, carry: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        sample_key, random_key = jax.random.split(key)
        action, _ = policy(learned.policy, obs).sample_with_log_prob(sample_key)
        random = jax.random.uniform(random_key, action.shape, minval=-1, maxval=1)
        return jnp.where(learned.updates > 0, action, random), carry, ()

    def act_deterministic(learned: SacLearned, obs: PyTree, carry: Any) -> tuple[jax.Array, Any]:
        return policy(learned.policy, obs).mode(), carry

    def improve(learned: SacLearned, hyper: SacHyper, batch: Batch, key: jax.Array) -> tuple[SacLearned, Metrics]:
        """Update critics, policy and temperature, all from the same weights (algorithm 1)."""
        next_key, now_key = jax.random.split(key)
        temperature = jnp.exp(learned.log_temperature)
        next_action, next_log_prob = policy(learned.policy, batch.next_obs).sample_with_log_prob(next_key)
        next_value = values(learned.target_critics, batch.next_obs, next_action).min(0)
        soft_value = next_value - temperature * next_log_prob  # equation 3
        target = hyper.reward_scale * batch.reward + batch.bootstrap * soft_value

        def critic_loss(params: Any) -> tuple[jax.Array, jax.Array]:  # equation 5
            value = values(params, batch.obs, batch.action)
            return 0.5 * jnp.square(value - target[None]).mean(-1).sum(), value

        def policy_loss(params: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:  # equation 9
            distribution = policy(params, batch.obs)
            action, log_prob = distribution.sample_with_log_prob(now_key)
            value = values(learned.critics, batch.obs, action).min(0)
            added = jnp.zeros(()) if auxiliary_loss is None else auxiliary_loss(batch, distribution, value).mean()
            return (temperature * log_prob - value).mean() + added, (-log_prob.mean(), added)

        def temperature_loss(log_temperature: jax.Array) -> jax.Array:  # equation 18
            return jnp.exp(log_temperature) * (entropy + hyper.target_entropy_scale * size)

        (loss, value), critic_gradient = jax.value_and_grad(critic_loss, has_aux=True)(learned.critics)
        critics, critic_optimizer = adam_step(
            hyper.critic_learning_rate, critic_gradient, learned.critics, learned.critic_optimizer
        )
        (_, (entropy, added)), policy_gradient = jax.value_and_grad(policy_loss, has_aux=True)(learned.policy)
        params, policy_optimizer = adam_step(
            hyper.policy_learning_rate, policy_gradient, learned.policy, learned.policy_optimizer
        )
        temperature_gradient = jax.grad(temperature_loss)(learned.log_temperature)
        log_temperature, temperature_optimizer = adam_step(
            hyper.temperature_learning_rate,
            temperature_gradient,
            learned.log_temperature,
            learned.temperature_optimizer,
        )
        learned = SacLearned(
            policy=params,
            critics=critics,
            target_critics=polyak_update(learned.target_critics, critics, hyper.tau),
            log_temperature=log_temperature,
            policy_optimizer=policy_optimizer,
            critic_optimizer=critic_optimizer,
            temperature_optimizer=temperature_optimizer,
            updates=learned.updates + 1,
        )
        metrics = {
            "loss/critic": loss,
            "value/mean": value.mean(),
            "value/target": target.mean(),
            "policy/entropy": entropy,
            "policy/temperature": temperature,
        }
        return learned, metrics if auxiliary_loss is None else metrics | {"loss/auxiliary": added}

    return off_policy.agent(
        config, SacHyper(), init, act, act_deterministic, improve, observation_keys=net.observation_keys
    )
