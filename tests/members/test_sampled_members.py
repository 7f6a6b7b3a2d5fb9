"""Shards of sampled members without their learner: what they make of an evaluation, of one that another process has made,
and of the progress of the run."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from shoal.core.types import RunProgress
from shoal.environments.evaluation import EvaluationConfig
from shoal.members.mean import OfMean
from shoal.members.protocol import Outcome, Setup
from shoal.members.sampled import SampledShard, SharedEvaluation
from shoal.rl.schedules import share_done


def test_schedules_of_sampled_members_go_on_by_the_parts_of_an_interval() -> None:
    """However many updates these make: here 8, in three calls, of 100 parts. The run is then as far as after the 100."""
    calls: list[tuple[RunProgress, int, int]] = []

    def improve(population: Any, sums: Any, key: Any, progress: RunProgress, done: Any, count: Any) -> Any:
        calls.append((progress, int(done), int(count)))
        return population, sums

    shard = MagicMock(uid=np.arange(2), hyper={}, _key=lambda *_: (0,), _names=[], _improve=improve)
    shard._learner.stored, shard._learner.updates.return_value = False, 8
    shard._steps = shard._new_steps = np.zeros(2)
    SampledShard.train(shard, 0, 100, 30, RunProgress(*np.float32([50, 1, 400])))
    assert [(done, count) for _, done, count in calls] == [(0, 3), (3, 3), (6, 2)]
    for progress, done, count in calls:
        np.testing.assert_allclose(share_done(progress, np.int32(done + count - 1)), (50 + 12.5 * (done + count)) / 400)


def measured(finite: list[bool], sound: bool) -> Any:
    """A shard of three sampled actors after an evaluation, in which each has scored 1, and the mean too."""
    rollouts = MagicMock()
    rollouts.measure.return_value = (None, np.ones((4, 2)), np.ones((4, 2), np.float32))
    shard = MagicMock(rollouts=rollouts, uid=np.arange(3), _steps=np.zeros(3, np.int64), _keys=((0,), ()))
    shard._learner.stored, shard._evaluation.levels = True, False
    shard._finite, shard._sound = lambda members: np.array(finite), lambda population: sound
    SampledShard.evaluate(shard, 0)
    return shard


def test_what_has_diverged_has_no_fitness_whatever_it_scores() -> None:
    """An actor, or the mean."""
    np.testing.assert_array_equal(measured([True, False, True], True)._fitness, [1, np.nan, 1])
    assert measured([True] * 3, True)._of_mean.fitness == 1
    assert np.isnan(measured([True] * 3, False)._of_mean.fitness)


def test_a_resumed_run_knows_the_steps_of_the_generation_before() -> None:
    """By which CEM-RL counts its updates."""
    shard, resumed = measured([True] * 3, True), MagicMock()
    shard._state = lambda learned, population, **counters: [{"rest": {"population": population, "counters": counters}}]
    SampledShard.restore(resumed, SampledShard.state(shard), 0)
    assert resumed._new_steps.tolist() == [2, 2, 2] and resumed._of_mean.fitness == 1


@pytest.mark.parametrize(
    ("measured_on", "sound", "expected"),
    [("validation", True, (2, 2**0.5, 2)), ("train", True, (5, 1, 4)), ("validation", False, (np.nan, 2**0.5, 2))],
)
def test_the_mean_is_measured_on_levels_that_nobody_has_learned_from(
    measured_on: str, sound: bool, expected: tuple[float, float, int]
) -> None:
    """It returned 5 on train levels, and returns 1 and 3 on others, which give its fitness where the experiment says so."""
    shard, played = MagicMock(hyper={}), MagicMock(return_value=Outcome(np.array([[1.0, 3.0]]), 10))
    shard._of_mean, shard._evaluation.measured_on, shard.test = OfMean(5.0, 1.0, 4, 5.0, steps=7), measured_on, played
    SampledShard._measure_mean(shard, 0, sound)
    mean = shard._of_mean
    np.testing.assert_allclose([mean.fitness, mean.std, mean.episodes], expected)
    assert (mean.steps, mean.beside_members, played.call_args.args[-1]) == (17, 5, "validation")
    found = [mean.metrics[f"levels/{name}"][0] for name in ("train", "validation", "gap")]
    np.testing.assert_allclose(found, [5, 2, 3] if sound else [5, np.nan, np.nan])


def test_a_shard_takes_over_what_another_process_has_measured_and_counts_it_once() -> None:
    """The numbers of its members, and the mean of the shard that was measured here."""
    here = measured([True, False, True], True)
    np.testing.assert_array_equal(SampledShard.measured(here), [[2, 1, 0, 2], [2, np.nan, 0, 2], [2, 1, 0, 2]])
    other = MagicMock(uid=np.arange(3, 6), _measured_in=-1, _steps=np.full(3, 10))
    rows = np.array([[5, 2.5, 0.5, 4], [7, np.nan, np.nan, 4], [9, -1, 0, 4]])
    for _ in range(2):
        SampledShard.accept(other, 0, rows, here)
    assert (other._steps.tolist(), other._new_steps.tolist(), other._counted.tolist()) == (
        [15, 17, 19],
        [5, 7, 9],
        [4] * 3,
    )
    np.testing.assert_array_equal([other._fitness, other._std], rows[:, 1:3].T)
    other._count_mean.assert_called_once_with()
    assert other._of_mean is here._of_mean
    other.take_shared.assert_called_with(here)


def test_workers_publish_what_they_measure_and_take_over_the_rest():
    """Of two parts one is measured here."""
    shards, returns = (
        [MagicMock(uid=np.arange(i, i + 2)) for i in (0, 2)],
        MagicMock(rows=[np.zeros((2, 4)), np.ones((2, 4))]),
    )
    returns.to_measure.return_value = iter([1])
    SharedEvaluation(shards, Setup(0, EvaluationConfig(), returns=returns)).evaluate(3)
    returns.to_measure.assert_called_once_with(3, 2, (2, 4))
    shards[0].evaluate.assert_not_called()
    shards[1].evaluate.assert_called_once_with(3)
    returns.publish.assert_called_once_with(3, 1, shards[1].measured())
    for part, shard in enumerate(shards):
        shard.accept.assert_called_once_with(3, returns.rows[part], shards[1])
