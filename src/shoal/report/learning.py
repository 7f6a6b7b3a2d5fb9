"""Figures of what agents recorded of their updates, and of their training episodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.records.words import went
from shoal.report.figures import fitness_axis
from shoal.report.layout import Layout, quantile
from shoal.report.over_time import curve, figure, member_lines
from shoal.report.rendering import METRICS, Block, Figure, parts
from shoal.report.run import Run

SHOWN = 3  # figures that stand there at once, a row of them


def recorded(run: Run) -> list[str]:
    """Metrics of which a figure is drawn."""
    return [name for name in METRICS if name in run.metric_names]


def learning(layout: Layout) -> list[Block]:
    """A figure of each metric: the members, and the champion's lineage."""
    whose = "the champion’s lineage" if layout.run.method.copies else "the champion"
    keys = parts.legend([("champion", whose), ("m", "each member")])
    values = {name: layout.run.metric(name) for name in recorded(layout.run)}
    drawn = [_metric(layout, name, x, whose) for name, x in values.items() if np.isfinite(x).any()]
    first, others = drawn[:SHOWN], drawn[SHOWN:]
    also = f"Also: {', '.join(figure.heading for figure in others).lower()}"
    return [keys, first, *([parts.folded(parts.pair(others), also)] if others else [])]


def _metric(layout: Layout, name: str, values: np.ndarray, whose: str) -> Figure:
    along, median = layout.run.along(values), quantile(values, 0.5)
    heading, words = METRICS[name]
    axis, outside = fitness_axis(values, np.r_[median, along])
    of, course = (whose, along) if np.isfinite(along).any() else ("the median of the population", median)
    layers = [*member_lines(layout, values, axis), curve(layout, along, axis, "champion")]
    lines = {whose: along, "median of the population": median}
    view = replace(axis, label=""), layers
    return figure(layout, heading, f"For {of} it {went(course)}.", f"{words}{outside}", lines, view, height=150)
