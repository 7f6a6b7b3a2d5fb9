"""Population-based bandits (PB2, arXiv 2002.02518): PBT that learns from all its copies which hyperparameters pay.

Every interval of a member is an observation: at that time, from that fitness, with these hyperparameters, fitness changed by
so much per step. What all members of a generation share, because it was measured on other episodes than the one before,
says nothing of hyperparameters: changes are seen against the median of their generation. They are standardised, and cut at
two deviations as in the published code; a member that diverged has the lowest of all.

A Gaussian process is fitted to the last of them (process.py), and a member that explores gets the hyperparameters with the
highest upper confidence bound at its parent's fitness, within a box around those of its parent (box.py); those chosen
before it, and those that others go on with, count as observed at their means, so that not all get the same. Numbers are
seen in the unit scale of their ranges; choices without an order as equal or not, as in the kernel of PB2-Mix (arXiv
2106.15883).
"""

from __future__ import annotations

import numpy as np

from shoal.core.evolution import Cards, Decision, Evolver, Explore, FirstValues, Range, Seed, Select
from shoal.core.keys import derive, draws
from shoal.methods.pb2.box import SIDE, around, resized
from shoal.methods.pb2.process import fitted, highest_bound
from shoal.methods.pbt.evolver import inherit, pbt, selected
from shoal.methods.ranges import places, values_at

STARTS = 10  # of the search for the highest bound
UNKNOWN = dict.fromkeys(("pb2/length", "pb2/forgetting", "pb2/noise"), np.nan)  # metrics while nothing is known
TIME, BEFORE, CHANGE, PLACES = 0, 1, 2, 3  # the columns of an observation; the last and those after it: the unit scale

# rows float64 [R, 3 + D]: the last R observations, NaN where there are fewer; the change of one that diverged is -inf. Of
# each member, in order of uid: before float64 [N], the fitness that it goes on from, NaN where it is unknown; since int64
# [N], its own steps at that time; tried bool [N], whether the bandit chose its hyperparameters. side: of the box
State = dict[str, np.ndarray]


def pb2(
    select: Select,
    explore: Explore,
    space: dict[str, Range],
    start: dict[str, float],
    start_after: int,
    rows: int,
    first_values: FirstValues = "range",
) -> Evolver:
    """The evolver. rows: how many observations are kept. The others are as those of `pbt`; `explore` is what children do
    while there are no more observations than hyperparameters, or none that differ."""
    beginning = pbt(select, explore, space, start, 0, first_values).init

    def init(key: Seed, uid: np.ndarray) -> tuple[State, dict[str, np.ndarray]]:
        return observations(len(uid), rows, len(space)), beginning(key, uid)[1]

    def decide(key: Seed, state: State, cards: Cards, mine: np.ndarray) -> tuple[State, Decision]:
        parents, explores = selected(select, key, cards, mine, start_after)
        state = observed(state, space, cards, mine)
        side = float(state["side"])
        wise, metrics = explorer(explore, state["rows"], space, cards, mine, parents, explores, side)
        hyper = inherit(wise, key, cards, mine, parents, explores, space)
        state = from_parents(state, cards, mine, parents, explores & (wise is not explore))
        return state, Decision(parents, hyper, {**metrics, "pb2/side": side})

    return Evolver(init, decide)


def observations(members: int, rows: int, hyperparameters: int) -> State:
    """Nothing observed yet."""
    nothing = np.full((rows, PLACES + hyperparameters), np.nan)
    return {
        "rows": nothing,
        "before": np.full(members, np.nan),
        "since": np.zeros(members, np.int64),
        "tried": np.zeros(members, bool),
        "side": np.array(SIDE),
    }


