"""Which cases of a test `make test` takes; `make learn` takes the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def others_slow(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """All cases, those that are not among `quick` marked slow."""
    return [case if case in quick else _slow(case) for case in cases]


def every_slow(cases: Iterable[Any], first: int) -> list[Any]:
    """All cases, those behind the first ones marked slow."""
    return [case if i < first else _slow(case) for i, case in enumerate(cases)]


def examples(few: int, many: int) -> Any:
    """So many of a property, which takes them as its argument: few in `make test`."""
    return pytest.mark.parametrize("examples", [few, _slow(many)])


def _slow(case: Any) -> Any:
    values = case if isinstance(case, (tuple, list)) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
