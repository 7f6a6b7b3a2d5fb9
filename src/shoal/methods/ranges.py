"""The space of the hyperparameters: sampling and perturbing values within their `Range`.

Every range has a scale: the logarithm of x for `log`, minus the logarithm of 1 - x for `one_minus_log`. In that scale,
with the bounds at 0 and 1 (the *unit scale*), the prior is uniform, and a perturbation beyond a bound is reflected.
All functions take and return N values; they compute in float64 and return float32.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np

from shoal.core.errors import BadField
from shoal.core.space import Range

_TINY, _HUGE = (float(bound) for bound in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
_WHOLE = 2**24  # the largest whole number up to which float32 holds them all


def validate(name: str, r: Range) -> None:
    """Raise `BadInput` unless `r` is a valid range."""

    def fail(problem: str) -> NoReturn:
        raise BadField(f"space.{name}", problem)

    first = r.initial_value
    if r.choices is not None:
        if r.low is not None or r.high is not None:
            fail("give either choices or the bounds low and high, not both")
        if r.scale != "linear" or r.integer:
            fail("choices take neither a scale nor integer")
        finite = np.all(np.abs(r.choices) <= _HUGE)
        if not finite or len(r.choices) < 2 or len(set(_choices(r).tolist())) < len(r.choices):
            fail(f"choices must be at least two different float32 numbers, not {list(r.choices)}")
        if first is not None and first not in r.choices:
            fail(f"initial = {first:g} is not one of the choices {list(r.choices)}")
        return
    if r.low is None or r.high is None:
        fail("give both bounds, low and high, or else choices")
    if r.ordered:
        fail("ordered belongs to choices, not to bounds")
    if not max(abs(r.low), abs(r.high)) <= _HUGE:
        fail(f"the bounds must be finite float32 numbers, not low = {r.low:g} and high = {r.high:g}")
    if not r.low < r.high:
        fail(f"low = {r.low:g} must be below high = {r.high:g}")
    if r.scale == "log" and r.low < _TINY:
        fail(f"a log scale needs low > 0, not {r.low:g}")
    if r.scale == "one_minus_log" and not 0 <= r.low < r.high < 1:
        fail(f"a one_minus_log scale needs 0 <= low < high < 1, not low = {r.low:g} and high = {r.high:g}")
    if r.integer and not (_whole(r.low) and _whole(r.high)):
        fail(f"integer: true needs integers as bounds, not low = {r.low} and high = {r.high}")
    if not np.less(*_limits(r)):
        fail(f"low = {r.low!r} and high = {r.high!r} hold fewer than two float32 numbers")
    if first is not None and not r.low <= first <= r.high:
        fail(f"initial = {first:g} lies outside low = {r.low:g} and high = {r.high:g}")
    if first is not None and r.integer and not _whole(first):
        fail(f"initial = {first:g} must be an integer")


def sample(r: Range, u: np.ndarray) -> np.ndarray:
    """Values from the prior, which is uniform in the scale of the range, from `u` uniform in [0, 1). Ignores `initial`."""
    if r.choices is not None:
        return _choices(r)[(u * len(r.choices)).astype(int)]
    if r.integer:  # a bin [k, k + 1) for each whole number, the last one included
        _, high = _bounds(r)
        return nearest(r, np.floor(_from_unit(replace(r, high=high + 1), u)))
    return nearest(r, _from_unit(r, u))


def nearest(r: Range, x: np.ndarray) -> np.ndarray:
    """The valid values closest to `x`."""
    x = np.asarray(x, np.float64)
    if r.choices is not None:
        return _choices(r)[_index(r, x)]
    return np.clip(np.rint(x) if r.integer else x, *_limits(r)).astype(np.float32)


def perturb(r: Range, x: np.ndarray, factor: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Multiply `x` by `factor` (in `one_minus_log`, 1 - x by `factor`) and reflect at the bounds.

    Whole numbers change by at least 1. Ordered choices change to the neighbour above or below; unordered ones to another
    choice, from `u` uniform in [0, 1), for any factor. A linear value near 0 changes as if it were a twentieth of the
    range, because 0 times any factor is 0.
    """
    if r.choices is not None:
        return shift(r, x, np.sign(factor - 1) / (len(r.choices) - 1), u)
    x = nearest(r, x).astype(np.float64)
    low, high = _stretched_bounds(r)
    if r.scale == "linear":
        step = (factor - 1) * np.copysign(np.maximum(np.abs(x), (high - low) / 20), x)
    else:
        step = np.log(factor) if r.scale == "log" else -np.log(factor)
    bounced = 1 - np.abs((_to_unit(r, x) + step / (high - low)) % 2 - 1)
    return _land(r, x, _from_unit(r, bounced), np.sign(step))


