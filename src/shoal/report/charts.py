"""Charts as HTML: an SVG that stretches to any width, with its words around it as ordinary text.

The SVG knows neither text nor circles, which a stretched drawing would distort: every mark is a stroke of constant
width, and a dot is a stroke of no length with round ends. Places in a plot are fractions, (0, 0) at the bottom left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from shoal.records.words import short, text
from shoal.report.rendering import parts

WIDTH, HEIGHT = 2000, 1000  # units of the drawing; integers keep the page small
HIDDEN, MOST = 0.006, 0.5  # lines so near to each other, on so many of their points, are one to the eye
PERCENT = [(share / 4, f"{25 * share}%") for share in range(5)]  # ticks of an axis of shares


def scaled(values: Any, scale: str = "linear", choices: Sequence[float] = ()) -> np.ndarray:
    """Values as the scale counts them: as they are, in decades, or as the place among the choices. Keeps NaN."""
    values = np.asarray(values, float)
    with np.errstate(all="ignore"):
        if len(choices):
            place = np.abs(values[..., None] - np.asarray(choices)).argmin(axis=-1)
            values = np.where(np.isnan(values), np.nan, place)
        elif scale == "log":
            values = np.log10(values)
        elif scale == "one_minus_log":
            values = -np.log10(1 - values)
        elif scale == "minus_log":  # of numbers below 0
            values = -np.log10(-values)
    return np.where(np.isfinite(values), values, np.nan)


NUMBERS = 40  # places of each line that stand in the table under it
Labelled = tuple[str, str, np.ndarray, np.ndarray]  # a line: see `lines_plot`


class Stroke(NamedTuple):
    """A stroke of a drawing. kind: the classes of its looks. member: the column that it belongs to."""

    data: str
    kind: str
    member: int | None = None


@dataclass(frozen=True)
class Axis:
    """One axis of a plot: `low` and `high` are its ends, counted in its scale."""

    low: float
    high: float
    label: str = ""
    scale: str = "linear"
    choices: tuple[float, ...] = ()
    words: Sequence[str] = ()  # of the choices, where these are no numbers
    whole: bool = False  # ticks at integers only
    short: bool = False  # ticks such as 20k and 1.5M
    named: Sequence[tuple[float, str]] | None = None  # the ticks, as (place, text), where they are no round values

    @classmethod
    def over(cls, values: Any, label: str = "", pad: float = 0.0, **kind: Any) -> Axis:
        """The axis that holds all values, with a margin of `pad` times its length at both ends."""
        counted = scaled(values, kind.get("scale", "linear"), kind.get("choices", ()))
        counted = counted[np.isfinite(counted)]
        low, high = (float(counted.min()), float(counted.max())) if len(counted) else (0.0, 1.0)
        margin = pad * (high - low) if high > low else max(abs(low) * 0.05, 0.5)
        return cls(low - margin, high + margin, label, **kind)

    def place(self, values: Any) -> np.ndarray:
        """Places of values between the ends of the axis, 0 to 1."""
        return (scaled(values, self.scale, self.choices) - self.low) / (self.high - self.low)

    def ticks(self, count: int = 5) -> Sequence[tuple[float, str]]:
        """Round values within the axis, or what it names: (place, text)."""
        if self.named is not None:
            return self.named
        values = np.array(self.choices) if self.choices else self._round_values(count)
        words = self.words or map(short if self.short else text, values.tolist())
        places = zip(self.place(values).tolist(), words, strict=True)
        return [(place, word) for place, word in places if -1e-9 <= place <= 1 + 1e-9]

    def _round_values(self, count: int) -> np.ndarray:
        if self.scale == "linear":
            return _round(self.low, self.high, count, self.whole)
        exponents = np.arange(math.floor(self.low), math.ceil(self.high) + 1)
        within = exponents[(exponents >= self.low - 1e-9) & (exponents <= self.high + 1e-9)]
        if len(within) >= 3:
            powers = 10.0 ** within[:: math.ceil(len(within) / (count + 1))]
        else:
            powers = (10.0 ** exponents[:, None] * np.array([1, 2, 5])).ravel()
            counted = np.log10(powers)
            if ((counted >= self.low) & (counted <= self.high)).sum() < 2:
                powers = _round(10**self.low, 10**self.high, count, self.whole)
        return {"log": powers, "minus_log": -1 / powers}.get(self.scale, 1 - 1 / powers)


def line(x: np.ndarray, y: np.ndarray) -> str:
    """Path data of a line through points; NaN in `y` leaves a gap, and a point on its own becomes a dot."""
    parts = []
    for px, py in _runs(x, y):
        steps = "".join(f"l{dx} {dy}" for dx, dy in zip(np.diff(px), np.diff(py), strict=True))
        parts.append(f"M{px[0]} {py[0]}{steps or 'h.1'}")
    return "".join(parts)


def stairs(edges: np.ndarray, y: np.ndarray, risers: bool = True) -> str:
    """Path data of a staircase: `y[i]` holds from `edges[i]` to `edges[i + 1]`; without risers, of its treads alone."""
    parts = []
    for (px, py), (right, _) in zip(_runs(edges[:-1], y), _runs(edges[1:], y), strict=True):
        parts.append(f"M{px[0]} {py[0]}")
        for at in range(len(py)):
            if at + 1 == len(py):
                parts.append(f"H{right[at]}")
            elif py[at] != py[at + 1]:
                parts.append(f"H{right[at]}V{py[at + 1]}" if risers else f"H{right[at]}M{right[at]} {py[at + 1]}")
    return "".join(parts)


def band(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """Path data of the area between two lines."""
    low, high = np.where(np.isnan(high), np.nan, low), np.where(np.isnan(low), np.nan, high)
    parts = []
    for (px, bottom), (_, top) in zip(_runs(x, low), _runs(x, high), strict=True):
        outline = [*zip(px, top, strict=True), *zip(px[::-1], bottom[::-1], strict=True)]
        parts.append("M" + "L".join(f"{a} {b}" for a, b in outline) + "Z")
    return "".join(parts)


def areas(x: np.ndarray, stack: np.ndarray, kinds: Iterable[str]) -> list[Stroke]:
    """Areas on top of one another, between neighbouring lines of `stack` [K + 1, X], each of its kind."""
    return [Stroke(band(x, *ends), kind) for kind, ends in zip(kinds, pairwise(stack), strict=True)]


def across(places: Iterable[float]) -> str:
    """Path data of level lines from end to end."""
    return "".join(f"M0 {round((1 - place) * HEIGHT)}h{WIDTH}" for place in places)


def dots(x: np.ndarray, y: np.ndarray) -> str:
    """Path data of dots, for strokes with round ends."""
    seen = np.isfinite(x) & np.isfinite(y)
    places = zip(_units(x[seen], WIDTH), _units(1 - y[seen], HEIGHT), strict=True)
    return "".join(f"M{px} {py}h.1" for px, py in places)


def curve(x: float, y: float, to_x: float, to_y: float) -> str:
    """Path data of a bow from one place to another, level at both ends."""
    (a, c), (b, d) = _units(np.array([x, to_x]), WIDTH), _units(1 - np.array([y, to_y]), HEIGHT)
    return f"M{a} {b}C{(a + c) // 2} {b} {(a + c) // 2} {d} {c} {d}"


def rings(x: np.ndarray, y: np.ndarray, kind: str = "") -> list[Stroke]:
    """Rings around places: a wide dot with a smaller one of the paper's colour in it."""
    data = dots(x, y)
    return [Stroke(data, f"ring {kind}"), Stroke(data, "hole")]


