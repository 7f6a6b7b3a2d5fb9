"""The curves of a report: fitness, the champion’s lineage, hyperparameters, speed."""

from __future__ import annotations

from html import escape

import numpy as np

from shoal.report import charts
from shoal.report.charts import Axis, line, path, rings, short, text
from shoal.report.data import RunData, figure, many, numbers, quantile
from shoal.report.lineage import number

PHASES = ("train", "evaluate", "evolve", "record")


def fitness(run_data: RunData) -> str:
    """The whole population over time."""
    if run_data.run.champion is None:
        return figure("No fitness yet", "No member has a fitness that is a number.", "So there is nothing to draw.")
    values, x, uid = run_data.table.fitness, run_data.ends, run_data.run.champion[0]
    best, median, worst = (quantile(values, q) for q in (1, 0.5, 0))
    slot = values[:, np.flatnonzero(run_data.table.uids == uid)[0]]
    axis, outside = fitness_axis(values, np.r_[median, slot])
    rows, columns = np.nonzero(run_data.table.copied)
    marks = "" if run_data.crowded else rings(x[rows], axis.place(values[rows, columns]))
    layers = [
        path(charts.band(x, axis.place(worst), axis.place(best)), "band"),
        *run_data.members(values, axis),
        marks,
        path(line(x, axis.place(median)), "median"),
        path(line(x, axis.place(slot)), "champion"),
    ]
    seen = np.flatnonzero(np.isfinite(best))[[0, -1]]
    finding = (
        f"The best member went from {text(best[seen[0]])} to {text(best[seen[1]])}, "
        f"the middle of the population from {text(median[seen[0]])} to {text(median[seen[1]])}."
    )
    if seen[0] == seen[1]:
        finding = f"Tested once: the best member reached {text(best[seen[0]])}, the middle one {text(median[seen[0]])}."
    reading = (
        "Each thin line is one member, tested after every generation; higher is better. The shaded band reaches from "
        "the worst member to the best."
    )
    if marks:
        reading += " A ring marks where a member gave up its own weights and copied those of a better one."
    elif len(rows):
        reading += f" Members copied one another {len(rows):,} times: too often to mark each here."
    reading += f" {many(outside, 'value')} far above or below the rest lie outside the figure." if outside else ""
    lines = {"best": best, "middle": median, "worst": worst, f"member {uid}, the champion": slot}
    live = run_data.live(lines, members="fitness")
    keys = [("champion", f"member {uid}, the champion"), ("median", "middle of the population")]
    keys += [("m", "each member"), ("band", "worst to best")] + ([("ring", "copied another")] if marks else [])
    drawing = charts.plot(
        layers,
        run_data.time,
        axis,
        "Fitness of the population",
        f"{finding} {reading}",
        live,
        380,
        style=run_data.style,
    )
    return figure(
        "Fitness of every member", finding, reading, charts.legend(keys), drawing, numbers(run_data, lines, "Fitness")
    )


def lineage(run_data: RunData) -> str:
    """The learning curve of the champion’s weights, through all members that had them."""
    if run_data.run.champion is None:
        return figure("No champion yet", "No member has a fitness that is a number.", "So no one leads.")
    values, x, moves = run_data.table.fitness, run_data.ends, run_data.moves
    uid, (rows, columns) = run_data.run.champion[0], run_data.trace
    along, slot = run_data.along(values), values[:, columns[-1]]
    axis, _ = fitness_axis(values, np.r_[along, slot])
    layers = [
        *run_data.members(values, axis),
        path(line(x, axis.place(slot)), "slot"),
        path(line(x, axis.place(along)), "champion"),
        run_data.handovers(axis.place(along)),
    ]
    finding = f"Member {uid} kept its own weights all along: it never copied another."
    if len(moves):
        times = "once" if len(moves) == 1 else f"{len(moves)} times"
        finding = (
            f"The champion’s weights passed through the hands of {many(len(set(columns.tolist())), 'member')}: "
            f"they were copied {times} before they ended in member {uid}."
        )
    reading = (
        "The bold line follows the weights that became the champion back to where they started: from the final member "
        "to the one it had copied, and so on. Each ring is such a handover; the strip below names the member that was "
        "training the weights. The dashed line is the champion’s own place, before and after it copied."
    )
    lines = {"lineage": along, f"member {uid} itself": slot}
    keys = [("champion", "the champion’s lineage"), ("slot", f"member {uid} itself"), ("m", "each member")]
    keys += [("ring lead", "handover")] if len(moves) else []
    live = run_data.live(lines, members="fitness", carriers=True)
    title = "Learning curve of the champion’s lineage"
    drawing = charts.plot(layers, run_data.time, axis, title, f"{finding} {reading}", live, 340, style=run_data.style)
    carried = np.full(len(x), np.nan)
    carried[rows] = run_data.table.uids[columns]
    behind = numbers(run_data, lines | {"carried by member": carried}, title)
    return figure("How the champion learned", finding, reading, charts.legend(keys), drawing, _ribbon(run_data), behind)


