"""From an experiment to the parts of a run: environment, agent, learner, evolver, shard."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shoal.core import tree
from shoal.core.errors import BadField, unknown
from shoal.core.schema import build, call, call_own, plain
from shoal.core.suggestions import readable
from shoal.core.types import Agent, Evolver, Learner, Population, SearchLearner, Spec
from shoal.distributed.returns import Returns
from shoal.distributed.shared_evaluation import Pool
from shoal.environments import registry as environments
from shoal.environments.device import DeviceEnvironment
from shoal.environments.guard import guarded
from shoal.environments.host import HostEnvironment
from shoal.environments.registry import Environment
from shoal.experiment import experiment as files
from shoal.experiment import registry
from shoal.experiment.experiment import Experiment, agent_of, method_name
from shoal.experiment.registry import OBJECT, as_range, import_object, name_of
from shoal.methods.methods import METHODS, Method
from shoal.methods.schedule import scheduled
from shoal.population.devices import free_memory
from shoal.population.member_shard import MemberShard
from shoal.population.search_shard import SearchShard
from shoal.population.shard import Shard
from shoal.population.shard_group import ShardGroup

COPIES_TO_SAVE = 3  # of the state in memory: the one at work, one that waits to be written, one as a file


PARTS = 8  # at most, of a population that several processes measure together
SHOWN = 100  # parts that an interval is shown in where it is not made of rollouts


class Parts(NamedTuple):
    """Everything that a run is made of.

    iterations: rollouts that make an interval. steps: those of a member in it; None where whole episodes make one.
    """

    experiment: Experiment  # resolved: every default filled in
    environment: Environment
    agent: Agent
    evolver: Evolver
    learner: Learner | SearchLearner
    shard: Shard
    iterations: int
    steps: int | None


def build_run(
    experiment: Experiment,
    pause: Callable = lambda result, done: None,
    process: tuple[int, int] = (0, 1),
    first_uid: int = 0,
    returns: Returns | None = None,
) -> Parts:
    """Check an experiment and build its parts; nothing is written. Raises BadInput.

    process: which one this is, of how many; it has its share of the shards. first_uid: of the population.
    returns: where several processes measure the whole population together.
    """
    files.check(experiment)
    if returns is not None and experiment.shards is None:
        experiment = replace(experiment, shards=_parts(experiment.population))
    experiment, uids = _with_shards(experiment, *process, first_uid)
    experiment, environment = make_environment(experiment)
    experiment, learner = make_learner(experiment, environment.spec)
    agent = learner.agent
    experiment = _with_numbers(experiment, agent)
    space = {name: as_range(name, r) for name, r in (experiment.space or {}).items()}
    if experiment.schedule:
        evolver = scheduled([experiment.hyper | row for row in experiment.schedule])
    else:
        select, explore = registry.selector(experiment.select), registry.explorer(experiment.explore)
        method = registry.method(experiment.method)
        evolver = method.evolver(select, explore, space, experiment.hyper, experiment.start_after)
    shard = _make_shard(experiment, environment, learner, uids, pause, returns)
    iterations, steps = _interval(experiment, learner)
    return Parts(experiment, environment, agent, evolver, learner, shard, iterations, steps)


def _make_shard(
    experiment: Experiment,
    environment: Environment,
    learner: Learner | SearchLearner,
    uids: list[np.ndarray],
    pause: Callable,
    returns: Returns | None,
) -> Shard:
    """What trains the members `uids`, one array for each shard."""
    fitness = experiment.fitness
    usual: dict[str, Any] = {
        "episodes": fitness.episodes,
        "greedy": fitness.actions == "greedy",
        "step_limit": fitness.step_limit,
        "objective": fitness.objective,
        "pause": pause,
    }
    if isinstance(learner, SearchLearner):
        search = SearchShard(environment, learner, uids[0], experiment.seed, **usual)
        if returns is not None:
            return Pool(search, uids, pause, returns)
        return ShardGroup(search, uids, pause) if len(uids) > 1 else search
    usual |= {"fitness": fitness.source, "copy_memory": experiment.memory == "copy"}
    members = MemberShard(environment, learner, uids[0], experiment.seed, **usual)
    return ShardGroup(members, uids, pause) if len(uids) > 1 else members


def _interval(experiment: Experiment, learner: Learner | SearchLearner) -> tuple[int, int | None]:
    """`iterations` and `steps` of Parts. Raises BadInput where nothing would be learned."""
    agent = learner.agent
    if isinstance(learner, SearchLearner):
        return SHOWN, None
    iterations = -(-experiment.interval // (agent.rollout * agent.environments))
    if iterations >= 2**31:
        raise BadField("interval", "must be less than 2**31 rollouts", value=experiment.interval)
    steps = iterations * agent.rollout * agent.environments
    known = experiment.generations * steps * (experiment.population if learner.together else 1)
    if agent.warm_up > known:
        makes = "the members make" if learner.together else "a member makes"
        raise BadField(
            "config.warm_up",
            f"nothing would ever be learned, for {makes} {known} steps in all "
            f"(generations {experiment.generations} x interval {experiment.interval})",
            value=agent.warm_up,
        )
    return iterations, steps


def _parts(population: int) -> int:
    """Into how many parts of whole pairs a population is cut for workers to choose from."""
    return max(parts for parts in range(1, PARTS + 1) if population % (2 * parts) == 0 or parts == 1)


def _with_shards(
    experiment: Experiment, process: int, processes: int, first_uid: int
) -> tuple[Experiment, list[np.ndarray]]:
    """Which members each shard of this process has."""
    count = experiment.shards or processes
    if count < processes:
        raise BadField(
            "shards", f"each of the {processes} processes needs one", "start fewer, or raise shards", value=count
        )
    if experiment.population % count:
        raise BadField("population", f"must be a multiple of its {count} shards", value=experiment.population)
    members = first_uid + np.arange(experiment.population).reshape(count, -1)
    return replace(experiment, shards=count), list(np.array_split(members, processes)[process])


def make_learner(experiment: Experiment, spec: Spec) -> tuple[Experiment, Learner | SearchLearner]:
    """What trains the members, for an environment's spec; and the experiment with the agent's name and structure.

    Raises BadInput.
    """
    method, name = registry.method(experiment.method), method_name(experiment)
    experiment = replace(experiment, agent=agent_of(experiment))
    agent = make_agent(experiment, spec)
    learner = method.learner(agent, experiment.population)
    if isinstance(learner, SearchLearner) != method.drawn:
        kind = SearchLearner if method.drawn else Learner
        raise BadField(
            "method", f"it says drawn = {method.drawn}", f"its learner must be a {kind.__name__}", value=name
        )
    if (experiment.shards or 1) > 1 and learner.together:
        raise BadField(
            "shards", f"with method {name} members share a critic: it needs one shard", value=experiment.shards
        )
    pairs = isinstance(learner, SearchLearner) and learner.pairs
    if pairs and experiment.population % (even := 2 * (experiment.shards or 1)):
        raise BadField(
            "population",
            f"method {name} perturbs in mirrored pairs",
            f"it must be a multiple of {even}{(', two for each shard' if even > 2 else '')}",
            value=experiment.population,
        )
    if method.drawn and experiment.exchange == "directory" and not method.pools:
        raise BadField(
            "exchange", f"with method {name} members share a critic: they need one process", value="directory"
        )
    if method.drawn and experiment.fitness.source == "training":
        raise BadField(
            "fitness.source", f"with method {name} members train in their evaluations alone", value="training"
        )
    return replace(experiment, config=_structure(experiment, method)), learner


def _structure(experiment: Experiment, method: Method) -> dict[str, Any]:
    """The settings of the agent, with every default of one that the method knows filled in. Raises BadInput."""
    path = method.agents.get(experiment.agent) if isinstance(experiment.agent, str) else None
    if path is None:
        return dict(experiment.config)
    kind = importlib.import_module(path.partition(":")[0]).Config
    config = asdict(build(kind, experiment.config, "config."))
    for name, value in config.items():
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(number, int) and number > files.INT32:
                raise BadField(f"config.{name}", f"must be at most {files.INT32}", value=plain(value))
    return config


def make_agent(experiment: Experiment, spec: Spec) -> Agent:
    """The agent that an experiment names, for an environment's spec. Raises BadInput."""
    name, method = agent_of(experiment), registry.method(experiment.method)
    if callable(name) and method.own_agents:
        return call("config", "the agent", name, spec, **experiment.config)
    own = ", or module:factory of your own" if method.own_agents else ""
    if not isinstance(name, str):
        raise BadField("agent", f"write one of {', '.join(method.agents)}{own}", value=f"{name!r}")
    if name not in method.agents and (":" not in name or not method.own_agents):
        others = [other for other, kind in METHODS.items() if name in kind.agents]
        if others or ":" in name:
            advice = f"; {name} goes with method {' or '.join(others)}" if others else ""
            raise BadField(
                "agent", f"method {method_name(experiment)} trains {', '.join(method.agents)}{own}{advice}", value=name
            )
        raise unknown("agent", name, method.agents)
    path = method.agents.get(name, name)
    factory = import_object(path, "agent")
    config = _structure(replace(experiment, agent=name), method)
    if name not in method.agents:
        made = call_own("agent", name, factory, spec, **config)
        if not isinstance(made, Agent):
            raise BadField("agent", f"{name} gives a {type(made).__name__}", "it must give an Agent")
        return made
    try:
        return call("config", name, factory, spec, **config)
    except BadField as error:
        if method.own_agents or error.field != "agent":
            raise  # else there is no other agent to take, whatever it advises
        raise BadField("method", f"{name} {error.problem}", value=method_name(experiment)) from error


