"""The family tree, and the descendants of each founder over time."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np

from shoal.records.words import many
from shoal.report import charts
from shoal.report.charts import PERCENT, Axis, Stroke, line
from shoal.report.layout import Layout
from shoal.report.over_time import figure
from shoal.report.rendering import Block, Figure, Markup, parts, prose
from shoal.report.run import Run

COLOURS = 7  # founders with a colour of their own; the rest are grey
EDGES = 900  # with more copies than that the tree shows survivors only


def tree(layout: Layout) -> list[Block]:
    """The family tree: every member's line through the generations, and every copy from one line to another."""
    table, (rows, columns) = layout.table, layout.run.trace
    if len(table.generations) == 1:
        finding = "No member can have copied another yet."
        return [Figure("One generation", finding, "The tree starts with the second one.")]
    crowded = bool(table.copied.sum() > EDGES)
    rank, families = _ranking(layout), _families(layout.run)
    x, y = layout.count.place(table.counted), _by_kinship(layout) if crowded else _by_member(layout)
    layers = _branches(layout, x, y, rank)
    if len(rows) > 1:
        layers += [Stroke(_route(x[rows], y[rows, columns]), "champion")]
        layers += charts.rings(x[rows[-1:]], y[rows[-1:], columns[-1]], "lead")
    surviving = sum(size > 0 for size in families.values())
    left = "one has" if surviving == 1 else f"{surviving} have"
    finding = f"Of {many(len(families), 'founder')}, {left} descendants at the end."
    if table.copied.sum() == 0:
        finding = "Nobody copied anybody: every member is its own founder."
    keys = [("champion", "the champion’s lineage")]
    keys += [
        (f"kin c{rank[c]}", f"founder {table.uids[c]}: {f'{size} at the end' if size else 'died out'}")
        for c, size in families.items()
        if rank[c] < COLOURS and (size or not crowded)
    ]
    keys += [("kin c7", "other founders")] if (surviving if crowded else len(families)) > COLOURS else []
    count, step = len(table.uids), max(1, round(len(table.uids) / 26))
    labels = [(1 - (at + 0.5) / count, str(table.uids[at])) for at in range(0, count, step)]
    axis = Axis(0, 1, named=()) if crowded else Axis(0, 1, "member", named=labels)
    height = int(np.clip((8 if crowded else 26) * count, 140, 560))
    pointed: dict[str, np.ndarray] | None = {} if len(layout.shown) == count else None  # needs the data of every member
    more: dict[str, Any] = {"by_generation": True, "below": _table(layout), "heights": y[layout.rows].round(4)}
    reading, view = prose("tree", crowded=crowded), (axis, layers)
    return [
        figure(layout, "Family tree", finding, reading, pointed, view, keys=keys, height=height, **more),
        *_shares(layout),
    ]


def _shares(layout: Layout) -> list[Figure]:
    """The share of the population that descends from each founder."""
    table, rank, families = layout.table, _ranking(layout), _families(layout.run)
    if len(table.generations) == 1 or table.copied.sum() == 0:
        return []
    colour = np.where(table.founders < 0, -1, rank[table.founders])
    counts = np.array([(colour == kind).sum(axis=1) for kind in range(COLOURS + 1)]) / table.present.sum(axis=1)
    stack = np.cumsum([np.zeros(counts.shape[1]), *counts], axis=0)
    kinds = [f"area c{kind}" for kind in range(COLOURS + 1)]
    layers = charts.areas(layout.count.place(table.counted), stack, kinds)
    largest = max(families, key=lambda column: families[column])
    share = 100 * families[largest] / max(1, sum(families.values()))
    finding = f"At the end {share:.0f}% of the members descend from member {table.uids[largest]}."
    surviving = np.array([len({*row} - {-1}) for row in table.founders.tolist()])
    if surviving[0] > 1 and (surviving == 1).any():
        finding += f" Since generation {table.counted[(surviving == 1).argmax()]} all share one ancestor."
    names = {f"founder {table.uids[c]}": rank[c] for c in families if rank[c] < COLOURS}
    names |= {"others": COLOURS} if len(families) > COLOURS else {}
    lines, keys = {name: counts[at] for name, at in names.items()}, [(kinds[at], name) for name, at in names.items()]
    view, more = (Axis(0, 1, named=PERCENT), layers), dict[str, Any](height=220, by_generation=True)
    return [figure(layout, "Descendants of each founder", finding, prose("families"), lines, view, keys=keys, **more)]


