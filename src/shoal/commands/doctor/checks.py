"""Checks that run nothing: the size of an experiment, the machine, the run directory, other processes."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import jax
from rich.filesize import decimal

from shoal.core import tree
from shoal.core.atomic import Staging
from shoal.core.candidates import EARLIER
from shoal.core.errors import BadInput
from shoal.core.spec import describe
from shoal.distributed.directory import is_kept
from shoal.distributed.directory_probe import probe
from shoal.experiment import plan_text
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import Plan
from shoal.members.devices import free_memory
from shoal.records.words import duration, many
from shoal.run.auto_population import AS_LONG, FreeMembers
from shoal.run.memory import at_a_time, reckoned
from shoal.run.rundir import RunDirectory
from shoal.run.warm_start import experiment_behind, read_warm_start


class Diagnostic(NamedTuple):
    """One line of the output."""

    mark: Literal["✓", "!", "✗"]
    topic: str
    text: str


ok = partial(Diagnostic, "✓")
warning = partial(Diagnostic, "!")
failure = partial(Diagnostic, "✗")  # the experiment cannot be run


def size(plan: Plan) -> Iterator[Diagnostic]:
    """Members, generations and environment steps; an interval that is rounded up."""
    e, steps = plan.experiment, plan.steps
    several = e.stops_early or len(e.ends_by) > 1  # what comes first ends the run
    what, most = f"{e.population} × {e.agent_name} by {e.method_name} on {e.env_name}", "at most " * several
    generations = f"{'at most ' if e.budget is not None else most}{many(e.generations, 'generation')}"
    if e.time_limit is not None:
        generations = f"{most}{duration(e.time_limit)} in generations"
    if not steps:
        yield ok("size", f"{what}, {generations} of {plan_text.generation(plan)}")
        return
    total = f", {most}{e.population * e.generations * steps:,} steps in total"
    if e.budget is not None:
        total = f", {most}{e.budget:,} steps in total, evaluation included"
    elif e.time_limit is not None:
        total = ""
    yield ok("size", f"{what}, {generations} of {plan_text.generation(plan)}{total}")
    if steps != e.interval:
        report = warning if steps > 1.25 * e.interval else ok
        rollout = steps // plan.iterations
        yield report("interval", f"{e.interval:,} is rounded up to {steps:,}: whole rollouts of {rollout:,} steps")


def warm_start(plan: Plan) -> Iterator[Diagnostic]:
    """The run whose weights members start from, if any."""
    try:
        if start := read_warm_start(plan):
            when = "" if start.generation is None else f" after generation {start.generation + 1}"
            yield ok("warm start", f"members start from the weights of {start.run}{when}")
            e = plan.experiment
            if e.levels is not None and experiment_behind(str(e.init_from)).levels is None:
                text = "that run had no levels and trained on all of them: validation and test levels are not held out"
                yield warning("levels", text)
    except BadInput as error:
        yield failure("warm start", str(error))


def devices(plan: Plan) -> Iterator[Diagnostic]:
    """Members on each device."""
    n, used, kind = plan.experiment.population, plan.kind.devices(plan.members()), plan.kind.compiled
    if kind is None:
        yield ok("trainers", f"{many(n, 'member')}; processes: {used}")
        return
    there = jax.devices()
    present = len(there)
    text = f"{many(n, 'member')} on {used} of {present} {there[0].platform.upper()} devices, {n // used} per device"
    if used == present:
        yield ok("devices", text)
    else:
        full = math.ceil(n / present) * present
        yield warning(
            "devices", f"{text}: {n} is not divisible by {present}; a population of {full} would use all devices"
        )
    if not kind.on_device:
        copies = kind.copies(n, used, plan.evaluation.episodes)
        yield ok("environment", f"{copies} copies step on the host: expect most of the time to go there")


def members(experiment: Experiment, free: FreeMembers) -> Iterator[Diagnostic]:
    """The number of members that train nearly as fast as one on this machine."""
    n = free.members
    up_to = f"{'at least' if free.stopped else 'up to'} {many(n, 'member')}" if n > 1 else "no two members"
    more = f"; no more were tried: {free.stopped}" if free.stopped else ""
    given = "" if experiment.auto else f"; this experiment has {experiment.population:,}"
    yield ok("members", f"{up_to} train here in at most {AS_LONG:g} times the time of one{more}{given}")


def observations(plan: Plan) -> Iterator[Diagnostic]:
    """The observation space, and the part of it that policies receive."""
    if (kind := plan.kind.compiled) is None:
        return  # the trainer has it
    keys = kind.agent.observation_keys
    part = f"; policies receive {', '.join(keys)}" if keys else ""
    yield ok("observations", f"{describe(kind.spec.obs)}{part}")


def run_dir(plan: Plan) -> Iterator[Diagnostic]:
    """Problems that keep a run from beginning in the run directory; `processes` checks a workspace."""
    e, folder = plan.experiment, _folder(plan)
    if e.exchange.name == "directory":
        return
    if not folder.is_dir():
        yield failure("run_dir", f"{folder} is no directory")
    elif not os.access(folder, os.W_OK):
        yield failure("run_dir", f"no permission to write in {folder}")
    elif e.run_dir is not None:
        path = Path(e.run_dir)
        try:
            RunDirectory(path, e.checkpoint.keep, Staging(path, "doctor")).check_free(0)
        except BadInput as error:
            yield failure("run_dir", str(error).removeprefix("run_dir: "))


def storage(plan: Plan) -> Iterator[Diagnostic]:
    """Memory and disk."""
    if (kind := plan.kind.compiled) is None:
        return  # the trainer's, unknown beforehand
    e, n = plan.experiment, plan.experiment.population
    _, replay, rollout, need = reckoned(plan, at_a_time(plan, n))
    own = f", their replay buffers ({decimal(replay)})" if replay else ""
    text = f"about {decimal(need)} for members{own} and rollouts ({decimal(rollout)} per member)"
    yield fits("memory", text, need, free_memory())
    checkpoint = reckoned(plan, n).state + min(2 * EARLIER, e.generations) * tree.size_in_bytes(kind.snapshot)
    need = (e.checkpoint.keep + 1) * checkpoint + e.generations * (
        1 if plan.kind.sampled else n
    ) * 1000  # bytes of a line of the records
    kept = f"{many(e.checkpoint.keep, 'checkpoint')} of {decimal(checkpoint)}"
    text = f"about {decimal(need)} for {kept} and the records"
    yield fits("disk", text, need, shutil.disk_usage(_folder(plan)).free)


def processes(plan: Plan) -> Iterator[Diagnostic]:
    """MPI, or the shared directory of a workspace."""
    e = plan.experiment
    if e.exchange.name == "mpi":
        from shoal.distributed.mpi import library

        try:
            found = library()
        except BadInput as error:
            yield failure("mpi", str(error))
            return
        beside = Path(sys.executable).with_name("mpiexec")
        starter = shutil.which("mpiexec") or (str(beside) if beside.exists() else None)
        if starter:
            yield ok("mpi", f"{found}; start it with {starter} -n RANKS shoal train ...")
        else:
            yield warning("mpi", f"{found}, but mpiexec was not found; srun may work instead")
    elif e.exchange.name == "directory":
        for works, text in probe(Path(e.exchange.workspace or "")):
            yield (ok if works else failure)("workspace", text)
        members, replay = plan.kind.memory(e.population)
        members -= replay if plan.method.replay == "keep" else 0
        kept = sum(is_kept(g, e.generations - 1, e.checkpoint.keep) for g in range(e.generations))
        text = f"a worker publishes {decimal(members)} per generation and keeps up to {kept} of them there"
        yield ok("workspace", text)


def _folder(plan: Plan) -> Path:
    """The nearest existing folder above the run directory."""
    folder = Path(plan.experiment.run_dir or "runs").absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def fits(topic: str, text: str, need: int, free: int | None) -> Diagnostic:
    """Compare the bytes that are needed with those that are free."""
    if free is None:
        return ok(topic, text)
    report = failure if need > free else warning if need > free / 2 else ok
    return report(topic, f"{text}; {decimal(free)} free")


def normalisation(plan: Plan) -> Iterator[Diagnostic]:
    """Wrappers of the environment that normalise rewards or observations."""
    if text := plan_text.normalised(plan):
        yield warning("normalised", text)


def rungs(plan: Plan) -> Iterator[Diagnostic]:
    """Rungs of successive halving, and how much longer they take where all members would train in parallel."""
    if text := plan_text.rungs(plan):
        yield (warning if plan.lengthening > plan_text.LONG else ok)("rungs", text)


def one_agent(plan: Plan) -> Iterator[Diagnostic]:
    """The flags that train one agent with the same environment steps; docs/results.md compares it with a population."""
    e = plan.experiment
    if not ((plan.method.copies or plan.method.ends_members) and plan.space and e.population > 1):
        return
    as_many = f"--budget {e.budget}" if e.budget is not None else f"--generations {e.population * e.generations}"
    if e.ends_by == ["time_limit"]:
        as_many = f"--time-limit {e.time_limit:g}"
    yield ok(
        "alternative",
        "if you trust the default hyperparameters, one agent with all the steps learns as much, or more when steps are few: "
        f"--population 1 {as_many} --method independent --set method.initial=default",
    )
