"""A trainer from its recipe: a part of `server`, in the process that has its packages."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import traceback
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence  # noqa: UP035 (Python 3.8)

# Files beside this one, each with a function `trainer(name)` that gives a class, and what installs what that needs.
ADAPTERS = {"rl_games": "pip install rl-games", "sb3": "pip install stable-baselines3 sb3-contrib"}
OF_FILES = ("rl_games",)  # those whose NAME is that of a file
LONGEST = 300  # characters of an error message of other people's code


class BadRecipe(Exception):
    """A setting of the experiment that cannot be: `field` says where it stands, `known` the alternatives to `name`."""

    def __init__(self, field: str, text: str, name: str = "", known: Sequence[str] = ()):
        super().__init__(text)
        self.field, self.name, self.known = field, name, known


def trainer_class(name: str) -> Any:
    """The class that `adapter:NAME` or `package.module:Class` names. Raises BadRecipe."""
    place, _, attribute = name.partition(":")
    with attributed("agent", ADAPTERS.get(place, "install it")):
        if place in ADAPTERS:
            return importlib.import_module(f"{__package__}.{place}").trainer(attribute)
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            raise BadRecipe("agent", f"there is no module {error.name}") from error
    if not hasattr(module, attribute):
        known = [name for name, x in vars(module).items() if isinstance(x, type) and hasattr(x, "train")]
        raise BadRecipe("agent", f"there is no {attribute} in {place}", attribute, known)
    return getattr(module, attribute)


def build(kind: Any, recipe: Mapping[str, Any]) -> Any:
    """A trainer from its recipe. Raises BadRecipe."""
    arguments, options = (recipe["env"], recipe["env_options"]), recipe["config"]
    try:
        inspect.signature(kind).bind(*arguments, **options)
    except TypeError as error:
        raise BadRecipe("config", f"{recipe['trainer']} does not take it: {error}") from error
    with attributed("config"):
        return kind(*arguments, **options)


def environment(name: str, options: Mapping[str, Any]) -> Any:
    """The environment of gymnasium that `gym:ID`, an id, or `module:Class` names. Raises what making it raises."""
    module, colon, attribute = name.partition(":")
    if colon and module != "gym" and (own := getattr(importlib.import_module(module), attribute, None)) is not None:
        made = own(**options)  # a class, or a function that makes one
        if hasattr(made, "possible_agents"):
            raise TypeError("it has several agents, as PettingZoo's environments do, and a member acts for one")
        return made
    return importlib.import_module("gymnasium").make(name.removeprefix("gym:"), **options)


@contextlib.contextmanager
def attributed(field: str, installing: str = "install it") -> Iterator[None]:
    """Turn what a trainer raises about its input into BadRecipe, of `field` where it names none.

    It is not that of core/user_code.py, as Shoal need not be here; nor is the input to blame for every error: others end
    the call, and say where in other people's code they arose.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        advice = f"{installing} there, or name an interpreter that has it: --python PATH"
        raise BadRecipe("python", f"lacks a package: {error}; {advice}") from error
    except ValueError as error:
        known = getattr(error, "known", ())
        raise BadRecipe(getattr(error, "field", field), str(error), getattr(error, "name", ""), known) from error


def one_line(error: BaseException) -> str:
    """An error in one line: its kind, message, and the place in other people's code."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST]}"
    file = Path(place.filename)
    ours = file.parent == Path(__file__).parent and file.stem not in ADAPTERS  # which has only called it
    return text if ours else f"{text} ({file.name}, line {place.lineno})"
