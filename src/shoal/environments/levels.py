"""Levels: numbered variants of an environment, some for training, others for evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from shoal.core.errors import BadField
from shoal.core.keys import jax_key
from shoal.environments.host import HostEnvironment

if TYPE_CHECKING:
    import jax

    from shoal.environments.device import DeviceEnvironment

E = TypeVar("E", "DeviceEnvironment", HostEnvironment)

LARGEST = 2**31  # level numbers stay below it
COMPARED = 3  # levels of each purpose, which must not all begin alike
BASE = (0,)  # the key that level numbers are folded into: a level is the same in every run


class Span(NamedTuple):
    """The levels first <= level < end: integers, in compiled programs traced ones."""

    first: Any
    end: Any

    def meets(self, other: Span) -> bool:
        """True where a level is in both."""
        return bool(self.first < other.end and other.first < self.end)


@dataclass(frozen=True)
class Levels:
    """The levels for training, for validation (fitness) and for testing the champion."""

    train: Any = 200
    """levels that members train on: [first, end), or how many"""
    validation: Any = 100_000
    """levels that evaluate the fitness, sampled anew in each generation: [first, end), or how many"""
    test: Any = 100_000
    """held-out levels that evaluate the champion at the end: [first, end), or how many"""

    def spans(self) -> dict[str, Span]:
        """The levels of each purpose; counts lie behind all pairs, and behind the counts before them. Raises BadInput."""
        given = {name: _given(name, value) for name, value in vars(self).items()}
        last = max((x.end for x in given.values() if isinstance(x, Span)), default=0)
        found: dict[str, Span] = {}
        for name, value in given.items():
            found[name] = value if isinstance(value, Span) else Span(last, last := last + value)
            if found[name].end > LARGEST:
                raise BadField(f"levels.{name}", f"ends at {found[name].end}, and level numbers stay below 2**31")
        for (name, span), (other, its) in permutations(found.items(), 2):
            if span.meets(its):
                problem = f"has levels of {other} = {list(its)}"
                raise BadField(f"levels.{name}", problem, "no level may serve two purposes", value=list(span))
        return found


def _given(name: str, value: Any) -> Span | int:
    """Read the levels of one purpose from a file: a pair, or their number. Raises BadInput."""
    pair = value if isinstance(value, (list, tuple)) else [0, value]
    numbers = [int(x) for x in pair if type(x) is int or (type(x) is float and x.is_integer())]
    if len(pair) != 2 or len(numbers) != 2 or not 0 <= numbers[0] < numbers[1]:
        shown = list(value) if isinstance(value, tuple) else f"{value!r}"
        advice = "write [first, end] with 0 <= first < end, or how many"
        raise BadField(f"levels.{name}", "are no levels", advice, value=shown)
    span = Span(*numbers)
    return span if isinstance(value, (list, tuple)) else span.end


Spans = Mapping[str, Span]  # by purpose; empty where an experiment has no levels


def at_levels(environment: E, span: Span) -> E:
    """Return the environment with every episode on one of these levels, sampled uniformly. It passes `check_levels`."""
    if environment.at_levels is not None:
        return environment.at_levels(*span)
    assert not isinstance(environment, HostEnvironment)
    return environment._replace(reset=lambda key: environment.reset(level_key(draw(key, span))))


def draw(key: jax.Array, span: Span) -> jax.Array:
    """The level, uint32, of the episode that has this reset key on the device."""
    import jax

    first, end = (jax.numpy.asarray(x, jax.numpy.uint32) for x in span)
    return jax.random.randint(key, (), first, end, jax.numpy.uint32)


def level_key(level: Any) -> jax.Array:
    """The key that a device environment is reset with, so that it begins at this level."""
    import jax

    return jax.random.fold_in(jax_key(BASE), level)


def check_levels(environment: Any, env: str, spans: Spans, twin: str = "") -> None:
    """Raise BadInput where an environment has no levels: it says so, or all its episodes begin alike at these.

    twin: the id of the same environment elsewhere, which has them
    """
    if isinstance(environment, HostEnvironment) and environment.at_levels is None:
        raise BadField("levels", f"{env} has none", f"{twin} has them" if twin else "")
    begin = _on_the_host if isinstance(environment, HostEnvironment) else _on_the_device
    if all((x == x[:1]).all() for x in begin(environment, spans)):
        raise BadField("levels", f"every episode of {env} has the same initial state, so that it has no levels")


def _on_the_host(environment: HostEnvironment, spans: Spans) -> list[np.ndarray]:
    """The first observations of some levels of each span: every leaf [levels, ...]."""
    import jax

    starts = []
    for span in spans.values():
        with closing(at_levels(environment, span).open(COMPARED)) as vector:
            starts.append(vector.reset(list(range(COMPARED))))
    return jax.tree.leaves(jax.tree.map(lambda *x: np.concatenate(x), *starts))


def _on_the_device(environment: DeviceEnvironment, spans: Spans) -> list[np.ndarray]:
    """The first observations and states of some levels of each span: every leaf [levels, ...]."""
    import jax

    def begin(key: jax.Array, first: jax.Array, end: jax.Array) -> Any:
        return at_levels(environment, Span(first, end)).reset(key)

    ends = np.repeat(np.array(list(spans.values()), np.uint32), COMPARED, 0)
    keys = jax.random.split(jax_key(BASE), len(ends))
    return jax.device_get(jax.tree.leaves(jax.jit(jax.vmap(begin))(keys, *ends.T)))
