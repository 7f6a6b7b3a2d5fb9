"""From names to objects: environment, agent and learner, or trainers; and the hyperparameters of the members."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shoal.core.atomic import Damaged
from shoal.core.env_parameters import PREFIX, defaults, joined, split
from shoal.core.errors import BadField, type_in_words, unknown
from shoal.core.population import PureEvolver
from shoal.core.space import SAMPLED, SearchSpace
from shoal.core.spec import Spec
from shoal.core.types import Agent, Learner, SearchLearner
from shoal.core.user_code import OBJECT, call, call_own, import_from, name_of
from shoal.core.yaml_text import plain
from shoal.environments import registry as environments
from shoal.environments import suites
from shoal.environments.device import DeviceEnvironment, lenient
from shoal.environments.envpool import twin
from shoal.environments.error_boundary import with_error_boundary
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.host import HostEnvironment
from shoal.environments.levels import Levels, check_levels
from shoal.environments.objective import FIELDS, Minimised, Objective, in_info
from shoal.environments.randomised import with_domain_randomisation
from shoal.environments.registry import Environment
from shoal.experiment.experiment import Experiment, Fitness
from shoal.experiment.files import to_dict
from shoal.experiment.structures import choices, place_of, structures
from shoal.experiment.validation import no_agent, whole_config
from shoal.members.acting import PolicyFactory, by_agent, by_trainer
from shoal.members.external import External
from shoal.members.gradient_trained import GradientTrained
from shoal.members.protocol import Kind
from shoal.members.sampled import Sampled
from shoal.members.structured import Structured
from shoal.methods.components import make_method, with_defaults
from shoal.methods.method import Method, check_limits
from shoal.methods.ranges import nearest
from shoal.trainers.process import Recipe
from shoal.trainers.trainers import Trainers, own_folders


def resolve_names(e: Experiment, method: Method) -> Experiment:
    """The experiment with all that follows from its names: absolute paths, ids in full, and the options of agent and method.

    Raises BadInput.
    """
    known: dict[str, Any] = e.absolute_paths | {"method": with_defaults(e.method_or_default)}
    if not e.external:
        agent = method.agent_or_default(e.agent)
        known["agent"] = agent
        known["config"] = whole_config(method, agent, structures(e)[0]) | {name: e.config[name] for name in choices(e)}
        if isinstance(e.env, str) and not e.env.startswith(f"{OBJECT}:"):
            known["env"] = suites.resolve(e.env)
        if e.levels is not None:
            known["levels"] = Levels(**e.levels.spans())
    return replace(e, **known)


def kind_of(experiment: Experiment) -> tuple[Experiment, Kind]:
    """The experiment with ids and options in full, and its kind of member. Raises BadInput."""
    method = make_method(experiment.method_or_default)
    e = resolve_names(experiment, method)
    return e, make_kind(e, method)


def make_kind(e: Experiment, method: Method) -> Kind:
    """The kind of member that the agent and the method of an experiment with resolved names make. Raises BadInput."""
    copies_replay = method.replay == "copy"
    if e.external:
        made = External(str(e.agent), partial(make_trainers, e), copies_replay)
        try:
            method.validate(made.tunable, e.population)
        except BaseException:
            made.close()
            raise
        return made
    environment = make_environment(e)
    learner = make_learner(replace(e, config=structures(e)[0]), environment.spec, method)
    if isinstance(learner, SearchLearner):
        return Sampled(environment, learner, copies_replay)
    kinds = [GradientTrained(environment, learner, copies_replay)]
    for config in structures(e)[1:]:
        other = make_learner(replace(e, config=config), environment.spec, method)
        kinds.append(GradientTrained(environment, other, copies_replay))  # type: ignore[arg-type]
    return Structured(kinds, partial(place_of, e)) if len(kinds) > 1 else kinds[0]


def policy_factory_of(e: Experiment, spec: Spec | None, champion: Path) -> PolicyFactory:
    """Make the policy factory of a champion of an experiment, in an environment of this spec. champion: where it lies.

    Raises BadInput, and Damaged where only a trainer would know one.
    """
    if e.external:
        return by_trainer(str(e.agent), partial(make_trainers, e))
    if spec is None:
        raise Damaged(f"{champion}: this is no champion")
    return by_agent(make_learner(e, spec, make_method(e.method_or_default)).agent, spec)


def make_environment(e: Experiment) -> Environment:
    """The environment that an experiment names. Raises BadInput."""
    env, name = e.env, e.env_name
    if isinstance(env, (DeviceEnvironment, HostEnvironment)):
        environment: Environment = env
    elif callable(env):
        made = call("env_options", "the environment", env, **e.env_options)
        environment = environments.made_by(env, made, name, e.env_options)
    elif not isinstance(env, str):
        problem = f"is {type_in_words(env)} that is made already, of which there can be no copies"
        raise BadField("env", problem, "give its class, or a function that makes one")
    elif env.startswith(f"{OBJECT}:"):
        environment = import_from(env, "env")
    else:
        environment = environments.make(env, e.env_options)
    environment = with_error_boundary(environment, name)
    measures = _measures(e.fitness)
    if isinstance(environment, DeviceEnvironment):
        for measure, field in zip(measures, FIELDS, strict=False):
            if measure is not None:
                _check_objective(measure, field, e.fitness.source, environment, name)
        environment = with_domain_randomisation(environment)
    if e.levels is not None:
        check_levels(environment, name, e.levels.spans(), twin(name))
    return environment


def evaluation_of(e: Experiment) -> EvaluationConfig:
    """The settings of the evaluations that an experiment asks for. Raises BadInput."""
    f, levels = e.fitness, {} if e.levels is None else e.levels.spans()
    assert f.source is not None and f.episodes is not None, "a plan says how many, and of what"
    return EvaluationConfig(f.source, f.episodes, f.deterministic, f.step_limit, _measures(f), levels, f.levels)


def _measures(fitness: Fitness) -> tuple[Objective, ...]:
    """The objective, and what breaks its ties where there is that."""
    objective = _objective(fitness.objective, FIELDS[0])
    if fitness.direction == "minimize" and objective is not None:
        objective = Minimised(objective)
    if fitness.tie_breaker is None:
        return (objective,)
    return objective, _objective(None if fitness.tie_breaker == "return" else fitness.tie_breaker, FIELDS[1])


def _objective(value: Any, field: str) -> Objective:
    """A dotted key into an episode's last info, or a function of that; None: the return."""
    if isinstance(value, str) and ":" in value:
        value = import_from(value, field)
    if value is not None and not callable(value) and not isinstance(value, str):
        raise BadField(field, "write a dotted key, or module:function", value=f"{value!r}")
    return value


