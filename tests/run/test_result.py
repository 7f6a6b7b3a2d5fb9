"""What a run says of its champion: of held-out episodes. Those that were broken have no return, and JSON has no NaN."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.messages import Said
from support.runs import flags, shoal, tiny

from shoal.core.errors import BadInput
from shoal.members.compiled import CompiledTester
from shoal.members.gradient_trained import GradientTrainedShard
from shoal.members.protocol import Outcome
from shoal.members.rollouts.device import DeviceRollouts
from shoal.run.evaluation import evaluate
from shoal.run.train import train


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What every test of a champion returns."""
    returns: list[float] = []
    for tester in (GradientTrainedShard, CompiledTester):
        monkeypatch.setattr(
            tester, "test", lambda self, policies, *more: Outcome(np.array([returns] * len(policies)), 0)
        )
    return returns


def outcome(run: Path) -> tuple[str, dict[str, Any]]:
    """What a run printed, and what its result.json says of the champion's test."""
    done = shoal(*flags(run, "--quiet"))
    assert (done.code, done.err) == (0, "")
    result = json.loads((run / "result.json").read_text(), parse_constant=pytest.fail)
    return done.out, result["champion"]["evaluation"]


def test_it_plays_no_episode_that_selected_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the keys that begin them: two in each generation, the same for all members; then six others, the same for both
    candidates of the final selection; and twelve others again."""
    played: list[set[bytes]] = []
    play = DeviceRollouts.evaluate

    def watched(self: DeviceRollouts, population: Any, keys: jax.Array, *more: Any) -> Any:
        played.append({key.tobytes() for key in np.asarray(jax.random.key_data(keys)).reshape(keys.size, -1)})
        return play(self, population, keys, *more)

    monkeypatch.setattr(DeviceRollouts, "evaluate", watched)
    train(tiny(tmp_path / "run", final_episodes=12))
    in_run, selection, final = set.union(*played[:2]), set.union(*played[2:4]), set.union(*played[4:])
    assert [len(keys) for keys in (in_run, selection, final)] == [4, 6 + 4, 12 + 4], (
        "four places of two idle in the end"
    )
    assert len(in_run | selection | final) == 4 + 10 + 16


def test_one_broken_episode_voids_no_test(tmp_path: Path, played: list[float]) -> None:
    played += [1.0, np.nan, 3.0]
    out, tested = outcome(tmp_path / "run")
    assert tested == {"mean": 2.0, "standard_error": 1.0, "episodes": 2}
    assert '"returns": [ 1.0, null, 3.0 ]' in (tmp_path / "run/result.json").read_text()
    assert "champion: 2 ± 1 (standard error) on 2 held-out episodes" in out
    found = evaluate(tmp_path / "run", 3)
    assert (found["min"], found["mean"], found["max"], found["episodes"]) == (1.0, 2.0, 3.0, 2)


def test_all_of_them_broken(tmp_path: Path, played: list[float], said: Said) -> None:
    played += [np.nan, np.inf]
    out, tested = outcome(tmp_path / "run")
    assert tested == {"mean": None, "standard_error": None, "episodes": 0}
    assert "champion: no return on 0 held-out episodes" in out
    assert "none of its held-out episodes has a return" in (tmp_path / "run/report.html").read_text()
    with pytest.raises(BadInput) as error:
        evaluate(tmp_path / "run", 2)
    said(error.value)
