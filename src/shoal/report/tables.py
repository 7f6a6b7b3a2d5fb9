"""The tables of a report: values at their bounds, and the last generation."""

from __future__ import annotations

import numpy as np

from shoal.core.errors import shortened
from shoal.core.space import Range
from shoal.records.words import duration, short, text
from shoal.report.charts import scaled
from shoal.report.layout import Layout, ends
from shoal.report.lineage import count, inner, number
from shoal.report.rendering import Block, Figure, parts, prose
from shoal.report.run import Run

NEAR = 0.01  # of the range, in its own scale: that close to a bound counts as sitting on it
OFTEN = 0.25  # a share of members on a bound that calls for a wider range
LISTED = 200  # members in the last table
COLUMNS = 10  # processes that made a run, of which there is a column


def bounds(run: Run) -> Block:
    """Hyperparameters whose values are at the bounds of their ranges, with advice."""
    rows, wanted = [], []
    last = slice(-max(1, len(run.lineage.generations) // 4), None)
    for name, bounds in run.space.items():
        if not (shares := _at_bounds(run.lineage.hyper[name][last], bounds)):
            continue
        low, high = shares
        sides = [side for side, share in (("downwards", low), ("upwards", high)) if share >= OFTEN]
        if sides:
            wanted.append(name)
        advice = f"Widen the range {' and '.join(sides)}, if the value allows it." if sides else "Fine as it is."
        least, *_, most = bounds.choices or (bounds.low, bounds.high)
        allowed = f"{text(float(least or 0))} to {text(float(most or 0))}"
        drawn = parts.share(100 * low, 100 * high)
        rows.append([name, allowed, drawn, f"{100 * low:.0f}%", f"{100 * high:.0f}%", advice])
    if not rows:
        return parts.empty("No tuned hyperparameter has bounds.")
    finding = f"{', '.join(wanted)}: a wider range is worth a try." if wanted else "No hyperparameter is at its bounds."
    heads = ["hyperparameter", "range", "lower – upper", "at the lower bound", "at the upper bound", "advice"]
    reading = prose("bounds", near=f"{100 * NEAR:.0f}%", often=f"{100 * OFTEN:.0f}%")
    listed = parts.table(heads, rows, "Members at the bounds of their ranges", "bounds")
    return Figure("Values at the bounds of their ranges", finding, reading, listed)


def workers(layout: Layout) -> list[Block]:
    """A row for each worker of a workspace, with its champion."""
    rows, run = [], layout.run
    for worker in run.workers:
        table, result = worker.lineage, worker.result
        last = table.fitness[-1:][np.isfinite(table.fitness[-1:])]
        copies = [table.copied, table.foreign] if run.method.copies else []
        selected = number(inner(result, "champion").get("selection_fitness"))
        mean, error = (text(number(worker.tested.get(name))) for name in ("mean", "standard_error"))
        score = mean if run.exact else f"{mean} ± {error}"
        rows.append(
            [
                worker.name, score, selected, float(last.max()) if len(last) else np.nan,
                f"{len(table.generations):,}", *(f"{int(copied.sum()):,}" for copied in copies),
                short(count(result.get("environment_steps"))),
                *(duration(number(result.get(name))) for name in ("seconds", "compile_seconds")),
                str(result.get("status") or "no result yet"),
            ]
        )  # fmt: skip
    heads = ["worker", "champion", "when selected", "last best", "generations"]
    heads += [*(["copies", "from other workers"] if run.method.copies else []), "steps", "time", "compiling", "state"]
    name = run.champion and run.worker_of(run.champion[0])
    found = f"The champion comes from worker {name}." if name else "All workers have one champion."
    finding = found if run.champion else "No worker has a champion yet."
    listed = parts.table(heads, rows, "Workers")
    return [
        Figure("What each worker did", finding, prose("workers", copies=run.method.copies, exact=run.exact), listed)
    ]


def provenance(layout: Layout) -> list[Block]:
    """Provenance: a column for each process that has trained the run, one after another."""
    heads, columns, run = [""], [], layout.run
    for worker in run.workers or (run,):
        for line in worker.provenance[-COLUMNS:]:
            of, first = f"{worker.name}, " * bool(run.workers), text(number(line.get("generation")) + 1)
            heads.append(f"{of}from generation {first}")
            if line.get("clean") is False:
                line = line | {"commit": f"{line.get('commit')}, with changes"}
            columns.append({k: x for k, x in line.items() if k != "versions"} | inner(line, "versions"))
    names = dict.fromkeys(name for line in columns for name in line if name not in ("generation", "clean"))
    rows = [[name, *(shortened(str(line.get(name, "–"))) for line in columns)] for name in names]
    return [parts.table(heads, rows, "Provenance")]


def _at_bounds(values: np.ndarray, bounds: Range) -> tuple[float, float] | None:
    """Shares of values at the lower and at the upper end; None where there are no ends."""
    counted, (low, high) = scaled(values[np.isfinite(values)], bounds.scale, bounds.choices or ()), ends(bounds)
    if (bounds.choices and not bounds.ordered) or not (len(counted) and low < high):
        return None
    near = 1e-6 if bounds.integer or bounds.choices else NEAR * (high - low)
    return float((counted <= low + near).mean()), float((counted >= high - near).mean())


def members(layout: Layout) -> list[Block]:
    """The last generation as a table that sorts."""
    table, tuned, champion = layout.table, list(layout.run.space), layout.run.champion
    columns = np.flatnonzero(table.present[-1])
    columns = columns[np.argsort(-np.nan_to_num(table.fitness[-1, columns], nan=-np.inf), kind="stable")]
    descent: dict[str, np.ndarray] = {}
    if layout.run.method.copies:
        parents = table.parents[table.copied]  # in the last generation too, after which nobody has a row
        parents = parents[np.isin(parents, table.uids)]  # others are of workers that have no rows here
        given = np.bincount(np.searchsorted(table.uids, parents), minlength=len(table.uids))
        founders = table.uids[table.founders[-1]]
        descent = {"founder": founders, "copied": table.copied.sum(axis=0), "was copied": given}
    over = {} if layout.run.exact else {"std over episodes": table.returns_std}
    place = {int(column): at for at, column in enumerate(layout.shown)}
    rows, marks = list[list[float | str]](), {}
    for column in columns[:LISTED].tolist():
        fitness, *std = (float(values[-1, column]) for values in (table.fitness, *over.values()))
        hyper = [layout.run.shown(name, table.hyper[name][-1, column]) for name in tuned]
        uid = int(table.uids[column])
        rows.append([uid, fitness, *std, *(int(values[column]) for values in descent.values()), *hyper])
        first = champion is not None and champion[0] == uid
        marks[len(rows) - 1] = {"data-m": place.get(column), "class": "first" if first else None}
    heads = ["member", "fitness", *over, *descent, *tuned]
    rest = [parts.reading(f"And {len(columns) - LISTED:,} more.")] if len(columns) > LISTED else []
    listed = parts.table(heads, rows, "Members of the last generation", "sortable", marks)
    return [parts.reading(prose("members", copies=bool(descent), exact=layout.run.exact)), listed, *rest]


def payoffs(layout: Layout) -> list[Block]:
    """The payoffs of the last members of a game against one another."""
    given = inner(layout.run.result, "payoffs")
    uids = [f"member {uid}" for uid in given.get("uid", [])]
    matrix = np.array(given.get("mean", []), float).reshape(len(uids), -1)
    width = float(np.abs(matrix).max(initial=0)) or 1.0
    words = [[text(x) for x in row] for row in matrix.tolist()]
    titles = [
        [f"{one} wins {x} against {other}" for other, x in zip(uids, row, strict=True)]
        for one, row in zip(uids, words, strict=True)
    ]
    beaten = int((matrix > 0).sum(1).max(initial=0))
    finding = (
        f"The strongest member wins against {beaten} of the other {len(uids) - 1}."
        if len(uids) > 1
        else "One member is left."
    )
    drawn = parts.heat(0.5 + matrix / width / 2, uids, uids, titles, "Head-to-head payoffs of the members.", words)
    return [Figure("Head-to-head payoffs", finding, prose("payoffs"), drawn)]
