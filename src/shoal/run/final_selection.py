"""The final selection: of the members of the last generation and the best of earlier ones, the champion is found by
sequential halving on new episodes, the same for all that are left (Karnin, Koren & Somekh 2013, Algorithm 1).

The fitness of the fittest of many was partly luck: each generation has its own episodes, and few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.core.candidates import Candidate
from shoal.core.keys import derive
from shoal.core.population import ranks
from shoal.experiment.experiment import Experiment
from shoal.members.acting import Policy
from shoal.members.protocol import Tester
from shoal.members.rollouts.episodes import statistics, summarise

FIRST = 4  # episodes of each candidate in the first round, at least


def episodes_of(experiment: Experiment, steps: int, length: float) -> int:
    """Episodes of the whole selection: those that `fitness.final_selection` of the run's `steps` make, of this mean length,
    and at least `final_episodes`."""
    affordable = int(experiment.fitness.final_selection * steps / length) if length else 0
    return max(experiment.final_episodes, affordable)


def episodes_among(experiment: Experiment, champions: int) -> int:
    """Episodes of a selection among the champions of workers: together as many as in their final evaluations, and enough
    for all of them to take part."""
    return champions * max(experiment.final_episodes, _rounds(champions) * FIRST)


def places(episodes: int) -> int:
    """Return the most candidates of whom each still plays FIRST of these episodes in the first round."""
    count = 1
    while (count + 1) * _rounds(count + 1) * FIRST <= episodes:
        count += 1
    return count


def select_champion(
    experiment: Experiment,
    tester: Tester,
    candidates: Sequence[Candidate],
    episodes: int,
    purpose: str = "final selection",
) -> tuple[Candidate, dict[str, Any]]:
    """The best of the candidates, in so many episodes in all; of equal ones, and where these are too few, the first. With it
    its part of result.json, where there was a choice.

    purpose: of the episodes, which are others for another purpose
    """
    key, steps = derive((experiment.seed,), purpose), 0
    levels = "test" if experiment.levels is None else experiment.fitness.levels

    def play(rows: Sequence[int], round_: int, each: int) -> tuple[np.ndarray, ...]:
        nonlocal steps
        policies = [Policy(candidates[row].learned, candidates[row].hyper) for row in rows]
        tested = tester.test(policies, derive(key, round_), each, levels)
        steps += tested.steps
        return (tested.returns,) if tested.tie_breaker is None else (tested.returns, tested.tie_breaker)

    count = min(len(candidates), places(episodes))
    if count == 1:
        return candidates[0], {}
    first, returns, played = sequential_halving(count, episodes, play)
    summary = {"candidates": count, "episodes": played, "steps": steps, "champion": statistics(returns)}
    return candidates[first], {"final_selection": summary}


def sequential_halving(
    count: int, episodes: int, play: Callable[[Sequence[int], int, int], tuple[np.ndarray, ...]]
) -> tuple[int, np.ndarray, int]:
    """Find the candidate of the highest mean return, of `count` >= 2, in `episodes` at most: every round has as many of
    them, all that are left play the same ones, and the worse half leaves. Of equal ones the first is better.

    play: (candidates [K] that are left, round, episodes of each) -> their returns [K, episodes], NaN where one was broken;
        and as much of what breaks ties, where something does
    Returns the candidate, all its returns, and the number of episodes that all have played.
    """
    left, rounds, played = np.arange(count), _rounds(count), 0
    values: tuple[np.ndarray, ...] = ()
    for round_ in range(rounds):
        each = episodes // (rounds * len(left))
        new = play(left.tolist(), round_, each)
        values = tuple(np.concatenate(both, axis=1) for both in zip(values, new, strict=True)) if values else new
        played += len(left) * each
        best = np.argsort(-_merit(*values), kind="stable")[: -(-len(left) // 2)]  # NaN comes last
        left, values = left[best], tuple(x[best] for x in values)
    return int(left[0]), values[0][0], played


def _merit(returns: np.ndarray, tie_breaker: np.ndarray | None = None) -> np.ndarray:
    """Mean returns [K], or ranks where something breaks ties; NaN where an episode was broken."""
    with np.errstate(over="ignore", invalid="ignore"):  # trainers may return numbers whose sum is infinite
        mean, std, count = summarise(returns)
    return mean if tie_breaker is None else ranks(mean, std, count, summarise(tie_breaker)[0])


def _rounds(count: int) -> int:
    return max(count - 1, 0).bit_length()
