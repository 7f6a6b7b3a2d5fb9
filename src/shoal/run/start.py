"""The beginning of a run: its parts, and its first state, new or from a checkpoint."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core import run_files
from shoal.core.arrays import Arrays
from shoal.core.atomic import Damaged, Staging
from shoal.core.candidates import Candidate, Candidates
from shoal.core.errors import BadField, BadInput
from shoal.core.keys import derive
from shoal.core.trend import Trend
from shoal.core.types import PyTree
from shoal.distributed.processes import Processes
from shoal.experiment import plan_text
from shoal.experiment.experiment import Experiment
from shoal.experiment.files import differences, of_run
from shoal.experiment.plan import Plan, make_plan
from shoal.members.devices import prepare
from shoal.records.callback import describe_method
from shoal.records.jsonl import last_line
from shoal.run.auto_population import resolved
from shoal.run.champion import champion_of_manifest
from shoal.run.checkpoint import SHARD, to_host
from shoal.run.context import Context, State
from shoal.run.control import Control
from shoal.run.lock import Lock
from shoal.run.memory import check_memory
from shoal.run.provenance import changes, provenance, unlike
from shoal.run.rundir import RunDirectory, read_totals
from shoal.run.warm_start import WarmStart, read_warm_start

# Fields on which nothing depends that a run comes to.
FREE = {"run_dir", "exchange", "checkpoint", "processes", "python"}


def enter(experiment: Experiment, control: Control, processes: Processes, held: ExitStack) -> Context:
    """The parts of a run, with its place taken; nothing else is written. held: gives back what is taken, in the end.

    Raises BadInput.
    """
    began, runs = time.perf_counter(), Path("runs").absolute()
    control.lead(processes.leading)
    exchange = processes.exchange
    prepare(exchange.neighbour, exchange.sharer)
    plan = make_plan(resolved(experiment, control.note), exchange.size)
    held.callback(plan.kind.close)
    if experiment.fitness.episodes == "auto":
        control.note(f"fitness.episodes: {plan_text.evaluation(plan) or plan.evaluation.episodes}")
    plan = processes.join(plan)
    exchange.gather(np.zeros((1, 1)))  # nothing is written before every process has its plan
    run_dir = processes.run_dir or (_take_place(plan, control, held, runs) if processes.leading else "")
    place, attempt = exchange.broadcast(f"{run_dir}\n{uuid.uuid4().hex[:8]}").rsplit("\n", 1)
    control.run_dir = path = Path(place)
    if processes.run_dir is None:  # else its workspace and name say it
        plan = plan._replace(experiment=replace(plan.experiment, run_dir=place))
    files = RunDirectory(path, plan.experiment.checkpoint.keep, processes.staging or Staging(path, attempt))
    if processes.leading:
        held.callback(files.close)
    return Context(plan, processes, files, control, began, held.enter_context(ExitStack()))


def _take_place(plan: Plan, control: Control, held: ExitStack, runs: Path) -> Path:
    """Keep other processes out of the run's directory: the one that was asked for, or the next free one among `runs`."""
    asked = plan.experiment.run_dir
    while True:
        path = Path(asked or free_place(plan, runs))
        try:
            lock = Lock(path, control.note, exist_ok=asked is not None)
        except OSError as error:
            if asked is None and path.exists():
                continue  # somebody was faster
            raise BadField("run_dir", f"{path} cannot be written: {error.strerror}") from error
        held.callback(lock.release)
        return path


def free_place(plan: Plan, runs: Path = Path("runs")) -> Path:
    """Return runs/ENVIRONMENT-AGENT-SEED, with a number behind it if that is taken."""
    places = numbered(runs / f"{run_name(plan)}-{plan.experiment.seed}")
    return next(place for place in places if not place.exists())


def numbered(place: Path) -> Iterator[Path]:
    """Yield a place, and then the same with 2, 3, ... behind it."""
    yield place
    yield from (place.with_name(f"{place.name}-{number}") for number in count(2))


def run_name(plan: Plan) -> str:
    """Return ENVIRONMENT-AGENT; METHOD in place of the agent if the method tunes nothing."""
    e = plan.experiment
    env = e.env_name.partition(":")[2] or str(e.env)
    agent = Path(str(e.agent_name).split(":")[-1]).name.removesuffix(".yaml")  # rl_games:FILE has a path
    who = agent if plan.method.tunes else e.method_name
    return f"{env.replace('/', '-')}-{who}"


