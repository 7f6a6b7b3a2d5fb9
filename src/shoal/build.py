"""From an experiment to the parts of a run: environment, agent, learner, evolver, island."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal import experiment as files
from shoal import tree
from shoal.devices import free_memory
from shoal.environments import registry
from shoal.environments.device import DeviceEnvironment
from shoal.environments.host import HostEnvironment
from shoal.environments.registry import Environment
from shoal.evolvers.pbt import pbt
from shoal.evolvers.schedule import scheduled
from shoal.experiment import AGENTS, OBJECT, Experiment, as_range, explorer_of, import_object, selector_of
from shoal.islands.group import Group
from shoal.islands.vector import VectorIsland
from shoal.learners.independent import independent
from shoal.names import readable, unknown
from shoal.settings import build, call
from shoal.types import Agent, BadInput, Evolver, Member, Spec

COPIES_TO_SAVE = 3  # of the state in memory: the one at work, one that waits to be written, one as a file


class Parts(NamedTuple):
    """Everything that a run is made of; `iterations` rollouts make an interval."""

    experiment: Experiment  # resolved: every default filled in
    environment: Environment
    agent: Agent
    evolver: Evolver
    island: VectorIsland | Group
    iterations: int


def build_run(
    experiment: Experiment,
    pause: Callable = lambda result, done: None,
    process: tuple[int, int] = (0, 1),
    first_uid: int = 0,
) -> Parts:
    """Check an experiment and build its parts; nothing is written. Raises BadInput.

    process: which one this is, of how many; it has its share of the islands. first_uid: of the population.
    """
    files.check(experiment)
    experiment, uids = _with_islands(experiment, *process, first_uid)
    experiment, environment = _with_environment(experiment)
    agent = make_agent(experiment, environment.spec)
    experiment = _with_numbers(experiment, agent)
    space = {name: as_range(name, r) for name, r in (experiment.space or {}).items()}
    if experiment.schedule:
        evolver = scheduled([experiment.hyper | row for row in experiment.schedule])
    else:
        select, explore = selector_of(experiment), explorer_of(experiment)
        try:
            evolver = pbt(select, explore, space, experiment.hyper, experiment.start_after)
        except BadInput as error:
            raise BadInput(f"explore: {error}") from error
    fitness = experiment.fitness
    island = VectorIsland(
        environment,
        independent(agent),
        uids[0],
        experiment.seed,
        fitness=fitness.source,
        episodes=fitness.episodes,
        greedy=fitness.actions == "greedy",
        step_limit=fitness.step_limit,
        objective=fitness.objective,
        copy_memory=experiment.memory == "copy",
        pause=pause,
    )
    iterations = -(-experiment.interval // (agent.rollout * agent.environments))
    if iterations >= 2**31:
        raise BadInput(f"interval = {experiment.interval}: must be less than 2**31 rollouts")
    steps = experiment.generations * iterations * agent.rollout * agent.environments
    if agent.warm_up > steps:
        raise BadInput(
            f"config.warm_up = {agent.warm_up}: nothing would ever be learned, for a member makes {steps} steps "
            f"in all (generations {experiment.generations} x interval {experiment.interval})"
        )
    every = Group(island, uids, pause) if len(uids) > 1 else island
    return Parts(experiment, environment, agent, evolver, every, iterations)


def _with_islands(
    experiment: Experiment, process: int, processes: int, first_uid: int
) -> tuple[Experiment, list[np.ndarray]]:
    """Which members each island of this process has."""
    count = experiment.islands or processes
    if count < processes:
        raise BadInput(f"islands = {count}: each of the {processes} processes needs one; start fewer, or raise islands")
    if experiment.population % count:
        raise BadInput(f"population = {experiment.population}: must be a multiple of its {count} islands")
    members = first_uid + np.arange(experiment.population).reshape(count, -1)
    return replace(experiment, islands=count), list(np.array_split(members, processes)[process])


def make_agent(experiment: Experiment, spec: Spec) -> Agent:
    """The agent that an experiment names, for an environment's spec. Raises BadInput."""
    name, config = experiment.agent, dict(experiment.config)
    if callable(name):
        return call("config: the agent", name, spec, **config)
    if not isinstance(name, str):
        raise BadInput(f"agent = {name!r}: write one of {', '.join(AGENTS)}, or module:factory of your own")
    if name not in AGENTS and ":" not in name:
        raise BadInput(unknown("agent", name, AGENTS))
    path = AGENTS.get(name, name)
    factory = import_object(path, "agent")
    if name in AGENTS:
        kind = importlib.import_module(path.partition(":")[0]).Config
        config = asdict(build(kind, config, "config."))
    return call(f"config: {name}", factory, spec, **config)


