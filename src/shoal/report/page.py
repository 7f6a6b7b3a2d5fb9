"""`shoal report`: one HTML page, whole in itself, that tells how a population learned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.atomic import write_file
from shoal.report import charts, decisions, diversity, family_tree, figures, generalisation, search, tables
from shoal.report.charts import text
from shoal.report.data import RunData, figure
from shoal.report.overview import overview, title
from shoal.report.run import Run, read_run
from shoal.report.workspace import is_workspace, read_workspace

Section = tuple[str, str, str, Callable[[RunData], str]]  # id, heading, what it is about, what draws it

WAITING = '<p class="empty">No generation has been recorded yet: there is nothing to draw.</p>'

FITNESS: Section = (
    "fitness", "Fitness", "Did the population learn, and how far apart are its members?", figures.fitness,
)  # fmt: skip
SPEED: Section = (
    "throughput", "Speed", "How fast the run was, and where its time went.",
    lambda run_data: _pair(figures.throughput(run_data)),
)  # fmt: skip
LEVELS: Section = (
    "generalisation", "Generalisation", "Was it the task that was learned, or the levels to train on?",
    generalisation.generalisation,
)  # fmt: skip
DECISIONS: Section = (
    "decisions", "Decisions", "What the method did between generations beside copying, and what it went by.",
    decisions.decisions,
)  # fmt: skip
WORKERS: Section = (
    "workers", "Workers", "Who did what of those that share the directory.",
    lambda run_data: tables.workers(run_data.run),
)  # fmt: skip
MEMBERS: Section = "members", "Members", "The last generation, the fittest first.", tables.members


def write_report(run_dir: Path) -> Path:
    """Write RUN/report.html, all at once, and return its path."""
    run_dir = Path(run_dir)
    page = render(read_workspace(run_dir) if is_workspace(run_dir) else read_run(run_dir))
    target = run_dir / "report.html"
    try:
        write_file(target, page.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    return target


def render(run: Run) -> str:
    """The page as text."""
    run_data = RunData(run) if len(run.lineage.generations) else None
    data = run_data.data if run_data else {}
    return document(title(run), overview(run), _sections(run, run_data), run.name, data)


def document(
    title: str, header: str, sections: Iterable[tuple[str, str, str, str]], name: str, data: dict[str, Any]
) -> str:
    """A whole page. header: HTML. sections: id, heading, what it is about, HTML. data: for the page's script."""
    sections = list(sections)
    parts = {
        "title": escape(title),
        "header": header,
        "nav": "".join(f'<a href="#{name}">{heading}</a>' for name, heading, _, _ in sections),
        "sections": "".join(
            f'<section id="{name}"><h2>{heading}</h2><p class="intro">{escape(intro)}</p>{content}</section>'
            for name, heading, intro, content in sections
        ),
        "name": escape(name),
        # "<" would let a name end the script
        "data": charts.pack(data).replace("<", "\\u003c"),
    }
    template = files("shoal.report").joinpath("report.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _sections(run: Run, run_data: RunData | None) -> Iterator[tuple[str, str, str, str]]:
    """(id, heading, what it is about, content) in the order of the page."""
    parts = _of_drawn if run.drawn else _of_copying if run.copies else _of_members
    fitness, *others = parts(run)
    measured = [*([LEVELS] if "levels/train" in run.measured else []), *([DECISIONS] if decisions.told(run) else [])]
    shared = [WORKERS] if run.workers else []
    for name, heading, intro, draw in (fitness, *measured, *others, *shared):
        yield name, heading, intro, draw(run_data) if run_data else WAITING
    settings = "All settings of this run, as they were resolved: enough to repeat it."
    if run.workers:
        settings = f"The settings of worker {run.workers[0].name}; each has its own in its run directory."
    yield (
        "experiment", "Experiment", settings,
        f'<pre tabindex="0" aria-label="experiment.yaml">{escape(run.text)}</pre>'
        if run.text else '<p class="empty">experiment.yaml is missing.</p>',
    )  # fmt: skip


def _of_copying(run: Run) -> Iterator[Section]:
    """Of members that copy one another."""
    yield FITNESS
    yield (
        "lineage", "Champion’s lineage",
        "A member that copies another jumps to a different history. This is the one true history of the best weights.",
        figures.lineage,
    )  # fmt: skip
    yield (
        "hyperparameters", "Hyperparameters",
        "The settings of learning that the run tuned while it learned: each member tries its own values, and one that "
        "copies another takes over its values, slightly changed.",
        _hyperparameters,
    )  # fmt: skip
    yield (
        "tree", "Family tree", "Who learned from whom, from the first generation to the last.",
        lambda run_data: family_tree.tree(run_data) + family_tree.shares(run_data),
    )  # fmt: skip
    yield (
        "bounds", "Bounds",
        "A value that keeps pressing against the end of its range may want to lie beyond it. Counted over the last "
        "quarter of the generations.",
        lambda run_data: tables.bounds(run_data.run),
    )  # fmt: skip
    yield (
        "diversity", "Diversity", "A population that has become all alike has nothing left to choose from.",
        lambda run_data: _pair(family_tree.founders(run_data), family_tree.spread(run_data)),
    )  # fmt: skip
    yield SPEED
    yield MEMBERS


def _of_members(run: Run) -> Iterator[Section]:
    """Of members that keep their own weights."""
    yield FITNESS
    if any(name.startswith("diversity/") for name in run.measured):
        yield (
            "behaviour", "Behaviour", "Do the members solve the task in different ways, and was that asked of them?",
            _behaviour,
        )  # fmt: skip
    intro = "The settings of learning, the same for all members."
    if run.space:
        intro = "The settings of learning. Each member has values of its own, which it keeps."
    yield "hyperparameters", "Hyperparameters", intro, _hyperparameters
    yield SPEED
    yield MEMBERS


def _of_drawn(run: Run) -> Iterator[Section]:
    """Of members that are drawn around a mean."""
    yield (
        "fitness", "Returns", "Did the mean learn, and how do the members that are drawn around it compare?",
        lambda run_data: search.returns(run_data) + search.rank(run_data),
    )  # fmt: skip
    yield "steps", "Steps", "What moved the mean, and how far.", _steps
    yield (
        "hyperparameters", "Hyperparameters", "The settings of learning, the same for all members of a generation.",
        _hyperparameters,
    )  # fmt: skip
    yield SPEED


def _steps(run_data: RunData) -> str:
    missing = figure("No steps", "This run recorded nothing of them.", "So there is nothing to draw.")
    return _pair(search.steps(run_data) or missing)


def _behaviour(run_data: RunData) -> str:
    told = _pair(diversity.determinant(run_data), diversity.choices(run_data)) + diversity.distances(run_data)
    missing = figure("No diversity", "This run recorded nothing of it.", "So there is nothing to draw.")
    return told if "<figure>" in told else missing


def _hyperparameters(run_data: RunData) -> str:
    """Those that were tuned or changed, in pictures; the others in a sentence."""
    run = run_data.run
    known = {name: values[np.isfinite(values)] for name, values in run.lineage.hyper.items() if name not in run.space}
    moved = search.hyperparameters(run_data) if run.drawn else ""
    constant = {name: values for name, values in known.items() if len(values) and (run.copies or np.ptp(values) == 0)}
    told = "; ".join(f"{name} {text(float(values[-1]))}" for name, values in constant.items())
    note = f'<p class="reading">Not tuned: {escape(told)}.</p>' if told else ""
    if moved:
        return _pair(moved) + note
    if not run.space:
        chosen = ", ".join(name for name, values in known.items() if len(values) and np.ptp(values) > 0)
        finding = f"All hyperparameters were fixed{f', but for {chosen}' if chosen else ' in this run'}."
        return figure("Nothing was tuned", finding, "So there is nothing to draw.") + note
    kinds = [("champion", "the champion’s lineage"), ("ring lead", "its weights went over to another member")]
    if not run.copies:
        kinds = [("champion", "the champion")]
    kinds += [("m", "each member"), ("bound", "end of the range")]
    if run.copies and not run_data.crowded:
        kinds.append(("ring", "copied from another member"))
    if run.copies:
        kinds.append(("dot lead" if run_data.crowded else "dot", "perturbed: changed a little"))
    drawing = "".join(figures.hyperparameter(run_data, name) for name in run.space)
    return charts.legend(kinds) + _pair(drawing) + note


def _pair(*drawn: str) -> str:
    """Figures side by side where there is room."""
    return f'<div class="pair">{"".join(drawn)}</div>'
