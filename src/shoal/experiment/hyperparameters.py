"""The hyperparameters of an experiment: those of the agent and of the environment, with their values and ranges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from shoal.core.env_parameters import PREFIX, defaults, joined, split
from shoal.core.errors import BadField, unknown
from shoal.core.population import PureEvolver
from shoal.core.space import SearchSpace
from shoal.environments.envpool import twin
from shoal.experiment.experiment import Experiment
from shoal.members.protocol import Kind
from shoal.methods.method import Method, check_limits
from shoal.methods.ranges import nearest


def with_numbers(e: Experiment, method: Method, kind: Kind) -> tuple[Experiment, SearchSpace]:
    """Fill in what the agent supplies: its default hyperparameters and ranges; and put together what a method needs of them.

    Raises BadInput.
    """
    agent, name = kind.tunable, e.method_name
    known = defaults(agent, kind.env_parameters)
    for place, names in (("hyper", e.hyper), ("space", e.space or {})):
        for x in names:
            if x not in known:
                raise _unknown_name(place, x, known, e.env_name)
    for x, option in method.chosen.items():
        if x in e.hyper:
            raise BadField(f"hyper.{x}", f"method {name} chooses it by itself, among method.{option}")
    for x, value in e.hyper.items():
        check_limits(agent, f"hyper.{x}", x, value)
    space = e.space
    if space is None:
        space = {x: r for x, r in method.space(agent).items() if x not in e.hyper}
    for x, r in space.items():
        for end, numbers in {"low": [r.low], "high": [r.high], "start": [r.start], "choices": r.choices or ()}.items():
            for number in numbers:
                if number is not None:
                    check_limits(agent, f"space.{x}.{end}", x, number)
    given = agent.hyper._asdict() | e.hyper
    hyper = {x: float(v) for x, v in given.items() if x not in space and x not in method.chosen}
    initial = {x: float(nearest(r, np.array(known[x] if r.start is None else r.start))) for x, r in space.items()}
    return replace(e, space=space, hyper=hyper), SearchSpace(space, initial, hyper)


def check_env_parameters(e: Experiment, kind: Kind, evolver: PureEvolver) -> None:
    """Raise BadInput where a method sets environment parameters that the environment or its members lack."""
    _, first = evolver.init((e.seed,), np.zeros(1, np.int64))
    for name in split(first)[1]:
        if name not in kind.env_parameters:
            raise _unknown_name("method", f"{PREFIX}{name}", joined({}, kind.env_parameters), e.env_name)
        if e.fitness.source == "training":
            problem = f"training episodes differ from member to member, by {PREFIX}{name}"
            raise BadField("fitness.source", problem, "write evaluation", value="training")
        if kind.sampled:
            problem = f"method {e.method_name} learns from the episodes that measure its members"
            raise BadField("hyper", problem, "their environments stay as they are", name=f"{PREFIX}{name}")


def _unknown_name(place: str, name: str, known: Iterable[str], env: str) -> BadField:
    """What is wrong with a hyperparameter that neither the agent nor the environment has."""
    own, env_parameters = split(dict.fromkeys(known))
    if not name.startswith(PREFIX):
        return unknown(place, name, own)
    if not env_parameters:
        others = f"perhaps {twin(env)} has some" if twin(env) else ""
        return BadField(place, f"does not exist: {env} has no numbers that can be tuned", others, name=name)
    return unknown(place, name, joined({}, env_parameters))
