"""The statistics of a study, against cases by hand, SciPy, and simulated studies whose truth is known."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shoal.study.statistics import (
    holm,
    improvement,
    improvement_interval,
    interquartile_mean,
    interval,
    least_difference,
    least_p,
    p_of_analyses,
    p_value,
    profile,
    seeds_needed,
    shares,
)


def test_interquartile_mean() -> None:
    """Eight scores: the middle four are 2, 3, 4, 6."""
    assert interquartile_mean(np.array([[100.0, 2, 3, 4], [6, -50, 7, 1]])) == (2 + 3 + 4 + 6) / 4


def test_improvement() -> None:
    """Two tasks. The first: 1 wins 2 of 4, with a tie (5 against 5): 2.5 of 4. The second: all of 4."""
    one, other = np.array([[5.0, 9.0], [7.0, 8.0]]), np.array([[5.0, 1.0], [6.0, 2.0]])
    assert improvement(one, other) == (2.5 / 4 + 1) / 2
    assert improvement(other, one) == 1 - improvement(one, other)
    assert improvement(one[:1], other) == ((0.5 + 0) / 2 + 1) / 2


def test_holm() -> None:
    """0.01 counts four times, 0.02 three times, 0.03 twice and not below those before it, 0.9 once."""
    np.testing.assert_allclose(holm(np.array([0.03, 0.01, 0.9, 0.02])), [0.06, 0.04, 0.9, 0.06])
    np.testing.assert_allclose(holm(np.array([0.6, 0.5])), [1, 1])


def test_profile() -> None:
    np.testing.assert_allclose(profile(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0, 2, 3.5, 4])), [1, 0.5, 0.25, 0])


def test_p_value_of_one_task() -> None:
    """SciPy's exact Mann-Whitney test."""
    generator = np.random.default_rng(0)
    for shift, count in ((0.0, 5), (1.0, 5), (3.0, 5), (0.4, 30)):
        one, other = generator.normal(size=(count + 1, 1)) + shift, generator.normal(size=(count, 1))
        exact = stats.mannwhitneyu(one[:, 0], other[:, 0], method="exact").pvalue
        assert p_value(one, other) == pytest.approx(exact, rel=1e-9)


def test_p_value_with_ties_in_two_tasks() -> None:
    """All 10 x 10 ways to divide five runs of each of two tasks, one by one."""
    runs = np.array([[1.0, 7.0], [2.0, 7.0], [2.0, 3.0], [5.0, 9.0], [2.0, 1.0]])
    seen, extreme = abs(improvement(runs[:2], runs[2:]) - 0.5), 0
    ways = [[*chosen, *sorted({*range(5)} - {*chosen})] for chosen in itertools.combinations(range(5), 2)]
    for first, second in itertools.product(ways, ways):
        mixed = np.column_stack([runs[first, 0], runs[second, 1]])
        extreme += abs(improvement(mixed[:2], mixed[2:]) - 0.5) >= seen - 1e-9
    assert p_value(runs[:2], runs[2:]) == pytest.approx(extreme / 100)


SCORES = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(SCORES, SCORES)
def test_p_value_of_all_ways_to_divide_the_runs(one: list[int], other: list[int]) -> None:
    """With ties, and unlike numbers of seeds."""
    runs, ahead = np.array([*one, *other], float), []
    for chosen in itertools.combinations(range(len(runs)), len(one)):
        mixed = np.concatenate([runs[[*chosen]], np.delete(runs, chosen)])[:, None]
        ahead.append(abs(improvement(mixed[: len(one)], mixed[len(one) :]) - 0.5))
    expected = np.mean(np.array(ahead) >= ahead[0] - 1e-9)  # the first way is how the runs are divided
    assert p_value(runs[: len(one), None], runs[len(one) :, None]) == pytest.approx(expected, rel=1e-12)


def test_p_value_of_many_seeds_takes_little_memory() -> None:
    """1.5 MB where every number of runs had a row for every sum up to that of all."""
    tracemalloc.start()
    try:
        p_value(np.arange(0.0, 35)[:, None], np.arange(0.5, 35)[:, None])
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


def test_p_value_keeps_tasks_apart() -> None:
    """Three against three in two tasks: of 20 x 20 ways the two extreme ones are as far apart."""
    one, other = (
        np.array([[3.0, 103.0], [4.0, 104.0], [5.0, 105.0]]),
        np.array([[0.0, 100.0], [1.0, 101.0], [2.0, 102.0]]),
    )
    assert p_value(one, other) == pytest.approx(2 / 400)


def test_interval_against_scipy() -> None:
    scores = np.random.default_rng(1).normal(size=(20, 1))
    expected = stats.bootstrap(
        (scores[:, 0],), lambda x, axis: stats.trim_mean(x, 0.25, axis), method="percentile", rng=2, n_resamples=20_000
    ).confidence_interval
    np.testing.assert_allclose(interval(scores), expected, atol=0.03)


def test_interval_keeps_tasks_apart() -> None:
    """Seeds are drawn anew within each task: by hand, of two tasks that lie far apart."""
    generator = np.random.default_rng(5)
    scores = generator.normal([0, 10], size=(10, 2))
    drawn = [np.r_[generator.choice(scores[:, 0], 10), generator.choice(scores[:, 1], 10)] for _ in range(4000)]
    middles = np.sort(drawn)[:, 5:15].mean(1)
    np.testing.assert_allclose(interval(scores), np.quantile(middles, [0.025, 0.975]), atol=0.05)


