"""Off-policy learning: everything that TD3, SAC and DQN share, which is all but one update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from shoal.core import tree
from shoal.core.errors import BadField, check_least
from shoal.core.spec import Box
from shoal.core.types import Agent, Hyper, Member, Metrics, PyTree, Rollout
from shoal.rl import replay_buffer as ring
from shoal.rl.batching import per_member, repeat
from shoal.rl.networks import MLP, check_hidden
from shoal.rl.observations import View
from shoal.rl.steps import valid_steps

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.rl.config import OffPolicy, TwinConfig


def check(config: OffPolicy) -> None:
    """Raise BadInput where the settings do not fit together."""
    check_least(
        1, config, "num_envs", "rollout_length", "buffer_size", "batch_size", "max_update_ratio", within="config."
    )
    check_hidden(config.layers, config.activation)
    check_least(0, config, "learning_starts", within="config.")
    if config.learning_starts > config.buffer_size:
        raise BadField(
            "config.learning_starts",
            f"does not fit into config.buffer_size = {config.buffer_size}",
            value=config.learning_starts,
        )


def check_frames(config: OffPolicy, n: int, frames: int) -> None:
    """Raise BadInput where no transition of n steps fits into the buffer with all frames of its first observation."""
    if n - 1 + frames > _slots(config):
        problem = f"does not fit into the {_slots(config)} steps of an environment that config.buffer_size holds"
        raise BadField("config.frame_stack", problem, value=frames)


class TwinCritics:
    """The network of a policy, and twin critics of observations and continuous actions with stacked leaves, [2, ...]."""

    def __init__(self, spec: Spec, config: TwinConfig, agent: str, outputs: int):
        """outputs: of the policy's network, per component of an action. Raises BadInput where something does not fit."""
        if not isinstance(spec.action, Box):
            problem = "needs continuous actions, and this environment's are discrete"
            raise BadField("agent", problem, "take dqn or ppo", value=agent)
        check(config)
        self.spec, self.config = spec, config
        width, how = outputs * spec.action.shape[0], {"activation": config.activation, "precision": config.precision}
        self._actor, self._critic = MLP(config.layers, width, output_scale=0.01, **how), MLP(config.layers, 1, **how)
        self._of_actor = View(spec, "config.actor", config.actor, spec.actor)
        self._of_critic = View(spec, "config.critic", config.critic, spec.critic)
        self.observation_keys = self._of_actor.keys

    def initial_parameters(self, actor_key: jax.Array, critic_keys: Sequence[jax.Array]) -> tuple[PyTree, PyTree]:
        """Return new parameters of the policy and of both critics."""
        obs, action = tree.zeros(self.spec.obs, 1), jnp.zeros((1, *self.spec.action.shape))
        seen = self._of_critic.with_action(obs, action)
        critics = jax.vmap(self._critic.init, (0, None))(jnp.stack(critic_keys), seen)
        return self._actor.init(actor_key, self._of_actor.vector(obs)), critics

    def outputs(self, policy: PyTree, obs: PyTree) -> jax.Array:
        """Outputs of the policy's network for observations [..., *]."""
        return self._actor.apply(policy, self._of_actor.vector(obs))

    def values(self, critics: PyTree, obs: PyTree, action: jax.Array) -> jax.Array:
        """Values of both critics, [2, batch]."""
        return jax.vmap(self._critic.apply, (0, None))(critics, self._of_critic.with_action(obs, action))[..., 0]

    def q1(self, critics: PyTree, obs: PyTree, action: jax.Array) -> jax.Array:
        """Values of the first critic, [batch], which policies ascend."""
        return self._critic.apply(tree.take(critics, 0), self._of_critic.with_action(obs, action))[..., 0]


class Own(NamedTuple):
    """State of a member that is never copied."""

    pending_updates: jax.Array  # float32, the fraction of an update that is pending
    mark: jax.Array  # uint32, marks the steps of this member in a buffer


def initial(spec: Spec, config: OffPolicy, key: jax.Array) -> tuple[ring.ReplayBuffer, Own]:
    """Return an empty buffer of `config.buffer_size` steps, rounded up to whole rollouts, and no pending update."""
    buffer = ring.empty(spec, _slots(config), config.num_envs)
    mark = jax.random.bits(key)
    return buffer._replace(owner=mark), Own(jnp.float32(0), mark)


