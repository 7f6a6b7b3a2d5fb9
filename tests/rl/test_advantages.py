"""Generalised advantage estimation, against loops and by hand."""

import numpy as np
import pytest

from shoal.rl.advantages import generalised_advantages


def advantages(reward, value, next_value, terminated, truncated, discount, trace) -> np.ndarray:
    columns = [np.asarray(x, np.float32) for x in (reward, value, next_value, terminated, truncated)]
    columns = [x[:, None] if x.ndim == 1 else x for x in columns]
    result = np.asarray(generalised_advantages(*columns, np.float32(discount), np.float32(trace)))
    return result[:, 0] if np.ndim(reward) == 1 else result


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [
        # Worked by hand: discount 1/2, lambda 1/2, so the trace decays by 1/4. The last step always terminates.
        # delta[2] = 3 + 0 - 2 = 1; delta[0] = 1 + 2/2 - 1 = 1
        ([0, 0, 1], [0, 0, 0], [2.0625, 4.25, 1]),  # delta[1] = 2 + 8/2 - 2 = 4, and 4 + 1/4; 1 + 4.25/4
        ([0, 0, 1], [0, 1, 0], [2, 4, 1]),  # a truncation bootstraps from the 8, and cuts the trace
        ([0, 1, 1], [0, 0, 0], [1, 0, 1]),  # a termination does not bootstrap: delta[1] = 2 - 2 = 0
        ([0, 1, 1], [0, 1, 0], [1, 0, 1]),  # both at once: a termination
    ],
)
def test_by_hand(terminated, truncated, expected):
    got = advantages([1, 2, 3], [1, 2, 2], [2, 8, 100], terminated, truncated, 0.5, 0.5)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize(("discount", "trace"), [(0.99, 0.95), (0.9, 0.0), (0.5, 1.0), (1.0, 1.0)])
def test_against_a_backwards_loop(discount, trace):
    rng = np.random.default_rng(0)
    reward, value, next_value = rng.normal(size=(3, 40, 5))
    terminated, truncated = rng.random((2, 40, 5)) < 0.1
    expected, following = np.zeros((40, 5)), np.zeros(5)
    for t in reversed(range(40)):
        for b in range(5):
            bootstrap = 0 if terminated[t, b] else discount * next_value[t, b]
            carried = 0 if terminated[t, b] or truncated[t, b] else discount * trace * following[b]
            following[b] = reward[t, b] + bootstrap - value[t, b] + carried
        expected[t] = following
    got = advantages(reward, value, next_value, terminated, truncated, discount, trace)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_lambda_one_is_the_return_minus_the_value():
    """With lambda = 1, values inside an episode cancel: what is left is the discounted return to its end."""
    reward, value = np.array([1.0, 2, 3, 4]), np.array([0.3, -1, 2, 0.7])
    next_value = np.append(value[1:], 10.0)
    returns = [1 + 0.9 * (2 + 0.9 * (3 + 0.9 * (4 + 9.0))), 2 + 0.9 * (3 + 0.9 * 13), 3 + 0.9 * 13, 13]
    got = advantages(reward, value, next_value, [0] * 4, [0, 0, 0, 1], 0.9, 1.0)
    np.testing.assert_allclose(got + value, returns, rtol=1e-5)
