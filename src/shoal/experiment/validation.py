"""Checks of an experiment that hold whatever its environment and agent: limits, paths, names, and the rules."""

from __future__ import annotations

from dataclasses import asdict
from operator import attrgetter
from typing import Any

from shoal.core.env_parameters import LARGEST, PREFIX
from shoal.core.errors import CHOOSE, STRUCTURE, BadField, type_in_words, unknown
from shoal.core.schema import build, explained
from shoal.core.yaml_text import plain
from shoal.experiment.experiment import Experiment
from shoal.experiment.rules import RULES, refuse
from shoal.experiment.structures import structures
from shoal.methods import METHODS
from shoal.methods.components import make_method
from shoal.methods.method import Method
from shoal.methods.ranges import validate

INT32, INT64 = 2**31 - 1, 2**63 - 1
# The least and the most of each. Checkpoints are named by eight digits.
LIMITS = {
    "population": (1, 1_000_000),
    "generations": (1, 99_999_999),
    "interval": (1, INT64),
    "budget": (1, INT64),
    "time_limit": (0.001, INT32),
    "stop.patience": (1, INT32),
    "shards": (1, 1_000_000),
    "seed": (0, INT32),
    "final_episodes": (1, INT32),
    "fitness.episodes": (1, INT32),
    "fitness.step_limit": (1, INT32),
    "fitness.final_selection": (0, 1),
    "checkpoint.every": (1, INT32),
    "checkpoint.keep": (1, INT32),
}
PATHS = ("run_dir", "exchange.workspace", "init_from")
SCALARS = (type(None), bool, int, float, str)  # that a file has


def beyond_limits(name: str, value: float) -> BadField | None:
    """The error for a value of a field that is not within `LIMITS`; None where it is."""
    least, most = LIMITS[name]
    if least <= value <= most:
        return None
    return BadField(name, f"must be at {f'least {least}' if value < least else f'most {most}'}", value=value)


def check(e: Experiment) -> Method:
    """The method that an experiment names. Raises BadInput for all that is wrong whatever the environment and agent."""
    for name in LIMITS:
        value = attrgetter(name)(e)
        if isinstance(value, (int, float)) and (error := beyond_limits(name, value)):
            *above, _ = name.split(".")
            holder = attrgetter(*above)(e) if above else e
            raise explained(error, type(holder), *(f"{x}." for x in above))
    for name in PATHS:
        path = attrgetter(name)(e) or ""
        if "\0" in path or path.encode(errors="ignore").decode() != path:
            problem = "a path must be text in UTF-8, without \\0, to be written in a run's files"
            raise BadField(name, problem, "rename what is not", value=f"{path!r}")
    _check_plain("env_options", e.env_options)
    _check_plain("config", e.config, named=True)
    if e.levels is not None:
        e.levels.spans()
    method = make_method(e.method_or_default)
    refuse(RULES, e, method)
    if isinstance(e.agent, str) and ":" not in e.agent and e.agent not in method.agents:
        raise no_agent(e.agent, e.method_name, method)
    for name, number in e.hyper.items():
        if abs(number) > LARGEST:
            raise BadField(f"hyper.{name}", f"must be at most {LARGEST:.2g} in size", value=number)
        if name in (e.space or {}):
            advice = f"remove it here, and to start a tuned one somewhere set space.{name}.initial"
            raise BadField(f"hyper.{name}", "a hyperparameter is either fixed or tuned", advice)
    for name, r in (e.space or {}).items():
        validate(name, r)
    _check_names(e, method)
    return method


def _check_names(e: Experiment, method: Method) -> None:
    """Raise BadInput for settings and hyperparameters that an agent of Shoal's own lacks, environment parameters aside."""
    agent = method.agent_or_default(e.agent)
    for config in structures(e):
        whole_config(method, agent, config)
    if declaration := method.declaration(agent):
        for place, names in (("hyper", e.hyper), ("space", e.space or {})):
            for name in names:
                if name.startswith(STRUCTURE):
                    raise BadField(place, "is no hyperparameter", CHOOSE, name=name)
                if name not in declaration.hyper._fields and not name.startswith(PREFIX):
                    raise unknown(place, name, declaration.hyper._fields)


def whole_config(method: Method, agent: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of an agent, of Shoal's own with every default filled in. Raises BadInput."""
    declaration = method.declaration(agent)
    if declaration is None:
        return given
    config = asdict(build(declaration.config, given, "config."))
    for name, value in config.items():
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(number, int) and number > INT32:
                raise BadField(f"config.{name}", f"must be at most {INT32}", value=plain(value))
    return config


def _check_plain(place: str, value: Any, named: bool = False) -> None:
    """Raise BadInput for an option that the file of a run cannot hold. named: it holds functions and classes by name."""
    if isinstance(value, (dict, list, tuple)):
        for name, x in value.items() if isinstance(value, dict) else enumerate(value):
            _check_plain(f"{place}.{name}", x, named)
    elif type(value) not in SCALARS and getattr(value, "ndim", None) != 0 and not (named and callable(value)):
        problem = f"is {type_in_words(value)}, which the file of a run cannot hold"
        raise BadField(place, problem, "give numbers, text, lists and mappings, and make the rest of them in your code")


def no_agent(agent: Any, name: str, method: Method) -> BadField:
    """The error for an agent that the method cannot train."""
    known = f"{', '.join(method.agents)}, or module:factory of your own"
    if not isinstance(agent, str):
        return BadField("agent", f"write one of {known}", value=f"{agent!r}")
    others = [other for other, kind in METHODS.items() if agent in kind.agents]
    if not others:
        return unknown("agent", agent, method.agents)
    advice = f"{agent} goes with method {' or '.join(others)}"
    return BadField("agent", f"method {name} trains {known}", advice, value=agent)
