"""Linear schedules against Stable-Baselines3's formula, in float64: the initial value times what remains of the run."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.space import HyperparameterSpec, end_factor
from shoal.core.types import START, RunProgress
from shoal.rl.schedules import scheduled, share_done

COUNTS = st.integers(0, 2**40)
SHARES = st.sampled_from([0.0, 1.0, 0.5]) | st.floats(0, 1, width=32)


class Hyper(NamedTuple):
    a: Annotated[Any, HyperparameterSpec("one")]
    b: Annotated[Any, HyperparameterSpec("another")]
    c: Annotated[Any, HyperparameterSpec("one that stays")]
    end: Annotated[Any, end_factor("a", "b")]


def of(done: int, per_iteration: int, total: int) -> RunProgress:
    return RunProgress(*map(np.float32, (done, per_iteration, total)))


@given(COUNTS, st.integers(0, 2**20), st.integers(1, 2**40), st.integers(0, 2**31 - 2))
def test_the_share_of_a_run_that_is_done(done, per_iteration, total, i):
    share = float(share_done(of(done, per_iteration, total), np.int32(i)))
    np.testing.assert_allclose(share, min((done + per_iteration * (i + 1)) / total, 1), rtol=1e-6)
    assert 0 <= share <= 1 and share_done(START, np.int32(i)) == 0
    assert share_done(of(total - total // 2, total // 2, total), np.int32(0)) == 1 or total > 2**24


@given(st.floats(-1e9, 1e9, width=32), SHARES, SHARES)
def test_a_value_falls_linearly_to_its_share(value, end, progress):
    start = Hyper(*np.float32([value, 2 * value, value, end]))
    now = scheduled(start, np.float32(progress))
    initial, final = np.float64(value), np.float64(value) * np.float32(end)
    remaining = 1 - np.float64(np.float32(progress))
    np.testing.assert_allclose(
        [now.a, now.b], np.array([1, 2]) * (final + (initial - final) * remaining), rtol=1e-5, atol=1e-6 * abs(value)
    )
    assert (now.c, now.end) == (start.c, start.end)
    if end == 1 or progress == 0:
        assert now == start, "no bit of it changes"
