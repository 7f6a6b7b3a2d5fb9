"""What is asked and changed of the observations of many copies that step together; dictionaries of arrays too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.core.types import PyTree


def broken(obs: PyTree, reward: np.ndarray) -> np.ndarray:
    """Where a copy is beyond rescue, bool [n]: its reward or an observation, every leaf [n, ...], is not finite."""
    found = ~np.isfinite(reward)
    for x in obs.values() if isinstance(obs, Mapping) else [obs]:
        if x.dtype != np.uint8:
            found |= ~np.isfinite(x).reshape(len(x), -1).all(1)
    return found


def own(tree: Any) -> Any:
    """The same dictionaries, lists and tuples, with copies of the arrays in them: an environment may hand out a buffer that
    it changes in place later."""
    if isinstance(tree, np.ndarray):
        return tree.copy()
    if isinstance(tree, Mapping):
        return {key: own(x) for key, x in tree.items()}
    return type(tree)(map(own, tree)) if type(tree) in (list, tuple) else tree


def put(x: np.ndarray, rows: np.ndarray, values: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """A copy of an array [n, ...] with other values in some rows."""
    x = x.copy()
    x[rows] = values
    return x
