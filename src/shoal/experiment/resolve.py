"""From an experiment to what it names: method, environment, agent and learner, evolver. Once per run."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shoal.core.errors import BadField
from shoal.core.evolution import PureEvolver
from shoal.core.knobs import usual
from shoal.environments.measurement import Measurement
from shoal.experiment.experiment import Experiment
from shoal.experiment.hyperparameters import check_knobs, with_numbers
from shoal.experiment.make import make_kind, measurement_of
from shoal.experiment.rules import OF_KIND, check, refuse
from shoal.members.kind import Kind
from shoal.members.shard import Setup
from shoal.methods.method import Method
from shoal.methods.ranges import nearest

PARTS = 8  # at most, of a population that several processes measure together


class Resolved(NamedTuple):
    """An experiment, and all that it names.

    iterations: parts that make an interval. steps: those of a member in it; None where whole episodes make one.
    """

    experiment: Experiment  # every default filled in; `space` holds ranges
    method: Method
    kind: Kind  # of its members
    evolver: PureEvolver
    iterations: int
    steps: int | None

    @property
    def measurement(self) -> Measurement:
        """How the members are measured."""
        return measurement_of(self.experiment)

    @property
    def setup(self) -> Setup:
        """What the shards of the members are made with."""
        return Setup(self.experiment.seed, self.measurement, self.steps or 0)

    @property
    def usual(self) -> dict[str, float]:
        """The usual value of every hyperparameter, by name."""
        return usual(self.kind.tunable, self.kind.knobs)

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
    experiment, kind = make_kind(_with_shards(experiment, method, processes), method)
    try:
        refuse(OF_KIND, experiment, method, kind)
        experiment = with_numbers(_with_episodes(experiment, kind.episodes), method, kind.tunable, kind.knobs)
        evolver = method.evolver(experiment.space or {}, experiment.hyper, experiment.generations)
        check_knobs(experiment, method, evolver, kind.knobs)
        interval = kind.interval(experiment.interval, experiment.generations, experiment.population)
    except BaseException:
        kind.close()
        raise
    return Resolved(experiment, method, kind, evolver, *interval)


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
