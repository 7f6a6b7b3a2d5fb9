"""Whatever a selector or explorer of one's own raises or returns while a run goes on: one line that names it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.runs import CONFIG, flags, rows, shoal, tiny

from shoal.core.errors import BadInput
from shoal.core.interrupts import Failed
from shoal.core.population import PopulationStats, Seed, Selection
from shoal.core.space import Range
from shoal.run.train import train

pytestmark = pytest.mark.usefixtures("trace_cache")

HERE = "test_broken_selectors"


@dataclass(frozen=True)
class Crooked:
    """Selects as `ill` says, from generation `since` on; until then everybody copies member 0 and explores."""

    ill: str
    since: int = 0

    def __call__(self, key: Seed, stats: PopulationStats, rows: np.ndarray) -> Any:
        if stats.generation[0] >= self.since:
            if self.ill == "raise":
                raise ZeroDivisionError("of\nmy own")
            return {"none": None, "too few": Selection(rows[:1], rows[:1] > 0)}[self.ill]
        return Selection(np.zeros_like(rows), rows > 0)


@dataclass(frozen=True)
class Untrue(Crooked):
    """Copies, though it says that it does not."""

    ill: str = "none"
    since: int = 9
    copies: ClassVar[bool] = False


SELECTED = {
    "raise": f"{HERE}:Crooked failed: ZeroDivisionError: of my own (test_broken_selectors.py, line ",
    "none": "it gave a NoneType; it must give a Selection",
    "too few": "of 4 members each needs a parent among the 4 rows of the stats",
}


def explorer(key: Seed, hyper: dict[str, np.ndarray], space: dict[str, Range], uid: np.ndarray) -> Any:
    """Fails with more than one member, and so not where it is tried out."""
    if len(uid) > 1:
        raise ZeroDivisionError("of\nmy own")
    return hyper


def short(key: Seed, hyper: dict[str, np.ndarray], space: dict[str, Range], uid: np.ndarray) -> Any:
    """Two numbers for three members."""
    return {name: values[:2] for name, values in hyper.items()}


def words(key: Seed, hyper: dict[str, np.ndarray], space: dict[str, Range], uid: np.ndarray) -> Any:
    return hyper if len(uid) == 1 else dict.fromkeys(hyper, "much")


def nothing(key: Seed, hyper: dict[str, np.ndarray], space: dict[str, Range], uid: np.ndarray) -> Any:
    return hyper if len(uid) == 1 else {}


EXPLORED = {
    "explorer": f"{HERE}:explorer failed: ZeroDivisionError: of my own (test_broken_selectors.py, line ",
    "short": "of 3 members each needs one finite number as its ",
    "words": "of 3 members each needs one finite number as its ",
    "nothing": "it gave a dict; it must give a dict of all hyperparameters",
}


@pytest.mark.parametrize("ill", SELECTED)
def test_a_selector_that_fails_at_once_leaves_nothing(tmp_path: Path, ill: str) -> None:
    select = {"name": f"{HERE}:Crooked", "ill": ill}
    outcome = shoal(*flags(tmp_path / "deep" / "r", "--quiet", select=select))
    assert outcome.code == 2 and outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith(f"shoal: method.select: {SELECTED[ill]}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ill", SELECTED)
def test_a_selector_that_fails_later_keeps_the_checkpoints(tmp_path: Path, ill: str) -> None:
    run = tmp_path / "r"
    select = {"name": f"{HERE}:Crooked", "ill": ill, "since": 2}
    outcome = shoal(*flags(run, "--quiet", select=select, generations=4))
    assert outcome.code == 1 and outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith(f"shoal: method.select: {SELECTED[ill]}")
    assert outcome.err.endswith(f"; once that is solved, continue with: shoal resume {run} --trust-code\n")
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["00000000", "00000001"]
    assert {row["parent"] for row in rows(run / "lineage.jsonl")} == {0}


@pytest.mark.parametrize(
    "changes",
    [{}, pytest.param({"config": CONFIG | {"layers": {"choices": [[8], [16]]}}}, marks=pytest.mark.slow)],
    ids=["one structure", "two structures"],
)
def test_a_selector_that_says_it_does_not_copy_is_held_to_that(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Members of several structures rely on it: weights of one do not fit another."""
    with pytest.raises(BadInput) as refused:
        train(tiny(tmp_path / "r", method={"name": "pbt", "select": f"{HERE}:Untrue"}, **changes))
    told = "method.select: it has member 1 copy member 0, and says copies = False; remove copies there, or "
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize("name", EXPLORED)
def test_an_explorer(tmp_path: Path, name: str) -> None:
    outcome = shoal(*flags(tmp_path / "r", "--quiet", select="winner_takes_all", explore=f"{HERE}:{name}"))
    assert outcome.code == 2 and outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith(f"shoal: method.explore: {EXPLORED[name]}")
    assert list(tmp_path.iterdir()) == []


def test_in_python_what_was_raised_is_the_cause(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=f"method.select: {HERE}:Crooked failed") as failed:
        train(tiny(tmp_path / "r", select=Crooked("raise", since=1)))
    assert isinstance(failed.value.__cause__, BadInput)
    cause = failed.value.__cause__.__cause__
    assert isinstance(cause, ZeroDivisionError) and cause.__traceback__ is not None
