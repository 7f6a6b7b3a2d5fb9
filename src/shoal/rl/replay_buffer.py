"""Replay buffer: a ring of raw transitions on the device, sampled as n-step transitions.

Nothing stored depends on a hyperparameter: discount and reward scale apply when a batch is sampled, so that a new value
of either holds for old transitions too. Each observation is stored once: what follows a step is what the next one begins
with. Where it is not, as at a truncation, both are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.rl.frames import stack

if TYPE_CHECKING:
    from shoal.core.spec import Spec
    from shoal.core.types import PyTree, Rollout


class Step(NamedTuple):
    """Everything stored about steps but their observations; every leaf is [S, B, ...]."""

    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    number: jax.Array  # int32, of the observation before it; the next number is that of the observation after it


class ReplayBuffer(NamedTuple):
    """The last S steps of each of B environments of one member, without those that cannot be learned from.

    The observations of an environment are numbered, modulo 2 F: so steps tell those that are there from those that have
    been overwritten. A number's place among F is the number modulo F.
    """

    obs: PyTree  # leaves [F, B, ...]
    steps: Step
    position: jax.Array  # int32 [B], the slot that is written next
    filled: jax.Array  # int32 [B], slots that hold a step
    number: jax.Array  # int32 [B], of the observation after the newest step
    owner: jax.Array  # uint32, the mark of the member that wrote the newest slot


class Batch(NamedTuple):
    """Transitions of up to n steps; every leaf is [..., batch, ...]."""

    obs: PyTree
    action: jax.Array
    reward: jax.Array  # discounted sum of the steps between
    next_obs: PyTree
    bootstrap: jax.Array  # weight of the value of `next_obs`: discount ** steps, 0 after a termination


def empty(spec: Spec, slots: int, environments: int, observations: int = 0) -> ReplayBuffer:
    """Return a buffer without steps, which can hold `slots` steps of each environment.

    observations: of each environment (F). By default as many as steps that follow one another have; each truncated episode
    then leaves room for one step less.
    """
    shape = (slots, environments)
    nothing, flags = jnp.zeros(environments, jnp.int32), jnp.zeros(shape, bool)
    steps = Step(
        action=jnp.zeros((*shape, *spec.action.shape), spec.action.dtype),
        reward=jnp.zeros(shape, jnp.float32),
        terminated=flags,
        truncated=flags,
        number=jnp.zeros(shape, jnp.int32),
    )
    obs = tree.zeros(spec.obs, observations or slots + 1, environments)
    return ReplayBuffer(obs, steps, position=nothing, filled=nothing, number=nothing, owner=jnp.uint32(0))


def store(buffer: ReplayBuffer, rollout: Rollout, kept: jax.Array, owner: jax.Array) -> ReplayBuffer:
    """Write the steps of `owner` that are `kept` [T, B] over the oldest ones, each environment's one after another.

    The episode is truncated before a step that is left out, and where another member wrote the newest slot, as in a
    buffer that was copied: no transition leads from a parent's steps to its child's.
    """
    slots, places, (length, environments) = len(buffer.steps.reward), _places(buffer), kept.shape
    column = jnp.arange(environments)
    newest, ends = ((buffer.position - 1) % slots, column), buffer.steps.truncated
    cut = ends.at[newest].set(ends[newest] | ~kept[0] | (buffer.owner != owner))
    on = jnp.ones((1, environments), bool)
    followed = jnp.concatenate([kept[1:], on])
    count, place = kept.sum(0, dtype=jnp.int32), jnp.cumsum(kept, 0, dtype=jnp.int32) - 1
    nowhere = jnp.arange(length, dtype=jnp.int32)[:, None]  # beyond the last place: these writes are dropped

    def write(ring: jax.Array, new: jax.Array, which: jax.Array, place: jax.Array) -> jax.Array:
        place = jnp.where(which, place % len(ring), len(ring) + nowhere)
        return ring.at[place, column[None]].set(new.astype(ring.dtype), mode="drop", unique_indices=True)

    is_new = kept & _is_new(buffer, rollout, kept)
    number = buffer.number[None] + place + jnp.cumsum(is_new, 0, dtype=jnp.int32)
    after = buffer.number + count + is_new.sum(0, dtype=jnp.int32)
    alone = kept & jnp.concatenate([is_new[1:] | ~kept[1:], on])  # the next step does not begin with what follows
    first, last = kept & (after[None] - number < places), alone & (after[None] - number <= places)
    obs = jax.tree.map(lambda ring, x: write(ring, x, first, number), buffer.obs, rollout.obs)
    obs = jax.tree.map(lambda ring, x: write(ring, x, last, number + 1), obs, rollout.next_obs)

    new = Step(
        action=rollout.action,
        reward=rollout.reward,
        terminated=rollout.terminated,
        truncated=rollout.truncated | ~followed,
        number=number % (2 * places),
    )
    fits = kept & (place >= (count - slots)[None])  # where there are more steps than slots, only the last ones
    slot = buffer.position[None] + place
    steps = jax.tree.map(lambda ring, x: write(ring, x, fits, slot), buffer.steps._replace(truncated=cut), new)
    filled, position = jnp.minimum(buffer.filled + count, slots), (buffer.position + count) % slots
    return ReplayBuffer(obs, steps, position, filled, after % (2 * places), owner)


def _is_new(buffer: ReplayBuffer, rollout: Rollout, kept: jax.Array) -> jax.Array:
    """Mark the steps [T, B] whose observation is not stored yet as the successor of the step before.

    What follows a termination need not be stored, as its value is never asked for.
    """
    column = jnp.arange(kept.shape[1])
    newest = (buffer.position - 1) % len(buffer.steps.reward), column
    place = buffer.number % _places(buffer), column

    def differs(ring: jax.Array, obs: jax.Array, next_obs: jax.Array) -> jax.Array:
        other = jnp.concatenate([ring[place][None], next_obs[:-1]]) != obs
        return other.any(tuple(range(2, other.ndim)))

    leaves = jax.tree.leaves(jax.tree.map(differs, buffer.obs, rollout.obs, rollout.next_obs))
    free = buffer.steps.terminated[newest] | (buffer.filled == 0)
    ended = jnp.concatenate([free[None], rollout.terminated[:-1]])
    left_out = jnp.concatenate([jnp.zeros_like(kept[:1]), ~kept[:-1]])
    return left_out | (jnp.stack(leaves).any(0) & ~ended)


def _places(buffer: ReplayBuffer) -> int:
    """Number of observations of each environment that it can hold (F)."""
    return len(jax.tree.leaves(buffer.obs)[0])


def starts(buffer: ReplayBuffer, n: int, frames: int = 1) -> jax.Array:
    """The number of steps of each environment at which a transition of n steps can start, int32 [B].

    frames: observations that are seen as one; where some may have been overwritten, a transition cannot start.
    """
    slots, places = len(buffer.steps.reward), _places(buffer)
    age = (buffer.position[None] - 1 - jnp.arange(slots)[:, None]) % slots
    there = (buffer.number[None] - buffer.steps.number) % (2 * places) < places
    whole = ((age < buffer.filled[None]) & there).sum(0, dtype=jnp.int32)
    lost = jnp.where((whole < buffer.filled) | (buffer.filled == slots), frames - 1, 0)
    return jnp.maximum(whole - lost - (n - 1), 0)


def sample(
    buffer: ReplayBuffer, key: jax.Array, shape: tuple[int, ...], n: int, discount: jax.Array, frames: int = 1
) -> Batch:
    """Sample transitions of `n` steps uniformly; leaves [*shape, ...], with the last `frames` observations as one.

    A transition is shorter where its episode ends. After a termination it does not bootstrap; after a truncation it
    does, from the last observation before the reset. `starts` must be above 0 for some environment.
    """
    places, (slots, environments) = _places(buffer), buffer.steps.reward.shape
    flat = jax.tree.map(lambda x: x.reshape(slots * environments, *x.shape[2:]), buffer.steps)
    every = jax.tree.map(lambda x: x.reshape(places * environments, *x.shape[2:]), buffer.obs)
    ends, oldest = jnp.cumsum(starts(buffer, n, frames)), buffer.position - buffer.filled
    chosen = jax.random.randint(key, shape, 0, jnp.maximum(ends[-1], 1))
    column = jnp.searchsorted(ends[:-1], chosen, side="right", method="compare_all")
    start = (buffer.position - (n - 1) - ends)[column] + chosen

    def at(k: jax.Array | int) -> jax.Array:
        return (start + k) % slots * environments + column

    def seen(k: jax.Array | int) -> list[jax.Array]:
        """The numbers of the observations that are seen at a step; before an episode's first one, that one."""
        numbers, back = [flat.number[at(k)]], jnp.broadcast_to(k, shape)
        for _ in range(frames - 1):
            before = at(back - 1)
            first = flat.terminated[before] | flat.truncated[before] | (start + back == oldest[column])
            back = jnp.where(first, back, back - 1)
            numbers.insert(0, flat.number[at(back)])
        return numbers

    def look(numbers: list[jax.Array]) -> PyTree:
        parts = [tree.take(every, number % places * environments + column) for number in numbers]
        return stack(jnp.stack(parts, len(shape)), every.shape[1:]) if frames > 1 else parts[0]

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
        obs=look(seen(0)),
        action=flat.action[first],
        reward=reward,
        next_obs=look([*seen(last)[1:], flat.number[end] + 1]),
        bootstrap=bootstrap,
    )
