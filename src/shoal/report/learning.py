"""Figures of what agents and external trainers recorded of their updates, and of their training episodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.core.escape import escape
from shoal.records.words import went
from shoal.report.figures import fitness_axis
from shoal.report.layout import Layout, quantile
from shoal.report.over_time import curve, figure, member_lines
from shoal.report.rendering import METRICS, Block, Figure, parts
from shoal.report.run import Run

SHOWN = 3  # figures that stand there at once, a row of them
# So begin metrics that other sections or the terminal show.
ELSEWHERE = ("levels/", "diversity/", "fitness/noise", "steps/broken")


def recorded(run: Run) -> list[str]:
    """Metrics of which a figure is drawn: those that are known first, then others by the names that they were given."""
    names = [name for name in run.metric_names if not name.startswith(ELSEWHERE)]
    others = [name for name in names if name not in METRICS and name not in run.method.metric_descriptions]
    return [*(name for name in METRICS if name in names), *others]


def learning(layout: Layout) -> list[Block]:
    """A figure of each metric: the members, and the champion's lineage."""
    whose = "the champion’s lineage" if layout.run.method.copies else "the champion"
    keys = parts.legend([("champion", whose), ("m", "each member")])
    values = {name: layout.run.metric(name) for name in recorded(layout.run)}
    drawn = [_metric(layout, name, x, whose) for name, x in values.items() if np.isfinite(x).any()]
    first, others = drawn[:SHOWN], drawn[SHOWN:]
    also = f"Also: {', '.join(figure.heading for figure in others)}"
    return [keys, first, *([parts.folded(parts.pair(others), also)] if others else [])]


def _metric(layout: Layout, name: str, values: np.ndarray, whose: str) -> Figure:
    along, median = layout.run.along(values), quantile(values, 0.5)
    heading, words = METRICS.get(name, (escape(name), ""))
    axis, outside = fitness_axis(values, np.r_[median, along])
    of, course = (whose, along) if np.isfinite(along).any() else ("the median of the population", median)
    layers = [*member_lines(layout, values, axis), curve(layout, along, axis, "champion")]
    lines = {whose: along, "median of the population": median}
    view = replace(axis, label=""), layers
    return figure(layout, heading, f"For {of} it {went(course)}.", f"{words}{outside}", lines, view, height=150)
