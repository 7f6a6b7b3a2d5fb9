"""Actions between what an agent gives (about [-1, 1]) and what an environment takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.types import ActionSpace, Continuous


def to_bounds(space: ActionSpace, action: Any) -> Any:
    """Continuous actions, clipped to [-1, 1], stretched onto the bounds of the space; all others as they are.

    Takes NumPy and JAX arrays [..., A]. Where a bound is infinite the action passes unchanged.
    """
    if not isinstance(space, Continuous):
        return action
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    bounded = np.isfinite(low) & np.isfinite(high)
    below, above = np.where(bounded, low, -1) / 2, np.where(bounded, high, 1) / 2
    centre, half = (above + below).astype(np.float32), (above - below).astype(np.float32)
    limit = np.where(bounded, 1, np.inf).astype(np.float32)
    shape = (1,) * (action.ndim - 1) + half.shape
    return action.clip(-limit.reshape(shape), limit.reshape(shape)) * half.reshape(shape) + centre.reshape(shape)
