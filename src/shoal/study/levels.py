"""What the arms of a study return on the levels that they train on, and on others."""

from __future__ import annotations

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis, text
from shoal.report.data import figure
from shoal.report.generalisation import PURPOSES
from shoal.study.drawing import POINTS, looks_of, middles, row, rows_drawn
from shoal.study.results import KNOWN, NEW, Results, held


def levels(results: Results) -> str:
    """Champions on levels of every purpose, and the population on known and new ones; of each task that has levels."""
    return "".join(_champions(results, task) + _populations(results, task) for task in results.tasks)


def have_levels(results: Results) -> bool:
    """Whether a run that is done has been measured on levels."""
    return any(o.on_levels for o in results.outcomes.values())


def _champions(results: Results, task: str) -> str:
    rows, told = {}, []
    for arm in results.study.arms:
        found = [o.on_levels for o in results.of(task, arm) if o.on_levels]
        if not found:
            continue
        values = {name: np.array([[levels[name]] for levels in found]) for name in PURPOSES}
        values["gap"] = values["train"] - values["test"]
        looks = looks_of(results, arm)
        mine = {name: row(f"{arm}: {name}", looks, x[np.isfinite(x)].reshape(-1, 1)) for name, x in values.items()}
        rows[arm] = {name: mine[name] for name in PURPOSES}
        told.append([arm, *(f"{r.middle:.3g} ({r.low:.3g} to {r.high:.3g})" for r in mine.values()), len(found)])
    if not rows:
        return ""
    best = max(rows, key=lambda arm: rows[arm]["test"].middle)
    reading = (
        "Each champion plays fresh episodes on levels of every purpose. Nobody has trained on those of validation and test, "
        "and those of test have chosen nothing. A ring is the interquartile mean over seeds, the line its 95 % interval."
    )
    heads = ["arm", *PURPOSES, "train − test", "seeds"]
    title = f"Champions on known and new levels{f', {task}' if task else ''}"
    drawn = rows_drawn([r for mine in rows.values() for r in mine.values()], "return", title)
    finding = f"{best} has the highest middle on levels of the test: {text(rows[best]['test'].middle)}."
    return figure(title, finding, reading, drawn, charts.table(heads, told, title))


def _populations(results: Results, task: str) -> str:
    curves = {arm: [o.population for o in results.of(task, arm) if len(o.population)] for arm in results.study.arms}
    curves = {arm: found for arm, found in curves.items() if found}
    if not curves:
        return ""
    steps = np.linspace(0, max(curve[-1, 0] for found in curves.values() for curve in found), POINTS)
    lines = {
        (arm, name): middles(np.array([held(curve[:, [0, 1 + k]], steps) for curve in found]))
        for arm, found in curves.items()
        for k, name in enumerate((KNOWN, NEW))
    }
    x, y = Axis.over(steps, "training steps of all members", short=True), Axis.over([*lines.values()], "return", 0.04)
    kinds = {(arm, name): f"curve {looks_of(results, arm)}{' d1' if name == NEW else ''}" for arm, name in lines}
    layers = [charts.path(charts.line(x.place(steps), y.place(line)), kinds[key]) for key, line in lines.items()]
    gaps = {arm: (lines[arm, KNOWN] - lines[arm, NEW])[-1] for arm in curves}
    widest = max(gaps, key=lambda arm: gaps[arm])
    title = f"Populations on known and new levels{f', {task}' if task else ''}"
    finding = f"At the end the gap is widest for {widest}: {text(gaps[widest])}."
    reading = (
        "The middle of the population after each generation, and of that the interquartile mean over seeds. The gap between "
        "the two lines of an arm is what its members have learned by heart."
    )
    keys = charts.legend([(kind, f"{arm}: {name}") for (arm, name), kind in kinds.items()])
    return figure(title, finding, reading, keys, charts.plot(layers, x, y, title, finding))
