"""From an experiment to the plan of a run, in one pass: rules, method, names, kind of member, and what that decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from shoal.core.env_parameters import defaults, split
from shoal.core.errors import BadField
from shoal.core.keys import derive
from shoal.core.population import PureEvolver, Values
from shoal.core.space import Range, SearchSpace
from shoal.core.types import RunProgress
from shoal.environments.evaluation import EvaluationConfig
from shoal.experiment.build import check_env_parameters, evaluation_of, make_kind, resolve_names, search_space
from shoal.experiment.experiment import Experiment, Fitness
from shoal.experiment.rules import OF_KIND, of_game, refuse
from shoal.experiment.structures import ranges
from shoal.experiment.validation import LIMITS, check
from shoal.members.protocol import Kind, Setup
from shoal.methods.method import Method
from shoal.methods.ranges import nearest
from shoal.methods.successive_halving import at_generations

EVALUATING = 0.1  # of the steps of an interval, at most, go to episodes: auto
PARTS = 8  # at most, of a population that several processes measure together


class Plan(NamedTuple):
    """The plan that a run follows: an experiment with every default filled in, and all that it names.

    iterations: parts that make an interval of the whole population
    steps: those of a member in it; 0 where whole episodes make one
    """

    experiment: Experiment
    method: Method
    kind: Kind  # of its members
    evaluation: EvaluationConfig  # of theirs
    evolver: PureEvolver
    search: SearchSpace
    shards: int
    iterations: int
    steps: int

    @property
    def setup(self) -> Setup:
        """The arguments that shards are made with."""
        return Setup(
            self.experiment.seed,
            self.evaluation,
            self.steps,
            ends_members=self.method.ends_members,
            structure=self.structure,
            chosen=self.chosen,
        )

    def chosen(self, uid: np.ndarray) -> Values:
        """The choices of structure that members [N] make, by name."""
        _, hyper = self.evolver.init(derive((self.experiment.seed,), 0, "hyper"), uid)
        return {name: hyper[name] for name in ranges(self.experiment)}

    @property
    def structure(self) -> Any:
        """Key of the compiled programs: environment, environment parameters, learner and evaluation."""
        e, (_, first) = self.experiment, self.evolver.init((0,), np.zeros(1, np.int64))
        environment = e.env, e.env_options, sorted(split(first)[1])
        learner = e.agent, e.config, e.population, self.method.structure
        return environment, learner, self.evaluation

    @property
    def space(self) -> dict[str, Range]:
        """The ranges of what is tuned."""
        return self.search.ranges

    @property
    def defaults(self) -> dict[str, float]:
        """The default value of every hyperparameter, by name."""
        return defaults(self.kind.tunable, self.kind.env_parameters)

    @property
    def rung_sizes(self) -> list[tuple[float, int]]:
        """`Method.rung_sizes`; where only the generations end the run, at the ends of these."""
        planned, e = self.method.rung_sizes(self.experiment.population), self.experiment
        return at_generations(planned, e.generations) if e.ends_by == ["generations"] else planned

    @property
    def lengthening(self) -> float:
        """Time of training as a multiple of the one if nobody ended: the fewer members are left, the more devices wait."""
        side_by_side = jax.default_backend() != "cpu"  # an accelerator trains all members at a time

        def turns(members: int) -> float:
            return 1.0 if side_by_side else members / self.kind.devices([np.arange(members)])

        return self.share_made(1.0, turns) / turns(self.experiment.population)

    def nearest(self, hyper: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the tuned hyperparameters [N], each as the nearest valid value of its range."""
        return {name: nearest(self.space[name], x) for name, x in hyper.items() if name in self.space}

    def members(self, process: int = 0, processes: int = 1, first: int = 0) -> list[np.ndarray]:
        """Return the uids of each shard of a process, int64 [n] each; uids of the population begin at `first`."""
        every = first + np.arange(self.experiment.population).reshape(self.shards, -1)
        return list(np.array_split(every, processes)[process])

    def progress(self, generations: int, steps: int, seconds: float) -> float:
        """The share of the run that is done after so many generations, steps, those of evaluations included, and seconds."""
        e = self.experiment
        by_time = 0.0 if e.time_limit is None else seconds / e.time_limit
        by_steps = 0.0 if e.budget is None else steps / e.budget
        return max(by_time, by_steps, 0.0 if e.ends_by == ["time_limit"] else generations / e.generations)

    def length(self, generation: int, members: int, steps: int) -> int:
        """The iterations of a generation: fewer members train for longer, so that all together make the same steps.

        members: of this process, that are left; steps: those of all members so far
        """
        population = self.experiment.population
        if not self.method.ends_members or members == population:
            return self.iterations
        due = (generation + 1) * population * self.steps - steps
        return max(1, round(due / members * self.iterations / self.steps))

    def progress_before(self, generation: int, members: int, steps: int, seconds: float) -> RunProgress:
        """The progress of the run before a generation, which schedules follow, after so many steps, those of evaluations
        included, and seconds: the share of its own iterations that a member has made, or of the budget that all have spent;
        where there is a time limit, it is the same all through the generation.

        members: of this process, that are left; where some have ended, there is no other process
        """
        e = self.experiment
        if e.time_limit is not None:
            return RunProgress(*map(np.float32, (self.progress(generation, steps, seconds), 0, 1)))
        if e.budget is not None:
            training = members if self.method.ends_members else e.population
            per_iteration = self.steps // self.iterations * training
            return RunProgress(*map(np.float32, (steps, per_iteration, e.budget)))
        whole = self.iterations * e.generations
        done, total = self.share_made(generation / e.generations), self.share_made(1.0)
        return RunProgress(*map(np.float32, (whole * done, 1, whole * total)))

    def share_made(self, share: float, turns: Callable[[int], float] = lambda members: 1.0) -> float:
        """Length of a share of the run for a member that does not end, in runs where nobody ends.

        turns: the weight of each part of it, by the members that are left
        """
        ends = [rung for rung, _ in self.rung_sizes[1:]] + [1.0]
        parts = [
            (min(end, share) - begin) * self.experiment.population / members * turns(members)
            for (begin, members), end in zip(self.rung_sizes, ends, strict=True)
            if begin < share
        ]
        return sum(parts)


