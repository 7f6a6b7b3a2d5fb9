"""Tiny environments with known answers, which show within seconds what an algorithm gets wrong."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from shoal.core.errors import BadField, unknown
from shoal.core.spec import ActionSpace, Box, Discrete, MultiDiscrete, Spec
from shoal.environments.device import DeviceEnvironment

_YES, _NO = jnp.bool(True), jnp.bool(False)


def one_step_value() -> DeviceEnvironment:
    """One action, one step, reward 1: the value of the only observation is 1."""

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        return jnp.zeros(1), jnp.int32(0)

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        return jnp.zeros(1), state, jnp.float32(1), _YES, _NO

    return DeviceEnvironment(Spec((1,), "float32", Discrete(2)), reset, step)


def delayed_reward() -> DeviceEnvironment:
    """Two steps, with observations 0 and 1; reward 1 at the end: the values are `discount` and 1."""

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        return jnp.zeros(1), jnp.int32(0)

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        last = state == 1
        return jnp.ones(1), state + 1, last.astype(jnp.float32), last, _NO

    return DeviceEnvironment(Spec((1,), "float32", Discrete(2)), reset, step)


def endless_reward(limit: int = 5) -> DeviceEnvironment:
    """Reward 1 at every step, truncated at `limit` steps: the value is 1 / (1 - discount), as truncation bootstraps."""

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        return jnp.zeros(1), jnp.int32(0)

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        return jnp.zeros(1), state + 1, jnp.float32(1), _NO, state + 1 >= limit

    return DeviceEnvironment(Spec((1,), "float32", Discrete(2)), reset, step)


def recall(delay: int = 3) -> DeviceEnvironment:
    """The first observation, -1 or 1, says which action, `delay` steps later, has reward 1; observations between are 0.

    A policy without memory gets at most 0.5 in the mean.
    """
    if delay < 1:
        raise BadField("env_options.delay", "must be at least 1", value=delay)

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        cue = jnp.where(jax.random.bernoulli(key), jnp.float32(1), jnp.float32(-1))
        return cue[None], (cue, jnp.int32(0))

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        cue, t = state
        last = t == delay
        reward = (last & (action == (cue > 0).astype(jnp.int32))).astype(jnp.float32)
        return jnp.zeros(1), (cue, t + 1), reward, last, _NO

    return DeviceEnvironment(Spec((1,), "float32", Discrete(2)), reset, step)


def fork() -> DeviceEnvironment:
    """A point between two goals, at -1 and 1, which are worth the same: a step's reward is its gain in distance from 0.

    It starts at 0.25: the way to the left is longer, and its first rewards are negative. An agent that maximises the
    return goes right; to go left it must also be rewarded for behaving differently.
    """

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        x = jnp.float32(0.25)
        return x[None], (x, jnp.int32(0))

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        x, t = state
        new = jnp.clip(x + 0.25 * action[0], -1, 1)
        reward = jnp.abs(new) - jnp.abs(x)
        return new[None], (new, t + 1), reward, jnp.abs(new) >= 1, t + 1 >= 20

    return DeviceEnvironment(Spec((1,), "float32", Box((-1.0,), (1.0,))), reset, step)


def match(actions: str = "discrete") -> DeviceEnvironment:
    """One step; the observation, -1 or 1, says which action has reward 1; every other has 0 or less.

    actions: discrete (0 or 1), multi_discrete (both of two choices), or continuous (the observation, within [-2, 2]).
    """
    space: dict[str, ActionSpace] = {
        "discrete": Discrete(2),
        "multi_discrete": MultiDiscrete((2, 2)),
        "continuous": Box((-2.0,), (2.0,)),
    }
    if actions not in space:
        raise unknown("env_options.actions", actions, space)

    def reset(key: jax.Array) -> tuple[jax.Array, Any]:
        sign = jnp.where(jax.random.bernoulli(key), jnp.float32(1), jnp.float32(-1))
        return sign[None], sign

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, ...]:
        if actions == "continuous":
            reward = 1 - jnp.square(action[0] - state)
        else:
            reward = (action == (state > 0).astype(jnp.int32)).all().astype(jnp.float32)
        return state[None], state, reward, _YES, _NO

    return DeviceEnvironment(Spec((1,), "float32", space[actions]), reset, step)
