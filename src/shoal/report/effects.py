"""Which values of a hyperparameter went with gains of fitness, and how much of that is more than chance."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
from scipy.stats import rankdata

from shoal.report import charts
from shoal.report.charts import Axis, path
from shoal.report.data import RunData, figure, folded, nothing, pair, spaced
from shoal.report.lineage import Lineage
from shoal.report.words import text

PARTS = 5  # of the values, from the lowest to the highest: the means of their gains are compared
SHUFFLES = 400
LEAST = 3  # members that a generation needs, and values
LUCK = 0.05  # how often chance alone may tell any of the hyperparameters
STEPS = 5000  # members times generations that are looked at
DRAWN = 600  # of them as dots
PLACES = [(0.0, "least"), (0.5, "middle"), (1.0, "most")]


@dataclass(frozen=True)
class Effect:
    """What S steps of members gained, by the value that each was made with; in P parts, of equal size as a rule."""

    values: np.ndarray  # float [S]
    gains: np.ndarray  # float [S] see `gains`
    centres: np.ndarray  # float [P] the median value of each part
    means: np.ndarray  # float [P] its mean gain
    chance: np.ndarray  # float [2, P] between which 95 % of such means lie where members exchange their values
    p: float  # the share of such exchanges in which the means differ by as much


def effects(run_data: RunData) -> str:
    """A figure for each hyperparameter that was tuned, and a sentence on all."""
    table = run_data.table
    gained = gains(table)
    found = {name: effect for name in run_data.run.space if (effect := measure(gained, table.hyper[name]))}
    if not found:
        return nothing(
            "Too little to go by", f"This needs {LEAST} members with different values, and a few generations."
        )
    clear = {name: effect.p * len(found) <= LUCK for name, effect in found.items()}  # Bonferroni's correction
    told, untold = ([name for name in found if clear[name] is which] for which in (True, False))
    said = (
        f"More than chance gives: {', '.join(told)}." if told else "No value went with gains that chance does not give."
    )
    if told and untold:
        said += f" Not told from chance: {', '.join(untold)}."
    reading = (
        "A dot is one member in one generation: how far its fitness rose, as its place among the members of that one. "
        "The line is the mean of each fifth of the values; where values do not matter it stays within the band 19 times of "
        f"20, as {SHUFFLES} exchanges of values between members show. It says what went together in this run: a member that "
        "was lucky in one test falls back in the next."
    )
    if run_data.run.about.copies:
        reading += " Children have their parents’ values, and those that were copied together cannot be told apart."
    keys = charts.legend(
        [("champion", "mean gain"), ("band", "what chance gives"), ("dot m", "a member in a generation")]
    )
    drawn = (_plot(run_data, name, effect, clear[name]) for name, effect in found.items())
    heads = ["hyperparameter", "around", "mean gain", "by chance, from", "to"]
    rows = [
        [name, *map(float, row)]
        for name, effect in found.items()
        for row in zip(effect.centres, effect.means, *effect.chance, strict=True)
    ]
    return figure(
        "Values and gains", said, reading, keys, pair(*drawn), folded(charts.table(heads, rows, "Values and gains"))
    )


def measure(gained: np.ndarray, values: np.ndarray) -> Effect | None:
    """What the values [G, N] of a hyperparameter went with; None where too few are known, or all are equal."""
    rows = spaced(len(gained), max(2, STEPS // gained.shape[1]))
    gained, values = gained[rows], values[rows]
    known = np.isfinite(gained) & np.isfinite(values)
    distinct = np.unique(values[known])
    if known.sum() < PARTS * LEAST or len(distinct) < 2 or known.any(axis=0).sum() < LEAST:
        return None
    cuts = np.unique(np.quantile(values[known], np.linspace(0, 1, PARTS + 1)[1:-1], method="lower"))
    cuts = cuts[cuts < distinct[-1]]
    part = np.where(np.isfinite(values), np.searchsorted(cuts, values), -1)
    count = len(cuts) + 1
    means, difference = _means(part, gained, count)
    draw = np.random.default_rng(0)
    exchanged = [_means(part[:, draw.permutation(part.shape[1])], gained, count) for _ in range(SHUFFLES)]
    chance = np.nanquantile([of for of, _ in exchanged], (0.025, 0.975), axis=0)
    p = (1 + sum(of >= difference for _, of in exchanged)) / (1 + SHUFFLES)
    centres = np.array([np.median(values[known & (part == at)]) for at in range(count)])
    return Effect(values[known], gained[known], centres, means, chance, p)


def gains(table: Lineage) -> np.ndarray:
    """[G, N] How far a member's fitness rose above that of the weights it began a generation with, as its place among the
    members of that generation: 0 the least, 1 the most, ties share their places. NaN where that is unknown, or where fewer
    than LEAST members are. In the first generation all begin alike, so that it is the place of their fitness."""
    rows, columns = table.sources
    before = np.where(columns >= 0, table.fitness[rows, columns], np.nan)
    before[0] = 0.0
    raw = table.fitness - before
    counted = np.isfinite(raw).sum(axis=1)
    places = (rankdata(raw, axis=1, nan_policy="omit") - 0.5) / np.maximum(counted, 1)[:, None]
    return np.where(np.isfinite(raw) & (counted >= LEAST)[:, None], places, np.nan)


def _means(part: np.ndarray, gained: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """[P] The mean gain of each part, NaN where nobody is in it; and how far these differ: the variance between parts."""
    known = (part >= 0) & np.isfinite(gained)
    sizes = np.bincount(part[known], minlength=count)
    sums = np.bincount(part[known], gained[known], count)
    means = np.divide(sums, sizes, out=np.full(count, np.nan), where=sizes > 0)
    middle = sums.sum() / max(1, sizes.sum())
    return means, float(np.nansum(sizes * (means - middle) ** 2) / max(1, sizes.sum()))


def _plot(run_data: RunData, name: str, effect: Effect, clear: bool) -> str:
    bounds = run_data.run.space[name]
    x = Axis.over(effect.values, "", 0.04, scale=bounds.scale, choices=bounds.choices or ())
    y, at = Axis(0, 1, named=PLACES), x.place(effect.centres)
    some = spaced(len(effect.values), DRAWN)
    layers = [
        path(charts.band(at, *effect.chance), "band"),
        path(charts.dots(x.place(effect.values[some]), effect.gains[some]), "dot m"),
        path(charts.line(at, effect.means), "champion"),
    ]
    most, least = (
        f"{text(float(effect.centres[part]))} ({effect.means[part]:.2f} in the mean)"
        for part in (np.nanargmax(effect.means), np.nanargmin(effect.means))
    )
    said = f"Most around {most}, least around {least}: {'more' if clear else 'no more'} than chance gives."
    drawn = charts.plot(layers, x, y, name, said, height=150, style=run_data.style)
    return f'<div><h4>{escape(name)}</h4><p class="reading">{escape(said)}</p>{drawn}</div>'
