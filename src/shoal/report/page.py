"""`shoal report`: one HTML page, whole in itself, of how a population learned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.core.atomic import write_file
from shoal.report import diversity, effects, family_tree, figures, generalisation, learning, search, tables
from shoal.report.layout import Layout
from shoal.report.over_time import nothing
from shoal.report.overview import overview, title
from shoal.report.rendering import Markup, joined, parts, rendered
from shoal.report.run import Run, read_run
from shoal.report.words import text
from shoal.report.workspace import is_workspace, read_workspace

CLOSED = ("effects", "diversity", "throughput", "provenance", "experiment")  # sections that are opened on demand


class Section(NamedTuple):
    """A section of a page."""

    name: str
    heading: str
    intro: str
    content: Markup

    @property
    def closed(self) -> bool:
        return self.name in CLOSED

    @property
    def findings(self) -> Markup:
        """The findings of its figures, which a closed section shows too."""
        return Markup(" ".join(re.findall(r'<p class="finding">(.*?)</p>', self.content)))


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
    layout = Layout(run)
    data = layout.data if len(run.lineage.generations) else {}
    footer = (
        f"Run “{run.name}”. Point at a figure for its values; with the keyboard, focus a figure and use the arrow keys."
    )
    return document(title(run), overview(run), _sections(layout), footer, data)


def document(title: str, header: Markup, sections: Iterable[Section], footer: str, data: dict[str, Any]) -> str:
    """A whole page. footer: what it is of, and how to use it. data: for the page's script."""
    return rendered("page.html", title=title, header=header, sections=[*sections], footer=footer, data=data)


def _sections(layout: Layout) -> Iterator[Section]:
    """Yield the sections: members are drawn around a mean, copy one another, or keep their own weights."""
    run, method, measured = layout.run, layout.run.method, layout.run.metric_names
    copies, keep = method.copies and not method.sampled, not (method.copies or method.sampled)
    differ = any(name.startswith("diversity/") for name in measured)
    # fmt: off
    sections: list[tuple[object, str, str, str, Callable[[Layout], Markup]]] = [  # the first says whether it is shown
        (not method.sampled, "fitness", "Fitness", "Did the population learn, and how far apart are its members?",
         figures.fitness),
        (method.sampled, "fitness", "Returns", "Did the mean learn, and how do the members drawn around it compare?",
         search.returns),
        ("levels/train" in measured, "generalisation", "Generalisation",
         "Was it the task that was learned, or the levels to train on?", generalisation.generalisation),
        (figures.described(run), "decisions", "Decisions",
         "What the method did between generations beside copying, and what it went by.", figures.decisions),
        (copies, "lineage", "Champion’s lineage", "A member that copies another jumps to a different history. This is the "
         "one true history of the best weights.", figures.lineage),
        (not method.sampled and learning.recorded(run), "learning", "Learning", "What the agents recorded of their updates. "
         "Where these go wrong, fitness does not show why.", learning.learning),
        (keep and differ, "behaviour", "Behaviour",
         "Do the members solve the task in different ways, and was that asked of them?", diversity.behaviour),
        (method.sampled, "steps", "Steps", "What moved the mean, and how far.", search.steps),
        (method.sampled, "hyperparameters", "Hyperparameters",
         "The settings of learning, the same for all members of a generation.", _hyperparameters),
        (copies, "hyperparameters", "Hyperparameters", "The settings of learning that the run tuned while it learned: each "
         "member tries its own values, and one that copies another takes over its values, slightly changed.",
         _hyperparameters),
        (keep and run.space, "hyperparameters", "Hyperparameters",
         "The settings of learning. Each member has values of its own, which it keeps.", _hyperparameters),
        (keep and not run.space, "hyperparameters", "Hyperparameters",
         "The settings of learning, the same for all members.", _hyperparameters),
        (copies, "effects", "Effects", "Which values of the hyperparameters went with gains of fitness, and which press "
         "against the ends of their ranges? The latter counted over the last quarter of the generations.", _effects),
        (keep and run.space, "effects", "Effects", "Which values of the hyperparameters went with gains of fitness?",
         effects.effects),
        (copies, "tree", "Family tree", "Who learned from whom, from the first generation to the last.",
         family_tree.tree),
        (copies, "diversity", "Diversity", "A population that has become all alike has nothing left to choose from.",
         family_tree.diversity),
        (True, "throughput", "Speed", "How fast the run was, and where its time went.", figures.throughput),
        (not method.sampled, "members", "Members", "The last generation, the fittest first.", tables.members),
        (run.workers, "workers", "Workers", "Who did what of those that share the directory.",
         lambda _: tables.workers(run)),
    ]
    # fmt: on
    waiting = parts.empty("No generation has been recorded yet: there is nothing to draw.")
    for shown, name, heading, intro, draw in sections:
        if shown:
            yield Section(name, heading, intro, draw(layout) if len(run.lineage.generations) else waiting)
    if any(worker.provenance for worker in run.workers or (run,)):
        intro = "Versions, machine and command. With the same ones, and the settings below, a run repeats bit for bit."
        yield Section("provenance", "Provenance", intro, tables.provenance(run))
    intro = "All settings of this run, every default filled in."
    if run.workers:
        intro = f"The settings of worker {run.workers[0].name}; each has its own in its run directory."
    file = parts.pre(run.text, "experiment.yaml") if run.text else parts.empty("experiment.yaml is missing.")
    yield Section("experiment", "Experiment", intro, file)


def _effects(layout: Layout) -> Markup:
    """Effects of the values of hyperparameters, and the share of them at bounds."""
    return effects.effects(layout) + tables.bounds(layout.run)


def _hyperparameters(layout: Layout) -> Markup:
    """Figures of hyperparameters that were tuned or changed; the others in a sentence."""
    run, copies, crowded = layout.run, layout.run.method.copies, layout.crowded
    known = {name: values[np.isfinite(values)] for name, values in run.lineage.hyper.items() if name not in run.space}
    known = {name: values for name, values in known.items() if len(values)}
    fixed = "; ".join(f"{n} {text(float(values[-1]))}" for n, values in known.items() if copies or np.ptp(values) == 0)
    note = parts.reading(f"Not tuned: {fixed}.") if fixed else Markup()
    if run.method.sampled and (moved := search.hyperparameters(layout)):
        return parts.pair(moved) + note
    if not run.space:
        chosen = ", ".join(name for name, values in known.items() if np.ptp(values) > 0)
        finding = f"All hyperparameters were fixed{f', but for {chosen}' if chosen else ' in this run'}."
        return nothing("Nothing was tuned", finding) + note
    kinds = {
        "champion": "the champion’s lineage" if copies else "the champion",
        "ring lead": "its weights went over to another member" * copies,
        "m": "each member",
        "bound": "end of the range",
        "ring": "copied from another member" * (copies and not crowded),
        "dot lead" if crowded else "dot": "perturbed: changed a little" * copies,
    }
    drawn = [figures.hyperparameter(layout, name) for name in run.space]
    return joined(parts.legend([key for key in kinds.items() if key[1]]), parts.pair(*drawn), note)