def shift(r: Range, x: np.ndarray, step: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Add `step` to `x` in the unit scale and clip; integers and choices as in `perturb`."""
    if r.choices is not None:
        index, last = _index(r, x), len(r.choices) - 1
        if r.ordered:
            index = shift(Range(0, last, integer=True), index, step, u).astype(int)
        else:
            index = (index + 1 + (u * last).astype(int)) % len(r.choices)
        return _choices(r)[index]
    x = nearest(r, x).astype(np.float64)
    return _land(r, x, _from_unit(r, np.clip(_to_unit(r, x) + step, 0, 1)), np.sign(step))


def places(r: Range, x: np.ndarray) -> np.ndarray:
    """Positions of values in the unit scale, float64 [N] within [0, 1]; choices have equal distances."""
    if r.choices is not None:
        return _index(r, x) / (len(r.choices) - 1)
    return np.clip(_to_unit(r, nearest(r, x).astype(np.float64)), 0, 1)


def values_at(r: Range, z: np.ndarray) -> np.ndarray:
    """The valid values nearest to places in the unit scale."""
    if r.choices is not None:
        return _choices(r)[np.rint(z * (len(r.choices) - 1)).astype(int)]
    return nearest(r, _from_unit(r, z))


def at_bound(r: Range, x: np.ndarray) -> np.ndarray:
    """Mark values, bool [N], within 2 % of a bound in the unit scale: a wider range might have better ones."""
    if r.choices is not None:
        ends = (0, len(r.choices) - 1) if r.ordered else ()
        return np.isin(_index(r, x), ends)
    return np.abs(_to_unit(r, nearest(r, x).astype(np.float64)) - 0.5) >= 0.48


def _land(r: Range, x: np.ndarray, moved: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The valid values nearest to `moved`; an integer that would remain `x` changes by 1, back at a bound."""
    y = nearest(r, moved)
    if not r.integer:
        return y
    low, high = _bounds(r)
    beyond = (x + direction < low) | (x + direction > high)
    return np.where(y == x, np.where(beyond, x - direction, x + direction), y).astype(np.float32)


def _to_unit(r: Range, x: np.ndarray) -> np.ndarray:
    """Map values to the unit scale."""
    low, high = _stretched_bounds(r)
    return (_stretch(r, x) - low) / (high - low)


def _from_unit(r: Range, z: np.ndarray) -> np.ndarray:
    """The inverse of `_to_unit`."""
    low, high = _stretched_bounds(r)
    z = low + z * (high - low)
    return z if r.scale == "linear" else np.exp(z) if r.scale == "log" else -np.expm1(-z)


def _stretch(r: Range, x: np.ndarray) -> np.ndarray:
    return x if r.scale == "linear" else np.log(x) if r.scale == "log" else -np.log1p(-x)


def _stretched_bounds(r: Range) -> tuple[float, float]:
    low, high = _stretch(r, np.array(_bounds(r)))
    return float(low), float(high)


def _bounds(r: Range) -> tuple[float, float]:
    assert r.low is not None and r.high is not None, "a validated range without choices has bounds"
    return r.low, r.high


def _limits(r: Range) -> tuple[np.float32, np.float32]:
    """The outermost float32 numbers that still lie inside the bounds: float32(0.9) is below 0.9."""
    low, high = (np.float32(bound) for bound in _bounds(r))
    if float(low) < _bounds(r)[0]:
        low = np.nextafter(low, np.float32(np.inf))
    if float(high) > _bounds(r)[1]:
        high = np.nextafter(high, np.float32(-np.inf))
    return low, high


def _choices(r: Range) -> np.ndarray:
    return np.array(r.choices, np.float32)


def _index(r: Range, x: np.ndarray) -> np.ndarray:
    return np.abs(np.asarray(x, np.float64)[..., None] - _choices(r)).argmin(-1)


def _whole(x: float) -> bool:
    return float(x).is_integer() and abs(x) <= _WHOLE
