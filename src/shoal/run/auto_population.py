"""Members that train in the time of one on this machine: `population: auto`, and what `shoal doctor --members` says."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from shoal.core.errors import BadField, BadInput
from shoal.core.interrupts import attend
from shoal.environments.error_boundary import callbacks_attributed
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import Plan, make_closed_plan, make_plan
from shoal.members.devices import free_memory
from shoal.run.memory import reckoned

AS_LONG = 1.2  # times the time of one member still count as the same
PART = 1.0  # seconds of training that are timed at once; those of a longer interval follow from them
REPEATS = 3  # of a size, or as many more as a second has room for; the quickest counts
LIMIT = 120.0  # seconds, with compiling, after which no further size is tried


class FreeMembers(NamedTuple):
    """Seconds of a generation by the number of members, ascending from one.

    stopped: why no more were tried, where these still take the time of one
    """

    seconds: dict[int, float]
    stopped: str = ""

    @property
    def members(self) -> int:
        """The most members whose generation takes the time of one."""
        return max(n for n in self.seconds if self.times(n) <= AS_LONG)

    def times(self, members: int) -> float:
        """The time of so many members as a multiple of that of one."""
        return self.seconds[members] / self.seconds[1]


def resolved(experiment: Experiment, note: Callable[[str], None]) -> Experiment:
    """The experiment with a number in place of `population: auto`. note: is told of it. Raises BadInput."""
    if not experiment.auto:
        return experiment
    found = measure(experiment)
    n = permitted(experiment, found)
    if n > 1:
        note(f"population: {n} members take {found.times(n):.2g} times the time of one")
    else:
        note(f"population: one member, for {found.stopped or f'two take {found.times(2):.2g} times its time'}")
    return replace(experiment, population=n)


def permitted(experiment: Experiment, found: FreeMembers) -> int:
    """The most of the timed members that train in the time of one and that the method takes. Raises BadField."""
    free = [n for n in found.seconds if n <= found.members]
    try:
        return _first_permitted(experiment, free[::-1])
    except BadInput as error:
        which = f"{found.members:,}" if found.members > 1 else "no two"
        problem = f"{which} members take the time of one here; {error}"
        raise BadField("population", problem, value="auto") from error


def _first_permitted(experiment: Experiment, populations: Sequence[int]) -> int:
    """The first population that can be planned. Raises BadInput about the first of all where none can."""
    problems = []
    for population in populations:
        try:
            make_closed_plan(replace(experiment, population=population))
        except BadInput as error:
            problems.append(error)
        else:
            return population
    raise problems[0]


def measure(experiment: Experiment, limit: float = LIMIT) -> FreeMembers:
    """Time generations, training and evaluation, of 1, 2, 4, ... members until they take longer than one.

    limit: seconds after which no further size is tried, but for two members.
    Raises BadInput for members that cannot be timed so.
    """
    plan = _plan(experiment)
    trial, began = min(plan.iterations, 2), time.perf_counter()
    training, _ = timed(plan, 1, trial)
    part = min(plan.iterations, max(1, int(PART * trial / training)))
    seconds: dict[int, float] = {}
    for n in sizes():
        free = free_memory()
        if seconds and free is not None and reckoned(plan, n).need > free:
            return FreeMembers(seconds, f"{n:,} do not fit into memory")
        if len(seconds) > 1 and time.perf_counter() - began > limit:
            return FreeMembers(seconds, f"{limit:g} s were over")
        training, evaluation = timed(plan, n, part)
        seconds[n] = training * plan.iterations / part + evaluation
        if (found := FreeMembers(seconds)).times(n) > AS_LONG:
            return found
    raise AssertionError("there is always a larger size")


def _plan(experiment: Experiment) -> Plan:
    """The plan that is timed, in which off-policy agents learn from their first steps on. Raises BadInput."""
    population = experiment.population
    if experiment.auto:  # some methods do not take every number
        population = _first_permitted(experiment, [Experiment().population, *itertools.islice(sizes(), 10)])
    plan = make_plan(replace(experiment, population=population))
    kind = plan.kind.compiled
    if kind is None or kind.sampled or kind.together:
        plan.kind.close()
        problem = "members are timed only where each is an agent of Shoal's own and learns for itself"
        raise BadField("population", problem, "write a number" if experiment.auto else "")
    if kind.agent.learning_starts:
        plan = make_plan(replace(plan.experiment, config=plan.experiment.config | {"learning_starts": 0}))
    return plan


def sizes() -> Iterator[int]:
    """Yield populations to time: 1, 2, 4, ...; above the number of devices multiples of it, so that none waits."""
    n, devices = 1, len(jax.devices())
    while True:
        yield n
        n = 2 * n if n >= devices else min(2 * n, devices)


def timed(plan: Plan, members: int, iterations: int) -> tuple[float, float]:
    """Seconds of so many iterations of training, and of an evaluation; all members have the default hyperparameters."""
    _, first = plan.evolver.init((0,), np.zeros(1, np.int64))
    values = {name: plan.search.defaults.get(name, x[0]) for name, x in first.items()}
    times: list[tuple[float, float]] = []
    made = plan.kind.shard([np.arange(members)], plan.setup)
    with callbacks_attributed(plan.experiment.env_name), closing(made) as shard:
        shard.begin({name: np.full(members, x, np.float32) for name, x in values.items()})
        while len(times) < 1 + REPEATS or sum(map(sum, times[1:])) < PART:
            attend()
            began, generation = time.perf_counter(), len(times)
            shard.train(generation, iterations, iterations)
            trained = time.perf_counter()
            shard.evaluate(generation)
            times.append((trained - began, time.perf_counter() - trained))
    training, evaluation = (min(x) for x in zip(*times[1:], strict=True))  # the first compiles
    return training, evaluation
