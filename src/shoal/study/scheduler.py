"""The scheduler of a study: every arm with every seed, by any number of processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table

from shoal.core import run_files
from shoal.core.atomic import FOLDER, absolute, check_kind, read_or_nothing, write_file
from shoal.core.backend import on_jax
from shoal.core.errors import BadField, BadInput
from shoal.core.interrupts import Failed, Interrupted, interruptible
from shoal.core.user_code import one_line
from shoal.distributed.lease import Lease, ended
from shoal.experiment.experiment import Experiment, WeightsAndBiases
from shoal.experiment.files import attribute_errors
from shoal.members.devices import prepare
from shoal.members.trace_cache import trace_cache
from shoal.records.callback import Callback, Start
from shoal.records.generation import Generation
from shoal.records.screen import Screen, styled
from shoal.records.tensorboard import TensorBoard
from shoal.records.words import text
from shoal.study.compare import seeds_summary, stopped
from shoal.study.display import progress_table, time_left
from shoal.study.replay import follower
from shoal.study.results import FILE, NotOurs, RunOutcome, begun, is_study, read_outcome, read_results, stranded
from shoal.study.seeds import to_the_end
from shoal.study.sequences import SEED_STEP, put_together
from shoal.study.study_file import RunKey, Study, Trial, budgets, check_optimizers, dump, read, trials

FINISHED = (run_files.RESULT, "report.html")  # files of a run that is done


@on_jax()
def run_study(file: Path, workspace: Path | None, console: Screen, quiet: bool = False) -> tuple[Path, int]:
    """Do all runs of a study that are left. Returns its directory and the number of failed runs.

    workspace: by default studies/NAME; runs that were stopped there go on

    Raises BadInput, Interrupted, KeyboardInterrupt.
    """
    study = read(file)
    path = absolute(workspace or Path("studies") / file.stem)
    prepare()
    with attribute_errors(file):
        planned, steps = trials(study), budgets(study)
        check_optimizers(study)
    _write_study(study, path, file)
    if not quiet and (seeds := seeds_summary(read_results(path))):
        console.print(seeds, soft_wrap=True)
    scheduler = Scheduler(study, path, planned, steps, console, quiet)
    for trial in planned:
        scheduler.is_complete(trial)  # raises NotOurs before anything is trained
    live = None if quiet or not console.redraws else scheduler.live()
    with trace_cache(), live or nullcontext():
        for patient in (False, True):
            while any(scheduler.attempt(trial, patient) for trial in planned):  # then again from the first
                pass
    return path, len(scheduler.failed)


def _write_study(study: Study, path: Path, file: Path) -> None:
    """Write study.yaml. Raises BadInput if runs there belong to other arms, tasks or analyses."""
    before = read(path / FILE) if is_study(path) else Study()
    for task, arm in product(before.all_tasks, before.arms):
        now, then = ((s.base, s.arms.get(arm), s.fields(task), task in s.all_tasks) for s in (study, before))
        if now != then and any((path / key.place).exists() for key in before.runs(task, arm)):
            what = f"it has runs of arm {arm}{task and f' on task {task}'} that the file does not describe"
            raise BadInput(f"{path} holds another study than {file}: {what}; name a free place with --workspace")
    plans = [(s.interim_analyses, s.pairs, s.interim_analyses and s.seeds) for s in (study, before)]
    if plans[0] != plans[1] and any(path.glob("runs/*")):
        what = f"{file} has other interim_analyses or pairs"
        raise BadInput(f"{path} has runs, and {what}: these are fixed before the first run")
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in ("leases", "failures"):
            check_kind(path / name, FOLDER)
        write_file(path / FILE, dump(study).encode())
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error


def _named(trial: Trial, run: Path) -> WeightsAndBiases | None:
    """The settings of W&B for a run, with a name of its own there: that of its folder is a number alone."""
    settings, name = trial.experiment.wandb, trial.key.title
    if settings is None:
        return None
    part = "" if trial.sequence is None else f", run {run.name}"
    return replace(settings, name=settings.name or name + part, group=settings.group or name)


class Scheduler(Callback):
    """Runs of a study: done, failed, due, and the one at work in this process."""

    def __init__(
        self,
        study: Study,
        path: Path,
        planned: list[Trial],
        steps: Mapping[tuple[str, str], float],
        console: Screen,
        quiet: bool,
    ):
        """steps: of a run, by task and arm; see `budgets`."""
        self._study, self._path, self._console, self._quiet = study, path, console, quiet
        self._steps = steps
        self._trials = {trial.key: trial for trial in planned}
        self._arms = {arm: study.runs(*arm) for arm in product(study.all_tasks, study.arms)}
        self.failed: set[RunKey] = set()
        self._outcomes: dict[RunKey, RunOutcome] = {}  # of runs that are done, by this process or another one
        self._running: RunKey | None = None
        self._share = 0.0
        self._lease: Lease | None = None
        self._part, self._parts = 0, 1  # of a sequence of runs
        self._ended: dict[int, bool] = {}  # by interim analysis: whether the study ends there

    def live(self) -> Live:
        """A table of the runs, redrawn while the context is open."""

        def view() -> Table:
            now = {self._running: self._share} if self._running else {}
            return progress_table(self._progress(), self._arms, self._outcomes, now)

        return Live(console=self._console, get_renderable=view, refresh_per_second=2)

    def _progress(self) -> str:
        """Runs that are done, and the time left."""
        most, over = "at most " if self._study.interim_analyses else "", self._over
        due = {key: 1.0 for key in self._trials if key not in over and self._is_due(key)}
        if self._running in due:
            due[self._running] -= self._share
        left = time_left(self._arms, self._steps, self._outcomes, due)
        return f"{len(self._outcomes)} of {most}{len(self._trials)} runs, {most}{left} left"

    @property
    def _over(self) -> set[RunKey]:
        """Runs that are done, failed, or follow a failed one."""
        return {*self._outcomes, *self.failed, *stranded(self._study, self.failed)}

    def attempt(self, trial: Trial, patient: bool) -> bool:
        """Do a run that is due and that no other process does. Returns True once it is done.

        patient: wait until it is known whether the holder of a lease is alive, where that cannot be seen
        """
        over = trial.key in self.failed or self._is_done(trial)
        if over or not self._can_start(trial) or not self._is_due(trial.key, patient):
            return False
        name = self._path / trial.key.lease
        if not patient and name.exists() and not ended(read_or_nothing(name)):
            return False
        name.parent.mkdir(parents=True, exist_ok=True)
        with interruptible() as attend:
            try:
                lease = Lease(name, attend, lambda message: None)
            except BadField:  # another process does it
                attend()
                return False
        try:
            attend()  # to a signal that came after the last time the lease asked
            if self._is_done(trial):  # by a faster process
                return False
            self._begin(trial, lease)
            failure = self._train(trial)
            self._end(trial, failure)
            return failure is None
        finally:
            lease.release()

    def _train(self, trial: Trial) -> str | None:
        """Train a run or a sequence of runs, from the start or from where it stopped. Returns the reason of a failure.

        Raises what would end all other runs too: signals, and a full disk.
        """
        runs = []
        try:
            for run, experiment in self._runs(trial):
                named = replace(experiment, run_dir=str(run), wandb=_named(trial, run))
                to_the_end(named, [self, TensorBoard()])
                runs.append(run)
            if trial.sequence is not None:
                put_together(self._path / trial.key.place, runs)
        except Failed as error:
            if isinstance(error.__cause__, OSError):
                raise
            return " ".join(error.reason.splitlines())  # the study is started again, and not the run resumed
        except BadInput as error:
            return " ".join(str(error).splitlines())
        except (Interrupted, OSError):
            raise
        except Exception as error:  # of the user's environment or agent
            return one_line(error)
        return None

    def _begin(self, trial: Trial, lease: Lease) -> None:
        self._running, self._lease, self._share = trial.key, lease, 0.0
        self._parts = 1 if trial.sequence is None else trial.sequence.trials
        with suppress(OSError):
            (self._path / trial.key.failure).unlink()

    def _end(self, trial: Trial, failure: str | None) -> None:
        """Record and print the outcome of a run."""
        self._running, key = None, trial.key
        for other in self._trials.values():
            self._is_done(other)
        if failure is None:
            outcome = self._outcomes[key]
            score = text(outcome.score) if math.isfinite(outcome.score) else "no champion"
            line = styled(f"{score} in {outcome.row['seconds']:.0f} s; {self._progress()}")
        else:
            self.failed.add(key)
            file = self._path / key.failure
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, f"{failure}\n".encode())
            line = styled(("failed", "bold red"), f": {failure}")
        if not self._quiet or failure is not None:
            self._console.print(styled(f"{' '.join(key.parts)}: ") + line, soft_wrap=True)
        for other_key, why in stranded(self._study, [key] if failure is not None else []).items():
            self._console.print(f"{' '.join(other_key.parts)}: {why}", soft_wrap=True)

    def on_training_start(self, event: Start) -> None:
        self._plan, self._part = event.plan, 0
        if self._parts > 1:
            self._part = int(event.run_dir.name)

    def on_generation_end(self, event: Generation) -> None:
        if self._lease is not None:
            self._lease.check()
        share = self._plan.progress(event.generation + 1, event.steps + event.evaluation_steps, event.timing["seconds"])
        self._share = (self._part + min(share, 1.0)) / self._parts

    def _is_done(self, trial: Trial) -> bool:
        """True if a run is done, by this process or another one. Raises NotOurs."""
        if trial.key not in self._outcomes:
            outcome = read_outcome(self._path, trial.key)
            if outcome is not None and self.is_complete(trial):
                self._outcomes[trial.key] = outcome
        return trial.key in self._outcomes

    def is_complete(self, trial: Trial) -> bool:
        """True if all runs of a trial are done and have their pages. Raises NotOurs if another run is in its place."""
        if not (self._path / trial.key.place).exists() or not self._can_start(trial):
            return False
        try:
            runs = self._runs(trial)
            return all(begun(run, e) and all((run / file).exists() for file in FINISHED) for run, e in runs)
        except NotOurs:
            raise
        except BadInput:  # reported when it is its turn
            return False

    def _can_start(self, trial: Trial) -> bool:
        """True unless the run whose schedule a trial follows is still to be done. Raises NotOurs."""
        return trial.replays is None or self._is_done(self._trials[trial.replays])

    def _is_due(self, key: RunKey, patient: bool = True) -> bool:
        """True unless an interim analysis before a run has ended the study.

        patient: True also while other processes do runs before that analysis
        """
        over = self._over
        for n in self._study.interim_analyses:
            if n > key.seed:
                break
            if any(other not in over for other in self._trials if other.seed < n):
                return patient
            if n not in self._ended:
                self._ended[n] = (stopped(read_results(self._path)) or n + 1) <= n
            if self._ended[n]:
                return False
        return True

    def _runs(self, trial: Trial) -> Iterator[tuple[Path, Experiment]]:
        """Directories and experiments of the runs of a trial; ask for the next one when one is done. Raises BadInput."""
        run, e = self._path / trial.key.place, trial.experiment
        if trial.sequence is not None:
            yield from trial.sequence.runs(e, run)
        elif trial.replays is not None:
            source, seed = self._path / trial.replays.place, e.seed + SEED_STEP
            how: dict[str, Any] = {
                name: getattr(e, name) for name in ("population", "generations", "budget", "time_limit", "stop")
            }
            yield run, follower(source, seed=seed, trust_code=True, **how)  # a run of this study
        else:
            yield run, e
