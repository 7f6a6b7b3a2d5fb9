"""What the names in an experiment lead to: methods, agents, selectors, explorers, ranges; and back to plain data."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, Literal

from shoal.core.errors import BadField, unknown
from shoal.core.schema import as_given, build
from shoal.core.user_code import call_own, import_from
from shoal.environments.objective import Minimised, Objective
from shoal.methods import METHODS
from shoal.methods.explore import EXPLORERS
from shoal.methods.method import Method
from shoal.methods.select import SELECTORS

OBJECT = "object"  # stands in a file for what was given in Python and has no name to import it by
# What a selector and an explorer are called with.
CALLED = {"select": "key, stats, mine", "explore": "key, hyper, space, uid"}
REGISTRIES: dict[str, dict[str, type]] = {"method": METHODS, "select": SELECTORS, "explore": EXPLORERS}


def in_full(spec: Any, kind: str) -> dict[str, Any]:
    """A method, selector or explorer as a mapping of its name and options, however it is given; of what Python has made
    itself the name is the object."""
    shoals = {cls: name for name, cls in REGISTRIES[kind].items()}
    if type(spec) in shoals:
        spec = {"name": shoals[type(spec)]} | as_given(spec)
    elif not isinstance(spec, dict):
        spec = {"name": spec}
    if kind == "method" and isinstance(spec.get("name"), str) and spec["name"] in METHODS:
        usual = {f.name: f.default for f in fields(METHODS[spec["name"]]) if f.default is not MISSING}
        spec = {"name": spec["name"]} | usual | spec
    return {x: in_full(option, x) if _is_part(x, kind) else option for x, option in spec.items()}


def in_short(spec: dict[str, Any], kind: str = "method") -> Any:
    """What a file says for a mapping of `in_full`: names for objects, and a name alone where there are no options."""
    made = spec.get("name")
    if is_dataclass(made) and not isinstance(made, type):
        spec = in_full({"name": type(made)} | as_given(made), kind)
    told = {x: in_short(option, x) if _is_part(x, kind) else option for x, option in spec.items()}
    told["name"] = name_of(told.get("name"))
    return told if len(told) > 1 else told["name"]


def _is_part(option: str, kind: str) -> bool:
    """Whether an option names a selector or an explorer."""
    return kind == "method" and option in CALLED


def method(spec: Any) -> Method:
    """The method that an experiment has, with its selector and its explorer. Raises BadInput."""
    made = component(spec, "method")
    options = [f.name for f in fields(made)] if is_dataclass(made) else []
    parts = {x: component(getattr(made, x), f"method.{x}") for x in CALLED if x in options}
    return replace(made, **parts) if parts else made


def component(spec: Any, what: str) -> Any:
    """A method, selector or explorer, however it is given. Raises BadInput. what: the field that it stands in."""
    kind = what.rpartition(".")[2]
    registry, options = REGISTRIES[kind], in_full(spec, kind)
    name = options.pop("name", None)
    if name is None:
        having = [known for known, cls in registry.items() if options.keys() <= {f.name for f in fields(cls)}]
        raise BadField(what, f"needs a name, one of {', '.join(having or registry)}")
    if isinstance(name, str) and ":" not in name:
        if name not in registry:
            raise unknown(what, name, registry)
        return build(registry[name], options, f"{what}.")
    target = import_object(name, what) if isinstance(name, str) else name
    made = call_own(what, f"{name}", target, **options) if isinstance(target, type) or options else target
    if not _fits(made, kind):
        if target is name:
            names = ", ".join(registry)
            raise BadField(what, f"write one of {names}, or a mapping of name and options", value=f"{name!r}")
        use = f"is called with ({CALLED[kind]})" if kind in CALLED else "is a subclass of shoal.methods.method.Method"
        raise BadField(what, f"{name} is none: what goes here {use}")
    return made


def _fits(made: Any, kind: str) -> bool:
    """Whether an object can be a method, selector or explorer."""
    if kind not in CALLED:
        return isinstance(made, Method)
    if isinstance(made, type) or not callable(made):
        return False
    try:
        inspect.signature(made).bind(*CALLED[kind].split(", "))
    except TypeError:
        return False
    except ValueError:  # it has no signature, as some of Python's own functions
        pass
    return True


def objective(value: Any, direction: Literal["maximise", "minimise"]) -> Objective:
    """What an episode is worth instead of its return: a dotted key into its last info, or a function of that."""
    if value is None:
        return None
    if isinstance(value, str) and ":" in value:
        value = import_object(value, "fitness.objective")
    if not callable(value) and not isinstance(value, str):
        raise BadField("fitness.objective", "write a dotted key, or module:function", value=f"{value!r}")
    return value if direction == "maximise" else Minimised(value)


def import_object(name: str, what: str) -> Any:
    """The object at module:name. Raises BadInput."""
    module, _, attribute = name.partition(":")
    if module == OBJECT:
        raise BadField(what, f"was given in Python as an object of its own ({attribute})", f"give it again: {what}=...")
    return import_from(name, what)


def name_of(value: Any) -> Any:
    """How a file names a part: as the user did, by where it can be imported, or as an object that it cannot hold."""
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "__qualname__") and "<" not in value.__qualname__ and value.__module__ != "__main__":
        return f"{value.__module__}:{value.__qualname__}"
    return f"{OBJECT}:{getattr(value, '__qualname__', type(value).__qualname__)}"
