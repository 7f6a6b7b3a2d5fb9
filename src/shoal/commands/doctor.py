"""`shoal doctor`: what is worth knowing of an experiment before a long run."""

from __future__ import annotations

import math
import shlex
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from shoal.commands import checks, knobs, rehearsal
from shoal.commands.findings import Finding, doubt, fine, problem
from shoal.core.backend import on_jax
from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed, Interrupted
from shoal.experiment.experiment import Experiment, alone
from shoal.experiment.make import recipe_of
from shoal.experiment.plan import Plan, make_plan
from shoal.members.devices import prepare
from shoal.records.generation import Generation
from shoal.records.jsonl import read_lines
from shoal.records.recorder import Recorder
from shoal.records.screen import styled
from shoal.report.words import duration
from shoal.run.loop import train
from shoal.testing.checks import QUICK
from shoal.testing.trainee import Trainee
from shoal.trainers.process import TrainerFailed

if TYPE_CHECKING:
    from shoal.records.screen import Screen

LONG = 10_000  # generations of the dry run, of which two are made: so no rung comes
ROLLOUTS = 4  # of an interval of the dry run
LARGE = 3.0  # rewards of a step: most are about 1, Pendulum's about 6 (docs/results.md says what that does)
MOST = 1024  # environment steps of an interval that tries a trainer; more where it needs whole rollouts
CHECKS = (
    *(
        checks.size,
        checks.beginning,
        checks.place,
        checks.devices,
        checks.observations,
        checks.normalising,
        checks.storage,
    ),
    *(checks.processes, rehearsal.evolution, checks.rungs, checks.instead),
    *(rehearsal.hyperparameters, knobs.effects),
)
COLORS = {"✓": "green", "!": "yellow", "✗": "bold red"}


@on_jax()
def examine(experiment: Experiment, arguments: Sequence[str], console: Screen) -> bool:
    """Check an experiment and say what was found; whether it can be run. Raises BadInput for what is none.

    arguments: those of `shoal train` that lead to it.
    """
    prepare()
    plan = make_plan(experiment)
    found: list[Finding] = []

    def tell(findings: Iterable[Finding]) -> None:
        for finding in findings:
            mark, topic, text = finding
            row = Table.grid(padding=(0, 1))
            row.add_column(width=1)
            row.add_column(width=20)
            row.add_row(styled((mark, COLORS[mark])), styled((topic, "bold")), text)
            console.print(row)
            found.append(finding)

    for check in CHECKS:
        tell(check(plan))
    plan.kind.close()
    if not any(f.mark == "✗" and f.topic == "memory" for f in found):  # what does not fit is not tried
        if plan.kind.compiled is None:
            with console.status("the trainer: does it keep what a member needs?"):
                tell(try_trainer(plan, {*plan.space, *experiment.hyper}))
        with console.status("a dry run of two short generations"):
            tell(list(dry_run(plan)))
    problems, doubts = (sum(f.mark == mark for f in found) for mark in "✗!")
    verdict = f"{problems} in the way of the run" if problems else f"it can be run: shoal train {shlex.join(arguments)}"
    console.print(f"{verdict}{f'; {doubts} worth a thought' if doubts else ''}", soft_wrap=True)
    return not problems


def try_trainer(plan: Plan, names: Collection[str]) -> Iterator[Finding]:
    """The quick part of the conformance kit (`shoal.testing`): do the hyperparameters of these names have an effect?"""
    e = plan.experiment
    trainee = Trainee(recipe_of(e), e.python or sys.executable, min(e.interval, MOST), only=names)
    with closing(trainee):
        for check in QUICK:
            try:
                check(trainee)
            except (AssertionError, TrainerFailed) as error:  # told in lines by the first
                yield problem("trainer", str(error).splitlines()[0])
                return
        tried, others = trainee.tried, [name for name in trainee.hyper if name not in names]
    text = f"takes effect on a live member: {', '.join(tried)}" if tried else "same seeds give the same training"
    yield fine("trainer", f"{text}; not tried, as they stay as they are: {', '.join(others)}" if others else text)


class _Watch(Recorder):
    def __init__(self) -> None:
        self.events: list[Generation] = []

    def generation(self, event: Generation) -> bool:
        self.events.append(event)
        return len(self.events) == 2


