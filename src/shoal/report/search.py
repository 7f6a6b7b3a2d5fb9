"""The figures of runs whose members are sampled anew in every generation, around one policy, the mean."""

from __future__ import annotations

import numpy as np

from shoal.records.words import many, text, went
from shoal.report import charts
from shoal.report.charts import PERCENT, Axis, Stroke, rings
from shoal.report.figures import fitness_axis
from shoal.report.layout import Layout
from shoal.report.over_time import figure, lines_figure, nothing, smoothing, trend
from shoal.report.rendering import Block, Figure, prose

LENGTHS = {
    "Gradient": ("gradient/norm", "Norm of the estimated gradient, weight decay included"),
    "Steps of the mean": ("step/norm", "Norm of the step of the mean after each generation"),
}


def returns(layout: Layout) -> list[Block]:
    """Fitness of the members and of the mean, and the rank of the mean among them."""
    return [_returns(layout), *_rank(layout)]


def _returns(layout: Layout) -> Figure:
    mean = layout.table.fitness[:, 0]
    members, low, high, variance = (layout.run.common(f"returns/{name}") for name in ("mean", "min", "max", "variance"))
    everything = np.r_[low, high, members, mean]
    if not np.isfinite(everything).any():
        return nothing("No fitness yet", "Neither the mean nor any member has a fitness.")
    axis, outside = fitness_axis(everything, np.r_[members, mean])
    x, std = layout.ends, np.sqrt(np.maximum(variance, 0))
    below, above = np.maximum(members - std, low), np.minimum(members + std, high)
    layers = [
        Stroke(charts.band(x, axis.place(low), axis.place(high)), "band"),
        Stroke(charts.band(x, axis.place(below), axis.place(above)), "inner"),
        *trend(layout, members, axis, "median"),
        *trend(layout, mean, axis, "champion", "pale"),
    ]
    if layout.run.champion is not None:
        row = np.flatnonzero(layout.table.generations == layout.run.champion[1])
        layers += rings(x[row], axis.place(mean[row]), "lead")
    finding = f"The mean’s own fitness {went(mean)}; the average fitness of its members {went(members)}."
    lines = {"the mean": mean, "members: best": high, "average": members, "standard deviation": std, "worst": low}
    keys = [("champion", "the mean"), ("median", "average of the members"), ("inner", "one standard deviation")]
    keys += [("band", "worst to best"), ("ring lead", "the champion")]
    title, reading = "Fitness of the mean and of the members", prose("returns") + smoothing(layout) + outside
    return figure(layout, title, finding, reading, lines, (axis, layers), keys=keys, height=380)


def _rank(layout: Layout) -> list[Figure]:
    """Rank of the mean among the members."""
    ranks = layout.run.common("mean/rank")
    known = ranks[np.isfinite(ranks)]
    if not len(known):
        return []
    last = int(np.fmax(layout.run.population, known.max() - 1)) + 1
    finding = (
        f"The mean ranked first in {int((known == 1).sum()):,} of {many(len(known), 'generation')}; "
        f"its median rank is {text(float(np.median(known)))} of {last:,}."
    )
    ticks = [(1 - place, word) for place, word in Axis(1, last, whole=True).ticks() if 0.07 < place <= 1]
    axis = Axis(last, 1, "rank", named=[(1.0, "1"), *ticks])  # the first on top
    reading = prose("rank", last=f"{last:,}")
    return lines_figure(layout, "Rank of the mean", finding, reading, {"rank": ("median", ranks)}, axis)


def steps(layout: Layout) -> list[Block]:
    """Steps of the mean and of the distribution around it, as far as they were recorded."""
    drawn = _elites(layout) + _std(layout)
    for heading, (name, what) in LENGTHS.items():
        values = layout.run.common(name)
        several = np.isfinite(values).sum() > 1
        finding = f"It {went(values)}{f'; the median is {text(float(np.nanmedian(values)))}' if several else ''}."
        reading, lines = f"{what}, as one vector of all parameters.", {heading: ("median", values)}
        drawn += lines_figure(layout, heading, finding, reading, lines)
    return [drawn or [nothing("No steps", "This run recorded none.")]]


def _elites(layout: Layout) -> list[Figure]:
    learned = np.isfinite(layout.run.common("loss/critic"))  # nowhere, where nobody ever made a gradient step
    values = np.where(learned, layout.run.common("elites/trained"), np.nan)
    known = values[np.isfinite(values)]
    if not len(known):
        return []
    finding = (
        f"On average {100 * known.mean():.0f}% of the next mean came from members that gradient steps had changed; "
        f"none of it in {int((known == 0).sum()):,} of {many(len(known), 'generation')}."
    )
    title, axis = "Elites that gradient steps produced", Axis(0, 1, named=PERCENT)
    return lines_figure(layout, title, finding, prose("elites"), {title: ("median", values)}, axis)


def _std(layout: Layout) -> list[Figure]:
    std, noise = layout.run.common("distribution/std"), np.sqrt(layout.run.common("distribution/noise"))
    lines = {"standard deviation": ("median", std), "of the added noise": ("bound", noise)}
    title, finding = "Standard deviation of the distribution", f"It {went(std)}."
    return lines_figure(layout, title, finding, prose("distribution"), lines)