def _by_member(layout: Layout) -> np.ndarray:
    """[G, N] One row for each member, the first on top."""
    rows = 1 - (np.arange(len(layout.table.uids)) + 0.5) / len(layout.table.uids)
    return np.where(layout.table.present, rows, np.nan)


def _by_kinship(layout: Layout) -> np.ndarray:
    """[G, N] The members of the last generation, and the champion where its line has died out, so that kin are neighbours;
    their ancestors in the middle of them."""
    table, (rows, columns) = layout.table, layout.run.trace
    ancestors = table.descent(len(table.generations) - 1)[:, table.present[-1]]
    if len(rows) and columns[-1] not in ancestors[rows[-1]]:
        champion = np.full(len(ancestors), -1)
        champion[rows] = columns
        ancestors = np.c_[ancestors, champion]
    count = ancestors.shape[1]
    places = np.empty(count)
    places[np.lexsort(ancestors[::-1])] = 1 - (np.arange(count) + 0.5) / count
    heights = np.full(table.present.shape, np.nan)
    for row, columns in enumerate(ancestors):
        known = columns >= 0
        size = np.bincount(columns[known], minlength=len(table.uids))
        total = np.bincount(columns[known], places[known], minlength=len(table.uids))
        heights[row, size > 0] = total[size > 0] / size[size > 0]
    return heights


def _branches(layout: Layout, x: np.ndarray, y: np.ndarray, rank: np.ndarray) -> list[Stroke]:
    """The lines from parents to children, level ones joined: one path for each colour, the survivors' on top."""
    table = layout.table
    descent, surviving = table.descent(len(x) - 1), np.zeros(y.shape, bool)
    known = descent >= 0
    surviving[np.nonzero(known)[0], descent[known]] = True
    kinds = surviving * (COLOURS + 1) + COLOURS - rank[table.founders]  # in the order in which they are drawn
    drawn = (table.origin >= 0) & np.isfinite(y)
    own = drawn & (table.origin == np.arange(len(table.uids)))
    level = np.where(own & (np.abs(np.diff(y, axis=0, prepend=np.nan)) < 1e-9), kinds, -1)
    strokes = defaultdict[int, list[str]](list)
    for row, column in np.argwhere(drawn & (level < 0)).tolist():
        above, parent = (of[row, column] for of in table.sources)  # further up where its worker was behind
        bow = charts.curve(x[above], y[above, parent], x[row], y[row, column])
        strokes[kinds[row, column]].append(bow)
    for column, of in enumerate(level.T):
        for begin, end in pairwise(np.flatnonzero(np.diff(of, prepend=-1, append=-1))):
            if of[begin] >= 0:
                ends = [begin - 1, end - 1]
                strokes[of[begin]].append(line(x[ends], y[ends, column]))
    names = {kind: "kin" if kind > COLOURS else "lost" for kind in sorted(strokes)}
    looks = {kind: f"{name} c{COLOURS - kind % (COLOURS + 1)}" for kind, name in names.items()}
    return [Stroke("".join(strokes[kind]), of) for kind, of in looks.items()]


def _route(x: np.ndarray, y: np.ndarray) -> str:
    """Path data of one lineage from place to place."""
    return "".join(charts.curve(*places) for places in zip(x[:-1], y[:-1], x[1:], y[1:], strict=True))


def _ranking(layout: Layout) -> np.ndarray:
    """int64 [N] The colour of every founder's column."""
    rank, first = np.full(len(layout.table.uids), COLOURS), list(_families(layout.run))[:COLOURS]
    rank[first] = np.arange(len(first))
    return rank


def _table(layout: Layout) -> Markup:
    """Founders and their descendants, in words."""
    rows = []
    for column, size in list(_families(layout.run).items())[:60]:
        lived = layout.table.counted[(layout.table.founders == column).any(axis=1)]
        rows.append([int(layout.table.uids[column]), size, int(lived[-1])])
    heads = ["founder", "descendants at the end", "last generation with any"]
    return parts.folded(parts.table(heads, rows, "Founders"))


def _families(run: Run) -> dict[int, int]:
    """Founders (columns) and their descendants in the last generation: the champion's, then the largest first."""
    found, (rows, columns) = run.lineage.founders, run.trace
    champion = int(found[rows[-1], columns[-1]]) if len(rows) else -1
    founders = np.unique(found[found >= 0]).tolist()
    size = {column: int((found[-1] == column).sum()) for column in founders}
    life = {column: int((found == column).any(axis=1).sum()) for column in founders}
    order = sorted(founders, key=lambda column: (column != champion, -size[column], -life[column], column))
    return {column: size[column] for column in order}
