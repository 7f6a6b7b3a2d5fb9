"""Layout of the figures of a page: the axis of time, and the generations and members that are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from shoal.core.space import Range
from shoal.records.words import duration, text
from shoal.report import charts
from shoal.report.charts import Axis, spaced
from shoal.report.lineage import Lineage
from shoal.report.run import Run

CELLS = 120_000  # values that the page carries for its tooltips: bounds its size
MEMBERS = 200  # members that are drawn one by one
FEW = 30  # members whose staircases can be distinguished
PHASES = ("compile", "train", "evaluate", "evolve", "record")  # where the time of a generation goes
MARKS = 300  # more rings than that hide what they mark
SMOOTH = 200  # generations, beyond which lines around a mean go through the means of neighbours


@dataclass(frozen=True)
class Layout:
    """The layout of a run with at least one generation. Rows are generations, columns are members, places are 0 to 1."""

    run: Run

    @property
    def table(self) -> Lineage:
        return self.run.lineage

    @property
    def crowded(self) -> bool:
        """True where there are too many copies to mark each."""
        return bool(self.table.copied.sum() > MARKS)

    @property
    def window(self) -> int:
        """The number of generations over which lines are smoothed; 1: they are not."""
        count = len(self.table.generations)
        return 2 * (count // 100) + 1 if self.run.method.sampled and count > SMOOTH else 1

    @property
    def whose(self) -> str:
        """The members whose environment steps the lineage counts."""
        return "all members" if self.run.method.sampled else "each member"

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
        """Units of the axis of time: by their name its label and its ticks. The drawing stays as it is."""
        first, last = self.table.counted[[0, -1]].tolist()
        marks = np.arange(first, last + 1)[:: -(-len(self.table.counted) // 7)]  # at most seven generations
        places = np.interp(marks, self.table.counted, self.ends).tolist()
        found = {"steps": (self.time.label, self.time.ticks(7))} if self.time.short else {}
        found["generations"] = "generation", [*zip(places, map(text, marks.tolist()), strict=True)]
        seconds = np.nansum([self.run.timing(name) for name in PHASES], axis=0).cumsum()
        if seconds[0] > 0:
            words = map(duration, np.interp(marks, self.table.counted, seconds).tolist())
            found["time"] = "wall-clock time", [*zip(places, words, strict=True)]
        return found

    def edges(self, rows: np.ndarray) -> np.ndarray:
        """[R + 1] Places on the axis of time where the generations of `rows` begin and end."""
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

    @cached_property
    def data(self) -> dict[str, Any]:
        """Data of the page's script for all plots: the same generations and members for each of them."""
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


def quantile(values: np.ndarray, q: float) -> np.ndarray:
    """[G] The quantile of the finite values of each row; NaN for rows without any."""
    ordered = np.sort(np.where(np.isfinite(values), values, np.nan), axis=1)  # NaN comes last
    counts, result = np.isfinite(ordered).sum(axis=1), np.full(len(values), np.nan)
    for count in np.unique(counts[counts > 0]):  # rows of equally many at once: np.nanquantile goes row by row
        rows = counts == count
        result[rows] = np.quantile(ordered[rows, :count], q, axis=1)
    return result


def ends(bounds: Range) -> tuple[float, float]:
    """The ends of a range, counted in its scale; NaN where it has none."""
    if bounds.choices:
        return 0.0, len(bounds.choices) - 1.0
    known = [np.nan if end is None else end for end in (bounds.low, bounds.high)]
    low, high = charts.scaled(known, bounds.scale).tolist()
    return low, high
