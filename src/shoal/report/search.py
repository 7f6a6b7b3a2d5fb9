"""The figures of runs whose members are drawn anew in every generation, around one policy, the mean."""

from __future__ import annotations

import numpy as np

from shoal.report import charts
from shoal.report.charts import PERCENT, Axis, Stroke, rings
from shoal.report.figures import fitness_axis
from shoal.report.layout import Layout
from shoal.report.over_time import curve, figure, lines_figure, nothing
from shoal.report.rendering import Markup, parts
from shoal.report.words import many, text, went

SMOOTH = 200  # with more generations than that a line goes through the means of neighbours
LENGTHS = {
    "Gradient": ("gradient/norm", "The length of the estimated gradient, weight decay included"),
    "Steps of the mean": ("step/norm", "The length of the step that the mean made after each generation"),
}


def returns(layout: Layout) -> Markup:
    """Returns of the members and of the mean, and the rank of the mean among them."""
    return _returns(layout) + _rank(layout)


def _returns(layout: Layout) -> Markup:
    mean = layout.table.fitness[:, 0]
    members, low, high, variance = (layout.run.common(f"returns/{name}") for name in ("mean", "min", "max", "variance"))
    everything = np.r_[low, high, members, mean]
    if not np.isfinite(everything).any():
        return nothing("No returns yet", "Neither the mean nor any member has a return.")
    axis, outside = fitness_axis(everything, np.r_[members, mean])
    x, std = layout.ends, np.sqrt(np.maximum(variance, 0))
    below, above = np.maximum(members - std, low), np.minimum(members + std, high)
    layers = [
        Stroke(charts.band(x, axis.place(low), axis.place(high)), "band"),
        Stroke(charts.band(x, axis.place(below), axis.place(above)), "inner"),
        *_trend(layout, members, axis, "median"),
        *_trend(layout, mean, axis, "champion", "pale"),
    ]
    if layout.run.champion is not None:
        row = np.flatnonzero(layout.table.generations == layout.run.champion[1])
        layers += rings(x[row], axis.place(mean[row]), "lead")
    finding = f"The mean’s own return {went(mean)}; the average return of its members {went(members)}."
    reading = (
        "The bold line is the return of the mean, the policy that this run learned; the ring is the champion. The "
        "pale band reaches from the worst to the best of the members that were drawn around it, the darker one a "
        "standard deviation to both sides of their average, but no further than that. All play the same episodes."
    )
    lines = {"the mean": mean, "members: best": high, "average": members, "standard deviation": std, "worst": low}
    keys = [("champion", "the mean"), ("median", "average of the members"), ("inner", "one standard deviation")]
    keys += [("band", "worst to best"), ("ring lead", "the champion")]
    return figure(
        layout, "Returns of the mean and of the members", finding, reading + _smoothing(layout) + outside, lines,
        (axis, layers), keys=keys, height=380,
    )  # fmt: skip


def _rank(layout: Layout) -> Markup:
    """Rank of the mean among the members."""
    ranks = layout.run.common("mean/rank")
    known = ranks[np.isfinite(ranks)]
    if not len(known):
        return Markup()
    last = int(np.fmax(layout.run.population, known.max() - 1)) + 1
    finding = (
        f"The mean ranked first in {int((known == 1).sum()):,} of {many(len(known), 'generation')}; "
        f"its median rank is {text(float(np.median(known)))} of {last:,}."
    )
    reading = (
        f"Rank 1: no member is better than the mean; {last:,}: all of them are. A mean that ranks first time and again "
        "learns nothing: what is drawn around it then says nothing about the way up, because members vary too much "
        "or too little, or because nothing is left to gain."
    )
    ticks = [(1 - place, word) for place, word in Axis(1, last, whole=True).ticks() if 0.07 < place <= 1]
    axis = Axis(last, 1, "rank", named=[(1.0, "1"), *ticks])  # the first on top
    return _course(layout, "Rank of the mean", finding, reading, {"rank": ranks}, axis)


