"""`shoal report`: one HTML page, whole in itself, that tells how a population learned."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from shoal.record import charts, families, figures, tables
from shoal.record.charts import short, text
from shoal.record.lineage import Run, number, read_run
from shoal.record.story import Story, figure, many
from shoal.record.workspace import is_workspace, read_workspace

WAITING = '<p class="empty">No generation has been recorded yet: there is nothing to draw.</p>'


def write_report(run_dir: Path) -> Path:
    """Write RUN/report.html, all at once, and return its path."""
    run_dir = Path(run_dir)
    page = render(read_workspace(run_dir) if is_workspace(run_dir) else read_run(run_dir))
    target = run_dir / "report.html"
    handle, temporary = tempfile.mkstemp(dir=run_dir, prefix=".report-", suffix=".html")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target


def render(run: Run) -> str:
    """The page as text."""
    story = Story(run) if len(run.lineage.generations) else None
    sections = list(_sections(run, story))
    env, agent = _name(run, "env", "an environment"), _name(run, "agent", "an agent")
    parts = {
        "title": escape(f"{env} · {agent}: how the population learned"),
        "header": _header(run, env, agent),
        "nav": "".join(f'<a href="#{name}">{heading}</a>' for name, heading, _, _ in sections),
        "sections": "".join(
            f'<section id="{name}"><h2>{heading}</h2><p class="intro">{escape(intro)}</p>{content}</section>'
            for name, heading, intro, content in sections
        ),
        "name": escape(run.name),
        # "<" would let a name end the script
        "data": charts.pack(story.data if story else {}).replace("<", "\\u003c"),
    }
    template = files("shoal.record").joinpath("report.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _sections(run: Run, story: Story | None) -> Iterator[tuple[str, str, str, str]]:
    """(id, heading, what it is about, content) in the order of the page."""
    yield (
        "fitness", "Fitness", "Did the population learn, and how far apart are its members?",
        figures.fitness(story) if story else WAITING,
    )  # fmt: skip
    yield (
        "lineage", "Champion’s lineage",
        "A member that copies another jumps to a different history. This is the one true history of the best weights.",
        figures.lineage(story) if story else WAITING,
    )  # fmt: skip
    yield (
        "hyperparameters", "Hyperparameters",
        "The settings of learning that the run tuned while it learned: each member tries its own values, and one that "
        "copies another takes over its values, slightly changed.",
        _hyperparameters(run, story) if story else WAITING,
    )  # fmt: skip
    yield (
        "tree", "Family tree", "Who learned from whom, from the first generation to the last.",
        families.tree(story) + families.shares(story) if story else WAITING,
    )  # fmt: skip
    yield (
        "bounds", "Bounds",
        "A value that keeps pressing against the end of its range may want to lie beyond it. Counted over the last "
        "quarter of the generations.",
        tables.bounds(run) if story else WAITING,
    )  # fmt: skip
    yield (
        "diversity", "Diversity", "A population that has become all alike has nothing left to choose from.",
        f'<div class="pair">{families.founders(story)}{families.spread(story)}</div>' if story else WAITING,
    )  # fmt: skip
    yield (
        "throughput", "Speed", "How fast the run was, and where its time went.",
        f'<div class="pair">{figures.throughput(story)}</div>' if story else WAITING,
    )  # fmt: skip
    yield (
        "members", "Members", "The last generation, the fittest first.",
        tables.members(story) if story else WAITING,
    )  # fmt: skip
    yield (
        "experiment", "Experiment", "All settings of this run, as they were resolved: enough to repeat it.",
        f'<pre tabindex="0" aria-label="experiment.yaml">{escape(run.text)}</pre>'
        if run.text else '<p class="empty">experiment.yaml is missing.</p>',
    )  # fmt: skip


def _header(run: Run, env: str, agent: str) -> str:
    """The key facts, and the story in a few sentences for those who do not know the method."""
    table, result = run.lineage, run.result
    status = {"done": "finished", "interrupted": "interrupted"}.get(str(result.get("status")), "in progress")
    population = len(table.uids) or number(run.experiment.get("population"))
    done, planned = len(table.generations), number(run.experiment.get("generations"))
    steps = number(result.get("environment_steps", _latest(run, "steps")))
    if np.isnan(steps) and done:
        steps = float(np.nansum(table.steps[-1]))
    seconds = number(result.get("seconds", _latest(run, "timing", "seconds")))
    tests = number(result.get("evaluation_steps", _latest(run, "evaluation_steps")))
    of = f"of {text(planned)} planned" if planned > done else many(int(table.copied.sum()), "copy") + " in all"
    compiling = number(result.get("compile_seconds"))
    facts = [
        ("Population", text(float(population)), "member" if population == 1 else "members"),
        ("Generations", text(float(done)), of),
        ("Environment steps", short(steps), f"and {short(tests)} for tests" if tests > 0 else "all members together"),
        ("Time", _duration(seconds), f"{_duration(compiling)} of it compiling" if compiling > 0 else ""),
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
    return (
        f'<p class="eyebrow">Report of a training run <span class="status {status.split()[-1]}">{status}</span></p>'
        f"<h1>{escape(env)} <span>learned by {escape(agent)}</span></h1>{note}"
        f'<p class="abstract">{escape(_abstract(run, int(population) if population == population else 0))}</p>'
        f'<div class="headline">{_champion(run)}<dl class="facts">{tiles}</dl></div>'
    )


def _abstract(run: Run, population: int) -> str:
    if not run.lineage.present.any():
        return "The population is set up, but nothing has been learned yet."
    interval, copies = number(run.experiment.get("interval")), int(run.lineage.copied.sum())
    each = f" of {short(interval)} environment steps" if interval > 0 else ""
    told = (
        f"{many(population, 'agent')} learned {'alone' if population == 1 else 'side by side'}, in generations{each}. "
    )
    told += "After each generation every member was tested; the score is its fitness. "
    if not copies:
        return told + "No member has copied another: each kept its own weights and hyperparameters."
    told += (
        "Weak members then gave up their weights, copied those of a stronger member together with its "
        f"hyperparameters, and went on with slightly changed values. That happened {many(copies, 'time')}: so good "
        "weights spread, and good hyperparameters were found while the population learned."
    )
    config = run.experiment.get("config")
    if isinstance(config, dict) and "capacity" in config:  # the agent learns from memory
        copied = run.experiment.get("memory") == "copy"
        told += f" With the weights went {'the replay memory' if copied else 'no replay memory: each kept its own'}."
    return told


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
    tested = stated.get("evaluation")
    tested = tested if isinstance(tested, dict) else {}
    mean, error, episodes = (number(tested.get(name)) for name in ("mean", "standard_error", "episodes"))
    who = f"Champion: member {uid} after generation {generation}"
    if np.isnan(mean):
        return (
            f'<div class="champion-card"><p class="who">{who}</p><p class="score">{escape(text(selected))}</p>'
            "<p>This is its <em>selection fitness</em>: the score that put it first. The best of many noisy scores is "
            "partly luck, so expect a little less: the champion has not been tested on fresh episodes yet.</p></div>"
        )
    spread = f" <small>± {escape(text(error))}</small>" if error == error else ""
    count = f" over {episodes:,.0f} fresh episodes" if episodes > 0 else " over fresh episodes"
    return (
        f'<div class="champion-card"><p class="who">{who}</p><p class="score">{escape(text(mean))}{spread}</p>'
        f"<p>Mean return ± standard error{count}, played after training. Its <em>selection fitness</em> was "
        f"<strong>{escape(text(selected))}</strong>: the score that put it first. The two differ because the best of "
        "many noisy scores is partly luck; nothing was selected on the fresh episodes, so they are the honest number."
        "</p></div>"
    )


def _hyperparameters(run: Run, story: Story) -> str:
    fixed = {name: values[np.isfinite(values)] for name, values in run.lineage.hyper.items() if name not in run.space}
    told = "; ".join(f"{name} {text(float(values[-1]))}" for name, values in fixed.items() if len(values))
    note = f'<p class="reading">Not tuned: {escape(told)}.</p>' if told else ""
    if not run.space:
        return (
            figure("Nothing was tuned", "All hyperparameters were fixed in this run.", "So there is nothing to draw.")
            + note
        )
    kinds = [("champion", "the champion’s lineage"), ("ring lead", "its weights went over to another member")]
    kinds += [("m", "each member"), ("bound", "end of the range")]
    if not story.crowded:
        kinds.append(("ring", "copied from another member"))
    kinds.append(("dot lead" if story.crowded else "dot", "perturbed: changed a little"))
    keys = charts.legend(kinds)
    drawn = "".join(figures.hyperparameter(story, name) for name in run.space)
    return f'{keys}<div class="pair">{drawn}</div>{note}'


def _name(run: Run, field: str, otherwise: str) -> str:
    return str(run.result.get(field) or run.experiment.get(field) or otherwise)


def _latest(run: Run, *names: str) -> Any:
    """A field of the newest metrics."""
    entry: Any = run.metrics[-1] if run.metrics else {}
    for name in names:
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry


def _duration(seconds: float) -> str:
    """1.4 s, 12 min 5 s, 3 h 20 min, 2 d 4 h."""
    if seconds != seconds:
        return "–"
    if seconds < 60:
        return f"{seconds:.3g} s"
    for size, unit, smaller, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // smaller)} {part}"
    raise AssertionError
