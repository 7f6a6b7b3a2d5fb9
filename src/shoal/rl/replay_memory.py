"""Replay memory: a ring of raw transitions on the device, sampled as n-step transitions.

Nothing stored depends on a hyperparameter: discount and reward scale apply when a batch is sampled, so that a new value
of either holds for old transitions too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.types import PyTree, Rollout
from shoal.rl.frames import stack

if TYPE_CHECKING:
    from shoal.core.types import Spec


class Memory(NamedTuple):
    """The last S steps of each of B environments of one member, without those that cannot be learned from."""

    steps: Rollout  # leaves [S, B, ...]; no extras
    position: jax.Array  # int32 [B], the slot that is written next
    filled: jax.Array  # int32 [B], slots that hold a step
    owner: jax.Array  # uint32, the mark of the member that wrote the newest slot


class Batch(NamedTuple):
    """Transitions of up to n steps; every leaf is [..., batch, ...]."""

    obs: PyTree
    action: jax.Array
    reward: jax.Array  # discounted sum of the steps between
    next_obs: PyTree
    bootstrap: jax.Array  # weight of the value of `next_obs`: discount ** steps, 0 after a termination


def empty(spec: Spec, slots: int, environments: int) -> Memory:
    """A memory without steps, which can hold `slots` steps of each environment."""
    shape = (slots, environments)
    obs = tree.zeros(spec.obs, *shape)
    action = jnp.zeros((*shape, *spec.action.shape), spec.action.dtype)
    flags = jnp.zeros(shape, bool)
    steps = Rollout(
        obs=obs,
        action=action,
        reward=jnp.zeros(shape, jnp.float32),
        next_obs=obs,
        terminated=flags,
        truncated=flags,
        extras=(),
    )
    nothing = jnp.zeros(environments, jnp.int32)
    return Memory(steps, nothing, nothing, jnp.uint32(0))


def store(memory: Memory, rollout: Rollout, kept: jax.Array, owner: jax.Array) -> Memory:
    """Write the steps of `owner` that are `kept` [T, B] over the oldest ones, each environment's one after another.

    The episode is truncated before a step that is left out, and where another member wrote the newest slot, as in a
    memory that was copied: no transition leads from a parent's steps to its child's.
    """
    slots, (length, environments) = memory.steps.reward.shape[0], kept.shape
    column = jnp.arange(environments)
    newest, ends = ((memory.position - 1) % slots, column), memory.steps.truncated
    cut = ends.at[newest].set(ends[newest] | ~kept[0] | (memory.owner != owner))
    followed = jnp.concatenate([kept[1:], jnp.ones((1, environments), bool)])
    rollout = rollout._replace(truncated=rollout.truncated | ~followed, extras=(), carry=())

    count, place = kept.sum(0, dtype=jnp.int32), jnp.cumsum(kept, 0, dtype=jnp.int32) - 1
    written = kept & (place >= (count - slots)[None])  # where there are more steps than slots, only the last ones
    nowhere = slots + jnp.arange(length, dtype=jnp.int32)[:, None]  # slots that do not exist: these writes are dropped
    slot = jnp.where(written, (memory.position[None] + place) % slots, nowhere)

    def write(ring: jax.Array, new: jax.Array) -> jax.Array:
        return ring.at[slot, column[None]].set(new.astype(ring.dtype), mode="drop", unique_indices=True)

    steps = jax.tree.map(write, memory.steps._replace(truncated=cut), rollout)
    filled = jnp.minimum(memory.filled + count, slots)
    return Memory(steps, (memory.position + count) % slots, filled, owner)


def starts(memory: Memory, n: int, frames: int = 1) -> jax.Array:
    """The number of steps of each environment at which a transition of n steps can start, int32 [B].

    frames: observations that are seen as one; where some may have been overwritten, a transition cannot start.
    """
    lost = jnp.where(memory.filled == len(memory.steps.reward), frames - 1, 0)
    return jnp.maximum(memory.filled - lost - (n - 1), 0)


def sample(
    memory: Memory, key: jax.Array, shape: tuple[int, ...], n: int, discount: jax.Array, frames: int = 1
) -> Batch:
    """Sample transitions of `n` steps uniformly; leaves [*shape, ...], with the last `frames` observations as one.

    A transition is shorter where its episode ends. After a termination it does not bootstrap; after a truncation it
    does, from the last observation before the reset. `starts` must be above 0 for some environment.
    """
    slots, environments = memory.steps.reward.shape
    flat = jax.tree.map(lambda x: x.reshape(slots * environments, *x.shape[2:]), memory.steps)
    ends, oldest = jnp.cumsum(starts(memory, n, frames)), memory.position - memory.filled
    chosen = jax.random.randint(key, shape, 0, jnp.maximum(ends[-1], 1))
    column = jnp.searchsorted(ends[:-1], chosen, side="right", method="compare_all")
    start = (memory.position - (n - 1) - ends)[column] + chosen

    def at(k: jax.Array | int) -> jax.Array:
        return (start + k) % slots * environments + column

    def seen(k: jax.Array | int) -> list[jax.Array]:
        """Where the observations lie that are seen at a step; before an episode's first one, that one."""
        places, back = [at(k)], jnp.broadcast_to(k, shape)
        for _ in range(frames - 1):
            before = at(back - 1)
            first = flat.terminated[before] | flat.truncated[before] | (start + back == oldest[column])
            back = jnp.where(first, back, back - 1)
            places.insert(0, at(back))
        return places

    def stacked(parts: list[PyTree]) -> PyTree:
        return stack(jnp.stack(parts, len(shape)), flat.obs.shape[1:]) if frames > 1 else parts[0]

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
    return Batch(
        obs=stacked([tree.take(flat.obs, place) for place in seen(0)]),
        action=flat.action[first],
        reward=reward,
        next_obs=stacked([*(tree.take(flat.obs, x) for x in seen(last)[1:]), tree.take(flat.next_obs, end)]),
        bootstrap=bootstrap,
    )
