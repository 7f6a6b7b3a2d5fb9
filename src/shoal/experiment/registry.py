"""What the names in an experiment lead to: methods, agents, selectors, explorers, ranges; and back to plain data."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

from shoal.core.errors import BadField, unknown
from shoal.core.schema import build
from shoal.core.user_code import call_own, import_from
from shoal.environments.objective import Objective
from shoal.methods.method import Method
from shoal.methods.methods import METHODS
from shoal.methods.pbt.explore import EXPLORERS
from shoal.methods.pbt.select import SELECTORS

OBJECT = "object"  # stands in a file for what was given in Python and has no name to import it by
# What a selector and an explorer are called with, and what a method has.
CALLED = {"select": "key, cards, mine", "explore": "key, hyper, space, uid"}
PARTS = [*Method.__annotations__, "fit", "learner", "evolver", "space", "explanation"]
REGISTRIES: dict[str, dict[str, type]] = {"method": METHODS, "select": SELECTORS, "explore": EXPLORERS}


def method(spec: Any) -> Method:
    """The method that an experiment names, with the selector and the explorer that it names in turn. Raises BadInput."""
    made = component(spec, "method")
    options = [f.name for f in fields(made)] if is_dataclass(made) else []
    parts = {part: component(getattr(made, part), f"method.{part}") for part in CALLED if part in options}
    return replace(made, **parts) if parts else made


def method_name(spec: Any) -> str:
    """pbt, es, ..., or module:name."""
    data = component_data(spec, "method")
    return str(data.get("name") if isinstance(data, dict) else data)


def method_data(spec: Any) -> Any:
    """How a file holds a method: with all its options."""
    data = component_data(spec, "method")
    options = dict(data) if isinstance(data, dict) else {"name": data}
    if isinstance(options.get("name"), str) and options["name"] in METHODS:
        usual = {f.name: f.default for f in fields(METHODS[options["name"]]) if f.default is not MISSING}
        options = {"name": options["name"]} | usual | options
    for part in CALLED:
        if part in options:
            options[part] = component_data(options[part], part)
    return options if len(options) > 1 else data


def component(spec: Any, what: str) -> Any:
    """A method, selector or explorer from its name, from {name: ..., options}, from module:name, or as given in Python.

    what: the field that it stands in.
    """
    kind = what.rpartition(".")[2]
    registry = REGISTRIES[kind]
    if not isinstance(spec, (str, dict)):
        if not _fits(spec, kind):
            raise BadField(
                what, f"write one of {', '.join(registry)}, or a mapping of name and options", value=f"{spec!r}"
            )
        return spec
    options = dict(spec) if isinstance(spec, dict) else {"name": spec}
    name = options.pop("name", None)
    if name is None:
        raise BadField(what, f"needs a name, one of {', '.join(registry)}")
    if ":" not in str(name):
        if str(name) not in registry:
            raise unknown(what, str(name), registry)
        return build(registry[str(name)], options, f"{what}.")
    target = import_object(str(name), what)
    made = call_own(what, str(name), target, **options) if isinstance(target, type) or options else target
    if not _fits(made, kind):
        use = f"is called with ({CALLED[kind]})" if kind in CALLED else f"has {', '.join(PARTS)}"
        raise BadField(what, f"{name} is none: what goes here {use}")
    return made


def _fits(made: Any, kind: str) -> bool:
    """Whether an object can be a method, selector or explorer."""
    if kind not in CALLED:
        return not isinstance(made, type) and all(hasattr(made, part) for part in PARTS)
    if isinstance(made, type) or not callable(made):
        return False
    try:
        inspect.signature(made).bind(*CALLED[kind].split(", "))
    except TypeError:
        return False
    except ValueError:  # it has no signature, as some of Python's own functions
        pass
    return True


def objective(value: Any) -> Objective:
    """What an episode is worth instead of its return: a dotted key into its last info, or a function of that."""
    if value is None or callable(value) or (isinstance(value, str) and ":" not in value):
        return value
    if isinstance(value, str) and callable(found := import_object(value, "fitness.objective")):
        return found
    raise BadField("fitness.objective", "write a dotted key, or module:function", value=f"{value!r}")


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


def component_data(value: Any, kind: str) -> Any:
    """How a file holds a method, selector or explorer: as the user wrote it, or with the options it was made with."""
    if isinstance(value, (str, dict)):
        return value
    if not is_dataclass(value) or isinstance(value, type):
        return name_of(value)
    known = {cls: name for name, cls in REGISTRIES[kind].items()}
    options = {f.name: getattr(value, f.name) for f in fields(value)}
    return {"name": known.get(type(value)) or name_of(type(value)), **options}
