"""Single agents that follow the schedule of hyperparameters that a population found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.atomic import absolute
from shoal.core.backend import on_jax
from shoal.core.errors import BadInput
from shoal.core.run_files import is_workspace
from shoal.experiment.experiment import Experiment, Stop, alone
from shoal.experiment.files import attribute_errors, load, of_run
from shoal.experiment.plan import make_closed_plan
from shoal.experiment.structures import with_structure
from shoal.experiment.trust import open_run
from shoal.members.devices import prepare
from shoal.methods import METHODS
from shoal.methods.components import make_method
from shoal.methods.schedule import Schedule
from shoal.records.callback import Callback
from shoal.report.lineage import Lineage
from shoal.report.schedule import no_schedule, schedule_of
from shoal.report.workspace import read_with_ancestors
from shoal.run.result import Result
from shoal.run.train import train
from shoal.trainers.live import LIVE, translate


def replay(run: Path, *, callbacks: Sequence[Callback] = (), **how: Any) -> Result:
    """Train agents that follow the schedule of a run's champion. Raises BadInput. how: see `follower`"""

    def note(message: str) -> None:
        for callback in callbacks:
            callback.on_message(message)

    return train(follower(run, note=note, **how), callbacks)


@on_jax()
def follower(
    run: Path,
    *,
    file: Path | None = None,
    run_dir: str | None = None,
    population: int = 1,
    generations: int | None = None,
    budget: int | None = None,
    time_limit: float | None = None,
    stop: Stop | None = None,
    seed: int | None = None,
    trust_code: bool = False,
    note: Callable[[str], None] = lambda message: None,
) -> Experiment:
    """The experiment of `population` agents that follow the champion's schedule and never copy. Raises BadInput.

    file: an experiment whose agent and environment replace those of the run; the interval stays
    generations: by default as many as the schedule has; more go on with its last values
    budget, time_limit, stop: as those of an experiment
    trust_code: import code that the run names. note: is called with messages to the user
    """
    experiment = open_run(run, trust_code) if file is None else of_run(run)
    run_dir = str(absolute(run_dir or _beside(run)))  # before the environment is made
    record, name, tuned = read_with_ancestors(run), experiment.method_name, sorted(experiment.space or ())
    if METHODS.get(name) is Schedule:  # the run is a replay itself
        made = make_method(experiment.method)
        assert isinstance(made, Schedule)
        tuned = made.tuned(tuned)
    elif not record.method.tunes:
        raise BadInput(f"{run} has no schedule: method {name} tunes nothing")
    if not tuned:
        raise BadInput(f"{run} has no schedule: its space is empty, so nothing was tuned")
    found = schedule_of(record)
    if not found:
        raise no_schedule(run, record)
    if first := found[0]["generation"]:
        note(f"the schedule begins after generation {first}: the lineage of {run} holds nothing of its champion before")
    if missing := [name for name in tuned if name not in found[0]]:
        raise BadInput(f"{run} has no schedule: its lineage has no values of {', '.join(missing)}")
    each = zip(found, _intervals(run, record.lineage, found, experiment.population), strict=True)
    rows = [{name: row[name] for name in tuned} for row, times in each for _ in range(times)]
    if file is None:
        trained = replace(with_structure(experiment, found[-1]), init_from=None)
        if experiment.init_from:
            note(f"{run} started from the weights of {experiment.init_from}; this agent starts from scratch")
    else:
        trained = load(file)
        trained = replace(trained, **trained.absolute_paths)
        with attribute_errors(file, always=False):
            rows = _for_another(run, rows, experiment, trained, note)
    return replace(
        alone(trained),
        population=population,
        generations=len(rows) if generations is None else generations,
        budget=budget,
        time_limit=time_limit,
        stop=stop or Stop(),
        interval=experiment.interval,
        method={"name": "schedule", "rows": rows},
        space={},
        seed=experiment.seed + 1 if seed is None else seed,
        run_dir=run_dir,
    )


def _beside(run: Path) -> Path:
    """The place of a replay where none is asked for: beside its run, but not among the workers of a workspace."""
    run = absolute(run)
    workspace = run.parent.parent
    return Path(f"{workspace}-{run.name}-replay" if is_workspace(workspace) else f"{run}-replay")


def _intervals(run: Path, lineage: Lineage, found: list[dict[str, Any]], population: int) -> list[int]:
    """The intervals of each generation of a schedule: more than one where other members had ended. Raises BadInput."""
    rows = np.searchsorted(lineage.generations, [row["generation"] for row in found])
    columns = np.searchsorted(lineage.uids, [row["uid"] for row in found])
    until = lineage.steps[rows, columns]
    # Of the same member: its parent may have made fewer.
    since = np.where(rows > 0, lineage.steps[rows - 1, columns], 0.0)
    unit = until[0] - since[0]
    # Where no member ended, each is one: external trainers may make longer generations, and need not report their steps.
    if lineage.present.all() or not np.isfinite([*until, *since]).all() or unit <= 0:
        return [1] * len(found)
    lasted = [round(end) - round(begin) for begin, end in zip(since / unit, until / unit, strict=True)]
    if not all(1 <= times <= population for times in lasted):
        raise BadInput(f"{run} has no schedule: steps in its lineage.jsonl are impossible")
    return lasted


def _for_another(
    run: Path, rows: list[dict[str, float]], found: Experiment, trained: Experiment, note: Callable[[str], None]
) -> list[dict[str, float]]:
    """The schedule of one experiment for the agent of another one. Raises BadInput if it has none of the hyperparameters."""
    prepare()
    plan = make_closed_plan(replace(alone(trained), method="independent", space={}))
    known, agent = plan.defaults, plan.experiment.agent_name
    source, target = (LIVE.get(str(e.agent_name).partition(":")[0], {}) for e in (found, plan.experiment))
    left_out = [name for name in rows[0] if not translate({name: 1.0}, source, known, target)]
    if len(left_out) == len(rows[0]):
        raise BadInput(f"{run} has no schedule for {agent}, which has none of {', '.join(left_out)}")
    if left_out:
        note(f"{agent} has no {', '.join(left_out)}: left out of the schedule")
    return [translate(row, source, known, target) for row in rows]
