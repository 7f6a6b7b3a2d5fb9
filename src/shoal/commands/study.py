"""Conducting a study: every arm with every seed, by as many processes as want to help."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.table import Table

from shoal.commands.retrain import follower
from shoal.core.atomic import FOLDER, absolute, check_kind, write_file
from shoal.core.backend import on_jax
from shoal.core.errors import BadField, BadInput
from shoal.core.interrupts import Failed, Interrupted, interruptible
from shoal.core.user_code import one_line
from shoal.distributed.lease import Lease
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import blame
from shoal.members.devices import prepare
from shoal.members.shared_programs import shared_programs
from shoal.records.callback import Callback, Start
from shoal.records.generation import Generation
from shoal.records.screen import Screen, plain_table, styled
from shoal.records.tensorboard import TensorBoard
from shoal.report.page import write_report
from shoal.run.loop import resume, train
from shoal.study.compare import seeds_told, stopped
from shoal.study.results import FILE, NotOurs, RunOutcome, begun, is_study, read_outcome, read_results, stranded
from shoal.study.sequences import FRESH, put_together
from shoal.study.study_file import RunKey, Study, Trial, budgets, dump, read, trials

LEFT = ("result.json", "report.html")  # by a run that is done


@on_jax()
def conduct(file: Path, workspace: Path | None, console: Screen, quiet: bool = False) -> tuple[Path, int]:
    """Do all runs of a study that nobody does or has done; returns its directory, and how many runs have failed.

    workspace: by default studies/NAME. A run that was stopped goes on. Raises BadInput, Interrupted, KeyboardInterrupt.
    """
    study = read(file)
    path = absolute(workspace or Path("studies") / file.stem)
    prepare()
    with blame(file):
        planned = trials(study)
        budgets(study)
    _agree(study, path, file)
    if not quiet and (seeds := seeds_told(read_results(path))):
        console.print(seeds, soft_wrap=True)
    board = _Board(study, path, planned, console, quiet)
    for trial in planned:
        board.whole(trial)  # what is in the way shows before anything is trained
    with shared_programs(), nullcontext() if quiet or not console.redraws else board.live():
        for patient in (False, True):
            while any(_do(trial, path, board, patient) for trial in planned):  # then again from the first
                pass
    return path, len(board.failed)


def _agree(study: Study, path: Path, file: Path) -> None:
    """Write study.yaml. Raises BadInput where it says something else, or nothing, of arms that have runs there."""
    before = read(path / FILE) if is_study(path) else Study()
    for task, arm in product(before.all_tasks, before.arms):
        now, then = ((s.base, s.arms.get(arm), s.tasks.get(task)) for s in (study, before))
        if now != then and any((path / key.place).exists() for key in before.runs(task, arm)):
            what = f"it has runs of arm {arm}{task and f' on task {task}'} that the file does not describe"
            raise BadInput(f"{path} holds another study than {file}: {what}; name a free place with --workspace")
    plans = [(s.interim_analyses, s.pairs, s.interim_analyses and s.seeds) for s in (study, before)]
    if plans[0] != plans[1] and any(path.glob("runs/*")):
        raise BadInput(
            f"{path} has runs, and {file} has other interim_analyses or pairs: these are fixed before the first run"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in ("leases", "failures"):
            check_kind(path / name, FOLDER)
        write_file(path / FILE, dump(study).encode())
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error


def _do(trial: Trial, path: Path, board: _Board, patient: bool) -> bool:
    """Do one run, if it is to be done and nobody else is at it; whether this process has done it.

    patient: watch the holder of a lease for as long as it takes to see whether it is alive.
    """
    if (
        trial.key in board.failed
        or board.done(trial)
        or not board.may_begin(trial)
        or not board.due(trial.key, patient)
    ):
        return False
    name = path / "leases" / "-".join(trial.key.parts)
    if name.exists() and not patient:
        return False
    name.parent.mkdir(exist_ok=True)
    with interruptible() as attend:
        try:
            lease = Lease(name, attend, lambda message: None)
        except BadField:  # it is at work
            attend()
            return False
    try:
        attend()  # to a signal that came after the last time the lease asked
        if not board.done(trial):  # else another process was faster
            board.begin(trial, lease)
            failure = _failure(trial, path, board)
            board.end(trial, failure)
            return failure is None
    finally:
        lease.release()
    return False


def _failure(trial: Trial, path: Path, board: _Board) -> str | None:
    """Make a run, or a sequence of them, from its start or from where it was stopped. All that it names is what the study
    names. Returns why it has failed, in one line. What would end all others too is raised: signals, and a disk that is full.
    """
    runs = []
    try:
        for run, experiment in board.parts(trial):
            experiment, callbacks = replace(experiment, run_dir=str(run)), [board, TensorBoard()]
            if not begun(run, experiment):
                train(experiment, callbacks)
            elif not (run / "result.json").exists():
                free = {name: getattr(experiment, name) for name in ("checkpoint", "processes")}
                resume(run, callbacks=callbacks, trust_code=True, **free)
            if not (run / "report.html").exists():
                write_report(run)
            runs.append(run)
        if trial.sequence is not None:
            put_together(path / trial.key.place, runs)
    except (BadInput, Failed) as error:
        if isinstance(error, Failed) and isinstance(error.__cause__, OSError):
            raise
        return " ".join(str(error).splitlines())
    except (Interrupted, OSError):
        raise
    except Exception as error:  # whatever an environment or an agent of one's own raises
        return one_line(error)
    return None


class _Board(Callback):
    """What stands where: a line for each arm, live in a terminal, and one for each run that ends."""

    def __init__(self, study: Study, path: Path, planned: list[Trial], console: Screen, quiet: bool):
        self._study, self._path, self._console, self._quiet = study, path, console, quiet
        self._trials = {trial.key: trial for trial in planned}
        self._arms = {arm: study.runs(*arm) for arm in product(study.all_tasks, study.arms)}
        self.failed: set[RunKey] = set()
        self._key: RunKey | None = None
        self._lease: Lease | None = None
        self._share = 0.0
        self._part, self._parts = 0, 1  # of a run that is a sequence of runs
        self._done: dict[RunKey, RunOutcome] = {}
        self._ended: dict[int, bool] = {}  # whether the study ends at a look

    def live(self) -> Live:
        """The table, for as long as it is entered."""
        return Live(console=self._console, get_renderable=self._table, refresh_per_second=2)

    def begin(self, trial: Trial, lease: Lease) -> None:
        """A run begins, under a lease that must hold."""
        self._key, self._lease, self._share = trial.key, lease, 0.0
        self._parts = 1 if trial.sequence is None else len(trial.sequence.parts(trial.experiment))
        with suppress(OSError):
            (self._path / trial.key.failure).unlink()

    def end(self, trial: Trial, failure: str | None) -> None:
        """A run has ended, or failed."""
        self._key, key = None, trial.key
        for other in self._trials.values():
            self.done(other)
        told: list[str | tuple[str, str]] = [("failed", "bold red"), f": {failure}"]
        if failure is None:
            outcome = self._done[key]
            told = [f"{outcome.score:.4g} in {outcome.row['seconds']:.0f} s; {self._left()}"]
        else:
            self.failed.add(key)
            file = self._path / key.failure
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, f"{failure}\n".encode())
        if not self._quiet or failure is not None:
            self._console.print(styled(f"{' '.join(key.parts)}: ", *told), soft_wrap=True)
        for other_key, why in stranded(self._study, [key] if failure is not None else []).items():
            self._console.print(f"{' '.join(other_key.parts)}: {why}", soft_wrap=True)

    def start(self, event: Start) -> None:
        self._plan, self._part = event.plan, 0
        if self._parts > 1:
            self._part = int(event.run_dir.name)

    def generation(self, event: Generation) -> None:
        if self._lease is not None:
            self._lease.check()
        share = self._plan.progress(event.generation + 1, event.steps + event.evaluation_steps)
        self._share = (self._part + min(share, 1.0)) / self._parts

    def done(self, trial: Trial) -> bool:
        """Whether a run is done, by this process or another one. Raises NotOurs."""
        if trial.key not in self._done:
            found = read_outcome(self._path, trial.key)
            if found is not None and self.whole(trial):
                self._done[trial.key] = found
        return trial.key in self._done

    def may_begin(self, trial: Trial) -> bool:
        """Whether the run is done whose schedule a trial follows, if it follows one. Raises NotOurs."""
        return trial.replays is None or self.done(self._trials[trial.replays])

    def due(self, key: RunKey, patient: bool = True) -> bool:
        """Whether no look before a run has ended the study. patient: also while others are at runs before such a look."""
        over = {*self._done, *self.failed, *stranded(self._study, self.failed)}
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

    def parts(self, trial: Trial) -> Iterator[tuple[Path, Experiment]]:
        """Where the runs of a trial lie, and their experiments; the next is asked for when one is done. Raises BadInput."""
        run, e = self._path / trial.key.place, trial.experiment
        if trial.sequence is not None:
            yield from trial.sequence.runs(e, run)
        elif trial.replays is not None:
            source, seed = self._path / trial.replays.place, e.seed + FRESH
            # What the source names may be imported: it is the study's, and done.
            how: dict[str, Any] = {name: getattr(e, name) for name in ("population", "generations", "budget")}
            yield run, follower(source, seed=seed, trust_code=True, **how)
        else:
            yield run, e

    def whole(self, trial: Trial) -> bool:
        """Whether all runs of a trial are done, and have their pages. Raises NotOurs where one is another."""
        if not (self._path / trial.key.place).exists() or not self.may_begin(trial):
            return False
        try:
            return all(begun(run, e) and all((run / file).exists() for file in LEFT) for run, e in self.parts(trial))
        except NotOurs:
            raise
        except BadInput:  # told when it is its turn
            return False

    def _left(self) -> str:
        """How far the study is, and for how long it will go on where this process does all that is left."""
        seconds, over = 0.0, {*self._done, *self.failed, *stranded(self._study, self.failed)}
        known = {key: x for key, o in self._done.items() if (x := o.row["seconds"]) == x}
        for keys in self._arms.values():
            usual = [known[key] for key in keys if key in known] or [*known.values()] or [0.0]
            seconds += sum(usual) / len(usual) * sum(key not in over and self.due(key) for key in keys)
        left = time.strftime("%H:%M:%S", time.gmtime(seconds)) if seconds < 86_400 else f"{seconds / 3600:.0f} hours"
        most = "at most " if self._study.interim_analyses else ""
        return f"{len(self._done)} of {most}{len(self._trials)} runs, {most}{left} left"

    def _table(self) -> Table:
        table = plain_table(title=self._left(), title_justify="left")
        for name in ("task", "arm", "runs", "mean of champions", "now"):
            table.add_column(name, justify="right" if name in ("runs", "mean of champions") else "left")
        for (task, arm), keys in self._arms.items():
            scores = [self._done[key].score for key in keys if key in self._done]
            mean = f"{sum(scores) / len(scores):.4g}" if scores else ""
            now = f"seed {self._key.seed}, {self._share:.0%}" if self._key in keys and self._key else ""
            table.add_row(task, arm, f"{len(scores)}/{len(keys)}", mean, now)
        return table
