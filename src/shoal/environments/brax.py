"""Environments of brax: rigid bodies on the device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from shoal.core.env_parameters import numbers_of
from shoal.core.errors import BadField
from shoal.core.spec import Box
from shoal.core.types import PyTree
from shoal.environments.device import DeviceEnvironment, accepted, adapted, quiet


def brax_environment(name: str, options: dict[str, Any]) -> DeviceEnvironment:
    """An environment of brax. Options: `backend` (spring), `episode_length` (1000), and those of the environment.

    Its environment parameters are the floats that it keeps, such as weights, and `gravity`, downwards in m/s2. Its info is
    its metrics.
    """
    given = {"backend": "spring", "episode_length": 1000, **options}
    with quiet():
        from brax import envs

    with accepted(f"brax:{name}", options):
        limit = int(given.pop("episode_length"))
        env = envs.get_environment(name, **given)
    env_parameters = {name: float(getattr(env, attribute)) for name, attribute in numbers_of(env).items()}
    env_parameters["gravity"] = downwards(env.sys.gravity)
    made = simulated(f"brax:{name}", options, env, limit, _changed, lambda key: key, env_parameters=env_parameters)
    if isinstance(made.spec.obs, dict):
        problem = f"brax:{name} with env_options {options} gives several observations"
        raise BadField("env", problem, "choose one that is a vector")
    return made


def downwards(gravity: Any) -> float:
    """Gravity in m/s2, never -0."""
    return round(0.0 - float(gravity[2]), 4)


def simulated(
    env: str, options: dict[str, Any], core: Any, limit: int, changed: Callable, key_of: Callable, **more: Any
) -> DeviceEnvironment:
    """A body of brax, or of a library modelled on it: its states hold observation, reward, `done` and metrics.

    limit: steps of an episode. key_of: (key) -> what it resets with. changed, more: as for `adapted`
    """

    def reset(core: Any, key: jax.Array) -> tuple[PyTree, PyTree]:
        state = core.reset(key_of(key))
        return state.obs, (state, jnp.int32(0))

    def step(core: Any, key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        inner, time = core.step(state[0], action), state[1] + 1
        return inner.obs, (inner, time), inner.reward, inner.done > 0, time >= limit

    action = Box((-1.0,) * core.action_size, (1.0,) * core.action_size)
    info = lambda state: state[0].metrics  # noqa: E731
    more |= {"fresh_resets": False, "info": info, "episode_limit": limit}
    return adapted(env, options, core, reset, step, action, changed, **more)


def _changed(env: Any, values: Mapping[str, Any]) -> Any:
    """Return the environment with these values of its parameters, which it reads while it is traced."""
    other, attributes = copy.copy(env), numbers_of(env)
    for name, value in values.items():
        if name == "gravity":
            down = env.sys.gravity.at[2].set(-value)
            other.sys = env.sys.replace(gravity=down, opt=env.sys.opt.replace(gravity=down))
        else:
            setattr(other, attributes[name], value)
    return other