@pytest.mark.parametrize(("won", "seeds", "other"), [(3, 3, 3), (0, 3, 8), (4, 5, 5), (4, 5, 9), (15, 30, 30)])
def test_improvement_interval_against_scipy(won: int, seeds: int, other: int) -> None:
    """Runs that score higher than all of the other arm, or lower than all: trials, and Clopper and Pearson's interval."""
    runs = np.where(np.arange(seeds) < won, 1.0, -1.0).reshape(-1, 1)
    expected = stats.binomtest(won, seeds).proportion_ci(method="exact")
    np.testing.assert_allclose(improvement_interval(runs, np.zeros((other, 1))), expected)
    wider = stats.binomtest(won, seeds).proportion_ci(0.99, method="exact")
    np.testing.assert_allclose(improvement_interval(runs, np.zeros((other, 1)), 0.99), wider)


def test_improvement_interval_of_several_tasks_and_studies() -> None:
    """Tasks are more trials; the other way round it is the mirror image; a study is what it is beside another one."""
    runs = np.array([[1.0, 1, 1, -1], [1, -1, 1, 1], [1, 1, 1, 1]])
    low, high = improvement_interval(np.stack([runs, -runs]), np.zeros((2, 4, 4)))
    expected = stats.binomtest(10, 12).proportion_ci(method="exact")
    np.testing.assert_allclose([low, high], [[expected.low, 1 - expected.high], [expected.high, 1 - expected.low]])


def test_an_interval_beside_a_half_has_a_p_below_its_level() -> None:
    """Of runs of all sorts, in as many tasks and for as many comparisons."""
    draw, beside = np.random.default_rng(8), 0
    for _ in range(1_500):
        seeds, others, tasks = draw.integers(2, 12), draw.integers(2, 12), draw.integers(1, 4)
        one = draw.normal(draw.choice([0, 1, 3]), draw.choice([0.1, 1, 5]), (seeds, tasks))
        other = draw.normal(0, 1, (others, tasks))
        shape = draw.choice([lambda x: x, np.round, np.sign, lambda x: np.minimum(x, 0.5)])
        level = draw.choice([0.05, 0.05 / 3, 0.05 / 45])
        low, high = improvement_interval(shape(one), shape(other), 1 - level)
        if not low <= 0.5 <= high:
            beside += 1
            assert p_value(shape(one), shape(other)) < level
    assert beside > 100


def test_intervals_hold_what_they_say() -> None:
    """Of 200 simulated studies of ten seeds and two tasks: a percentile interval of so few is somewhat too narrow."""
    generator, held = np.random.default_rng(3), 0
    for _ in range(200):
        low, high = interval(generator.normal(size=(10, 2)), resamples=200)
        held += low <= 0 <= high
    assert 0.86 <= held / 200 <= 0.98


def test_arms_that_do_not_differ_are_seldom_told_apart() -> None:
    generator, told = np.random.default_rng(4), 0
    for _ in range(200):
        one, other = generator.exponential(size=(2, 5, 2))
        told += p_value(one, other) < 0.05
    assert told / 200 <= 0.09  # 0.05 and three deviations


def test_looks_divide_the_error_as_seeds_come() -> None:
    assert shares([5, 10, 20]) == [0.25, 0.25, 0.5] and shares([7]) == [1.0]
    scores = np.arange(10.0)[:, None]
    early, late = (scores[5:], scores[:5]), (scores[1::2], scores[::2])  # the most extreme of 252 ways, and none
    assert p_of_analyses([early, late], [0.25, 0.75]) == pytest.approx(2 / 252 / 0.25), (
        "a significant difference stays one"
    )
    assert p_of_analyses([late, early], [0.25, 0.75]) == pytest.approx(2 / 252 / 0.75)
    assert p_of_analyses([late, late], [0.5, 0.5]) == 1
    assert p_of_analyses([early[::-1], late], [0.25, 0.75]) > 0.5, "it was the other arm that was ahead"


@pytest.mark.parametrize("level", [0.05, 0.05 / 6])
def test_seeds_needed_against_simulated_studies_and_scipy(level: float) -> None:
    """Of one task: four of five studies of so many seeds tell arms apart; those of fewer do not."""
    draw, needed = np.random.default_rng(0), seeds_needed(np.array([1.0]), level)
    assert needed is not None

    def told(seeds: int) -> float:
        one, other = draw.normal(1, 1, (2000, seeds)), draw.normal(0, 1, (2000, seeds))
        return float((stats.mannwhitneyu(one, other, axis=1).pvalue < level).mean())

    assert 0.77 < told(needed) < 0.87 and told(needed - 5) < 0.77
    assert 0.9 < least_difference(needed, 1, level) <= 1.0
    assert seeds_needed(np.zeros(3), level) is None


def test_few_seeds_tell_nothing_apart() -> None:
    for seeds, tasks in ((3, 1), (5, 1), (2, 2)):
        one, other = np.full((seeds, tasks), 1.0), np.full((seeds, tasks), 0.0)
        spread = np.arange(seeds)[:, None] * 0.01
        assert p_value(one + spread, other + spread) == pytest.approx(least_p(seeds, seeds, tasks))
    assert least_difference(5, 1, 0.05) == np.inf and least_difference(6, 1, 0.05) < np.inf
    assert seeds_needed(np.array([np.inf]), 0.05) == 6


def test_arms_that_hardly_differ_need_seeds_beyond_number_at_once() -> None:
    """Whose divisions between two arms nobody could count one by one."""
    assert seeds_needed(np.array([1e-6]), 0.05) == pytest.approx(1.64e13, rel=0.01)
