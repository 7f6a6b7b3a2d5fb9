"""`shoal report`: one HTML page, whole in itself, of how a population learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from shoal.core.atomic import write_file
from shoal.core.run_files import is_workspace
from shoal.report import best, diversity, family_tree, figures, generalisation, learning, search, tables
from shoal.report.layout import Layout
from shoal.report.lineage import inner
from shoal.report.overview import overview, title
from shoal.report.rendering import Block, Figure, parts, prose, rendered
from shoal.report.run import Run, read_run
from shoal.report.workspace import read_workspace

CLOSED = ("throughput", "provenance", "experiment")  # sections that are opened on demand
ALWAYS = ("provenance", "experiment")  # sections that need no generation


class Section(NamedTuple):
    """A section of a page."""

    name: str
    heading: str
    intro: str
    content: Sequence[Block]

    @property
    def closed(self) -> bool:
        return self.name in CLOSED

    @property
    def findings(self) -> str:
        """The findings of its figures, which a closed section shows too."""
        figures = [figure for block in self.content for figure in (block if isinstance(block, list) else [block])]
        return " ".join(figure.finding for figure in figures if isinstance(figure, Figure))


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
    footer = (
        f"Run “{run.name}”. Point at a figure for its values; with the keyboard, focus a figure and use the arrow keys."
    )
    return rendered(
        "page.html", title=title(run), header=overview(run), sections=[*_sections(layout)],
        footer=parts.elsewhere(footer, inner(run.experiment, "wandb"), _at_wandb(run)),
        data=layout.data if len(run.lineage.generations) else {},
    )  # fmt: skip


def _at_wandb(run: Run) -> str:
    """The address of a run at Weights & Biases, or the one that it will have once it is sent; empty if unknown."""
    settings, given = inner(run.experiment, "wandb"), run.wandb.get("url")
    if isinstance(given, str) and given.startswith("https://"):
        return given
    ids = inner(run.wandb, "ids")
    steps = [settings.get("entity"), settings.get("project"), "runs", ids.get("population")]
    return "/".join(["https://wandb.ai", *(quote(str(step), safe="") for step in steps)]) if all(steps) else ""


def _sections(layout: Layout) -> Iterator[Section]:
    """Yield the sections: members are sampled around a mean, copy one another, or keep their own weights."""
    run, sampled, names = layout.run, layout.run.method.sampled, layout.run.metric_names
    copies, keep = run.method.copies and not sampled, not (run.method.copies or sampled)
    differ = any(name.startswith("diversity/") for name in names)
    tried = copies or (keep and run.space)
    sections: list[tuple[object, str, str, Callable[[Layout], list[Block]]]] = [  # the first says whether it is shown
        (not sampled, "fitness", "Fitness", figures.fitness),
        (sampled, "fitness", "Fitness", search.returns),
        ("levels/train" in names, "generalisation", "Generalisation", generalisation.generalisation),
        (figures.described(run), "decisions", "Decisions", figures.decisions),
        (run.result.get("payoffs"), "payoffs", "Payoffs", tables.payoffs),
        (copies, "lineage", "Champion’s lineage", figures.lineage),
        (tried, "best", "Best hyperparameters", best.best),
        (not sampled and learning.recorded(run), "learning", "Learning", learning.learning),
        (keep and differ, "behaviour", "Behaviour", diversity.behaviour),
        (sampled, "steps", "Steps", search.steps),
        (True, "hyperparameters", "Hyperparameters", figures.hyperparameters),
        (copies, "tree", "Family tree", family_tree.tree),
        (True, "throughput", "Speed", figures.throughput),
        (not sampled, "members", "Members", tables.members),
        (run.workers, "workers", "Workers", tables.workers),
        (any(w.provenance for w in run.workers or (run,)), "provenance", "Provenance", tables.provenance),
        (True, "experiment", "Experiment", _experiment),
    ]
    waiting = [parts.empty("No generation has been recorded yet: there is nothing to draw.")]
    for shown, name, heading, draw in sections:
        if shown:
            content = draw(layout) if len(run.lineage.generations) or name in ALWAYS else waiting
            yield Section(name, heading, prose("intro", section=name, run=run), content)


def _experiment(layout: Layout) -> list[Block]:
    text = layout.run.text
    return [parts.pre(text, "experiment.yaml") if text else parts.empty("experiment.yaml is missing.")]