def make_environment(experiment: Experiment) -> tuple[Experiment, Environment]:
    """The environment that an experiment names, and the experiment with its full id. Raises BadInput."""
    env = experiment.env
    if isinstance(env, (DeviceEnvironment, HostEnvironment)):
        environment: Environment = env
    elif callable(env):
        environment = call("env_options", "the environment", env, **experiment.env_options)
    elif str(env).startswith(f"{OBJECT}:"):
        environment = import_object(env, "env")
    else:
        experiment = replace(experiment, env=environments.resolve(str(env)))
        environment = environments.make(experiment.env, experiment.env_options)
    if not isinstance(environment, (DeviceEnvironment, HostEnvironment)):
        kind = type(environment).__name__
        raise BadField("env", f"{env} gives a {kind}", "it must give a DeviceEnvironment or a HostEnvironment")
    if experiment.fitness.objective and isinstance(environment, DeviceEnvironment):
        raise BadField(
            "fitness.objective", "device environments have no info", "it works with host environments (gym:...)"
        )
    return experiment, guarded(environment, str(name_of(experiment.env)))


def _with_numbers(experiment: Experiment, agent: Agent) -> Experiment:
    """Fill in what the agent supplies: its default hyperparameters, ranges and structure."""
    known = agent.hyper._fields
    for place, names in (("hyper", experiment.hyper), ("space", experiment.space or {})):
        for name in names:
            if name not in known:
                raise unknown(place, name, known)
    for i, row in enumerate(experiment.schedule or ()):
        for name in row:
            if name not in known:
                raise unknown(f"schedule.{i}", name, known)
    for name, (low, high) in agent.limits.items():
        for place, value in _values_of(experiment, name):
            if not low <= value <= high:
                raise BadField(place, f"must lie within [{low:g}, {high:g}]", value=f"{value:g}")
    space = experiment.space
    if space is None:
        usual = {} if experiment.schedule else registry.method(experiment.method).space(agent)
        space = {k: r for k, r in usual.items() if k not in experiment.hyper}
    hyper: dict[str, Any] = {k: float(v) for k, v in agent.hyper._asdict().items()}
    chosen = registry.method(experiment.method).chosen
    hyper = {k: float(experiment.hyper.get(k, v)) for k, v in hyper.items() if k not in space and k not in chosen}
    return replace(experiment, space=space, hyper=hyper)


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


