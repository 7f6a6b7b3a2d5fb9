"""Domain randomisation: training episodes draw their own values of environment parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from shoal.core.keys import stream
from shoal.core.types import PyTree
from shoal.environments.device import DeviceEnvironment, with_values
from shoal.environments.levels import Span, at_levels

RANDOMISE = ".randomise"


def with_domain_randomisation(environment: DeviceEnvironment) -> DeviceEnvironment:
    """Add to each environment parameter NAME of an environment another one, NAME.randomise, which is 0 by default.

    Where that is set, every reset draws NAME, uniformly within that of its value, by its key; so the state of an episode
    holds the values that it has drawn. Without `fresh_resets` the episodes that an environment begins within a rollout have
    one reset, and so the same values.
    """
    widths = {f"{name}{RANDOMISE}": 0.0 for name in environment.env_parameters}
    env_parameters = {**environment.env_parameters, **widths}

    def with_env_parameters(values: Mapping[str, Any]) -> DeviceEnvironment:
        spreads = {name.removesuffix(RANDOMISE): x for name, x in values.items() if name.endswith(RANDOMISE)}
        centres = {name: x for name, x in values.items() if not name.endswith(RANDOMISE)}
        return _drawing(environment, centres, spreads) if spreads else with_values(environment, centres)

    if not environment.env_parameters:
        return environment
    return environment._replace(env_parameters=env_parameters, with_env_parameters=with_env_parameters)


def _drawing(environment: DeviceEnvironment, centres: dict[str, Any], spreads: dict[str, Any]) -> DeviceEnvironment:
    """Return the environment with these values, some of which every reset draws."""

    def valued(drawn: dict[str, Any]) -> DeviceEnvironment:
        return with_values(environment, {**centres, **drawn})

    def reset(key: jax.Array) -> tuple[PyTree, PyTree]:
        chances = jax.random.uniform(stream(key, "env_parameters"), (len(spreads),), jnp.float32, -1, 1)
        centre = {name: jnp.float32(environment.env_parameters[name]) for name in spreads} | centres
        drawn = {name: centre[name] + chances[i] * spreads[name] for i, name in enumerate(sorted(spreads))}
        obs, state = valued(drawn).reset(key)
        return obs, (state, drawn)

    def step(key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        state, drawn = state
        obs, state, *numbers = valued(drawn).step(key, state, action)
        return obs, (state, drawn), *numbers

    def within(first: Any, end: Any) -> DeviceEnvironment:
        def placed(values: Mapping[str, Any]) -> DeviceEnvironment:
            return at_levels(with_values(environment, values), Span(first, end))

        return _drawing(environment._replace(with_env_parameters=placed), centres, spreads)

    levels = environment.at_levels and within
    return environment._replace(reset=reset, step=step, at_levels=levels, info=None)  # nobody is measured here
