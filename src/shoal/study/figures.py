"""The figures of a study: rows with intervals over seeds, and lines with bands; of curves, profiles and levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.records.words import text
from shoal.report import charts
from shoal.report.charts import Axis, Stroke
from shoal.report.generalisation import PURPOSES
from shoal.report.over_time import nothing
from shoal.report.palette import series
from shoal.report.rendering import Block, Figure, Markup, parts, prose
from shoal.study import statistics
from shoal.study.results import KNOWN, NEW, Results, held

POINTS = 200  # of a curve
RESAMPLES = 300  # for the band of a curve
STEPS = "training steps of all members"


class IntervalRow(NamedTuple):
    """Values of several runs, and their interquartile mean with the ends of its interval."""

    label: str
    looks: str  # of its arm, see `looks_of`
    each: np.ndarray
    middle: float
    low: float
    high: float


def looks_of(results: Results, arm: str) -> str:
    """The class of an arm's strokes: a colour, by its place in the file, and dots where colours come again."""
    return series(list(results.study.arms).index(arm))


def rows_drawn(rows: Sequence[IntervalRow], label: str, title: str) -> Markup:
    """A ring for each row, its interval, and a dot for each run; `label` is that of the axis."""
    x = Axis.over(np.concatenate([np.array([r.middle, r.low, r.high, *r.each]) for r in rows]), label, 0.05)
    ticks = [(1 - (place + 0.5) / len(rows), r.label) for place, r in enumerate(rows)]
    y, layers = Axis(0, len(rows), named=ticks), []
    for place, r in enumerate(rows):
        at = np.array([len(rows) - place - 0.5])
        between = x.place(np.array([r.low, r.high]))
        layers.append(Stroke(charts.line(between, y.place(np.repeat(at, 2))), f"kin {r.looks}"))
        layers.append(Stroke(charts.dots(x.place(r.each), y.place(np.repeat(at, len(r.each)))), "dot"))
        layers += charts.rings(x.place(np.array([r.middle])), y.place(at), r.looks)
    width = min(240, max(140, 8 * max(len(r.label) for r in rows)))  # pixels for the labels
    return charts.plot(
        layers, x, y, title, "A ring for each row, with its interval.", height=60 + 46 * len(rows),
        style=f"--left:{width + 10}px;--label:{width}px;",
    )  # fmt: skip


def _band(curves: np.ndarray) -> np.ndarray:
    """[3, X] The interquartile mean of curves [S, X] at each point, and the ends of its interval; NaN where a seed has
    nothing yet. Seeds that never have anything, as all members diverged, are left out."""
    curves = curves[np.isfinite(curves).any(1)]
    known, found = np.isfinite(curves).all(0) & (len(curves) > 0), np.full((3, curves.shape[1]), np.nan)
    if known.any():
        found[:, known] = statistics.middle(curves.T[known, :, None], RESAMPLES)
    return found


def curves(results: Results, task: str) -> Block:
    """Learning curves of each arm on a task."""
    title = task or "Learning curves"
    outcomes = [o for key, o in results.outcomes.items() if key.task == task and len(o.curve)]
    if not outcomes:
        return nothing(title, "No run is done yet.")
    steps = np.linspace(0, max(o.curve[-1, 0] for o in outcomes), POINTS)
    bands = {arm: _band(results.curve(task, arm, steps)) for arm in results.study.arms}
    bands = {arm: found for arm, found in bands.items() if np.isfinite(found[0]).any()}
    if not bands:
        return nothing(title, "In no run did a member have a finite fitness.")
    x, y = Axis.over(steps, STEPS, short=True), Axis.over([*bands.values()], "best fitness so far", 0.04)
    lines = [(arm, looks_of(results, arm), steps, found) for arm, found in bands.items()]
    drawn = charts.lines_plot(x, y, lines, f"Learning curves {task}", "A line for each arm, with its interval.")
    finals = {arm: found[0][np.isfinite(found[0])][-1] for arm, found in bands.items()}
    most = text(max(finals.values()))
    best = [arm for arm, final in finals.items() if text(final) == most]
    ahead = f"{best[0]} is ahead" if len(best) == 1 else f"{', '.join(best)} are on par"
    reading = prose("study_curves", exact=all(o.exact for o in outcomes))
    return Figure(title, f"At the end {ahead}: {most}.", reading, drawn)