def begin(c: Context) -> State:
    """Create a run directory and the first population. Raises BadInput."""
    if c.leading:
        c.files.check_free(c.plan.kind.memory(c.experiment.population)[0] * (c.experiment.checkpoint.keep + 2))
    uids, (_, neighbours) = c.processes.uids(c.plan), c.processes.exchange.neighbour
    check_memory(c.plan, min(c.experiment.population, neighbours * sum(map(len, uids))))
    c.processes.check_past(0, np.concatenate(uids))
    warm_start = read_warm_start(c.plan)
    state = _first(c, uids, warm_start)
    if c.leading:
        c.files.create(c.experiment, describe_method(c.plan))
        c.processes.remove_result()
        _record_provenance(c, warm_start, provenance(c.plan, c.devices, 0))
    c.processes.exchange.broadcast("ready")
    return state


def done_already(c: Context) -> dict[str, Any]:
    """Return the result of a run that is finished and gets no more generations; else nothing. The same in all processes.

    Raises BadInput.
    """
    done: dict[str, Any] = {}
    if c.leading and (result := c.files.result()).get("status") == "done":
        asked = {name.partition(".")[0] for name in differences(c.experiment, of_run(c.files.path))}
        done = result if asked <= FREE else {}
    return json.loads(c.processes.exchange.broadcast(json.dumps(done)))


def restore(c: Context, trusted: bool) -> State:
    """Return the state after the newest checkpoint. trusted: see `read_warm_start`. Raises BadInput."""
    newest, read = "", dict[str, Arrays]()
    if c.leading and c.files.checkpoints.generations():
        generation, read = c.files.checkpoints.newest(c.control.note)
        newest = str(generation)
    elif c.leading:
        c.files.check_unfinished()
    newest = c.processes.exchange.broadcast(newest)
    warm_start, uids = None if newest else read_warm_start(c.plan, trusted), c.processes.uids(c.plan)
    if newest and c.plan.method.ends_members:
        uids = [_uids_left(c, int(newest), uids[0])]
    state = _first(c, uids, warm_start)
    if newest:
        state = _load(c, int(newest), state, read)
    else:
        c.control.note("the run was stopped before its first checkpoint: it starts from the beginning")
    c.processes.check_past(state.done, state.shard.uid)
    c.processes.exchange.broadcast("read")
    if c.leading:
        earlier, now = last_line(c.files.path / run_files.PROVENANCE), provenance(c.plan, c.devices, state.done)
        if changed := changes(earlier, now):
            c.control.note(f"since the run was last at work this has changed, by which results may differ: {changed}")
        c.files.reopen(c.experiment, describe_method(c.plan), state.done, state.champion, c.plan.kind.spec)
        c.processes.remove_result()
        _record_provenance(c, warm_start, now)
    c.processes.exchange.broadcast("ready")
    return state


def _record_provenance(c: Context, warm_start: WarmStart | None, made_by: dict[str, Any]) -> None:
    """Write by what the run is made from here on, and what its members begin with. Say which workers have other versions."""
    worker = c.processes.run_dir
    if worker is not None and (others := unlike(worker, made_by["versions"])):
        c.control.note(f"this workspace has workers with other versions, by which results may differ: {others}")
        made_by |= {"other_versions": others}
    c.files.provenance.write([made_by])
    c.files.provenance.sync()
    if warm_start is not None:
        c.files.write(run_files.INIT_FROM, json.dumps(warm_start.manifest(c.processes.first_uid), indent=1))


def _first(c: Context, uids: list[np.ndarray], warm_start: WarmStart | None) -> State:
    """Members uids [n] of each shard that have not trained, with what they begin with."""
    first = c.processes.first_uid
    uid = first + np.arange(c.experiment.population)
    evolution, hyper = c.plan.evolver.init(derive((c.experiment.seed,), 0, "hyper"), uid)
    if warm_start is not None:
        held = c.plan.method.holds_defaults(uid, c.experiment.population)
        for name, x in warm_start.hyper.items():
            hyper[name] = np.where(held, hyper[name], np.append(x, hyper[name][len(x) :]))
    members = c.members(uids)
    rows = members.shard.uid - first
    learned = None if warm_start is None else [warm_start.learned[row] for row in rows]
    members.shard.begin({name: x[rows] for name, x in hyper.items()}, learned)
    candidates = Candidates(smoothing=1) if c.experiment.fitness.exact else Candidates()
    return State(members, evolution, candidates, Trend(), c.began)


