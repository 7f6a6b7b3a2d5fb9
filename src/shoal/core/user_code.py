"""Other people's code: whatever goes wrong when it is imported, called or run becomes one clear line.

`attributed` turns its exceptions into BadInput; `import_from` and `call_own` use it. `one_line` is the text alone.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.core.errors import BadField, BadInput

LONGEST = 300  # characters of an error message of other people's code
OBJECT = "object"  # stands in a file for the module of what was given in Python and cannot be imported


def name_of(value: Any) -> Any:
    """The name of a part in a file: as it was given, by where it can be imported, or as an object that no file can hold."""
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "__qualname__") and "<" not in value.__qualname__ and value.__module__ != "__main__":
        return f"{value.__module__}:{value.__qualname__}"
    return f"{OBJECT}:{getattr(value, '__qualname__', type(value).__qualname__)}"


def import_from(name: str, what: str) -> Any:
    """The object at module:name. Raises BadInput, whatever its module does when it is imported."""
    module, _, attribute = name.partition(":")
    if module == OBJECT:
        raise BadField(what, f"was given in Python as an object of its own ({attribute})", f"give it again: {what}=...")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise BadField(what, f"{name!r} cannot be imported: write module:name")
    with attributed(what, f"{name} cannot be imported"):
        return getattr(importlib.import_module(module), attribute)


@contextmanager
def attributed(field: str, failed: str, **more: Any) -> Iterator[None]:
    """Turn exceptions of other people's code inside into BadInput, with the place in that code.

    field: of the experiment, which names the code. failed: what could not be done, for the message. more: of `BadField`
    """
    try:
        yield
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        raise BadField(field, f"{failed}: {one_line(error)}", **more) from error


def one_line(error: BaseException) -> str:
    """Describe an error of other people's code in one line: kind, message and place."""
    text = textwrap.shorten(str(error), LONGEST, placeholder=" ...")
    place = traceback.extract_tb(error.__traceback__)[-1]
    here = place.filename == __file__  # raised by what has no lines of its own
    if isinstance(error, (ImportError, SyntaxError)) or (here and isinstance(error, AttributeError)):
        return text
    kind = type(error).__name__
    return f"{kind}{text and f': {text}'}{'' if here else f' ({Path(place.filename).name}, line {place.lineno})'}"


def call(field: str, what: str, function: Callable, /, *arguments: Any, **options: Any) -> Any:
    """Call what the user named. Raises BadInput where it does not take these options; its own errors pass."""
    if problem := misfit(function, *arguments, **options):
        raise BadField(field, f"{what} does not take {options or f'{len(arguments)} arguments'}: {problem}")
    return function(*arguments, **options)


def misfit(function: Callable, /, *arguments: Any, **options: Any) -> str:
    """Describe why a function does not take these arguments; empty where it does."""
    try:
        inspect.signature(function).bind(*arguments, **options)
    except TypeError as error:
        return str(error)
    except ValueError:  # a function without a signature, such as some of Python's own
        pass
    return ""


def call_own(field: str, what: str, function: Callable, /, *arguments: Any, **options: Any) -> Any:
    """Call what the user named and has written. Raises BadInput where it does not take these options, or fails."""
    with attributed(field, f"{what} failed"):
        return call(field, what, function, *arguments, **options)
