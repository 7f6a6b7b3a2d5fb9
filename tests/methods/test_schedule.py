"""Following a schedule: a row for each generation, and the last one for those behind the end."""

from __future__ import annotations

import numpy as np

from shoal.core.population import PopulationStats
from shoal.core.space import SearchSpace
from shoal.methods.schedule import Schedule


def test_the_last_row_holds_behind_the_end() -> None:
    rows = ({"rate": 0.5}, {"rate": 0.25, "greed": 3.0})
    evolver = Schedule(rows).evolver(SearchSpace({}, {}, {"rate": 1.0, "greed": 2.0}), 8)
    uid, zeros = np.arange(3) + 7, np.zeros(3)
    state, hyper = evolver.init((0,), uid)
    trained = [hyper]
    for generation in range(3):
        stats = PopulationStats(uid, np.full(3, generation), zeros, np.arange(3.0), zeros, zeros, hyper)
        state, decision = evolver.decide((0, generation), state, stats, np.arange(3))
        assert decision.parents.tolist() == [0, 1, 2], "nobody copies"
        trained.append(hyper := decision.hyper)
    assert [row["rate"].tolist() for row in trained] == [[0.5] * 3, [0.25] * 3, [0.25] * 3, [0.25] * 3]
    assert [row["greed"].tolist() for row in trained] == [[2.0] * 3, [3.0] * 3, [3.0] * 3, [3.0] * 3]
