"""Dataclasses from plain data: unknown names, wrong types, and what each field means."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import pairwise
from numbers import Integral, Real
from operator import index
from os import PathLike, fspath
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from shoal.core.errors import BadField, error_context, number_here, unknown

WORDS = {
    int: "an integer",
    float: "a number",
    str: "text",
    bool: "true or false",
    dict: "a mapping",
    Mapping: "a mapping",
}


def build(kind: type, values: Any, prefix: str) -> Any:
    """Build a dataclass from plain data. Raises BadInput that names the field by its dotted path, `prefix` in front."""
    made = converted(kind, values, prefix)
    with error_context(prefix.rstrip(".")):
        return kind(**made)


def converted(kind: type, values: Any, prefix: str = "") -> dict[str, Any]:
    """Convert plain data to the fields of a dataclass, each of its type. Raises BadInput as `build` does."""
    if not isinstance(values, dict):
        raise BadField(prefix.rstrip("."), "must be a mapping of fields to values")
    known = _hints(kind)
    made = {}
    for name, value in values.items():
        if name not in known:
            raise unknown(prefix.rstrip("."), str(name), known)
        try:
            made[name] = convert(known[name], value, f"{prefix}{name}")
        except BadField as error:
            raise explained(error, kind, prefix) from error
    return made


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind)}


def convert(hint: Any, value: Any, place: str) -> Any:
    """Convert `value` to the type of `hint` where that loses nothing. NumPy's numbers and paths count too.

    `Annotated[int, "auto"]` is an integer, or this word for one that is not known yet; with a function in place of the
    word, it is what that makes of the value.
    """
    if get_origin(hint) is Annotated:
        hint, extra = get_args(hint)
        if value == extra:
            return value
        if callable(extra):
            with error_context(place):
                value = extra(value)
    if hint is Any:
        return value
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, hint):
            with error_context(place):
                value = hint.expand_shorthand(value) if hasattr(hint, "expand_shorthand") else value
            return build(hint, value, f"{place}.")
        made = build(hint, as_given(value), f"{place}.")
        return value if made == value else made
    options, base = get_args(hint), get_origin(hint) or hint
    if type(None) in options:
        return None if value is None else convert(next(o for o in options if o is not type(None)), value, place)
    if base is Literal:
        if value not in options:
            raise unknown(place, str(value), [str(o) for o in options])
        return value
    if base in (tuple, list) and isinstance(value, (list, tuple)):
        if base is list or options[1:] == (Ellipsis,):
            options = options[:1] * len(value)
        if len(value) != len(options):
            raise BadField(place, f"must be a list of {len(options)}", value=list(value))
        return base(convert(o, x, f"{place}.{i}") for i, (o, x) in enumerate(zip(options, value, strict=True)))
    if isinstance(base, type) and issubclass(base, Mapping) and isinstance(value, Mapping):
        return {str(k): convert(options[1], x, f"{place}.{k}") for k, x in value.items()}
    if base is str and isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Real) and not isinstance(value, (bool, int, float)):
        value = index(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if base is float:
            if not abs(value) <= sys.float_info.max:  # NaN is not, and an integer may be larger than any float
                raise BadField(place, "must be a finite number", value=value)
            return float(value)
        if base is int and (isinstance(value, int) or value.is_integer()):
            return int(value)
    if base in (list, tuple) and isinstance(value, (str, int, float)):
        raise BadField(place, f"must be a list: write [{', '.join(str(value).split(','))}]", value=f"{value!r}")
    if not isinstance(value, base) or (base is int and isinstance(value, bool)):
        raise BadField(place, f"must be {WORDS.get(base, 'a list')}", number_here(place, value), value=f"{value!r}")
    return value


def at_least(least: int, value: Any, place: str) -> int:
    """Convert `value` to an integer. Raises BadInput where that loses something, or where it is below `least`."""
    number: int = convert(int, value, place)
    if number < least:
        raise BadField(place, f"must be at least {least}", value=number)
    return number


def as_given(made: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, unconverted."""
    return {f.name: getattr(made, f.name) for f in fields(made)}


def changed_in(value: Any) -> Any:
    """Turn records into dicts of the fields that differ from their defaults, at every depth; keep other values."""
    if isinstance(value, dict):
        return {name: changed_in(of) for name, of in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(value)}
    given = {name: getattr(value, name) for name in defaults}
    return {name: changed_in(of) for name, of in given.items() if of != defaults[name]}


def dotted(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested mappings to one, by dotted names."""
    found: dict[str, Any] = {}
    for name, x in values.items():
        found |= dotted(x, f"{above}{name}.") if isinstance(x, Mapping) else {f"{above}{name}": x}
    return found


def descriptions(kind: type) -> dict[str, str]:
    """Return the description of each field of a dataclass, inherited ones included: the text under it."""
    found = {}
    for part in reversed([base for base in kind.__mro__ if is_dataclass(base)]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(definition, ast.ClassDef)
        for statement, after in pairwise(definition.body):
            match statement, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found


def explained(error: BadField, kind: type, prefix: str = "") -> BadField:
    """Return the same error with the description of its field of a dataclass."""
    name = error.path.removeprefix(prefix)
    if error.advice or name not in (known := descriptions(kind)):
        return error
    return BadField(error.field, f"{error.problem} ({known[name]})", value=error.value, name=error.name)
