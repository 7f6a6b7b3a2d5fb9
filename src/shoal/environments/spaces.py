"""Actions between what an agent gives (choices from 0, numbers about [-1, 1]) and what an environment takes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from shoal.core.types import ActionSpace, Continuous


def to_bounds(space: ActionSpace, action: Any) -> Any:
    """Choices, counted from the start of the space; numbers, stretched from [-1, 1] onto its bounds and clipped to them.

    Takes NumPy and JAX arrays [..., *space.shape]. An open end is taken to be 2 from the other one, and where both are
    open the action passes unchanged. What an environment wants in integers is rounded to the nearest. What is not finite,
    of a member that has diverged, counts as 0: not every environment would survive it.
    """

    def along(x: np.ndarray) -> np.ndarray:
        return x.reshape((1,) * (action.ndim - x.ndim) + x.shape)

    if not isinstance(space, Continuous):
        return action + along(np.asarray(space.start, np.int32))
    xp = np if isinstance(action, np.ndarray) else jnp
    action = xp.where(xp.isfinite(action), action, np.float32(0))
    with np.errstate(over="ignore"):  # of bounds near the end of float32: what is infinite is clipped
        low, high = -_at_most(-np.asarray(space.low)), _at_most(np.asarray(space.high))
        below = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 2, np.float32(-1))) / 2
        above = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 2, np.float32(1))) / 2
        stretched = action * along(above - below) + along(above + below)
    if np.issubdtype(space.native, np.integer):
        stretched = stretched.round()
    return stretched.clip(along(low), along(high))


def _at_most(bound: np.ndarray) -> np.ndarray:
    """The largest float32 numbers that are not above a bound of float64."""
    nearest = bound.astype(np.float32)
    return np.where(nearest > bound, np.nextafter(nearest, np.float32(-np.inf)), nearest)
