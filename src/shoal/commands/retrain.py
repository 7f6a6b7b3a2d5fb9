"""Training single agents with the schedule of hyperparameters that a population found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shoal.core.errors import BadInput
from shoal.experiment.experiment import alone, of_run
from shoal.experiment.registry import method_data, method_name
from shoal.experiment.trust import check_trust
from shoal.methods.methods import METHODS, Schedule
from shoal.records.recorder import Recorder
from shoal.report.lineage import read_run, schedule
from shoal.run.loop import Result, train


def replay(
    run: Path,
    run_dir: str | None = None,
    population: int = 1,
    seed: int | None = None,
    recorders: Sequence[Recorder] = (),
    trust_code: bool = False,
) -> Result:
    """Train `population` agents that follow the champion's schedule and never copy; raises BadInput without a run.

    trust_code: import what the run names, where it is not Shoal's.
    """
    experiment = of_run(run)
    check_trust(experiment, trust_code)
    name, tuned = method_name(experiment.method), sorted(experiment.space or ())
    if METHODS.get(name) is Schedule:  # itself a replay
        tuned = sorted(method_data(experiment.method)["rows"][0])
    elif not read_run(run).tunes:
        raise BadInput(f"{run} has no schedule to follow: method {name} tunes nothing")
    if not tuned:
        raise BadInput(f"{run} has no schedule to follow: its space is empty, so that nothing was tuned")
    rows = [{name: row[name] for name in tuned} for row in schedule(run)]
    if not rows:
        raise BadInput(f"{run} has no lineage to follow: its first generation has not ended")
    return train(
        replace(
            alone(experiment),
            population=population,
            generations=len(rows),
            method={"name": "schedule", "rows": rows},
            space={},
            seed=experiment.seed + 1 if seed is None else seed,
            run_dir=run_dir or f"{run}-replay",
        ),
        recorders,
    )
