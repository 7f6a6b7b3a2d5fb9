"""What the figures of a report share: the axis of time, the members that are drawn, the champion's lineage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from shoal.core.evolution import Range
from shoal.report import charts
from shoal.report.charts import Axis, Stroke
from shoal.report.lineage import Lineage, inner, number
from shoal.report.rendering import Markup, parts
from shoal.report.run import Run
from shoal.report.words import duration, text

CELLS = 120_000  # values that the page carries for its tooltips: bounds its size
MEMBERS = 200  # members that are drawn one by one
FEW = 30  # members whose staircases can be told apart
PHASES = ("compile", "train", "evaluate", "evolve", "record")  # where the time of a generation goes
MARKS = 300  # more rings than that hide what they mark

Line = tuple[str, np.ndarray]  # its looks, and its values [G]


@dataclass(frozen=True)
class RunData:
    """A run with at least one generation. Rows are generations, columns are members, places are 0 to 1."""

    run: Run

    @property
    def table(self) -> Lineage:
        return self.run.lineage

    @cached_property
    def moves(self) -> np.ndarray:
        """Rows after which the champion's weights went over to another member."""
        rows, columns = self.run.trace
        return rows[:-1][columns[1:] != columns[:-1]]

    @property
    def crowded(self) -> bool:
        """Too many copies to mark each?"""
        return bool(self.table.copied.sum() > MARKS)

    @cached_property
    def entries(self) -> dict[int, dict[str, Any]]:
        """What the run measured in each generation, by its row."""
        row = {generation: at for at, generation in enumerate(self.table.generations.tolist())}
        return {row[g]: e for e in self.run.metrics if isinstance(g := e.get("generation"), int) and g in row}

    def timing(self, name: str) -> np.ndarray:
        """[G] A number of each generation."""
        rows = range(len(self.table.generations))
        return np.array([number(inner(self.entries.get(row), "timing").get(name)) for row in rows])

    def measured(self, name: str) -> np.ndarray:
        """[G, N] A metric of the members; NaN where it was not recorded."""
        return np.array([self.measured_in(row, name) for row in range(len(self.table.generations))])

    def measured_in(self, row: int, name: str) -> np.ndarray:
        """[N] A metric in one generation."""
        values = inner(self.entries.get(row), "members").get(name)
        columns, result = np.flatnonzero(self.table.present[row]), np.full(len(self.table.uids), np.nan)
        if isinstance(values, list) and len(values) == len(columns):
            result[columns] = [number(value) for value in values]
        return result

    def common(self, name: str) -> np.ndarray:
        """[G] A metric that is equal for all members, or that of the mean."""
        return np.fmax.reduce(self.measured(name), axis=1)

    def handovers(self, y: np.ndarray) -> list[Stroke]:
        """Rings where the champion's weights went over, at heights `y` [G], smaller where there are many."""
        kind = "lead" if len(self.moves) <= FEW else "lead small"
        return charts.rings(self.ends[self.moves], y[self.moves], kind)

    def along(self, values: np.ndarray) -> np.ndarray:
        """[G] Values along the champion's lineage, NaN outside it."""
        along = np.full(len(values), np.nan)
        along[self.run.trace[0]] = values[self.run.trace]
        return along

    @cached_property
    def families(self) -> dict[int, int]:
        """Founders (columns) and their descendants in the last generation: the champion's, then the largest first."""
        found, (rows, columns) = self.table.founders, self.run.trace
        champion = int(found[rows[-1], columns[-1]]) if len(rows) else -1
        founders = np.unique(found[found >= 0]).tolist()
        size = {column: int((found[-1] == column).sum()) for column in founders}
        life = {column: int((found == column).any(axis=1).sum()) for column in founders}
        order = sorted(founders, key=lambda column: (column != champion, -size[column], -life[column], column))
        return {column: size[column] for column in order}

    @property
    def whose(self) -> str:
        """Whose environment steps the lineage counts."""
        return "all members" if self.run.about.drawn else "each member"

    @cached_property
    def time(self) -> Axis:
        """The axis of all curves: a member's own environment steps; generations where those are not known."""
        steps = quantile(self.table.steps, 0.5)
        if np.isfinite(steps).all() and (np.diff(steps, prepend=0) > 0).all():
            return Axis(0, float(steps[-1]), f"environment steps of {self.whose}", short=True)
        first, last = self.table.counted[[0, -1]].tolist()
        return Axis(first - 1, last, "generation", whole=True)

    @cached_property
    def count(self) -> Axis:
        """The axis of what happens generation by generation."""
        first, last = self.table.counted[[0, -1]].tolist()
        return Axis(first, max(last, first + 1), "generation", whole=True)

    @cached_property
    def ends(self) -> np.ndarray:
        """[G] Places on the axis of time where each generation ends."""
        return self.time.place(quantile(self.table.steps, 0.5) if self.time.short else self.table.counted)

    @cached_property
    def borders(self) -> np.ndarray:
        """[G + 1] Places on the axis of time where generations begin and end."""
        return np.r_[0.0, self.ends]

    @cached_property
    def axes(self) -> dict[str, tuple[str, Sequence[tuple[float, str]]]]:
        """What the axis of time can be read as: by its name the label and the ticks. The drawing stays as it is."""
        first, last = self.table.counted[[0, -1]].tolist()
        marks = np.arange(first, last + 1)[:: -(-len(self.table.counted) // 7)]  # at most seven generations
        places = np.interp(marks, self.table.counted, self.ends).tolist()
        found = {"steps": (self.time.label, self.time.ticks(7))} if self.time.short else {}
        found["generations"] = "generation", [*zip(places, map(text, marks.tolist()), strict=True)]
        seconds = np.nansum([self.timing(name) for name in PHASES], axis=0).cumsum()
        if seconds[0] > 0:
            told = map(duration, np.interp(marks, self.table.counted, seconds).tolist())
            found["time"] = "time at work", [*zip(places, told, strict=True)]
        return found

    def edges(self, rows: np.ndarray) -> np.ndarray:
        """[R + 1] The same for the generations of `rows`."""
        return np.r_[self.borders[rows[0]], self.ends[rows]]

    @cached_property
    def shown(self) -> np.ndarray:
        """Columns that are drawn one by one: all, or the champion's lineage and an even sample of the others."""
        total = len(self.table.uids)
        some = np.r_[self.run.trace[1][-MEMBERS // 2 :], spaced(total, MEMBERS // 2)]
        return np.arange(total) if total <= MEMBERS else np.unique(some)

    @cached_property
    def rows(self) -> np.ndarray:
        """Generations at which members are drawn: all, or as many as the page has room for."""
        room = CELLS // (len(self.shown) * (len(self.run.space) + 1))
        return spaced(len(self.table.generations), min(max(room, 30), 400))

    @cached_property
    def style(self) -> str:
        """The more thin lines there are, the paler; and points on their own are drawn larger than lines."""
        alone = ";--grow:6px" if len(self.table.generations) == 1 else ""
        return f"--thin:{np.clip(7 / len(self.shown), 0.16, 0.6):.2f}{alone}"

    def members(self, values: np.ndarray, axis: Axis, stairs: bool = False) -> list[Stroke]:
        """One thin line per member."""
        x, edges = self.ends[self.rows], self.edges(self.rows)
        risers = len(self.shown) <= FEW  # those of many staircases would hide everything
        lines = axis.place(values[np.ix_(self.rows, self.shown)]).T
        drawn = (charts.stairs(edges, y, risers) if stairs else charts.line(x, y) for y in lines)
        return [Stroke(data, "m", member) for member, data in enumerate(drawn)]

    def curve(self, values: np.ndarray, axis: Axis, kind: str) -> Stroke:
        """A line through values [G]."""
        return Stroke(charts.line(self.ends, axis.place(values)), kind)

    def staircase(self, values: np.ndarray, axis: Axis, kind: str) -> Stroke:
        """Values [G] that hold for a generation each."""
        return Stroke(charts.stairs(self.borders, axis.place(values)), kind)

    def lines(
        self,
        heading: str,
        finding: str,
        reading: str,
        lines: dict[str, Line],
        axis: Axis,
        stairs: bool = False,
        **more: Any,
    ) -> Markup:
        """A figure of nothing but lines, by their names; nothing where none has a value."""
        values, draw = {name: of for name, (_, of) in lines.items()}, self.staircase if stairs else self.curve
        if not np.isfinite([*values.values()]).any():
            return Markup()
        layers = [draw(of, axis, looks) for looks, of in lines.values()]
        keys = [(looks, name) for name, (looks, _) in lines.items()] if len(lines) > 1 else []
        return self.figure(heading, finding, reading, values, (axis, layers), keys=keys, stairs=stairs, **more)

    def figure(
        self,
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
        live: what else the page's script is told
        """
        x, by = (self.count, {"by": "generation"}) if by_generation else (self.time, {})
        told = None
        if lines is not None:
            told = {"names": list(lines), "lines": [values[self.rows] for values in lines.values()]} | by | live
        summary = f"{finding} {reading}"
        plots = [
            charts.plot(layers, x, axis, heading, summary, told, height, at > 0, self.style)
            for at, (axis, layers) in enumerate(views)
        ]
        above = parts.legend(keys) if keys else parts.toggle() if len(views) > 1 else ""
        return parts.figure(heading, finding, reading, above, *plots, below or numbers(self, lines or {}, heading))

    @cached_property
    def data(self) -> dict[str, Any]:
        """What the page's script knows of all plots: the same generations and members for each of them."""
        table, at = self.table, np.ix_(self.rows, self.shown)
        tables = {"fitness": table.fitness} | {name: table.hyper[name] for name in self.run.space}
        whole = len(self.shown) == len(table.uids)
        origin = (table.descent(row, before)[0] for before, row in pairwise(self.rows.tolist()))
        return {
            "generations": table.counted[self.rows],
            "axes": self.axes,
            "steps": [int(s) if np.isfinite(s) else None for s in quantile(table.steps, 0.5)[self.rows]],
            "steps_of": f"steps of {self.whose}",
            "places": self.ends[self.rows].round(4),
            "uids": table.uids[self.shown],
            "members": {name: values[at].T for name, values in tables.items()},
            # who stood where, some generations back, with the weights that a member has now: for the family tree
            "origin": [np.full(len(table.uids), -1), *origin] if whole else None,
            "founders": table.founders[self.rows] if whole else None,
        }


def spaced(total: int, room: int) -> np.ndarray:
    """Rows, evenly spaced with both ends among them, as many as there is room for."""
    return np.unique(np.linspace(0, total - 1, min(total, max(1, room))).round().astype(int))


def quantile(values: np.ndarray, q: float) -> np.ndarray:
    """[G] The quantile of the finite values of each row; NaN for rows without any."""
    result, some = np.full(len(values), np.nan), np.isfinite(values).any(axis=1)
    if some.any():
        result[some] = np.nanquantile(values[some], q, axis=1)
    return result


def ends(bounds: Range) -> tuple[float, float]:
    """The ends of a range, counted in its scale; NaN where it has none."""
    if bounds.choices:
        return 0.0, len(bounds.choices) - 1.0
    low, high = charts.scaled(
        [np.nan if end is None else end for end in (bounds.low, bounds.high)], bounds.scale
    ).tolist()
    return low, high


def nothing(heading: str, finding: str) -> Markup:
    """In the place of a figure."""
    return parts.figure(heading, finding, "So there is nothing to draw.")


def numbers(run_data: RunData, columns: dict[str, np.ndarray], caption: str) -> Markup:
    """The table behind a figure, for those who read rather than look: at most forty generations."""
    rows = spaced(len(run_data.table.generations), 40)
    cells = [[int(run_data.table.counted[row]), *(float(v[row]) for v in columns.values())] for row in rows]
    return parts.folded(parts.table(["generation", *columns], cells, caption))
