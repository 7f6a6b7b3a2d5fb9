"""Domain randomisation: every episode of training draws its own values of knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from shoal.core.keys import stream
from shoal.core.types import PyTree
from shoal.environments.device import DeviceEnvironment, turned

SPREAD = ".spread"


def with_spreads(environment: DeviceEnvironment) -> DeviceEnvironment:
    """The same environment, each of whose knobs has a second one beside it, NAME.spread, which usually is 0.

    Where that is set, every episode draws NAME, uniformly within `spread` of its value, by the key that resets it; so the
    state of an episode holds the values that it has drawn.
    """
    knobs = {**environment.knobs, **{f"{name}{SPREAD}": 0.0 for name in environment.knobs}}

    def with_knobs(values: Mapping[str, Any]) -> DeviceEnvironment:
        spreads = {name.removesuffix(SPREAD): x for name, x in values.items() if name.endswith(SPREAD)}
        centres = {name: x for name, x in values.items() if not name.endswith(SPREAD)}
        return _drawing(environment, centres, spreads) if spreads else turned(environment, centres)

    return environment._replace(knobs=knobs, with_knobs=with_knobs) if environment.knobs else environment


def _drawing(environment: DeviceEnvironment, centres: dict[str, Any], spreads: dict[str, Any]) -> DeviceEnvironment:
    """The environment with these values, some of which every episode draws anew."""

    def reset(key: jax.Array) -> tuple[PyTree, jax.Array]:
        chances = jax.random.uniform(stream(key, "knobs"), (len(spreads),), jnp.float32, -1, 1)
        usual = {name: jnp.float32(environment.knobs[name]) for name in spreads} | centres
        drawn = {name: usual[name] + chances[i] * spreads[name] for i, name in enumerate(sorted(spreads))}
        state, obs = turned(environment, {**centres, **drawn}).reset(key)
        return (state, drawn), obs

    def step(key: jax.Array, state: PyTree, action: jax.Array) -> tuple[Any, ...]:
        state, drawn = state
        state, *seen = turned(environment, {**centres, **drawn}).step(key, state, action)
        return (state, drawn), *seen

    return environment._replace(reset=reset, step=step, info=None)  # nobody is measured here
