"""Population-based bandits (PB2, arXiv 2002.02518): PBT whose explored hyperparameters come from a bandit.

Every interval of a member is an observation: time, fitness at its start, hyperparameters, change of fitness per step.
Members of a generation are evaluated on the same episodes, which differ from those of the generation before. So the median
change of the generation is subtracted. Changes are then standardised, and cut at two standard deviations as in the published
code. A member that diverged has the lowest change.

A Gaussian process is fitted to the last observations (gaussian_process.py). A member that explores gets the hyperparameters
with the highest upper confidence bound at its parent's fitness, within a box around the parent's. Hyperparameters that are
chosen before, or that others keep, count as observed at their means, so that members choose different ones. Numbers are in
the unit scale of their ranges. Choices without an order are equal or not, as in the kernel of PB2-Mix (arXiv 2106.15883).

The upper bound is highest where there are no data: in many dimensions, at the edge of the space. So only a box around known
values is searched, as in TuRBO (arXiv 1910.01739) and BG-PBT (arXiv 2207.09405). Those grow it after some successes in a row
and shrink it after some failures. Here each child counts at once, as in the success rules of evolution strategies: the side
grows by a quarter where a child gains more than the median of its generation, and shrinks by a third where it gains less.
Two successes of three keep the side. Chance succeeds every second time, so it makes the box small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoal.core.errors import BadField, check_least
from shoal.core.keys import derive, draws
from shoal.core.population import Decision, Explore, Init, PopulationStats, PureEvolver, Seed, Values
from shoal.core.space import Range, SearchSpace
from shoal.methods.gaussian_process import fitted, highest_bound
from shoal.methods.pbt import Selecting, inherit
from shoal.methods.ranges import places, values_at

STARTS = 10  # of the search for the highest bound
UNKNOWN = dict.fromkeys(("pb2/length", "pb2/forgetting", "pb2/noise"), np.nan)  # metrics while nothing is known
TIME, BEFORE, CHANGE, PLACES = 0, 1, 2, 3  # the columns of an observation; the last and those after it: the unit scale

# Of the side, in the unit scale: at first, and its bounds. The smallest box moves a value as far as PBT's factors do; the
# whole space lies within the last one.
SIDE, SHORTEST, LONGEST, WHOLE = 0.2, 0.05, 1.6, 2.0
GROWTH, SHRINKAGE = 1.25, 2 / 3

# rows float64 [R, 3 + D]: the last R observations, NaN where there are fewer; the change of one that diverged is -inf. Of
# each member, in order of uid: before float64 [N], the fitness that it goes on from, NaN where it is unknown; since int64
# [N], its own steps at that time; tried bool [N], whether the bandit chose its hyperparameters. side: of the box
State = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Pb2(Selecting):
    """Population-based bandits: PBT whose explored hyperparameters come from a bandit.

    Weak members then give up their weights, copy those of a stronger member, and go on with the hyperparameters that
    promise most, by what the last intervals of members have gained with theirs. While there are no more of these than
    hyperparameters, or none that differ, `explore` changes values.
    """

    window: int = 100
    """the newest intervals of members, from which the bandit learns; more than there are hyperparameters"""

    rank_based = False
    title: ClassVar[str] = "population-based bandits"
    metric_descriptions: ClassVar[dict[str, str]] = {
        "pb2/length": "how far apart hyperparameters tell of one another, in shares of their ranges",
        "pb2/forgetting": "share of what was learned that one generation makes old",
        "pb2/noise": "what hyperparameters do not explain of the change of fitness, as a multiple of what they do",
        "pb2/side": "how wide the box is in which children's values are looked for, in shares of their ranges",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(2, self, "window")

    def initial_values(self, search: SearchSpace) -> Init:
        tuned = len(search.ranges)
        if self.window <= tuned:
            problem = f"must be more than the {tuned} hyperparameters of the space"
            raise BadField("method.window", problem, value=self.window)
        first = super().initial_values(search)

        def init(key: Seed, uid: np.ndarray) -> tuple[State, Values]:
            state = {
                "rows": np.full((self.window, PLACES + tuned), np.nan),
                "before": np.full(len(uid), np.nan),
                "since": np.zeros(len(uid), np.int64),
                "tried": np.zeros(len(uid), bool),
                "side": np.array(SIDE),
            }
            return state, first(key, uid)[1]

        return init

    def evolver(self, search: SearchSpace, population: int) -> PureEvolver:
        space = search.ranges

        def decide(key: Seed, state: State, stats: PopulationStats, rows: np.ndarray) -> tuple[State, Decision]:
            state = observed(state, space, stats, rows)
            parents, explores = self.selected(key, stats, rows)
            side = float(state["side"])
            wise, metrics = explorer(self.explore, state["rows"], space, stats, rows, parents, explores, side)
            hyper = inherit(wise, key, stats, rows, parents, explores, space)
            order, tried = np.argsort(stats.uid[rows]), explores & (wise is not self.explore)
            # A child goes on from the fitness of its parent.
            after = {"before": stats.fitness[parents[order]], "since": stats.steps[rows[order]], "tried": tried[order]}
            return state | after, Decision(parents, hyper, {**metrics, "pb2/side": side})

        return PureEvolver(self.initial_values(search), decide)


def observed(state: State, space: dict[str, Range], stats: PopulationStats, rows: np.ndarray) -> State:
    """Add to the state what the members at `rows` gained since the last decision about them, and resize the box."""
    own = stats.take(rows[np.argsort(stats.uid[rows])])
    steps = np.maximum(own.steps - state["since"], 1)
    before = np.where(np.isfinite(state["before"]), state["before"], np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        change = np.where(np.isfinite(own.fitness), (own.fitness - before) / steps, -np.inf)
    seen = change < np.inf  # not where nothing is known of before
    new = np.column_stack([own.generation, before, change, located(space, own.hyper, len(own.uid))])[seen]
    return state | {
        "rows": np.concatenate([state["rows"], new])[-len(state["rows"]) :],
        "side": resized(state["side"], gains(new)[state["tried"][seen]]),
    }


def gains(rows: np.ndarray) -> np.ndarray:
    """Return the changes [R] minus the median of their generations; -inf for members that diverged."""
    change = rows[:, CHANGE].copy()
    finite = np.isfinite(change)
    for time in np.unique(rows[finite, TIME]):
        together = finite & (rows[:, TIME] == time)
        with np.errstate(over="ignore"):
            change[together] -= np.median(change[together])
    return change


def resized(side: np.ndarray, gained: np.ndarray) -> np.ndarray:
    """Resize the side for children that gained so much more than the median of their generation, [N]; -inf: diverged."""
    wins, losses = np.sum(gained > 0), np.sum(gained < 0)
    return np.clip(side * GROWTH**wins * SHRINKAGE**losses, SHORTEST, LONGEST)


def around(space: dict[str, Range], hyper: dict[str, float], side: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the box, its lowest and highest places in the unit scale, [D] each.

    Whole numbers and ordered choices reach their neighbours at least; choices without an order are free.
    """
    centre, reach = np.empty(len(space)), np.full(len(space), side / 2)
    for i, (name, r) in enumerate(space.items()):
        x = hyper[name]
        below, centre[i], above = places(r, np.array([x - 1, x, x + 1]))
        if r.choices is not None:
            reach[i] = max(reach[i], 1 / (len(r.choices) - 1)) if r.ordered else 1
        elif r.integer:
            reach[i] = max(reach[i], centre[i] - below, above - centre[i])
    return np.maximum(centre - reach, 0), np.minimum(centre + reach, 1)


