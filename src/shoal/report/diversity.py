"""Figures of DvD: how differently the members behave, and how much that counted."""

from __future__ import annotations

import numpy as np

from shoal.report.charts import Axis
from shoal.report.layout import Layout, quantile
from shoal.report.over_time import curve, figure, lines_figure, nothing
from shoal.report.rendering import Markup, parts
from shoal.report.words import many, text, went

TINY = 1e-37  # below that float32, in which determinants are recorded, knows no number


def behaviour(layout: Layout) -> Markup:
    """The figures of what was recorded of diversity."""
    drawn = _determinant(layout) + _weight(layout)
    return parts.pair(drawn) if drawn else nothing("No diversity", "This run recorded nothing of it.")


def _determinant(layout: Layout) -> Markup:
    """The volume that the members' behaviours span, over time."""
    values, logarithm = (layout.run.common(f"diversity/{name}") for name in ("determinant", "log_determinant"))
    values = np.where(values < TINY, np.exp(logarithm), values)
    if not np.isfinite(values).any():
        return Markup()
    largest = f"; the largest was {text(np.nanmax(values))}" if np.isfinite(values).sum() > 1 else ""
    reading = (
        "The determinant of the kernel of what the members do in states from their common replay buffer: the more "
        "differently all of them behave the closer to 1; it falls towards 0 as soon as two of them behave alike. "
        "Logarithmic axis."
    )
    axes = [Axis.over(np.r_[values, least, 1], pad=0.04, scale=scale) for scale, least in (("log", 1), ("linear", 0))]
    views = [(axis, [curve(layout, values, axis, "median")]) for axis in axes]
    lines = {"determinant": values}
    return figure(layout, "Diversity of the population", f"It {went(values)}{largest}.", reading, lines, *views)


def _weight(layout: Layout) -> Markup:
    """The weight of diversity over time, which a bandit chooses."""
    values = quantile(layout.table.hyper.get("diversity", np.full(layout.table.present.shape, np.nan)), 0.5)
    arms, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    counted = [f"{text(arm)} in {count:,}" for arm, count in zip(arms, counts, strict=True)]
    finding = f"{', '.join(counted)} of {many(int(counts.sum()), 'generation')}."
    reading = (
        "The weight of behaving differently, against that of return, for all members alike. Where there are several, a "
        "bandit chooses one before each generation: one wins where the best fitness rises, and what has won more often is "
        "chosen more often."
    )
    axis = Axis.over(np.r_[values, 0, 1], pad=0.08)
    lines = {"diversity": ("champion", values)}
    return lines_figure(layout, "Weight of diversity", finding, reading, lines, axis, stairs=True)