def memory_needed(parts: Parts) -> int:
    """Bytes that the state of the whole population takes on the devices, replay memory included."""
    return tree.size_in_bytes(_population(parts))


def replay_size(parts: Parts) -> int:
    """Bytes of it that are replay memory."""
    population = _population(parts)
    return tree.size_in_bytes((population.members.memory, getattr(population.shared, "memory", ())))


def check_memory(parts: Parts) -> None:
    """Raise BadInput where the population does not fit into the memory of the devices."""
    population, free = parts.experiment.population, free_memory()
    state = memory_needed(parts)
    need = state * (COPIES_TO_SAVE if jax.default_backend() == "cpu" else 1)
    if free is not None and need > free:
        share = replay_size(parts)
        advice = "lower config.capacity or population" if share > state / 2 else "lower population or config.layers"
        raise BadField(
            "population",
            f"{population} members take {readable(state)}, {readable(share)} of it replay "
            f"memory, which makes {readable(need)} while they are saved, and {readable(free)} are free",
            advice,
            value=population,
        )


def _population(parts: Parts) -> Population:
    n = parts.experiment.population
    hyper = jax.tree.map(lambda x: jax.ShapeDtypeStruct((n,), jnp.float32), parts.agent.hyper)
    return jax.eval_shape(parts.learner.init, jax.random.key(0), jax.ShapeDtypeStruct((n,), jnp.uint32), hyper)
