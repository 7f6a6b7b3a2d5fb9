"""The head of a report: what was run, the champion, and the explanation in a few sentences."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.report.generalisation import on_levels
from shoal.report.lineage import count, inner, number
from shoal.report.rendering import Markup, rendered
from shoal.report.run import Run
from shoal.report.words import duration, many, short, text

STATUS = {"done": "finished", "stopped": "finished", "interrupted": "interrupted"}  # of a result
NOTICES = {
    "in progress": "This run has no result yet: it is still in progress, or it was stopped. The page shows what has been "
    "recorded so far; write the report again for more.",
    "interrupted": "This run was interrupted. The page shows what had been recorded by then.",
}


def title(run: Run) -> str:
    """The title: the environment and the learner."""
    return f"{_env(run)} · {_learner(run)}: how the population learned"


def overview(run: Run) -> Markup:
    """The key facts, and the explanation in a few sentences for those who do not know the method."""
    table, result, latest, sampled = run.lineage, run.result, run.latest, run.method.sampled
    status = STATUS.get(str(result.get("status")), "in progress")
    done, planned = len(table.generations), number(run.experiment.get("generations"))
    steps = count(result.get("environment_steps", latest.get("steps")))
    if np.isnan(steps) and done:
        steps = float(np.nansum(table.steps[-1]))
    seconds = number(result.get("seconds", inner(latest, "timing").get("seconds")))
    tests = count(result.get("evaluation_steps", latest.get("evaluation_steps")))
    compiling = number(result.get("compile_seconds"))
    budget = count(run.experiment.get("budget"))
    plans = f"until {short(budget)} steps, with evaluations" if budget > 0 else f"of {text(planned)} planned"
    members = f"member{'s' * (run.population != 1)}{', drawn anew each time' * sampled}"
    members += f" of {many(len(run.workers), 'worker')}" if run.workers else ""
    took = ["of the worker that took longest"] if len(run.workers) > 1 else []
    took += [f"{duration(compiling)} of it compiling"] if compiling > 0 else []
    tested = f"and {short(tests)} for evaluation{' of the mean' * sampled}" if tests > 0 else "all members together"
    facts = (
        ("Population", text(run.population), members),
        (
            "Generations",
            text(float(done)),
            plans if planned > done and result.get("status") != "done" else _came_about(run),
        ),
        ("Environment steps", short(steps), tested),
        ("Time", duration(seconds), ", ".join(took)),
    )
    return rendered(
        "run_header.html", method=run.method.name, status=status, env=_env(run), learner=_learner(run),
        notice=NOTICES.get(status), abstract=_abstract(run), champion=_champion(run), facts=facts,
    )  # fmt: skip


def _came_about(run: Run) -> str:
    """A note on the number of generations."""
    if run.method.sampled and run.population > 0:
        return f"{run.population * len(run.lineage.generations):,.0f} members drawn in all"
    return f"{many(int(run.lineage.copied.sum()), 'copy')} in all" if run.method.copies else "all that were planned"


def _abstract(run: Run) -> str:
    if not run.lineage.present.any():
        return "The population is set up, but nothing has been learned yet."
    if run.method.sampled:
        return _of_sampled(run)
    population = int(run.population)
    interval, copies = number(run.experiment.get("interval")), int(run.lineage.copied.sum())
    present = run.lineage.present.sum(1)
    ends = bool(not run.workers and present[-1] < present[0])  # then those that are left make the steps of all
    steps = f"{short(interval * population if ends else interval)} environment steps{' of all members' * ends}"
    each = f" of {steps}" if interval > 0 else ""
    abstract = (
        f"{many(population, 'agent')} learned {'alone' if population == 1 else 'side by side'}, in generations{each}. "
    )
    abstract += "After each generation every member was evaluated; the score is its fitness. "
    if not run.method.copies:
        return abstract + run.method.explanation
    if not copies:
        return abstract + "No member has copied another: each kept its own weights and hyperparameters."
    abstract += f"{run.method.explanation} Members copied others {many(copies, 'time')}."
    if "capacity" in inner(run.experiment, "config"):  # the agent learns from a replay buffer
        copied = inner(run.experiment, "method").get("replay") == "copy"
        abstract += (
            f" With the weights went {'the replay buffer' if copied else 'no replay buffer: each kept its own'}."
        )
    return abstract


def _of_sampled(run: Run) -> str:
    """The abstract where members are drawn around a mean."""
    generations = len(run.lineage.generations)
    members = many(int(run.population), "member") if run.population > 0 else "members"
    abstract = (
        f"One policy learned: the mean. In each of {many(generations, 'generation')} {members} were drawn around it"
    )
    if run.population > 0 and generations > 1:
        abstract += f", {run.population * generations:,.0f} in all"
    abstract += f", and played whole episodes. {run.method.explanation} "
    return abstract + "No member lives on: only the mean is kept and evaluated."


def _champion(run: Run) -> dict[str, Any]:
    """Texts of the champion's two numbers and why they differ; empty where there is none."""
    if run.champion is None:
        return {}
    uid, generation = run.champion
    selected = number(inner(run.result, "champion").get("selection_fitness"))
    selected = float(run.lineage.fitness[run.trace][-1]) if np.isnan(selected) else selected
    mean, error, episodes = (number(run.tested.get(name)) for name in ("mean", "standard_error", "episodes"))
    worker = run.worker_of(uid)
    who = f"{'the mean' if run.method.sampled else f'member {uid}'}{f' of worker {worker}' if worker else ''}"
    card = {"who": f"Champion: {who} after generation {generation + 1}", "selected": text(selected), "untested": ""}
    if np.isnan(mean):
        broken = "none of its held-out episodes has a return, for its environment broke them"
        return card | {
            "untested": broken if episodes == 0 else "the champion has not been evaluated on held-out episodes yet"
        }
    if levels := on_levels(run):
        why = (
            "Nothing was selected on these episodes, which are on test levels, so they are the honest number. The "
            f"champion returned {', '.join(levels)}."
        )
    elif worker and len(run.workers) > 1:
        why = (
            f"The best of many noisy scores is partly luck; of the champions of {len(run.workers)} workers this one did "
            "best on the held-out episodes, so that their mean is a little optimistic too."
        )
    else:
        why = (
            "The best of many noisy scores is partly luck; nothing was selected on the held-out episodes, so they are the "
            "honest number."
        )
    over = f"{episodes:,.0f} held-out" if episodes > 0 else "held-out"
    return card | {"mean": text(mean), "error": text(error) if error == error else "", "over": over, "why": why}


def _env(run: Run) -> str:
    return _name(run, "env", "an environment")


def _learner(run: Run) -> str:
    """The agent; where its members are not tuned one by one, the method says more."""
    agent = _name(run, "agent", "an agent")
    return agent if run.method.tunes else run.method.title or agent


def _name(run: Run, field: str, otherwise: str) -> str:
    return str(run.result.get(field) or run.experiment.get(field) or otherwise)
