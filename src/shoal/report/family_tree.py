"""Descent in pictures: the family tree, whose families grew, how different the members remained."""

from __future__ import annotations

import numpy as np

from shoal.core.evolution import Range
from shoal.report import charts
from shoal.report.charts import Axis, line, path, scaled
from shoal.report.data import RunData, figure, folded, many, numbers, quantile

COLOURS = 7  # founders with a colour of their own; the rest are grey
EDGES = 900  # with more copies than that the tree shows survivors only


def tree(run_data: RunData) -> str:
    """Every member's line through the generations, and every copy from one line to another."""
    table = run_data.table
    if len(table.generations) == 1:
        return figure(
            "One generation", "Nobody has had the chance to copy yet.", "The tree starts with the second one."
        )
    crowded = bool(table.copied.sum() > EDGES)
    alive, rank, families = _survivors(run_data), _ranking(run_data), run_data.families
    x, y = run_data.count.place(table.generations), _by_kinship(run_data) if crowded else _by_member(run_data)
    layers = _branches(run_data, x, y, alive, rank)
    rows, columns = run_data.trace
    if len(rows) > 1:
        layers += [path(_route(x[rows], y[rows, columns]), "lead-line")]
        layers += [charts.rings(x[rows[-1:]], y[rows[-1:], columns[-1]], "lead")]
    living = sum(size > 0 for size in families.values())
    left = "one has" if living == 1 else f"{living} have"
    finding = f"Of {many(len(families), 'founder')}, {left} descendants at the end."
    if table.copied.sum() == 0:
        finding = "Nobody copied anybody: every member is its own founder."
    reading = (
        "Time runs to the right, one row per member. A line that bends into another row is a copy: that member went on "
        "with the weights of the row the line comes from. Bold lines lead to members of the last generation, pale ones "
        "died out. "
    )
    if crowded:
        reading = (
            "Time runs to the right. So many members copied one another that only the lines which lead to the last "
            "generation are drawn, close kin side by side: every fork is a copy that lasted, every end one member. "
        )
    reading += "Colour tells the founder from whom the weights descend; the boldest line is the champion’s lineage."
    names = [
        (f"kin c{rank[c]}", f"founder {table.uids[c]}: {f'{size} at the end' if size else 'died out'}")
        for c, size in families.items()
        if rank[c] < COLOURS and (size or not crowded)
    ]
    names += [("kin c7", "other founders")] if (living if crowded else len(families)) > COLOURS else []
    step = max(1, round(len(table.uids) / 26))
    ticks = (
        []
        if crowded
        else [(1 - (at + 0.5) / len(table.uids), str(table.uids[at])) for at in range(0, len(table.uids), step)]
    )
    # pointing needs every member's data in the page
    live = (
        run_data.live({}, by="generation", heights=y[run_data.rows].round(4))
        if len(run_data.shown) == len(table.uids)
        else None
    )
    axis = Axis(0, 1, "" if crowded else "member")
    height = int(np.clip((8 if crowded else 26) * len(table.uids), 140, 560))
    drawing = charts.plot(
        layers, run_data.count, axis, "Family tree", f"{finding} {reading}", live, height, y_ticks=ticks
    )
    keys = charts.legend([("lead-line", "the champion’s lineage"), *names])
    return figure("Family tree", finding, reading, keys, drawing, _table(run_data, families))


def shares(run_data: RunData) -> str:
    """The share of the population that descends from each founder."""
    table, rank = run_data.table, _ranking(run_data)
    if len(table.generations) == 1 or table.copied.sum() == 0:
        return ""
    colour = np.append(np.array([rank[column] for column in range(len(table.uids))]), -1)[table.founders]
    counts = np.array([(colour == kind).sum(axis=1) for kind in range(COLOURS + 1)]) / table.present.sum(axis=1)
    stack = np.cumsum(np.vstack([np.zeros(counts.shape[1]), counts]), axis=0)
    x = run_data.count.place(table.generations)
    layers = [path(charts.band(x, stack[kind], stack[kind + 1]), f"area c{kind}") for kind in range(COLOURS + 1)]
    families = run_data.families
    first = next(iter(families))
    share = 100 * families[first] / max(1, sum(families.values()))
    finding = f"At the end {share:.0f}% of the members descend from member {table.uids[first]}."
    reading = "The height of a colour is the share of the population that carries weights descending from that founder."
    names = {f"founder {table.uids[c]}": counts[rank[c]] for c in families if rank[c] < COLOURS}
    names |= {"others": counts[COLOURS]} if len(families) > COLOURS else {}
    live = run_data.live(names, by="generation")
    ticks = [(share / 4, f"{25 * share}%") for share in range(5)]
    keys = [(f"area c{rank[c]}", f"founder {table.uids[c]}") for c in families if rank[c] < COLOURS]
    keys += [("area c7", "others")] if len(families) > COLOURS else []
    drawing = charts.plot(layers, run_data.count, Axis(0, 1), "Families", finding, live, 220, y_ticks=ticks)
    return figure(
        "Whose family grew", finding, reading, charts.legend(keys), drawing, numbers(run_data, names, "Families")
    )


