"""Environments of brax: rigid bodies on the device."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from shoal.core.errors import BadField
from shoal.core.knobs import numbers_of
from shoal.core.spec import Continuous, Spec
from shoal.core.types import PyTree
from shoal.environments.device import DeviceEnvironment, accepted, changeable, lenient, quiet


def brax_environment(name: str, options: dict[str, Any]) -> DeviceEnvironment:
    """An environment of brax. Options: `backend` (spring), `episode_length` (1000), and those of the environment.

    Its knobs are the weights and other numbers that it keeps, and `gravity`, downwards in m/s2; its info is its metrics.
    """
    given = {"backend": "spring", "episode_length": 1000, **options}
    limit = given.pop("episode_length")
    with quiet():
        from brax import envs

    def reset(env: Any, key: jax.Array) -> tuple[PyTree, jax.Array]:
        with lenient():
            state = env.reset(key)
            return (state, jnp.int32(0)), state.obs

    def step(env: Any, key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        with lenient():
            inner, time = env.step(state[0], action), state[1] + 1
            return (inner, time), inner.obs, inner.reward, inner.done > 0, time >= limit

    with accepted(f"brax:{name}", options), quiet():
        env = envs.get_environment(name, **given)
        obs = jax.eval_shape(partial(reset, env), jax.random.key(0))[1]
    if not hasattr(obs, "shape"):
        raise BadField(
            "env", f"brax:{name} with env_options {options} gives several observations", "choose one that is a vector"
        )
    spec = Spec(obs.shape, "float32", Continuous((-1.0,) * env.action_size, (1.0,) * env.action_size))
    knobs = {name: float(getattr(env, attribute)) for name, attribute in numbers_of(env).items()}
    knobs["gravity"] = round(0.0 - float(env.sys.gravity[2]), 4)  # never -0
    info = lambda state: state[0].metrics  # noqa: E731
    return changeable(spec, env, reset, step, knobs, _changed, fresh_resets=False, info=info)


def _changed(env: Any, values: Mapping[str, Any]) -> Any:
    """The same environment with these values of its knobs, which it reads while it is traced."""
    other, attributes = copy.copy(env), numbers_of(env)
    for name, value in values.items():
        if name == "gravity":
            down = env.sys.gravity.at[2].set(-value)
            other.sys = env.sys.replace(gravity=down, opt=env.sys.opt.replace(gravity=down))
        else:
            setattr(other, attributes[name], value)
    return other
