"""Counting episodes, against NumPy over all of them."""

from unittest.mock import MagicMock

import jax.numpy as jnp
import numpy as np
import pytest

from shoal.members.gradient_trained import GradientTrainedShard
from shoal.members.rollouts.episodes import (
    PlayedEpisodes,
    Progress,
    advance,
    begin,
    forget,
    merge,
    no_episodes,
    statistics,
    summarise,
    with_interval,
)
from shoal.members.rollouts.host_episodes import HostEpisodes
from shoal.members.sampled import SampledShard


@pytest.mark.parametrize(
    ("xp", "seed"), [(np, 0), (np, 1), (np, 2), (jnp, 0)], ids=["numpy-0", "numpy-1", "numpy-2", "jax-0"]
)
def test_merge_does_not_depend_on_the_split(xp, seed):
    rng = np.random.default_rng(seed)
    value = rng.normal(100, 3, size=(30, 3, 4)).astype(np.float32)
    length = rng.integers(1, 50, size=(30, 3, 4)).astype(np.float32)
    counted = rng.random((30, 3, 4)) < [[0.5], [0.05], [0]]  # many, few, none
    value[~counted] = np.nan  # what does not count must not matter
    cuts = np.sort(rng.integers(0, 31, size=4))
    outcome = no_episodes(xp, 3)
    for part in zip(*(np.split(x, cuts) for x in (value, length, counted)), strict=True):
        outcome = merge(xp, outcome, *map(xp.asarray, part))
    for i in range(3):
        seen, lengths = value[:, i][counted[:, i]].astype(np.float64), length[:, i][counted[:, i]]
        assert outcome.episodes[i] == len(seen)
        if len(seen):
            np.testing.assert_allclose(outcome.mean[i], seen.mean(), rtol=1e-6)
            np.testing.assert_allclose(outcome.squares[i], ((seen - seen.mean()) ** 2).sum(), rtol=1e-3)
            np.testing.assert_allclose(outcome.length[i], lengths.mean(), rtol=1e-5)
        else:
            assert outcome.mean[i] == outcome.squares[i] == outcome.length[i] == 0


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_advance(xp):
    """Two environments of one member: an episode of two steps that counts, and one that an earlier member began."""
    progress = begin(xp, 1, 2)._replace(counts=xp.asarray([[True, False]]))
    progress, *_, counted = advance(xp, progress, xp.asarray([[np.float32(1), np.float32(2)]]), xp.zeros((1, 2), bool))
    assert not counted.any()
    progress, total, length, counted = advance(xp, progress, xp.full((1, 2), np.float32(5)), xp.ones((1, 2), bool))
    np.testing.assert_array_equal(total, [[6, 7]])
    np.testing.assert_array_equal(length, [[2, 2]])
    np.testing.assert_array_equal(counted, [[True, False]])
    for got, expected in zip(progress, Progress([[0, 0]], [[0, 0]], [[True, True]]), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_summarise():
    value = np.float32([[1, 2, 6], [4, 4, 4]])
    mean, std, count = summarise(value)
    np.testing.assert_allclose(mean, [3, 4])
    np.testing.assert_allclose(std, [7**0.5, 0])
    np.testing.assert_array_equal(count, [3, 3])
    assert mean.dtype == std.dtype == np.float64
    assert np.isnan(summarise(value[:, :1])[1]).all()


@pytest.mark.parametrize(
    ("returns", "mean", "error", "episodes"),
    [
        ([1.0, np.nan, 3.0, np.inf], 2.0, 1.0, 2),
        ([np.nan, 5.0], 5.0, None, 1),
        ([np.nan, -np.inf], None, None, 0),
        ([1e300, 3e300], 2e300, None, 2),
    ],
)
def test_a_broken_episode_has_no_return(returns, mean, error, episodes):
    told = statistics(np.array(returns))
    assert told == {"mean": mean, "standard_error": error, "episodes": episodes}
    assert with_interval(told)["interval"] == (None if error is None else [2 - 1.96, 2 + 1.96])


def test_a_memory_that_is_not_finite_ends_with_the_weights_that_made_it():
    """Only there, and only where they were overwritten; there may be none at all."""
    carry = jnp.float32([[[1], [jnp.nan]], [[jnp.inf], [2]], [[3], [jnp.nan]]]), jnp.ones((3, 2), int)
    fresh = jnp.zeros((3, 2, 1)), jnp.zeros((3, 2), int)
    numbers, counts = forget(carry, fresh, np.array([True, True, False]))
    np.testing.assert_array_equal(numbers[..., 0], [[1, 0], [0, 2], [3, np.nan]])
    np.testing.assert_array_equal(counts, [[1, 0], [0, 1], [1, 1]])
    assert forget((), (), np.ones(3, bool)) == ()


def test_what_is_not_finite_has_no_mean():
    mean, std, count = summarise(np.float32([[1, 3], [1, np.inf], [-np.inf, np.inf], [np.nan, 1]]))
    np.testing.assert_array_equal(mean, [2, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(np.isnan(std), np.isnan(mean))
    np.testing.assert_array_equal(count, [2] * 4)


def test_every_step_counts():
    """Sums of more than 2**24 are not whole in float32."""
    shape = 5, 63
    lengths, values = np.full(shape, 2**20 + 1, np.float32), (np.zeros(shape),)
    of_each = 63 * (2**20 + 1)
    rollouts = MagicMock()
    rollouts.evaluate.return_value = PlayedEpisodes(values, lengths)
    rollouts.measure.return_value = (None, *values, lengths)
    shard = MagicMock(rollouts=rollouts, uid=np.arange(shape[0]), _key=lambda *_: (0,))
    GradientTrainedShard._values(shard, 0, "evaluate", "")
    shard.count_evaluation.assert_called_once_with(5 * of_each)
    played = HostEpisodes.play(rollouts, MagicMock(), range(5), (0,), 63, shape, "test", MagicMock())
    assert played.steps == 5 * of_each
    mean = MagicMock(rollouts=rollouts, uid=np.arange(4), _steps=0, _keys=((0,), ()))
    mean._learner.stored = mean._evaluation.levels = False
    mean._count_mean = lambda: SampledShard._count_mean(mean)
    SampledShard.evaluate(mean, 0)
    np.testing.assert_array_equal(mean._steps, [of_each] * 4)
    mean.count_evaluation.assert_called_once_with(of_each)
