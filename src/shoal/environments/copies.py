"""What is asked and changed of the observations of many copies that step together; dictionaries of arrays too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shoal.core.types import PyTree


def broken(obs: PyTree, reward: np.ndarray) -> np.ndarray:
    """Where a copy is beyond rescue, bool [n]: its reward or an observation, every leaf [n, ...], is not finite."""
    found = ~np.isfinite(reward)
    for x in obs.values() if isinstance(obs, Mapping) else [obs]:
        if x.dtype != np.uint8:
            found |= ~np.isfinite(x).reshape(len(x), -1).all(1)
    return found


def put(x: np.ndarray, rows: np.ndarray, values: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """A copy of an array [n, ...] with other values in some rows."""
    x = x.copy()
    x[rows] = values
    return x
