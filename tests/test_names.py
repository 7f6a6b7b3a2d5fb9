"""Python 3.12.0 and 3.12.1 take a name of the module for unbound where another comprehension of the function has its own."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import shoal

ROOT = Path(shoal.__file__).parent
COMPREHENSIONS = ast.ListComp, ast.SetComp, ast.DictComp
parse = cache(ast.parse)


def confused(source: str) -> set[str]:
    """The module's names that a comprehension takes, and another one in the same function has for its own."""
    module = parse(source)
    known = {name for node in module.body for name in bound(node)}
    found: set[str] = set()
    for function in (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)):
        own, taken = set(), set()
        for comprehension in (node for node in ast.walk(function) if isinstance(node, COMPREHENSIONS)):
            names = [x for x in ast.walk(comprehension) if isinstance(x, ast.Name)]
            mine = {x.id for x in names if isinstance(x.ctx, ast.Store)}
            own, taken = own | mine, taken | {x.id for x in names} - mine
        found |= own & taken & known
    return found


def bound(node: ast.stmt) -> set[str]:
    """The names that a statement of a module gives it."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}


def test_no_name_is_confused() -> None:
    assert not {path.name: names for path in ROOT.rglob("*.py") if (names := confused(path.read_text()))}


def test_one_that_is() -> None:
    other = "[x for x in steps if count(x)]"
    source = f"from a import count\ndef f(steps):\n    told = [{{0}} for {{0}} in steps]\n    return told, {other}"
    assert confused(source.format("count")) == {"count"} and not confused(source.format("x"))


def test_no_class_name_stands_twice() -> None:
    found = [
        x.name for path in ROOT.rglob("*.py") for x in ast.walk(parse(path.read_text())) if type(x) is ast.ClassDef
    ]
    assert not {name for name in found if found.count(name) > 1}