def profile(results: Results, scores: dict[str, np.ndarray]) -> Block:
    """Performance profiles: the share of runs of each arm that score above each value."""
    every = np.concatenate([np.empty(0), *(x.ravel() for x in scores.values())])
    if not np.isfinite(every).any():
        return parts.empty("No two runs of an arm have a champion.")
    x, y = Axis.over(every, "score", 0.02), Axis(0, 1, "share of runs above it")
    thresholds, title = np.linspace(x.low, x.high, POINTS), "Performance profiles"
    shares = {arm: statistics.profile(found, thresholds) for arm, found in scores.items()}
    lines = [(arm, looks_of(results, arm), thresholds, share) for arm, share in shares.items()]
    drawn = charts.lines_plot(x, y, lines, title, "For each arm, the share of runs above each score.")
    return Figure(title, "The share of runs that score above each value.", prose("study_profile"), drawn)


def levels(results: Results) -> list[Block]:
    """Champions on levels of every purpose, and the population on known and new ones; of each task that has levels."""
    tasks = results.study.all_tasks
    return [figure for task in tasks for figure in (*_champions(results, task), *_populations(results, task))]


def _champions(results: Results, task: str) -> list[Figure]:
    rows, tested, listed = list[IntervalRow](), dict[str, float](), []
    for arm in results.study.arms:
        found = [o.on_levels for o in results.of(task, arm) if o.on_levels]
        if not found:
            continue
        values = {name: np.array([levels[name] for levels in found]) for name in PURPOSES}
        values["gap"] = values["train"] - values["test"]
        values = {name: x[np.isfinite(x)] for name, x in values.items()}
        middles = {name: statistics.middle(x[:, None]) for name, x in values.items() if len(x)}
        looks, known = looks_of(results, arm), [name for name in PURPOSES if name in middles]
        rows += [IntervalRow(f"{arm}: {name}", looks, values[name], *middles[name]) for name in known]
        cells = ["{:.3g} ({:.3g} to {:.3g})".format(*middles[name]) if name in middles else "–" for name in values]
        listed.append([arm, *cells, len(found)])
        if "test" in middles:
            tested[arm] = middles["test"][0]
    if not rows:
        return []
    best = max(tested, key=lambda arm: tested[arm], default=None)
    heads = ["arm", *PURPOSES, "train − test", "seeds"]
    title = f"Champions on known and new levels{f', {task}' if task else ''}"
    finding = "No champion has a score on test levels."
    if best is not None:
        finding = f"{best} has the highest interquartile mean on test levels: {text(tested[best])}."
    drawn = rows_drawn(rows, _score(results, task), title)
    return [Figure(title, finding, prose("study_champions"), drawn, parts.table(heads, listed, title))]


def _populations(results: Results, task: str) -> list[Figure]:
    arms = results.study.arms
    curves = {arm: done for arm in arms if (done := [o.population for o in results.of(task, arm) if len(o.population)])}
    if not curves:
        return []
    steps = np.linspace(0, max(curve[-1, 0] for found in curves.values() for curve in found), POINTS)
    lines = {
        (arm, name): _band(np.array([held(curve[:, [0, 1 + k]], steps) for curve in found]))[0]
        for arm, found in curves.items()
        for k, name in enumerate((KNOWN, NEW))
    }
    gaps = {arm: lines[arm, KNOWN] - lines[arm, NEW] for arm in curves}
    gaps = {arm: gap[np.isfinite(gap)][-1] for arm, gap in gaps.items() if np.isfinite(gap).any()}
    if not gaps:
        return []
    lines = {(arm, name): line for (arm, name), line in lines.items() if arm in gaps}  # optimisers' arms record none
    widest = max(gaps, key=lambda arm: gaps[arm])
    title = f"Populations on known and new levels{f', {task}' if task else ''}"
    finding = f"At the end the gap is widest for {widest}: {text(gaps[widest])}."
    looks = {(arm, name): looks_of(results, arm) + " d1" * (name == NEW) for arm, name in lines}
    named = [(f"{arm}: {name}", looks[arm, name], steps, y) for (arm, name), y in lines.items()]
    x, y = Axis.over(steps, STEPS, short=True), Axis.over([*lines.values()], _score(results, task), 0.04)
    return [Figure(title, finding, prose("study_populations"), charts.lines_plot(x, y, named, title, finding))]


def _score(results: Results, task: str) -> str:
    """The name of the score of a task, for an axis."""
    return " or ".join(results.score_names(key for key in results.outcomes if key.task == task))
