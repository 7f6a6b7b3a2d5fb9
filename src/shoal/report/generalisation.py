"""The figures of runs with levels: what was learned on some of them, and what it is worth on others."""

from __future__ import annotations

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis, line, path, text
from shoal.report.data import RunData, figure, numbers, quantile
from shoal.report.lineage import number
from shoal.report.run import Run

PURPOSES = {"train": "levels to train on", "validation": "validation levels", "test": "test levels"}


def generalisation(run_data: RunData) -> str:
    """Returns on levels that were trained on, on others, and the gap between them; of population and champion."""
    train, validation, gap = (run_data.measured(f"levels/{name}") for name in ("train", "validation", "gap"))
    return _returns(run_data, train, validation) + _gap(run_data, gap)


def _returns(run_data: RunData, train: np.ndarray, validation: np.ndarray) -> str:
    lines = {f"{who}: {name}": values for name, both in (("train", train), ("validation", validation))
             for who, values in _told(run_data, both).items()}  # fmt: skip
    if not any(np.isfinite(values).any() for values in lines.values()):
        return figure("No levels yet", "Nothing was measured on levels.", "So there is nothing to draw.")
    axis = Axis.over(np.concatenate(list(lines.values())), "return", 0.04)
    kinds = {name: f"{'c0' if name.endswith('train') else 'c1'} {_stroke(name)}" for name in lines}
    layers = [path(line(run_data.ends, axis.place(values)), kinds[name]) for name, values in lines.items()]
    title = "Returns on known and on new levels"
    told = on_levels(run_data.run)
    finding = f"The champion returned {', '.join(told)}." if told else "The champion has not been tested yet."
    reading = (
        "Both are measured after each generation, in as many episodes. Nobody trains on validation levels, and new "
        "ones are drawn each time; so what is learned by heart shows in the upper lines alone."
    )
    drawing = charts.plot(
        layers, run_data.time, axis, title, f"{finding} {reading}", run_data.live(lines), 320, style=run_data.style
    )
    legend = charts.legend([(kind, name) for name, kind in kinds.items()])
    return figure(title, finding, reading, legend, drawing, numbers(run_data, lines, title))


def _gap(run_data: RunData, gap: np.ndarray) -> str:
    lines = _told(run_data, gap)
    who, values = next(iter(lines.items()))
    known = values[np.isfinite(values)]
    if not len(known):
        return ""
    axis = Axis.over(np.concatenate([[0.0], *lines.values()]), "train − validation", 0.04)
    layers = [path(line(run_data.ends, axis.place(values)), f"c4 {_stroke(name)}") for name, values in lines.items()]
    finding = f"It went from {text(float(known[0]))} to {text(float(known[-1]))} ({who})."
    reading = "What members return on the levels that they train on, less what they return on others: 0 is no gap."
    drawing = charts.plot(layers, run_data.time, axis, "Gap", f"{finding} {reading}", run_data.live(lines), 220)
    legend = charts.legend([(f"c4 {_stroke(name)}", name) for name in lines])
    return figure("The gap", finding, reading, legend, drawing, numbers(run_data, lines, "Gap"))


def _told(run_data: RunData, values: np.ndarray) -> dict[str, np.ndarray]:
    """[G] each: the middle of the population, and along the champion's lineage; or the mean that members surround."""
    if run_data.run.drawn:
        return {"the mean": values[:, 0]}
    return {"middle of the population": quantile(values, 0.5), "the champion’s lineage": run_data.along(values)}


def _stroke(name: str) -> str:
    return "d1" if name.startswith("middle") else "champion-line"


def on_levels(run: Run) -> list[str]:
    """What the champion returned in its last test, on levels of each purpose; empty where there are none."""
    champion = run.result.get("champion")
    levels = champion.get("levels") if isinstance(champion, dict) else None
    told = []
    for name, words in PURPOSES.items():
        tested = levels.get(name) if isinstance(levels, dict) else None
        tested = tested if isinstance(tested, dict) else {}
        mean = number(tested.get("mean"))
        if mean == mean:
            error = number(tested.get("standard_error"))
            told.append(f"{text(mean)}{f' ± {text(error)}' if error == error else ''} on {words}")
    return told
