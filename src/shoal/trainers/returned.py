"""Checks of what a trainer returns, in the form that its host wants: a part of `server`, in the process of the trainer.

Each function raises Misreturned, which says what was given by which method, and what it must be.
"""

from __future__ import annotations

import json
import keyword
from typing import Any, Callable, Mapping, Sequence  # noqa: UP035 (Python 3.8)

import numpy as np
from shoal_trainers.recipe import BadRecipe, attributed
from shoal_trainers.trainer import Report, TrainerState
from shoal_trainers.wire import DTYPES

LONGEST = 100  # characters of a value that are shown


class Misreturned(Exception):
    """A method gave something else than the protocol says."""

    def __init__(self, given: str, value: Any, wanted: str):
        shown = " ".join(repr(value).split())
        super().__init__(f"{given} {shown if len(shown) <= LONGEST else f'{shown[:LONGEST]}...'}, {wanted}")


def description(trainer: Any) -> dict[str, Any]:
    """Description of a trainer. Raises BadRecipe."""
    with attributed("config"):  # some find out when they are asked
        names = ("hyper", "space", "limits", "spec", "fixed")
        hyper, space, limits, spec, fixed = (getattr(trainer, name, None) for name in names)
    able = {name: hasattr(trainer, name) for name in ("act", "export", "load")}
    try:
        found = _as(_limits, "its limits are", limits, "and they must be {name: (lowest, highest)}")
        spec, space = _as_json("its spec is", spec), _as_json("its space is", _by_name("its space is", space, "ranges"))
        of_config = _by_name("its fixed is", fixed or {}, "defaults")
        shown = {name: "" if x is None else str(x) for name, x in of_config.items()}
        return {"hyper": _hyper(hyper), "space": dict(space), "limits": found, "spec": spec, "fixed": shown, **able}
    except Misreturned as error:
        raise BadRecipe("agent", str(error)) from error


def _hyper(value: Any) -> dict[str, float]:
    """Defaults of hyperparameters, whose names the host makes fields of a tuple."""
    values = _by_name("its hyper is", value, "numbers")
    for name in values:
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            wanted = "which must be an identifier of Python, no keyword, and without _ in front"
            raise Misreturned("its hyper has", name, wanted)
    return {name: _number(f"its hyper has {name} =", x) for name, x in values.items()}


def _limits(value: Any) -> dict[str, tuple[float, float]]:
    return {name: (float(low), float(high)) for name, (low, high) in (value or {}).items()}


def report(value: Any) -> Report:
    """Result of `train`."""
    steps, returns, metrics = _parts("train returned", value, Report)
    by_name = _by_name("train returned metrics =", metrics, "numbers")
    return Report(
        _count("train returned steps =", steps),
        _numbers("train returned returns =", returns),
        {name: _number(f"train returned the metric {name} =", x) for name, x in by_name.items()},
    )


def state(value: Any) -> TrainerState:
    """Result of `get_state`."""
    return TrainerState(*map(_arrays, TrainerState._fields, _parts("get_state returned", value, TrainerState)))


def returns(value: Any, seeds: Sequence[int]) -> list[float]:
    """Result of `evaluate`."""
    found = _numbers("evaluate returned", value)
    if len(found) != len(seeds):
        raise Misreturned("evaluate returned", value, f"which must be one return for each of {len(seeds)} seeds")
    return found


def evaluation_steps(trainer: Any) -> int:
    """Environment steps of the last `evaluate`, as the trainer reports them."""
    return _count("its evaluation_steps are", getattr(trainer, "evaluation_steps", 0))


def actions(value: Any, observations: int) -> np.ndarray:
    """Result of `act` for so many observations."""
    wanted = f"which must be an array of numbers with an action for each of {observations} observations"
    found = _array("act returned", value, wanted)
    if found.shape[:1] != (observations,):
        raise Misreturned("act returned", value, wanted)
    return found


def files(value: Any) -> list[str]:
    """Result of `export`."""
    if not isinstance(value, (list, tuple)):
        raise Misreturned("export returned", value, "which must be a list of the files written")
    return [str(file) for file in value]


def _as(convert: Callable[[Any], Any], given: str, value: Any, wanted: str, why: bool = False) -> Any:
    """Convert a value. why: the message ends with what was wrong."""
    try:
        return convert(value)
    except Exception as error:  # such as of a tensor on a GPU, or of rows of unequal length
        raise Misreturned(given, value, f"{wanted} ({error})" if why else wanted) from error


def _parts(given: str, value: Any, kind: Any) -> Any:
    """The fields of a state or a report, which may be a plain tuple or dict."""
    if isinstance(value, Mapping) and set(value) == set(kind._fields):
        return [value[name] for name in kind._fields]
    if isinstance(value, (list, tuple)) and len(value) == len(kind._fields):
        return value
    raise Misreturned(given, value, f"which must be ({', '.join(kind._fields)})")


def _by_name(given: str, value: Any, of: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise Misreturned(given, value, f"which must be a mapping of names to {of}")
    return value


def _number(given: str, value: Any) -> float:
    return _as(float, given, value, "which must be a number")


def _numbers(given: str, value: Any) -> list[float]:
    return _as(lambda x: [float(number) for number in x], given, value, "which must be a list of numbers")


def _count(given: str, value: Any) -> int:
    found = _number(given, value)
    if not (found.is_integer() and 0 <= found < 2**53):
        raise Misreturned(given, value, "which must be an integer, not below 0")
    return int(found)


def _arrays(part: str, value: Any) -> dict[str, np.ndarray]:
    given, wanted = f"get_state returned {part}", "which must be an array of bool, integers or floats"
    arrays = _by_name(f"{given} =", value, "arrays")
    return {name: _array(f"{given}[{name!r}] =", x, wanted) for name, x in arrays.items()}


def _array(given: str, value: Any, wanted: str) -> np.ndarray:
    found = _as(np.asarray, given, value, wanted, why=True)
    if found.dtype.str not in DTYPES:
        raise Misreturned(given, value, wanted)
    return found


def _as_json(given: str, value: Any) -> Any:
    _as(json.dumps, given, value, "which must be JSON", why=True)
    return value
