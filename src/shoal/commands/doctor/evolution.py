"""Checks of evolution: does it copy, can it explore, and does the environment depend on the parameters it tunes?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shoal.commands.doctor.checks import Diagnostic, failure, ok, warning
from shoal.core.env_parameters import split
from shoal.core.population import Decision, PopulationStats
from shoal.core.space import Range
from shoal.core.spec import ActionSpace, Box
from shoal.environments.device import DeviceEnvironment, with_values
from shoal.environments.host import HostEnvironment
from shoal.environments.spaces import to_bounds
from shoal.experiment.plan import Plan
from shoal.methods.ranges import at_bound
from shoal.records.words import many

TRIALS = 100  # of selection
STEPS = 200  # with random actions, in which a parameter of a host environment should make a difference


def selection(plan: Plan) -> Iterator[Diagnostic]:
    """The share of members that copy in a generation, and the generations in which they do."""
    e, method = plan.experiment, plan.method
    n, generations = e.population, many(e.generations, "generation")
    if not method.copies:
        yield ok("selection", "no member copies another")
        return
    episodes = plan.evaluation.episodes if e.fitness.source == "evaluation" else 10
    try:
        counts, safe = _simulate(plan, episodes)
        advice = method.advice(n, episodes)
    except Exception as error:  # of the user's selector
        yield failure("selection", f"failed on synthetic fitness: {type(error).__name__}: {error}")
        return
    share = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    yield (ok if max(counts) else warning)(
        "selection",
        f"{share} of {many(n, 'member')} {'copies' if share == '1' else 'copy'} in a generation"
        f"{', while all train' if len(plan.rung_sizes) > 1 else ''}",
    )
    if advice:
        yield warning("selection", advice)
    if not safe:
        yield warning(
            "selection", "the best member can be overwritten (the champion is saved, but the population loses it)"
        )
    burn_in, last = method.burn_in, e.generations - 1
    first = max(1, math.ceil(burn_in / (plan.steps or 1)))
    if len(plan.rung_sizes) > 1 and max(counts):
        yield _between_rungs(plan)
    elif e.ends_by == ["time_limit"] and max(counts):
        yield ok("evolution", f"members copy from generation {first} on")
    elif e.generations == 1:
        yield warning("evolution", "never takes effect: there is only one generation")
    elif max(counts) and first > last:
        yield warning("evolution", f"never takes effect: {generations} end before burn_in = {burn_in:,} steps")
    elif max(counts):
        yield ok("evolution", f"members copy after generations {first} to {last} of {e.generations}")


def _between_rungs(plan: Plan) -> Diagnostic:
    """The generations in which members copy where rungs end some."""
    (share, left), e = plan.rung_sizes[-1], plan.experiment
    n, burn_in = e.generations, plan.method.burn_in
    end = round(share * n) if left == 1 else n
    first = next((g for g in range(1, n) if plan.share_made(g / n) * n * plan.steps >= burn_in), n)
    when = f"generation {end} of {n}" if e.ends_by == ["generations"] else f"after {share:.0%} of the run"
    until = f" until one member is left ({when})" if left == 1 else ""
    if first >= end and burn_in:
        return warning("evolution", f"never takes effect: burn_in = {burn_in:,} steps last{until or ' to the end'}")
    begin = "each generation" if first == 1 else f"each generation from {first} on"
    return ok("evolution", f"tuned members may copy after {begin}{until}, except where a rung ends members")


def _simulate(plan: Plan, episodes: int) -> tuple[list[int], bool]:
    """Members that copy in each trial with clearly different fitness; True if the best one never does."""
    method, n, counts, safe = plan.method, plan.experiment.population, list[int](), True
    evolver = method.evolver(plan.search, n)
    rows, steps = np.arange(n), np.full(n, max(plan.steps, method.burn_in, 1))
    std, played = np.full(n, 0.01 if episodes > 1 else np.nan), np.full(n, episodes)
    first, hyper = evolver.init((0,), rows)
    for i in range(TRIALS):
        fitness = np.random.default_rng(i).permutation(n).astype(np.float64)
        stats = PopulationStats(rows, np.full(n, i), steps, fitness, std, played, hyper)
        _, decision = evolver.decide((i,), first, stats, rows)  # whose bandit has nothing to learn, which takes long
        assert isinstance(decision, Decision)  # of members that copy
        counts.append(int((decision.parents != rows).sum()))
        safe &= bool(decision.parents[fitness.argmax()] == fitness.argmax())
    return counts, safe


def hyperparameters(plan: Plan) -> Iterator[Diagnostic]:
    """Tuned and fixed hyperparameters, and ranges in which exploration cannot work."""
    e, method = plan.experiment, plan.method
    if not method.tunes:
        return
    space, explore = plan.space, getattr(method, "explore", None)  # an explorer of one's own may be any function
    if not space:
        yield warning("tuned", "nothing: space is empty, so members differ by their seeds only")
        return
    fixed = ", ".join(f"{name} {value:g}" for name, value in e.hyper.items()) or "nothing"
    yield ok("tuned", f"{', '.join(space)}; fixed: {fixed}")
    if method.copies and not getattr(explore, "changes", True):
        yield warning("exploration", "explore: none copies the initial values and samples no new ones")
    for name, r in space.items():
        default = float(plan.defaults[name])
        if (first := r.initial_value) is not None and at_bound(r, np.array([first]))[0]:
            yield warning(name, f"initial = {first:g} is at a bound: half of all perturbations are reflected there")
        if r.low is not None and r.high is not None and not r.low <= default <= r.high:
            yield warning(name, f"the default {default:g} lies outside [{r.low:g}, {r.high:g}]")


def environment_parameters(plan: Plan) -> Iterator[Diagnostic]:
    """Environment parameters that are tuned or set, and do or do not change the environment that members train in."""
    e, kind = plan.experiment, plan.kind.compiled
    given = split({**e.hyper, **plan.space})[1]
    if kind is None or not given:
        return
    environment = kind.environment
    values = {name: _other(x, environment.env_parameters[name]) for name, x in given.items()}
    if isinstance(environment, DeviceEnvironment):
        unused, why = _unread(environment, values), "the environment never reads it"
    else:
        unused, why = _idle(environment, values), f"with {{:g}}, {STEPS} random steps are the same as with the default"
    if live := [name for name in values if name not in unused]:
        yield ok(
            "env parameters", f"{', '.join(live)}: in each member's training environment; evaluation uses the defaults"
        )
    for name in unused:
        yield warning("env parameters", f"env.{name} has no effect: {why.format(values[name])}")


def _other(value: Range | float, default: float) -> float:
    """Return the value farthest from the default, among those that a parameter may get."""
    ends = [value] if not isinstance(value, Range) else value.choices or [value.low, value.high]
    return max((float(x) for x in ends if x is not None), key=lambda x: abs(x - default))


def _unread(environment: DeviceEnvironment, values: dict[str, float]) -> list[str]:
    """The parameters that a device environment does not read in a reset and a step."""

    def once(env_parameters: dict[str, jax.Array], key: jax.Array) -> Any:
        own, space = with_values(environment, env_parameters), environment.spec.action
        action = to_bounds(space, jnp.zeros(space.shape, space.dtype))
        return own.step(key, own.reset(key)[1], action)

    env_parameters = {name: jnp.float32(x) for name, x in values.items()}
    traced = jax.make_jaxpr(once)(env_parameters, jax.random.key(0)).jaxpr
    read = {id(x) for equation in traced.eqns for x in equation.invars} | {id(x) for x in traced.outvars}
    return [name for name, x in zip(sorted(env_parameters), traced.invars, strict=False) if id(x) not in read]


def _idle(environment: HostEnvironment, values: dict[str, float]) -> list[str]:
    """The parameters without which a host environment makes the same steps for the same actions."""
    defaults, space = environment.env_parameters, environment.spec.action

    def matters(name: str) -> bool:
        rng = np.random.default_rng(0)
        with closing(environment.open(2)) as copies:
            copies.set_env_parameters({name: np.array([defaults[name], values[name]])})
            differs = _differ(copies.reset([0, 0]))
            for _ in range(STEPS):
                one = np.asarray(to_bounds(space, _random(space, rng)[None]))
                now, _ = copies.step(np.repeat(one, 2, 0))
                differs |= _differ((now.obs, now.reward))
        return differs

    return [name for name, value in values.items() if value != defaults[name] and not matters(name)]


def _differ(tree: Any) -> bool:
    """True if the two rows of any leaf differ."""
    return any(bool((x[0] != x[1]).any()) for x in jax.tree.leaves(tree))


def _random(space: ActionSpace, rng: np.random.Generator) -> np.ndarray:
    """Return a random action in the range of agents."""
    if isinstance(space, Box):
        return rng.uniform(-1, 1, space.shape).astype(np.float32)
    return np.asarray(rng.integers(getattr(space, "nvec", None) or space.n), np.int32)  # type: ignore[union-attr]
