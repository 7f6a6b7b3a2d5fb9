"""The learner of DvD: joint updates of all actors, and how diverse they are; `dvd` has the equations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.keys import member_keys
from shoal.core.types import Agent, Hyper, Learner, Member, Metrics, Population, PyTree, Rollout
from shoal.methods import shared_critic
from shoal.rl import diversity
from shoal.rl import replay_buffer as ring
from shoal.rl.independent import independent
from shoal.rl.steps import valid_steps


class DvdShared(NamedTuple):
    """The state that all members share."""

    critic: shared_critic.Critic
    replay_buffer: ring.ReplayBuffer  # [S, N * B, ...]: the steps of all members side by side
    pending_updates: jax.Array  # float32, the fraction of an update that is still to be made


class DvdLearner:
    """The functions of a Learner of N members, which share critics and a replay buffer."""

    def __init__(self, agent: Agent, hyper: Hyper, population: int, num_states: int, resample_interval: int):
        """hyper: DvD's own. num_states, resample_interval: as the method has them.

        Raises BadInput where the agent is not TD3.
        """
        self.net, self.n = shared_critic.networks_of(agent, "dvd"), population
        self.config, self.num_states = self.net.config, num_states
        self.resample_interval = resample_interval
        self.joint = shared_critic.joint_update(self.net, self.bonus, lambda hyper: 1 - hyper.diversity)
        # The replay buffer is not theirs, and its steps are learned from alone: no episode has to end where others go on.
        self.actor = shared_critic.actor_of(agent, hyper)._replace(end_episodes=lambda member: member)

    def learner(self) -> Learner:
        return independent(self.actor)._replace(init=self.init, update=self.update, together=True)

    def init(self, key: jax.Array, uid: jax.Array, hyper: Hyper) -> Population:
        config, environments = self.config, self.n * self.config.num_envs
        slots = -(-config.buffer_size // (config.rollout_length * environments)) * config.rollout_length
        own_key, common_key = jax.random.split(key)
        members = jax.vmap(self.actor.init)(member_keys(own_key, uid), hyper)
        critic = shared_critic.new_critic(self.net.init(common_key)[1])
        buffer = ring.empty(self.net.spec, slots, environments)
        return Population(members, DvdShared(critic, buffer, jnp.float32(0)), hyper)

    def bonus(self, policies: PyTree, hyper: Hyper, states: PyTree) -> jax.Array:
        """λ log det K, with each member's own λ."""
        embeddings, weight = self.behaviours(policies, states), hyper.diversity[:, None]
        constant = jax.lax.stop_gradient(embeddings)
        weighted = constant + weight * (embeddings - constant)  # same values; gradients times each member's weight
        return diversity.log_determinant(diversity.kernel(diversity.squared_distances(weighted)))

    def behaviours(self, policies: PyTree, states: PyTree) -> jax.Array:
        """Embeddings [N, num_states * A]."""
        return jax.vmap(self.net.policy, (0, None))(policies, states).reshape(self.n, -1)

    def update(self, population: Population, rollout: Rollout, keys: jax.Array) -> tuple[Population, Metrics]:
        """Store the steps of all, and make the joint updates that are due."""
        common, hyper, config = population.shared, population.hyper, self.config
        steps = config.rollout_length * config.num_envs
        bound = steps * config.max_update_ratio
        together = jax.tree.map(side_by_side, rollout._replace(extras=()))
        buffer = ring.store(common.replay_buffer, together, valid_steps(together), common.replay_buffer.owner)
        ready = buffer.filled.sum() >= config.learning_starts
        pending_updates = jnp.where(ready, common.pending_updates + hyper.update_ratio[0] * steps, 0.0)
        count = jnp.clip(jnp.floor(pending_updates), 0, bound).astype(jnp.int32)
        batch_keys, noise_keys, probe_keys = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
        batches = shared_critic.batches(buffer, batch_keys, (bound, config.batch_size), hyper.discount)
        shape = (-(-bound // self.resample_interval), self.num_states)
        states = ring.sample(buffer, probe_keys[0], shape, 1, hyper.discount[0]).obs

        def body(i: jax.Array, state: tuple) -> tuple:
            actors, critic, sums = state
            batch = jax.tree.map(lambda x: x[i], batches)
            noise = jax.vmap(jax.random.fold_in, (0, None))(noise_keys, i)
            probed = tree.take(states, i // self.resample_interval)
            actors, critic, metrics = self.joint(actors, critic, hyper, batch, noise, probed)
            return actors, critic, jax.tree.map(jnp.add, sums, metrics)

        nothing = dict.fromkeys(shared_critic.METRICS, jnp.zeros(len(keys)))
        start = (population.members.learned, common.critic, nothing)
        actors, critic, sums = jax.lax.fori_loop(0, count, body, start)
        metrics = {name: x / count.astype(jnp.float32) for name, x in sums.items()}  # NaN where there was no update
        metrics |= self.compared(actors, tree.take(states, 0))
        common = DvdShared(critic, buffer, pending_updates - count.astype(jnp.float32))
        return Population(Member(actors, (), ()), common, hyper), metrics

    def compared(self, actors: shared_critic.Actor, states: PyTree) -> dict[str, jax.Array]:
        """Diversity of the members; distances are root mean squares of differences between actions."""
        squared = diversity.squared_distances(self.behaviours(actors.policy, states))
        volume, distance = diversity.log_determinant(diversity.kernel(squared)), jnp.sqrt(squared)
        return {
            "diversity/determinant": jnp.broadcast_to(jnp.exp(volume), self.n),
            "diversity/log_determinant": jnp.broadcast_to(volume, self.n),
            "diversity/distance": distance.sum(-1) / (self.n - 1),
            **{f"diversity/to {i}": distance[:, i] for i in range(self.n)},
        }


def side_by_side(x: Any) -> jax.Array:
    """The rollouts of all members as one: [N, T, B, ...] -> [T, N * B, ...]."""
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(x.shape[0], -1, *x.shape[3:])