def hyperparameter(run_data: RunData, name: str) -> str:
    """One tuned hyperparameter over time, in its own scale and, where that is curved, in plain numbers too."""
    bounds, values = run_data.run.space[name], run_data.table.hyper[name]
    along = run_data.along(values)
    lowest, median, highest = (quantile(values, q) for q in (0, 0.5, 1))
    known = along[np.isfinite(along)]
    finding = "There is no champion yet."
    who = "champion’s lineage" if run_data.run.copies else "champion"
    if len(known):
        went = f"went from {text(known[0])} to {text(known[-1])}"
        went = f"came back to {text(known[0])}, where it started" if known[0] == known[-1] else went
        finding = f"The {who} {f'kept {text(known[0])}' if np.ptp(known) == 0 else went}."
    if np.isfinite(lowest[-1]):
        finding += f" At the end all members lie between {text(lowest[-1])} and {text(highest[-1])}."
    ends = bounds.choices or tuple(b for b in (bounds.low, bounds.high) if b is not None)
    reading = "Allowed: whatever the experiment says." if not ends else f"Allowed: {', '.join(map(text, ends))}."
    if ends and not bounds.choices:
        reading = f"Allowed: {text(ends[0])} to {text(ends[1])}, the dotted lines."
    reading += " Logarithmic axis." if bounds.scale == "log" else ""
    reading += " The axis spreads values close to 1." if bounds.scale == "one_minus_log" else ""
    lines = {who: along, "highest": highest, "middle": median, "lowest": lowest}
    live = run_data.live(lines, members=name, stairs=True)
    curved = not bounds.choices and bounds.scale != "linear"
    plots: list[str] = []
    for scale in (bounds.scale, "linear") if curved else ("linear",):
        whole = bounds.integer and scale == "linear"
        axis = Axis.over(np.r_[values.ravel(), ends], "", 0.06, scale=scale, choices=bounds.choices or (), whole=whole)
        limits = axis.place(ends) if ends and not bounds.choices else np.empty(0)
        dotted = "".join(f"M0 {round(charts.HEIGHT * (1 - place))}h{charts.WIDTH}" for place in limits)
        ticks = [tick for tick in axis.ticks() if np.abs(limits - tick[0]).min(initial=1) > 0.07]
        ticks += zip(limits.tolist(), map(text, ends), strict=False)
        place = axis.place(along)
        later = np.append(place[1:], np.nan)  # a change shows at the start of the next step
        perturbed = np.append(np.diff(along) != 0, False)
        layers = [
            path(dotted, "bound"),
            *run_data.members(values, axis, stairs=True),
            "" if run_data.crowded else _changes(run_data, values, axis),
            path(charts.stairs(run_data.edges(np.arange(len(along))), place), "champion"),
            run_data.handovers(later),
            path(charts.dots(run_data.ends[perturbed], later[perturbed]), "dot lead"),
        ]
        plots.append(
            charts.plot(
                layers,
                run_data.time,
                axis,
                name,
                finding,
                live,
                240,
                hidden=bool(plots),
                y_ticks=ticks,
                style=run_data.style,
            )
        )
    toggle = '<button class="view" type="button" aria-pressed="false">Plain axis</button>' if curved else ""
    return figure(name, finding, reading, toggle, *plots, numbers(run_data, lines, name))