def founders(run_data: RunData) -> str:
    """How many founders live on."""
    table = run_data.table
    living = np.array([len(set(row[row >= 0].tolist())) for row in table.founders], float)
    axis = Axis.over(np.r_[0, living], "founders", 0.04, whole=True)
    alone = np.flatnonzero(living == 1)
    finding = f"{living[0]:.0f} founders began; at the end the population descends from {living[-1]:.0f} of them."
    if len(alone) and living[0] > 1:
        finding += f" Since generation {table.generations[alone[0]]} all share one ancestor."
    reading = (
        "Copying lets some families grow and others die out. A steep fall means that few starting points were given "
        "time; a level line means that the members hardly copied one another."
    )
    layers = [path(charts.stairs(run_data.edges(np.arange(len(living))), axis.place(living)), "median")]
    lines = {"founders": living}
    live = run_data.live(lines, stairs=True)
    drawing = charts.plot(layers, run_data.time, axis, "Founders with living descendants", finding, live, 240)
    return figure("Founders that live on", finding, reading, drawing, numbers(run_data, lines, "Founders that live on"))


def spread(run_data: RunData) -> str:
    """How far the members' hyperparameters lie apart."""
    ranges = {name: r for name, r in run_data.run.space.items() if not r.choices or r.ordered}
    lines = {name: _deviation(run_data.table.hyper[name], r) for name, r in ranges.items()}
    lines = {name: values for name, values in lines.items() if np.isfinite(values).any()}
    if not lines:
        return ""
    axis = Axis.over(np.r_[0, 0.3, np.concatenate(list(lines.values()))], "spread", 0.04)
    even = f"M0 {round(charts.HEIGHT * (1 - float(axis.place(12**-0.5))))}h{charts.WIDTH}"
    kinds = [f"curve c{at % COLOURS} d{at // COLOURS % 3}" for at in range(len(lines))]
    layers = [path(even, "bound")]
    layers += [path(line(run_data.ends, axis.place(v)), kind) for kind, v in zip(kinds, lines.values(), strict=True)]
    last = {name: float(values[-1]) for name, values in lines.items() if np.isfinite(values[-1])}
    finding = "The last generation has no values."
    if last:
        low, high = min(last, key=lambda name: last[name]), max(last, key=lambda name: last[name])
        finding = (
            f"At the end the members agree most on {low}, where their spread is {100 * last[low]:.0f}% of the range"
        )
        finding += f", and least on {high}, {100 * last[high]:.0f}%." if high != low else "."
    reading = (
        "Each line is the standard deviation of one hyperparameter over the members, counted in its own scale as a "
        "share of its range. Values spread evenly over the range give 0.29, the dotted line; 0: all are equal."
    )
    drawing = charts.plot(layers, run_data.time, axis, "Spread of hyperparameters", finding, run_data.live(lines), 240)
    keys = charts.legend(zip(kinds, lines, strict=True))
    return figure("Spread of hyperparameters", finding, reading, keys, drawing, numbers(run_data, lines, "Spread"))


def _deviation(values: np.ndarray, bounds: Range) -> np.ndarray:
    """[G] Standard deviation over members as a share of the range, or of all values seen where there is none."""
    choices = bounds.choices or ()
    counted = scaled(values, bounds.scale, choices)
    ends = scaled([np.nan if end is None else end for end in (bounds.low, bounds.high)], bounds.scale)
    if choices:
        ends = np.array([0, len(choices) - 1])
    elif not np.isfinite(ends).all():
        ends = np.array([np.nanmin(quantile(counted, 0)), np.nanmax(quantile(counted, 1))])
    result, some = np.full(len(values), np.nan), np.isfinite(counted).any(axis=1)
    if ends[1] > ends[0]:
        result[some] = np.nanstd(counted[some], axis=1) / (ends[1] - ends[0])
    return result


