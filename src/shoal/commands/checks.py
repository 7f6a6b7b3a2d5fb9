"""What can be said of an experiment without running it: the findings of `shoal doctor` that take no training."""

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
import numpy as np

from shoal.core import tree
from shoal.core.errors import BadInput
from shoal.core.evolution import Cards, Decision, Explore, Range, Select
from shoal.core.spec import told
from shoal.core.visible import readable
from shoal.distributed.directory import is_kept, probe
from shoal.experiment.plan import Plan
from shoal.members.devices import free_memory
from shoal.methods import explore as explorers
from shoal.methods import select as selectors
from shoal.methods.ranges import at_bound, sample
from shoal.methods.seeds import Schedule
from shoal.report.words import many
from shoal.run.memory import COPIES_TO_SAVE
from shoal.run.origin import experiment_behind, read_origin

REHEARSALS = 100  # of selection and exploration, on invented members


class Finding(NamedTuple):
    """One line of the answer."""

    mark: Literal["✓", "!", "✗"]
    topic: str
    text: str


fine = partial(Finding, "✓")  # as it should be
doubt = partial(Finding, "!")  # worth a thought
problem = partial(Finding, "✗")  # in the way of the run


# ------------------------------------------------------------------------------------------ the machine


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
            yield fine("start", f"with what {origin.run} had learned after generation {origin.generation}")
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
        members -= replay if plan.method.memory == "own" else 0
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


# ---------------------------------------------------------------------------------------------- evolution


def evolution(plan: Plan) -> Iterator[Finding]:
    """Who will copy whom, how often, and whether it comes to that at all."""
    e, method = plan.experiment, plan.method
    n, generations = e.population, many(e.generations, "generation")
    select = getattr(method, "select", None)  # of some methods; others decide in their evolver
    if isinstance(method, Schedule):
        rows = many(len(method.rows), "generation")
        yield fine("schedule", f"the hyperparameters of {rows} are followed; no member copies or explores")
        return
    if not method.copies:
        yield fine("selection", f"method {e.method_name}: no member copies another")
        return
    if isinstance(select, selectors.KeepWeights):
        way = "every member explores in place" if select.explore else "every member goes its own way: a control"
        yield fine("selection", f"no member copies another; {way}")
        return
    episodes = plan.measurement.episodes if e.fitness.source == "evaluation" else 10
    try:
        counts, safe = _rehearse(plan, select, episodes)
    except Exception as error:  # a selector of one's own
        yield problem("selection", f"it failed on invented cards: {type(error).__name__}: {error}")
        return
    share = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    yield (fine if max(counts) else doubt)("selection", f"{share} of {many(n, 'member')} copy in a generation")
    if isinstance(select, selectors.TTest) and episodes < 2:
        yield doubt("selection", "t_test never copies on one episode: set fitness.episodes to 2 or more")
    if isinstance(select, selectors.Truncation) and select.bottom * n < 1:
        text = f"bottom = {select.bottom:g} of {n} is less than one member; one is replaced all the same"
        yield doubt("selection", text)
    if not safe:
        yield doubt("selection", "the best member can be overwritten (the champion is saved, but lost to the run)")
    start_after = getattr(method, "start_after", 0)
    first = max(1, math.ceil(start_after / (plan.steps or 1)))
    if e.generations == 1:
        yield doubt("evolution", "never takes effect: there is no second generation")
    elif e.generations <= first:
        yield doubt("evolution", f"never takes effect: {generations} end before start_after = {start_after:,} steps")
    else:
        times = many(e.generations - first, "time")
        yield fine("evolution", f"{times}, first after generation {first} of {e.generations}")


def survivors(plan: Plan) -> Iterator[Finding]:
    """How the population shrinks, and what that costs where its members could have trained side by side."""
    sizes, often = np.unique(plan.sizes, return_counts=True)
    if len(sizes) == 1:
        return
    parts = [f"{n} for {many(times, 'generation')}" for n, times in zip(sizes[::-1], often[::-1], strict=True)]
    text = f"members halve: {', '.join(parts)}"
    if (times := lengthening(plan)) > 2:
        half = "with first_values: half all members train to the end"
        yield doubt("survivors", f"{text}: {times:.3g} times as long as with all of them side by side; {half}")
    else:
        yield fine("survivors", text)


