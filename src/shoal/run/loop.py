"""The loop: train, evaluate, share, decide, adopt, record, save. There is one."""

from __future__ import annotations

import json
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.errors import BadField, BadInput
from shoal.core.interrupts import Failed, Interrupted, on_signal
from shoal.core.keys import derive
from shoal.core.schema import plain
from shoal.core.types import PyTree
from shoal.core.workshop import Workshop
from shoal.distributed.processes import Company
from shoal.environments.guard import callbacks_blamed
from shoal.experiment.experiment import Experiment, blame, check, default_run_dir, of_run
from shoal.experiment.registry import name_of
from shoal.experiment.resolve import build_run, check_memory, memory_needed
from shoal.experiment.trust import check_trust
from shoal.population.devices import prepare
from shoal.population.rollouts.episodes import statistics
from shoal.records.recorder import Generation, Recorder, lineage_rows, metrics_row
from shoal.run.attention import Attention
from shoal.run.champion import Best, best_of
from shoal.run.checkpoint import to_host
from shoal.run.lock import Lock
from shoal.run.result import Result, summarise
from shoal.run.rundir import RunDirectory, Told, told_by


def train(experiment: Experiment, recorders: Sequence[Recorder] = (), progress: bool = False) -> Result:
    """Run an experiment from its start.

    recorders: hear of every generation, and may end the run after one; it can be resumed then.
    progress: show the table that the command shows.

    Raises BadInput, Interrupted after a signal, Failed when the disk is full.
    """
    with _Run(_with_display(recorders, progress)).at_work() as run:
        run.build(experiment)
        if run.begun:
            run.restore()
        else:
            run.open()
        return run.go()


def resume(
    run_dir: str | Path,
    generations: int | None = None,
    recorders: Sequence[Recorder] = (),
    trust_code: bool = False,
    progress: bool = False,
    **given: Any,
) -> Result:
    """Continue a run from its newest whole checkpoint, up to `generations` if that is given.

    trust_code: import what the run names, where it is not Shoal's. recorders, progress: as those of `train`.
    given: env, agent, select, explore or config, where the run was started with objects that no name leads to.

    With device environments the result equals that of a run that was never stopped, bit for bit; with host environments
    fresh episodes begin. Raises BadInput when there is nothing to continue, and what `train` raises.
    """
    file = Path(run_dir) / "experiment.yaml"
    with _Run(_with_display(recorders, progress)).at_work() as run:
        experiment = replace(of_run(file.parent), run_dir=str(run_dir), **given)
        check_trust(experiment, trust_code)
        if generations is not None:
            experiment = replace(experiment, generations=generations)
        if experiment.exchange == "directory":  # seen from here it may have another path
            workspace, worker = file.absolute().parents[2], file.absolute().parent.name
            experiment = replace(experiment, workspace=str(workspace), worker=worker, run_dir=None)
        with blame(file, ["generations", *given], always=False):
            run.build(experiment)
        run.restore()
        return run.go()


def _with_display(recorders: Sequence[Recorder], progress: bool) -> Sequence[Recorder]:
    if not progress:
        return recorders
    from rich.console import Console

    from shoal.records.console import Display

    return [*recorders, Display(Console())]