def _by_member(run_data: RunData) -> np.ndarray:
    """[G, N] One row for each member, the first on top."""
    rows = 1 - (np.arange(len(run_data.table.uids)) + 0.5) / len(run_data.table.uids)
    return np.where(run_data.table.present, rows, np.nan)


def _by_kinship(run_data: RunData) -> np.ndarray:
    """[G, N] The members of the last generation so that kin are neighbours, their ancestors in the middle of them."""
    table = run_data.table
    leaves = np.flatnonzero(table.present[-1])
    ancestors = np.full((len(table.generations), len(leaves)), -1)
    ancestors[-1] = leaves
    for row in range(len(ancestors) - 1, 0, -1):
        known = ancestors[row] >= 0
        ancestors[row - 1, known] = table.origin[row, ancestors[row, known]]
    places = np.empty(len(leaves))
    places[np.lexsort(ancestors[::-1])] = 1 - (np.arange(len(leaves)) + 0.5) / len(leaves)
    heights = np.full(table.present.shape, np.nan)
    for row, columns in enumerate(ancestors):
        known = columns >= 0
        size = np.bincount(columns[known], minlength=len(table.uids))
        total = np.bincount(columns[known], places[known], minlength=len(table.uids))
        heights[row, size > 0] = total[size > 0] / size[size > 0]
    return heights


def _branches(run_data: RunData, x: np.ndarray, y: np.ndarray, alive: np.ndarray, rank: dict[int, int]) -> list[str]:
    """The lines from parents to children, level ones joined: one path for each colour, the survivors' on top."""
    table, strokes = run_data.table, dict[tuple[bool, int], list[str]]()
    begin = np.zeros(len(table.uids), int)  # the row at which a member's level line began

    def level(column: int, kind: tuple[bool, int], end: int) -> None:
        if begin[column] < end:
            strokes.setdefault(kind, []).append(line(x[[begin[column], end]], y[[end, end], column]))

    kinds: dict[int, tuple[bool, int]] = {}
    for row in range(1, len(x)):
        begun, now = np.full(len(table.uids), row), dict[int, tuple[bool, int]]()
        going = set()
        for column in np.flatnonzero((table.origin[row] >= 0) & np.isfinite(y[row])).tolist():
            source, kind = int(table.origin[row, column]), (bool(alive[row, column]), rank[table.founders[row, column]])
            now[column] = kind
            if abs(y[row, column] - y[row - 1, source]) < 1e-9:
                same = kinds.get(source) == kind and source not in going
                begun[column] = begin[source] if same else row - 1
                going |= {source} if same else set()
            else:
                bow = charts.curve(x[row - 1], y[row - 1, source], x[row], y[row, column])
                strokes.setdefault(kind, []).append(bow)
        for column, kind in kinds.items():
            if column not in going:
                level(column, kind, row - 1)
        begin, kinds = begun, now
    for column, kind in kinds.items():
        level(column, kind, len(x) - 1)
    return [
        path("".join(parts), f"{'kin' if living else 'lost'} c{colour}")
        for (living, colour), parts in sorted(strokes.items(), key=lambda item: (item[0][0], -item[0][1]))
    ]


def _route(x: np.ndarray, y: np.ndarray) -> str:
    """Path data of one lineage from place to place."""
    return "".join(charts.curve(*places) for places in zip(x[:-1], y[:-1], x[1:], y[1:], strict=True))


def _survivors(run_data: RunData) -> np.ndarray:
    """bool [G, N]: does any member of the last generation descend from this one?"""
    alive = np.zeros_like(run_data.table.present)
    alive[-1] = run_data.table.present[-1]
    for row in range(len(alive) - 1, 0, -1):
        source = run_data.table.origin[row, alive[row]]
        alive[row - 1, source[source >= 0]] = True
    return alive


def _ranking(run_data: RunData) -> dict[int, int]:
    """The colour of every founder's column."""
    order = {column: min(at, COLOURS) for at, column in enumerate(run_data.families)}
    return {column: order.get(column, COLOURS) for column in range(len(run_data.table.uids))} | {-1: COLOURS}


def _table(run_data: RunData, families: dict[int, int]) -> str:
    """Founders and their descendants, in words."""
    life = [(run_data.table.founders == column).any(axis=1) for column in families]
    rows = [
        [int(run_data.table.uids[column]), size, int(run_data.table.generations[np.flatnonzero(lived)[-1]])]
        for (column, size), lived in zip(list(families.items())[:60], life[:60], strict=True)
    ]
    inner = charts.table(["founder", "descendants at the end", "last generation with any"], rows, "Founders")
    return folded(inner)
