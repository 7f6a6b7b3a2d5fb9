"""Deep Q-learning (Mnih et al. 2015), with double targets (van Hasselt et al. 2016, arXiv 1509.06461) and n-step
returns as options, for one member.

One update (algorithm 1 of Mnih et al.), on a batch of transitions (s, a, r, s') from the replay buffer, with the network Q
and its target network Q'; equations of van Hasselt et al.:

    y = r + γ max over a' of Q'(s', a')                                equation 3
    y = r + γ Q'(s', argmax over a' of Q(s', a'))                      equation 4, where `double`
    descend mean of huber(y - Q(s, a))                                 by Adam
    every `target_update_interval` updates:
        Q' = Q' + τ (Q - Q')                                           a copy where τ = 1, the default

With `n_step`, r is the discounted sum of n rewards, s' the observation n steps later, and γ is γ^n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from shoal.agents.registry import DqnConfig, DqnHyper
from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.schema import build
from shoal.core.spec import Discrete
from shoal.core.types import Agent, Member, Metrics
from shoal.rl import off_policy
from shoal.rl.frames import stacked, stacking
from shoal.rl.masks import ActionMask
from shoal.rl.networks import MLP, categorical, make_network
from shoal.rl.observations import View
from shoal.rl.off_policy import polyak_update

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import PyTree
    from shoal.rl.replay_buffer import Batch


class DqnLearned(NamedTuple):
    """The part of a DQN agent that a child copies."""

    params: Any
    target: Any
    optimizer: Any
    updates: jax.Array  # int32, made so far


def dqn(spec: Spec, **settings: Any) -> Agent:
    """DQN for discrete actions; `settings` are the fields of `DqnConfig`. Raises BadInput where they do not fit."""
    config = build(DqnConfig, settings, "config.")
    if not isinstance(spec.action, Discrete):
        advice = "take td3 or sac for continuous actions, ppo for others"
        raise BadField("agent", "needs one discrete action", advice, value="dqn")
    off_policy.check(config)
    if not 1 <= config.n_step <= config.rollout_length:
        raise BadField(
            "config.n_step", f"must be from 1 to config.rollout_length = {config.rollout_length}", value=config.n_step
        )
    off_policy.check_frames(config, config.n_step, config.frame_stack)
    choices = spec.action.n
    view, mask = View(stacked(spec, config.frame_stack), "config.actor", (), spec.actor), ActionMask(spec)
    features = make_network(config.network, view.spec, config.precision)
    head = MLP(config.layers, choices, config.activation, precision=config.precision)

    def values(params: Any, obs: PyTree) -> jax.Array:
        """Values of all actions, [..., choices]; of illegal ones the lowest."""
        return mask.apply(obs, head.apply(params["head"], features.apply(params["features"], view.look(obs))))

    def optimizer(hyper: DqnHyper) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(hyper.max_gradient_norm), optax.adam(hyper.learning_rate))

    def init(key: jax.Array, hyper: DqnHyper) -> Member:
        buffer_key, features_key, head_key = jax.random.split(key, 3)
        x, first = features.init_with_output(features_key, tree.zeros(view.spec.obs, 1))
        params = {"features": first, "head": head.init(head_key, x)}
        learned = DqnLearned(params, target=params, optimizer=optimizer(hyper).init(params), updates=jnp.int32(0))
        return Member(learned, *off_policy.initial(spec, config, buffer_key))

    def act(learned: DqnLearned, hyper: DqnHyper, obs: PyTree, carry: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        best, carry = act_deterministic(learned, obs, carry)
        random_key, coin_key = jax.random.split(key)
        share = learned.updates.astype(jnp.float32) / jnp.maximum(hyper.epsilon_decay_updates, 1.0)
        epsilon = hyper.final_epsilon + (1 - hyper.final_epsilon) * jnp.maximum(1 - share, 0.0)
        random = jax.random.randint(random_key, best.shape, 0, choices)
        if spec.masked:
            random = categorical(mask.apply(obs, jnp.zeros((*best.shape, choices)))).sample(random_key)
        return jnp.where(jax.random.uniform(coin_key, best.shape) < epsilon, random, best), carry, ()

    def act_deterministic(learned: DqnLearned, obs: PyTree, carry: Any) -> tuple[jax.Array, Any]:
        return jnp.argmax(values(learned.params, obs), -1).astype(jnp.int32), carry

    def improve(learned: DqnLearned, hyper: DqnHyper, batch: Batch, key: jax.Array) -> tuple[DqnLearned, Metrics]:
        """Make one update, and at every `hyper.target_update_interval`-th one a step of the target network (algorithm 1)."""
        after = values(learned.target, batch.next_obs)
        chosen = jnp.argmax(values(learned.params, batch.next_obs) if config.double else after, -1)
        target = batch.reward + batch.bootstrap * _at(after, chosen)

        def loss(params: Any) -> tuple[jax.Array, jax.Array]:
            value = _at(values(params, batch.obs), batch.action)
            return optax.huber_loss(value, target).mean(), value  # the error's gradient clipped to [-1, 1]

        (error, value), gradient = jax.value_and_grad(loss, has_aux=True)(learned.params)
        steps, state = optimizer(hyper).update(gradient, learned.optimizer)
        params, updates = optax.apply_updates(learned.params, steps), learned.updates + 1
        due = updates % jnp.round(hyper.target_update_interval).astype(jnp.int32) == 0
        moved = polyak_update(learned.target, params, jnp.where(due, hyper.tau, 0.0))
        metrics = {"loss/critic": error, "value/mean": value.mean(), "value/target": target.mean()}
        return DqnLearned(params=params, target=moved, optimizer=state, updates=updates), metrics

    n, frames, keys = config.n_step, config.frame_stack, view.keys + mask.keys
    agent = off_policy.agent(
        config, DqnHyper(), init, act, act_deterministic, improve, n, frames, observation_keys=keys
    )
    return stacking(agent, spec, frames)


def _at(values: jax.Array, action: jax.Array) -> jax.Array:
    """Select the value [...] of each action [...] from [..., choices], by a product: its gradient needs no scatter."""
    return jnp.sum(values * jax.nn.one_hot(action, values.shape[-1]), -1)
