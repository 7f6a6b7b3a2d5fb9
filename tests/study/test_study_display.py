"""The terminal's view of a study."""

from __future__ import annotations

from io import StringIO

import numpy as np

from shoal.records.screen import Screen
from shoal.study.display import progress_table, time_left
from shoal.study.results import RunOutcome
from shoal.study.study_file import RunKey


def outcome(score: float, **row: float) -> RunOutcome:
    return RunOutcome(score, row, np.empty((0, 2)), {}, np.empty((0, 3)), False)


def test_a_run_without_a_champion_hides_no_mean() -> None:
    """It is done, and the mean is that of the champions that there are."""
    keys = {arm: [RunKey("", arm, seed) for seed in range(3)] for arm in ("some", "none")}
    scores = {"some": (1.0, np.nan, 4.0), "none": (np.nan,)}
    outcomes = {key: outcome(x) for arm in keys for key, x in zip(keys[arm], scores[arm], strict=False)}
    console = Screen(file=StringIO(), width=80)
    console.print(progress_table("", {("", arm): keys[arm] for arm in keys}, outcomes, {}))
    lines = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert ["some", "3/3", "2.5"] in lines and ["none", "1/3"] in lines


def test_the_time_left_counts_the_steps_of_each_arm() -> None:
    """One agent took 50 and 70 s for its 1,000 steps: 60 s a run. A population of 32 makes 32 times the steps, so that it
    takes 32 minutes, and half of its first run is done. Of an arm with unknown steps a run takes what others took.
    """
    arms = {("task", arm): [RunKey("task", arm, seed) for seed in range(2)] for arm in ("one", "many", "unknown")}
    steps = {("task", "one"): 1000.0, ("task", "many"): 32_000.0, ("task", "unknown"): np.nan}
    one, many, unknown = arms.values()
    done = {one[0]: outcome(1.0, seconds=50.0), one[1]: outcome(1.0, seconds=70.0)}

    def left(due: dict[RunKey, float]) -> str:
        return time_left(arms, steps, done, due)

    assert left({}) == "00:00:00"
    assert left({many[0]: 0.5}) == "00:16:00" and left({many[0]: 0.5, many[1]: 1.0}) == "00:48:00"
    assert left({unknown[0]: 1.0}) == "00:01:00"
    done[many[0]] = outcome(1.0, seconds=600.0)
    assert left({many[1]: 1.0}) == "00:10:00"  # 32 members side by side took less


def test_the_time_left_of_a_task_is_by_the_runs_on_it() -> None:
    """A step of the second task takes four times as long; of a third nothing is known but what both took."""
    arms = {(task, "a"): [RunKey(task, "a", seed) for seed in range(2)] for task in ("fast", "slow", "new")}
    arms["slow", "b"] = [RunKey("slow", "b", 0)]
    steps = dict.fromkeys(arms, 100.0)
    done = {arms["fast", "a"][0]: outcome(1.0, seconds=10.0), arms["slow", "a"][0]: outcome(1.0, seconds=40.0)}
    assert time_left(arms, steps, done, {arms["slow", "b"][0]: 1.0}) == "00:00:40"
    assert time_left(arms, steps, done, {arms["new", "a"][0]: 1.0}) == "00:00:25"
