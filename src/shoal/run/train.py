"""Runs as a whole: train from the start, or resume from a checkpoint, to the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from shoal.core import run_files
from shoal.core.atomic import absolute, expanded
from shoal.core.backend import on_jax
from shoal.core.errors import BadField
from shoal.core.interrupts import Failed, Interrupted, on_signal
from shoal.distributed.processes import make_processes, workspace_of
from shoal.experiment.changes import going_on
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import attribute_errors, load
from shoal.experiment.validation import check
from shoal.records.callback import Callback
from shoal.records.words import many
from shoal.run.context import Context, State
from shoal.run.control import Control
from shoal.run.loop import run_generations
from shoal.run.result import Result
from shoal.run.start import begin, done_already, enter, restore
from shoal.run.workspace_selection import select_among_workers


def train(
    experiment: Experiment | str | PathLike[str], callbacks: Sequence[Callback] = (), progress: bool = False
) -> Result:
    """Train from the start and return the Result. In a shared directory, a worker that exists already resumes.

    experiment: the object, or the path of its file
    callbacks: receive the events of the run, and may end it after a generation; it can then be resumed
    progress: show the table that the command shows

    Raises BadInput for an invalid experiment, Interrupted after a signal, Failed if a file cannot be written or the
    environment fails.
    """

    def go(context: Context) -> Result:
        worker = context.processes.run_dir  # one that was here before goes on
        known = worker is not None and (worker / run_files.EXPERIMENT).exists()
        return _resume(context, True) if known else _run_to_end(context, begin)

    loaded = experiment if isinstance(experiment, Experiment) else load(expanded(experiment))
    return _run(loaded, callbacks, progress, go)


def resume(
    run_dir: str | Path,
    generations: int | None = None,
    callbacks: Sequence[Callback] = (),
    trust_code: bool = False,
    progress: bool = False,
    **given: Any,
) -> Result:
    """Continue a run from its newest complete checkpoint, up to `generations` in all, and return the Result.

    trust_code: import code that the run names and that is not Shoal's
    callbacks, progress: as for `train`
    given: fields that `shoal resume --set` may change, and objects without an importable name that the run started with

    With device environments the result equals that of a run that was never stopped, bit for bit; with host environments
    new episodes begin. A run that is done and gets no more generations returns its result at once. Raises BadInput if
    there is nothing to continue, and all that `train` raises.
    """
    file = absolute(run_dir) / run_files.EXPERIMENT
    experiment = replace(going_on(file.parent, trust_code, given), run_dir=str(file.parent))
    if generations is not None:
        for limit in experiment.ends_by:
            if limit != "generations":
                problem = f"{run_dir} ends with its {limit}"
                raise BadField("generations", problem, f"give it another one with --set {limit}=N")
        experiment = replace(experiment, generations=generations)
    if experiment.exchange.name == "directory":
        there = replace(experiment.exchange, workspace=str(workspace_of(experiment, file.parent)))
        experiment = replace(experiment, exchange=there, run_dir=None)
    with attribute_errors(
        file, ["generations", "run_dir", "exchange.workspace", "exchange.worker", *given], always=False
    ):
        return _run(experiment, callbacks, progress, partial(_resume, trusted=trust_code))


def _run(
    experiment: Experiment, callbacks: Sequence[Callback], progress: bool, go: Callable[[Context], Result]
) -> Result:
    """One run in one process, open to signals; in the end everything is given back."""
    if not isinstance(callbacks, Sequence) or not all(isinstance(each, Callback) for each in callbacks):
        raise BadField("callbacks", "must be a list of Callback objects, such as [Enough()]", value=f"{callbacks!r}")
    control = Control([*callbacks, *_asked(experiment, progress)])
    check(experiment)  # before MPI is there, which an error ends for good
    with (
        on_signal(control.interrupt, control.attend),
        make_processes(experiment, control.attend, control.note) as processes,
        on_jax(),
        ExitStack() as held,
    ):
        context = enter(experiment, control, processes, held)
        result = go(context)
        context.open_shard.close()
        try:
            if context.experiment.fitness.final_selection and (workspace := processes.ended_workspace):
                select_among_workers(workspace, context.plan, control.pause, control.note)
        except OSError as error:  # whoever is started again selects
            raise Failed(context.files.path, error) from error
        return result


def _asked(experiment: Experiment, progress: bool) -> Iterator[Callback]:
    """The callbacks that a call and an experiment ask for. Raises BadInput."""
    if progress:
        from shoal.records.console import Display
        from shoal.records.screen import Screen

        yield Display(Screen())
    if experiment.wandb is not None:
        from shoal.records.wandb_runs import WandbRuns

        yield WandbRuns(experiment.wandb)


def _resume(c: Context, trusted: bool) -> Result:
    """Continue a run from its newest checkpoint; if it is done, return its result."""
    if summary := done_already(c):
        c.control.note(f"{c.files.path}: done already, {many(summary['generations'], 'generation')}")
        return Result(c.files.path, summary, c.experiment, c.leading, already=True)
    return _run_to_end(c, partial(restore, trusted=trusted))


def _run_to_end(c: Context, first: Callable[[Context], State]) -> Result:
    """Run all generations from the `first` state, then the champion's final evaluation."""
    try:
        summary = run_generations(c, first(c))
    except OSError as error:
        raise Failed(c.files.path, c.files.reason(error)) from error
    except Interrupted:
        raise
    except Exception:
        c.files.discard_unborn()  # with what the callbacks wrote
        raise
    return Result(c.files.path, summary, c.experiment, c.leading)