def steps(layout: Layout) -> Markup:
    """Steps of the mean and of the distribution around it, as far as they were recorded."""
    drawn = _elites(layout) + _std(layout)
    for heading, (name, what) in LENGTHS.items():
        values = layout.run.common(name)
        several = np.isfinite(values).sum() > 1
        finding = f"It {went(values)}{f'; the median is {text(float(np.nanmedian(values)))}' if several else ''}."
        drawn += _course(layout, heading, finding, f"{what}, as one vector of all parameters.", {heading: values})
    return parts.pair(drawn or nothing("No steps", "This run recorded nothing of them."))


def hyperparameters(layout: Layout) -> Markup:
    """Figures of the hyperparameters that changed during the run, equal for all members."""
    drawn = Markup()
    for name, values in layout.table.hyper.items():
        value = values[:, 0]
        known = value[np.isfinite(value)]
        if len(known) and np.ptp(known) > 0:
            axis, reading = Axis.over(value, pad=0.06), "The same for all members of a generation."
            lines = {name: ("champion", value)}
            drawn += lines_figure(layout, name, f"It {went(value)}.", reading, lines, axis, stairs=True, height=220)
    return drawn


def _elites(layout: Layout) -> Markup:
    learned = np.isfinite(layout.run.common("loss/critic"))  # nowhere, where nobody ever made a gradient step
    values = np.where(learned, layout.run.common("elites/trained"), np.nan)
    known = values[np.isfinite(values)]
    if not len(known):
        return Markup()
    finding = (
        f"On average {100 * known.mean():.0f}% of the next mean came from members that gradient steps had changed; "
        f"none of it in {int((known == 0).sum()):,} of {many(len(known), 'generation')}."
    )
    reading = (
        "The best members, the elites, make the next mean, the better ones more of it. Sampled is the share of those "
        "that had learned from the critic before. 0: sampling alone moves the mean; 100%: the critic does. It "
        "begins where the replay buffer was full enough to learn from."
    )
    heading = "Elites that gradient steps produced"
    return _course(layout, heading, finding, reading, {heading: values}, Axis(0, 1, named=PERCENT))


def _std(layout: Layout) -> Markup:
    std, noise = layout.run.common("distribution/std"), np.sqrt(layout.run.common("distribution/noise"))
    reading = (
        "The standard deviation with which a parameter of the next members is drawn, as the root of the mean square "
        "over all parameters. The dotted line is what the noise that is added to the variance makes of it, whoever is best."
    )
    lines = {"standard deviation": std, "of the added noise": noise}
    return _course(layout, "Standard deviation of the distribution", f"It {went(std)}.", reading, lines)


def _course(
    layout: Layout,
    heading: str,
    finding: str,
    reading: str,
    lines: dict[str, np.ndarray],
    axis: Axis | None = None,
) -> Markup:
    """One metric over time, a second one dotted; nothing where the first was not recorded."""
    values, *dotted = lines.values()
    if not np.isfinite(values).any():
        return Markup()
    axis = axis or Axis.over(np.r_[0, values, *dotted], pad=0.04)
    layers = [curve(layout, other, axis, "bound") for other in dotted] + _trend(layout, values, axis, "median", "m")
    keys = list(zip(("median", "bound"), lines, strict=False)) if dotted else []
    return figure(layout, heading, finding, reading + _smoothing(layout), lines, (axis, layers), keys=keys)


def _trend(layout: Layout, values: np.ndarray, axis: Axis, kind: str, thin: str = "") -> list[Stroke]:
    """A line; through many values one of their running means, over a thin one of the values themselves if need be."""
    window = _window(layout)
    single = [curve(layout, values, axis, thin)] if thin and window > 1 else []
    return [*single, curve(layout, smoothed(values, window), axis, kind)]


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Means of the finite ones among `window` neighbours, an odd number of them; NaN where `values` is."""
    some = np.isfinite(values)
    around = np.ones(window)
    sums, counts = (np.convolve(v, around, "same") for v in (np.where(some, values, 0.0), some.astype(float)))
    return np.where(some, sums / np.maximum(counts, 1), np.nan)


def _window(layout: Layout) -> int:
    """The number of generations over which lines are smoothed; 1: they are not."""
    count = len(layout.table.generations)
    return 2 * (count // 100) + 1 if count > SMOOTH else 1


def _smoothing(layout: Layout) -> str:
    window = _window(layout)
    return f" Bold lines are means over {window} generations, thin ones single values." if window > 1 else ""