class _Run:
    """One run in one process."""

    def __init__(self, recorders: Sequence[Recorder]):
        self._attention = Attention(recorders)
        self._started = time.perf_counter()
        self._best = Best()
        self._first = 0
        self._generation = 0
        self._earlier_seconds = 0.0
        self._steps = 0
        self._first_uid = 0
        self._built = False
        self._held = ExitStack()
        self._evolution: PyTree = ()
        self._company = Company(Experiment(), self._attention.attend, self._attention.note)
        self._run_dir = Path()

    @contextmanager
    def at_work(self) -> Iterator[_Run]:
        """Open to signals; in the end everything is given back, and what ends this process ends those in step with it."""
        with on_signal(self._attention.interrupt):
            try:
                with self._held:
                    yield self
            except Interrupted as error:
                if not error.agreed:
                    self._company.exchange.fail(str(error), 3)
                raise
            except (BadInput, Failed) as error:
                self._company.exchange.fail(str(error), 2 if isinstance(error, BadInput) else 1)
                raise
            except Exception:
                self._company.exchange.fail(traceback.format_exc(), 1)
                raise
            finally:
                self._company.leave()
                if self._built:
                    self.parts.shard.close()

    # ---------------------------------------------------------------------------------------- beginnings

    def build(self, experiment: Experiment) -> None:
        """The parts of the run; nothing of it is written."""
        check(experiment)
        self._company = company = Company(experiment, self._attention.attend, self._attention.note)
        self._exchange, self._leading = company.exchange, company.leading
        self._attention.leading = company.leading
        if not self._leading:
            self._attention.recorders = []
        if company.worker is not None:
            experiment = replace(experiment, worker=company.worker)
        self._first_uid = company.first_uid
        prepare(self._exchange.neighbour, self._exchange.sharer)
        process = self._exchange.rank, self._exchange.size
        self.parts = build_run(experiment, self._attention.pause, process, self._first_uid, company.returns)
        self._built, self._experiment = True, self.parts.experiment
        self._attention.iterations = self.parts.iterations
        company.agree(self._experiment)
        self._crew = company.crew(self.parts.shard)

    @property
    def begun(self) -> bool:
        """Whether this is a worker that comes back."""
        return self._company.run_dir is not None and (self._company.run_dir / "experiment.yaml").exists()

    def open(self) -> None:
        """A new run directory and a first population."""
        self._place()
        if self._leading:
            self._files.check_free(memory_needed(self.parts) * (self._experiment.checkpoint.keep + 2))
        check_memory(self.parts)
        self._company.check_past(0, self.parts.shard.uid)
        self._populate()
        if self._leading:
            self._files.create(self._stated())
        self._exchange.broadcast("ready")

    def restore(self) -> None:
        """Everything as it was after the newest checkpoint."""
        self._place()
        run_dir = self._run_dir
        self._populate()
        newest = ""
        if self._leading and self._files.checkpoints.generations():
            newest = str(self._files.checkpoints.newest(self._attention.note))
        if newest := self._exchange.broadcast(newest):
            state, manifest = self._files.checkpoints.load(int(newest), self._state(template=True))
            self._first = done = manifest["generation"] + 1
            finished = (run_dir / "result.json").exists()
            if done > self._experiment.generations or (done == self._experiment.generations and finished):
                raise BadInput(f"{run_dir} has done its {done} generations; raise them with --generations")
            told = told_by(manifest, f"{run_dir}: ")
            self._earlier_seconds, self._steps = told.seconds, told.steps
            if told.champion is not None:
                self._best = replace(best_of(told.champion, f"{run_dir}: "), learned=state["run"]["champion"])
            self._evolution = state["run"]["evolution"]
            self.parts.shard.restore(state, manifest["generation"])
            if not self.parts.shard.resumes_exactly:
                self._attention.note("host environments cannot be saved: the run goes on with fresh episodes")
        else:
            self._attention.note("the run was stopped before its first checkpoint: it starts anew")
        self._company.check_past(self._first, self.parts.shard.uid)
        self._exchange.broadcast("read")
        if self._leading:
            try:
                self._files.reopen(self._stated(), self._first, self._best, self.parts.environment.spec)
            except OSError as error:
                raise Failed(run_dir, error) from error
        self._exchange.broadcast("ready")

    def _place(self) -> None:
        """Where the run lies, and a name for this attempt: process 0 decides both, and has the place to itself."""
        run_dir = self._company.run_dir or (self._own() if self._leading else "")
        path, attempt = self._exchange.broadcast(f"{run_dir}\n{uuid.uuid4().hex[:8]}").rsplit("\n", 1)
        self._run_dir = self._attention.run_dir = Path(path)
        workshop = self._company.workshop or Workshop(self._run_dir, attempt)
        self._files = RunDirectory(self._run_dir, self._experiment.checkpoint.keep, workshop)
        if self._leading:
            self._held.callback(self._files.close)

    def _own(self) -> Path:
        """Keep other processes out of the run's place: the one that was asked for, or the next free one."""
        asked = self._experiment.run_dir
        while True:
            path = Path(asked or default_run_dir(self._experiment))
            try:
                lock = Lock(path, self._attention.note, exist_ok=asked is not None)
            except OSError as error:
                if asked is None and path.exists():
                    continue  # somebody was faster
                raise BadField("run_dir", f"{path} cannot be written: {error.strerror}") from error
            self._held.callback(lock.release)
            return path

    def _stated(self) -> Experiment:
        """The experiment as its file says it; where a worker's run lies its workspace and name tell."""
        return replace(self._experiment, run_dir=None if self._company.worker else str(self._run_dir))

    def _populate(self) -> None:
        uid = self._first_uid + np.arange(self._experiment.population)
        self._evolution, hyper = self.parts.evolver.init(self._key("hyper"), uid)
        self.parts.shard.begin({name: x[self.parts.shard.uid - self._first_uid] for name, x in hyper.items()})

    # ---------------------------------------------------------------------------------------- the loop

    def go(self) -> Result:
        """Generation after generation, then the champion's last test."""
        summary = None
        try:
            try:
                env = str(name_of(self._experiment.env))
                with callbacks_blamed(env), ThreadPoolExecutor(1, "saver") as saver:
                    summary = self._generations(saver)
            finally:
                for recorder in self._attention.recorders:
                    recorder.finish(summary)
        except OSError as error:
            raise Failed(self._files.path, self._files.reason(error)) from error
        except Interrupted:
            raise
        except Exception as error:
            if isinstance(error, BadInput) and self._files.checkpoints.generations():
                raise Failed(self._files.path, error) from error
            self._files.discard_unborn()  # with what the recorders wrote
            raise
        return Result(self._files.path, summary, self._leading)

    def _generations(self, saver: ThreadPoolExecutor) -> dict[str, Any]:
        saving: Future | None = None
        done = self._first
        for recorder in self._attention.recorders:
            recorder.start(self.parts, self._files.path, self._first)
        try:
            for generation in range(self._first, self._experiment.generations):
                self._generation = generation
                improved, stop, enough, publish = self._one_generation()
                done = generation + 1
                if saving is not None:
                    self._await(saving)
                stop = stop and done < self._experiment.generations
                saving = saver.submit(self._save, publish, *self._to_save(generation, improved, stop or enough))
                if stop:
                    raise Interrupted(self._files.path, agreed=True, leading=self._leading)
                if enough:
                    break
        finally:
            if saving is not None:
                self._await(saving)  # an interrupted run can be resumed from it, so a failure to write it matters more
        summary = self._summary(done)
        if self._leading:
            self._files.write("result.json", json.dumps(plain(summary), indent=1))
        self._exchange.broadcast("done")
        return summary

    def _one_generation(self) -> tuple[bool, bool, bool, Callable[[], None]]:
        """Train, evaluate, share, decide, adopt, record. Returns whether there is a new champion, whether a signal has
        come, whether a recorder wants no more, and what shows the generation to others once it is saved."""
        shard, generation = self.parts.shard, self._generation
        begin = time.perf_counter()
        self._attention.enter(self._generation, "train")
        self._attention.attend()  # before anything is compiled
        metrics = shard.train(generation, self.parts.iterations, self._chunk())
        trained = time.perf_counter()
        self._attention.enter(self._generation, "evaluate")
        shard.evaluate(generation)
        evaluated = time.perf_counter()
        self._attention.enter(self._generation, "evolve")
        shared = self._crew.share(metrics, self._attention.stop)
        cards = shared.cards
        champion = self._best.challenge(cards)
        decide = partial(self.parts.evolver.decide, self._key("decide"), self._evolution)
        evolved = self._crew.evolve(shared, decide, champion)
        self._evolution = evolved.evolution
        if evolved.champion is not None:
            self._best.learned = evolved.champion
        end = time.perf_counter()
        self._attention.last_seconds = trained - begin
        explored = np.zeros(len(cards.uid), bool)
        for name, values in evolved.hyper.items():
            explored |= values != evolved.parents.hyper[name]
        steps, before = int(cards.steps.sum()), self._steps
        self._steps = steps
        timing = {
            "seconds": self._elapsed(),
            "train": trained - begin,
            "evaluate": evaluated - trained,
            "evolve": end - evaluated,
            "steps_per_second": (steps - before) / (end - begin),
        }
        changes = evolved.parents, evolved.hyper, explored
        metrics = shared.metrics | {name: np.full(len(cards.uid), x, np.float32) for name, x in evolved.metrics.items()}
        event = Generation(generation, cards, *changes, metrics, steps, shared.evaluation_steps, self._best, timing)
        enough = False
        if self._leading:
            self._files.lineage.write(lineage_rows(event))
            enough = any([recorder.generation(event) for recorder in self._attention.recorders])  # noqa: C419 all of them hear of it
            timing["record"] = time.perf_counter() - end
            self._files.metrics.write([metrics_row(event)])
        enough = self._exchange.broadcast("enough" if enough else "") == "enough"
        return champion is not None, shared.stop, enough, evolved.publish

    def _chunk(self) -> int:
        """Iterations per call, so that the run can be watched and stopped about twice a second."""
        if not self._attention.last_seconds:
            return -(-self.parts.iterations // 8)
        return max(1, int(self.parts.iterations * 0.5 / self._attention.last_seconds))

    # ---------------------------------------------------------------------------------------- saving

    def _state(self, template: bool = False) -> dict[str, PyTree]:
        """The parts of the state that this process saves; as a template, those that it reads."""
        parts = self.parts.shard.state()
        if self._leading or template:
            learned = self.parts.shard.snapshot(0)[0] if template else self._best.learned
            parts["run"] = {"champion": learned, "evolution": self._evolution}
        return parts

    def _to_save(self, generation: int, improved: bool, stop: bool) -> tuple[Any, ...]:
        due = stop or (generation + 1) % self._experiment.checkpoint.every == 0
        due |= generation + 1 == self._experiment.generations
        best, known = replace(self._best), self._best.generation >= 0
        parts = to_host(self._state(template=not known)) if due else {}
        if not self._leading:
            parts.pop("run", None)
        told = Told(self._elapsed(), self._steps, best.about() if known else None)
        manifest = asdict(told) if self._leading else None
        all_parts = 1 + (self._experiment.shards or 1)
        new = best if improved and self._leading else None
        return generation, parts, manifest, all_parts, new, self.parts.environment.spec

    def _save(self, publish: Callable[[], None], generation: int, parts: dict[str, PyTree], *more: Any) -> None:
        """Save a generation, and then show it: who is stopped in between does not go back behind what others have seen."""
        self._files.save(generation, parts, *more)
        if parts:
            publish()

    def _await(self, saving: Future) -> None:
        """Wait for a checkpoint; it may wait for other processes."""
        while not saving.done():
            if self._attention.abandon:
                self._attention.attend()
            time.sleep(0.0005)
        saving.result()

    def _summary(self, done: int) -> dict[str, Any]:
        """The champion plays fresh episodes; then everything that result.json holds."""
        experiment, learned, hyper = self._experiment, self._best.learned, self._best.hyper
        shared = self._crew.share({}, False)
        evaluation = None
        if learned is not None and self._leading:
            self._attention.enter(self._generation, "champion")
            key = derive((experiment.seed,), "champion")
            evaluation = statistics(self.parts.shard.test(learned, hyper, key, experiment.final_episodes))
        compiling = self.parts.shard.compile_seconds
        steps = shared.evaluation_steps
        return summarise(experiment, shared.cards, self._best, done, evaluation, steps, self._elapsed(), compiling)

    def _elapsed(self) -> float:
        """Seconds of this run, those before it was resumed included."""
        return time.perf_counter() - self._started + self._earlier_seconds

    def _key(self, purpose: str) -> tuple[int, ...]:
        return derive((self._experiment.seed,), self._generation, purpose)
