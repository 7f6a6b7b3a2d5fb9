"""Figures over time: lines, staircases and rings in the layout of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis, Stroke
from shoal.report.layout import FEW, Layout, spaced
from shoal.report.rendering import Markup, parts

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


def staircase(layout: Layout, values: np.ndarray, axis: Axis, kind: str) -> Stroke:
    """Values [G] that hold for a generation each."""
    return Stroke(charts.stairs(layout.borders, axis.place(values)), kind)


def lines_figure(
    layout: Layout,
    heading: str,
    finding: str,
    reading: str,
    lines: dict[str, Line],
    axis: Axis,
    stairs: bool = False,
    **more: Any,
) -> Markup:
    """A figure of nothing but lines, by their names; nothing where none has a value."""
    values, draw = {name: of for name, (_, of) in lines.items()}, staircase if stairs else curve
    if not np.isfinite([*values.values()]).any():
        return Markup()
    layers = [draw(layout, of, axis, looks) for looks, of in lines.values()]
    keys = [(looks, name) for name, (looks, _) in lines.items()] if len(lines) > 1 else []
    return figure(layout, heading, finding, reading, values, (axis, layers), keys=keys, stairs=stairs, **more)


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
) -> Markup:
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
    return parts.figure(heading, finding, reading, above, *plots, below or numbers(layout, lines or {}, heading))


def nothing(heading: str, finding: str) -> Markup:
    """A heading and a sentence in the place of a figure."""
    return parts.figure(heading, finding, "So there is nothing to draw.")


def numbers(layout: Layout, columns: dict[str, np.ndarray], caption: str) -> Markup:
    """The table behind a figure, for those who read rather than look: at most forty generations."""
    rows = spaced(len(layout.table.generations), 40)
    cells = [[int(layout.table.counted[row]), *(float(v[row]) for v in columns.values())] for row in rows]
    return parts.folded(parts.table(["generation", *columns], cells, caption))
