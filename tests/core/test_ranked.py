"""Ranks of members whose fitness ties are broken."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from shoal.core.candidates import Candidates
from shoal.core.population import PopulationStats
from shoal.core.trend import Trend
from shoal.distributed.synchronous import KnownMembers
from shoal.environments.levels import Levels
from shoal.experiment.experiment import Experiment
from shoal.members.protocol import Outcome
from shoal.run import race

NAN, EPISODES = math.nan, 8


def successes(counts: list[float], tie_breaker: list[float], episodes: int = EPISODES) -> PopulationStats:
    """Members that have succeeded in so many of the episodes."""
    share = np.array(counts) / episodes
    std = np.sqrt(share * (1 - share) * episodes / (episodes - 1)) if episodes > 1 else np.full(len(counts), NAN)
    whole = np.arange(len(counts))
    return PopulationStats(
        whole, whole, whole, share, std, whole * 0 + episodes, {}, tie_breaker=np.array(tie_breaker, float)
    )


@pytest.mark.parametrize(
    ("counts", "tie_breaker", "worse"),
    [
        ([0, 0, 0, 0], [3, 1, 4, 1], [2, 0, 3, 0]),  # nobody succeeds; equals stay equal
        ([8, 0, 6, 0], [0, 9, 0, 10], [3, 0, 2, 1]),  # the objective comes first
        ([1, 0, 0, 4], [0, 2, 1, 0], [0, 2, 1, 3]),  # one success of eight is one standard error, and may be luck
        ([4, 3, 2, 8], [0, 1, 9, 0], [1, 2, 0, 3]),  # groups of who is within an error of their best: 8; 4 and 3; 2
        ([NAN, 0, 5, 0], [9, 1, NAN, NAN], [NAN, 2, 3, 1]),  # who diverged has none, and is worse than all
    ],
)
def test_the_second_decides_where_the_first_does_not_differ(
    counts: list[float], tie_breaker: list[float], worse: list[float]
) -> None:
    ranked = successes(counts, tie_breaker).ranked()
    np.testing.assert_array_equal(ranked.fitness, worse)
    assert (ranked.std == 0).all()


def test_one_episode_has_no_standard_error() -> None:
    np.testing.assert_array_equal(successes([0, 1, 0], [5, 0, 7], episodes=1).ranked().fitness, [0, 2, 1])


def test_without_a_second_the_stats_stay_as_they_are() -> None:
    stats = successes([1, 2], [0, 0])._replace(tie_breaker=None)
    assert stats.ranked() is stats


def test_candidates_are_added_in_this_order() -> None:
    assert Candidates().rows_to_add(successes([0, 0, 4, 0], [2, 3, 0, 1]), 4) == [2, 1, 0, 3]


def test_more_episodes_of_some() -> None:
    """Ten in each of eight easier episodes: the two who played them come closer to one another, and not closer to the third.
    Who breaks one has no fitness."""
    stats = successes([1, 2, 3], [0, 0, 0])
    stats = stats._replace(fitness=np.array([4.0, 2.0, 3.0]), std=np.ones(3), episodes=np.full(3, 8))
    more = stats.with_more(np.array([0, 1]), np.full((2, 8), 10.0))
    assert more.fitness.tolist() == [3.5, 2.5, 3.0]
    assert more.std.tolist() == [0.5**0.5, 0.5**0.5, 1.0]
    assert more.episodes.tolist() == [16, 16, 8]
    broken = stats.with_more(np.array([0, 1]), np.array([[10.0, np.inf], [10.0, 10.0]]))
    assert np.isnan(broken.fitness[0]) and broken.fitness[1:].tolist() == [2.0, 3.0]
    assert np.isnan(stats._replace(episodes=np.ones(3, int)).with_more(np.array([0, 1]), np.ones((2, 1))).std[:2]).all()


def test_a_race_is_among_those_whose_rank_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its episodes count for what breaks ties as for the fitness."""
    members, seen = successes([0, 0, 0], [1, 4, 3]), list[PopulationStats]()

    def in_doubt(state: None, stats: PopulationStats, round_: int) -> np.ndarray:
        seen.append(stats)
        return np.arange(1 - round_, 3 - round_)[: 2 - 2 * round_]

    monkeypatch.setattr(race, "Policy", MagicMock())
    monkeypatch.setattr(race, "of_row", MagicMock())
    monkeypatch.setattr(race, "derive", MagicMock())
    c, state = MagicMock(), MagicMock()
    c.plan.evolver.in_doubt = in_doubt
    state.done = 0
    state.shard.test.return_value = Outcome(np.zeros((2, 8)), 16, np.array([[0.0] * 8, [9.0] * 8]))
    after = race.after_race(c, state, KnownMembers(members, members, {}, 0, False, 0.0))
    assert after.members.tie_breaker is not None and after.members.tie_breaker.tolist() == [1.0, 1.5, 5.5]
    assert [stats.fitness.tolist() for stats in seen] == [[0, 2, 1], [0, 1, 2]]
    state.shard.count_evaluation.assert_called_once_with(16)


