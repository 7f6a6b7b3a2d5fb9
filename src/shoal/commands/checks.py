"""What the machine and the place have to say to an experiment: its size, and whether that fits."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from shoal.commands.findings import Finding, doubt, fine, problem
from shoal.core import tree
from shoal.core.errors import BadInput
from shoal.core.spec import told
from shoal.core.visible import readable
from shoal.distributed.directory import is_kept, probe
from shoal.experiment.plan import Plan
from shoal.members.devices import free_memory
from shoal.report.words import many
from shoal.run.memory import COPIES_TO_SAVE
from shoal.run.origin import experiment_behind, read_origin


def size(plan: Plan) -> Iterator[Finding]:
    """How much there is to do, and whether the interval is what was written."""
    e, steps = plan.experiment, plan.steps
    what, generations = f"{e.population} × {e.agent} on {e.env}", many(e.generations, "generation")
    if e.budget is not None:
        generations = f"at most {generations}"
    if not steps:
        episodes = many(plan.measurement.episodes, "episode")
        yield fine("size", f"{what} by {e.method_name}, {generations} of {episodes} each")
        return
    total = f"{e.population * e.generations * steps:,} steps in all"
    if e.budget is not None:
        total = f"{e.budget:,} steps in all, those of evaluations included"
    yield fine("size", f"{what}, {generations} of {steps:,} steps each, {total}")
    if steps != e.interval:
        say = doubt if steps > 1.25 * e.interval else fine
        rollout = steps // plan.iterations
        yield say("interval", f"{e.interval:,} is rounded up to {steps:,}: whole rollouts of {rollout:,} steps")


def beginning(plan: Plan) -> Iterator[Finding]:
    """What members begin with, where that is not nothing."""
    try:
        if origin := read_origin(plan):
            when = "" if origin.generation is None else f" after generation {origin.generation}"
            yield fine("start", f"with what {origin.run} had learned{when}")
            e = plan.experiment
            if e.levels is not None and experiment_behind(str(e.start)).levels is None:
                text = "that run had no levels, and has drawn from all: validation and test are not new to its members"
                yield doubt("levels", text)
    except BadInput as error:
        yield problem("start", str(error))


def devices(plan: Plan) -> Iterator[Finding]:
    """How the members are spread."""
    n, used, kind = plan.experiment.population, plan.kind.devices(plan.members()), plan.kind.compiled
    if kind is None:
        yield fine("trainers", f"{many(n, 'member')}; processes: {used}")
        return
    there = jax.devices()
    present = len(there)
    text = f"{many(n, 'member')} on {used} of {present} {there[0].platform.upper()} devices, {n // used} on each"
    if used == present:
        yield fine("devices", text)
    else:
        full = math.ceil(n / present) * present
        yield doubt("devices", f"{text}: {n} does not divide over more; a population of {full} would use them all")
    if not kind.on_device:
        copies = kind.copies(n, used, plan.measurement.episodes)
        yield fine("environment", f"{copies} copies step outside the device: expect most of the time to go there")


def observations(plan: Plan) -> Iterator[Finding]:
    """What there is to see, and what policies see of it."""
    if (kind := plan.kind.compiled) is None:
        return  # theirs
    sees = kind.agent.sees
    part = f"; policies see {', '.join(sees)}" if sees else ""
    yield fine("observations", f"{told(kind.spec.obs)}{part}")


def place(plan: Plan) -> Iterator[Finding]:
    """Whether the run can be written where it is to be; of a workspace, see `processes`."""
    if plan.experiment.exchange.name != "directory" and not os.access(folder := _folder(plan), os.W_OK):
        yield problem("run_dir", f"{folder} cannot be written, where the run is to be")


def storage(plan: Plan) -> Iterator[Finding]:
    """Memory and disk."""
    if (kind := plan.kind.compiled) is None:
        return  # theirs, which nobody knows beforehand
    e, spec, agent = plan.experiment, kind.spec, kind.agent
    n, copies = e.population, agent.environments
    members, replay = kind.memory(n)
    state = members + n * copies * kind.world()
    seen = sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(spec.obs))
    step = (1 if agent.value else 2) * seen + 4 * math.prod(spec.action.shape) + 16
    rollout = agent.rollout * copies * step
    changing = 2 * (state + n * rollout) - replay  # one more of each for a while; replay memory is written in place
    need = max(changing, COPIES_TO_SAVE * members)
    own = f", their replay memories ({readable(replay)})" if replay else ""
    text = f"about {readable(need)} for members{own} and rollouts ({readable(rollout)} of each member)"
    yield fits("memory", text, need, free_memory())
    checkpoint = state + e.fitness.play_off * tree.size_in_bytes(kind.snapshot)
    need = (e.checkpoint.keep + 1) * checkpoint + e.generations * (
        1 if plan.kind.drawn else n
    ) * 1000  # the records' lines
    kept = f"{many(e.checkpoint.keep, 'checkpoint')} of {readable(checkpoint)}"
    text = f"about {readable(need)} for {kept} and the records"
    yield fits("disk", text, need, shutil.disk_usage(_folder(plan)).free)


def processes(plan: Plan) -> Iterator[Finding]:
    """Whether the processes of the run will see one another."""
    e = plan.experiment
    if e.exchange.name == "mpi":
        from shoal.distributed.mpi import library

        try:
            found = library()
        except BadInput as error:
            yield problem("mpi", str(error))
            return
        beside = Path(sys.executable).with_name("mpiexec")
        starter = shutil.which("mpiexec") or (str(beside) if beside.exists() else None)
        if starter:
            yield fine("mpi", f"{found}; start it with {starter} -n RANKS shoal train ...")
        else:
            yield doubt("mpi", f"{found}, but no mpiexec is to be found; srun may do instead")
    elif e.exchange.name == "directory":
        for works, text in probe(Path(e.exchange.workspace or "")):
            yield (fine if works else problem)("workspace", text)
        members, replay = plan.kind.memory(e.population)
        members -= replay if plan.method.replay == "keep" else 0
        kept = sum(is_kept(g, e.generations - 1, e.checkpoint.keep) for g in range(e.generations))
        text = f"a worker publishes {readable(members)} per generation and keeps up to {kept} of them there"
        yield fine("workspace", text)


def _folder(plan: Plan) -> Path:
    """The one that is there already, in which the run is to be."""
    folder = Path(plan.experiment.run_dir or "runs").absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def fits(topic: str, text: str, need: float, free: float | None) -> Finding:
    if free is None:
        return fine(topic, text)
    say = problem if need > free else doubt if need > free / 2 else fine
    return say(topic, f"{text}; {readable(free)} are free")


def normalising(plan: Plan) -> Iterator[Finding]:
    """Whether the environment itself normalises what it gives."""
    if plan.normalised:
        yield doubt("normalised", plan.normalised)


def rungs(plan: Plan) -> Iterator[Finding]:
    """When members end, and what that costs where they could have trained side by side."""
    if plan.halves and plan.slowed:
        yield doubt("rungs", f"{plan.halves}; that takes {plan.slowed}")
    elif plan.halves:
        yield fine("rungs", plan.halves)


def instead(plan: Plan) -> Iterator[Finding]:
    """What else the steps would do, where members copy and hyperparameters are tuned: docs/results.md has measured it."""
    e = plan.experiment
    if not (plan.method.copies and plan.space and e.population > 1):
        return
    as_many = f"--budget {e.budget}" if e.budget is not None else f"--generations {e.population * e.generations}"
    yield fine(
        "instead",
        "where the defaults are surely good, one agent with all steps learns as much, or more where these are scarce: "
        f"--population 1 {as_many} --method independent --set method.initial=default",
    )