def dry_run(plan: Plan) -> Iterator[Finding]:
    """Two short generations of the whole run, in a directory that is thrown away."""
    e, watch, method = plan.experiment, _Watch(), plan.experiment.method
    at_once = method | ({"burn_in": 0} if "burn_in" in method else {})  # all members evolve
    kind, rollouts = plan.kind.compiled, min(plan.iterations, ROLLOUTS)
    interval = rollouts * plan.steps // plan.iterations if plan.steps else e.interval
    with tempfile.TemporaryDirectory(prefix="shoal-doctor-") as folder:
        short = replace(
            alone(e, e.shards),
            generations=LONG,
            budget=None,
            interval=interval if kind else 1,  # of trainers the shortest that they have
            method=at_once,
            final_episodes=1,
            run_dir=str(Path(folder) / "run"),
            wandb=None,
            config=e.config | {"warm_up": 0} if kind and kind.agent.warm_up else e.config,
        )
        try:
            train(short, [watch])
            timings = [row["timing"] for row in read_lines(Path(folder) / "run/metrics.jsonl")]
        except Interrupted as error:
            raise KeyboardInterrupt from error
        except Exception as error:  # whatever an environment or an agent of one's own raises
            cause = error.__cause__ if isinstance(error, Failed) else error
            named = "" if isinstance(error, (BadInput, Failed)) else f"failed: {type(error).__name__}: "
            yield problem("dry run", f"{named}{cause}")
            return
    if kind is None:
        made, seconds = watch.events[0].steps, timings[1]["seconds"]
        yield fine("time", f"two intervals of {made:,} steps took {seconds:.0f} s, their processes' start included")
        return
    yield _speed(plan, rollouts, timings)
    if not plan.kind.drawn:
        yield from _noise(plan, rollouts, kind.agent.rollout, watch.events[-1])
    yield from rewards(plan, watch.events[-1].metrics)


def _speed(plan: Plan, rollouts: int, timings: list[dict[str, float]]) -> Finding:
    e, (first, second) = plan.experiment, timings
    phases = ("compile", "train", "evaluate", "evolve")
    compiling = max(sum(first[p] - second[p] for p in phases), 0.0) * len(plan.sizes)  # of each size of the population
    training = second["train"] * (plan.iterations / rollouts if plan.steps else 1)
    generation = training + second["evaluate"] + min(first["evolve"], second["evolve"]) + second["record"]
    rounds = math.ceil(e.final_episodes / (e.population * plan.measurement.episodes))
    longer = training * (plan.lengthening - 1)
    total = compiling + (generation + longer) * e.generations + rounds * second["evaluate"]
    most = "about" if e.budget is None else "at most"
    text = f"{duration(compiling)} to compile, then about {duration(generation)} for a generation"
    return fine("time", f"{text}, {training / generation:.0%} of it training; the whole run {most} {duration(total)}")


def _noise(plan: Plan, rollouts: int, rollout: int, event: Generation) -> Iterator[Finding]:
    """Whether fitness can be measured, and how well."""
    e, cards = plan.experiment, event.cards
    fitness = cards.fitness[np.isfinite(cards.fitness)]
    n, whole = len(fitness), plan.iterations * rollout
    lengths = event.metrics["episode/length"]
    length = float(np.nanmax(lengths)) if np.isfinite(lengths).any() else math.inf
    if e.fitness.source == "training" and length > whole / 10:
        none = f"no episode ended in {rollouts * rollout:,}"
        seen = f"episodes took up to {length:,.0f}" if length < math.inf else none
        text = f"an interval is {whole:,} steps in each environment, and {seen}"
        advice = "Raise interval, or write fitness.source: evaluation"
        if length > whole / 2:
            yield doubt("fitness", f"{text}; a member that ends none has no fitness. {advice}")
            return
        if np.nanmin(lengths) < length:
            yield doubt("fitness", f"{text}: short ones weigh more. {advice}")
    if n < e.population:
        yield (doubt if n else problem)("fitness", f"{e.population - n} of {e.population} members diverged at once")
    known = np.isfinite(cards.deviation)
    if n < 2:
        return
    if np.ptp(fitness) == 0:
        yield fine("fitness", f"all members score {fitness[0]:.4g} at first: until one learns, copies are random")
    elif not known.any():
        yield doubt("fitness", "one episode does not say how far fitness can be trusted: raise fitness.episodes")
    else:
        error = float((cards.deviation[known] / np.sqrt(cards.episodes[known])).mean())
        luck = NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) * error  # the highest of n equal members, after Blom
        say, spread, episodes = fine if error < fitness.std() else doubt, fitness.std(), cards.episodes.max()
        text = f"members differ by ± {_figure(spread)} after {2 * rollouts} rollouts; {episodes} episodes measure one"
        yield say(
            "fitness", f"{text} to ± {_figure(error)}, and luck makes the best of {n} look {_figure(luck)} too good"
        )


def rewards(plan: Plan, metrics: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """Whether the critic has large rewards to learn, where the agent could bring them to their usual size.

    metrics: `episode/return` and `episode/length` of each member's training, NaN where no episode ended
    """
    if plan.experiment.config.get("normalise_rewards") is not False:
        return
    sizes = np.abs(metrics["episode/return"]) / metrics["episode/length"]
    sizes = sizes[np.isfinite(sizes)]
    if len(sizes) and sizes.mean() > LARGE:
        text = f"about {_figure(sizes.mean())} a step, which crowd out what the policy learns"
        yield doubt("rewards", f"{text}: try config.normalise_rewards: true")


def _figure(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.2g}"
