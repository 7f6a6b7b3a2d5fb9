"""Replay memory: a ring of raw transitions on the device, sampled as n-step transitions.

Nothing that a hyperparameter has touched is stored: discount and reward scale act when a batch is drawn, so that a new
value of either holds for old transitions too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from shoal.types import Rollout

if TYPE_CHECKING:
    from shoal.types import Spec


class Memory(NamedTuple):
    """The last S steps of B environments of one member."""

    steps: Rollout  # leaves [S, B, ...]; no extras
    position: jax.Array  # int32, the slot that is written next
    filled: jax.Array  # int32, slots that hold something
    owner: jax.Array  # uint32, a mark of the member that wrote the newest slot


class Batch(NamedTuple):
    """Transitions of up to n steps; every leaf is [..., batch, ...]."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array  # discounted sum of the steps between
    next_obs: jax.Array
    bootstrap: jax.Array  # what the value of `next_obs` counts: discount ** steps, 0 after a termination


def empty(spec: Spec, slots: int, environments: int) -> Memory:
    """Room for `slots` steps of each environment."""
    shape = (slots, environments)
    obs = jnp.zeros((*shape, *spec.obs_shape), spec.obs_dtype)
    action = jnp.zeros((*shape, *spec.action.shape), spec.action.dtype)
    flags = jnp.zeros(shape, bool)
    steps = Rollout(obs, action, jnp.zeros(shape, jnp.float32), obs, flags, flags, ())
    return Memory(steps, jnp.int32(0), jnp.int32(0), jnp.uint32(0))


def store(memory: Memory, rollout: Rollout, owner: jax.Array) -> Memory:
    """Write T steps of `owner` over the oldest; T must divide the number of slots.

    Where somebody else wrote the newest slot, in a memory that was copied, its episodes are cut there: no transition
    leads from a parent's steps to its child's.
    """
    slots, length = memory.steps.reward.shape[0], rollout.reward.shape[0]
    newest = (memory.position - 1) % slots
    cut = memory.steps.truncated.at[newest].set(memory.steps.truncated[newest] | (memory.owner != owner))
    memory = memory._replace(steps=memory.steps._replace(truncated=cut))

    def write(ring: jax.Array, new: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice_in_dim(ring, new.astype(ring.dtype), memory.position, 0)

    steps = jax.tree.map(write, memory.steps, rollout._replace(extras=()))
    filled = jnp.minimum(memory.filled + length, slots)
    return Memory(steps, (memory.position + length) % slots, filled, owner)


def append(memory: Memory, steps: Rollout, alive: jax.Array) -> Memory:
    """Write those of K steps that are `alive` [K], one after another, over the oldest; leaves [K, ...], one environment.

    For transitions of one step: what lies side by side in this memory need not have followed one another.
    """
    slots, kept = memory.steps.reward.shape[0], alive.astype(jnp.int32)
    count, place = kept.sum(), jnp.cumsum(kept) - 1
    newest = alive & (place >= count - slots)  # of more steps than there is room for, the last ones stay
    slot = jnp.where(newest, (memory.position + place) % slots, slots)  # no such slot: dropped

    def write(ring: jax.Array, new: jax.Array) -> jax.Array:
        return ring.at[slot, 0].set(new.astype(ring.dtype), mode="drop", unique_indices=True)

    written = jax.tree.map(write, memory.steps, steps._replace(extras=()))
    filled = jnp.minimum(memory.filled + count, slots)
    return memory._replace(steps=written, position=(memory.position + count) % slots, filled=filled)


def sample(memory: Memory, key: jax.Array, shape: tuple[int, ...], n: int, discount: jax.Array) -> Batch:
    """Draw transitions of `n` steps uniformly; leaves [*shape, ...].

    A transition is shorter where its episode ends: after a termination nothing is bootstrapped, after a truncation the
    value of the last observation before the reset is. At least n slots must be filled.
    """
    slots, environments = memory.steps.reward.shape
    flat = jax.tree.map(lambda x: x.reshape(slots * environments, *x.shape[2:]), memory.steps)
    age_key, environment_key = jax.random.split(key)
    oldest = memory.position - memory.filled
    start = jax.random.randint(age_key, shape, 0, jnp.maximum(memory.filled - (n - 1), 1))
    column = jax.random.randint(environment_key, shape, 0, environments)

    def at(k: jax.Array | int) -> jax.Array:
        return (oldest + start + k) % slots * environments + column

    first = at(0)
    reward, factor = jnp.zeros(shape), jnp.ones(shape)
    alive, last = jnp.ones(shape, bool), jnp.zeros(shape, jnp.int32)
    for k in range(n):
        here = at(k)
        reward = reward + jnp.where(alive, factor * flat.reward[here], 0.0)
        factor = jnp.where(alive, factor * discount, factor)
        last = jnp.where(alive, k, last)
        alive &= ~(flat.terminated[here] | flat.truncated[here])
    end = at(last)
    bootstrap = jnp.where(flat.terminated[end], 0.0, factor)
    return Batch(flat.obs[first], flat.action[first], reward, flat.next_obs[end], bootstrap)
