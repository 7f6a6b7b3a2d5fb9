"""The figures of what a method recorded of its decisions, by the words that the method has for them."""

from __future__ import annotations

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis, path, text
from shoal.report.data import RunData, figure, many, numbers
from shoal.report.run import Run

FEW = 6  # changes that a sentence tells one by one


def told(run: Run) -> dict[str, str]:
    """Of what was recorded, what the method has words for: by the name of the metric."""
    words = run.about.get("tells")
    known = words.items() if isinstance(words, dict) else ()
    return {name: said for name, said in known if name in run.measured and isinstance(said, str) and said}


def decisions(run_data: RunData) -> str:
    """How each of them went, over the generations."""
    drawn = [_course(run_data, name, said) for name, said in told(run_data.run).items()]
    return f'<div class="pair">{"".join(drawn)}</div>'


def _course(run_data: RunData, name: str, said: str) -> str:
    values = np.array([_common(run_data.measured_in(row, name)) for row in range(len(run_data.table.generations))])
    heading, reading = said[0].upper() + said[1:], f"Decided after each generation; recorded as {name}."
    if not np.isfinite(values).any():
        return figure(heading, "It has no value yet.", reading)
    axis, finding = Axis.over(np.r_[0, values], pad=0.06), _sentence(values, run_data.table.generations)
    stairs = charts.stairs(run_data.edges(np.arange(len(values))), axis.place(values))
    live = run_data.live({said: values}, stairs=True)
    drawing = charts.plot([path(stairs, "champion")], run_data.time, axis, heading, finding, live, 220)
    return figure(heading, finding, reading, drawing, numbers(run_data, {said: values}, heading))


def _common(values: np.ndarray) -> float:
    """What is equal for all members; NaN where none has it."""
    known = values[np.isfinite(values)]
    return float(known[0]) if len(known) else np.nan


def _sentence(values: np.ndarray, generations: np.ndarray) -> str:
    """The course of a number: each change where there are few."""
    known = np.flatnonzero(np.isfinite(values))
    values, generations = values[known], generations[known]
    changed = np.flatnonzero(np.diff(values)) + 1
    if not len(changed):
        return f"It was {text(float(values[0]))} throughout."
    if len(changed) <= FEW:
        steps = ", ".join(f"{text(float(values[at]))} after generation {generations[at]:,}" for at in changed)
        return f"It was {text(float(values[0]))} at first, then {steps}."
    low, middle, high = (text(float(x)) for x in np.quantile(values, (0, 0.5, 1)))
    return f"It changed {many(len(changed), 'time')}, between {low} and {high}; the median is {middle}."
