"""Running statistics against NumPy over everything that was seen."""

import jax
import numpy as np

from shoal.rl import normalize

update_statistics = jax.jit(normalize.update_statistics)


def test_statistics_of_many_batches_are_those_of_all_samples():
    rng = np.random.default_rng(0)
    batches = [rng.normal(loc=i, scale=1 + i, size=(4 + i % 2, 3, 2)).astype(np.float32) for i in range(5)]
    statistics = normalize.empty((2,))
    for batch in batches:
        statistics = update_statistics(statistics, batch, np.ones(batch.shape[:2], bool))
    seen = np.concatenate([batch.reshape(-1, 2) for batch in batches]).astype(np.float64)
    np.testing.assert_allclose(statistics.mean, seen.mean(0), rtol=1e-4)
    np.testing.assert_allclose(statistics.variance, seen.var(0), rtol=1e-4)
    np.testing.assert_allclose(statistics.total, len(seen), rtol=1e-4)


def test_statistics_far_from_zero_keep_their_variance():
    rng = np.random.default_rng(1)
    statistics = normalize.empty(())
    for _ in range(50):
        batch = (1e4 + rng.normal(size=(64, 4))).astype(np.float32)
        statistics = update_statistics(statistics, batch, np.ones((64, 4), bool))
    np.testing.assert_allclose(statistics.variance, 1, rtol=0.05)


def test_what_does_not_count_leaves_no_trace():
    """Whatever it is; and where nothing counts, nothing changes."""
    rng, counts = np.random.default_rng(3), np.array([[True, False], [False, True], [True, True]])
    batch = rng.normal(size=(3, 2, 2)).astype(np.float32)
    before = update_statistics(normalize.empty((2,)), batch, np.ones((3, 2), bool))
    expected = update_statistics(before, batch[None, counts], np.ones((1, 4), bool))
    for odd in (np.nan, np.inf, 1e30):
        spoilt = np.where(counts[..., None], batch, np.float32(odd))
        for x, y in zip(update_statistics(before, spoilt, counts), expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5)
        for x, y in zip(update_statistics(before, spoilt, np.zeros((3, 2), bool)), before, strict=True):
            np.testing.assert_array_equal(x, y)


def test_normalise():
    statistics = normalize.Statistics(np.float32([3, 0]), np.float32([4, 1]), np.float32(1))
    x = np.float32([[[5, 0.5]], [[1e6, -1e6]]])
    np.testing.assert_allclose(normalize.normalize(statistics, x), [[[1, 0.5]], [[10, -10]]], rtol=1e-5)


def test_nothing_seen_changes_nothing():
    x = np.float32([[-2, 0.5]])
    np.testing.assert_allclose(normalize.normalize(normalize.empty((2,)), x), x, rtol=1e-5)


def test_running_returns():
    rng = np.random.default_rng(2)
    reward, done = rng.normal(size=(12, 3)).astype(np.float32), rng.random((12, 3)) < 0.2
    carried = np.float32([1, -2, 0])
    total, expected = carried.astype(np.float64), np.zeros((12, 3))
    for t in range(12):
        total = 0.9 * total + reward[t]
        expected[t] = total
        total = np.where(done[t], 0, total)
    after, sums = normalize.running_returns(carried, reward, done.astype(np.float32), np.float32(0.9))
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after, total, rtol=1e-5, atol=1e-6)
