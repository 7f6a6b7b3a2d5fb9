"""What the figures of a study share: rows with intervals over seeds, and curves with bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis
from shoal.study import statistics
from shoal.study.results import Results

COLOURS = 8
POINTS = 200  # of a curve
RESAMPLES = 300  # for the band of a curve


class Row(NamedTuple):
    """Values of several runs, and their interquartile mean with the ends of its interval."""

    label: str
    looks: str  # of its arm, see `looks_of`
    each: np.ndarray
    middle: float
    low: float
    high: float


def looks_of(results: Results, arm: str) -> str:
    """The class of an arm's strokes: a colour, by its place in the file, and dots where colours come again."""
    again, colour = divmod(list(results.study.arms).index(arm), COLOURS)
    return f"c{colour}{' d2' if again else ''}"


def row(label: str, looks: str, scores: np.ndarray) -> Row:
    """Of scores [S, K], of S seeds on K tasks. One seed is its own interval."""
    middle = float(statistics.interquartile_mean(scores))
    ends = statistics.interval(scores) if len(scores) > 1 else (middle, middle)
    return Row(label, looks, scores.mean(1), middle, *ends)


def rows_drawn(rows: Sequence[Row], label: str, title: str) -> str:
    """A ring for each row, its interval, and a dot for each run; `label` is that of the axis."""
    x = Axis.over(np.concatenate([np.array([r.middle, r.low, r.high, *r.each]) for r in rows]), label, 0.05)
    y, layers = Axis(0, len(rows)), []
    for place, r in enumerate(rows):
        at = np.array([len(rows) - place - 0.5])
        between = x.place(np.array([r.low, r.high]))
        layers.append(charts.path(charts.line(between, y.place(np.repeat(at, 2))), f"kin {r.looks}"))
        layers.append(charts.path(charts.dots(x.place(r.each), y.place(np.repeat(at, len(r.each)))), "dot"))
        layers.append(charts.rings(x.place(np.array([r.middle])), y.place(at), r.looks))
    ticks = [(1 - (place + 0.5) / len(rows), r.label) for place, r in enumerate(rows)]
    width = min(240, max(140, 8 * max(len(r.label) for r in rows)))  # pixels for the labels
    return charts.plot(
        layers, x, y, title, "A ring for each row, with its interval.", height=60 + 46 * len(rows),
        y_ticks=ticks, style=f"margin-left:{width + 10}px;--label:{width}px;",
    )  # fmt: skip


def middles(curves: np.ndarray) -> np.ndarray:
    """The interquartile mean of curves [S, X] at each point; NaN where a seed has nothing yet. Seeds that never have
    anything, as all members diverged, are left out."""
    curves = _measured(curves)
    known = np.isfinite(curves).all(0) & (len(curves) > 0)
    found = np.full(curves.shape[1], np.nan)
    found[known] = [statistics.interquartile_mean(curves[:, [at]]) for at in np.flatnonzero(known)]
    return found


def _measured(curves: np.ndarray) -> np.ndarray:
    """Those of the seeds that ever have anything."""
    return curves[np.isfinite(curves).any(1)]


def band(curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `middles` of curves [S, X], and the ends of their intervals."""
    curves = _measured(curves)
    middle = middles(curves)
    low, high = middle.copy(), middle.copy()
    for at in np.flatnonzero(np.isfinite(middle)) if len(curves) > 1 else ():
        low[at], high[at] = statistics.interval(curves[:, [at]], resamples=RESAMPLES)
    return middle, low, high
