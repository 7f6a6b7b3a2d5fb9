"""What an experiment may not say, whatever its environment and agent: each combination of fields is one entry of a table."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

from shoal.core.errors import BadField
from shoal.core.schema import explained
from shoal.experiment.experiment import Experiment
from shoal.experiment.registry import method
from shoal.methods.method import Method
from shoal.methods.ranges import validate
from shoal.trainers.trainers import is_trainer

INT32, INT64 = 2**31 - 1, 2**63 - 1
# The least and the most of each. Checkpoints are named by eight digits.
LIMITS = {
    "population": (1, 1_000_000),
    "generations": (1, 99_999_999),
    "interval": (1, INT64),
    "seed": (0, INT32),
    "final_episodes": (1, INT32),
    "fitness.episodes": (1, INT32),
    "fitness.step_limit": (1, INT32),
    "checkpoint.every": (1, INT32),
    "checkpoint.keep": (1, INT32),
}
PATHS = ("run_dir", "exchange.workspace", "start")


class Rule(NamedTuple):
    """A combination of fields that is refused.

    field: the one that is said to be wrong. broken: whether it is; problem: what is, with `{e}` for the experiment
    """

    field: str
    broken: Callable[[Experiment], Any]
    problem: str
    advice: str = ""


def _beside(field: str, other: str, there: Callable[[Experiment], bool]) -> Rule:
    """A field that means something only beside another one."""
    value = attrgetter(field)
    return Rule(field, lambda e: value(e) != value(Experiment()) and not there(e), f"goes with {other}")


def _trained(e: Experiment) -> bool:
    return is_trainer(e.agent, e.python)


RULES = (
    Rule(
        "shards",
        lambda e: e.shards is not None and (e.shards < 1 or e.population % e.shards),
        "must be at least 1 and divide population = {e.population}",
    ),
    _beside("exchange.transfer", "exchange: mpi", lambda e: e.exchange.name == "mpi"),
    _beside("exchange.workspace", "exchange: directory", lambda e: e.exchange.name == "directory"),
    _beside("exchange.worker", "exchange: directory", lambda e: e.exchange.name == "directory"),
    Rule(
        "exchange.name",
        lambda e: e.exchange.name == "directory" and e.exchange.workspace is None,
        "needs a workspace, the directory that workers share",
        "write exchange: {name: directory, workspace: ...}",
    ),
    Rule(
        "run_dir",
        lambda e: e.exchange.name == "directory" and e.run_dir is not None,
        "the run of a worker lies in its workspace",
        "leave run_dir out",
    ),
    Rule(
        "fitness.source",
        lambda e: e.levels is not None and e.fitness.source == "training",
        "training is on the levels of train alone: write evaluation",
    ),
    _beside("fitness.levels", "levels", lambda e: e.levels is not None),
    _beside("python", "trainers, such as agent: sb3:PPO", _trained),
    _beside("processes", "trainers, such as agent: sb3:PPO", _trained),
)


def check(e: Experiment) -> Method:
    """The method that an experiment names. Raises BadInput for all that is wrong whatever the environment and agent."""
    for name, (least, most) in LIMITS.items():
        value = attrgetter(name)(e)
        if value is not None and not least <= value <= most:
            bound = f"least {least}" if value < least else f"most {most}"
            *above, _ = name.split(".")
            holder = attrgetter(*above)(e) if above else e
            raise explained(BadField(name, f"must be at {bound}", value=value), type(holder), *(f"{x}." for x in above))
    for name in PATHS:
        path = attrgetter(name)(e) or ""
        if "\0" in path or path.encode(errors="ignore").decode() != path:
            problem = "a path must be text in UTF-8, without \\0, to be written in a run's files"
            raise BadField(name, problem, "rename what is not", value=f"{path!r}")
    if e.levels is not None:
        e.levels.spans()
    for rule in RULES:
        if rule.broken(e):
            value = attrgetter(rule.field)(e)
            shown = value if isinstance(value, (str, int)) else None
            raise BadField(rule.field, rule.problem.format(e=e), rule.advice, value=shown)
    for name, number in e.hyper.items():
        if not math.isfinite(number):
            raise BadField(f"hyper.{name}", "must be a finite number", value=number)
        if name in (e.space or {}):
            advice = f"remove it here, and to start a tuned one somewhere set space.{name}.start"
            raise BadField(f"hyper.{name}", "a hyperparameter is either fixed or tuned", advice)
    for name, r in (e.space or {}).items():
        validate(name, r)
    return method(e.method)
