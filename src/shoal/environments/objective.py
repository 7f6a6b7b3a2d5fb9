"""Objectives: fitness from the info of an episode's last step instead of the return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.errors import BadField
from shoal.core.user_code import attributed

Objective = str | Callable[[dict[str, Any]], float] | None
ObjectiveReader = Callable[[np.ndarray], np.ndarray]  # (copies, bool [n]) -> their objective [n], NaN elsewhere


@dataclass(frozen=True)
class Minimised:
    """An objective of which less is better: fitness, which is always maximised, is its negative."""

    objective: str | Callable[[dict[str, Any]], float]

    def __call__(self, info: Mapping[str, Any]) -> Any:
        return 0.0 - in_info(self.objective, info)


def objective_reader(objective: Objective, info_of: Callable[[int], dict[str, Any]]) -> ObjectiveReader | None:
    """Make a function that reads the objective of the copies that are marked, and raises BadInput; None without one.

    info_of: copy -> the info of its last step
    """

    def read(copies: np.ndarray) -> np.ndarray:
        result = np.full(copies.shape, np.nan)
        for i in np.flatnonzero(copies).tolist():
            result[i] = float(in_info(objective, info_of(i)))
        return result

    return None if objective is None else read


def in_info(objective: Objective, info: Mapping[str, Any]) -> Any:
    """The number that an objective names or makes of an info; traced where the info is. Raises BadInput."""
    return _at(info, objective) if isinstance(objective, str) else _called(objective, info)


def _at(info: Mapping[str, Any], path: str) -> Any:
    """The number at a dotted key."""
    value: Any = info
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            names = ", ".join(value) if isinstance(value, Mapping) else ""
            problem = f"the info of an episode's end has no {part!r}, only: {names}"
            raise BadField("fitness.objective", problem, value=path)
        value = value[part]
    return _number(value, path)


def _called(function: Any, info: Mapping[str, Any]) -> Any:
    """Call a function of the user's on an episode's last info."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    with attributed("fitness.objective", "failed", value=name):
        value = function(info)
    return _number(value, name)


def _number(value: Any, name: str) -> Any:
    kind = value.dtype.kind if hasattr(value, "dtype") else np.asarray(value).dtype.kind
    if np.shape(value) != () or kind not in "biuf":
        raise BadField("fitness.objective", "is not one number in the info of an episode's end", value=name)
    return value
