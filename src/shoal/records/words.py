"""Numbers as text, for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable


def text(value: float) -> str:
    """Return a number as text with four digits, more if a discount needs them."""
    if not math.isfinite(value):
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 9999.5:  # what rounds to 10,000 has more digits
        return f"{value:.{5 if 0.9 < value < 1 else 4}g}"
    if 9999.5 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def error_text(value: float) -> str:
    """Return an error of a number as text: two digits, and all before the point."""
    return f"{value:,.0f}" if abs(value) >= 99.5 else f"{value:.2g}"


def short(value: float) -> str:
    """Return a count in short: 950, 20k, 1.5M."""
    if not math.isfinite(value):
        return "–"
    sizes = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
    # what rounds to a thousand of a unit is one of the next
    size, letter = next(((size, letter) for size, letter in sizes if abs(value) >= 0.9995 * size), (1, ""))
    return f"{value / size:.3g}{letter}"


def went(values: Iterable[float], as_text: Callable[[float], str] = text) -> str:
    """The course of a number, from its first finite value to its last; `as_text` makes them text."""
    known = [float(value) for value in values if math.isfinite(value)]
    if not known:
        return "is unknown"
    first, last = as_text(known[0]), as_text(known[-1])
    return f"was {first}" if len(known) == 1 else f"went from {first} to {last}"


def duration(seconds: float) -> str:
    """Return seconds as text: 1.4 s, 12 min 5 s, 3 h 20 min, 2 d 4 h."""
    if not seconds >= 60:
        return f"{seconds:.3g} s" if seconds == seconds else "–"
    units = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    size, unit, smaller, part = next(pair for pair in units if seconds >= pair[0])
    return f"{int(seconds // size)} {unit} {int(seconds % size // smaller)} {part}"


def many(count: int, word: str) -> str:
    """Return a count with its noun: 1 member, 2 members, 1 copy, 2 copies."""
    plural = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{count:,} {word if count == 1 else plural}"
