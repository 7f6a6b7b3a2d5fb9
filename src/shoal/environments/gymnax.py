"""Environments of gymnax, on the device."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import fields
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core.errors import BadField, unknown
from shoal.core.spec import ActionSpace, Continuous, Discrete, Spec
from shoal.core.types import PyTree
from shoal.environments.device import DeviceEnvironment, accepted, changeable, lenient, like


def gymnax_environment(name: str, options: dict[str, Any]) -> DeviceEnvironment:
    """An environment of gymnax. Options are the fields of its parameters, such as `max_steps_in_episode`.

    Its knobs are those of them that are no whole numbers.
    """
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
    numbers = [name for name, x in vars(params).items() if isinstance(x, float)]
    params = params.replace(**options)

    def raw_step(params: Any, key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        with lenient():
            obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
            truncated = jnp.asarray(env.is_truncated(state, params))
            return state, obs.astype(jnp.float32), reward.astype(jnp.float32), jnp.asarray(terminated), truncated

    def reset(params: Any, key: jax.Array) -> tuple[PyTree, jax.Array]:
        with lenient():
            obs, state = env.reset_env(key, params)
            return like(state, shapes), obs.astype(jnp.float32)

    def step(params: Any, key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        state, obs, reward, terminated, truncated = raw_step(params, key, state, action)
        return like(state, shapes), obs, reward.reshape(()), terminated.reshape(()), truncated.reshape(())

    key = jax.random.key(0)
    with accepted(f"gymnax:{name}", options), lenient():
        space = _gymnax_space(env.action_space(params), name)
        first = jax.eval_shape(lambda k: env.reset_env(k, params), key)
        action = jnp.zeros(space.shape, jnp.float32 if isinstance(space, Continuous) else jnp.int32)
        shapes = jax.eval_shape(lambda k: raw_step(params, k, env.reset_env(k, params)[1], action)[0], key)
    spec = Spec(first[0].shape, "float32", space)
    knobs = {name: float(getattr(params, name)) for name in numbers}
    return changeable(spec, params, reset, step, knobs, lambda params, values: params.replace(**values))


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
