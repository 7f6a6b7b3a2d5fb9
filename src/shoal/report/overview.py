"""The head of a report: what was run, the champion, and the explanation in a few sentences."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from shoal.records.words import duration, many, short, text
from shoal.report.generalisation import on_levels
from shoal.report.lineage import count, inner, number
from shoal.report.rendering import Markup, prose, rendered
from shoal.report.run import Run

BINS = 24  # of the champion's returns
TESTED = {"mean": "mean", "error": "standard_error", "episodes": "episodes"}  # of the final evaluation


def title(run: Run) -> str:
    """The title: the environment and the learner."""
    return f"{_env(run)} · {_learner(run)}: how the population learned"


def overview(run: Run) -> Markup:
    """The key facts, and the explanation in a few sentences for those who do not know the method."""
    result, latest, sampled = run.result, run.latest, run.method.sampled
    status = "finished" if result.get("status") in ("done", "stopped") else "in progress"
    done, planned = len(run.lineage.generations), number(run.experiment.get("generations"))
    steps = count(result.get("environment_steps", latest.get("steps")))
    if np.isnan(steps) and done:
        steps = float(np.nansum(run.lineage.steps[-1]))
    seconds = number(result.get("seconds", inner(latest, "timing").get("seconds")))
    tests = count(result.get("evaluation_steps", latest.get("evaluation_steps")))
    compiling, budget = number(result.get("compile_seconds")), count(run.experiment.get("budget"))
    limit = number(run.experiment.get("time_limit"))
    plans = f"until {short(budget)} steps, evaluation included" if budget > 0 else f"of {text(planned)} planned"
    if limit > 0:
        plans, planned = f"until {duration(limit)}", np.inf
    stopped = f"ended by {result['stopped_by']}" if isinstance(result.get("stopped_by"), str) else ""
    ended = planned <= done or np.isnan(planned) or result.get("status") == "done"
    members = f"member{'s' * (run.population != 1)}{', sampled anew each time' * sampled}"
    members += f" of {many(len(run.workers), 'worker')}" if run.workers else ""
    took = ["of the worker that took longest"] if len(run.workers) > 1 else []
    took += [f"{duration(compiling)} of it compiling"] if compiling > 0 else []
    alike = steps > 0 and run.population > 1 and not (sampled or _shrinks(run))
    each = f"{short(steps / run.population)} of each member" if alike else ""
    tested = f"and {short(tests)} for evaluation{' of the mean' * sampled}" if tests > 0 else ""
    facts = (
        ("Population", text(run.population), members),
        ("Generations", text(float(done)), stopped or (_came_about(run) if ended else plans)),
        ("Environment steps", short(steps), ", ".join(filter(None, (each, tested))) or "all members together"),
        ("Time", duration(seconds), ", ".join(took)),
    )
    return rendered(
        "run_header.html", method=run.method.name, status=status, env=_env(run), learner=_learner(run),
        abstract=_abstract(run), champion=_champion(run), facts=facts,
    )  # fmt: skip


def _came_about(run: Run) -> str:
    """A note on the number of generations."""
    if run.method.sampled and run.population > 0:
        return f"{run.population * len(run.lineage.generations):,.0f} members sampled in all"
    return f"{many(int(run.lineage.copied.sum()), 'copy')} in all" if run.method.copies else "as planned"


def _abstract(run: Run) -> str:
    population = int(run.population) if run.population > 0 else 0
    steps, shared = number(run.experiment.get("interval")), _shrinks(run)  # by the members that are left
    interval = f"{short(steps * population if shared else steps)} environment steps{' of all members' * shared}"
    buffered = "buffer_size" in inner(run.experiment, "config")  # the agent learns from a replay buffer
    return prose(
        "abstract", run=run, population=population, interval=interval if steps > 0 else "",
        generations=len(run.lineage.generations),
        copies=int(run.lineage.copied.sum()),
        replay=str(inner(run.experiment, "method").get("replay", "keep")) if buffered else "",
    )  # fmt: skip


def _shrinks(run: Run) -> bool:
    """True where members end before the run does."""
    present = run.lineage.present.sum(1)
    return bool(not run.workers and present.any() and present[-1] < present[0])


def _champion(run: Run) -> dict[str, Any]:
    """The champion with its two numbers, and why they differ; empty where there is none."""
    if run.champion is None:
        return {}
    uid, generation = run.champion
    selected = number(inner(run.result, "champion").get("selection_fitness"))
    worker = run.worker_of(uid)
    selected_among_workers = "worker" in inner(run.result, "champion", "final_selection")
    who = f"{'the mean' if run.method.sampled else f'member {uid}'}{f' of worker {worker}' if worker else ''}"
    return {
        "who": who,
        "generation": generation,
        "selected": float(run.lineage.fitness[run.trace][-1]) if np.isnan(selected) else selected,
        "levels": on_levels(run),
        "exact": run.exact,
        "score": run.score[0].upper() + run.score[1:],
        "distribution": _distribution(inner(run.result, "champion").get("returns")),
        "rivals": len(run.workers) if worker and not selected_among_workers else 1,
        **{name: number(run.tested.get(of)) for name, of in TESTED.items()},
    }


def _distribution(returns: object) -> dict[str, Any]:
    """Bars of a histogram of returns, in per cent of the highest, with their words; empty where all are equal."""
    known = np.array([number(x) for x in returns]) if isinstance(returns, list) else np.empty(0)
    known = known[np.isfinite(known)]
    if not len(known) or np.ptp(known) == 0:
        return {}
    counts, edges = np.histogram(known, BINS)
    ends = [f"{text(low)} to {text(high)}" for low, high in pairwise(edges.tolist())]
    titles = [f"{end}: {many(n, 'episode')}" for end, n in zip(ends, counts.tolist(), strict=True)]
    place = 100 * float((known.mean() - edges[0]) / (edges[-1] - edges[0]))
    bars = [*zip((100 * counts / counts.max()).tolist(), titles, strict=True)]
    return {
        "bars": bars,
        "low": float(edges[0]),
        "high": float(edges[-1]),
        "median": float(np.median(known)),
        "mean": place,
    }


def _env(run: Run) -> str:
    return _name(run, "env", "an environment")


def _learner(run: Run) -> str:
    """The agent; where its members are not tuned one by one, the method says more."""
    agent = _name(run, "agent", "an agent")
    return agent if run.method.tunes else run.method.title or agent


def _name(run: Run, field: str, otherwise: str) -> str:
    return str(run.result.get(field) or run.experiment.get(field) or otherwise)
