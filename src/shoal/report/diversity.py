"""The figures of DvD: how differently the members behave, and how much that counted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis, line, path, text
from shoal.report.data import RunData, figure, folded, many, numbers, quantile
from shoal.report.figures import bars

WORDED = 16  # members up to which the heat map says its numbers
MAPPED = 60  # members that it has room for
TREADS = 200  # choices up to which each is drawn
TINY = 1e-37  # below that float32, in which determinants are recorded, knows no number
PARTS = 50  # stretches whose shares are drawn otherwise


def determinant(run_data: RunData) -> str:
    """The volume that the members' behaviours span."""
    values, logarithm = (
        quantile(run_data.measured(f"diversity/{name}"), 0.5) for name in ("determinant", "log_determinant")
    )
    values = np.where(values < TINY, np.exp(logarithm), values)
    if not np.isfinite(values).any():
        return ""
    known = values[np.isfinite(values)]
    finding = f"It was {text(known[0])}."
    if len(known) > 1:
        finding = f"It went from {text(known[0])} to {text(known[-1])}; the largest was {text(known.max())}."
    reading = (
        "The determinant of the kernel of what the members do in states from the memory they share: the more "
        "differently all of them behave the closer to 1; it falls towards 0 as soon as two of them behave alike. "
    )
    lines, title, plots = {"determinant": values}, "Determinant", list[str]()
    for scale in ("log", "linear"):
        axis = Axis.over(np.r_[values, 0 if scale == "linear" else 1, 1], pad=0.04, scale=scale)
        layers = [path(line(run_data.ends, axis.place(values)), "median")]
        plots.append(
            charts.plot(
                layers, run_data.time, axis, title, f"{finding} {reading}", run_data.live(lines), 240, hidden=bool(plots),
                style=run_data.style,
            )
        )  # fmt: skip
    toggle = '<button class="view" type="button" aria-pressed="false">Plain axis</button>'
    reading += "Logarithmic axis."
    return figure("Diversity of the population", finding, reading, toggle, *plots, numbers(run_data, lines, title))


def choices(run_data: RunData) -> str:
    """What the bandit chose."""
    values = quantile(run_data.table.hyper.get("diversity", np.full(run_data.table.present.shape, np.nan)), 0.5)
    arms, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if not len(arms):
        return ""
    title = "What diversity counted"
    finding = f"{text(arms[0])} in every generation."
    if len(arms) > 1:
        counted = [f"{text(arm)} in {count:,}" for arm, count in zip(arms, counts, strict=True)]
        finding = f"{', '.join(counted)} of {many(int(counts.sum()), 'generation')}."
    reading = "This much behaving differently counted, and return the rest, for all members alike. " + (
        "There was nothing to choose from." if run_data.run.settled else
        "A bandit chooses before each generation; a choice wins where the best fitness rises, and what has won more "
        "often is chosen more often."
    )  # fmt: skip
    lines = {"diversity": values}
    edges = run_data.edges(np.arange(len(values)))
    if len(values) <= TREADS:
        axis = Axis.over(np.r_[arms, 0, arms.max() or 1], pad=0.08)
        layers = [path(charts.stairs(edges, axis.place(values)), "champion")]
        ticks = [(float(axis.place(arm)), text(arm)) for arm in arms]
        live, keys = run_data.live(lines, stairs=True), ""
    else:
        reading += " The height of a colour is how often a value was chosen, in stretches of the run."
        axis, ticks = Axis(0, 1), [(share / 4, f"{25 * share}%") for share in range(5)]
        layers, keys = _shares(values, arms, edges)
        live = run_data.live(lines)
    drawing = charts.plot(layers, run_data.time, axis, title, f"{finding} {reading}", live, 240, y_ticks=ticks)
    return figure(title, finding, reading, keys, drawing, numbers(run_data, lines, title))


def _shares(values: np.ndarray, arms: np.ndarray, edges: np.ndarray) -> tuple[list[str], str]:
    """How often each arm was chosen in each of some stretches of the run: areas and their legend."""
    cuts = np.linspace(0, len(values), PARTS + 1).round().astype(int)
    share = np.array([[np.mean(values[a:b] == arm) for a, b in pairwise(cuts)] for arm in arms])
    stack = np.vstack([np.zeros(PARTS), np.cumsum(share, axis=0)])
    kinds = [f"area c{at % 8}" for at in range(len(arms))]
    layers = [
        path(bars(edges[cuts], low, high), kind) for kind, (low, high) in zip(kinds, pairwise(stack), strict=True)
    ]
    return layers, charts.legend((kind, text(arm)) for kind, arm in zip(kinds, arms, strict=True))


def distances(run_data: RunData) -> str:
    """Which members behave alike, in the last generation of which that is known."""
    table = run_data.table
    known = np.flatnonzero(np.isfinite(run_data.measured("diversity/to 0")).any(axis=1))
    if not len(known):
        return ""
    row = int(known[-1])
    columns = np.flatnonzero(table.present[row])
    matrix = np.array([run_data.measured_in(row, f"diversity/to {at}")[columns] for at in range(len(columns))])
    rest = len(columns) - MAPPED
    columns, matrix = columns[:MAPPED], matrix[:MAPPED, :MAPPED]
    uids = table.uids[columns].tolist()
    apart = np.where(np.eye(len(uids), dtype=bool), np.nan, matrix)
    finding = "No distance is known."
    if np.isfinite(apart).any():
        (a, b), (c, d) = (np.unravel_index(at, apart.shape) for at in (np.nanargmin(apart), np.nanargmax(apart)))
        finding = (
            f"In generation {table.generations[row]} members {uids[a]} and {uids[b]} behaved most alike "
            f"({text(apart[a, b])})"
        )
        finding += f", {uids[c]} and {uids[d]} least ({text(apart[c, d])})." if len(uids) > 2 else "."
    reading = (
        "Distances between what two members do in the same states: root mean squares of differences between actions, "
        "which lie within -1 and 1. 0: no difference."
    )
    reading += f" The first {MAPPED} members; {rest:,} more are left out." if rest > 0 else ""
    top = float(np.nanmax(matrix))
    keys = charts.legend([("ramp", f"0 to {text(top)}")])
    rows = [[uid, *map(float, row)] for uid, row in zip(uids, matrix, strict=True)]
    inner = charts.table(["member", *map(str, uids)], rows, "Distances between members")
    drawn = _heat(matrix, uids, top, finding)
    return figure("Who behaves like whom", finding, reading, keys, drawn, folded(inner))


def _heat(matrix: np.ndarray, uids: list[int], top: float, summary: str) -> str:
    """Distances [N, N] from 0 to `top` as shades, with numbers where they have room."""
    every = -(-len(uids) // WORDED)  # labels that have room
    names = [str(uid) if at % every == 0 else "" for at, uid in enumerate(uids)]
    words = np.array([[f"{value:.2f}" for value in row] for row in matrix]) if len(uids) <= WORDED else None
    told = [[f"members {uid} and {other}: {text(x)}" for other, x in zip(uids, row, strict=True)]
            for uid, row in zip(uids, matrix.tolist(), strict=True)]  # fmt: skip
    return charts.heat(matrix / top if top else matrix, names, names, told, f"Distances. {summary}", words)
