"""Gains of fitness by the values of a hyperparameter, and a permutation test of their differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from shoal.core.space import Range
from shoal.report import charts
from shoal.report.charts import Axis, Stroke, scaled, spaced
from shoal.report.layout import Layout, ends
from shoal.report.lineage import Lineage
from shoal.report.over_time import nothing
from shoal.report.rendering import Figure, Markup, parts, prose

PARTS = 5  # of the values, from the lowest to the highest: the means of their gains are compared
SHUFFLES = 600
LEAST = 3  # members that a generation needs, and values
LUCK = 0.03  # level of the test; explorers are uneven, so that its error rate is up to 0.05
STEPS = 5000  # members times generations that are looked at
DRAWN = 600  # of them as dots
PLACES = [(0.0, "least"), (0.5, "middle"), (1.0, "most")]


@dataclass(frozen=True)
class Effect:
    """Gains of S steps of members, by the value that each was made with; in P parts, mostly of equal size."""

    values: np.ndarray  # float [S]
    gains: np.ndarray  # float [S] see `gains`
    centres: np.ndarray  # float [P] the median value of each part
    means: np.ndarray  # float [P] its mean gain
    chance: np.ndarray  # float [2, P] 95 % band of such means in the permutations
    importance: float  # the share of the variance of gains that lies between the parts
    by_chance: float  # 95 % quantile of the importance in the permutations
    p: float  # p-value: the share of permutations in which the means differ at least as much; see `_dealt`


def measured(layout: Layout) -> dict[str, Effect]:
    """Effects of the tuned hyperparameters; those with too few values are left out."""
    gained = gains(layout.table, alike=not layout.run.experiment.get("init_from"))
    found = {name: measure(layout.table, gained, name, bounds) for name, bounds in layout.run.space.items()}
    return {name: effect for name, effect in found.items() if effect}


def effects(layout: Layout, found: dict[str, Effect]) -> list[Figure]:
    """The importance of each hyperparameter, and behind it a figure of gains by its values."""
    title = "Importance"
    if not found:
        return [nothing(title, f"This needs {LEAST} members with different values, and several generations.")]
    clear = {name: effect.p * len(found) <= LUCK for name, effect in found.items()}  # Bonferroni's correction
    clearly, unclear = ([name for name in found if clear[name] is which] for which in (True, False))
    finding = "No hyperparameter has a significant effect (permutation test)."
    if clearly:
        finding = f"Significant (permutation test): {', '.join(clearly)}."
    if clearly and unclear:
        finding += f" Not significant: {', '.join(unclear)}."
    ranked = sorted(found.items(), key=lambda item: -item[1].importance)
    most = max(1e-9, *(max(effect.importance, effect.by_chance) for effect in found.values()))
    bars = [
        (name, 100 * effect.importance / most, 100 * effect.by_chance / most, f"{effect.importance:.1%}", clear[name])
        for name, effect in ranked
    ]
    shares = [[name, effect.importance, effect.by_chance] for name, effect in ranked]
    ranking = parts.folded(
        parts.table(["hyperparameter", "share of the variance", "95% quantile of permutations"], shares, title)
    )
    importance = Figure(title, finding, prose("importance", shuffles=SHUFFLES), parts.bars(bars), ranking)
    reading = prose("effects", shuffles=SHUFFLES, copies=layout.run.method.copies)
    keys = [("median", "mean gain"), ("band", "95% band of permutations"), ("dot m", "a member in a generation")]
    drawn = [_plot(layout, name, effect, clear[name]) for name, effect in found.items()]
    heads = ["hyperparameter", "around", "mean gain", "95% band, from", "to"]
    rows = [
        [name, layout.run.shown(name, centre), *map(float, row)]
        for name, effect in found.items()
        for centre, *row in zip(effect.centres, effect.means, *effect.chance, strict=True)
    ]
    listed = parts.folded(parts.table(heads, rows, title := "Values and gains"))
    return [importance, Figure(title, finding, reading, parts.legend(keys), parts.pair(drawn), listed)]


def measure(table: Lineage, gained: np.ndarray, name: str, bounds: Range) -> Effect | None:
    """Mean gains [G, N] by the values of a hyperparameter; None where too few are known, or all are equal."""
    values, rows = table.hyper[name], spaced(len(gained), max(2, STEPS // gained.shape[1]))
    counted = scaled(values, bounds.scale, bounds.choices or ())
    known = np.isfinite(gained[rows]) & np.isfinite(counted[rows])
    held, risen = counted[rows][known], gained[rows][known]
    if known.sum() < PARTS * LEAST or len(np.unique(held)) < 2 or known.any(axis=0).sum() < LEAST:
        return None
    parts, means, (difference,) = _fifths(held[None], risen)
    taken, sizes = np.unique(parts, return_counts=True)
    centres = np.array([np.median(values[rows][known][parts[0] == at]) for at in taken])
    seen = dict(zip(rows.tolist(), known, strict=True))
    dealt = [of[:, seen[row]] for row, of in enumerate(_dealt(table, counted, bounds)) if row in seen]
    others, at_chance, differences = _fifths(np.concatenate(dealt, axis=1), risen)
    middle = sizes.cumsum() - (sizes + 1) // 2  # of each fifth in the order of values, which is the order of fifths too
    same = np.sort(others, axis=1)[:, middle]  # the fifth that is there where values are dealt
    chance = np.quantile(np.take_along_axis(at_chance, same, axis=1), (0.025, 0.975), axis=0)
    p = (1 + (differences >= difference).sum()) / (1 + SHUFFLES)
    shares = np.r_[difference, np.quantile(differences, 0.95)] / max(risen.var(), 1e-12)
    return Effect(values[rows][known], risen, centres, means[0, taken], chance, *map(float, (*shares, p)))


def gains(table: Lineage, alike: bool = True) -> np.ndarray:
    """[G, N] How far a member's fitness rose above that of the weights it began a generation with, as its place among the
    members of that generation: 0 the least, 1 the most, ties share their places. NaN where that is unknown, or where fewer
    than LEAST members are.

    alike: all members began with weights that have learned nothing, so that in the first generation it is the place of
        their fitness. After a warm start that would be what the weights had gained in another run.
    """
    rows, columns = table.sources
    before = np.where(columns >= 0, table.fitness[rows, columns], np.nan)
    before[0] = 0.0 if alike else np.nan
    raw = table.fitness - before
    counted = np.isfinite(raw).sum(axis=1)
    places = (rankdata(raw, axis=1, nan_policy="omit") - 0.5) / np.maximum(counted, 1)[:, None]
    return np.where(np.isfinite(raw) & (counted >= LEAST)[:, None], places, np.nan)


def _dealt(table: Lineage, values: np.ndarray, bounds: Range) -> Iterator[np.ndarray]:
    """Yield permuted values [SHUFFLES, N] of each generation.

    Who copied whom stays as it was, and with it luck: who copies takes the luckiest, who then falls back. Members exchange
    the values that they begin with; those that take part in copying do so among themselves, as the others may begin
    otherwise. Where a member changed what it inherited, it changes by as much as one of those that did.
    """
    draw = np.random.default_rng(0)
    low, high = ends(bounds)
    if not np.isfinite(high - low):
        low, high = np.nanmin(values), np.nanmax(values)
    inherited = np.full(values.shape, np.nan)
    inherited[1:] = np.where(table.origin[1:] >= 0, np.take_along_axis(values[:-1], table.origin[1:], axis=1), np.nan)
    begins, changes = np.isnan(inherited) & np.isfinite(values), values - inherited
    changed = np.isfinite(changes) & (changes != 0)
    all_changes = changes[changed]
    parents = table.parents[table.copied]
    shares = table.copied.any(axis=0) | np.isin(table.uids, parents)
    now = np.full((SHUFFLES, len(table.uids)), np.nan)
    for row in range(len(values)):
        now = now[:, table.origin[row]]
        if len(those := np.flatnonzero(changed[row])):
            picked = all_changes[draw.integers(len(all_changes), size=(SHUFFLES, len(those)))]
            beyond = (now[:, those] + picked - low) % (2 * (high - low))
            # Reflected at the ends, as explorers do.
            now[:, those] = low + np.minimum(beyond, 2 * (high - low) - beyond)
        for part in (shares, ~shares) if begins[row].any() else ():
            first = np.flatnonzero(part & begins[row])
            now[:, first] = draw.permuted(np.tile(values[row, first], (SHUFFLES, 1)), axis=1)
        yield now


def _fifths(held: np.ndarray, risen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for values [S, K] the fifth that each is in [S, K], equal values in the same, the mean of the gains [K] of each
    fifth [S, P], NaN where nobody is in it, and the variance between fifths [S]."""
    count, size = held.shape
    ends = np.arange(1, PARTS) * (size - 1) // PARTS
    cuts = np.partition(held, ends, axis=1)[:, ends]
    parts = (held[:, :, None] > cuts[:, None]).sum(-1)
    places = (parts + PARTS * np.arange(count)[:, None]).ravel()
    sizes = np.bincount(places, minlength=PARTS * count).reshape(count, PARTS)
    sums = np.bincount(places, np.broadcast_to(risen, held.shape).ravel(), PARTS * count).reshape(count, PARTS)
    means = np.divide(sums, sizes, out=np.full(sizes.shape, np.nan), where=sizes > 0)
    return parts, means, np.nansum(sizes * (means - risen.mean()) ** 2, axis=1) / size


def _plot(layout: Layout, name: str, effect: Effect, clear: bool) -> Markup:
    bounds = layout.run.space[name]
    kind = {"scale": bounds.scale, "choices": bounds.choices or (), "words": layout.run.words(name)}
    x = Axis.over(effect.values, "", 0.04, **kind)
    y, at = Axis(0, 1, named=PLACES), x.place(effect.centres)
    some = spaced(len(effect.values), DRAWN)
    layers = [
        Stroke(charts.band(at, *effect.chance), "band"),
        Stroke(charts.dots(x.place(effect.values[some]), effect.gains[some]), "dot m"),
        Stroke(charts.line(at, effect.means), "median"),
    ]
    most, least = (
        f"{layout.run.as_text(name, effect.centres[part])} (mean gain {effect.means[part]:.2f})"
        for part in (np.nanargmax(effect.means), np.nanargmin(effect.means))
    )
    finding = f"Highest around {most}, lowest around {least}: {'' if clear else 'not '}significant."
    drawn = charts.plot(layers, x, y, name, finding, height=150, style=layout.style)
    return parts.effect(name, finding, drawn)
