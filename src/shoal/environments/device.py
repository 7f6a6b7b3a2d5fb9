"""Environments that are pure JAX functions, so that acting in them compiles together with learning."""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import fields
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core.errors import BadField, unknown
from shoal.core.types import ActionSpace, Continuous, Discrete, PyTree, Spec, TimeStep
from shoal.environments.blame import blamed

LARGEST = int(np.iinfo(np.int32).max)  # the whole numbers of JAX have 32 bits


class DeviceEnvironment(NamedTuple):
    """One environment as pure functions, without automatic reset.

    reset: (key) -> (state, obs)
    step:  (key, state, action) -> (state, obs, reward, terminated, truncated)
    fresh_resets: every episode has a new start; without it (where a reset is expensive) each environment has one start
        per rollout
    at_levels: (first, end) -> the same environment, every episode of which draws its level from first <= level < end,
        uniformly, by its reset key; the numbers may be traced. None: the number of a level, folded into a fixed key, gives
        the reset key (`levels.at_levels`)

    Continuous actions arrive within the bounds that the spec names.
    """

    spec: Spec
    reset: Callable[[jax.Array], tuple[PyTree, jax.Array]]
    step: Callable[[jax.Array, PyTree, jax.Array], tuple[PyTree, jax.Array, jax.Array, jax.Array, jax.Array]]
    fresh_resets: bool = True
    at_levels: Callable[[Any, Any], DeviceEnvironment] | None = None


def step_once(environment: DeviceEnvironment, key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
    """The environment's `step`; where observation or reward are not finite, the reward is NaN and the episode truncated."""
    state, obs, reward, terminated, truncated = environment.step(key, state, action)
    broken = ~(jnp.isfinite(obs).all() & jnp.isfinite(reward))
    return state, obs, jnp.where(broken, jnp.nan, reward), terminated, truncated | broken


def auto_reset(
    environment: DeviceEnvironment, key: jax.Array, state: PyTree, action: jax.Array, start: PyTree
) -> tuple[PyTree, TimeStep]:
    """One step; where the episode ends, it continues from `start`, the (state, observation) that begins the next one."""
    state, final_obs, reward, terminated, truncated = step_once(environment, key, state, action)
    done = terminated | truncated
    state, obs = jax.tree.map(lambda new, old: jnp.where(done, new, old), start, (state, final_obs))
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


def like(values: PyTree, shapes: PyTree) -> PyTree:
    """A start state with its Python numbers as arrays, of the dtypes that a step returns."""
    return jax.tree.map(lambda x, s: jnp.asarray(x, s.dtype), values, shapes)


def import_gymnax() -> Any:
    """The package gymnax; its plotting packages, which take longest to import, are loaded at their first use."""
    for name in ("seaborn", "matplotlib.pyplot"):
        _postpone(name)
    return importlib.import_module("gymnax")


def _postpone(name: str) -> None:
    """Import a module without running it; it runs when one of its attributes is first read."""
    if name in sys.modules or importlib.util.find_spec(name.partition(".")[0]) is None:
        return
    spec = importlib.util.find_spec(name)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    module.__class__ = _Postponed
    package, _, short = name.rpartition(".")
    if package:
        setattr(sys.modules[package], short, module)


class _Postponed(ModuleType):
    """A module that runs at its first use. (Modules of importlib's LazyLoader already run at a second import.)"""

    def __getattr__(self, name: str) -> Any:
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None and self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


@contextmanager
def accepted(env: str, options: dict[str, Any]) -> Iterator[None]:
    """Raises BadInput where the options of an environment are too large, or make it fail inside."""
    for name, value in options.items():
        if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
            raise BadField(f"env_options.{name}", f"must lie within [{-LARGEST}, {LARGEST}]", value=value)
    with blamed(env, f"does not accept env_options {options}"):
        yield


def gymnax_environment(name: str, options: dict[str, Any]) -> DeviceEnvironment:
    """An environment of gymnax. Options are the fields of its parameters, such as `max_steps_in_episode`."""
    gymnax = import_gymnax()
    try:
        with lenient():
            env, params = gymnax.make(name)
    except OSError as error:  # MNISTBandit downloads its images
        raise BadField("env", f"gymnax:{name} needs data that cannot be downloaded: {error}") from error
    known = [field.name for field in fields(params)]
    for option in options:
        if option not in known:
            raise unknown("env_options", option, known)
    params = params.replace(**options)

    def raw_step(key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        with lenient():
            obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
            truncated = jnp.asarray(env.is_truncated(state, params))
            return state, obs.astype(jnp.float32), reward.astype(jnp.float32), jnp.asarray(terminated), truncated

    def reset(key: jax.Array) -> tuple[PyTree, jax.Array]:
        with lenient():
            obs, state = env.reset_env(key, params)
            return like(state, shapes), obs.astype(jnp.float32)

    def step(key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        state, obs, reward, terminated, truncated = raw_step(key, state, action)
        return like(state, shapes), obs, reward.reshape(()), terminated.reshape(()), truncated.reshape(())

    key = jax.random.key(0)
    with accepted(f"gymnax:{name}", options), lenient():
        space = _gymnax_space(env.action_space(params), name)
        first = jax.eval_shape(lambda k: env.reset_env(k, params), key)
        action = jnp.zeros(space.shape, jnp.float32 if isinstance(space, Continuous) else jnp.int32)
        shapes = jax.eval_shape(lambda k: raw_step(k, env.reset_env(k, params)[1], action)[0], key)
    return DeviceEnvironment(Spec(first[0].shape, "float32", space), reset, step)


def _gymnax_space(space: Any, name: str) -> ActionSpace:
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    if hasattr(space, "low"):
        low, high = (
            np.broadcast_to(np.asarray(x, np.float32), space.shape).reshape(-1) for x in (space.low, space.high)
        )
        return Continuous(tuple(map(float, low)), tuple(map(float, high)))
    raise BadField(
        "env", f"gymnax:{name} has the action space {type(space).__name__}", "discrete and box are supported"
    )


def brax_environment(name: str, options: dict[str, Any]) -> DeviceEnvironment:
    """An environment of brax. Options: `backend` (spring), `episode_length` (1000), and those of the environment."""
    given = {"backend": "spring", "episode_length": 1000, **options}
    limit = given.pop("episode_length")
    with quiet():
        from brax import envs

    def reset(key: jax.Array) -> tuple[PyTree, jax.Array]:
        with lenient():
            state = env.reset(key)
            return (state, jnp.int32(0)), state.obs

    def step(key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        with lenient():
            inner, time = env.step(state[0], action), state[1] + 1
            return (inner, time), inner.obs, inner.reward, inner.done > 0, time >= limit

    with accepted(f"brax:{name}", options), quiet():
        env = envs.get_environment(name, **given)
        obs = jax.eval_shape(reset, jax.random.key(0))[1]
    if not hasattr(obs, "shape"):
        raise BadField(
            "env", f"brax:{name} with env_options {options} gives several observations", "choose one that is a vector"
        )
    space = Continuous((-1.0,) * env.action_size, (1.0,) * env.action_size)
    return DeviceEnvironment(Spec(obs.shape, "float32", space), reset, step, fresh_resets=False)
