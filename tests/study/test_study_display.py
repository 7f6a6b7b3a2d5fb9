"""The terminal's view of a study."""

from __future__ import annotations

from io import StringIO

import numpy as np

from shoal.records.screen import Screen
from shoal.study.display import progress_table
from shoal.study.results import RunOutcome
from shoal.study.study_file import RunKey


def outcome(score: float) -> RunOutcome:
    return RunOutcome(score, {}, np.empty((0, 2)), {}, np.empty((0, 3)), False)


def test_a_run_without_a_champion_hides_no_mean() -> None:
    """It is done, and the mean is that of the champions that there are."""
    keys = {arm: [RunKey("", arm, seed) for seed in range(3)] for arm in ("some", "none")}
    scores = {"some": (1.0, np.nan, 4.0), "none": (np.nan,)}
    outcomes = {key: outcome(x) for arm in keys for key, x in zip(keys[arm], scores[arm], strict=False)}
    console = Screen(file=StringIO(), width=80)
    console.print(progress_table("", {("", arm): keys[arm] for arm in keys}, outcomes, {}))
    lines = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert ["some", "3/3", "2.5"] in lines and ["none", "1/3"] in lines
