"""The head of a report: what was run, the champion, and the explanation in a few sentences."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from shoal.report.charts import short, text
from shoal.report.data import duration, many
from shoal.report.generalisation import on_levels
from shoal.report.lineage import count, number
from shoal.report.run import Run


def title(run: Run) -> str:
    """What learned where."""
    return f"{_env(run)} · {_learner(run)}: how the population learned"


def overview(run: Run) -> str:
    """The key facts, and the explanation in a few sentences for those who do not know the method."""
    table, result = run.lineage, run.result
    status = {"done": "finished", "stopped": "finished", "interrupted": "interrupted"}.get(
        str(result.get("status")), "in progress"
    )
    done, planned = len(table.generations), number(run.experiment.get("generations"))
    steps = count(result.get("environment_steps", _latest(run, "steps")))
    if np.isnan(steps) and done:
        steps = float(np.nansum(table.steps[-1]))
    seconds = number(result.get("seconds", _latest(run, "timing", "seconds")))
    tests = count(result.get("evaluation_steps", _latest(run, "evaluation_steps")))
    of = f"of {text(planned)} planned" if planned > done else _came_about(run)
    members = "member" if run.population == 1 else "members"
    compiling = number(result.get("compile_seconds"))
    members += ", drawn anew each time" * run.drawn
    members += f" of {many(len(run.workers), 'worker')}" if run.workers else ""
    took = "of the worker that took longest" if len(run.workers) > 1 else ""
    took += ", " * bool(took and compiling > 0) + (f"{duration(compiling)} of it compiling" if compiling > 0 else "")
    facts = [
        ("Population", text(run.population), members),
        ("Generations", text(float(done)), of),
        (
            "Environment steps",
            short(steps),
            f"and {short(tests)} for tests{' of the mean' * run.drawn}" if tests > 0 else "all members together",
        ),
        ("Time", duration(seconds), took),
    ]
    tiles = "".join(
        f"<div><dt>{name}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in facts
    )
    notice = {
        "in progress": "This run has no result yet: it is still in progress, or it was stopped. The page shows what "
        "has been recorded so far; write the report again for more.",
        "interrupted": "This run was interrupted. The page shows what had been recorded by then.",
    }.get(status)
    note = f'<p class="notice">{notice}</p>' if notice else ""
    method = f"· method {escape(run.method)} " if run.method else ""
    return (
        f'<p class="eyebrow">Report of a training run {method}'
        f'<span class="status {status.split()[-1]}">{status}</span></p>'
        f"<h1>{escape(_env(run))} <span>learned by {escape(_learner(run))}</span></h1>{note}"
        f'<p class="abstract">{escape(_abstract(run))}</p>'
        f'<div class="headline">{_champion(run)}<dl class="facts">{tiles}</dl></div>'
    )


def _came_about(run: Run) -> str:
    """What the generations amount to."""
    if run.drawn and run.population > 0:
        return f"{run.population * len(run.lineage.generations):,.0f} members drawn in all"
    return f"{many(int(run.lineage.copied.sum()), 'copy')} in all" if run.copies else "all that were planned"


def _abstract(run: Run) -> str:
    if not run.lineage.present.any():
        return "The population is set up, but nothing has been learned yet."
    if run.drawn:
        return _of_drawn(run)
    population = int(run.population)
    interval, copies = number(run.experiment.get("interval")), int(run.lineage.copied.sum())
    each = f" of {short(interval)} environment steps" if interval > 0 else ""
    told = (
        f"{many(population, 'agent')} learned {'alone' if population == 1 else 'side by side'}, in generations{each}. "
    )
    told += "After each generation every member was tested; the score is its fitness. "
    if not run.copies:
        return told + run.explanation
    if not copies:
        return told + "No member has copied another: each kept its own weights and hyperparameters."
    told += f"{run.explanation} Members copied others {many(copies, 'time')}."
    config = run.experiment.get("config")
    if isinstance(config, dict) and "capacity" in config:  # the agent learns from memory
        method = run.experiment.get("method")
        copied = isinstance(method, dict) and method.get("memory") == "copy"
        told += f" With the weights went {'the replay memory' if copied else 'no replay memory: each kept its own'}."
    return told


def _of_drawn(run: Run) -> str:
    """What happened where members were drawn around a mean."""
    generations = len(run.lineage.generations)
    members = many(int(run.population), "member") if run.population > 0 else "members"
    told = f"One policy learned: the mean. In each of {many(generations, 'generation')} {members} were drawn around it"
    if run.population > 0 and generations > 1:
        told += f", {run.population * generations:,.0f} in all"
    told += f", and played whole episodes. {run.explanation} "
    return told + "No member lives on: what is kept and tested is the mean alone."


def _champion(run: Run) -> str:
    """The champion's two numbers and why they differ."""
    if run.champion is None:
        return '<div class="champion-card"><p>No member has a fitness yet, so there is no champion.</p></div>'
    uid, generation = run.champion
    stated = run.result.get("champion")
    stated = stated if isinstance(stated, dict) else {}
    rows, columns = run.lineage.trace(uid, generation)
    selected = number(stated.get("selection_fitness"))
    selected = float(run.lineage.fitness[rows[-1], columns[-1]]) if np.isnan(selected) else selected
    mean, error, episodes = (number(run.tested.get(name)) for name in ("mean", "standard_error", "episodes"))
    worker = run.worker_of(uid)
    whose = f" of worker {worker}" if worker else ""
    who = escape(f"Champion: {'the mean' if run.drawn else f'member {uid}'}{whose} after generation {generation}")
    if np.isnan(mean):
        broken = "none of its fresh episodes has a return, for its environment broke them"
        state = broken if episodes == 0 else "the champion has not been tested on fresh episodes yet"
        return (
            f'<div class="champion-card"><p class="who">{who}</p><p class="score">{escape(text(selected))}</p>'
            "<p>This is its <em>selection fitness</em>: the score that put it first. The best of many noisy scores is "
            f"partly luck, so expect a little less: {state}.</p></div>"
        )
    told = on_levels(run)
    why = "The best of many noisy scores is partly luck; "
    if worker and len(run.workers) > 1:
        why += (
            f"of the champions of {len(run.workers)} workers this one did best on the fresh episodes, so that they flatter "
            "a little too."
        )
    else:
        why += "nothing was selected on the fresh episodes, so they are the honest number."
    if told:
        why = (
            f"Nothing was selected on these episodes, which are on test levels, so they are the honest number. The "
            f"champion returned {escape(', '.join(told))}."
        )
    spread = f" <small>± {escape(text(error))}</small>" if error == error else ""
    count = f" over {episodes:,.0f} fresh episodes" if episodes > 0 else " over fresh episodes"
    return (
        f'<div class="champion-card"><p class="who">{who}</p><p class="score">{escape(text(mean))}{spread}</p>'
        f"<p>Mean return ± standard error{count}, played after training. Its <em>selection fitness</em> was "
        f"<strong>{escape(text(selected))}</strong>: the score that put it first. {why}</p></div>"
    )


def _env(run: Run) -> str:
    return _name(run, "env", "an environment")


def _learner(run: Run) -> str:
    """The agent; where its members are not tuned one by one, the method says more."""
    agent = _name(run, "agent", "an agent")
    return agent if run.tunes else run.title or agent


def _name(run: Run, field: str, otherwise: str) -> str:
    return str(run.result.get(field) or run.experiment.get(field) or otherwise)


def _latest(run: Run, *names: str) -> Any:
    """A field of the newest metrics."""
    entry: Any = run.metrics[-1] if run.metrics else {}
    for name in names:
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry
