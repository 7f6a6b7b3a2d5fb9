"""The figures of DvD: how differently the members behave, and how much that counted."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from shoal.report.charts import PERCENT, Axis
from shoal.report.figures import bars
from shoal.report.layout import Layout, quantile
from shoal.report.lineage import inner
from shoal.report.over_time import curve, figure, nothing, staircase
from shoal.report.palette import SERIES
from shoal.report.rendering import Markup, parts
from shoal.report.words import many, text, went

WORDED = 16  # members up to which the heat map says its numbers
MAPPED = 60  # members that it has room for
TREADS = 200  # choices up to which each is drawn
TINY = 1e-37  # below that float32, in which determinants are recorded, knows no number
PARTS = 50  # stretches whose shares are drawn otherwise


def behaviour(layout: Layout) -> Markup:
    """The figures of what was recorded of diversity."""
    drawn = _determinant(layout), _choices(layout), _distances(layout)
    if not any(drawn):
        return nothing("No diversity", "This run recorded nothing of it.")
    return parts.pair(*drawn[:2]) + drawn[2]


def _determinant(layout: Layout) -> Markup:
    """The volume that the members' behaviours span, over time."""
    values, logarithm = (layout.run.common(f"diversity/{name}") for name in ("determinant", "log_determinant"))
    values = np.where(values < TINY, np.exp(logarithm), values)
    if not np.isfinite(values).any():
        return Markup()
    finding = f"It {went(values)}."
    if np.isfinite(values).sum() > 1:
        finding = f"It {went(values)}; the largest was {text(np.nanmax(values))}."
    reading = (
        "The determinant of the kernel of what the members do in states from their common replay buffer: the more "
        "differently all of them behave the closer to 1; it falls towards 0 as soon as two of them behave alike. "
        "Logarithmic axis."
    )
    axes = [Axis.over(np.r_[values, least, 1], pad=0.04, scale=scale) for scale, least in (("log", 1), ("linear", 0))]
    views = [(axis, [curve(layout, values, axis, "median")]) for axis in axes]
    return figure(layout, "Diversity of the population", finding, reading, {"determinant": values}, *views)


def _choices(layout: Layout) -> Markup:
    """The choices of the bandit."""
    values = quantile(layout.table.hyper.get("diversity", np.full(layout.table.present.shape, np.nan)), 0.5)
    arms, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if not len(arms):
        return Markup()
    finding = f"{text(arms[0])} in every generation."
    if len(arms) > 1:
        counted = [f"{text(arm)} in {count:,}" for arm, count in zip(arms, counts, strict=True)]
        finding = f"{', '.join(counted)} of {many(int(counts.sum()), 'generation')}."
    options = inner(layout.run.experiment, "method").get("arms")
    reading = "This much behaving differently counted, and return the rest, for all members alike. " + (
        "There was nothing to choose from." if isinstance(options, list) and len(options) == 1 else
        "A bandit chooses before each generation; a choice wins where the best fitness rises, and what has won more "
        "often is chosen more often."
    )  # fmt: skip
    keys: list[tuple[str, str]] = []
    stairs = len(values) <= TREADS
    if stairs:
        axis = Axis.over(np.r_[arms, 0, arms.max() or 1], pad=0.08)
        layers = [staircase(layout, values, axis, "champion")]
        axis = replace(axis, named=[(float(axis.place(arm)), text(arm)) for arm in arms])
    else:
        reading += " The height of a colour is how often a value was chosen, in stretches of the run."
        axis, cuts = Axis(0, 1, named=PERCENT), np.linspace(0, len(values), PARTS + 1).round().astype(int)
        share = [[np.mean(values[a:b] == arm) for a, b in pairwise(cuts)] for arm in arms]
        keys = [(f"area c{at % SERIES}", text(arm)) for at, arm in enumerate(arms)]
        stack = np.cumsum([np.zeros(PARTS), *share], axis=0)
        layers = bars(layout.borders[cuts], stack, [kind for kind, _ in keys])
    return figure(
        layout,
        "What diversity counted",
        finding,
        reading,
        {"diversity": values},
        (axis, layers),
        keys=keys,
        stairs=stairs,
    )


def _distances(layout: Layout) -> Markup:
    """Distances between the behaviours of members, in the last generation of which they are known."""
    table = layout.table
    known = np.flatnonzero(np.isfinite(layout.run.metric("diversity/to 0")).any(axis=1))
    if not len(known):
        return Markup()
    row = int(known[-1])
    columns = np.flatnonzero(table.present[row])
    matrix = np.array([layout.run.metric_in(row, f"diversity/to {at}")[columns] for at in range(len(columns))])
    rest = len(columns) - MAPPED
    columns, matrix = columns[:MAPPED], matrix[:MAPPED, :MAPPED]
    uids = table.uids[columns].tolist()
    apart = np.where(np.eye(len(uids), dtype=bool), np.nan, matrix)
    finding = "No distance is known."
    if np.isfinite(apart).any():
        (a, b), (c, d) = (np.unravel_index(at, apart.shape) for at in (np.nanargmin(apart), np.nanargmax(apart)))
        finding = (
            f"In generation {table.counted[row]} members {uids[a]} and {uids[b]} behaved most alike "
            f"({text(apart[a, b])})"
        )
        finding += f", {uids[c]} and {uids[d]} least ({text(apart[c, d])})." if len(uids) > 2 else "."
    reading = (
        "Distances between what two members do in the same states: root mean squares of differences between actions, "
        "which lie within -1 and 1. 0: no difference."
    )
    reading += f" The first {MAPPED} members; {rest:,} more are left out." if rest > 0 else ""
    top = float(np.nanmax(matrix))
    keys = parts.legend([("ramp", f"0 to {text(top)}")])
    rows = [[uid, *map(float, row)] for uid, row in zip(uids, matrix, strict=True)]
    listed = parts.table(["member", *map(str, uids)], rows, "Distances between members")
    every = -(-len(uids) // WORDED)  # labels that have room
    names = [str(uid) if at % every == 0 else "" for at, uid in enumerate(uids)]
    words = np.array([[f"{value:.2f}" for value in row] for row in matrix]) if len(uids) <= WORDED else None
    titles = [[f"members {uid} and {other}: {text(x)}" for other, x in zip(uids, row, strict=True)]
            for uid, row in zip(uids, matrix.tolist(), strict=True)]  # fmt: skip
    shades = matrix / top if top else matrix
    drawn = parts.heat(shades, names, names, titles, f"Distances. {finding}", words)
    return parts.figure("Who behaves like whom", finding, reading, keys, drawn, parts.folded(listed))
