"""The error boundary around environments: their exceptions and wrong shapes become BadInput with their name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core.errors import BadField
from shoal.core.spec import Leaf, Spec, describe
from shoal.core.types import PyTree, TimeStep
from shoal.core.user_code import attributed, one_line
from shoal.environments.device import DeviceEnvironment
from shoal.environments.host import HostEnvironment, VectorEnv, own
from shoal.environments.objective import InfoOf
from shoal.environments.registry import Environment


def with_error_boundary(environment: Environment, env: str) -> Environment:
    """Wrap an environment, so that it raises BadInput where its code fails; on the device, at compilation only."""
    spec = environment.spec
    _check(spec, env)
    at_levels: Any = environment.at_levels
    if at_levels is not None:
        within: Any = lambda first, end: with_error_boundary(at_levels(first, end), env)  # noqa: E731
        environment = environment._replace(at_levels=within)
    if isinstance(environment, HostEnvironment):
        open_copies, measured = environment.open, environment.measured
        own: Any = None if measured is None else with_error_boundary(measured, env)
        within = lambda n: _Vector(open_copies, n, env, spec)  # noqa: E731
        return environment._replace(open=within, measured=own)
    return _on_the_device(environment, env)


def _check(spec: Spec, env: str) -> None:
    """Raise BadInput where there is nothing to be seen or done, or not what the spec says of actor and critic."""
    leaves, keys = jax.tree.leaves(spec.obs), set(spec.obs if isinstance(spec.obs, dict) else ())
    for what, shape in (*(("observation", x.shape) for x in leaves), ("action", spec.action.shape)):
        if 0 in shape:
            raise BadField("env", f"{env} has an empty {what}, of shape {shape}: there is nothing to learn from")
    if not leaves or not {*spec.actor, *spec.critic} <= keys:
        problem = f"{env} lacks observations that its actor and critic could see"
        raise BadField("env", problem, f"there are: {describe(spec.obs)}")


def _on_the_device(environment: DeviceEnvironment, env: str) -> DeviceEnvironment:
    spec = environment.spec

    def check(where: str, obs: PyTree) -> None:
        given = jax.tree.map(lambda x: Leaf(x.shape, str(x.dtype)), jax.tree.map(jax.typeof, obs))
        if given != spec.obs:
            problem = f"{env} gives the observation {describe(given)} at {where}"
            raise BadField("env", problem, f"its spec says {describe(spec.obs)}")

    def reset(key: jax.Array) -> tuple[PyTree, PyTree]:
        with attributed("env", f"{env} failed at reset"):
            obs, state = environment.reset(key)
            check("reset", obs)
        return obs, state

    def step(key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        with attributed("env", f"{env} failed at step"):
            obs, after, *numbers = environment.step(key, state, action)
            check("step", obs)
            reward, terminated, truncated = numbers
            for name, x in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
                if np.shape(x):
                    problem = f"{env} gives {name} of shape {np.shape(x)} at step"
                    raise BadField("env", problem, "it must be a single number")
            if _types(after) != _types(state):
                raise BadField("env", f"{env} gives a state of other parts, shapes or types at step than at reset")
            ends = [jnp.asarray(x, bool) for x in (terminated, truncated)]  # brax's `done` is a number
        return obs, after, reward, *ends

    def with_env_parameters(values: Mapping[str, Any]) -> DeviceEnvironment:
        assert environment.with_env_parameters is not None
        with attributed("env", f"{env} does not take other values of {', '.join(values)}"):
            other: Any = with_error_boundary(environment.with_env_parameters(values), env)
        return other

    changed = environment.with_env_parameters and with_env_parameters
    return environment._replace(reset=reset, step=step, with_env_parameters=changed)


def _types(tree: PyTree) -> list[Any]:
    return [jax.tree.structure(tree), *((x.shape, x.dtype) for x in map(jax.typeof, jax.tree.leaves(tree)))]


class _Vector:
    """A `VectorEnv` that raises BadInput where the environment's code fails, and whose steps stay as they are."""

    def __init__(self, open_copies: Callable[[int], VectorEnv], n: int, env: str, spec: Spec):
        self._env, self._spec = env, spec
        with attributed("env", f"{env} cannot be made"):
            self._vector = open_copies(n)

    def reset(self, seeds: list[int]) -> PyTree:
        with attributed("env", f"{self._env} failed at reset"):
            obs = own(self._vector.reset(seeds))
        shape = jax.tree.map(lambda x: np.shape(x)[1:], obs)
        if shape != self._spec.obs_shape:
            expected = self._spec.obs_shape
            raise BadField("env", f"{self._env} begins with an observation of shape {shape}, not {expected}")
        return obs

    def step(self, action: np.ndarray) -> tuple[TimeStep, InfoOf]:
        with attributed("env", f"{self._env} failed at step"):
            step, info_of = self._vector.step(action)
            obs, reward, *ends, final_obs = map(own, step)
            terminated, truncated = (np.asarray(x, bool) for x in ends)  # simulators may give numbers
        return TimeStep(obs, reward, terminated, truncated, final_obs), info_of

    def mark_unused(self, copies: np.ndarray) -> None:
        mark_unused: Any = getattr(self._vector, "mark_unused", None)
        if mark_unused is not None:  # else it cannot be helped, and they play on
            with attributed("env", f"{self._env} failed at mark_unused"):
                mark_unused(copies)

    def set_env_parameters(self, env_parameters: dict[str, np.ndarray]) -> None:
        with attributed("env", f"{self._env} does not take other values of {', '.join(env_parameters)}"):
            self._vector.set_env_parameters(env_parameters)

    def close(self) -> None:
        self._vector.close()


@contextmanager
def callbacks_attributed(env: str) -> Iterator[None]:
    """Raise BadInput where Python code that a compiled environment calls, by `jax.pure_callback`, fails inside."""
    raised = _Raised()
    logger = logging.getLogger("jax._src.callback")
    logger.addFilter(raised)
    try:
        yield
    except jax.errors.JaxRuntimeError:
        if not raised.errors:
            raise
        cause = raised.errors[0]
        raise BadField("env", f"{env} failed in a callback: {one_line(cause)}") from cause
    finally:
        logger.removeFilter(raised)


class _Raised(logging.Filter):
    """Keeps the errors of callbacks, which JAX only logs: what it raises holds them as text, with a long traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            self.errors.append(record.exc_info[1])
        return not record.exc_info
