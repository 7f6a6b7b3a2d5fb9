"""What programs compute, as keys: tiny runs of tests share what was compiled for another one that computes the same."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from shoal.members.devices import Layout, Program

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic, range)
_kept: list[Any] = []  # what is known by its place in memory, which nothing else may get


def fingerprint(x: Any, of: Any = None, seen: tuple[int, ...] = ()) -> Any:
    """A key that two things share only where programs made with them are the same: functions by their code and all that it
    reaches. of: whose method it is."""
    if isinstance(x, PLAIN):
        return repr(x)
    if id(x) in seen:
        return "above"
    inner = functools.partial(fingerprint, seen=(*seen, id(x)))
    match x:
        case types.FunctionType():
            return _of_function(x, of, inner)
        case types.MethodType():
            return inner(x.__func__, x.__self__)
        case functools.partial():
            return inner((x.func, x.args, x.keywords))
        case type() | types.BuiltinFunctionType() | types.ModuleType() | np.ufunc():
            return f"{getattr(x, '__module__', '')}.{x.__name__}"
        case tuple() | list():
            return type(x).__qualname__, *map(inner, x)
        case dict() | types.MappingProxyType():
            return tuple((inner(key), inner(value)) for key, value in x.items())
        case np.ndarray() | jax.Array():
            raw = jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
            return str(x.dtype), x.shape, np.asarray(raw).tobytes()
        case jax.ShapeDtypeStruct():
            return str(x.dtype), x.shape
        case Layout():
            return "devices", x.devices
        case Program():
            return "program"  # what a function calls is traced anew
    if callable(wrapped := getattr(x, "__wrapped__", None)):  # jitted
        return inner(wrapped)
    if dataclasses.is_dataclass(x):
        fields = {f.name: getattr(x, f.name, None) for f in dataclasses.fields(x) if f.name != "parent"}
        return type(x).__qualname__, inner(fields)
    if hasattr(x, "__dict__"):
        return f"{type(x).__module__}.{type(x).__qualname__}", inner(vars(x))
    _kept.append(x)
    return "at", id(x)


def _of_function(function: types.FunctionType, of: Any, inner: Callable) -> Any:
    """Its code, defaults, what it closes over, plain values of its module, and what it names of its object `of`."""
    code, reached = function.__code__, []
    for name in _names(code):
        if of is not None and hasattr(type(of), name):
            reached.append((name, inner(getattr(type(of), name), of)))
        elif of is not None and name in getattr(of, "__dict__", {}):
            reached.append((name, inner(vars(of)[name])))
        value = function.__globals__.get(name)
        if isinstance(value, (*PLAIN, tuple)):
            reached.append((name, inner(value)))
    cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    return _text(code), inner(function.__defaults__), inner(function.__kwdefaults__), inner(cells), tuple(reached)


def _names(code: types.CodeType) -> list[str]:
    within = [name for const in code.co_consts if isinstance(const, types.CodeType) for name in _names(const)]
    return sorted({*code.co_names, *within})


def _text(code: types.CodeType) -> Any:
    """Code, whatever its place in a file."""
    consts = tuple(_text(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts)
    return code.co_qualname, code.co_filename, code.co_code, code.co_names, consts


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def share(patch: pytest.MonkeyPatch) -> None:
    """From now on, programs of the same key and shapes of arguments are compiled once."""
    program, gather = Layout.program, Layout.gather

    def keyed(
        make: Callable, layout: Layout, function: Callable, *members: Any, out: Any = True, donate: Any = ()
    ) -> Any:
        made = make(layout, function, *members, out=out, donate=donate)
        key = make.__name__, fingerprint(function), repr((members, out, donate)), layout.devices
        return SharedProgram(made.function, made.mesh, key)

    patch.setattr(Layout, "program", lambda layout, *given, **options: keyed(program, layout, *given, **options))
    patch.setattr(Layout, "gather", lambda layout, *given, **options: keyed(gather, layout, *given, **options))


class SharedProgram(Program):
    """A program that others share, which compute the same with arguments of the same shapes."""

    programs: dict[Any, Program] = {}  # noqa: RUF012 (of the whole session)

    def __init__(self, function: Any, mesh: Any, key: Any):
        super().__init__(function, mesh)
        self.key = key

    def _same(self, arguments: Any) -> Program:
        leaves, structure = jax.tree.flatten(arguments)
        shapes = tuple((np.shape(x), str(getattr(x, "dtype", type(x)))) for x in leaves)
        own = Program(self.function, self.mesh)
        return self.programs.setdefault((self.key, str(structure), shapes), own)

    def compile(self, *arguments: Any) -> None:
        program = self._same(arguments)
        program.compile(*arguments)
        self.compiling = program.compiling

    def __call__(self, *arguments: Any) -> Any:
        program = self._same(arguments)
        result = program(*arguments)
        self.compiling = program.compiling
        return result
