"""The loop: train, evaluate, share, decide, adopt, record, save. There is one."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shoal.build import build_run, check_memory, memory_needed
from shoal.champion import Best, Champion, load_champion
from shoal.checkpoint import to_host, write_file
from shoal.collect.episodes import statistics
from shoal.devices import prepare
from shoal.experiment import Experiment, blame, default_run_dir, read
from shoal.keys import derive
from shoal.record.recorder import Generation, Recorder, finite_or_none, lineage_rows, metrics_row
from shoal.rundir import RunDirectory
from shoal.settings import plain
from shoal.stopping import Failed, Interrupted, on_signal
from shoal.types import BadInput, PyTree

PATIENCE = 10.0  # seconds that a stopped run may take to end its generation instead of abandoning it


@dataclass(frozen=True)
class Result:
    """How a run ended. `summary` is what result.json says."""

    run_dir: Path
    summary: dict[str, Any]

    @property
    def champion(self) -> Champion:
        return load_champion(self.run_dir)

    @property
    def lineage(self) -> Path:
        return self.run_dir / "lineage.jsonl"


def train(experiment: Experiment, recorders: Sequence[Recorder] = ()) -> Result:
    """Run an experiment from its start. Raises BadInput, Interrupted after a signal, Failed when the disk is full."""
    run = _Run(recorders)
    with on_signal(run.interrupt):
        run.build(experiment)
        with closing(run.parts.island):
            run.open(Path(experiment.run_dir or default_run_dir(run.parts.experiment)))
            return run.go()


def resume(
    run_dir: str | Path, generations: int | None = None, recorders: Sequence[Recorder] = (), **given: Any
) -> Result:
    """Continue a run from its newest whole checkpoint, up to `generations` if that is given.

    given: env, agent, select or explore, where the run was started with objects that no name leads to.

    With device environments the result equals that of a run that was never stopped, bit for bit; with host environments
    fresh episodes begin. Raises BadInput when there is nothing to continue, and what `train` raises.
    """
    run, file = _Run(recorders), Path(run_dir) / "experiment.yaml"
    with on_signal(run.interrupt):
        if not file.exists():
            raise BadInput(f"{run_dir} holds no run: there is no {file.name} in it")
        experiment = replace(read(file), **given)
        if generations is not None:
            experiment = replace(experiment, generations=generations)
        with blame(file, ["generations"], always=False):
            run.build(experiment)
        with closing(run.parts.island):
            run.restore(Path(run_dir))
            return run.go()


class _Run:
    """One run in one process."""

    def __init__(self, recorders: Sequence[Recorder]):
        self._stop = self._abandon = self._told = False
        self._started = self._phase_began = time.perf_counter()
        self._last_seconds = 0.0
        self._recorders = list(recorders)
        self._best = Best()
        self._first = 0
        self._generation = 0
        self._phase = ""
        self._earlier_seconds = 0.0
        self._evolution: PyTree = ()

    # ---------------------------------------------------------------------------------------- beginnings

    def build(self, experiment: Experiment) -> None:
        """The parts of the run; nothing is written."""
        prepare()
        self.parts = build_run(experiment, self._pause)
        self._experiment = self.parts.experiment

    def open(self, run_dir: Path) -> None:
        """A new run directory and a first population."""
        self._files = RunDirectory(run_dir, self._experiment.checkpoint.keep)
        copies = self._experiment.population * (self._experiment.checkpoint.keep + 2)
        self._files.check_free(memory_needed(self.parts.agent) * copies)
        check_memory(self.parts)
        self._populate()
        self._files.create(replace(self._experiment, run_dir=str(run_dir)))

    def restore(self, run_dir: Path) -> None:
        """Everything as it was after the newest checkpoint."""
        self._files = RunDirectory(run_dir, self._experiment.checkpoint.keep)
        self._populate()
        if self._files.checkpoints.generations():
            state, manifest = self._files.checkpoints.newest(self._state(template=True), self._note)
            self._first = done = manifest["generation"] + 1
            finished = (run_dir / "result.json").exists()
            if done > self._experiment.generations or (done == self._experiment.generations and finished):
                raise BadInput(f"{run_dir} has done its {done} generations; raise them with --generations")
            self._earlier_seconds = manifest["seconds"]
            if manifest["champion"] is not None:
                self._best = Best(state["champion"], **manifest["champion"])
            self._evolution = state["evolution"]
            self.parts.island.restore(state["island"], manifest["generation"])
            if not self.parts.island.arena.resumes_exactly:
                self._note("host environments cannot be saved: the run goes on with fresh episodes")
        else:
            self._note("the run was stopped before its first checkpoint: it starts anew")
        try:
            experiment = replace(self._experiment, run_dir=str(run_dir))
            self._files.reopen(experiment, self._first, self._best, self.parts.environment.spec)
        except OSError as error:
            raise Failed(run_dir, error) from error

    def _populate(self) -> None:
        uid = np.arange(self._experiment.population)
        self._evolution, hyper = self.parts.evolver.init(self._key("init"), uid)
        self.parts.island.begin(hyper)

    # ---------------------------------------------------------------------------------------- the loop

    def go(self) -> Result:
        """Generation after generation, then the champion's last test."""
        summary = None
        try:
            with ThreadPoolExecutor(1, "saver") as saver:
                summary = self._generations(saver)
        except OSError as error:
            raise Failed(self._files.path, error) from error
        except BadInput:
            self._files.discard_unborn()
            raise
        finally:
            for recorder in self._recorders:
                recorder.finish(summary)
        return Result(self._files.path, summary)

    def _generations(self, saver: ThreadPoolExecutor) -> dict[str, Any]:
        saving: Future | None = None
        for recorder in self._recorders:
            recorder.start(self.parts, self._files.path, self._first)
        try:
            for generation in range(self._first, self._experiment.generations):
                self._generation = generation
                improved = self._one_generation()
                if saving is not None:
                    saving.result()
                stop = self._stop and generation + 1 < self._experiment.generations
                saving = saver.submit(self._files.save, *self._to_save(generation, improved, stop))
                if stop:
                    raise Interrupted(self._files.path)
        finally:
            if saving is not None:
                saving.result()  # an interrupted run can be resumed from it, so a failure to write it matters more
        summary = self._summary()
        write_file(self._files.path / "result.json", json.dumps(plain(summary), indent=1).encode())
        return summary

    def _one_generation(self) -> bool:
        """Train, evaluate, decide, adopt, record. Returns whether there is a new champion."""
        island, generation = self.parts.island, self._generation
        begin = time.perf_counter()
        self._enter("train")
        metrics = island.train(generation, self.parts.iterations, self._chunk())
        trained = time.perf_counter()
        self._enter("evaluate")
        island.evaluate(generation)
        evaluated = time.perf_counter()
        self._enter("evolve")
        cards = island.cards()
        improved = self._best.challenge(cards, island.snapshot)
        mine = np.arange(len(cards.uid))
        self._evolution, decision = self.parts.evolver.decide(self._key("decide"), self._evolution, cards, mine)
        island.adopt(decision)
        evolved = time.perf_counter()
        self._last_seconds = trained - begin
        explored = np.zeros(len(mine), bool)
        for name, values in decision.hyper.items():
            explored |= values != cards.hyper[name][decision.parents]
        steps, total = int(cards.steps.sum()), time.perf_counter() - self._started + self._earlier_seconds
        timing = {
            "seconds": total,
            "train": trained - begin,
            "evaluate": evaluated - trained,
            "evolve": evolved - evaluated,
            "steps_per_second": len(mine) * self._interval() / (evolved - begin),
        }
        event = Generation(
            generation, cards, decision, explored, metrics, steps, island.evaluation_steps, self._best, timing
        )
        self._files.lineage.write(lineage_rows(event))
        for recorder in self._recorders:
            recorder.generation(event)
        timing["record"] = time.perf_counter() - evolved
        self._files.metrics.write([metrics_row(event)])
        return improved

    def _interval(self) -> int:
        """Steps of one member in one generation."""
        return self.parts.iterations * self.parts.agent.rollout * self.parts.agent.environments

    def _chunk(self) -> int:
        """Iterations per call, so that the run can be watched and stopped about twice a second."""
        if not self._last_seconds:
            return -(-self.parts.iterations // 8)
        return max(1, int(self.parts.iterations * 0.5 / self._last_seconds))

    # ---------------------------------------------------------------------------------------- saving

    def _state(self, template: bool = False) -> PyTree:
        learned = self.parts.island.snapshot(0) if template else self._best.learned
        return {"island": self.parts.island.state(), "champion": learned, "evolution": self._evolution}

    def _to_save(self, generation: int, improved: bool, stop: bool) -> tuple[Any, ...]:
        due = stop or (generation + 1) % self._experiment.checkpoint.every == 0
        due |= generation + 1 == self._experiment.generations
        best = replace(self._best)
        seconds = time.perf_counter() - self._started + self._earlier_seconds
        state = to_host(self._state(template=best.learned is None)) if due else None
        about = None if best.learned is None else best.about()
        manifest = {"seconds": seconds, "champion": about}
        return generation, state, manifest, best if improved else None, self.parts.environment.spec

    def _summary(self) -> dict[str, Any]:
        """The champion plays fresh episodes; then everything that result.json holds."""
        island, experiment, best = self.parts.island, self._experiment, self._best
        cards = island.cards()
        evaluation = None
        if best.learned is not None:
            self._enter("champion")
            returns = island.test(best.learned, derive((experiment.seed,), "champion"), experiment.final_episodes)
            evaluation = statistics(returns)
        return {
            "status": "done",
            "env": str(experiment.env),
            "agent": str(experiment.agent),
            "population": experiment.population,
            "generations": experiment.generations,
            "seed": experiment.seed,
            "fitness": {str(u): finite_or_none(f) for u, f in zip(cards.uid, cards.fitness, strict=True)},
            "champion": None
            if evaluation is None
            else {
                "uid": best.uid,
                "generation": best.generation,
                "selection_fitness": best.fitness,
                "evaluation": evaluation,
                "hyper": best.hyper,
            },
            "environment_steps": int(cards.steps.sum()),
            "evaluation_steps": island.evaluation_steps,
            "seconds": time.perf_counter() - self._started + self._earlier_seconds,
            "compile_seconds": island.compile_seconds,
        }

    # ---------------------------------------------------------------------------------------- stopping

    def interrupt(self) -> None:
        """Called by a signal, in the middle of anything: it only leaves word for `_attend`."""
        left = self._last_seconds - (time.perf_counter() - self._phase_began)
        self._abandon = self._stop or not self._last_seconds or left > PATIENCE or self._phase == "champion"
        self._stop = True

    def _attend(self) -> None:
        """Do what a signal has asked for."""
        if self._stop and not self._told:
            self._told = True
            end = "this generation is abandoned" if self._abandon else "after this generation; once more to abandon it"
            self._note(f"stopping: {end}")
        if self._abandon:
            raise Interrupted(self._files.path)

    def _pause(self, result: PyTree, done: int) -> None:
        """Wait for a result of the device, staying open to signals and showing how far the phase is."""
        leaf: Any
        for leaf in jax.tree.leaves(result):
            while not leaf.is_ready():
                self._attend()
                time.sleep(0.0005)
        self._attend()
        if done:
            for recorder in self._recorders:
                recorder.progress(self._generation, self._phase, done / self.parts.iterations)

    def _enter(self, phase: str) -> None:
        self._phase = phase
        if phase == "train":
            self._phase_began = time.perf_counter()
        for recorder in self._recorders:
            recorder.progress(self._generation, phase, 0.0)

    def _note(self, message: str) -> None:
        for recorder in self._recorders:
            recorder.note(message)

    def _key(self, purpose: str) -> tuple[int, ...]:
        return derive((self._experiment.seed,), self._generation, purpose)
