"""The dry run: two short generations of the whole run, and the quick checks of a trainer."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np

from shoal.commands.doctor.checks import Diagnostic, failure, ok, warning
from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed, Interrupted
from shoal.experiment import plan_text
from shoal.experiment.build import recipe_of
from shoal.experiment.experiment import Stop, alone
from shoal.experiment.plan import Plan
from shoal.records.callback import Callback
from shoal.records.generation import Generation
from shoal.records.jsonl import read_lines
from shoal.records.words import duration, error_text, text
from shoal.run.train import train
from shoal.testing.checks import QUICK
from shoal.testing.trainee import Trainee
from shoal.trainers.process import TrainerFailed

LONG = 10_000  # generations of the dry run, of which two are trained: no rung falls on them
ROLLOUTS = 4  # of an interval of the dry run
MOST = 1024  # environment steps of an interval that tests a trainer, unless a rollout is longer


def trainer(plan: Plan, names: Collection[str]) -> Iterator[Diagnostic]:
    """The quick part of the conformance kit (`shoal.testing`): the effect of the hyperparameters of these names."""
    e = plan.experiment
    trainee = Trainee(recipe_of(e), e.python or sys.executable, min(e.interval, MOST), only=names)
    with closing(trainee):
        for check in QUICK:
            try:
                check(trainee)
            except (AssertionError, TrainerFailed) as error:  # the first line is the summary
                yield failure("trainer", str(error).splitlines()[0])
                return
        tested, others = trainee.probed, [name for name in trainee.hyper if name not in names]
    text = f"takes effect on a live member: {', '.join(tested)}" if tested else "same seeds give the same training"
    yield ok("trainer", f"{text}; not tested, as they stay fixed: {', '.join(others)}" if others else text)


class _Watch(Callback):
    """Keep two generations, then end the run."""

    def __init__(self) -> None:
        self.events: list[Generation] = []

    def on_generation_end(self, event: Generation) -> bool:
        self.events.append(event)
        return len(self.events) < 2


def dry_run(plan: Plan) -> Iterator[Diagnostic]:
    """Two short generations of the whole run, in a temporary directory."""
    e, watch, method = plan.experiment, _Watch(), plan.experiment.method
    at_once = method | ({"burn_in": 0} if "burn_in" in method else {})
    kind, rollouts = plan.kind.compiled, min(plan.iterations, ROLLOUTS)
    interval = rollouts * plan.steps // plan.iterations if plan.steps else e.interval
    with tempfile.TemporaryDirectory(prefix="shoal-doctor-") as folder:
        short = replace(
            alone(e, e.shards),
            generations=LONG,
            budget=None,
            time_limit=None,
            stop=Stop(),
            interval=interval if kind else 1,  # the shortest that a trainer has
            method=at_once,
            final_episodes=1,
            run_dir=str(Path(folder) / "run"),
            wandb=None,
            config=e.config | {"learning_starts": 0} if kind and kind.agent.learning_starts else e.config,
        )
        try:
            train(short, [watch])
            timings = [row["timing"] for row in read_lines(Path(folder) / "run/metrics.jsonl")]
        except Interrupted as error:
            raise KeyboardInterrupt from error
        except Exception as error:  # of the user's environment or agent
            cause = error.__cause__ if isinstance(error, Failed) else error
            named = "" if isinstance(error, (BadInput, Failed)) else f"failed: {type(error).__name__}: "
            yield failure("dry run", f"{named}{cause}")
            return
    if kind is None:
        made, seconds = watch.events[0].steps, timings[1]["seconds"]
        yield ok("time", f"two intervals of {made:,} steps took {seconds:.0f} s, including the start of the processes")
        return
    made, evaluated = (
        getattr(watch.events[1], name) - getattr(watch.events[0], name) for name in ("steps", "evaluation_steps")
    )
    lengths = watch.events[-1].metrics.get("episode/length", np.zeros(0))
    length = float(np.nanmax(lengths)) if np.isfinite(lengths).any() else 0.0
    yield _speed(plan, rollouts, timings, made, evaluated, length)
    if plan.steps and evaluated:
        yield _evaluation(plan, evaluated * rollouts / (made * plan.iterations))
    if not plan.kind.sampled:
        yield from _noise(plan, rollouts, kind.agent.rollout_length, watch.events[-1])


def _speed(
    plan: Plan, rollouts: int, timings: list[dict[str, float]], made: int, evaluated: int, length: float
) -> Diagnostic:
    """Estimated time of a generation and of the whole run.

    made, evaluated: steps of the second generation, in training and in evaluations. length: of a training episode, 0 where
    none has ended
    """
    e, (first, second) = plan.experiment, timings
    phases = ("compile", "train", "evaluate", "evolve")
    assert plan.kind.compiled is not None
    widths = {plan.kind.compiled.width(members, plan.method.ends_members) for _, members in plan.rung_sizes}
    compiling = max(sum(first[p] - second[p] for p in phases), 0.0) * len(widths)  # one program per width
    longer_interval = plan.iterations / rollouts if plan.steps else 1
    training = second["train"] * longer_interval
    generation = training + second["evaluate"] + min(first["evolve"], second["evolve"]) + second["record"]
    evaluating = second["evaluate"]
    if e.fitness.source == "training":  # the final evaluation is the first one: at about the speed of training
        evaluated = round(e.population * plan.evaluation.episodes * length)
        evaluating = evaluated * second["train"] / made
    rounds = math.ceil(e.final_episodes / (e.population * plan.evaluation.episodes))
    longer = training * (plan.lengthening - 1)
    total = compiling + (generation + longer) * e.generations + rounds * evaluating
    if share := e.fitness.final_selection:  # see `episodes_of`
        steps = share * made * longer_interval * e.generations
        total += evaluating * max(steps / evaluated if evaluated else 0, rounds)
    most = "about" if e.budget is None and not e.stops_early else "at most"
    if e.time_limit is not None:
        alone = e.ends_by == ["time_limit"]
        total = e.time_limit if alone else min(total, e.time_limit)
        most = "at least" if alone and not e.stops_early else "at most"
    more = " while all members train, and longer with fewer" if longer > 0 else ""
    text = f"{duration(compiling)} to compile, then about {duration(generation)} per generation{more}"
    return ok("time", f"{text}, {training / generation:.0%} of it training; the whole run {most} {duration(total)}")


def _evaluation(plan: Plan, share: float) -> Diagnostic:
    """The steps of an evaluation as a share of those of an interval: in the dry run, and at most."""
    text = plan_text.evaluation(plan, share) or f"{share:.0%} of the steps of an interval in the dry run"
    if share <= 1:
        return ok("evaluation", text)
    advice = "Evaluations take more steps than training: lower fitness.episodes, or raise interval"
    return warning("evaluation", f"{text}. {advice}")


def _noise(plan: Plan, rollouts: int, rollout: int, event: Generation) -> Iterator[Diagnostic]:
    """Members without fitness, and the standard error of fitness beside its standard deviation."""
    e, stats = plan.experiment, event.stats
    fitness = stats.fitness[np.isfinite(stats.fitness)]
    n, whole = len(fitness), plan.iterations * rollout
    lengths = event.metrics["episode/length"]
    length = float(np.nanmax(lengths)) if np.isfinite(lengths).any() else math.inf
    if e.fitness.source == "training" and length > whole / 10:
        none = f"no episode ended in {rollouts * rollout:,}"
        seen = f"episodes took up to {length:,.0f}" if length < math.inf else none
        found = f"an interval is {whole:,} steps in each environment, and {seen}"
        advice = "Raise interval, or set fitness.source: evaluation"
        if length > whole / 2:
            yield warning("fitness", f"{found}; a member that ends no episode has no fitness. {advice}")
            return
        if np.nanmin(lengths) < length:
            yield warning("fitness", f"{found}: short episodes weigh more. {advice}")
    if n < e.population:
        yield (warning if n else failure)(
            "fitness", f"{e.population - n} of {e.population} members diverged in the dry run"
        )
    known = np.isfinite(stats.std)
    if n < 2:
        return
    std = f"std over members {error_text(fitness.std())} after {2 * rollouts} rollouts"
    if np.ptp(fitness) == 0:
        yield ok("fitness", f"all members score {text(fitness[0])} at first: until one learns, selection is random")
    elif e.fitness.exact:  # no episodes are played for it
        yield ok("fitness", f"{std}; exploitability is exact, without a standard error")
    elif not known.any():
        yield warning("fitness", "one episode gives no standard error of fitness: raise fitness.episodes")
    else:
        error = float((stats.std[known] / np.sqrt(stats.episodes[known])).mean())
        bias = NormalDist().inv_cdf((n - 0.375) / (n + 0.25)) * error  # the highest of n equal members, after Blom
        found = f"{std}; standard error over {stats.episodes.max()} episodes {error_text(error)}"
        found += f"; selection bias of the best of {n} {error_text(bias)}"
        if error < fitness.std():
            yield ok("fitness", found)
        else:
            advice = "if the report of the run says so too, raise fitness.episodes"
            yield warning("fitness", f"{found}. So far fitness is mostly noise; {advice}")
