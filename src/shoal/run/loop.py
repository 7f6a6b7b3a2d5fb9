"""Runs as a whole: from their start or a checkpoint to their result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from shoal.core.backend import on_jax
from shoal.core.errors import BadField, BadInput
from shoal.core.interrupts import Failed, Interrupted, on_signal
from shoal.distributed.processes import Processes, workspace_of
from shoal.environments.error_boundary import callbacks_attributed
from shoal.experiment.changes import going_on
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import blame, load
from shoal.experiment.rules import check
from shoal.records.callback import Callback
from shoal.run.context import Context, State
from shoal.run.control import Control
from shoal.run.generations import run_generations
from shoal.run.result import Result
from shoal.run.start import begin, done_already, enter, restore


def train(
    experiment: Experiment | str | PathLike[str], callbacks: Sequence[Callback] = (), progress: bool = False
) -> Result:
    """Run an experiment from its start. A worker of a shared directory that was here before goes on, as with `resume`.

    experiment: the object, or the path of its file
    callbacks: receive every generation, and may end the run after one; it can be resumed then.
    progress: show the table that the command shows.

    Raises BadInput, Interrupted after a signal, Failed when the disk is full.
    """

    def go(context: Context) -> Result:
        worker = context.processes.run_dir  # one that was here before goes on
        known = worker is not None and (worker / "experiment.yaml").exists()
        return _go_on(context, True) if known else _to_the_end(context, begin(context))

    made = experiment if isinstance(experiment, Experiment) else load(Path(experiment))
    return _run(made, callbacks, progress, go)


def resume(
    run_dir: str | Path,
    generations: int | None = None,
    callbacks: Sequence[Callback] = (),
    trust_code: bool = False,
    progress: bool = False,
    **given: Any,
) -> Result:
    """Continue a run from its newest whole checkpoint, up to `generations` if that is given.

    trust_code: import what the run names, where it is not Shoal's. callbacks, progress: as those of `train`.
    given: what `shoal resume --set` may change, and objects that no name leads to, with which the run was started.

    With device environments the result equals that of a run that was never stopped, bit for bit; with host environments
    new episodes begin. Of a run that is done, and is asked for no more, the result is given at once. Raises BadInput when
    there is nothing to continue, and what `train` raises.
    """
    file = Path(run_dir).absolute() / "experiment.yaml"
    experiment = replace(going_on(file.parent, trust_code, given), run_dir=str(file.parent))
    if generations is not None:
        if experiment.budget is not None:
            raise BadField("generations", f"{run_dir} ends with its budget", "give it another one with --set budget=N")
        experiment = replace(experiment, generations=generations)
    if experiment.exchange.name == "directory":
        there = replace(experiment.exchange, workspace=str(workspace_of(experiment, file.parent)))
        experiment = replace(experiment, exchange=there, run_dir=None)
    with blame(file, ["generations", "run_dir", "exchange.workspace", "exchange.worker", *given], always=False):
        return _run(experiment, callbacks, progress, partial(_go_on, trusted=trust_code))


def _run(
    experiment: Experiment, callbacks: Sequence[Callback], progress: bool, go: Callable[[Context], Result]
) -> Result:
    """One run in one process, open to signals; in the end everything is given back."""
    control = Control([*callbacks, *_display(progress), *_asked(experiment)])
    check(experiment)  # before MPI is there, which an error ends for good
    with (
        on_signal(control.interrupt, control.attend),
        Processes(experiment, control.attend, control.note) as processes,
        on_jax(),
        ExitStack() as held,
    ):
        return go(enter(experiment, control, processes, held))


def _display(progress: bool) -> list[Callback]:
    if not progress:
        return []
    from shoal.records.console import Display
    from shoal.records.screen import Screen

    return [Display(Screen())]


def _asked(experiment: Experiment) -> list[Callback]:
    """The callbacks that an experiment asks for. Raises BadInput."""
    if experiment.wandb is None:
        return []
    from shoal.records.wandb_runs import WandbRuns

    return [WandbRuns(experiment.wandb)]


def _go_on(c: Context, trusted: bool) -> Result:
    """A run that was here before, from its newest checkpoint; where it is done, as it ended."""
    if summary := done_already(c):
        c.control.note(f"{c.files.path}: done already, {summary['generations']} generations")
        return Result(c.files.path, summary, c.leading, already=True)
    return _to_the_end(c, restore(c, trusted))


def _to_the_end(c: Context, state: State) -> Result:
    """Generation after generation, then the champion's last test."""
    summary = None
    try:
        try:
            env = c.experiment.env_name
            with callbacks_attributed(env), ThreadPoolExecutor(1, "saver") as saver:
                summary = run_generations(c, state, saver)
        finally:
            for callback in c.control.callbacks:
                callback.finish(summary)
    except OSError as error:
        raise Failed(c.files.path, c.files.reason(error)) from error
    except Interrupted:
        raise
    except Exception as error:
        if isinstance(error, BadInput) and c.files.checkpoints.generations():
            raise Failed(c.files.path, error) from error
        c.files.discard_unborn()  # with what the callbacks wrote
        raise
    return Result(c.files.path, summary, c.leading)
