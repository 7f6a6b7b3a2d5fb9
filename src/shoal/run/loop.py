"""The loop: train, evaluate, share, decide, apply, record, save. There is one."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from shoal.core import run_files
from shoal.core.candidates import Candidates
from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed, Interrupted
from shoal.core.keys import derive
from shoal.core.population import Decision, DistributionUpdate, PopulationStats
from shoal.distributed.synchronous import Evolved, KnownMembers
from shoal.environments.error_boundary import callbacks_attributed
from shoal.records.callback import Start
from shoal.records.generation import Generation
from shoal.records.jsonl import last_line
from shoal.run.context import Context, State
from shoal.run.final_evaluation import final_evaluation
from shoal.run.final_selection import episodes_of, places
from shoal.run.race import after_race
from shoal.run.result import as_json
from shoal.run.rundir import Totals
from shoal.run.start import to_save

REST = 0.25  # seconds between two times that files are written, at least: shorter generations are written together


def run_generations(c: Context, state: State) -> dict[str, Any]:
    """The loop, and what result.json says of it.

    Whoever calls it keeps no `state`, whose members may end.
    """
    saving: Future | None = None
    summary, made_by = None, last_line(c.files.path / run_files.PROVENANCE)
    held, written = list[Generation](), -math.inf  # those that are not written yet; when the last ones were
    try:
        with callbacks_attributed(c.experiment.env_name), ThreadPoolExecutor(1, "saver") as saver:
            for callback in c.control.callbacks:
                callback.on_training_start(Start(c.plan, c.devices, c.files.path, state.done, c.control.note, made_by))
            try:
                while not state.over(c.plan):
                    state, event, as_last = _run_generation(c, state)
                    stop, rested = state.stop and not state.over(c.plan), time.perf_counter() - written >= REST
                    enough, due = _record(c, state, event, stop, rested)
                    if enough:
                        state = state._replace(candidates=as_last())
                    del as_last  # and with it what members had learned before they copied
                    held += [event] * c.leading
                    if due or (held and rested):
                        if saving is not None:
                            _wait(c, saving)
                        saving = _save(c, state, saver, held, due)
                        held, written = [], time.perf_counter()
                    if stop:
                        raise Interrupted(c.files.path, agreed=True, leading=c.leading)
                    if enough:
                        break
            finally:
                if saving is not None:
                    _wait(c, saving)  # an interrupted run can be resumed from it, so a failure to write it matters more
                c.files.record(held)
            if reached := state.stopped_by(c.plan):
                c.control.note(f"the run ends after generation {state.done}: {reached}")
            text = as_json(final_evaluation(c, state) | {"provenance": made_by})
            if c.leading:
                c.files.write(run_files.RESULT, text)
            summary = json.loads(c.processes.exchange.broadcast(text))  # one process alone has played with the champion
    except BadInput as error:
        if c.files.begun:
            raise Failed(c.files.path, error) from error
        raise
    finally:
        with ExitStack() as ends:  # of all of them, also where one fails
            for callback in reversed(c.control.callbacks):
                ends.callback(callback.on_training_end, summary)
    return summary


def _run_generation(c: Context, state: State) -> tuple[State, Generation, Callable[[], Candidates]]:
    """One generation of all members: train, evaluate, share, decide, apply; and the record of it.

    With it a function that gives the candidates if it turns out to be the last one, until members train on.
    """
    generation, members, shard = state.done, state.members, state.shard
    times = [(time.perf_counter(), shard.compile_seconds)]
    c.control.iterations = iterations = c.plan.length(generation, len(shard.uid), state.steps)
    c.control.enter(generation, "train")
    c.control.attend()  # before anything is compiled
    spent = state.steps + state.evaluation_steps
    progress = c.plan.progress_before(generation, len(shard.uid), spent, state.clock)
    metrics = shard.train(generation, iterations, c.control.chunk, progress)
    times.append((time.perf_counter(), shard.compile_seconds))
    c.control.enter(generation, "evaluate")
    metrics |= shard.evaluate(generation)
    times.append((time.perf_counter(), shard.compile_seconds))
    c.control.enter(generation, "evolve")
    shared = members.share(metrics, c.control.stop or c.processes.stopped, state.seconds)
    steps = state.ended_steps + int(shared.stats.steps.sum())
    done = c.plan.progress(generation + 1, steps + shared.evaluation_steps, shared.seconds)
    shared = shared._replace(members=shared.members._replace(progress=done))
    length = _episode_length(c, state, shared, steps)
    shared = after_race(c, state, shared)
    trend = state.trend.after(shared.stats.best, shared.stats.best_tie)
    done = c.plan.progress(generation + 1, steps + shared.evaluation_steps, shared.seconds)  # the race makes steps too
    # The last one for all that is known; who is stopped now may be given an end that is reached already.
    last = done >= 1 or bool(c.experiment.stop.reached(trend)) or shared.stop
    key = derive((c.experiment.seed,), generation, "decide")

    def decide(stats: PopulationStats, rows: np.ndarray) -> tuple[Any, Decision | DistributionUpdate]:
        return c.plan.evolver.decide(key, state.evolution, stats.ranked(), rows)

    evolved, before = members.evolve(shared, decide), state.candidates

    def candidates(last: bool) -> Candidates:
        rows = before.rows_to_add(shared.stats, places(episodes_of(c.experiment, steps, length)) if last else 0)
        return before.with_generation(shared.stats, rows, evolved.learned(rows), last)

    times.append((time.perf_counter(), shard.compile_seconds))
    c.control.last_seconds, c.control.last_generation = times[1][0] - times[0][0], times[-1][0] - times[0][0]
    after = state._replace(
        evolution=evolved.evolution,
        candidates=candidates(last),
        trend=trend,
        done=generation + 1,
        steps=steps,
        evaluation_steps=shared.evaluation_steps,
        clock=shared.seconds,
        episode_length=length,
        stop=shared.stop,
        publish=evolved.publish,
    )
    event = _event(after, shared, evolved, times, steps - state.steps)
    return _without(c, after, evolved.ends) if evolved.ends else after, event, partial(candidates, True)


def _episode_length(c: Context, state: State, shared: KnownMembers, steps: int) -> float:
    """Mean steps of the episodes that measured a generation, with those of all so far; 0 where that is not known."""
    measured = c.plan.evaluation.purposes * int(shared.stats.episodes.sum())  # stats count those of one purpose
    training = c.experiment.fitness.source == "training"
    new = steps - state.steps if training else shared.evaluation_steps - state.evaluation_steps
    return new / measured if measured else 0.0


def _without(c: Context, state: State, ends: Sequence[int]) -> State:
    """Go on without the members at some rows; the others are as they were."""
    before, states, steps = state.shard, state.shard.state(), state.shard.stats().steps
    compiling = state.compile_seconds
    members = c.members([np.delete(before.uid, ends)])
    members.shard.restore(states, state.done - 1)
    return state._replace(
        members=members,
        ended_steps=state.ended_steps + int(steps[list(ends)].sum()),
        earlier_compiling=compiling,
    )


def _event(
    state: State, shared: KnownMembers, evolved: Evolved, times: list[tuple[float, float]], steps: int
) -> Generation:
    """Make the record of a generation. times: between its phases, the clock and the seconds of compiling so far;
    steps: those that were made in it."""
    whole, compiling = np.diff(times, axis=0).T
    phases = dict(zip(("train", "evaluate", "evolve"), (whole - compiling).tolist(), strict=True))
    explored = np.zeros(len(shared.stats.uid), bool)
    for name, values in evolved.hyper.items():
        explored |= values != evolved.parents.hyper[name]
    common = {name: np.full(len(shared.stats.uid), x, np.float32) for name, x in evolved.metrics.items()}
    order = np.argsort(shared.stats.uid)  # members stand by structure, and in records by uid

    def by_uid(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: x[order] for name, x in columns.items()}

    return Generation(
        generation=state.done - 1,
        stats=shared.stats.take(order),
        parents=evolved.parents.take(order),
        hyper=by_uid(evolved.hyper),
        explored=explored[order],
        metrics=by_uid(shared.metrics | common),
        steps=state.steps,
        evaluation_steps=state.evaluation_steps,
        champion=state.champion,
        timing={
            "seconds": state.seconds,
            "compile": float(compiling.sum()),
            **phases,
            "steps_per_second": steps / whole.sum(),
        },
    )


def _record(c: Context, state: State, event: Generation, stop: bool, rested: bool) -> tuple[bool, bool]:
    """Tell the callbacks. Returns whether one of them wants no more, and whether a checkpoint is due; for all processes
    alike."""
    enough = due = False
    if c.leading:
        began, every = time.perf_counter(), c.experiment.checkpoint.every
        answers = [callback.on_generation_end(event) for callback in c.control.callbacks]
        event.timing["record"] = time.perf_counter() - began
        enough = any(answer is not None and not answer for answer in answers)
        due = enough or stop or state.over(c.plan) or (rested if every is None else state.done % every == 0)
    enough, due = json.loads(c.processes.exchange.broadcast(json.dumps([enough, due])))
    return enough, due


def _save(c: Context, state: State, saver: ThreadPoolExecutor, held: list[Generation], due: bool) -> Future:
    """Write some generations, a new champion, and a checkpoint where one is due; and then show the generation to others, in
    a thread: who is stopped in between does not go back behind what others have seen."""
    generation, manifest = state.done - 1, None
    parts = to_save(c, state) if due else {}
    if due and c.leading:
        candidates = state.candidates
        uids = state.shard.uid.tolist() if c.plan.method.ends_members else []
        earlier, last = ([one.manifest() for one in some] for some in (candidates.earlier, candidates.last))
        of_selection = earlier, last, candidates.smoothed, candidates.measured, state.trend, state.episode_length
        manifest = asdict(Totals(state.seconds, state.compile_seconds, state.steps, *of_selection, uids))
    champion, publish = state.champion if c.leading else None, state.publish
    all_parts = max(1 + c.plan.shards, len(parts))  # of several structures each has one, all in this process

    def write() -> None:
        c.files.record(held)
        c.files.save(generation, parts, manifest, all_parts, champion, c.plan.kind.spec)
        if parts:
            publish()

    return saver.submit(write)


def _wait(c: Context, saving: Future) -> None:
    """Wait for a checkpoint; it may wait for other processes."""
    late = c.processes.exchange.watch()
    while not saving.done():
        if c.control.abandon:
            c.control.attend()
        if c.files.checkpoints.waits:
            late()
        time.sleep(0.0005)
    saving.result()
