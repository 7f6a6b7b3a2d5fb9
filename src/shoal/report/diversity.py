"""Figures of DvD: how differently the members behave, and how much that counted."""

from __future__ import annotations

import numpy as np

from shoal.records.words import many, text, went
from shoal.report.charts import Axis
from shoal.report.layout import Layout, quantile
from shoal.report.over_time import curve, figure, lines_figure, nothing
from shoal.report.rendering import Block, Figure, prose

TINY = 1e-37  # below that float32, in which determinants are recorded, knows no number


def behaviour(layout: Layout) -> list[Block]:
    """The figures of what was recorded of diversity."""
    drawn = _determinant(layout) + _weight(layout)
    return [drawn or [nothing("No diversity", "This run recorded none.")]]


def _determinant(layout: Layout) -> list[Figure]:
    """The volume that the members' behaviours span, over time."""
    values, logarithm = (layout.run.common(f"diversity/{name}") for name in ("determinant", "log_determinant"))
    values = np.where(values < TINY, np.exp(logarithm), values)
    if not np.isfinite(values).any():
        return []
    largest = f"; the largest was {text(np.nanmax(values))}" if np.isfinite(values).sum() > 1 else ""
    axes = [Axis.over(np.r_[values, least, 1], pad=0.04, scale=scale) for scale, least in (("log", 1), ("linear", 0))]
    views = [(axis, [curve(layout, values, axis, "median")]) for axis in axes]
    title, finding = "Diversity of the population", f"It {went(values)}{largest}."
    return [figure(layout, title, finding, prose("determinant"), {"determinant": values}, *views)]


def _weight(layout: Layout) -> list[Figure]:
    """The weight of diversity over time, which a bandit chooses."""
    values = quantile(layout.table.hyper.get("diversity", np.full(layout.table.present.shape, np.nan)), 0.5)
    arms, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    counted = [f"{text(arm)} in {count:,}" for arm, count in zip(arms, counts, strict=True)]
    finding = f"{', '.join(counted)} of {many(int(counts.sum()), 'generation')}."
    axis, lines = Axis.over(np.r_[values, 0, 1], pad=0.08), {"diversity": ("median", values)}
    return lines_figure(layout, "Weight of diversity", finding, prose("diversity_weight"), lines, axis, stairs=True)
