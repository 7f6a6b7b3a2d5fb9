"""Figures over time: lines, staircases and rings in the layout of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis, Stroke
from shoal.report.layout import FEW, Layout
from shoal.report.rendering import Figure, Markup, parts, prose

Line = tuple[str, np.ndarray]  # its looks, and its values [G]


def handovers(layout: Layout, y: np.ndarray) -> list[Stroke]:
    """Rings where the champion's weights went over, at heights `y` [G], smaller where there are many."""
    kind = "lead" if len(layout.run.moves) <= FEW else "lead small"
    return charts.rings(layout.ends[layout.run.moves], y[layout.run.moves], kind)


def member_lines(layout: Layout, values: np.ndarray, axis: Axis, stairs: bool = False) -> list[Stroke]:
    """One thin line per member."""
    x, edges = layout.ends[layout.rows], layout.edges(layout.rows)
    risers = len(layout.shown) <= FEW  # those of many staircases would hide everything
    lines = axis.place(values[np.ix_(layout.rows, layout.shown)]).T
    drawn = (charts.stairs(edges, y, risers) if stairs else charts.line(x, y) for y in lines)
    return [Stroke(data, "m", member) for member, data in enumerate(drawn)]


def curve(layout: Layout, values: np.ndarray, axis: Axis, kind: str) -> Stroke:
    """A line through values [G]."""
    return Stroke(charts.line(layout.ends, axis.place(values)), kind)


def trend(layout: Layout, values: np.ndarray, axis: Axis, kind: str, thin: str = "") -> list[Stroke]:
    """A line; in a long run one of running means, over a thin one of the values themselves if need be."""
    single = [curve(layout, values, axis, thin)] if thin and layout.window > 1 else []
    return [*single, curve(layout, smoothed(values, layout.window), axis, kind)]


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Means of the finite ones among `window` neighbours, an odd number of them; NaN where `values` is."""
    some = np.isfinite(values)
    around = np.ones(window)
    sums, counts = (np.convolve(v, around, "same") for v in (np.where(some, values, 0.0), some.astype(float)))
    return np.where(some, sums / np.maximum(counts, 1), np.nan)


def staircase(layout: Layout, values: np.ndarray, axis: Axis, kind: str) -> Stroke:
    """Values [G] that hold for a generation each."""
    return Stroke(charts.stairs(layout.borders, axis.place(values)), kind)


def lines_figure(
    layout: Layout,
    heading: str,
    finding: str,
    reading: str,
    lines: dict[str, Line],
    axis: Axis | None = None,
    stairs: bool = False,
    **more: Any,
) -> list[Figure]:
    """A figure of nothing but lines, by their names; none where no line has a value. axis: by default from 0."""
    values = {name: of for name, (_, of) in lines.items()}
    if not np.isfinite([*values.values()]).any():
        return []
    axis = axis or Axis.over(np.r_[0, *values.values()], pad=0.04)
    layers: list[Stroke] = []
    for looks, of in lines.values():
        layers += [staircase(layout, of, axis, looks)] if stairs else trend(layout, of, axis, looks, "m")
    keys = [(looks, name) for name, (looks, _) in lines.items()] if len(lines) > 1 else []
    reading += "" if stairs else smoothing(layout)
    return [figure(layout, heading, finding, reading, values, (axis, layers), keys=keys, stairs=stairs, **more)]


def smoothing(layout: Layout) -> str:
    """A sentence on running means, where lines are."""
    return f" {prose('smoothed', window=layout.window)}" if layout.window > 1 else ""


def figure(
    layout: Layout,
    heading: str,
    finding: str,
    reading: str,
    lines: dict[str, np.ndarray] | None,
    *views: tuple[Axis, Iterable[Stroke]],
    keys: Sequence[tuple[str, str]] = (),
    height: int = 240,
    by_generation: bool = False,
    below: Markup | None = None,
    **live: Any,
) -> Figure:
    """A drawing over time with its sentences and its legend, and what lies `below`: as a rule the numbers of its lines.

    lines: whose values are under the cursor; None: no values are
    views: what is drawn on which axis; of two the second one is shown to those who ask for it
    live: more values for the page's script
    """
    x, by = (layout.count, {"by": "generation"}) if by_generation else (layout.time, {})
    chart = None
    if lines is not None:
        chart = {"names": list(lines), "lines": [values[layout.rows] for values in lines.values()]} | by | live
    summary = f"{finding} {reading}"
    plots = [
        charts.plot(layers, x, axis, heading, summary, chart, height, at > 0, layout.style)
        for at, (axis, layers) in enumerate(views)
    ]
    above = parts.legend(keys) if keys else parts.toggle() if len(views) > 1 else ""
    return Figure(heading, finding, reading, above, *plots, below or numbers(layout, lines or {}, heading))


def nothing(heading: str, finding: str) -> Figure:
    """A heading and a sentence in the place of a figure."""
    return Figure(heading, finding, "There is nothing to draw.")


def numbers(
    layout: Layout, columns: dict[str, np.ndarray], caption: str, shown: Callable[[float], float | str] = float
) -> Markup:
    """The table behind a figure, for those who read rather than look; `shown` makes its cells of values."""
    rows = charts.spaced(len(layout.table.generations), charts.NUMBERS)
    cells = [[int(layout.table.counted[row]), *(shown(v[row]) for v in columns.values())] for row in rows]
    return parts.folded(parts.table(["generation", *columns], cells, caption))
