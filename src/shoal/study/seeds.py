"""Runs of one experiment, each with a seed of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shoal.core import run_files
from shoal.core.atomic import absolute
from shoal.core.backend import on_jax
from shoal.core.errors import BadField, BadInput
from shoal.core.interrupts import interruptible
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import make_closed_plan
from shoal.experiment.validation import check
from shoal.members.devices import prepare
from shoal.members.trace_cache import trace_cache
from shoal.records.callback import Callback
from shoal.report.page import write_report
from shoal.run.start import numbered, run_name
from shoal.run.train import resume, train
from shoal.study.results import NotOurs, begun


@on_jax()
def train_seeds(
    experiment: Experiment, seeds: Sequence[int], callbacks: Callable[[], Sequence[Callback]]
) -> list[Path]:
    """Run an experiment with each of the seeds, and return the run directories. Runs that are done stay, and those that
    were stopped go on.

    They lie in a folder of their own: the experiment's `run_dir`, or runs/ENVIRONMENT-AGENT-seeds.

    callbacks: makes those of one run. Raises BadInput, Failed, Interrupted, KeyboardInterrupt.
    """
    if len(seeds) < 2 or len({*seeds}) < len(seeds):
        raise BadInput("--seeds: name at least two, each once; --seed N makes a single run")
    if experiment.exchange.name != "local":
        raise BadField(
            "exchange", "--seeds makes its runs in one process", "leave it out", value=experiment.exchange.name
        )
    if experiment.auto:
        raise BadField("population", "--seeds needs the same for all runs", "write a number", value="auto")
    for seed in seeds:
        check(replace(experiment, seed=seed))
    prepare()
    with interruptible() as attend, trace_cache():
        runs = _placed(experiment, seeds)
        for run in runs:
            attend()
            to_the_end(run, callbacks())
    return [Path(str(run.run_dir)) for run in runs]


def _placed(experiment: Experiment, seeds: Sequence[int]) -> list[Experiment]:
    """The runs, each with its directory. Raises BadInput where others lie."""

    def inside(folder: Path) -> list[Experiment]:
        runs = [replace(experiment, seed=seed, run_dir=str(absolute(folder) / f"seed-{seed}")) for seed in seeds]
        for run in runs:
            begun(Path(str(run.run_dir)), run)
        return runs

    if experiment.run_dir is not None:
        return inside(Path(experiment.run_dir))
    for folder in numbered(Path("runs") / f"{run_name(make_closed_plan(experiment))}-seeds"):
        with suppress(NotOurs):
            return inside(folder)
    raise AssertionError("there is always a free place")


def to_the_end(experiment: Experiment, callbacks: Sequence[Callback]) -> None:
    """Train a run in its directory, from the start or from where it stopped, and write its page; one that is done stays.
    Raises what `train` raises."""
    run = Path(str(experiment.run_dir))
    if not begun(run, experiment):
        train(experiment, callbacks)
    elif not (run / run_files.RESULT).exists():
        free = {name: getattr(experiment, name) for name in ("checkpoint", "processes")}
        resume(run, callbacks=callbacks, trust_code=True, **free)
    if not (run / "report.html").exists():
        write_report(run)
