"""What a trainer gave, held to the protocol, as its host wants it: a part of `server`, in the process of the trainer.

Each function raises Misreturned, which says what was given by which method, and what it must be.
"""

from __future__ import annotations

import json
import keyword
from typing import Any, Dict, List, Mapping, Sequence, Tuple  # noqa: UP035 (Python 3.8)

import numpy as np
from shoal_trainers.recipe import BadInput, complaints
from shoal_trainers.trainer import Report, State
from shoal_trainers.wire import DTYPES

LONGEST = 100  # characters of a value that are shown


class Misreturned(Exception):
    """A method gave something else than the protocol says."""

    def __init__(self, given: str, value: Any, wanted: str):
        shown = " ".join(repr(value).split())
        super().__init__(f"{given} {shown if len(shown) <= LONGEST else f'{shown[:LONGEST]}...'}, {wanted}")


def description(trainer: Any) -> Dict[str, Any]:  # noqa: UP006
    """What a trainer says of itself. Raises BadInput."""
    with complaints("config"):  # some find out when they are asked
        told = {name: getattr(trainer, name, None) for name in ("hyper", "space", "limits", "spec")}
    try:
        described = {
            "hyper": hyper(told["hyper"]),
            "space": space(told["space"]),
            "limits": limits(told["limits"]),
            "spec": _as_json("its spec is", told["spec"]),
        }
    except Misreturned as error:
        raise BadInput("agent", str(error)) from error
    return {**described, "act": hasattr(trainer, "act"), "export": hasattr(trainer, "export")}


def hyper(value: Any) -> Dict[str, float]:  # noqa: UP006
    """The usual values of hyperparameters, whose names the host makes fields of a tuple."""
    values = _by_name("its hyper is", value, "numbers")
    for name in values:
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            allowed = "letters, digits and _, a letter first, and no word of Python's own"
            raise Misreturned("its hyper has", name, f"and a name must be {allowed}")
    return {name: _number(f"its hyper has {name} =", x) for name, x in values.items()}


def space(value: Any) -> Dict[str, Any]:  # noqa: UP006
    """Ranges; those that are [low, high] or [low, high, scale] as mappings of their fields, others as they are."""

    def as_mapping(given: Any) -> Any:
        if isinstance(given, (list, tuple)) and len(given) in (2, 3):
            return dict(zip(("low", "high", "scale"), given))  # noqa: B905 (Python 3.8)
        return given

    ranges = _by_name("its space is", value, "ranges")
    return _as_json("its space is", {name: as_mapping(given) for name, given in ranges.items()})


def limits(value: Any) -> Dict[str, Tuple[float, float]]:  # noqa: UP006
    """The lowest and highest possible value of some hyperparameters."""
    try:
        return {name: (float(low), float(high)) for name, (low, high) in (value or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise Misreturned("its limits are", value, "and they must be {name: (lowest, highest)}") from error


def report(value: Any) -> Report:
    """What came out of `train`."""
    steps, returns, metrics = _parts("train returned", value, Report)
    return Report(
        _count("train returned steps =", steps),
        _numbers("train returned returns =", returns),
        {
            name: _number(f"train returned the metric {name} =", x)
            for name, x in _by_name("train returned metrics =", metrics, "numbers").items()
        },
    )


def state(value: Any) -> State:
    """What `get_state` gave."""
    learned, memory, own = _parts("get_state returned", value, State)
    own = _as_json("get_state returned own =", _by_name("get_state returned own =", own, "values"))
    return State(_arrays("learned", learned), _arrays("memory", memory), own)


def returns(value: Any, seeds: Sequence[int]) -> List[float]:  # noqa: UP006
    """What `evaluate` returned."""
    found = _numbers("evaluate returned", value)
    if len(found) != len(seeds):
        raise Misreturned("evaluate returned", value, f"which must be one return for each of {len(seeds)} seeds")
    return found


def evaluation_steps(value: Any) -> int:
    """What it says that the last `evaluate` has taken."""
    return _count("its evaluation_steps are", value)


def actions(value: Any, observations: int) -> np.ndarray:
    """What `act` returned for so many observations."""
    wanted = f"which must be an array of numbers with an action for each of {observations} observations"
    found = _array("act returned", value, wanted)
    if found.shape[:1] != (observations,):
        raise Misreturned("act returned", value, wanted)
    return found


def files(value: Any) -> List[str]:  # noqa: UP006
    """What `export` returned."""
    if not isinstance(value, (list, tuple)):
        raise Misreturned("export returned", value, "which must be a list of the files written")
    return [str(file) for file in value]


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
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Misreturned(given, value, "which must be a number") from error


def _numbers(given: str, value: Any) -> List[float]:  # noqa: UP006
    try:
        return [float(x) for x in value]
    except (TypeError, ValueError, OverflowError) as error:
        raise Misreturned(given, value, "which must be a list of numbers") from error


def _count(given: str, value: Any) -> int:
    found = _number(given, value)
    if not (found.is_integer() and 0 <= found < 2**53):
        raise Misreturned(given, value, "which must be a whole number, not below 0")
    return int(found)


def _arrays(part: str, value: Any) -> Dict[str, np.ndarray]:  # noqa: UP006
    given = _by_name(f"get_state returned {part} =", value, "arrays")
    wanted = "which is not an array of plain numbers"
    return {name: _array(f"get_state returned {part}[{name!r}] =", x, wanted) for name, x in given.items()}


def _array(given: str, value: Any, wanted: str) -> np.ndarray:
    try:
        found = np.asarray(value)
    except Exception as error:  # such as of a tensor on a GPU, or of rows of unequal length
        raise Misreturned(given, value, f"{wanted} ({error})") from error
    if found.dtype.str not in DTYPES:
        raise Misreturned(given, value, wanted)
    return found


def _as_json(given: str, value: Any) -> Any:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Misreturned(given, value, f"which is no JSON ({error})") from error
    return value
