"""What properties are tried on: populations as selectors see them, and ranges of hyperparameters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from shoal.core.errors import BadInput
from shoal.core.population import PopulationStats
from shoal.core.space import Range
from shoal.methods.ranges import validate

NAN, INF = float("nan"), float("inf")
FITNESS = st.sampled_from([0.0, 1.0, 1.0, -2.5, 7.5, NAN, INF, -INF]) | st.floats()  # the first for ties
SEEDS = st.integers(0, 2**31 - 1)


@st.composite
def populations(
    draw: Callable, least: int = 1, fitness: st.SearchStrategy = FITNESS, std: st.SearchStrategy | None = None
) -> PopulationStats:
    """The stats of a population in no order, whatever stands in them; x tells the members apart."""
    n = draw(st.integers(least, 12))
    std = std or st.sampled_from([0.1, 0.0, NAN]) | st.floats(0)

    def column(values: st.SearchStrategy, unique: bool = False) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=n, max_size=n, unique=unique)))

    uid, counts = column(st.integers(0, 2**40), unique=True), np.full(n, 1)
    fields = column(fitness), column(std), column(st.integers(0, 9) | st.just(1000))
    x = {"x": np.arange(n, dtype=np.float32)}
    return PopulationStats(uid, counts, 1000 * counts, *fields, x, tie_breaker=draw(st.none() | st.just(fields[1])))


NUMBERS = st.sampled_from([-3.0, 0.0, 0.1, 0.9, 1.0, 7.0]) | st.floats(-1e30, 1e30)
POSITIVE = st.sampled_from([1e-5, 0.1, 1.0, 100.0]) | st.floats(1e-30, 1e30)
SHARES = st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.9999]) | st.floats(0, 0.99999)
WHOLE = (st.integers(-100, 100) | st.integers(-(2**24), 2**24)).map(float)  # as a file gives them


def _bounds(values: st.SearchStrategy, scale: str = "linear", integer: bool = False) -> st.SearchStrategy:
    pairs = st.lists(values, min_size=2, max_size=2).map(sorted)
    return pairs.map(lambda ends: Range(*ends, scale, integer=integer))  # type: ignore[arg-type]


def _valid(r: Range) -> bool:
    try:
        validate("x", r)
    except BadInput:
        return False
    return True


CHOICES = st.builds(
    lambda values, ordered: Range(choices=tuple(values), ordered=ordered),
    st.lists(NUMBERS, min_size=2, max_size=6, unique_by=np.float32),
    st.booleans(),
)
INTEGERS = (_bounds(WHOLE, integer=True) | _bounds(WHOLE.filter(lambda x: x > 0), "log", integer=True)).filter(_valid)
REALS = (_bounds(NUMBERS) | _bounds(POSITIVE, "log") | _bounds(SHARES, "one_minus_log")).filter(_valid)
RANGES = REALS | INTEGERS | CHOICES
