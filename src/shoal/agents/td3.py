"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477), for one member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from shoal.lift import when
from shoal.networks import MLP, check_activation, flatten
from shoal.rl import replay
from shoal.rl.replay import ADAM, Replay, descend, towards
from shoal.settings import build
from shoal.types import Agent, BadInput, Continuous, Member, Range

if TYPE_CHECKING:
    from shoal.rl.memory import Batch
    from shoal.types import Spec


@dataclass(frozen=True)
class Config(Replay):
    """The structure of a TD3 agent: what fixes shapes, equal for all members."""

    layers: tuple[int, ...] = (256, 256)
    """widths of the hidden layers of policy and critics"""
    activation: str = "relu"
    """tanh, relu, elu, swish or gelu"""


class Hyper(NamedTuple):
    """The numbers of TD3; each of them may differ per member and change between generations."""

    policy_learning_rate: Any = 1e-3  # of Adam
    critic_learning_rate: Any = 1e-3
    discount: Any = 0.99  # gamma
    tau: Any = 0.005  # share by which targets follow at each update of the policy
    exploration_noise: Any = 0.1  # deviation, where actions lie in [-1, 1]
    target_noise: Any = 0.2  # deviation of the noise that smooths the target policy
    noise_clip: Any = 0.5  # its largest size
    policy_delay: Any = 2.0  # updates of the critics for each of the policy
    update_ratio: Any = 1.0  # updates per environment step


SPACE = {
    "policy_learning_rate": Range(3e-5, 3e-3, "log"),
    "critic_learning_rate": Range(3e-5, 3e-3, "log"),
    "discount": Range(0.9, 0.999, "one_minus_log"),
    "exploration_noise": Range(0.01, 1.0),
    "target_noise": Range(0.0, 1.0),
    "noise_clip": Range(0.0, 1.0),
    "policy_delay": Range(1, 5, integer=True),
}


class Learned(NamedTuple):
    """What a copy of a TD3 agent copies. Leaves of critics are stacked, [2, ...]."""

    policy: Any
    critics: Any
    target_policy: Any
    target_critics: Any
    policy_optimiser: Any
    critic_optimiser: Any
    updates: jax.Array  # int32, those behind these weights


def td3(spec: Spec, **settings: Any) -> Agent:
    """TD3 for continuous actions; `settings` are the fields of `Config`. Raises BadInput where they do not fit."""
    config = build(Config, settings, "config.")
    if not isinstance(spec.action, Continuous):
        raise BadInput("agent = td3: needs continuous actions, and this environment's are discrete; take dqn or ppo")
    check_activation(config.activation)
    replay.check(config)
    actor = MLP(config.layers, spec.action.shape[0], config.activation, output_scale=0.01)
    critic = MLP(config.layers, 1, config.activation)

    def policy(params: Any, obs: jax.Array) -> jax.Array:
        return jnp.tanh(actor.apply(params, flatten(obs, spec.obs_shape)))

    def values(params: Any, obs: jax.Array, action: jax.Array) -> jax.Array:
        """Of both critics, [2, batch]."""
        x = jnp.concatenate([flatten(obs, spec.obs_shape), action], -1)
        return jax.vmap(critic.apply, (0, None))(params, x)[..., 0]

    def init(key: jax.Array, hyper: Hyper) -> Member:
        actor_key, *critic_keys = jax.random.split(key, 3)
        obs, action = flatten(jnp.zeros((1, *spec.obs_shape)), spec.obs_shape), jnp.zeros((1, *spec.action.shape))
        params = actor.init(actor_key, obs)
        critics = jax.vmap(critic.init, (0, None))(jnp.stack(critic_keys), jnp.concatenate([obs, action], -1))
        learned = Learned(params, critics, params, critics, ADAM.init(params), ADAM.init(critics), jnp.int32(0))
        return Member(learned, *replay.begin(spec, config, key))

    def act(learned: Learned, hyper: Hyper, obs: jax.Array, carry: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        noise_key, random_key = jax.random.split(key)
        mean = policy(learned.policy, obs)
        noisy = mean + hyper.exploration_noise * jax.random.normal(noise_key, mean.shape)
        random = jax.random.uniform(random_key, mean.shape, minval=-1, maxval=1)
        return jnp.where(learned.updates > 0, jnp.clip(noisy, -1, 1), random), carry, ()

    def greedy(learned: Learned, obs: jax.Array, carry: Any) -> tuple[jax.Array, Any]:
        return policy(learned.policy, obs), carry

    def improve(learned: Learned, hyper: Hyper, batch: Batch, key: jax.Array) -> tuple[Learned, dict[str, jax.Array]]:
        """One update of the critics, and every `hyper.policy_delay` times one of the policy (algorithm 1)."""
        noise = hyper.target_noise * jax.random.normal(key, batch.action.shape)
        noise = jnp.clip(noise, -hyper.noise_clip, hyper.noise_clip)
        next_action = jnp.clip(policy(learned.target_policy, batch.next_obs) + noise, -1, 1)  # equation 14
        next_value = values(learned.target_critics, batch.next_obs, next_action).min(0)  # equation 10
        target = batch.reward + batch.bootstrap * next_value

        def critic_loss(params: Any) -> tuple[jax.Array, jax.Array]:
            value = values(params, batch.obs, batch.action)
            return jnp.square(value - target[None]).mean(-1).sum(), value

        (loss, value), gradient = jax.value_and_grad(critic_loss, has_aux=True)(learned.critics)
        critics, optimiser = descend(hyper.critic_learning_rate, gradient, learned.critics, learned.critic_optimiser)
        learned = learned._replace(critics=critics, critic_optimiser=optimiser, updates=learned.updates + 1)
        due = learned.updates % jnp.round(hyper.policy_delay).astype(jnp.int32) == 0
        learned = when(due, improve_policy, learned, hyper, batch.obs)
        return learned, {"loss/critic": loss, "value/mean": value.mean(), "value/target": target.mean()}

    def improve_policy(learned: Learned, hyper: Hyper, obs: jax.Array) -> Learned:
        first = jax.tree.map(lambda x: x[0], learned.critics)

        def policy_loss(params: Any) -> jax.Array:
            x = jnp.concatenate([flatten(obs, spec.obs_shape), policy(params, obs)], -1)
            return -critic.apply(first, x).mean()

        gradient = jax.grad(policy_loss)(learned.policy)
        params, optimiser = descend(hyper.policy_learning_rate, gradient, learned.policy, learned.policy_optimiser)
        return learned._replace(
            policy=params,
            policy_optimiser=optimiser,
            target_policy=towards(learned.target_policy, params, hyper.tau),
            target_critics=towards(learned.target_critics, learned.critics, hyper.tau),
        )

    limits = replay.limits(config) | {"policy_delay": (1.0, 1e6)}
    update = replay.from_memory(config, improve)
    return Agent(
        init,
        act,
        greedy,
        update,
        lambda shape: (),
        Hyper(),
        SPACE,
        config.rollout,
        config.environments,
        limits,
        config.warm_up,
        off_policy=True,
    )
