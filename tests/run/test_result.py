"""What a run says of its champion: of held-out episodes. Those that were broken have no return, and JSON has no NaN."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.messages import Said
from support.runs import flags, rows, shoal, tiny

from shoal.commands.evaluate import evaluate
from shoal.core.errors import BadInput
from shoal.experiment.experiment import Fitness
from shoal.members.compiled import CompiledTester
from shoal.members.gradient_trained import GradientTrainedShard
from shoal.members.rollouts.device import DeviceRollouts
from shoal.run.champion import load_champion
from shoal.run.loop import train

pytestmark = pytest.mark.usefixtures("trace_cache")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What every test of a champion returns."""
    returns: list[float] = []
    for tester in (GradientTrainedShard, CompiledTester):
        monkeypatch.setattr(tester, "test", lambda *arguments: np.array(returns))
    return returns


def outcome(run: Path) -> tuple[str, dict[str, Any]]:
    """What a run printed, and what its result.json says of the champion's test."""
    done = shoal(*flags(run, "--quiet"))
    assert (done.code, done.err) == (0, "")
    result = json.loads((run / "result.json").read_text(), parse_constant=pytest.fail)
    return done.out, result["champion"]["evaluation"]


def test_it_plays_no_episode_that_selected_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the keys that begin them: two in each generation, the same for all members; then a round of eight others, the same
    for both who play for the title, and two of eight others again."""
    played: list[set[bytes]] = []
    play = DeviceRollouts.evaluate

    def watched(self: DeviceRollouts, population: Any, keys: jax.Array, *more: Any) -> Any:
        played.append({key.tobytes() for key in np.asarray(jax.random.key_data(keys)).reshape(keys.size, -1)})
        return play(self, population, keys, *more)

    monkeypatch.setattr(DeviceRollouts, "evaluate", watched)
    train(tiny(tmp_path / "run", final_episodes=12))
    assert [len(keys) for keys in played] == [2, 2, 8, 8, 8, 8]
    assert played[2] == played[3]
    assert len(set.union(*played)) == 4 + 8 + 16


def test_a_play_off_finds_the_champion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the three fittest generations the third does best on new episodes; its test there says nothing of the others."""
    told: list[tuple[Any, float]] = []

    def played(self: GradientTrainedShard, learned: Any, *more: Any) -> np.ndarray:
        told.append((learned, [1.0, 4.0, 9.0, 2.0][len(told)]))
        return np.array([told[-1][1]] * 2)

    monkeypatch.setattr(GradientTrainedShard, "test", played)
    summary = train(
        tiny(tmp_path / "run", generations=4, fitness=Fitness(episodes=2, step_limit=60, final_candidates=3))
    ).summary
    lines = [row["champion"]["fitness"] for row in rows(tmp_path / "run" / "metrics.jsonl")]
    lineage = rows(tmp_path / "run" / "lineage.jsonl")
    best = [max(row["fitness"] for row in lineage if row["generation"] == g) for g in range(4)]
    assert lines == [max(best[: g + 1]) for g in range(4)]
    order = sorted(range(4), key=lambda g: (-best[g], -g))
    champion = summary["champion"]
    assert (champion["generation"], champion["selection_fitness"]) == (order[2], best[order[2]])
    assert champion["final_candidates"] == {"contenders": 3, "mean": 9.0, "standard_error": 0.0, "episodes": 2}
    assert champion["evaluation"]["mean"] == 2.0
    assert told[3][0] is told[2][0]
    assert load_champion(tmp_path / "run").generation == order[2]


def test_one_broken_episode_voids_no_test(tmp_path: Path, played: list[float]) -> None:
    played += [1.0, np.nan, 3.0]
    out, tested = outcome(tmp_path / "run")
    assert tested == {"mean": 2.0, "standard_error": 1.0, "episodes": 2}
    assert "champion: 2 ± 1 on 2 held-out episodes" in out
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
