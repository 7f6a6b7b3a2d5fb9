"""From an experiment to what it names: method, environment, agent and learner, evolver. Once per run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from shoal.core.errors import BadField
from shoal.core.evolution import Evolver
from shoal.core.knobs import usual
from shoal.core.spec import Spec
from shoal.core.types import Agent, Learner, SearchLearner, Tunable
from shoal.environments.device import DeviceEnvironment
from shoal.environments.measurement import Measurement
from shoal.environments.registry import Environment
from shoal.experiment.experiment import INT32, Experiment, Fitness, check
from shoal.experiment.hyperparameters import check_knobs, with_numbers
from shoal.experiment.make import make_environment, make_learner, make_trainers, measurement_of
from shoal.experiment.registry import method_name
from shoal.methods.method import Method
from shoal.methods.methods import METHODS
from shoal.methods.ranges import nearest
from shoal.trainers.trainers import Trainers, is_trainer

PARTS = 8  # at most, of a population that several processes measure together
EPISODES = 8  # of a member and evaluation
EPISODES_ON_DEVICE = 32  # where all of them are played at once: champions owe less to luck (docs/results.md)
SHOWN = 100  # parts that an interval is shown in where it is not made of rollouts


class Resolved(NamedTuple):
    """An experiment, and all that it names.

    iterations: rollouts that make an interval. steps: those of a member in it; None where whole episodes make one.
    """

    experiment: Experiment  # every default filled in; `space` holds ranges
    method: Method
    environment: Environment  # None with trainers, which have their own
    learner: Learner | SearchLearner | Trainers
    evolver: Evolver
    iterations: int
    steps: int | None

    def close(self) -> None:
        """End the process that trainers were asked in; without trainers there is none."""
        if isinstance(self.learner, Trainers):
            self.learner.close()

    @property
    def tunable(self) -> Tunable:
        """What has the hyperparameters."""
        return self.learner if isinstance(self.learner, Trainers) else self.learner.agent

    @property
    def measurement(self) -> Measurement:
        """How the members are measured."""
        return measurement_of(self.experiment)

    @property
    def agent(self) -> Agent:
        """The agent, where it is one of Shoal's own kind."""
        assert not isinstance(self.learner, Trainers)
        return self.learner.agent

    @property
    def usual(self) -> dict[str, float]:
        """The usual value of every hyperparameter, by name."""
        return usual(self.tunable, {} if self.environment is None else self.environment.knobs)

    @property
    def spec(self) -> Spec | None:
        """Of the environment, where that is known."""
        return self.learner.spec if isinstance(self.learner, Trainers) else self.environment.spec

    def nearest(self, hyper: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Of hyperparameters [N] those that are tuned here, each value as near as its range allows."""
        space = self.experiment.space or {}
        return {name: nearest(space[name], x) for name, x in hyper.items() if name in space}

    def members(self, process: int = 0, processes: int = 1, first: int = 0) -> list[np.ndarray]:
        """The uids of each shard of a process, int64 [n] each; those of the population begin at `first`."""
        every = first + np.arange(self.experiment.population).reshape(self.experiment.shards or 1, -1)
        return list(np.array_split(every, processes)[process])


def resolve(experiment: Experiment, processes: int = 1) -> Resolved:
    """Check an experiment, and make what it names; nothing is written. Raises BadInput.

    processes: how many share the shards of one population.
    """
    method = check(experiment)
    if is_trainer(experiment.agent, experiment.python):
        return _with_trainers(_with_shards(experiment, method, processes), method)
    experiment, environment = make_environment(experiment)
    experiment = _with_shards(experiment, method, processes)
    experiment, learner = make_learner(experiment, environment.spec, method)
    _check_parts(experiment, method, learner)
    on_device = isinstance(environment, DeviceEnvironment) and isinstance(learner, Learner)
    experiment = _with_episodes(experiment, EPISODES_ON_DEVICE if on_device else EPISODES)
    experiment = with_numbers(experiment, method, learner.agent, environment.knobs)
    evolver = method.evolver(experiment.space or {}, experiment.hyper, experiment.generations)
    check_knobs(experiment, method, evolver, environment.knobs)
    return Resolved(experiment, method, environment, learner, evolver, *_interval(experiment, learner))


def _with_trainers(experiment: Experiment, method: Method) -> Resolved:
    """The rest of `resolve` where members are trained in processes of their own. Raises BadInput."""
    e, name = experiment, method_name(experiment.method)
    if not method.trainers:
        problem = f"its members are agents of Shoal's own, and {e.agent} is a trainer"
        allowed = ", ".join(name for name, made in METHODS.items() if made.trainers)
        raise BadField("method", problem, f"write {allowed}", value=name)
    if e.fitness.actions != "greedy":
        raise BadField("fitness.actions", "trainers are measured with their likeliest actions", value=e.fitness.actions)
    if e.fitness.objective is not None:
        raise BadField("fitness.objective", "trainers are measured by their returns")
    if e.levels is not None:
        raise BadField("levels", "trainers have environments of their own, with levels that Shoal cannot choose")
    if e.fitness.step_limit != Fitness().step_limit:
        problem = "trainers play their own episodes, and end them where they choose"
        raise BadField("fitness.step_limit", problem, "leave it out", value=e.fitness.step_limit)
    trainers = make_trainers(e)
    try:
        method.fit(trainers, e.population)
        experiment = with_numbers(_with_episodes(e, EPISODES), method, trainers, {})
        evolver = method.evolver(experiment.space or {}, experiment.hyper, experiment.generations)
    except BaseException:
        trainers.close()
        raise
    elsewhere: Any = None
    return Resolved(experiment, method, elsewhere, trainers, evolver, 1, e.interval)


def _with_episodes(e: Experiment, usual: int) -> Experiment:
    return e if e.fitness.episodes is not None else replace(e, fitness=replace(e.fitness, episodes=usual))


# ------------------------------------------------------------------------------------- shards, intervals


def _with_shards(e: Experiment, method: Method, processes: int) -> Experiment:
    """Fill in how many shards there are. Raises BadInput where there are not enough."""
    shards = e.shards
    if shards is None and e.exchange.name == "directory" and method.shares_evaluation:  # pairs stay whole
        shards = max(n for n in range(1, PARTS + 1) if e.population % (2 * n) == 0 or n == 1)
    count = shards or processes
    if count < processes:
        raise BadField(
            "shards", f"each of the {processes} processes needs one", "start fewer, or raise shards", value=count
        )
    if e.population % count:
        raise BadField("population", f"must be a multiple of its {count} shards", value=e.population)
    return replace(e, shards=count)


def _check_parts(e: Experiment, method: Method, learner: Learner | SearchLearner) -> None:
    """Raise BadInput where shards, exchange or fitness do not go with the way in which members learn."""
    name, shards = method_name(e.method), e.shards or 1
    if e.start is not None and isinstance(learner, Learner) and learner.together:
        problem = f"with method {name} members share a critic, which would begin anew and lead them astray"
        raise BadField("start", problem, value=e.start)
    if e.exchange.name == "directory" and not method.workers:
        problem = f"method {name} decides for a whole population, which workers of a directory are not"
        raise BadField("exchange", problem, "one process or mpi", value="directory")
    if shards > 1 and learner.together:
        raise BadField("shards", f"with method {name} members share a critic: it needs one shard", value=e.shards)
    if isinstance(learner, Learner):
        return
    if learner.pairs and e.population % (2 * shards):
        many = ", two for each shard" if shards > 1 else ""
        advice = f"it must be a multiple of {2 * shards}{many}"
        raise BadField("population", f"method {name} perturbs in mirrored pairs", advice, value=e.population)
    if e.exchange.name == "directory" and not method.shares_evaluation:
        raise BadField(
            "exchange", f"with method {name} members share a critic: they need one process", value="directory"
        )
    if e.fitness.source == "training":
        raise BadField(
            "fitness.source", f"with method {name} members train in their evaluations alone", value="training"
        )


def _interval(experiment: Experiment, learner: Learner | SearchLearner) -> tuple[int, int | None]:
    """`iterations` and `steps` of Resolved. Raises BadInput where nothing would be learned."""
    agent = learner.agent
    if isinstance(learner, SearchLearner):
        return SHOWN, None
    iterations = -(-experiment.interval // (agent.rollout * agent.environments))
    if iterations > INT32:
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