def make_plan(experiment: Experiment, processes: int = 1) -> Plan:
    """Check an experiment, and make what it names; nothing is written. Raises BadInput.

    processes: how many share the shards of one population.
    """
    method = check(experiment)
    if experiment.auto:
        raise BadField("population", "only shoal train and shoal doctor measure it", "write a number", value="auto")
    given = resolve_names(experiment, method)
    kind = make_kind(given, method)
    try:
        search = search_space(given, method, kind)
        counts = _counts(given, kind, processes)
        e = replace(given, hyper=search.fixed, space=search.ranges, **counts)  # it is final
        refuse(OF_KIND, e, method, kind)
        search = search._replace(ranges=search.ranges | ranges(e))
        evolver = method.evolver(search, e.population)
        check_env_parameters(e, kind, evolver)
        iterations, steps = kind.interval(e.interval, e.generations, e.population)
        return Plan(e, method, kind, evaluation_of(e), evolver, search, e.shards or 1, iterations, steps)
    except BaseException:
        kind.close()
        raise


def make_closed_plan(experiment: Experiment) -> Plan:
    """Make the plan of an experiment that is not run here, and end the processes of its trainers. Raises BadInput."""
    plan = make_plan(experiment)
    plan.kind.close()
    return plan


def _counts(e: Experiment, kind: Kind, processes: int) -> dict[str, Any]:
    """The fields that the kind of member decides where they are not given. Raises BadInput for too few shards."""
    fitness = whole_fitness(e, kind)
    every = 1 if e.checkpoint.every is None and e.exchange.name == "directory" else e.checkpoint.every
    generations = e.generations
    if e.budget is not None:  # so many that training alone comes to it: of whole episodes, were they of one step
        least = e.population * (_episodes(e, kind) if kind.sampled else e.interval)
        generations = min(-(-e.budget // least), LIMITS["generations"][1])
    return {
        "shards": _shards(e, kind, processes),
        "fitness": fitness,
        "final_episodes": fitness.episodes if fitness.exact else e.final_episodes,
        "checkpoint": replace(e.checkpoint, every=every),
        "generations": generations,
    }


def whole_fitness(e: Experiment, kind: Kind) -> Fitness:
    """The fitness with its source and its episodes, where they are not given. Raises BadInput."""
    f = e.fitness
    if of_game(kind) and f.source in (None, "exploitability"):
        # It is exact: nothing is played, and two equal numbers have a standard deviation of 0.
        return replace(f, source="exploitability", episodes=2, final_selection=0.0)
    return replace(f, source=f.source or "evaluation", episodes=_episodes(e, kind))


def _episodes(e: Experiment, kind: Kind) -> int:
    """Episodes of a member and evaluation: with `auto` as many as a tenth of an interval pays for, if each is as long as it
    may be, and at least as many as by default. Raises BadInput."""
    asked = e.fitness.episodes
    if asked != "auto":
        return asked or kind.episodes
    if kind.sampled or kind.compiled is None:
        problem = "is reckoned for members that are agents of Shoal's own and train between evaluations"
        raise BadField("fitness.episodes", problem, "write a number", value=asked)
    limit = min(kind.compiled.environment.episode_limit or e.fitness.step_limit, e.fitness.step_limit)
    evaluations = 1 if e.levels is None else 2
    return max(kind.episodes, int(EVALUATING * e.interval) // (limit * evaluations))


def _shards(e: Experiment, kind: Kind, processes: int) -> int:
    """The number of shards. Raises BadInput where there are not enough."""
    shards = e.shards
    if shards is None and e.exchange.name == "directory" and kind.sampled:  # pairs stay whole
        shards = max(n for n in range(1, PARTS + 1) if e.population % (kind.side_by_side * n) == 0 or n == 1)
    count = shards or processes
    if count < processes:
        problem = f"each of the {processes} processes needs one"
        raise BadField("shards", problem, "start fewer, or raise shards", value=count)
    if e.population % count:
        raise BadField("shards", f"must divide population = {e.population}", value=count)
    return count