def plot(
    strokes: Iterable[Stroke],
    x: Axis,
    y: Axis,
    title: str,
    summary: str,
    data: dict[str, Any] | None = None,
    height: int = 320,
    hidden: bool = False,
    style: str = "",
) -> Markup:
    """One drawing with its axes. `data` is what the page's script shows under the cursor."""
    x_ticks, y_ticks = x.ticks(7), y.ticks()
    ends = {"x_low": x.low, "x_high": x.high, "low": y.low, "high": y.high, "scale": y.scale, "choices": y.choices}
    ends |= {"words": y.words} if y.words else {}
    drawn = [stroke for stroke in strokes if stroke.data]
    return parts.plot(
        drawn, x_ticks, y_ticks, x.label, y.label, title, summary, (WIDTH, HEIGHT),
        across(place for place, _ in y_ticks), height, hidden, style, None if data is None else ends | data,
    )  # fmt: skip


def lines_plot(x: Axis, y: Axis, lines: Iterable[Labelled], title: str, summary: str) -> Markup:
    """A legend, and a line for each label, its looks, and places `at` and `values` along it; of values [3, X] the first
    are a line, and the others the ends of the band around it. Below, the numbers of some of these places."""
    bands, layers, keys, below = [], [], [], list[tuple[np.ndarray, np.ndarray]]()
    rows: list[list[Any]] = []
    for label, looks, at, values in lines:
        middle, *ends = y.place(np.atleast_2d(values))
        covered = sum(_lies_on(at, middle, *other) for other in below)
        below.append((at, middle))
        if covered and " d" not in looks:  # which is dashed anyhow
            looks += f" on{min(covered, 3)}"  # dashed, so that what it lies on is seen
        if ends:
            bands.append(Stroke(band(x.place(at), *ends), f"area faint {looks}"))
        layers.append(Stroke(line(x.place(at), middle), f"curve {looks}"))
        keys.append((f"curve {looks}", label))
        some = spaced(len(at), NUMBERS)
        rows += [[label, *row] for row in np.vstack([at, values])[:, some].T.tolist() if math.isfinite(row[1])]
    heads = ["line", x.label, y.label, "from", "to"][: max(map(len, rows), default=3)]
    return (
        parts.legend(keys)
        + plot([*bands, *layers], x, y, title, summary)
        + parts.folded(parts.table(heads, rows, title))
    )


def spaced(total: int, room: int) -> np.ndarray:
    """Rows, evenly spaced with both ends among them, as many as there is room for."""
    return np.unique(np.linspace(0, total - 1, min(total, max(1, room))).round().astype(int))


def _lies_on(x: np.ndarray, y: np.ndarray, other_x: np.ndarray, other_y: np.ndarray) -> bool:
    """True where the most of a line hides another one."""
    apart = np.abs(y - np.interp(x, other_x, other_y, np.nan, np.nan)) if len(other_x) else np.empty(0)
    known = apart[np.isfinite(apart)]
    return bool(len(known) and (known < HIDDEN).mean() > MOST)


def _runs(x: np.ndarray, y: np.ndarray) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """The stretches of a line between its gaps, in whole units."""
    for run in np.split(np.arange(len(y)), np.flatnonzero(np.diff(np.isfinite(y))) + 1):
        if len(run) and np.isfinite(y[run[0]]):
            yield _units(x[run], WIDTH), _units(1 - y[run], HEIGHT)


def _units(values: np.ndarray, size: int) -> np.ndarray:
    """Fractions in units of the drawing; what lies far outside would only cost bytes."""
    return np.round(np.clip(values, -1, 2) * size).astype(int)


def _round(low: float, high: float, count: int, whole: bool) -> np.ndarray:
    """Multiples of 1, 2 or 5 times a power of ten, about `count` of them."""
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    step = max(1.0, round(step)) if whole else step
    values = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step
    return np.round(values, 12) + 0.0  # no -0
