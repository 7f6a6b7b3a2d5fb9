"""The weight of diversity by Thompson sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from shoal.core.errors import BadInput
from shoal.core.population import PopulationStats, PureEvolver
from shoal.core.space import SearchSpace
from shoal.methods.dvd import Dvd, thompson

N = 4
START = {"discount": 0.99, "diversity": 0.3}


def bandit(start: dict[str, float], arms: tuple[float, ...] = (0.0, 0.5)) -> PureEvolver:
    return Dvd(arms).evolver(SearchSpace({}, {}, start), 8)


def stats_of(fitness: list[float], hyper: dict[str, np.ndarray]) -> PopulationStats:
    n = len(fitness)
    zeros = np.zeros(n, np.int64)
    return PopulationStats(np.arange(n), zeros, zeros, np.array(fitness), np.zeros(n), zeros, hyper)


def live(evolver: Any, bests: list[float], seed: int = 0) -> list[dict[str, Any]]:
    """The states after generations whose best fitness was this."""
    state, hyper = evolver.init((seed, 0), np.arange(N))
    states = [state]
    for generation, best in enumerate(bests, 1):
        state, decision = evolver.decide(
            (seed, generation), state, stats_of([best, -9.0, np.nan, -5], hyper), np.arange(N)
        )
        hyper = decision.hyper
        np.testing.assert_array_equal(decision.parents, np.arange(N))
        np.testing.assert_array_equal(hyper["discount"], np.full(N, 0.99, np.float32))
        states.append(state)
    return states


def test_who_wins():
    """What rose since the generation before won; the first one has nothing to compare with; NaN loses."""
    bests = [1.0, 2.0, 2.0, 1.5, 1.7, np.nan, 1.8]
    states = live(bandit(START, (0.1, 0.5)), bests)
    won = [None, True, False, False, True, False, True]
    for before, after, rose in zip(states[:-1], states[1:], won, strict=True):
        wins, losses = (after[side] - before[side] for side in ("wins", "losses"))
        pulled = (np.arange(2) == before["arm"]).astype(int)
        np.testing.assert_array_equal(wins, pulled * (rose is True))
        np.testing.assert_array_equal(losses, pulled * (rose is False))


def test_members_of_others_win_nothing():
    evolver = bandit(START)
    state, hyper = evolver.init((0,), np.arange(N))
    both = {name: np.tile(x, 2) for name, x in hyper.items()}
    for best in (1.0, 2.0, 3.0):
        seen = stats_of([best] * N + [50.0] * N, both)
        state, _ = evolver.decide((0, 1), state, seen, np.arange(N))
    assert state["best"] == 3 and state["wins"].sum() == 2 and state["losses"].sum() == 0


def test_the_arm_is_the_weight_of_all_members():
    evolver = bandit(START, (0.1, 0.5))
    for seed in range(10):
        state, hyper = evolver.init((seed,), np.arange(N))
        np.testing.assert_array_equal(hyper["diversity"], np.full(N, [0.1, 0.5][int(state["arm"])], np.float32))
        state, decision = evolver.decide((seed, 1), state, stats_of([0.0] * N, hyper), np.arange(N))
        np.testing.assert_array_equal(
            decision.hyper["diversity"], np.full(N, [0.1, 0.5][int(state["arm"])], np.float32)
        )


def test_a_single_arm_is_fixed():
    assert all(int(state["arm"]) == 0 for state in live(bandit(START, [0.2]), [1.0, 2.0, 0.0, 3.0]))


def test_same_key_same_choice():
    a, b = (live(bandit(START), [1.0, 2.0, 1.0], seed=3) for _ in range(2))
    for x, y in zip(a, b, strict=True):
        assert all(np.array_equal(x[k], y[k], equal_nan=True) for k in x)
    assert len({int(live(bandit(START), [], seed)[0]["arm"]) for seed in range(20)}) == 2


@pytest.mark.parametrize(("wins", "losses"), [((0, 0), (0, 0)), ((3, 1), (1, 3)), ((10, 0), (2, 12))])
def test_arms_are_drawn_by_their_posteriors(wins, losses):
    """How often the first arm is taken, against the integral over both Beta distributions."""
    first = np.mean([thompson((seed,), np.array(wins), np.array(losses)) == 0 for seed in range(2000)])
    x = np.linspace(0, 1, 20001)
    a, b = (stats.beta(1 + won, 1 + lost) for won, lost in zip(wins, losses, strict=True))
    expected = np.trapezoid(a.pdf(x) * b.cdf(x), x)
    assert abs(first - expected) < 4 * max(expected * (1 - expected), 1e-3) ** 0.5 / 2000**0.5


def test_the_better_arm_prevails():
    """The arm that wins nine times out of ten is nearly always taken in the end."""
    evolver, rng = bandit(START, (0.0, 0.5)), np.random.default_rng(0)
    state, hyper = evolver.init((0, 0), np.arange(N))
    fitness, taken = 0.0, []
    for generation in range(1, 120):
        fitness += 1.0 if rng.random() < (0.9 if state["arm"] == 1 else 0.1) else -1.0
        taken.append(int(state["arm"]))
        state, decision = evolver.decide((0, generation), state, stats_of([fitness] * N, hyper), np.arange(N))
        hyper = decision.hyper
    assert np.mean(taken[-50:]) > 0.9


@pytest.mark.parametrize("arms", [[], [0.5, 1.1], [-0.1]])
def test_bad_arms(arms):
    with pytest.raises(BadInput, match=r"^arms"):
        bandit(START, arms)
