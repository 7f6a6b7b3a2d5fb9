"""What an experiment names, made: its environment, its agent and learner, or its trainers."""

from __future__ import annotations

import importlib
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax

from shoal.core.atomic import Damaged
from shoal.core.errors import BadField, unknown
from shoal.core.schema import build
from shoal.core.spec import Spec
from shoal.core.types import Agent, Learner, SearchLearner
from shoal.core.user_code import call, call_own
from shoal.core.yaml_text import plain
from shoal.environments import registry as environments
from shoal.environments.device import DeviceEnvironment, lenient
from shoal.environments.envpool import twin
from shoal.environments.error_boundary import with_error_boundary
from shoal.environments.evaluation import EvaluationConfig
from shoal.environments.host import HostEnvironment
from shoal.environments.levels import Levels, check_levels
from shoal.environments.objective import Objective, in_info
from shoal.environments.randomised import with_domain_randomisation
from shoal.environments.registry import Environment
from shoal.experiment.experiment import Experiment
from shoal.experiment.registry import OBJECT, import_object, name_of, objective
from shoal.experiment.registry import method as method_of
from shoal.experiment.rules import INT32
from shoal.members.acting import Acting, by_agent, by_trainer
from shoal.members.external import External
from shoal.members.gradient_trained import GradientTrained
from shoal.members.protocol import Kind
from shoal.members.sampled import Sampled
from shoal.methods import METHODS
from shoal.methods.method import Method
from shoal.trainers.process import Recipe
from shoal.trainers.trainers import Trainers, is_trainer, own_folders


def make_kind(e: Experiment, method: Method) -> tuple[Experiment, Kind]:
    """The kind of member that an experiment's agent and method make; and the experiment with full names and structure.

    Raises BadInput.
    """
    copies_memory = method.replay == "copy"
    if is_trainer(e.agent, e.python):
        made = External(str(e.agent), partial(make_trainers, e), copies_memory)
        try:
            method.validate(made.tunable, e.population)
        except BaseException:
            made.close()
            raise
        return e, made
    e, environment = make_environment(e)
    e, learner = make_learner(e, environment.spec, method)
    if isinstance(learner, SearchLearner):
        return e, Sampled(environment, learner, copies_memory)
    return e, GradientTrained(environment, learner, copies_memory)


def acting_of(e: Experiment, spec: Spec | None, champion: Path) -> Acting:
    """How what an experiment's members have learned acts, in an environment of this spec. champion: where it lies.

    Raises BadInput, and Damaged where only a trainer would know one.
    """
    if is_trainer(e.agent, e.python):
        return by_trainer(str(e.agent), partial(make_trainers, e))
    if spec is None:
        raise Damaged(f"{champion}: this is no champion")
    return by_agent(make_learner(e, spec, method_of(e.method))[1].agent, spec.action)


def make_environment(experiment: Experiment) -> tuple[Experiment, Environment]:
    """The environment that an experiment names, and the experiment with its full id. Raises BadInput."""
    env = experiment.env
    if isinstance(env, (DeviceEnvironment, HostEnvironment)):
        environment: Environment = env
    elif callable(env):
        made = call("env_options", "the environment", env, **experiment.env_options)
        environment = environments.made_by(env, made, str(name_of(env)), experiment.env_options)
    elif not isinstance(env, str):
        problem = f"is a {type(env).__name__} that is made already, of which there can be no copies"
        raise BadField("env", problem, "give its class, or a function that makes one")
    elif env.startswith(f"{OBJECT}:"):
        environment = import_object(env, "env")
    else:
        experiment = replace(experiment, env=environments.resolve(env))
        environment = environments.make(experiment.env, experiment.env_options)
    name = experiment.env_name
    environment = with_error_boundary(environment, name)
    wanted = objective(experiment.fitness.objective, experiment.fitness.direction)
    if wanted is not None and isinstance(environment, DeviceEnvironment):
        _check_objective(wanted, experiment.fitness.source, environment, name)
    if isinstance(environment, DeviceEnvironment):
        environment = with_domain_randomisation(environment)
    if experiment.levels is not None:
        spans = experiment.levels.spans()
        check_levels(environment, name, spans, twin(name))
        experiment = replace(experiment, levels=Levels(**spans))
    return experiment, environment


