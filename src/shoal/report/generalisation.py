"""Figures of runs with levels: scores on training and validation levels, and the generalisation gap."""

from __future__ import annotations

import numpy as np

from shoal.records.words import text, went
from shoal.report.charts import Axis
from shoal.report.layout import Layout, quantile
from shoal.report.lineage import inner, number
from shoal.report.over_time import Line, lines_figure, nothing
from shoal.report.rendering import Block, prose
from shoal.report.run import Run

PURPOSES = {"train": "training levels", "validation": "validation levels", "test": "test levels"}


def generalisation(layout: Layout) -> list[Block]:
    """Scores on training and validation levels, and the gap between them; of population and champion."""
    lines = _lines(layout, "train", "", ": train") | _lines(layout, "validation", "d1", ": validation")
    on = on_levels(layout.run)
    finding = f"The champion scored {', '.join(on)}." if on else "The champion has not been evaluated yet."
    title = "Scores on training and validation levels"
    axis = Axis.over([values for _, values in lines.values()], layout.run.score, 0.04)
    drawn = lines_figure(layout, title, finding, prose("levels"), lines, axis, height=320)
    lines = _lines(layout, "gap", "")
    who, (_, values) = next(iter(lines.items()))
    axis = Axis.over(np.r_[0, *(values for _, values in lines.values())], "train − validation", 0.04)
    gap = lines_figure(
        layout, "Generalisation gap", f"It {went(values)} ({who}).", prose("gap"), lines, axis, height=220
    )
    return [*(drawn or [nothing("No levels yet", "Nothing was evaluated on levels.")]), *gap]


def _lines(layout: Layout, name: str, dashes: str, of: str = "") -> dict[str, Line]:
    """The median of the population, and along the champion's lineage; or the mean that members surround."""
    values = layout.run.metric(f"levels/{name}")
    if layout.run.method.sampled:
        return {f"the mean{of}": (f"champion {dashes}", values[:, 0])}
    return {
        f"median of the population{of}": (f"median {dashes}", quantile(values, 0.5)),
        f"the champion’s lineage{of}": (f"champion {dashes}", layout.run.along(values)),
    }


def on_levels(run: Run) -> list[str]:
    """Scores of the champion in its final evaluation, on levels of each purpose; empty where there are none."""
    scores = []
    for name, words in PURPOSES.items():
        found = inner(run.result, "champion", "levels", name)
        mean, error = (number(found.get(of)) for of in ("mean", "standard_error"))
        if mean == mean:
            scores.append(f"{text(mean)}{f' ± {text(error)}' if error == error else ''} on {words}")
    return scores