def observed(
    state: State, space: dict[str, Range], cards: Cards, mine: np.ndarray, who: np.ndarray | None = None
) -> State:
    """The state with what the members `mine` have made of the steps since they were last decided for, and the box after
    that. who: bool [N], those of them in order of uid that are looked at; by default all."""
    own = cards.take(mine[np.argsort(cards.uid[mine])])
    steps = np.maximum(own.steps - state["since"], 1)
    before = np.where(np.isfinite(state["before"]), state["before"], np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        change = np.where(np.isfinite(own.fitness), (own.fitness - before) / steps, -np.inf)
    seen = change < np.inf  # not where nothing is known of before
    seen &= True if who is None else who
    new = np.column_stack([own.generation, before, change, located(space, own.hyper, len(own.uid))])[seen]
    return state | {
        "rows": np.concatenate([state["rows"], new])[-len(state["rows"]) :],
        "side": resized(state["side"], gains(new)[state["tried"][seen]]),
    }


def gains(rows: np.ndarray) -> np.ndarray:
    """The changes [R] without what was common to their generations, of which it takes the median; -inf where one
    diverged."""
    change = rows[:, CHANGE].copy()
    finite = np.isfinite(change)
    for time in np.unique(rows[finite, TIME]):
        together = finite & (rows[:, TIME] == time)
        with np.errstate(over="ignore"):
            change[together] -= np.median(change[together])
    return change


def from_parents(state: State, cards: Cards, mine: np.ndarray, parents: np.ndarray, tried: np.ndarray) -> State:
    """The state in which members go on: a child from the fitness of its parent. tried: as in the state, in the order of
    `mine`."""
    order = np.argsort(cards.uid[mine])
    after = {"before": cards.fitness[parents[order]], "since": cards.steps[mine[order]], "tried": tried[order]}
    return state | after


def located(space: dict[str, Range], hyper: dict[str, np.ndarray], members: int) -> np.ndarray:
    """Where hyperparameters lie in the unit scale, float64 [N, D]."""
    return np.column_stack([np.empty((members, 0)), *(places(r, hyper[name]) for name, r in space.items())])


def explorer(
    explore: Explore,
    rows: np.ndarray,
    space: dict[str, Range],
    cards: Cards,
    mine: np.ndarray,
    parents: np.ndarray,
    explores: np.ndarray,
    side: float,
) -> tuple[Explore, dict[str, float]]:
    """What gives the members of `mine` that explore their hyperparameters: the bandit, or `explore` where it knows too
    little; and metrics of what it knows. rows: as in the state. side: of the box."""
    rows = rows[~np.isnan(rows[:, CHANGE])]
    y = _standardised(gains(rows))
    if not space or len(rows) <= len(space) or y is None:
        return explore, UNKNOWN
    fitness = cards.fitness[parents]
    known = np.append(rows[:, BEFORE], fitness)
    known = known[np.isfinite(known)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    now = float(cards.generation[mine].max()) + 1

    def features(before: np.ndarray, at: np.ndarray) -> np.ndarray:
        """What the process sees, [n, F]: fitness within [0, 1], then the hyperparameters, `at` in the unit scale."""
        known = np.where(np.isfinite(before), before, low)
        return np.column_stack([(known - low) / max(high - low, 1e-300), _apart(space, at)])

    process = fitted(features(rows[:, BEFORE], rows[:, PLACES:]), rows[:, TIME], y)
    staying = np.flatnonzero(~explores & np.isfinite(fitness))
    staying = staying[np.argsort(cards.uid[mine[staying]])]
    at = located(space, {name: x[mine[staying]] for name, x in cards.hyper.items()}, len(staying))
    for point in features(fitness[staying], at):
        process = process.expecting(point, now)
    numbers, choices = _columns(space)
    single = [not _unordered(r) for r in space.values()]
    fitness_of = dict(zip(cards.uid[mine].tolist(), fitness.tolist(), strict=True))

    def bandit(
        key: Seed, hyper: dict[str, np.ndarray], space: dict[str, Range], uid: np.ndarray
    ) -> dict[str, np.ndarray]:
        chosen, expected = np.empty((len(uid), len(space))), process
        for child in np.argsort(uid):
            u = draws(derive(key, "bandit"), uid[child : child + 1], STARTS * len(space)).reshape(STARTS, -1)
            below, above = around(space, {name: float(hyper[name][child]) for name in space}, side)
            at = below + u * (above - below)
            at = located(space, {n: values_at(r, at[:, i]) for i, (n, r) in enumerate(space.items())}, STARTS)
            starts = features(np.full(STARTS, fitness_of[int(uid[child])]), at)
            best = highest_bound(expected, starts, numbers, choices, now, (below[single], above[single]))
            expected = expected.expecting(best, now)
            chosen[child] = _together(space, best[1:])
        return hyper | {name: values_at(r, chosen[:, i]) for i, (name, r) in enumerate(space.items())}

    return bandit, {name: getattr(process, name.removeprefix("pb2/")) for name in UNKNOWN}


def _standardised(gains: np.ndarray) -> np.ndarray | None:
    """With mean 0 and deviation 1, cut at two deviations; what diverged is the lowest. None where all are alike."""
    finite = gains[np.isfinite(gains)]
    if not len(finite):
        return None
    y = np.maximum(gains, finite.min())
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = y.std()
    return np.clip((y - y.mean()) / deviation, -2, 2) if 0 < deviation < np.inf else None


def _apart(space: dict[str, Range], at: np.ndarray) -> np.ndarray:
    """Places in the unit scale [n, D], with a column for each of the choices that have no order, [n, F]: two different ones
    are at the distance 1."""
    columns = [np.empty((len(at), 0))]
    for z, r in zip(at.T, space.values(), strict=True):
        if _unordered(r):
            assert r.choices is not None
            columns.append(np.eye(len(r.choices))[np.rint(z * (len(r.choices) - 1)).astype(int)] / np.sqrt(2))
        else:
            columns.append(z[:, None])
    return np.concatenate(columns, 1)


def _together(space: dict[str, Range], point: np.ndarray) -> np.ndarray:
    """The places [D] of a point [F] of `_apart`, to four digits: processes whose sums differ in the last bits decide
    alike."""
    parts = np.split(point, np.cumsum(_widths(space))[:-1])
    return np.array([p.argmax() / (len(p) - 1) if len(p) > 1 else np.round(p[0], 4) for p in parts])


def _columns(space: dict[str, Range]) -> tuple[list[int], list[np.ndarray]]:
    """The features that are numbers, and those of each choice without an order; fitness is the first of all."""
    columns = np.split(1 + np.arange(_widths(space).sum()), np.cumsum(_widths(space))[:-1])
    unordered = [_unordered(r) for r in space.values()]
    numbers = [int(own[0]) for own, apart in zip(columns, unordered, strict=True) if not apart]
    return numbers, [own for own, apart in zip(columns, unordered, strict=True) if apart]


def _widths(space: dict[str, Range]) -> np.ndarray:
    return np.array([len(r.choices) if r.choices is not None and not r.ordered else 1 for r in space.values()])


def _unordered(r: Range) -> bool:
    return r.choices is not None and not r.ordered