def _slots(config: OffPolicy) -> int:
    """Number of steps of each environment that the buffer holds."""
    return -(-config.buffer_size // (config.rollout_length * config.num_envs)) * config.rollout_length


def off_policy_update(config: OffPolicy, improve: Callable, n: int = 1, frames: int = 1) -> Callable:
    """Make the `update` of an agent: store the rollout, then learn `hyper.update_ratio` times per step of it.

    improve: (learned, hyper, batch, key) -> (learned, metrics), one update; each gets a batch of its own.
    n: steps of a transition. frames: observations that are seen as one.
    """
    steps = config.rollout_length * config.num_envs
    bound = steps * config.max_update_ratio

    def body(i: jax.Array, state: PyTree, hyper: Hyper, batches: ring.Batch, key: jax.Array) -> PyTree:
        learned, metrics = improve(state[0], hyper, tree.take(batches, i), jax.random.fold_in(key, i))
        return learned, jax.tree.map(jnp.add, state[1], metrics)

    def learn(learned: PyTree, hyper: Hyper, batches: Any, count: jax.Array, key: jax.Array) -> tuple[PyTree, Metrics]:
        shapes = jax.eval_shape(improve, learned, hyper, tree.take(batches, 0), key)[1]
        learned, sums = repeat(count, body, (learned, tree.zeros(shapes)), hyper, batches, key)
        return learned, jax.tree.map(lambda x: x / count.astype(jnp.float32), sums)  # NaN where there was no update

    def update(member: Member, hyper: Hyper, rollout: Rollout, key: jax.Array) -> tuple[Member, Metrics]:
        buffer = ring.store(member.replay_buffer, rollout, valid_steps(rollout), member.own.mark)
        ready = (buffer.filled.sum() >= config.learning_starts) & (ring.starts(buffer, n, frames) > 0).any()
        pending_updates = jnp.where(ready, member.own.pending_updates + hyper.update_ratio * steps, 0.0)
        count = jnp.clip(jnp.floor(pending_updates), 0, bound)
        batch_key, learn_key = jax.random.split(key)
        batches = ring.sample(buffer, batch_key, (bound, config.batch_size), n, hyper.discount, frames)
        learned, metrics = per_member(learn)(member.learned, hyper, batches, count.astype(jnp.int32), learn_key)
        return Member(learned, buffer, Own(pending_updates - count, member.own.mark)), metrics

    return update


def agent(
    config: OffPolicy,
    hyper: Hyper,
    init: Callable,
    act: Callable,
    act_deterministic: Callable,
    improve: Callable,
    n: int = 1,
    frames: int = 1,
    **more: Any,
) -> Agent:
    """Make an off-policy agent; `improve`, `n` and `frames` are as for `off_policy_update`.

    more: other fields of `Agent`
    """
    return Agent(
        init,
        act,
        act_deterministic,
        off_policy_update(config, improve, n, frames),
        carry=lambda shape: (),
        hyper=hyper,
        rollout_length=config.rollout_length,
        num_envs=config.num_envs,
        limit_overrides={"update_ratio": (0.0, float(config.max_update_ratio))},
        learning_starts=config.learning_starts,
        off_policy=True,
        end_episodes=_end_episodes,
        **more,
    )


def _end_episodes(member: Member) -> Member:
    """Mark its buffer as another member's, which ends the episodes of its newest steps."""
    return member._replace(replay_buffer=member.replay_buffer._replace(owner=~member.replay_buffer.owner))


ADAM = optax.scale_by_adam()  # a direction only; `adam_step` multiplies it by the learning rate


def adam_step(learning_rate: jax.Array, gradient: PyTree, params: PyTree, optimizer: PyTree) -> tuple[PyTree, PyTree]:
    """Take a step of Adam; return the new parameters and the new state of `ADAM`."""
    direction, optimizer = ADAM.update(gradient, optimizer)
    return jax.tree.map(lambda p, d: p - learning_rate * d, params, direction), optimizer


def polyak_update(target: PyTree, online: PyTree, tau: jax.Array) -> PyTree:
    """Return the target parameters, moved by the share `tau` towards the online ones."""
    return jax.tree.map(lambda t, p: (1 - tau) * t + tau * p, target, online)  # an exact copy with tau 1
