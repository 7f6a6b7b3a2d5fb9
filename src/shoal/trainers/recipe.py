"""A trainer from its recipe, and what it says of itself: a part of `server`, in the process that has its packages."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import keyword
import traceback
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence  # noqa: UP035 (Python 3.8)

ADAPTERS = ("rl_games", "sb3")  # files beside this one, each with a function `trainer(name)` that gives a class
LONGEST = 300  # characters of an error message of other people's code


class BadInput(Exception):
    """What the experiment asks for and cannot have: `field` says where it does, `known` what there is instead of `name`."""

    def __init__(self, field: str, text: str, name: str = "", known: Sequence[str] = ()):
        super().__init__(text)
        self.field, self.name, self.known = field, name, known


def trainer_class(name: str) -> Any:
    """The class that `adapter:NAME` or `package.module:Class` names. Raises BadInput."""
    place, _, attribute = name.partition(":")
    with complaints("agent"):
        if place in ADAPTERS:
            return importlib.import_module(f"{__package__}.{place}").trainer(attribute)
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise BadInput("agent", f"there is no module {error.name}") from error
    if not hasattr(module, attribute):
        known = [name for name, x in vars(module).items() if isinstance(x, type) and hasattr(x, "train")]
        raise BadInput("agent", f"there is no {attribute} in {place}", attribute, known)
    return getattr(module, attribute)


def build(kind: Any, recipe: Mapping[str, Any]) -> Any:
    """A trainer from its recipe. Raises BadInput."""
    arguments, options = (recipe["env"], recipe["env_options"]), recipe["config"]
    try:
        inspect.signature(kind).bind(*arguments, **options)
    except TypeError as error:
        raise BadInput("config", f"{recipe['trainer']} does not take it: {error}") from error
    with complaints("config"):
        return kind(*arguments, **options)


def described(trainer: Any) -> dict[str, Any]:
    """What a trainer says of itself, as its host wants it. Raises BadInput."""
    with complaints("config"):
        return {
            "hyper": {named(name): float(value) for name, value in trainer.hyper.items()},
            "space": {name: as_mapping(values) for name, values in trainer.space.items()},
            "limits": limits_of(trainer),
            "spec": getattr(trainer, "spec", None),
            "act": hasattr(trainer, "act"),
            "export": hasattr(trainer, "export"),
        }


def named(name: Any) -> str:
    """The name of a hyperparameter, which the host makes a field of a tuple. Raises BadInput."""
    if not (isinstance(name, str) and name.isidentifier()) or keyword.iskeyword(name) or name.startswith("_"):
        allowed = "letters, digits and _, a letter first, and no word of Python's own"
        raise BadInput("agent", f"its hyper has {name!r}, and a name must be {allowed}")
    return name


def as_mapping(values: Any) -> Any:
    """A range as a mapping of its fields, where it is [low, high] or [low, high, scale]; else as it is."""
    if isinstance(values, (list, tuple)) and len(values) in (2, 3):
        return dict(zip(("low", "high", "scale"), values))  # noqa: B905 (Python 3.8)
    return values


def limits_of(trainer: Any) -> dict[str, tuple[float, float]]:
    """The lowest and highest possible value of some hyperparameters. Raises BadInput."""
    limits = getattr(trainer, "limits", None)
    try:
        return {name: (float(low), float(high)) for name, (low, high) in (limits or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise BadInput("agent", f"its limits = {limits} must be {{name: (lowest, highest)}}") from error


@contextlib.contextmanager
def complaints(field: str) -> Iterator[None]:
    """What a trainer raises about its input becomes BadInput, about `field` where it does not say of which field."""
    try:
        yield
    except ModuleNotFoundError as error:
        advice = "install it there, or name an interpreter that has it"
        raise BadInput("python", f"lacks a package: {error}; {advice}") from error
    except ValueError as error:
        known = getattr(error, "known", ())
        raise BadInput(getattr(error, "field", field), str(error), getattr(error, "name", ""), known) from error


def one_line(error: BaseException) -> str:
    """An error in one line: its kind, message and place."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())[:LONGEST]
    return f"{type(error).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"
