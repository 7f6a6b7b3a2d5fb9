"""What `shoal doctor` says of the knobs of an environment: whether anything there depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.commands.findings import Finding, doubt, fine
from shoal.core.evolution import Range
from shoal.core.knobs import split
from shoal.core.spec import ActionSpace, Continuous
from shoal.environments.device import DeviceEnvironment, with_values
from shoal.environments.host import HostEnvironment
from shoal.environments.spaces import to_bounds
from shoal.experiment.plan import Plan

STEPS = 200  # by chance, in which a knob of a host environment should make a difference


def effects(plan: Plan) -> Iterator[Finding]:
    """Which of the knobs that an experiment tunes or sets have an effect on the environment that members train in."""
    e, kind = plan.experiment, plan.kind.compiled
    given = split({**e.hyper, **plan.space})[1]
    if kind is None or not given:
        return
    environment = kind.environment
    values = {name: _other(x, environment.knobs[name]) for name, x in given.items()}
    if isinstance(environment, DeviceEnvironment):
        dead, why = _unread(environment, values), "the environment never reads it"
    else:
        dead, why = _idle(environment, values), f"with {{:g}}, {STEPS} random steps are what they are without"
    if live := [name for name in values if name not in dead]:
        yield fine("knobs", f"{', '.join(live)}: of each member's own environment, and never of what measures it")
    for name in dead:
        yield doubt("knobs", f"env.{name} changes nothing: {why.format(values[name])}")


def _other(value: Range | float, usual: float) -> float:
    """Of the values that a knob may get, the one that is farthest from its usual one."""
    ends = [value] if not isinstance(value, Range) else value.choices or [value.low, value.high]
    return max((float(x) for x in ends if x is not None), key=lambda x: abs(x - usual))


def _unread(environment: DeviceEnvironment, values: dict[str, float]) -> list[str]:
    """The knobs that are not read when a device environment is reset and makes a step."""

    def once(knobs: dict[str, jax.Array], key: jax.Array) -> Any:
        own, space = with_values(environment, knobs), environment.spec.action
        action = to_bounds(space, jnp.zeros(space.shape, space.dtype))
        return own.step(key, own.reset(key)[0], action)

    knobs = {name: jnp.float32(x) for name, x in values.items()}
    traced = jax.make_jaxpr(once)(knobs, jax.random.key(0)).jaxpr
    read = {id(x) for equation in traced.eqns for x in equation.invars} | {id(x) for x in traced.outvars}
    return [name for name, x in zip(sorted(knobs), traced.invars, strict=False) if id(x) not in read]


def _idle(environment: HostEnvironment, values: dict[str, float]) -> list[str]:
    """The knobs without which the same actions lead a host environment through the same steps."""
    usual, space = environment.knobs, environment.spec.action

    def matters(name: str) -> bool:
        rng = np.random.default_rng(0)
        with closing(environment.open(2, None)) as copies:
            copies.set_knobs({name: np.array([usual[name], values[name]])})
            differs = _differ(copies.reset([0, 0]))
            for _ in range(STEPS):
                one = np.asarray(to_bounds(space, _drawn(space, rng)[None]))
                now, _ = copies.step(np.repeat(one, 2, 0))
                differs |= _differ((now.obs, now.reward))
        return differs

    return [name for name, value in values.items() if value != usual[name] and not matters(name)]


def _differ(tree: Any) -> bool:
    """Whether the two rows of any leaf are not the same."""
    return any(bool((x[0] != x[1]).any()) for x in jax.tree.leaves(tree))


def _drawn(space: ActionSpace, rng: np.random.Generator) -> np.ndarray:
    """A random action, as agents give it."""
    if isinstance(space, Continuous):
        return rng.uniform(-1, 1, space.shape).astype(np.float32)
    return np.asarray(rng.integers(getattr(space, "nvec", None) or space.n), np.int32)  # type: ignore[union-attr]
