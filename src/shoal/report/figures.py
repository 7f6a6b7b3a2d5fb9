"""Curves of a report: fitness, the champion’s lineage, hyperparameters, decisions, speed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shoal.records.words import many, short, text, went
from shoal.report import charts
from shoal.report.charts import Axis, Stroke, rings
from shoal.report.layout import PHASES, Layout, quantile
from shoal.report.over_time import curve, figure, handovers, lines_figure, member_lines, nothing, numbers, staircase
from shoal.report.reliability import reliability
from shoal.report.rendering import Block, Figure, Markup, parts, prose
from shoal.report.run import Run

LISTED = 6  # changes that a sentence lists one by one


def fitness(layout: Layout) -> list[Block]:
    """The whole population over time."""
    if layout.run.champion is None:
        return [nothing("No fitness yet", "No member has a finite fitness.")]
    values, uid = layout.table.fitness, layout.run.champion[0]
    best, median, worst = (quantile(values, q) for q in (1, 0.5, 0))
    slot = values[:, np.flatnonzero(layout.table.uids == uid)[0]]
    axis, outside = fitness_axis(values, np.r_[median, slot], layout.run.exact)
    rows, columns = np.nonzero(layout.table.copied)
    marks = [] if layout.crowded or not len(rows) else rings(layout.ends[rows], axis.place(values[rows, columns]))
    layers = [
        Stroke(charts.band(layout.ends, axis.place(worst), axis.place(best)), "band"),
        *member_lines(layout, values, axis),
        *marks,
        curve(layout, median, axis, "median"),
        curve(layout, slot, axis, "champion"),
    ]
    finding = f"The best member {went(best)}, the median of the population {went(median).removeprefix('went ')}."
    if np.isfinite(best).sum() == 1:
        finding = (
            f"Evaluated once: the best member has {text(np.nanmax(best))}, the median is {text(np.nanmax(median))}."
        )
    reading = prose("fitness", marked=bool(marks), copies=len(rows)) + outside
    lines = {"best": best, "median": median, "worst": worst, f"member {uid}, the champion": slot}
    keys = [("champion", f"member {uid}, the champion"), ("median", "median of the population")]
    keys += [("m", "each member"), ("band", "worst to best")] + ([("ring", "copied another")] if marks else [])
    title, view = "Fitness of every member", (axis, layers)
    drawn = figure(layout, title, finding, reading, lines, view, keys=keys, height=300, members="fitness")
    if (trust := reliability(layout.run)) is None:
        return [drawn]
    return [drawn, Figure("Evaluation noise", f"{trust.describe().capitalize()}.", prose("reliability"))]


def lineage(layout: Layout) -> list[Block]:
    """The learning curve of the champion’s weights, through all members that carried them."""
    if layout.run.champion is None:
        return [Figure("No champion yet", "No member has a finite fitness.", "There is nothing to draw.")]
    values, moves = layout.table.fitness, layout.run.moves
    uid, (rows, columns) = layout.run.champion[0], layout.run.trace
    along, slot = layout.run.along(values), values[:, columns[-1]]
    axis, _ = fitness_axis(values, np.r_[along, slot], layout.run.exact)
    layers = [
        *member_lines(layout, values, axis),
        curve(layout, slot, axis, "slot"),
        curve(layout, along, axis, "champion"),
        *handovers(layout, axis.place(along)),
    ]
    finding = f"Member {uid} never copied another: it trained its own weights throughout."
    if len(moves):
        times = "once" if len(moves) == 1 else f"{len(moves)} times"
        finding = (
            f"The champion’s weights passed through {many(len(set(columns.tolist())), 'member')}: "
            f"they were copied {times} and ended in member {uid}."
        )
    lines, title = {"lineage": along, f"member {uid} itself": slot}, "How the champion learned"
    keys = [("champion", "the champion’s lineage"), ("slot", f"member {uid} itself"), ("m", "each member")]
    keys += [("ring lead", "copied by another member")] if len(moves) else []
    carried = np.full(len(values), np.nan)
    carried[rows] = layout.table.uids[columns]
    below = _ribbon(layout) + numbers(layout, lines | {"carried by member": carried}, title)
    more: dict[str, Any] = {"keys": keys, "height": 300, "below": below, "members": "fitness"}
    return [figure(layout, title, finding, prose("lineage"), lines, (axis, layers), **more)]


def hyperparameters(layout: Layout) -> list[Block]:
    """Figures of hyperparameters that were tuned or changed; the others in a sentence."""
    run, copies, crowded = layout.run, layout.run.method.copies, layout.crowded
    known = {name: values[np.isfinite(values)] for name, values in run.lineage.hyper.items() if name not in run.space}
    known = {name: values for name, values in known.items() if len(values)}
    fixed = "; ".join(f"{n} {text(float(values[-1]))}" for n, values in known.items() if copies or np.ptp(values) == 0)
    note = [parts.reading(f"Not tuned: {fixed}.")] if fixed else []
    if run.method.sampled and (moved := _of_mean(layout)):
        return [moved, *note]
    if not run.space:
        chosen = ", ".join(name for name, values in known.items() if np.ptp(values) > 0)
        finding = f"All hyperparameters were fixed{f', except for {chosen}' if chosen else ' in this run'}."
        return [nothing("Nothing was tuned", finding), *note]
    kinds = {
        "champion": "the champion’s lineage" if copies else "the champion",
        "ring lead": "copied by another member" * copies,
        "m": "each member",
        "bound": "end of the range",
        "ring": "copied from another member" * (copies and not crowded),
        "dot lead" if crowded else "dot": "perturbed" * copies,
    }
    drawn = [_hyperparameter(layout, name) for name in run.space]
    return [parts.legend([key for key in kinds.items() if key[1]]), drawn, *note]


def _of_mean(layout: Layout) -> list[Figure]:
    """Figures of the hyperparameters that changed during the run, equal for all members."""
    drawn = []
    for name, values in layout.table.hyper.items():
        value = values[:, 0]
        known = value[np.isfinite(value)]
        if len(known) and np.ptp(known) > 0:
            axis, reading = Axis.over(value, pad=0.06), "The same for all members of a generation."
            lines = {name: ("median", value)}
            drawn += lines_figure(layout, name, f"It {went(value)}.", reading, lines, axis, stairs=True, height=220)
    return drawn


def _hyperparameter(layout: Layout, name: str) -> Figure:
    """One tuned hyperparameter over time, in its own scale and, where that is curved, in plain numbers too."""
    bounds, values = layout.run.space[name], layout.table.hyper[name]
    along = layout.run.along(values)
    lowest, median, highest = (quantile(values, q) for q in (0, 0.5, 1))
    known = along[np.isfinite(along)]
    finding, as_text, words = "There is no champion yet.", partial(layout.run.as_text, name), layout.run.words(name)
    who = "champion’s lineage" if layout.run.method.copies else "champion"
    if len(known):
        back = f"came back to {as_text(known[0])}, where it started" if known[0] == known[-1] else went(known, as_text)
        finding = f"The {who} {f'kept {as_text(known[0])}' if np.ptp(known) == 0 else back}."
    left = np.unique(values[-1][np.isfinite(values[-1])])
    if len(left) == 1:
        finding += f" At the end all members have {as_text(left[0])}."
    elif len(left) and words:
        finding += f" At the end members have {', '.join(map(as_text, left))}."
    elif len(left):
        finding += f" At the end all members lie between {text(left[0])} and {text(left[-1])}."
    ends = bounds.choices or tuple(b for b in (bounds.low, bounds.high) if b is not None)
    reading = prose("hyperparameter", ends=[*map(as_text, ends)], choices=bounds.choices, scale=bounds.scale)
    views = []
    for scale in dict.fromkeys(("linear",) if bounds.choices else (bounds.scale, "linear")):
        whole = bounds.integer and scale == "linear"
        kind = {"scale": scale, "choices": bounds.choices or (), "words": words, "whole": whole}
        axis = Axis.over(np.r_[values.ravel(), ends], "", 0.06, **kind)
        limits = axis.place(ends) if ends and not bounds.choices else np.empty(0)
        ticks = [tick for tick in axis.ticks() if np.abs(limits - tick[0]).min(initial=1) > 0.07]
        ticks += zip(limits.tolist(), map(text, ends), strict=False)
        later = np.append(axis.place(along)[1:], np.nan)  # a change shows at the start of the next step
        perturbed = np.append(np.diff(along) != 0, False)
        layers = [
            Stroke(charts.across(limits), "bound"),
            *member_lines(layout, values, axis, stairs=True),
            *([] if layout.crowded else _changes(layout, values, axis)),
            staircase(layout, along, axis, "champion"),
            *handovers(layout, later),
            Stroke(charts.dots(layout.ends[perturbed], later[perturbed]), "dot lead"),
        ]
        views.append((replace(axis, named=ticks), layers))
    lines = {who: along} | ({} if words else {"highest": highest, "median": median, "lowest": lowest})
    below = numbers(layout, lines, name, partial(layout.run.shown, name))
    return figure(layout, name, finding, reading, lines, *views, members=name, stairs=True, height=190, below=below)


def described(run: Run) -> dict[str, str]:
    """Descriptions of the recorded metrics of the method, by their names."""
    return {name: text for name, text in run.method.metric_descriptions.items() if name in run.metric_names}


def decisions(layout: Layout) -> list[Block]:
    """Each decision that a method recorded, over the generations."""
    drawn: list[Figure] = []
    for name, description in described(layout.run).items():
        heading, values = description[0].upper() + description[1:], layout.run.common(name)
        finding = _each_change(values, layout.table.counted)
        reading, axis = f"Decided after each generation; recorded as {name}.", Axis.over(np.r_[0, values], pad=0.06)
        lines = {description: ("median", values)}
        course = lines_figure(layout, heading, finding, reading, lines, axis, stairs=True, height=220)
        drawn += course or [Figure(heading, finding, reading)]
    return [drawn]


def _each_change(values: np.ndarray, generations: np.ndarray) -> str:
    """The course of a number: each change where there are few."""
    known = np.flatnonzero(np.isfinite(values))
    values, generations = values[known], generations[known]
    changed = np.flatnonzero(np.diff(values)) + 1
    if not len(known):
        return "It has no value yet."
    if not len(changed):
        return f"It was {text(float(values[0]))} throughout."
    if len(changed) <= LISTED:
        steps = ", ".join(f"{text(float(values[at]))} after generation {generations[at]:,}" for at in changed)
        return f"It was {text(float(values[0]))} at first, then {steps}."
    low, middle, high = (text(float(x)) for x in np.quantile(values, (0, 0.5, 1)))
    return f"It changed {many(len(changed), 'time')}, between {low} and {high}; the median is {middle}."


def throughput(layout: Layout) -> list[Block]:
    """Speed over time, and the phases in which the time went."""
    return [_speed(layout) + _phases(layout) or [nothing("No timing", "This run recorded no times.")]]


def _speed(layout: Layout) -> list[Figure]:
    speed = layout.run.timing("steps_per_second")
    if not np.isfinite(speed).any():
        return []
    axis = Axis.over(np.r_[0, speed], "steps per second", 0.04, short=True)
    finding = f"The median is {short(float(np.nanmedian(speed)))} environment steps per second, all members together."
    lines = {"steps per second": ("median", speed)}
    return lines_figure(layout, "Speed", finding, prose("speed"), lines, axis, height=220)


def _phases(layout: Layout) -> list[Figure]:
    seconds = {name: layout.run.timing(name) for name in PHASES}
    filled = np.nan_to_num(list(seconds.values()))
    if filled.sum() <= 0:
        return []
    shares = 100 * filled.sum(axis=1) / filled.sum()
    finding = f"{shares.max():.0f}% of the time went into “{PHASES[shares.argmax()]}”."
    reading = prose("phases", sampled=layout.run.method.sampled, copies=layout.run.method.copies)
    stack = np.cumsum([np.zeros(filled.shape[1]), *filled], axis=0)
    axis = Axis.over(np.r_[0, stack[-1]], "seconds", 0.04)
    kinds = [f"area c{at}" for at in (5, 1, 4, 0, 3)]
    bars = charts.areas(np.repeat(layout.borders, 2)[1:-1], np.repeat(axis.place(stack), 2, axis=1), kinds)
    keys = [(kind, f"{name} {share:.0f}%") for kind, name, share in zip(kinds, PHASES, shares, strict=True)]
    title, view = "Where the time went", (axis, bars)
    return [figure(layout, title, finding, reading, seconds, view, keys=keys, height=220, stairs=True)]


def fitness_axis(values: np.ndarray, keep: np.ndarray, exact: bool = False) -> tuple[Axis, str]:
    """The axis for fitness, and a sentence on what it leaves out: one collapse must not flatten all the rest.

    exact: fitness is minus exploitability, in decades from 0
    """
    if exact:
        every = np.r_[values.ravel(), keep]
        return Axis.over(every[every < 0], "minus exploitability", 0.04, scale="minus_log"), ""
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, [0.02, 0.98])
    room = 0.75 * (high - low)
    inside = finite[(finite >= low - room) & (finite <= high + room)]
    axis = Axis.over(np.r_[inside, keep], "fitness", 0.04)
    outside = int(((finite < axis.low) | (finite > axis.high)).sum())
    return axis, f" {many(outside, 'value')} far above or below the rest lie outside the figure." if outside else ""


def _changes(layout: Layout, values: np.ndarray, axis: Axis) -> list[Stroke]:
    """A ring where a member took over the value of another, a dot where a value was perturbed."""
    table = layout.table
    rows, columns = np.nonzero(table.origin[1:] >= 0)
    source = table.origin[1:][rows, columns]
    copied, perturbed = source != columns, table.explored[rows, columns]
    perturbed &= values[rows + 1, columns] != values[rows, source]
    x, y = layout.ends[rows], axis.place(values[rows + 1, columns])
    return [*rings(x[copied], y[copied]), Stroke(charts.dots(x[perturbed], y[perturbed]), "dot")]


def _ribbon(layout: Layout) -> Markup:
    """The members that carried the champion’s weights: one box per stretch."""
    rows, columns = layout.run.trace
    edges, starts = layout.edges(rows), np.flatnonzero(np.r_[True, columns[1:] != columns[:-1]])
    boxes = []
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        left, width, uid = edges[start], edges[end] - edges[start], str(layout.table.uids[columns[start]])
        word = uid if width > 0.012 * (len(uid) + 1) else ""
        boxes.append((100 * left, 100 * width, uid, word))
    return parts.ribbon(boxes)
