"""Environments that are pure JAX functions, so that acting in them compiles together with learning."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.errors import BadField
from shoal.core.spec import ActionSpace, Spec, actor_and_critic_keys, none_legal
from shoal.core.types import PyTree, TimeStep
from shoal.core.user_code import attributed
from shoal.environments.games.tree import Tables

LARGEST = int(np.iinfo(np.int32).max)  # the integers of JAX have 32 bits
LIMITS = ("max_steps_in_episode", "time_limit", "episode_length")  # options that say how many steps an episode may have


class DeviceEnvironment(NamedTuple):
    """One environment as pure functions, without automatic reset.

    reset: (key) -> (obs, state)
    step:  (key, state, action) -> (obs, state, reward, terminated, truncated)
        key: a JAX PRNG key. state: any tree of arrays. obs: array of spec.obs_shape, or a dictionary of them.
        reward: float32 scalar. terminated, truncated: bool scalars. All functions must be traceable by JAX.
    fresh_resets: every episode has a new start; without it (where a reset is expensive) each environment has one start
        per rollout
    at_levels: (first, end) -> the same environment, every episode of which draws its level from first <= level < end,
        uniformly, by its reset key; the numbers may be traced. None: the number of a level, folded into a fixed key, gives
        the reset key (`levels.at_levels`)
    env_parameters: numbers that may differ between members in training, by name, with their defaults
    with_env_parameters: (values of some of them, float32 and traced) -> the environment with these values, at its levels too
    info: (state) -> numbers that it gives beside the reward, by name or nested; `fitness.objective` is one of them after
        an episode's last step
    episode_limit: steps after which every episode ends, where that is known
    game: the tables of it where it is a two-player zero-sum game, which is known as a whole

    Continuous actions arrive within the bounds that the spec names.
    """

    spec: Spec
    reset: Callable[[jax.Array], tuple[PyTree, PyTree]]
    step: Callable[[jax.Array, PyTree, jax.Array], tuple[PyTree, PyTree, jax.Array, jax.Array, jax.Array]]
    fresh_resets: bool = True
    at_levels: Callable[[Any, Any], DeviceEnvironment] | None = None
    env_parameters: Mapping[str, float] = MappingProxyType({})
    with_env_parameters: Callable[[Mapping[str, Any]], DeviceEnvironment] | None = None
    info: Callable[[PyTree], Mapping[str, Any]] | None = None
    episode_limit: int | None = None
    game: Tables | None = None


def with_values(environment: DeviceEnvironment, env_parameters: Mapping[str, Any]) -> DeviceEnvironment:
    """Return the environment with these values of its parameters, which may be traced."""
    if not env_parameters:
        return environment
    assert environment.with_env_parameters is not None, "it has no environment parameters"
    return environment.with_env_parameters(env_parameters)


def step_once(environment: DeviceEnvironment, key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
    """The environment's `step`; where observation or reward are not finite, or the episode goes on and no choice is legal,
    the reward is NaN and the episode truncated."""
    obs, state, reward, terminated, truncated = environment.step(key, state, action)
    broken = ~(tree.finite(obs, 0) & jnp.isfinite(reward))
    if environment.spec.masked:
        broken |= none_legal(obs) & ~terminated & ~truncated
    return obs, state, jnp.where(broken, jnp.nan, reward), terminated, truncated | broken


def auto_reset(
    environment: DeviceEnvironment, key: jax.Array, state: PyTree, action: jax.Array, start: PyTree
) -> tuple[PyTree, TimeStep]:
    """One step; where the episode ends, it continues from `start`, the (observation, state) that begins the next one."""
    final_obs, state, reward, terminated, truncated = step_once(environment, key, state, action)
    done = terminated | truncated
    obs, state = jax.tree.map(lambda new, old: jnp.where(done, new, old), start, (final_obs, state))
    return state, TimeStep(obs, reward, terminated, truncated, final_obs)


@contextmanager
def lenient() -> Iterator[None]:
    """Third-party environments mix dtypes and ranks: JAX allows that inside this context, and only there."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress what brax prints, and its warning that it is not maintained."""
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def accepted(env: str, options: dict[str, Any]) -> Iterator[None]:
    """Raise BadInput where the options of an environment are too large, leave no time, or make it fail inside."""
    for name, value in options.items():
        if name in LIMITS and isinstance(value, (int, float)) and value < 1:
            raise BadField(f"env_options.{name}", "must be at least 1", value=value)
        if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
            raise BadField(f"env_options.{name}", f"must lie within [{-LARGEST}, {LARGEST}]", value=value)
    failed = f"does not accept env_options {options}" if options else "cannot be made"
    with attributed("env", f"{env} {failed}"), quiet(), lenient():
        yield


def adapted(
    env: str, options: dict[str, Any], core: Any, reset: Any, step: Any, action: ActionSpace, changed: Any, **more: Any
) -> DeviceEnvironment:
    """An environment of a library, whose functions read an object as they are traced.

    reset, step: (core, key) and (core, key, state, action) -> what `DeviceEnvironment` has, of its own types
    changed: (core, values of some environment parameters) -> the object with these values; None: it has none
    more: other fields of the environment, which do not depend on the object
    """

    def begin(core: Any, key: jax.Array) -> tuple[PyTree, PyTree]:
        with lenient():
            obs, state = reset(core, key)
            return _floats(obs), like(state)

    def go_on(core: Any, key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        with lenient():
            obs, state, *numbers = step(core, key, state, action)
            reward, *ends = (jnp.asarray(x).reshape(()) for x in numbers)
            return _floats(obs), like(state), reward.astype(jnp.float32), *ends

    def like(state: PyTree) -> PyTree:
        """Turn Python numbers of a state into arrays, of the dtypes that a step returns."""
        return jax.tree.map(lambda x, s: jnp.asarray(x, s.dtype), state, shapes)

    def with_env_parameters(values: Mapping[str, Any]) -> DeviceEnvironment:
        assert changed is not None
        return of(changed(core, values))

    def of(core: Any) -> DeviceEnvironment:
        reset, step, values = partial(begin, core), partial(go_on, core), changed and with_env_parameters
        return DeviceEnvironment(spec, reset, step, with_env_parameters=values, **more)

    def first_step(key: jax.Array) -> tuple[PyTree, PyTree]:
        obs, state = reset(core, key)
        return _floats(obs), step(core, key, state, jnp.zeros(action.shape, action.dtype))[1]

    with accepted(env, options):
        obs, shapes = jax.eval_shape(first_step, jax.random.key(0))
    shape = jax.tree.map(lambda x: x.shape, obs)
    spec = Spec(shape, "float32", action, **actor_and_critic_keys(shape))
    return of(core)


def _floats(obs: Any) -> PyTree:
    """An observation as numbers that networks take: an array, or a dictionary of arrays."""
    return jax.tree.map(lambda x: x.astype(jnp.float32), dict(obs) if isinstance(obs, Mapping) else obs)