def _load(c: Context, generation: int, first: State, read: dict[str, Arrays]) -> State:
    """The state after a generation, from its checkpoint. read: parts of it that were read already."""
    run_dir, shard = c.files.path, first.shard
    totals = read_totals(c.files.checkpoints.manifest(generation), f"{run_dir}: ")
    names = {*first.shard.stats().hyper}
    earlier, last = (_individuals(manifests, names, f"{run_dir}: ") for manifests in (totals.earlier, totals.last))
    parts, _ = c.files.checkpoints.load(generation, _to_read(c, first, earlier, last), read)
    read.clear()  # the parts of other processes
    run = parts.pop("run")
    earlier, last = _with_learned(earlier, run["earlier"]), _with_learned(last, run["last"])
    candidates = replace(
        first.candidates, earlier=earlier, last=last, smoothed=totals.smoothed, measured=totals.measured
    )
    shard.restore(list(parts.values()), generation)
    done, tested = generation + 1, first.members.share({}, False, totals.seconds).evaluation_steps
    ends_by, over = c.experiment.ends_by, c.plan.progress(done, totals.steps + tested, totals.seconds) >= 1
    if (done > c.experiment.generations and ends_by != ["time_limit"]) or (over and c.files.result()):
        more = {
            "generations": "more generations with --generations",
            "budget": f"a larger budget than {totals.steps + tested:,} with --set budget=N",
            "time_limit": f"a longer time limit than {totals.seconds:.3g} s with --time-limit",
        }
        raise BadInput(
            f"{run_dir} has ended with generation {done}; to continue, give it {' and '.join(more[x] for x in ends_by)}"
        )
    if (reached := c.experiment.stop.reached(totals.trend)) and c.files.result():
        field = reached.partition(" ")[0]
        advice = f"raise it with --set {field}=N, or write null for none"
        raise BadInput(f"{run_dir} has reached {reached} in generation {done}; {advice}")
    if not c.plan.kind.resumes_exactly:
        c.control.note("host environments cannot be saved: the run continues with new episodes")
    return first._replace(
        evolution=run["evolution"],
        candidates=candidates,
        trend=totals.trend,
        episode_length=totals.episode_length,
        began=first.began - totals.seconds,
        earlier_compiling=totals.compile_seconds,
        done=done,
        steps=totals.steps,
        evaluation_steps=tested,
        clock=totals.seconds,
        ended_steps=totals.steps - int(shard.stats().steps.sum()) if c.plan.method.ends_members else 0,
    )


def _individuals(manifests: list[dict[str, Any]], names: set[str], place: str) -> tuple[Candidate, ...]:
    """The candidates that a manifest tells of, without what they have learned, and with the hyperparameters `names`.

    Raises BadInput, with `place` in front.
    """
    found = tuple(champion_of_manifest(one, place) for one in manifests)
    if any({*one.hyper} != names for one in found):
        raise Damaged(f"{place}its checkpoint has candidates with other hyperparameters: another experiment made it")
    return found


def _with_learned(candidates: tuple[Candidate, ...], learned: list[PyTree]) -> tuple[Candidate, ...]:
    return tuple(replace(one, learned=what) for one, what in zip(candidates, learned, strict=True))


def _uids_left(c: Context, generation: int, begun: np.ndarray) -> np.ndarray:
    """The members, of those that begun, that had not ended after a generation. Raises BadInput."""
    run_dir = c.files.path
    uids = read_totals(c.files.checkpoints.manifest(generation), f"{run_dir}: ").uids
    if not uids or sorted({*uids} & {*begun.tolist()}) != sorted(uids):  # of structures, one after another
        raise Damaged(f"{run_dir}: its checkpoint has the members {uids}: it was made by another experiment")
    return np.array(sorted(uids))


def to_save(c: Context, state: State) -> dict[str, PyTree]:
    """The parts of a checkpoint that this process writes."""
    parts = to_host(_of_shards(c, state))
    if c.leading:  # the arrays of candidates are their own: whoever writes them may wait for them
        earlier, last = ([one.learned for one in some] for some in (state.candidates.earlier, state.candidates.last))
        parts["run"] = {"earlier": earlier, "last": last, "evolution": to_host(state.evolution)}
    return parts


def _to_read(c: Context, first: State, *candidates: tuple[Candidate, ...]) -> dict[str, PyTree]:
    """The template of the parts of a checkpoint that this process reads; candidates: the earlier and the last ones."""
    factory_for = c.plan.kind.policy_factory_for
    earlier, last = ([factory_for(one.hyper).learned for one in some] for some in candidates)
    return _of_shards(c, first) | {"run": {"earlier": earlier, "last": last, "evolution": first.evolution}}


def _of_shards(c: Context, state: State) -> dict[str, PyTree]:
    """The states of the shards of this process, by the names of their parts of a checkpoint."""
    first = int(state.shard.uid[0] - c.processes.first_uid) * c.plan.shards // c.experiment.population
    return {f"{SHARD}{i:04d}": part for i, part in enumerate(state.shard.state(), first)}
