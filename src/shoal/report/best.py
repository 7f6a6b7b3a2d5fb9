"""The best hyperparameters: a file that trains one agent with them, their importance, and the values of all members."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import quote

import numpy as np

from shoal.core.errors import STRUCTURE
from shoal.core.schema import as_given
from shoal.core.yaml_text import plain, write_yaml
from shoal.experiment.experiment import Experiment
from shoal.records.words import short
from shoal.report import charts, effects, tables
from shoal.report.charts import Axis, Stroke
from shoal.report.effects import Effect
from shoal.report.layout import Layout
from shoal.report.lineage import inner
from shoal.report.rendering import Block, Figure, Markup, parts, prose
from shoal.report.run import Run
from shoal.report.schedule import shortest

FILE = "best.yaml"
# Fields of a run that say nothing of its agent, or that one agent has no use for.
LEFT_OUT = (
    *("hyper", "method", "population", "generations", "budget", "time_limit", "stop", "space", "seed"),
    *("shards", "exchange", "run_dir", "init_from", "checkpoint", "wandb"),
)
# Values that say nothing, of any field.
UNSET: tuple[Any, ...] = (None, {}, [], plain(as_given(Experiment().processes)))
SHADES = 4  # of the lines of members, by their fitness


def best(layout: Layout) -> list[Block]:
    """The best hyperparameters, their importance, and the values of all members; with the effects of values behind these."""
    found = effects.measured(layout)
    importance, *details = effects.effects(layout, found)
    bounds = [tables.bounds(layout.run)] if layout.run.method.copies else []
    first = [*([_file(layout.run)] if layout.run.champion and layout.run.experiment else []), importance]
    behind = Markup("").join(parts.block(block) for block in (*details, *bounds))
    folded = parts.folded(behind, "Gains by value, and values at the ends of their ranges")
    return [first, *_members(layout, found), *([folded] if behind else [])]


def single(run: Run) -> dict[str, Any]:
    """The experiment, as plain data, of one agent with the hyperparameters that the champion ended with."""
    end = tuple(at[-1] for at in run.trace)
    ended = {name: float(run.lineage.hyper[name][end]) for name in run.space}
    tuned = {name: shortest(value) for name, value in ended.items() if math.isfinite(value)}
    config = dict(inner(run.experiment, "config"))
    for name in [name for name in tuned if name.startswith(STRUCTURE)]:
        setting = name.removeprefix(STRUCTURE)
        config[setting] = config[setting]["choices"][int(tuned.pop(name) or 0)]
    kept = {name: value for name, value in run.experiment.items() if name not in LEFT_OUT and value not in UNSET}
    fixed = {"method": "independent", "population": 1, "space": {}}
    hyper, interval = run.experiment.get("hyper"), _interval(run)
    if interval > 0:
        fixed["generations"] = math.ceil(_steps(run) / interval)
    first = {name: kept.pop(name) for name in ("env", "agent") if name in kept}
    kept |= {"config": config} if config else {}
    return first | {"hyper": tuned | (hyper if isinstance(hyper, dict) else {})} | fixed | kept


def _steps(run: Run) -> float:
    """The most environment steps that any member made."""
    return float(np.nanmax(run.lineage.steps, initial=0))


def _interval(run: Run) -> float:
    """The environment steps of a member in the first generation: its interval, in whole rollouts or episodes."""
    return float(np.nanmax(run.lineage.steps[:1], initial=0))


def _file(run: Run) -> Figure:
    """The best hyperparameters as a file to copy, and the command that takes it."""
    words, steps = write_yaml(single(run)), _steps(run)
    finding = (
        f"shoal train {FILE} trains one agent with them{f' for {short(steps)} environment steps' if steps else ''}."
    )
    link = parts.save(f"data:application/yaml;charset=utf-8,{quote(words)}", FILE)
    return Figure("Best hyperparameters as an experiment file", finding, prose("best"), parts.pre(words, FILE), link)


def _members(layout: Layout, found: dict[str, Effect]) -> list[Figure]:
    """Parallel coordinates: a line for each member of the last generation, through its fitness and its values."""
    table, run, shown = layout.table, layout.run, layout.shown
    names = sorted(run.space, key=lambda name: -found[name].importance if name in found else 0)
    rows = {"fitness": (table.fitness[-1, shown], Axis.over(table.fitness[-1, shown], pad=0.03))}
    for name in names:
        values, bounds = table.hyper[name][-1, shown], run.space[name]
        ends = bounds.choices or [end for end in (bounds.low, bounds.high) if end is not None]
        rows[name] = values, Axis.over(np.r_[values, ends], pad=0.03, scale=bounds.scale, choices=bounds.choices or ())
    across = np.array([axis.place(values) for values, axis in rows.values()])
    known = np.flatnonzero(np.isfinite(across).all(0))
    if len(known) < 2:
        return []
    places = 1 - (np.arange(len(rows)) + 0.5) / len(rows)
    ranked = known[np.argsort(across[0, known], kind="stable")]  # the fittest on top
    champion = int(run.trace[1][-1]) if run.champion else -1
    strokes = [
        Stroke(charts.line(across[:, m], places), f"m shade{SHADES * at // len(ranked)}", int(m))
        for at, m in enumerate(ranked)
    ]
    strokes += [Stroke(charts.line(across[:, m], places), "champion") for m in known if shown[m] == champion]
    words = {
        name: f"{run.as_text(name, np.nanmin(v))} to {run.as_text(name, np.nanmax(v))}" for name, (v, _) in rows.items()
    }
    named = [(place, f"{name}\n{words[name]}") for place, name in zip(places.tolist(), rows, strict=True)]
    x, y = Axis(0, 1, named=()), Axis(0, 1, named=named)
    narrow = ", ".join(name for name in names if np.nanmin(rows[name][0]) == np.nanmax(rows[name][0]))
    finding = (
        f"All members hold the same {narrow}."
        if narrow
        else "From top to bottom: fitness, then hyperparameters by importance."
    )
    keys = parts.legend(
        [("champion", "the champion"), (f"m shade{SHADES - 1}", "the fittest quarter"), ("m shade0", "the least fit")]
    )
    title = "Fitness and values of the members"
    drawn = charts.plot(
        strokes, x, y, title, finding, height=24 + 52 * len(rows), style="--left:190px;--label:180px;"
    )  # fmt: skip
    held = [
        [int(table.uids[shown[m]]), *(run.shown(name, values[m]) for name, (values, _) in rows.items())]
        for m in ranked[::-1]
    ]
    listed = parts.folded(parts.table(["member", *rows], held, title))
    return [Figure(title, finding, prose("parallel"), keys, drawn, listed)]