def _check_objective(
    wanted: Objective, field: str, source: str | None, environment: DeviceEnvironment, name: str
) -> None:
    """Raise BadInput where an environment on the device does not tell what fitness is to be made of."""
    if environment.info is None:
        there = "those of brax, Playground and the host have one"
        raise BadField(field, f"{name} has no info that it could be in", there)
    if source == "training":
        problem = "on a device it is read in evaluations only"
        raise BadField(field, problem, "write fitness.source: evaluation")
    info: Any = environment.info
    with lenient():
        jax.eval_shape(lambda key: in_info(wanted, info(environment.reset(key)[1]), field), jax.random.key(0))


def make_learner(e: Experiment, spec: Spec, method: Method) -> Learner | SearchLearner:
    """The learner of an experiment's members, for an environment's spec. Raises BadInput."""
    agent = _make_agent(e, method.agent_or_default(e.agent), spec, method)
    if spec.turns and agent.probabilities is None:
        who = name_of(method.agent_or_default(e.agent))
        raise BadField("agent", "cannot play as both players of a game", "ppo can, with method: pbt", value=who)
    method.validate(agent, e.population)
    return method.learner(agent, e.population)


def _make_agent(e: Experiment, agent: Any, spec: Spec, method: Method) -> Agent:
    """The agent, one of those that the method knows or of the user's own."""
    if declaration := method.declaration(agent):
        module, _, factory = declaration.factory.partition(":")
        try:
            return call("config", agent, getattr(importlib.import_module(module), factory), spec, **e.config)
        except BadField as error:
            if len(method.agents) > 1 or error.field != "agent":
                raise  # else there is no other agent to take, whatever it advises
            raise BadField("method", f"{agent} {error.problem}", value=e.method_name) from error
    if isinstance(agent, type):  # the processes of trainers import theirs
        problem = "is a class, as external trainers are; agents are functions"
        raise BadField("agent", problem, "name a trainer: module:Class", value=name_of(agent))
    if callable(agent):
        made = call("config", "the agent", agent, spec, **e.config)
    elif isinstance(agent, str) and ":" in agent:
        made = call_own("agent", agent, import_from(agent, "agent"), spec, **e.config)
    else:
        raise no_agent(agent, e.method_name, method)
    if not isinstance(made, Agent):
        raise BadField("agent", f"{name_of(agent)} gives {type_in_words(made)}", "it must give an Agent")
    return made


