"""Environments of gymnax, on the device."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import fields
from types import ModuleType
from typing import Any

import jax
import numpy as np

from shoal.core.errors import BadField, check_names
from shoal.core.spec import ActionSpace, Box, Discrete
from shoal.core.types import PyTree
from shoal.environments.device import LIMITS, DeviceEnvironment, accepted, adapted, lenient


def gymnax_environment(name: str, options: dict[str, Any]) -> DeviceEnvironment:
    """An environment of gymnax. Options are the fields of its parameters, such as `max_steps_in_episode`.

    Its environment parameters are those of them that are not integers, without the limit of an episode.
    """
    gymnax = import_gymnax()
    try:
        with lenient():
            env, params = gymnax.make(name)
    except OSError as error:  # MNISTBandit downloads its images
        raise BadField("env", f"gymnax:{name} needs data that cannot be downloaded: {error}") from error
    check_names("env_options", options, [field.name for field in fields(params)])
    numbers = [name for name, x in vars(params).items() if isinstance(x, float) and name not in LIMITS]
    params = params.replace(**options)

    def reset(params: Any, key: jax.Array) -> tuple[jax.Array, PyTree]:
        return env.reset_env(key, params)

    def step(params: Any, key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        return obs, state, reward, terminated, env.is_truncated(state, params)

    with accepted(f"gymnax:{name}", options):
        space = _gymnax_space(env.action_space(params), name)
        env_parameters = {name: float(getattr(params, name)) for name in numbers}
        limit = int(params.max_steps_in_episode)
    changed = lambda params, values: params.replace(**values)  # noqa: E731
    more = {"env_parameters": env_parameters, "episode_limit": limit}
    return adapted(f"gymnax:{name}", options, params, reset, step, space, changed, **more)


def _gymnax_space(space: Any, name: str) -> ActionSpace:
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    if hasattr(space, "low"):
        low, high = (np.broadcast_to(np.float32(x), space.shape).reshape(-1) for x in (space.low, space.high))
        return Box(tuple(map(float, low)), tuple(map(float, high)))
    problem = f"gymnax:{name} has the action space {type(space).__name__}"
    raise BadField("env", problem, "discrete and box are supported")


def import_gymnax() -> Any:
    """The package gymnax; its plotting packages, which take longest to import, are loaded at their first use."""
    for name in ("seaborn", "matplotlib", "matplotlib.pyplot"):
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
