"""What the figures of a study share: rows with intervals over seeds, and curves with bands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis
from shoal.study import statistics

COLOURS = 8
RESAMPLES = 300  # for the band of a curve


class Row(NamedTuple):
    """Values of several runs, and their interquartile mean with the ends of its interval."""

    label: str
    colour: int  # that of the arm, by its place in the file
    each: np.ndarray
    middle: float
    low: float
    high: float


def row(label: str, colour: int, scores: np.ndarray) -> Row:
    """Of scores [S, K], of S seeds on K tasks. One seed is its own interval."""
    middle = float(statistics.interquartile_mean(scores))
    ends = statistics.interval(scores) if len(scores) > 1 else (middle, middle)
    return Row(label, colour % COLOURS, scores.mean(1), middle, *ends)


def rows_drawn(rows: Sequence[Row], label: str, title: str) -> str:
    """A ring for each row, its interval, and a dot for each run; `label` is that of the axis."""
    x = Axis.over(np.concatenate([np.array([r.middle, r.low, r.high, *r.each]) for r in rows]), label, 0.05)
    y, layers = Axis(0, len(rows)), []
    for place, r in enumerate(rows):
        at = np.array([len(rows) - place - 0.5])
        between = x.place(np.array([r.low, r.high]))
        layers.append(charts.path(charts.line(between, y.place(np.repeat(at, 2))), f"kin c{r.colour}"))
        layers.append(charts.path(charts.dots(x.place(r.each), y.place(np.repeat(at, len(r.each)))), "dot"))
        layers.append(charts.rings(x.place(np.array([r.middle])), y.place(at), f"c{r.colour}"))
    ticks = [(1 - (place + 0.5) / len(rows), r.label) for place, r in enumerate(rows)]
    width = min(240, max(140, 8 * max(len(r.label) for r in rows)))  # pixels for the labels
    return charts.plot(
        layers, x, y, title, "A ring for each row, with its interval.", height=60 + 46 * len(rows),
        y_ticks=ticks, style=f"margin-left:{width + 10}px;--label:{width}px;",
    )  # fmt: skip


def band(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of curves [S, X]: interquartile mean and ends of its interval at each point; NaN where a seed has nothing yet."""
    middle, low, high = np.full((3, curves.shape[1]), np.nan)
    interval = partial(statistics.interval, resamples=RESAMPLES)
    for at in np.flatnonzero(np.isfinite(curves).all(0)) if len(curves) else ():
        here = curves[:, at : at + 1]
        middle[at] = statistics.interquartile_mean(here)
        low[at], high[at] = interval(here) if len(here) > 1 else (middle[at], middle[at])
    return middle, low, high
