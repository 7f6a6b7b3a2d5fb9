"""Ranges: what is refused, what is drawn, and how values move."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from support.strategies import CHOICES, INTEGERS, RANGES, REALS

from shoal.core.errors import BadInput
from shoal.core.space import Range
from shoal.methods.ranges import at_bound, nearest, perturb, places, sample, shift, validate, values_at

LINEAR = Range(-2.0, 2.0)
LOG = Range(1e-5, 1e-2, "log")
DISCOUNT = Range(0.9, 0.999, "one_minus_log")
WHOLE = Range(1, 5, integer=True)
ORDERED = Range(choices=(32, 64, 128, 256), ordered=True)
UNORDERED = Range(choices=(0.1, 0.5, 0.7))
UNIFORM = st.floats(0, 1, exclude_max=True)
VALUES, FACTORS = st.floats(-1e30, 1e30), st.floats(1e-6, 1e6)


def uniform(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(n)


def moved(r: Range, x: list[float], factor: float | list[float], u: float = 0.0) -> list[float]:
    return perturb(r, np.array(x, np.float32), np.broadcast_to(factor, len(x)), np.full(len(x), u)).tolist()


def holds(r: Range, x: np.ndarray) -> None:
    """Assert that values are float32 numbers that the range allows."""
    assert x.dtype == np.float32
    if r.choices:
        assert np.isin(x, np.float32(r.choices)).all()
    else:
        assert np.all((x.astype(np.float64) >= r.low) & (x.astype(np.float64) <= r.high))
        assert not r.integer or np.all(x == np.rint(x))


@pytest.mark.parametrize(
    "r",
    [
        Range(),
        Range(low=1.0),
        Range(2.0, 1.0),
        Range(1.0, 1.0),
        Range(float("nan"), 1.0),
        Range(0.0, float("nan")),
        Range(0.0, float("inf")),
        Range(0.0, 1e39),
        Range(1.0, 1.0 + 1e-9),
        Range(0.0, 1.0, "log"),
        Range(-1.0, 1.0, "log"),
        Range(0.9, 1.0, "one_minus_log"),
        Range(-0.1, 0.9, "one_minus_log"),
        Range(0.5, 3, integer=True),
        Range(1, 3.5, integer=True),
        Range(0, 2**30, integer=True),
        Range(0.0, 1.0, ordered=True),
        Range(choices=()),
        Range(choices=(1.0,)),
        Range(choices=(1.0, 1.0)),
        Range(choices=(1.0, float("nan"))),
        Range(choices=(1.0, 1e39)),
        Range(0.0, 1.0, choices=(1.0, 2.0)),
        Range(choices=(1.0, 2.0), scale="log"),
        Range(0.0, 1.0, initial=1.5),
        Range(0.0, 1.0, initial=float("nan")),
        Range(1, 5, integer=True, initial=2.5),
        Range(choices=(1.0, 2.0), initial=3.0),
    ],
    ids=repr,
)
def test_bad_ranges_are_refused(r, said):
    with pytest.raises(BadInput) as refusal:
        validate("learning_rate", r)
    said(refusal.value)


def test_the_prior_is_uniform_in_the_own_scale():
    x = sample(LOG, uniform(20000))
    decades = np.histogram(np.log10(x), [-5, -4, -3, -2])[0] / len(x)
    assert decades == pytest.approx([1 / 3] * 3, abs=0.015)  # drawn linearly, the top decade would hold 90 %
    unit = {
        "linear": (sample(LINEAR, uniform(2000)) + 2) / 4,
        "one_minus_log": np.log10((1 - sample(DISCOUNT, uniform(2000)).astype(float)) / 0.1) / -2,
    }
    for values in unit.values():
        assert stats.kstest(values, "uniform").pvalue > 0.01


def test_each_whole_number_is_equally_likely():
    x = sample(WHOLE, uniform(10000))
    values, counts = np.unique(x, return_counts=True)
    assert values.tolist() == [1, 2, 3, 4, 5]
    assert stats.chisquare(counts).pvalue > 0.01
    values, counts = np.unique(sample(UNORDERED, uniform(9000)), return_counts=True)
    assert stats.chisquare(counts).pvalue > 0.01 and len(values) == 3


def test_log_scaled_whole_numbers_follow_their_logarithm():
    x = sample(Range(1, 8, "log", integer=True), uniform(20000))
    expected = [np.log((k + 1) / k) / np.log(9) for k in range(1, 9)]
    assert [np.mean(x == k) for k in range(1, 9)] == pytest.approx(expected, abs=0.012)


@given(RANGES)
def test_the_extremes_of_the_draw_are_the_bounds(r):
    validate("x", r)
    ends = sample(r, np.array([0.0, np.nextafter(1.0, 0.0)]))
    holds(r, ends)
    allowed = [r.low, r.high] if r.choices is None else [r.choices[0], r.choices[-1]]
    np.testing.assert_allclose(ends, np.float32(allowed), rtol=1e-6, atol=1e-6 * (allowed[1] - allowed[0]))


@given(RANGES, UNIFORM, VALUES, FACTORS, st.floats(-2, 2))
def test_whatever_happens_a_value_stays_in_its_range(r, u, x, factor, step):
    """Float32 numbers too, which would round out of it."""
    u, near = np.array([u]), nearest(r, np.array([x]))
    for new in (sample(r, u), near, perturb(r, near, np.array([factor]), u), shift(r, near, np.array([step]), u)):
        holds(r, new)


@given(RANGES, VALUES)
def test_the_nearest_value_is_the_nearest(r, x):
    (found,) = nearest(r, np.array([x]))
    others = r.choices or np.clip([round(x) if r.integer else x], r.low, r.high)
    distance, rounding = min(abs(other - x) for other in others), 1e-37 + 1e-6 * max(abs(other) for other in others)
    np.testing.assert_allclose(abs(found.astype(float) - x), distance, rtol=1e-6, atol=rounding)
    assert nearest(r, np.array([found])) == found


def test_nearest():
    assert nearest(WHOLE, np.array([0.0, 2.4, 3.6, 99.0])).tolist() == [1, 2, 4, 5]
    assert nearest(ORDERED, np.array([0.0, 60.0, 1e9])).tolist() == [32, 64, 256]


def test_factors_apply_in_the_own_scale():
    assert moved(LINEAR, [1.0, -1.0], 1.2) == pytest.approx([1.2, -1.2])
    assert moved(LOG, [1e-3, 1e-4], [0.8, 1.2]) == pytest.approx([8e-4, 1.2e-4])
    assert moved(DISCOUNT, [0.99, 0.99], [1.2, 0.8]) == pytest.approx([0.988, 0.992])
    assert moved(LOG, [1e-3], 1.0) == [np.float32(1e-3)]


def test_reflection_at_the_bounds():
    assert moved(LINEAR, [2.0, 1.9, -2.0], 1.2) == pytest.approx([1.6, 1.72, -1.6])
    assert moved(Range(0.0, 1.0), [0.9], 1.2) == pytest.approx([0.92])  # a probability of 1.08 comes back
    assert moved(LOG, [1e-2, 1e-5], [1.25, 0.8]) == pytest.approx([0.8e-2, 1.25e-5])
    assert moved(DISCOUNT, [0.999, 0.9], [0.8, 1.25]) == pytest.approx([1 - 0.00125, 1 - 0.08])
    assert moved(Range(1.0, 2.0), [1.5], 100.0) == pytest.approx([2.0])  # 150 is reflected 149 times


@given(REALS, UNIFORM, FACTORS)
def test_a_factor_is_one_of_x_or_of_1_minus_x(r, u, factor):
    """Where that leads to a value of the range, and x is not near to 0."""
    x = sample(r, np.array([u]))
    wanted = 1 - (1 - x.astype(float)) * factor if r.scale == "one_minus_log" else x.astype(float) * factor
    assume(r.low <= wanted <= r.high and (r.scale != "linear" or abs(x) >= (r.high - r.low) / 20))
    width = 0 if r.scale == "log" else max(abs(r.low), abs(r.high))
    np.testing.assert_allclose(perturb(r, x, np.array([factor]), x), wanted, rtol=1e-6, atol=1e-6 * width)


def test_zero_is_not_absorbing():
    assert moved(Range(0.0, 1.0), [0.0, 0.0], [1.2, 0.8]) == pytest.approx([0.01, 0.01])
    assert moved(Range(-1.0, 1.0), [0.0, 0.0], [1.2, 0.8]) == pytest.approx([0.02, -0.02])
    assert moved(DISCOUNT, [0.9], 1.0) == pytest.approx([0.9])


def test_whole_numbers_always_move():
    assert moved(WHOLE, [1, 2, 4], 1.2) == [2, 3, 5]
    assert moved(WHOLE, [1, 2, 4, 5], 0.8) == [2, 1, 3, 4]
    assert moved(WHOLE, [5], 1.2) == [4]  # reflected
    assert moved(Range(1, 1000, "log", integer=True), [1, 1000, 100], [0.8, 1.2, 1.2]) == [2, 833, 120]
    assert moved(Range(0, 1, integer=True), [0, 0, 1, 1], [0.8, 1.2, 0.8, 1.2]) == [1, 1, 0, 0]


@given(INTEGERS | CHOICES, UNIFORM, FACTORS, st.floats(-2, 2))
def test_whole_numbers_and_choices_always_move(r, u, factor, step):
    assume(factor != 1 and step != 0)
    u = np.array([u])
    x = sample(r, u)
    assert perturb(r, x, np.array([factor]), u) != x
    assert shift(r, x, np.array([step]), u) != x


@given(CHOICES, st.data(), FACTORS)
def test_ordered_choices_move_to_a_neighbour_and_turn_round_at_the_ends(r, data, factor):
    assume(r.ordered and factor != 1)
    i, last = data.draw(st.integers(0, len(r.choices) - 1)), len(r.choices) - 1
    expected = (1 if i == 0 else i - 1) if factor < 1 else (last - 1 if i == last else i + 1)
    assert moved(r, [r.choices[i]], factor) == [np.float32(r.choices[expected])]


def test_ordered_choices_move_to_a_neighbour():
    assert moved(ORDERED, [32, 64, 128], 1.2) == [64, 128, 256]
    assert moved(ORDERED, [256, 128, 64], 0.8) == [128, 64, 32]
    assert moved(ORDERED, [32, 256], [9.0, 0.1]) == [64, 128]  # however large the factor
    assert moved(ORDERED, [256, 32], [1.2, 0.8]) == [128, 64]  # and turn round at the ends
    assert moved(Range(choices=(3, 1), ordered=True), [3, 1, 3, 1], [1.2, 1.2, 0.8, 0.8]) == [1, 3, 1, 3]


def test_unordered_choices_are_redrawn_from_the_others():
    x = np.full(4000, 0.5, np.float32)
    values, counts = np.unique(perturb(UNORDERED, x, np.full(4000, 1.2), uniform(4000)), return_counts=True)
    assert values.tolist() == np.float32([0.1, 0.7]).tolist()
    assert stats.chisquare(counts).pvalue > 0.01


def test_shift_steps_in_the_unit_scale():
    def shifted(r: Range, x: float, step: float) -> float:
        return float(shift(r, np.float32([x]), np.array([step]), np.zeros(1))[0])

    assert shifted(LINEAR, 0.0, 0.25) == pytest.approx(1.0)
    assert shifted(LOG, 1e-4, 1 / 3) == pytest.approx(1e-3)
    assert shifted(DISCOUNT, 0.99, -0.5) == pytest.approx(0.9)
    assert shifted(LOG, 1e-3, 1e4) == pytest.approx(1e-2)  # clipped
    assert shifted(WHOLE, 3, 0.01) == 4 and shifted(WHOLE, 5, 0.01) == 4  # a small step still moves
    assert shifted(ORDERED, 32, 2 / 3) == 128


def test_at_bound():
    assert at_bound(LOG, np.float32([1e-5, 1.1e-5, 2e-5, 1e-3, 0.999e-2])).tolist() == [True, True, False, False, True]
    assert at_bound(DISCOUNT, np.float32([0.9, 0.95, 0.999])).tolist() == [True, False, True]
    assert at_bound(WHOLE, np.float32([1, 2, 5])).tolist() == [True, False, True]
    assert at_bound(ORDERED, np.float32([32, 64, 256])).tolist() == [True, False, True]
    assert not at_bound(UNORDERED, np.float32([0.1, 0.7])).any()


@given(RANGES, st.lists(UNIFORM, min_size=1))
def test_places_and_back(r, u):
    """Every value has a place within [0, 1], from which it comes back; the ends of the range are those of the scale."""
    x = sample(r, np.array(u))
    width = 0 if r.choices or r.scale == "log" else r.high - r.low
    np.testing.assert_allclose(values_at(r, places(r, x)), x, rtol=1e-6, atol=1e-6 * width)
    assert ((places(r, x) >= 0) & (places(r, x) <= 1)).all()
    ends = np.array([r.choices[0], r.choices[-1]] if r.choices else [r.low, r.high])
    np.testing.assert_allclose(places(r, ends), [0, 1], atol=1e-4)


def test_places_by_hand():
    np.testing.assert_allclose(places(LOG, np.array([1e-4])), [1 / 3], rtol=1e-5)
    np.testing.assert_allclose(places(DISCOUNT, np.array([0.99])), [0.5], rtol=1e-4)
    assert places(ORDERED, np.array([64.0, 130.0])).tolist() == [1 / 3, 2 / 3]
    assert values_at(WHOLE, np.array([0.3, 0.45])).tolist() == [2, 3]
