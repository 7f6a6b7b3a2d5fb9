"""Objectives: fitness from the info of an episode's last step instead of the return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.errors import BadField
from shoal.core.user_code import attributed

Objective = str | Callable[[dict[str, Any]], float] | None  # None: the return
InfoOf = Callable[[int], dict[str, Any]]  # copy -> the info of its last step
FIELDS = ("fitness.objective", "fitness.tie_breaker")  # where each is given


@dataclass(frozen=True)
class Minimised:
    """An objective of which less is better: fitness, which is always maximised, is its negative."""

    objective: str | Callable[[dict[str, Any]], float]

    def __call__(self, info: Mapping[str, Any]) -> Any:
        return 0.0 - in_info(self.objective, info)


def in_infos(objective: Objective, info_of: InfoOf, copies: np.ndarray, field: str = FIELDS[0]) -> np.ndarray:
    """The objective of the copies that are marked, bool [n], by the infos of their last steps; NaN elsewhere. Raises
    BadInput."""
    result = np.full(copies.shape, np.nan)
    for i in np.flatnonzero(copies).tolist():
        result[i] = float(in_info(objective, info_of(i), field))
    return result


def in_info(objective: Objective, info: Mapping[str, Any], field: str = FIELDS[0]) -> Any:
    """The number that an objective names or makes of an info; traced where the info is. Raises BadInput about the field
    that it is given in."""
    if isinstance(objective, str):
        return _at(info, objective, field)
    function: Any = objective
    name = getattr(function, "__qualname__", type(function).__qualname__)
    with attributed(field, "failed", value=name):
        value = function(info)
    return _number(value, name, field)


def _at(info: Mapping[str, Any], path: str, field: str) -> Any:
    """The number at a dotted key."""
    value: Any = info
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            names = ", ".join(value) if isinstance(value, Mapping) else ""
            problem = f"the info of an episode's end has no {part!r}, only: {names}"
            raise BadField(field, problem, value=path)
        value = value[part]
    return _number(value, path, field)


def _number(value: Any, name: str, field: str) -> Any:
    kind = value.dtype.kind if hasattr(value, "dtype") else np.asarray(value).dtype.kind
    if np.shape(value) != () or kind not in "biuf":
        raise BadField(field, "is not one number in the info of an episode's end", value=name)
    return value
