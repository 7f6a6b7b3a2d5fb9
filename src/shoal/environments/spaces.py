"""Spaces of gymnasium as agents see them, and from the actions of an agent (choices from 0, numbers around [-1, 1]) to those
of an environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.errors import BadField
from shoal.core.spec import ActionSpace, Box, Discrete, MultiDiscrete


def to_bounds(space: ActionSpace, action: Any) -> Any:
    """Actions [..., *space.shape] of NumPy or JAX, in the space of the environment.

    Choices are counted from the start of the space. Numbers are scaled from [-1, 1] to its bounds and clipped to them:
    an infinite bound counts as 2 away from the other one, and where both are infinite the action is not scaled. Integers
    are rounded to the nearest. A number that is not finite, of a member that has diverged, counts as 0, because some
    environments would crash.
    """

    def along(x: np.ndarray) -> np.ndarray:
        return x.reshape((1,) * (action.ndim - x.ndim) + x.shape)

    if not isinstance(space, Box):
        return action + along(np.asarray(space.start, np.int32))
    xp = action.__array_namespace__()
    action = xp.where(xp.isfinite(action), action, np.float32(0))
    with np.errstate(over="ignore"):  # bounds near the end of float32 overflow to infinity, which is clipped
        low, high = -_at_most(-np.asarray(space.low)), _at_most(np.asarray(space.high))
        below = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 2, np.float32(-1))) / 2
        above = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 2, np.float32(1))) / 2
        stretched = action * along(above - below) + along(above + below)
    if np.issubdtype(space.native, np.integer):
        stretched = stretched.round()
    return stretched.clip(along(low), along(high))


def _at_most(bound: np.ndarray) -> np.ndarray:
    """The largest float32 numbers that are not above the float64 bounds [A]."""
    nearest = bound.astype(np.float32)
    return np.where(nearest > bound, np.nextafter(nearest, np.float32(-np.inf)), nearest)


def dtype_of(space: Any) -> str:
    """The dtype in which agents get the observations of a gymnasium space: images stay bytes."""
    from gymnasium import spaces

    return "uint8" if isinstance(space, spaces.Box) and space.dtype == np.uint8 else "float32"


def is_arrays(space: Any) -> bool:
    """True where observations of this gymnasium space are one array, or a dictionary of arrays."""
    from gymnasium import spaces

    parts = space.values() if isinstance(space, spaces.Dict) else [space]
    return all(isinstance(part, spaces.Box) for part in parts)


def action_space(space: Any, env: str) -> ActionSpace:
    """A space of gymnasium as agents see it; `env` is for the message. Raises BadInput where it is none of theirs."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiDiscrete(tuple(map(int, space.nvec)), tuple(map(int, space.start)))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return MultiDiscrete((2,) * space.shape[0])
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return Box(tuple(map(float, space.low)), tuple(map(float, space.high)), str(space.dtype))
    advice = "these work: discrete, multi-discrete, multi-binary, flat box"
    raise BadField("env", f"{env} has the action space {space}", advice)