def _check_objective(wanted: Objective, source: str, environment: DeviceEnvironment, name: str) -> None:
    """Raise BadInput where an environment on the device does not tell what fitness is to be made of."""
    if environment.info is None:
        there = "those of brax, Playground and the host have one"
        raise BadField("fitness.objective", f"{name} has no info that it could be in", there)
    if source == "training":
        problem = "on a device it is read in evaluations only"
        raise BadField("fitness.objective", problem, "write fitness.source: evaluation")
    info: Any = environment.info
    with lenient():
        jax.eval_shape(lambda key: in_info(wanted, info(environment.reset(key)[0])), jax.random.key(0))


def evaluation_of(e: Experiment) -> EvaluationConfig:
    """How the members of an experiment are measured. Raises BadInput."""
    f, levels = e.fitness, {} if e.levels is None else e.levels.spans()
    assert f.episodes is not None, "a plan says how many"
    greedy = f.actions == "greedy"
    wanted = objective(f.objective, f.direction)
    return EvaluationConfig(f.source, f.episodes, greedy, f.step_limit, wanted, levels, f.levels)


def make_learner(experiment: Experiment, spec: Spec, method: Method) -> tuple[Experiment, Learner | SearchLearner]:
    """What trains the members, for an environment's spec; and the experiment with the agent's name and structure.

    Raises BadInput.
    """
    agent = next(iter(method.agents)) if experiment.agent is None else experiment.agent
    experiment, made = _make_agent(replace(experiment, agent=agent), spec, method)
    method.validate(made, experiment.population)
    return experiment, method.learner(made, experiment.population)


def _make_agent(e: Experiment, spec: Spec, method: Method) -> tuple[Experiment, Agent]:
    """The agent, one of those that the method knows or of the user's own; and the experiment with its structure."""
    if isinstance(e.agent, str) and e.agent in method.agents:
        module, _, factory = method.agents[e.agent].partition(":")
        home = importlib.import_module(module)
        e = replace(e, config=_structure(home.Config, e.config))
        try:
            return e, call("config", e.agent, getattr(home, factory), spec, **e.config)
        except BadField as error:
            if len(method.agents) > 1 or error.field != "agent":
                raise  # else there is no other agent to take, whatever it advises
            raise BadField("method", f"{e.agent} {error.problem}", value=e.method_name) from error
    if callable(e.agent):
        return e, call("config", "the agent", e.agent, spec, **e.config)
    if not (isinstance(e.agent, str) and ":" in e.agent):
        raise _no_agent(e, method)
    made = call_own("agent", e.agent, import_object(e.agent, "agent"), spec, **e.config)
    if not isinstance(made, Agent):
        raise BadField("agent", f"{e.agent} gives a {type(made).__name__}", "it must give an Agent")
    return e, made


def _no_agent(e: Experiment, method: Method) -> BadField:
    """What is wrong with an agent that the method cannot train."""
    known = f"{', '.join(method.agents)}, or module:factory of your own"
    if not isinstance(e.agent, str):
        return BadField("agent", f"write one of {known}", value=f"{e.agent!r}")
    others = [other for other, kind in METHODS.items() if e.agent in kind.agents]
    if not others:
        return unknown("agent", e.agent, method.agents)
    advice = f"{e.agent} goes with method {' or '.join(others)}"
    return BadField("agent", f"method {e.method_name} trains {known}", advice, value=e.agent)


def _structure(kind: type, given: dict[str, Any]) -> dict[str, Any]:
    """An agent's settings with every default filled in. Raises BadInput."""
    config = asdict(build(kind, given, "config."))
    for name, value in config.items():
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(number, int) and number > INT32:
                raise BadField(f"config.{name}", f"must be at most {INT32}", value=plain(value))
    return config


def make_trainers(e: Experiment) -> Trainers:
    """The trainers that an experiment names. Raises BadInput where there are none."""
    return Trainers(recipe_of(e), e.python, e.processes)


def recipe_of(e: Experiment) -> Recipe:
    """What an experiment's trainers are made from."""
    return Recipe(e.agent, str(e.env), e.env_options, e.config, own_folders())