def located(space: dict[str, Range], hyper: Values, members: int) -> np.ndarray:
    """Positions of hyperparameters in the unit scale, float64 [N, D]."""
    return np.column_stack([np.empty((members, 0)), *(places(r, hyper[name]) for name, r in space.items())])


def explorer(
    explore: Explore,
    observations: np.ndarray,
    space: dict[str, Range],
    stats: PopulationStats,
    rows: np.ndarray,
    parents: np.ndarray,
    explores: np.ndarray,
    side: float,
) -> tuple[Explore, dict[str, float]]:
    """Return the explorer of the members at `rows` and its metrics: the bandit, or `explore` while it has too few data.

    observations: `rows` of the state. rows: the members to decide for. side: of the box
    """
    observations = observations[~np.isnan(observations[:, CHANGE])]
    y = _standardised(gains(observations))
    if not space or len(observations) <= len(space) or y is None:
        return explore, UNKNOWN
    fitness = stats.fitness[parents]
    known = np.append(observations[:, BEFORE], fitness)
    known = known[np.isfinite(known)]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    now = float(stats.generation[rows].max()) + 1

    def features(before: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Inputs of the process, [n, F]: fitness within [0, 1], then the hyperparameters, `at` in the unit scale."""
        known = np.where(np.isfinite(before), before, low)
        return np.column_stack([(known - low) / max(high - low, 1e-300), _apart(space, at)])

    process = fitted(features(observations[:, BEFORE], observations[:, PLACES:]), observations[:, TIME], y)
    staying = np.flatnonzero(~explores & np.isfinite(fitness))
    staying = staying[np.argsort(stats.uid[rows[staying]])]
    at = located(space, {name: x[rows[staying]] for name, x in stats.hyper.items()}, len(staying))
    for point in features(fitness[staying], at):
        process = process.expecting(point, now)
    columns = _columns(space)
    single = np.array([len(own) == 1 for own in columns])
    numbers, choices = [int(own[0]) for own in columns if len(own) == 1], [own for own in columns if len(own) > 1]
    fitness_of = dict(zip(stats.uid[rows].tolist(), fitness.tolist(), strict=True))

    def bandit(key: Seed, hyper: Values, space: dict[str, Range], uid: np.ndarray) -> Values:
        chosen, expected = np.empty((len(uid), len(space))), process
        for child in np.argsort(uid):
            u = draws(derive(key, "bandit"), uid[child : child + 1], STARTS * len(space)).reshape(STARTS, -1)
            below, above = around(space, {name: float(hyper[name][child]) for name in space}, side)
            at = below + u * (above - below)
            at = located(space, {n: values_at(r, at[:, i]) for i, (n, r) in enumerate(space.items())}, STARTS)
            starts = features(np.full(STARTS, fitness_of[int(uid[child])]), at)
            best = highest_bound(expected, starts, numbers, choices, now, (below[single], above[single]))
            expected = expected.expecting(best, now)
            chosen[child] = _together(columns, best)
        return hyper | {name: values_at(r, chosen[:, i]) for i, (name, r) in enumerate(space.items())}

    return bandit, {name: getattr(process, name.removeprefix("pb2/")) for name in UNKNOWN}


def _standardised(gains: np.ndarray) -> np.ndarray | None:
    """Standardise, cut at two standard deviations; diverged values are the lowest. None where all are alike."""
    finite = gains[np.isfinite(gains)]
    if not len(finite):
        return None
    y = np.maximum(gains, finite.min())
    with np.errstate(over="ignore", invalid="ignore"):
        std = y.std()
    return np.clip((y - y.mean()) / std, -2, 2) if 0 < std < np.inf else None


def _columns(space: dict[str, Range]) -> list[np.ndarray]:
    """Features of each hyperparameter: one, or as many as it has choices without an order. The first is fitness."""
    widths = [1 if r.choices is None or r.ordered else len(r.choices) for r in space.values()]
    return np.split(1 + np.arange(sum(widths)), np.cumsum(widths)[:-1])


def _apart(space: dict[str, Range], at: np.ndarray) -> np.ndarray:
    """Expand places in the unit scale [n, D] to features [n, F]: a column for each unordered choice, two of which are at
    distance 1."""
    parts = [np.empty((len(at), 0))]
    for z, own in zip(at.T, _columns(space), strict=True):
        k = len(own)
        parts.append(z[:, None] if k == 1 else np.eye(k)[np.rint(z * (k - 1)).astype(int)] / np.sqrt(2))
    return np.concatenate(parts, 1)


def _together(columns: list[np.ndarray], point: np.ndarray) -> np.ndarray:
    """Return the places [D] of a point with all features, rounded to four digits, so that all processes decide alike."""
    parts = [point[own] for own in columns]
    return np.array([p.argmax() / (len(p) - 1) if len(p) > 1 else np.round(p[0], 4) for p in parts])