def lengthening(plan: Plan) -> float:
    """How many times as long training takes as if nobody ended: the fewer members are left, the more devices wait."""
    sizes, first, often = np.unique(plan.sizes, return_index=True, return_counts=True)
    turns = np.ones(len(sizes))  # that the members of a device take; an accelerator trains all of them at a time
    if jax.default_backend() == "cpu":
        turns = sizes / [plan.kind.devices(plan.members(int(generation))) for generation in first]
    return float(np.average(sizes[-1] / sizes * turns, weights=often) / turns[-1])


def _rehearse(plan: Plan, select: Select | None, episodes: int) -> tuple[list[int], bool]:
    """How many members copy when all of them clearly differ, and whether the best one never does."""
    n, evolver, counts, safe = plan.experiment.population, plan.evolver, [], True
    rows, steps = np.arange(n), np.full(n, plan.steps or 1)
    hyper = {name: np.full(n, x, np.float32) for name, x in plan.kind.tunable.hyper._asdict().items()}
    deviation, played = np.full(n, 0.01 if episodes > 1 else np.nan), np.full(n, episodes)
    state, _ = evolver.init((0,), rows)
    for i in range(REHEARSALS):
        fitness = np.random.default_rng(i).permutation(n).astype(np.float64)
        cards = Cards(rows, np.full(n, i), steps, fitness, deviation, played, hyper)
        if select is None:
            state, decision = evolver.decide((i,), state, cards, rows)
            assert isinstance(decision, Decision)  # of members that copy
            parents = decision.parents
        else:
            parents = select((i,), cards, rows).parents
        counts.append(int((parents != rows).sum()))
        safe &= bool(parents[fitness.argmax()] == fitness.argmax())
    return counts, safe


def hyperparameters(plan: Plan) -> Iterator[Finding]:
    """What is tuned, and whether the ranges let it."""
    e, method = plan.experiment, plan.method
    if not method.tunes:
        return
    space, explore = plan.space, getattr(method, "explore", None)
    if not space:
        yield doubt("tuned", "nothing: space is empty, so that members differ by luck alone")
        return
    fixed = ", ".join(f"{name} {value:g}" for name, value in e.hyper.items()) or "nothing"
    yield fine("tuned", f"{', '.join(space)}; fixed: {fixed}")
    keeps = isinstance(explore, explorers.KeepValues)
    if keeps and not isinstance(getattr(method, "select", None), selectors.KeepWeights):
        yield doubt("exploration", "explore: keep copies values as they were drawn at the start, and finds no new")
    for name, r in space.items():
        default = float(plan.usual[name])
        if r.start is not None and at_bound(r, np.array([r.start]))[0]:
            yield doubt(name, f"start = {r.start:g} lies at a bound: half of all perturbations come back from it")
        if r.low is not None and r.high is not None and not r.low <= default <= r.high:
            yield doubt(name, f"the usual value {default:g} lies outside [{r.low:g}, {r.high:g}]")
        if explore is not None and strides(r, explore) < 1:
            yield doubt(name, f"[{r.low:g}, {r.high:g}] is narrower than one perturbation: values jump about")
    if explore is not None and not keeps:
        yield from unmoved(space, explore)


def unmoved(space: dict[str, Range], explore: Explore) -> Iterator[Finding]:
    """Which values exploration leaves where they are, however often it is asked."""
    uid = np.arange(16)
    hyper = {name: sample(r, uid / len(uid)) for name, r in space.items()}
    tries = [explore((i,), hyper, space, uid) for i in range(REHEARSALS)]
    for name, x in hyper.items():
        moves = np.sum([t[name] != x for t in tries], axis=0)
        if not moves.any():
            yield doubt(name, "exploration never changes it")
        elif moves.mean() > REHEARSALS / 5 and not moves.all():
            yield doubt(name, f"exploration cannot leave {x[moves == 0][0]:g}")


def strides(r: Range, explore: Explore) -> float:
    """The width of a range in units of the largest perturbation."""
    if r.low is None or r.high is None:
        return math.inf
    if isinstance(explore, explorers.Perturb):
        factor = max(max(f, 1 / f) for f in explore.factors)
    elif isinstance(explore, explorers.Mutate):
        factor = (explore.discount_range if r.scale == "one_minus_log" else explore.change_range)[1]
    else:
        return math.inf
    if r.scale == "linear":
        return (r.high - r.low) / ((factor - 1) * max(abs(r.low + r.high) / 2, (r.high - r.low) / 20))
    low, high = (r.low, r.high) if r.scale == "log" else (1 - r.high, 1 - r.low)
    return math.log(high / low) / math.log(factor)