def throughput(run_data: RunData) -> str:
    """How fast the run was and where its time went."""
    timing = _timing(run_data)
    speed, seconds = timing.pop("steps_per_second"), {name: timing[name] for name in PHASES}
    if not np.isfinite(np.concatenate([speed, *seconds.values()])).any():
        return figure("No timing", "This run recorded no times.", "So there is nothing to draw.")
    figures = []
    if np.isfinite(speed).any():
        axis = Axis.over(np.r_[0, speed], "steps per second", 0.04, short=True)
        finding = f"Usually {short(float(np.nanmedian(speed)))} environment steps per second, all members together."
        reading = "One value per generation. The first may be lower: programs are compiled when they are first used."
        lines = {"steps per second": speed}
        layers = [path(line(run_data.ends, axis.place(speed)), "median")]
        drawing = charts.plot(layers, run_data.time, axis, "Speed", finding, run_data.live(lines), 220)
        figures.append(figure("Speed", finding, reading, drawing, numbers(run_data, lines, "Speed")))
    filled = {name: np.nan_to_num(values) for name, values in seconds.items()}
    total = sum(float(values.sum()) for values in filled.values())
    if total > 0:
        shares = {name: float(values.sum()) / total for name, values in filled.items()}
        first = max(shares, key=lambda name: shares[name])
        finding = f"{100 * shares[first]:.0f}% of the time went into “{first}”."
        reading = (
            f"Layers on top of one another give the seconds of each generation: {_phases(run_data)}, writing files."
        )
        stack = np.cumsum([np.zeros(len(speed)), *filled.values()], axis=0)
        axis = Axis.over(np.r_[0, stack[-1]], "seconds", 0.04)
        edges = run_data.edges(np.arange(len(speed)))
        kinds = [f"area c{at}" for at in (1, 4, 0, 3)]
        layers = [
            path(bars(edges, axis.place(low), axis.place(high)), kind)
            for kind, low, high in zip(kinds, stack[:-1], stack[1:], strict=True)
        ]
        live = run_data.live(seconds, stairs=True)
        keys = [(kind, f"{name} {100 * shares[name]:.0f}%") for kind, name in zip(kinds, PHASES, strict=True)]
        drawing = charts.plot(layers, run_data.time, axis, "Seconds per generation", finding, live, 220)
        behind = numbers(run_data, seconds, "Seconds per generation")
        figures.append(figure("Where the time went", finding, reading, charts.legend(keys), drawing, behind))
    return "".join(figures)


def _phases(run_data: RunData) -> str:
    """What the first three phases are about."""
    if run_data.run.drawn:
        return "what members learn before they are measured, episodes of members and mean, the step of the mean"
    if run_data.run.copies:
        return "training, testing every member, deciding who copies whom and moving the weights"
    return "training, testing every member, what happens between generations"


def fitness_axis(values: np.ndarray, keep: np.ndarray) -> tuple[Axis, int]:
    """The axis for fitness and how many values it leaves out: one collapse must not flatten all the rest."""
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, [0.02, 0.98])
    room = 0.75 * (high - low)
    inside = finite[(finite >= low - room) & (finite <= high + room)]
    axis = Axis.over(np.r_[inside, keep], "fitness", 0.04)
    return axis, int(((finite < axis.low) | (finite > axis.high)).sum())


def _changes(run_data: RunData, values: np.ndarray, axis: Axis) -> str:
    """A ring where a member took over the value of another, a dot where a value was perturbed."""
    table = run_data.table
    rows, columns = np.nonzero(table.origin[1:] >= 0)
    source = table.origin[1:][rows, columns]
    copied, perturbed = source != columns, table.explored[rows, columns]
    perturbed &= values[rows + 1, columns] != values[rows, source]
    x, y = run_data.ends[rows], axis.place(values[rows + 1, columns])
    return rings(x[copied], y[copied]) + path(charts.dots(x[perturbed], y[perturbed]), "dot")


def _ribbon(run_data: RunData) -> str:
    """Who carried the champion’s weights when: one box per stretch."""
    rows, columns = run_data.trace
    edges, starts = run_data.edges(rows), np.flatnonzero(np.r_[True, columns[1:] != columns[:-1]])
    boxes = []
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        left, width, uid = edges[start], edges[end] - edges[start], str(run_data.table.uids[columns[start]])
        word = uid if width > 0.012 * (len(uid) + 1) else ""
        boxes.append(
            f'<span style="left:{100 * left:.2f}%;width:{100 * width:.2f}%" title="member {uid}">{escape(word)}</span>'
        )
    return f'<div class="ribbon" aria-hidden="true">{"".join(boxes)}</div>'


def _timing(run_data: RunData) -> dict[str, np.ndarray]:
    """[G] each: speed, and the seconds of every phase."""
    row = {generation: at for at, generation in enumerate(run_data.table.generations.tolist())}
    timing = {name: np.full(len(row), np.nan) for name in ("steps_per_second", *PHASES)}
    for entry in run_data.run.metrics:
        measured, generation = entry.get("timing"), entry.get("generation")
        if isinstance(measured, dict) and isinstance(generation, int) and generation in row:
            for name, values in timing.items():
                values[row[generation]] = number(measured.get(name))
    return timing


def bars(edges: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """Path data of one layer of stacked bars without gaps."""
    x = np.repeat(edges, 2)[1:-1]
    return charts.band(x, np.repeat(low, 2), np.repeat(high, 2))