def make_trainers(e: Experiment) -> Trainers:
    """The trainers that an experiment names. Raises BadInput where there are none."""
    return Trainers(recipe_of(e), e.python, e.processes)


def recipe_of(e: Experiment) -> Recipe:
    """The recipe that an experiment's trainers are made from. Raises BadInput for an environment that they cannot import."""
    env = str(e.env_name)  # of a class too, which is no object of their processes
    if env.startswith(f"{OBJECT}:"):
        problem = "is an object of this process, which those of trainers do not have"
        raise BadField("env", problem, "put it into a module and write module:name", value=env.partition(":")[2])
    text = plain(to_dict(e))  # numbers of NumPy, functions and classes as the file has them
    return Recipe(str(e.agent), env, text["env_options"], text["config"], own_folders())


def search_space(e: Experiment, method: Method, kind: Kind) -> SearchSpace:
    """The hyperparameters of the members: what is tuned, from where, and the values of the others. Raises BadInput."""
    agent, name = kind.tunable, e.method_name
    known = defaults(agent, kind.env_parameters)
    for place, names in (("hyper", e.hyper), ("space", e.space or {})):
        for x in names:
            if x not in known:
                raise _unknown_name(place, x, known, e.env_name)
    for x, option in method.self_tuned.items():
        if x in e.hyper:
            raise BadField(f"hyper.{x}", f"method {name} chooses it by itself, among method.{option}")
    for x, value in e.hyper.items():
        check_limits(agent, f"hyper.{x}", x, value)
    space = e.space
    if space is None:
        space = {x: r for x, r in method.space(agent).items() if x not in e.hyper}
    for x, r in space.items():
        for end, numbers in {
            "low": [r.low],
            "high": [r.high],
            "initial": [r.initial_value],
            "choices": r.choices or (),
        }.items():
            for number in numbers:
                if number is not None:
                    check_limits(agent, f"space.{x}.{end}", x, number)
    given = agent.hyper._asdict() | e.hyper
    fixed = {x: float(v) for x, v in given.items() if x not in space and x not in method.self_tuned}
    begin = {x: known[x] if r.initial is None else r.initial for x, r in space.items() if r.initial != SAMPLED}
    return SearchSpace(space, {x: float(nearest(space[x], np.array(value))) for x, value in begin.items()}, fixed)


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
    """The error for a hyperparameter that neither the agent nor the environment has."""
    own, env_parameters = split(dict.fromkeys(known))
    if not name.startswith(PREFIX):
        return unknown(place, name, own)
    if not env_parameters:
        others = f"perhaps {twin(env)} has some" if twin(env) else ""
        return BadField(place, f"does not exist: {env} has no numbers that can be tuned", others, name=name)
    return unknown(place, name, joined({}, env_parameters))