def test_every_race_has_episodes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each round and generation, on the levels that give the fitness: none that is to test the champion decides."""
    monkeypatch.setattr(race, "Policy", MagicMock())
    monkeypatch.setattr(race, "of_row", MagicMock())
    members, asked = successes([3, 2, 1], [0, 0, 0])._replace(tie_breaker=None), list[tuple[Any, int, str]]()

    def test(policies: Any, key: Any, episodes: int, levels: str) -> Outcome:
        asked.append((key, episodes, levels))
        return Outcome(np.zeros((len(policies), episodes)), 0)

    for levels in (None, Levels()):
        for generation in range(2):
            c, state = MagicMock(), MagicMock()
            c.experiment, c.plan.evaluation.episodes = Experiment(levels=levels), EPISODES
            c.plan.evolver.in_doubt = lambda state, stats, round_: np.arange(2 * (round_ < 2))
            state.done, state.shard.test = generation, test
            race.after_race(c, state, KnownMembers(members, members, {}, 0, False, 0.0))
    assert [x for _, _, x in asked] == ["test"] * 4 + ["validation"] * 4
    assert {episodes for _, episodes, _ in asked} == {EPISODES * 3 // 2}
    assert len({key for key, _, _ in asked}) == 4


def test_what_breaks_ties_improves_while_the_fitness_does_not_differ() -> None:
    """In means of four; not where the fitness is less, and not by luck with the one and the other in turn."""

    def course(counts: list[int], tie_breaker: list[float]) -> list[int]:
        trend, since = Trend(), list[int]()
        for count, x in zip(counts, tie_breaker, strict=True):
            stats = successes([count, 0], [x, x - 9])
            trend = trend.after(stats.best, stats.best_tie)
            since.append(trend.since)
        return since

    assert course([0] * 8, [1, 1, 1, 1, 2, 2, 1, 0]) == [0, 0, 0, 0, 0, 0, 1, 2]
    assert course([1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 2]) == [0] * 6, "one success of eight may be luck"
    assert course([8] * 4 + [0] * 4, [0, 0, 0, 0, 1, 2, 3, 4]) == [0, 0, 0, 0, 1, 2, 3, 4]
    assert course([0] * 4 + [8] * 2, [4, 4, 4, 4, 0, 0]) == [0] * 6, "the objective comes first"
    assert course([0] * 6, [1, 1, NAN, 1, 1, 1]) == [0, 0, 0, 0, 0, 1], "some have none"
    assert course([4, 4, 4, 4] + [5, 4] * 6, [1.0] * 4 + [0.0, 1.0] * 6)[-1] == 12


def test_candidates_of_earlier_generations_are_the_best_of_their_ties() -> None:
    """Although nobody ever succeeds, and later ones have less of what breaks ties; or one success makes no difference."""

    def after(counts: list[int], tie_breaker: list[float]) -> Candidates:
        candidates = Candidates()
        for generation, (count, x) in enumerate(zip(counts, tie_breaker, strict=True)):
            stats = successes([count, 0], [x, x - 9])._replace(generation=np.full(2, generation))
            rows = candidates.rows_to_add(stats, 0)
            candidates = candidates.with_generation(stats, rows, [None] * len(rows), False)
        return candidates

    falling = after([0] * 12, [float(-k) for k in range(12)])
    assert [one.generation for one in falling.earlier] == [0, 1, 2, 3, 11]
    assert falling.champion.smoothed.tie_breaker == 0.0
    assert after([0, 1], [5, 0]).champion.generation == 0
    assert after([0, 8], [5, 0]).champion.generation == 1
    assert after([0] * 3, [NAN, 1, 0]).champion.generation == 1, "some have none"
