"""Frame stacking: an agent sees the last K observations of its episode as one, and each of them is stored alone.

What came before an episode's first observation counts as that one, as gymnasium's `FrameStackObservation` has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.spec import Spec
from shoal.core.types import Agent, PyTree
from shoal.rl.networks import channels_first
from shoal.rl.steps import is_bounded


class Seen(NamedTuple):
    """The last frames of an episode; every leaf is [..., *], with the axes of a batch first."""

    frames: jax.Array  # the last K - 1 observations, the newest last
    begun: jax.Array  # bool, there are some
    inner: PyTree  # the agent's own carry


def stacked(spec: Spec, count: int) -> Spec:
    """The spec with `count` observations in place of one. Raises BadInput."""
    if count < 1:
        raise BadField("config.frame_stack", "must be at least 1", value=count)
    if count == 1:
        return spec
    if isinstance(spec.obs, dict):
        raise BadField("config.frame_stack", "observations here are dictionaries, and single arrays alone are stacked")
    shape = spec.obs_shape
    made = _stacked_shape(shape, count)
    if len(shape) == 3 and channels_first(made) != channels_first(shape):
        problem = f"makes images {made} of {shape}, in which another axis than before counts as the channels"
        raise BadField("config.frame_stack", problem, "take fewer", value=count)
    return replace(spec, obs_shape=made)


def stack(frames: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """K observations as one, [..., K, *shape] -> [..., *that of `stacked`], one behind another along the channels.

    These are the channels of an image; otherwise the last axis.
    """
    k = frames.ndim - len(shape) - 1
    one = jnp.moveaxis(frames, k, k + _channels(shape))
    return one.reshape(*frames.shape[:k], *_stacked_shape(shape, frames.shape[k]))


def _channels(shape: tuple[int, ...]) -> int:
    """The axis of an observation along which stacks are made."""
    return 0 if len(shape) == 3 and channels_first(shape) else max(len(shape) - 1, 0)


def _stacked_shape(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    if not shape:
        return (count,) if count > 1 else ()
    axis = _channels(shape)
    return (*shape[:axis], count * shape[axis], *shape[axis + 1 :])


def stacking(agent: Agent, spec: Spec, count: int) -> Agent:
    """Return an agent that sees single observations and stacks frames for `agent`, which was made for `stacked` ones.

    Its `update` stays as it is.
    An observation that cannot be learned from is not remembered, nor what came before it.
    """
    if count == 1:
        return agent
    shape = spec.obs_shape

    def carry(batch: tuple[int, ...]) -> Seen:
        frames = jnp.zeros((*batch, count - 1, *shape), spec.obs_dtype)
        return Seen(frames, jnp.zeros(batch, bool), agent.carry(batch))

    def look(obs: jax.Array, carry: Seen) -> tuple[jax.Array, Seen]:
        axes = obs.ndim - len(shape)
        now = jnp.expand_dims(obs, axes)
        frames = tree.where(carry.begun, carry.frames, jnp.broadcast_to(now, carry.frames.shape))
        frames = jnp.concatenate([frames, now], axes)
        rest = jax.lax.slice_in_dim(frames, 1, count, axis=axes)
        return stack(frames, shape), Seen(rest, is_bounded(obs, axes), carry.inner)

    def act(learned: PyTree, hyper: Any, obs: jax.Array, carry: Seen, key: jax.Array) -> tuple[Any, Seen, Any]:
        obs, carry = look(obs, carry)
        action, inner, extras = agent.act(learned, hyper, obs, carry.inner, key)
        return action, carry._replace(inner=inner), extras

    def act_deterministic(learned: PyTree, obs: jax.Array, carry: Seen) -> tuple[jax.Array, Seen]:
        obs, carry = look(obs, carry)
        action, inner = agent.act_deterministic(learned, obs, carry.inner)
        return action, carry._replace(inner=inner)

    def value(learned: PyTree, obs: jax.Array, carry: Seen) -> jax.Array:
        assert agent.value is not None
        return agent.value(learned, look(obs, carry)[0], carry.inner)

    return agent._replace(
        act=act, act_deterministic=act_deterministic, carry=carry, value=value if agent.value else None
    )


def of_rollout(seen: Seen, obs: jax.Array, is_first: jax.Array) -> tuple[jax.Array, PyTree, jax.Array]:
    """Return the places of the frames that are seen at each step of a rollout, the agent's own carry, and the frames.

    seen: before the rollout. obs [T, B, *obs_shape]. is_first: bool [T, B], the steps that do not see what came before them.
    Returns places int32 [T, B, K], the inner carry, and frames [(K - 1 + T) * B, *obs_shape]: `stack` takes frames[places].
    """
    count, (length, environments) = seen.frames.shape[1] + 1, is_first.shape
    frames = jnp.concatenate([seen.frames.swapaxes(0, 1), obs])
    shape = length, environments, count
    time, column, back = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in range(3))
    is_first = jnp.concatenate([~seen.begun[None], is_first[1:]])[..., None]
    first = jax.lax.cummax(jnp.where(is_first, time, 1 - count), axis=0)  # earliest time that is seen
    places = (jnp.maximum(time + back, first + count - 1)) * environments + column  # frame 0 is K - 1 before time 0
    return places, seen.inner, frames.reshape(-1, *obs.shape[2:])
