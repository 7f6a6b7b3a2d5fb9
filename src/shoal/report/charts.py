"""Charts as HTML: an SVG that stretches to any width, with its words around it as ordinary text.

The SVG knows neither text nor circles, which a stretched drawing would distort: every mark is a stroke of constant
width, and a dot is a stroke of no length with round ends. Places in a plot are fractions, (0, 0) at the bottom left.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from shoal.report.words import short, text

WIDTH, HEIGHT = 2000, 1000  # units of the drawing; whole numbers keep the page small
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
    return np.where(np.isfinite(values), values, np.nan)


@dataclass(frozen=True)
class Axis:
    """One axis of a plot: `low` and `high` are its ends, counted in its scale."""

    low: float
    high: float
    label: str = ""
    scale: str = "linear"
    choices: tuple[float, ...] = ()
    whole: bool = False  # ticks at whole numbers only
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
        """Where values lie between the ends of the axis, 0 to 1."""
        return (scaled(values, self.scale, self.choices) - self.low) / (self.high - self.low)

    def ticks(self, count: int = 5) -> Sequence[tuple[float, str]]:
        """Round values within the axis, or what it names: (place, text)."""
        if self.named is not None:
            return self.named
        values = np.array(self.choices) if self.choices else self._round_values(count)
        places = zip(self.place(values).tolist(), map(short if self.short else text, values.tolist()), strict=True)
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
        return powers if self.scale == "log" else 1 - 1 / powers


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


def areas(x: np.ndarray, stack: np.ndarray, kinds: Iterable[str]) -> list[str]:
    """Areas on top of one another, between neighbouring lines of `stack` [K + 1, X], each of its kind."""
    return [path(band(x, *ends), kind) for kind, ends in zip(kinds, pairwise(stack), strict=True)]


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


def path(data: str, kind: str, member: int | None = None) -> str:
    """A stroke; `kind` names its looks, `member` the column it belongs to."""
    owner = "" if member is None else f' data-m="{member}"'
    return f'<path class="{kind}"{owner} d="{data}"/>' if data else ""


def rings(x: np.ndarray, y: np.ndarray, kind: str = "") -> str:
    """Rings around places: a wide dot with a smaller one of the paper's colour in it."""
    data = dots(x, y)
    return path(data, f"ring {kind}") + path(data, "hole")


def plot(
    layers: Iterable[str],
    x: Axis,
    y: Axis,
    title: str,
    summary: str,
    data: dict[str, Any] | None = None,
    height: int = 320,
    hidden: bool = False,
    style: str = "",
) -> str:
    """One drawing with its axes. `data` is what the page's script shows under the cursor."""
    x_ticks, y_ticks = x.ticks(7), y.ticks()
    words = [f'<i class="y" style="bottom:{100 * place:.2f}%">{escape(word)}</i>' for place, word in y_ticks]
    words += [
        f'<i class="x{" minor" if at % 2 else ""}" style="left:{100 * place:.2f}%">{escape(word)}</i>'
        for at, (place, word) in enumerate(x_ticks)
    ]
    words.append(f'<i class="xt">{escape(x.label)}</i>')
    words += [f'<i class="yt">{escape(y.label)}</i>'] if y.label else []
    live = ""
    if data is not None:
        axes = {"x_low": x.low, "x_high": x.high, "low": y.low, "high": y.high, "scale": y.scale, "choices": y.choices}
        live = f' tabindex="0" data-chart="{escape(pack(axes | data))}"'
    return (
        f'<div class="plot" role="group" aria-label="{escape(title)}" style="height:{height}px;{style}"'
        f"{' hidden' if hidden else ''}{live}>"
        f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none">'
        f"<title>{escape(title)}</title><desc>{escape(summary)}</desc>"
        f'<path class="grid" d="{across(place for place, _ in y_ticks)}"/>{"".join(layers)}</svg>'
        f'<div class="words" aria-hidden="true">{"".join(words)}</div></div>'
    )


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """(kind, words) of every stroke that needs a name."""
    keys = (f'<li><b class="key {kind}"></b>{escape(words)}</li>' for kind, words in entries)
    return f'<ul class="legend">{"".join(keys)}</ul>'


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], caption: str, kind: str = "", marks: Iterable[str] = ()
) -> str:
    """A table; cells are escaped unless they come as `Html`. A sortable one has buttons as heads, and the values that the
    page's script sorts by; `marks` are attributes of its rows."""
    button, value = ('<button type="button">{}</button>', ' data-v="{}"') if kind == "sortable" else ("{}", "")
    head = "".join(f'<th scope="col">{button.format(escape(name))}</th>' for name in heads)
    body = ""
    for row, mark in zip_longest(rows, marks, fillvalue=""):
        cells = (f"<td{value.format(escape(str(cell).replace(',', '')))}>{_cell(cell)}</td>" for cell in row)
        body += f"<tr{mark}>{''.join(cells)}</tr>"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="{kind}">'
        f'<caption class="unseen">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def heat(
    shades: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    told: Sequence[Sequence[str]],
    summary: str,
    words: Any = None,
) -> str:
    """A map of shades [R, C] from 0 to 1, NaN for none. `told` [R][C] is what pointing at a cell shows, `words` [R][C] what
    stands in it; without words the cells are small.
    """
    cells = ["<i></i>", *(f"<i>{escape(name)}</i>" for name in columns)]
    for at, name in enumerate(rows):
        cells.append(f"<i>{escape(name)}</i>")
        for to, shade in enumerate(shades[at].tolist()):
            looks = f'style="--v:{100 * shade:.0f}%"' if shade == shade else 'class="none"'
            word = escape(words[at][to]) if words is not None and shade == shade else ""
            cells.append(f'<b {looks} title="{escape(told[at][to])}">{word}</b>')
    return (
        f'<div class="{"heat fine" if words is None else "heat"}" role="img" aria-label="{escape(summary)}" '
        f'style="--n:{len(columns)}">{"".join(cells)}</div>'
    )


class Html(str):
    """Text that is HTML already."""


def pack(data: Any) -> str:
    """JSON as small as it gets, four digits a number, NaN as null."""
    return json.dumps(_plain(data), separators=(",", ":"), allow_nan=False)


def _cell(cell: Any) -> str:
    if isinstance(cell, Html):
        return cell
    return escape(text(cell) if isinstance(cell, float) else str(cell))


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(name): _plain(value) for name, value in data.items()}
    if isinstance(data, np.ndarray):
        data = data.tolist()
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    if isinstance(data, float):
        if not math.isfinite(data):
            return None
        digits = float(f"{data:.{7 if 0.9 < data < 1 else 5}g}")
        return int(digits) if digits == int(digits) else digits
    return data


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
