"""`shoal report`: one HTML page, whole in itself, that tells how a population learned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np

from shoal.atomic import write_file
from shoal.record import charts, diverse, drawn, families, figures, tables
from shoal.record.charts import text
from shoal.record.header import header, title
from shoal.record.lineage import Run, read_run
from shoal.record.story import Story, figure
from shoal.record.workspace import is_workspace, read_workspace

Section = tuple[str, str, str, Callable[[Story], str]]  # id, heading, what it is about, what draws it

WAITING = '<p class="empty">No generation has been recorded yet: there is nothing to draw.</p>'

FITNESS: Section = (
    "fitness", "Fitness", "Did the population learn, and how far apart are its members?", figures.fitness,
)  # fmt: skip
SPEED: Section = (
    "throughput", "Speed", "How fast the run was, and where its time went.",
    lambda story: _pair(figures.throughput(story)),
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
    story = Story(run) if len(run.lineage.generations) else None
    sections = list(_sections(run, story))
    parts = {
        "title": escape(title(run)),
        "header": header(run),
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
    parts = _of_drawn if run.drawn else _of_copying if run.copies else _of_members
    for name, heading, intro, draw in parts(run):
        yield name, heading, intro, draw(story) if story else WAITING
    yield (
        "experiment", "Experiment", "All settings of this run, as they were resolved: enough to repeat it.",
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
        lambda story: families.tree(story) + families.shares(story),
    )  # fmt: skip
    yield (
        "bounds", "Bounds",
        "A value that keeps pressing against the end of its range may want to lie beyond it. Counted over the last "
        "quarter of the generations.",
        lambda story: tables.bounds(story.run),
    )  # fmt: skip
    yield (
        "diversity", "Diversity", "A population that has become all alike has nothing left to choose from.",
        lambda story: _pair(families.founders(story), families.spread(story)),
    )  # fmt: skip
    yield SPEED
    yield MEMBERS


def _of_members(run: Run) -> Iterator[Section]:
    """Of members that keep their own weights."""
    yield FITNESS
    if run.method == "dvd":
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
        lambda story: drawn.returns(story) + drawn.rank(story),
    )  # fmt: skip
    yield "steps", "Steps", "What moved the mean, and how far.", lambda story: _pair(drawn.steps(story))
    yield (
        "hyperparameters", "Hyperparameters", "The settings of learning, the same for all members of a generation.",
        _hyperparameters,
    )  # fmt: skip
    yield SPEED


def _behaviour(story: Story) -> str:
    told = _pair(diverse.determinant(story), diverse.choices(story)) + diverse.distances(story)
    missing = figure("No diversity", "This run recorded nothing of it.", "So there is nothing to draw.")
    return told if "<figure>" in told else missing


def _hyperparameters(story: Story) -> str:
    """Those that were tuned or changed, in pictures; the others in a sentence."""
    run = story.run
    known = {name: values[np.isfinite(values)] for name, values in run.lineage.hyper.items() if name not in run.space}
    moved = drawn.hyperparameters(story) if run.drawn else ""
    constant = {name: values for name, values in known.items() if len(values) and (run.copies or np.ptp(values) == 0)}
    told = "; ".join(f"{name} {text(float(values[-1]))}" for name, values in constant.items())
    note = f'<p class="reading">Not tuned: {escape(told)}.</p>' if told else ""
    if moved:
        return _pair(moved) + note
    if not run.space:
        finding = "All hyperparameters were fixed in this run."
        if run.method == "dvd":
            finding = "All hyperparameters were fixed, but for what diversity counts."
        return figure("Nothing was tuned", finding, "So there is nothing to draw.") + note
    kinds = [("champion", "the champion’s lineage"), ("ring lead", "its weights went over to another member")]
    if not run.copies:
        kinds = [("champion", "the champion")]
    kinds += [("m", "each member"), ("bound", "end of the range")]
    if run.copies and not story.crowded:
        kinds.append(("ring", "copied from another member"))
    if run.copies:
        kinds.append(("dot lead" if story.crowded else "dot", "perturbed: changed a little"))
    drawing = "".join(figures.hyperparameter(story, name) for name in run.space)
    return charts.legend(kinds) + _pair(drawing) + note


def _pair(*drawn: str) -> str:
    """Figures side by side where there is room."""
    return f'<div class="pair">{"".join(drawn)}</div>'