def _with_environment(experiment: Experiment) -> tuple[Experiment, Environment]:
    env = experiment.env
    if isinstance(env, (DeviceEnvironment, HostEnvironment)):
        environment: Environment = env
    elif callable(env):
        environment = call("env_options: the environment", env, **experiment.env_options)
    elif str(env).startswith(f"{OBJECT}:"):
        environment = import_object(env, "env")
    else:
        experiment = replace(experiment, env=registry.resolve(str(env)))
        environment = registry.make(experiment.env, experiment.env_options)
    if not isinstance(environment, (DeviceEnvironment, HostEnvironment)):
        kind = type(environment).__name__
        raise BadInput(f"env: {env} gives a {kind}; it must give a DeviceEnvironment or a HostEnvironment")
    if experiment.fitness.objective and isinstance(environment, DeviceEnvironment):
        raise BadInput("fitness.objective: device environments have no info; it works with host environments (gym:...)")
    return experiment, environment


def _with_numbers(experiment: Experiment, agent: Agent) -> Experiment:
    """Fill in what the agent supplies: its default hyperparameters, ranges and structure."""
    known = agent.hyper._fields
    for place, names in (("hyper", experiment.hyper), ("space", experiment.space or {})):
        for name in names:
            if name not in known:
                raise BadInput(unknown(place, name, known))
    for i, row in enumerate(experiment.schedule or ()):
        for name in row:
            if name not in known:
                raise BadInput(unknown(f"schedule.{i}", name, known))
    for name, (low, high) in agent.limits.items():
        for place, value in _values_of(experiment, name):
            if not low <= value <= high:
                raise BadInput(f"{place} = {value:g}: must lie within [{low:g}, {high:g}]")
    space = experiment.space
    if space is None:
        space = {} if experiment.schedule else {k: r for k, r in agent.space.items() if k not in experiment.hyper}
    hyper: dict[str, Any] = {k: float(v) for k, v in agent.hyper._asdict().items()}
    hyper = {k: float(experiment.hyper.get(k, v)) for k, v in hyper.items() if k not in space}
    config = experiment.config
    if experiment.agent in AGENTS:
        module = importlib.import_module(AGENTS[experiment.agent].partition(":")[0])
        config = asdict(build(module.Config, config, "config."))
    return replace(experiment, space=space, hyper=hyper, config=config)


def _values_of(experiment: Experiment, name: str) -> Iterator[tuple[str, float]]:
    """Every number that an experiment gives for a hyperparameter, and where."""
    if name in experiment.hyper:
        yield f"hyper.{name}", experiment.hyper[name]
    if name in (experiment.space or {}):
        r = as_range(name, (experiment.space or {})[name])
        for field, x in (("low", r.low), ("high", r.high), ("start", r.start)):
            if x is not None:
                yield f"space.{name}.{field}", x
        for x in r.choices or ():
            yield f"space.{name}.choices", x
    for i, row in enumerate(experiment.schedule or ()):
        if name in row:
            yield f"schedule.{i}.{name}", row[name]


def memory_needed(agent: Agent) -> int:
    """Bytes that one member's state takes on the device, replay memory included."""
    return tree.size_in_bytes(_member(agent))


def replay_size(agent: Agent) -> int:
    """Bytes of it that are replay memory."""
    return tree.size_in_bytes(_member(agent).memory)


def check_memory(parts: Parts) -> None:
    """Raise BadInput where the population does not fit into the memory of the devices."""
    population, free = parts.experiment.population, free_memory()
    state = population * memory_needed(parts.agent)
    need = state * (COPIES_TO_SAVE if jax.default_backend() == "cpu" else 1)
    if free is not None and need > free:
        share = population * replay_size(parts.agent)
        advice = "lower config.capacity or population" if share > state / 2 else "lower population or config.layers"
        raise BadInput(
            f"population = {population}: {population} members take {readable(state)}, {readable(share)} of it replay "
            f"memory, which makes {readable(need)} while they are saved, and {readable(free)} are free; {advice}"
        )


def _member(agent: Agent) -> Member:
    return jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.hyper))
