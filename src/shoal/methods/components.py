"""Methods, selectors and explorers, made from the names and options that an experiment holds."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from shoal.core.errors import BadField, unknown
from shoal.core.schema import as_given, build
from shoal.core.user_code import call_own, import_from, misfit
from shoal.methods import METHODS
from shoal.methods.explore import EXPLORERS
from shoal.methods.method import Method
from shoal.methods.select import SELECTORS

# Arguments that a selector and an explorer are called with.
SIGNATURES = {"select": "key, stats, rows", "explore": "key, hyper, space, uid"}
REGISTRIES: dict[str, dict[str, type]] = {"method": METHODS, "select": SELECTORS, "explore": EXPLORERS}


def expand_shorthand(given: Any, kind: str = "method") -> dict[str, Any]:
    """Return the mapping of name and options that a name, an object or a mapping stands for; in a method also of its parts.

    The name of what Python has made itself is its class, with its fields as options, or else the object.
    """
    if is_dataclass(given) and not isinstance(given, type):
        names = {cls: name for name, cls in REGISTRIES[kind].items()}
        given = {"name": names.get(type(given), type(given))} | as_given(given)
    elif not isinstance(given, dict):
        given = {"name": given}
    parts = {x: expand_shorthand(given[x], x) for x in SIGNATURES if kind == "method" and x in given}
    return given | parts


def with_defaults(method: dict[str, Any]) -> dict[str, Any]:
    """The mapping with every option of a method of Shoal's, but for those that are None."""
    name = method.get("name")
    if not (isinstance(name, str) and name in METHODS):
        return method
    defaults = {f.name: f.default for f in fields(METHODS[name]) if f.default not in (MISSING, None)}
    return expand_shorthand({"name": name} | defaults | method)


def make_method(given: Any) -> Method:
    """Make the method that a mapping, a name or an object says, with its selector and its explorer. Raises BadInput."""
    made = make_component(given, "method")
    options = [f.name for f in fields(made)]
    return replace(made, **{x: make_component(getattr(made, x), f"method.{x}") for x in SIGNATURES if x in options})


def make_component(given: Any, field: str) -> Any:
    """Make the method, selector or explorer that stands in a field. Raises BadInput."""
    kind = field.rpartition(".")[2]
    registry, options = REGISTRIES[kind], expand_shorthand(given, kind)
    name = options.pop("name", None)
    if name is None:
        having = [known for known, cls in registry.items() if options.keys() <= {f.name for f in fields(cls)}]
        raise BadField(field, f"needs a name, one of {', '.join(having or registry)}")
    if isinstance(name, str) and ":" not in name:
        if name not in registry:
            raise unknown(field, name, registry)
        return build(registry[name], options, f"{field}.")
    target = import_from(name, field) if isinstance(name, str) else name
    made = call_own(field, f"{name}", target, **options) if isinstance(target, type) or options else target
    if not _fits(made, kind):
        if target is name:
            names = ", ".join(registry)
            raise BadField(field, f"write one of {names}, or a mapping of name and options", value=f"{name!r}")
        use = (
            f"is called with ({SIGNATURES[kind]})"
            if kind in SIGNATURES
            else "is a subclass of shoal.methods.method.Method"
        )
        raise BadField(field, f"{name} is none: what goes here {use}")
    return made


def _fits(made: Any, kind: str) -> bool:
    """True for an object that can be a method, selector or explorer."""
    if kind not in SIGNATURES:
        return isinstance(made, Method)
    return not isinstance(made, type) and callable(made) and not misfit(made, *SIGNATURES[kind].split(", "))
