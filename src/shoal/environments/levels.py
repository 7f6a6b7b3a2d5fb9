"""Levels: numbered variants of an environment, of which some are trained on, and others measure what was learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.core.errors import BadField

LARGEST = 2**31  # level numbers stay below it


class Span(NamedTuple):
    """The levels first <= level < end."""

    first: int
    end: int


@dataclass(frozen=True)
class Levels:
    """Which levels members train on, which ones measure their fitness, and which ones test the champion."""

    train: Any = 200
    """levels that members train on: [first, end), or how many"""
    validation: Any = 100_000
    """levels that measure the fitness, drawn anew in each generation: [first, end), or how many"""
    test: Any = 100_000
    """levels that measure the champion at the end, and that nothing is selected by: [first, end), or how many"""

    def spans(self) -> dict[str, Span]:
        """The levels of each purpose; counts lie behind all pairs, and behind the counts before them. Raises BadInput."""
        given = {name: _given(name, value) for name, value in vars(self).items()}
        last = max((x.end for x in given.values() if isinstance(x, Span)), default=0)
        found = {}
        for name, value in given.items():
            if isinstance(value, Span):
                found[name] = value
            else:
                found[name] = Span(last, last + value)
                last += value
            if found[name].end > LARGEST:
                raise BadField(f"levels.{name}", f"ends at {found[name].end}, and level numbers stay below 2**31")
        for name, span in found.items():
            for other, its in found.items():
                if other != name and span.first < its.end and its.first < span.end:
                    problem = f"has levels of {other} = {list(its)}"
                    raise BadField(f"levels.{name}", problem, "no level may serve two purposes", value=list(span))
        return found


def _given(name: str, value: Any) -> Span | int:
    """What a file says of one purpose: a pair, or how many. Raises BadInput."""
    pair = value if isinstance(value, (list, tuple)) else [0, value]
    numbers = [int(x) for x in pair if type(x) is int or (type(x) is float and x.is_integer())]
    if len(pair) != 2 or len(numbers) != 2 or not 0 <= numbers[0] < numbers[1]:
        shown = list(value) if isinstance(value, tuple) else f"{value!r}"
        advice = "write [first, end] with 0 <= first < end, or how many"
        raise BadField(f"levels.{name}", "are no levels", advice, value=shown)
    span = Span(*numbers)
    return span if isinstance(value, (list, tuple)) else span.end
