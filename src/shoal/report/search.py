"""The figures of runs whose members are drawn anew in every generation, around one policy, the mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis, line, path, rings, text
from shoal.report.data import RunData, figure, many, numbers
from shoal.report.figures import fitness_axis

SMOOTH = 200  # with more generations than that a line goes through the means of neighbours


def returns(run_data: RunData) -> str:
    """What the members and the mean earned."""
    mean, members = run_data.table.fitness[:, 0], _measured(run_data, "returns/mean")
    low, high = _measured(run_data, "returns/min"), _measured(run_data, "returns/max")
    deviation, x = np.sqrt(np.maximum(_measured(run_data, "returns/variance"), 0)), run_data.ends
    everything = np.r_[low, high, members, mean]
    if not np.isfinite(everything).any():
        return figure("No returns yet", "Neither the mean nor any member has a return.", "So there is nothing to draw.")
    axis, outside = fitness_axis(everything, np.r_[members, mean])
    below, above = np.maximum(members - deviation, low), np.minimum(members + deviation, high)
    layers = [
        path(charts.band(x, axis.place(low), axis.place(high)), "band"),
        path(charts.band(x, axis.place(below), axis.place(above)), "inner"),
        *_lines(x, axis.place(members), "median"),
        *_lines(x, axis.place(mean), "champion", "pale"),
    ]
    if run_data.run.champion is not None:
        row = np.flatnonzero(run_data.table.generations == run_data.run.champion[1])
        layers.append(rings(x[row], axis.place(mean[row]), "lead"))
    finding = f"The mean’s own return {_went(mean)}; what its members earned on average {_went(members)}."
    reading = (
        "The bold line is the return of the mean, the policy that this run is about; the ring is the champion. The "
        "pale band reaches from the worst to the best of the members that were drawn around it, the darker one a "
        "standard deviation to both sides of their average, but no further than that. All play the same episodes."
    )
    reading += _said_of_smoothing(run_data)
    reading += f" {many(outside, 'value')} far above or below the rest lie outside the figure." if outside else ""
    lines = {"the mean": mean, "members: best": high, "average": members, "deviation": deviation, "worst": low}
    keys = [("champion", "the mean"), ("median", "average of the members"), ("inner", "one standard deviation")]
    keys += [("band", "worst to best"), ("ring lead", "the champion")]
    title = "Returns of the mean and of the members"
    drawing = charts.plot(
        layers, run_data.time, axis, title, f"{finding} {reading}", run_data.live(lines), 380, style=run_data.style
    )
    return figure(title, finding, reading, charts.legend(keys), drawing, numbers(run_data, lines, title))


def rank(run_data: RunData) -> str:
    """Where the mean stands among the members."""
    ranks, x = _measured(run_data, "mean/rank"), run_data.ends
    known = ranks[np.isfinite(ranks)]
    if not len(known):
        return ""
    last = int(np.fmax(run_data.run.population, known.max() - 1)) + 1
    axis = Axis(last, 1, "rank")  # the first on top
    finding = (
        f"The mean ranked first in {int((known == 1).sum()):,} of {many(len(known), 'generation')}; "
        f"its median rank is {text(float(np.median(known)))} of {last:,}."
    )
    reading = (
        f"Rank 1: no member is better than the mean; {last:,}: all of them are. A mean that ranks first time and again "
        "learns nothing: what is drawn around it then says nothing about the way up, because members deviate too much "
        "or too little, or because nothing is left to gain." + _said_of_smoothing(run_data)
    )
    rounds = [tick for tick in Axis(1, last, whole=True).ticks() if 0.07 < tick[0] <= 1]
    ticks = [(1.0, "1"), *((1 - place, word) for place, word in rounds)]
    drawing = charts.plot(
        _lines(x, axis.place(ranks), "median", "m"), run_data.time, axis, "Rank of the mean", f"{finding} {reading}",
        run_data.live({"rank": ranks}), 240, y_ticks=ticks, style=run_data.style,
    )  # fmt: skip
    return figure("Rank of the mean", finding, reading, drawing, numbers(run_data, {"rank": ranks}, "Rank of the mean"))


def steps(run_data: RunData) -> str:
    """How the mean, and what is drawn around it, moved: as much of that as was recorded."""
    reading = "The length of the estimated gradient, weight decay included, as one vector of all parameters."
    gradient = _curve(run_data, "Gradient", _measured(run_data, "gradient/norm"), _from_to, reading)
    return _elites(run_data) + _deviation(run_data) + gradient + _length(run_data)


def hyperparameters(run_data: RunData) -> str:
    """Those that changed in the course of the run, equal for all members."""
    drawn = ""
    for name, values in run_data.table.hyper.items():
        value = values[:, 0]
        known = value[np.isfinite(value)]
        if len(known) and np.ptp(known) > 0:
            axis, places = Axis.over(value, pad=0.06), run_data.edges(np.arange(len(value)))
            layers = [path(charts.stairs(places, axis.place(value)), "champion")]
            finding, reading = f"It {_went(value)}.", "The same for all members of a generation."
            drawing = charts.plot(
                layers, run_data.time, axis, name, finding, run_data.live({name: value}, stairs=True), 220
            )
            drawn += figure(name, finding, reading, drawing, numbers(run_data, {name: value}, name))
    return drawn


def _elites(run_data: RunData) -> str:
    def told(values: np.ndarray) -> str:
        known = values[np.isfinite(values)]
        return (
            f"On average {100 * known.mean():.0f}% of the next mean came from members that gradient steps had changed; "
            f"none of it in {int((known == 0).sum()):,} of {many(len(known), 'generation')}."
        )

    learned = np.isfinite(_measured(run_data, "loss/critic"))
    if not learned.any():  # nobody ever made a gradient step
        return ""
    reading = (
        "The best members, the elites, make the next mean, the better ones more of it. Drawn is the share of those "
        "that had learned from the critic before. 0: sampling alone moves the mean; 100%: the critic does. It "
        "begins where the memory was full enough to learn from."
    )
    ticks = [(share / 4, f"{25 * share}%") for share in range(5)]
    values = np.where(learned, _measured(run_data, "elites/trained"), np.nan)
    return _curve(run_data, "Elites that gradient steps produced", values, told, reading, Axis(0, 1), ticks)


def _deviation(run_data: RunData) -> str:
    deviation, noise = _measured(run_data, "distribution/deviation"), np.sqrt(_measured(run_data, "distribution/noise"))
    if not np.isfinite(deviation).any():
        return ""
    axis = Axis.over(np.r_[0, deviation, noise], pad=0.04)
    finding = f"It {_went(deviation)}."
    reading = (
        "The standard deviation with which a parameter of the next members is drawn, as the root of the mean square "
        "over all parameters. The dotted line is what the noise that is added to the variance makes of it, whoever is best."
    )
    lines = {"deviation": deviation, "of the added noise": noise}
    layers = [path(line(run_data.ends, axis.place(noise)), "bound")]
    layers += _lines(run_data.ends, axis.place(deviation), "median", "m")
    title = "Deviation of the distribution"
    keys = charts.legend([("median", "deviation"), ("bound", "of the added noise")])
    drawing = charts.plot(
        layers, run_data.time, axis, title, f"{finding} {reading}", run_data.live(lines), 240, style=run_data.style
    )
    return figure(title, finding, reading, keys, drawing, numbers(run_data, lines, title))


def _length(run_data: RunData) -> str:
    reading = "The length of the step that the mean made after each generation, as one vector of all parameters."
    return _curve(run_data, "Steps of the mean", _measured(run_data, "step/norm"), _from_to, reading)


def _curve(
    run_data: RunData,
    title: str,
    values: np.ndarray,
    told: Callable[[np.ndarray], str],
    reading: str,
    axis: Axis | None = None,
    ticks: list[tuple[float, str]] | None = None,
) -> str:
    """One metric over time; nothing where it was not recorded. `told` puts its values into a sentence."""
    if not np.isfinite(values).any():
        return ""
    axis = axis or Axis.over(np.r_[0, values], pad=0.04)
    finding, lines, reading = told(values), {title: values}, reading + _said_of_smoothing(run_data)
    live: dict[str, Any] = run_data.live(lines)
    layers = _lines(run_data.ends, axis.place(values), "median", "m")
    drawing = charts.plot(
        layers, run_data.time, axis, title, f"{finding} {reading}", live, 240, y_ticks=ticks, style=run_data.style
    )
    return figure(title, finding, reading, drawing, numbers(run_data, lines, title))


def _lines(x: np.ndarray, y: np.ndarray, kind: str, thin: str = "") -> list[str]:
    """A line; through many values one of their running means, over a thin one of the values themselves if need be."""
    if len(y) <= SMOOTH:
        return [path(line(x, y), kind)]
    single = [path(line(x, y), thin)] if thin else []
    return [*single, path(line(x, smoothed(y, _window(len(y)))), kind)]


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Means of the finite ones among `window` neighbours, an odd number of them; NaN where `values` is."""
    some = np.isfinite(values)
    around = np.ones(window)
    sums, counts = (np.convolve(v, around, "same") for v in (np.where(some, values, 0.0), some.astype(float)))
    return np.where(some, sums / np.maximum(counts, 1), np.nan)


def _window(count: int) -> int:
    return 2 * (count // 100) + 1


def _said_of_smoothing(run_data: RunData) -> str:
    count = len(run_data.table.generations)
    return f" Bold lines are means over {_window(count)} generations, thin ones single values." * (count > SMOOTH)


def _measured(run_data: RunData, name: str) -> np.ndarray:
    """[G] A metric of the population as a whole."""
    return run_data.measured(name)[:, 0]


def _went(values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    if not len(known):
        return "is unknown"
    first, last = text(float(known[0])), text(float(known[-1]))
    return f"was {first}" if len(known) == 1 else f"went from {first} to {last}"


def _from_to(values: np.ndarray) -> str:
    several = np.isfinite(values).sum() > 1
    return f"It {_went(values)}{f'; the median is {text(float(np.nanmedian(values)))}' if several else ''}."
