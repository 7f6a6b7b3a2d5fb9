"""Dataclasses from plain data: unknown names, wrong types and the line of a file where they stand."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from shoal.core.errors import BadField, BadInput, unknown

WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    dict: "a mapping",
    Mapping: "a mapping",
}


def build(kind: type, values: Any, prefix: str) -> Any:
    """A dataclass from plain data. Raises BadInput that names the field by its dotted path, `prefix` in front."""
    if not isinstance(values, dict):
        raise BadField(prefix.rstrip("."), "must be a mapping of fields to values")
    known = {f.name: f for f in fields(kind)}
    hints = get_type_hints(kind)
    made = {}
    for name, value in values.items():
        if name not in known:
            raise unknown(prefix.rstrip("."), str(name), known)
        try:
            made[name] = convert(hints[name], value, f"{prefix}{name}")
        except BadField as error:
            raise explained(error, kind, prefix) from error
    try:
        return kind(**made)
    except BadField as error:
        raise error.within(prefix.rstrip(".")) from error


def convert(hint: Any, value: Any, place: str) -> Any:
    """`value` as the type that `hint` asks for, where nothing is lost by it."""
    if hint is Any:
        return value
    if is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else build(hint, value, f"{place}.")
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
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if base is float:
            if not abs(value) <= sys.float_info.max:  # NaN is not, and a whole number may be larger than any float
                raise BadField(place, "must be a finite number", value=value)
            return float(value)
        if base is int and (isinstance(value, int) or value.is_integer()):
            return int(value)
    if not isinstance(value, base) or (base is int and isinstance(value, bool)):
        raise BadField(place, f"must be {WORDS.get(base, 'a list')}", value=f"{value!r}")
    return value


def descriptions(kind: type) -> dict[str, str]:
    """The description of each field of a dataclass: the text under it."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for statement, after in pairwise(definition.body):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def explained(error: BadField, kind: type, prefix: str = "") -> BadField:
    """The same error, with the description of the field of a dataclass that it is about."""
    name = error.path.removeprefix(prefix)
    if error.advice or name not in (known := descriptions(kind)):
        return error
    return BadField(error.field, f"{error.problem} ({known[name]})", value=error.value, name=error.name)


LONGEST = 300  # characters of an error message of other people's code


def import_from(name: str, what: str) -> Any:
    """The object at module:name. Raises BadInput, whatever its module does when it is imported."""
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise BadField(what, f"{name!r} cannot be imported: write module:name")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:
        raise BadField(what, f"{name} cannot be imported: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """An error of other people's code in one line: its kind, message and place."""
    text = textwrap.shorten(str(error), LONGEST, placeholder=" ...")
    place = traceback.extract_tb(error.__traceback__)[-1]
    here = place.filename == __file__  # raised by what has no lines of its own
    if isinstance(error, (ImportError, SyntaxError)) or (here and isinstance(error, AttributeError)):
        return text
    return f"{type(error).__name__}: {text}{'' if here else f' ({Path(place.filename).name}, line {place.lineno})'}"


def call(field: str, what: str, function: Callable, /, *arguments: Any, **options: Any) -> Any:
    """Call what the user named. Raises BadInput where it does not take these options; its own errors pass."""
    try:
        inspect.signature(function).bind(*arguments, **options)
    except TypeError as error:
        raise BadField(field, f"{what} does not take {options or 'no options'}: {error}") from error
    except ValueError:  # a function without a signature, such as some of Python's own
        pass
    return function(*arguments, **options)


def call_own(field: str, what: str, function: Callable, /, *arguments: Any, **options: Any) -> Any:
    """Call what the user named and has written. Raises BadInput where it does not take these options, or fails."""
    try:
        return call(field, what, function, *arguments, **options)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        raise BadField(field, f"{what} failed: {one_line(error)}") from error


def plain(value: Any) -> Any:
    """Tuples as lists and NumPy numbers as Python's, for JSON and YAML."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value.item() if hasattr(value, "item") else value


DEEPEST, REPEATED = 50, 10_000  # levels of a text, and values that its aliases repeat
PLAIN = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}
# YAML 1.1 takes 1e-4 for text; people mean the number, as does YAML 1.2.
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$")


class _Loader(yaml.SafeLoader):
    """Plain data only: dates are text, names are text, and what a value cannot be says its line."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem=f"more than {DEEPEST} levels deep", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        kind = node.tag.rpartition(":")[2]
        try:
            value = super().construct_object(node, deep)
        except (ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise yaml.MarkedYAMLError(
                problem=f"{node.value!r:.40} is no {kind}", problem_mark=node.start_mark
            ) from error
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise yaml.MarkedYAMLError(problem="a whole number is beyond 64 bits", problem_mark=node.start_mark)
        return value


class _Dumper(yaml.SafeDumper):
    """Quotes text that `_Loader` would take for a number."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in PLAIN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+.0123456789"))


def read_yaml(text: str) -> Any:
    """A YAML text as plain data. Raises BadInput."""
    return parse(text)[0]


def write_yaml(data: Any) -> str:
    """Plain data as a YAML text that `read_yaml` reads back."""
    return yaml.dump(plain(data), Dumper=_Dumper, sort_keys=False, width=120)


def parse(text: str) -> tuple[Any, dict[str, int]]:
    """The values of a YAML text and the line of every dotted path. Raises BadInput for what is not plain data."""
    lines: dict[str, int] = {}
    seen: set[int] = set()
    repeated = 0

    def walk(node: Any, path: str, depth: int) -> None:
        nonlocal repeated
        repeated += id(node) in seen
        seen.add(id(node))
        line = node.start_mark.line + 1
        if depth > DEEPEST or repeated > REPEATED:
            raise BadInput("not valid YAML: its aliases repeat too much", line)
        if node.tag not in PLAIN:
            raise BadInput(f"not valid YAML: {node.tag.replace('tag:yaml.org,2002:', '!!')} is not plain data", line)
        if isinstance(node, yaml.ScalarNode) and re.search("[\0\ud800-\udfff]", node.value):
            raise BadInput("not valid YAML: text with a character that no file can hold", line)
        if isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                lines[f"{path}.{i}"] = item.start_mark.line + 1
                walk(item, f"{path}.{i}", depth + 1)
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise BadInput("not valid YAML: a name must be text", line)
            if not key.tag.endswith(":merge"):
                key.tag = "tag:yaml.org,2002:str"  # also where it looks like a number, or like yes and no
            walk(key, path, depth + 1)
            place = f"{path}.{key.value}" if path else key.value
            if place in lines:
                raise BadInput(f"{place} is given twice, in lines {lines[place]} and {line}", line)
            lines[place] = line
            walk(value, place, depth + 1)

    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, {}
        walk(node, "", 0)
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise BadInput(f"not valid YAML: {error.problem}", mark.line + 1 if mark else None) from error
    except yaml.YAMLError as error:
        raise BadInput(f"not valid YAML: {str(error).splitlines()[0]}") from error
