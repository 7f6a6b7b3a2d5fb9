"""Schedules of hyperparameters follow the progress of a run, whatever its run is made of: against SB3's formula.

Stable-Baselines3 multiplies the initial value by `progress_remaining`: 1 - steps / total steps, with those of the rollout
that is learned from.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cases import others_slow
from support.clocked import clocked
from support.runs import record, rows, tiny

from shoal.core.space import Range
from shoal.core.types import RunProgress
from shoal.environments.evaluation import EvaluationConfig
from shoal.experiment.plan import make_closed_plan
from shoal.members.protocol import Setup
from shoal.members.shards import InTurn
from shoal.records.callback import Callback
from shoal.rl.schedules import share_done
from shoal.run.train import resume, train

OWN = {"agent": clocked, "config": {}, "interval": 8, "method": "independent", "space": {}}  # two updates an interval
DECAY = {"rate": 2.0, "rate_end_factor": 0.0}


class Stop(Callback):
    """Ends a run after a generation."""

    def __init__(self, after: int):
        self._after = after

    def on_generation_end(self, event: Any) -> bool:
        return event.generation + 1 != self._after


def run(path: Path, stop: int = 0, **changes: Any) -> Path:
    train(tiny(path, **OWN | {"hyper": DECAY, "generations": 3} | changes), [Stop(stop)])
    return path


def state(path: Path, name: str) -> np.ndarray:
    """What the last checkpoint knows of all members, [N, ...]."""
    arrays = record(path)["arrays"].items()
    return np.concatenate([x for key, x in sorted(arrays) if " shard-" in key and key.endswith(f" {name}")])


def rates(path: Path) -> np.ndarray:
    """The value that each update of each member got, [N, updates]."""
    return state(path, "learned/rates")[:, : state(path, "learned/made")[0]]


def remaining(updates: int, total: int) -> np.ndarray:
    return 1 - np.arange(1, updates + 1) / total


@pytest.mark.parametrize("env", others_slow(["CartPole-v1", "gym:CartPole-v1"], "CartPole-v1"))
def test_they_fall_linearly_from_update_to_update(env: str, tmp_path: Path) -> None:
    """On the device and on the host; to a share of the value, by SB3's linear interpolation."""
    seen = rates(run(tmp_path / "a", env=env))
    np.testing.assert_allclose(seen, np.tile(2 * remaining(6, 6), (4, 1)), rtol=1e-6, atol=1e-7)
    assert (seen[:, -1] == 0).all()
    seen = rates(run(tmp_path / "b", env=env, hyper={"rate": 2.0, "rate_end_factor": 0.25}))
    np.testing.assert_allclose(seen[0], 2 + (0.5 - 2) * np.arange(1, 7) / 6, rtol=1e-6)
    assert (rates(run(tmp_path / "c", env=env, hyper={"rate": 2.1})) == np.float32(2.1)).all(), (
        "there is none by default"
    )


def test_a_stop_changes_nothing_and_more_generations_stretch_the_rest(tmp_path: Path) -> None:
    """As SB3 has it where learning goes on without a reset of its steps: they count for the new total."""
    straight, stopped = run(tmp_path / "straight"), run(tmp_path / "stopped", stop=2)
    assert rates(stopped).shape == (4, 4)
    resume(stopped, trust_code=True)
    np.testing.assert_array_equal(rates(stopped), rates(straight))
    resume(stopped, generations=5, trust_code=True)
    expected = np.concatenate([remaining(6, 6), remaining(10, 10)[6:]])
    np.testing.assert_allclose(rates(stopped)[0], 2 * expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_of_members_that_live_on_it_is_the_share_of_their_own_steps(tmp_path: Path) -> None:
    """Four, two, one: each generation has twice as many updates as the one before, 2 + 4 + 8 of the last member."""
    halving = {"name": "successive_halving", "between_rungs": "none", "default_members": 0, "rungs": [1 / 3, 2 / 3]}
    np.testing.assert_allclose(
        rates(run(tmp_path / "a", method=halving))[0], 2 * remaining(14, 14), rtol=1e-6, atol=1e-7
    )


def test_the_progress_that_members_who_live_on_are_given() -> None:
    """Of the same run by its plan alone: 2 of its last member's 14 updates lie in the first generation, 4 in the second."""
    halving = {"name": "successive_halving", "rungs": [1 / 3, 2 / 3]}
    plan = make_closed_plan(tiny(None, **OWN | {"generations": 3, "method": halving}))
    found = [plan.progress_before(generation, members, 0, 0.0) for generation, members in enumerate((4, 2, 1))]
    np.testing.assert_allclose([x.done / x.total for x in found], np.array([0, 2, 6]) / 14, rtol=1e-6)
    np.testing.assert_allclose([x.per_iteration / x.total for x in found], 1 / 14, rtol=1e-6)


def test_with_a_budget_it_is_the_share_that_is_spent(tmp_path: Path) -> None:
    """Evaluations included: a generation begins where those before it have ended. Nothing is left beyond the budget."""
    path = run(tmp_path / "a", budget=1400)
    spent = [0, *(row["steps"] + row["evaluation_steps"] for row in rows(path / "metrics.jsonl"))]
    each = 4 * 4  # steps of all members between two updates
    done = np.array([before + each * i for before in spent[:-1] for i in (1, 2)]) / 1400
    assert len(done) > 4 and spent[-1] >= 1400 and spent[-1] - spent[-2] > 2 * each
    np.testing.assert_allclose(rates(path)[0], 2 * np.maximum(1 - done, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_shards_that_take_turns_have_the_same_progress(tmp_path: Path) -> None:
    np.testing.assert_array_equal(rates(run(tmp_path / "a", shards=2)), rates(run(tmp_path / "b")))


def test_structures_with_shorter_rollouts_follow_the_same_schedule() -> None:
    """They make more updates, each of which is less of the run: two to one here, as many steps in all."""
    calls: list[tuple[int, RunProgress]] = []

    def learns(uid: np.ndarray) -> Any:
        def train(generation: int, iterations: int, chunk: int, progress: RunProgress) -> Any:
            calls.append((iterations, progress))
            return {"loss": np.zeros(len(uid))}

        return SimpleNamespace(uid=uid, train=train, to_device=lambda: None)

    shards = [learns(np.arange(2)), learns(np.arange(2, 3))]
    InTurn(shards, Setup(0, EvaluationConfig()), rates=[2, 1]).train(0, 4, 2, RunProgress(*np.float32([10, 1, 20])))
    assert [iterations for iterations, _ in calls] == [8, 4]
    made = [[float(share_done(progress, np.int32(i))) for i in range(n)] for n, progress in calls]
    np.testing.assert_allclose(made[1], (10 + np.arange(1, 5)) / 20, rtol=1e-6)
    np.testing.assert_allclose(made[0], (10 + np.arange(1, 9) / 2) / 20, rtol=1e-6)


def test_pbt_tunes_the_initial_value_and_the_schedule_keeps_its_phase(tmp_path: Path) -> None:
    """What is explored is the initial value; the share is each member's own, and takes effect at the next update as well."""
    explore = {"name": "pbt", "select": {"name": "none", "explore": True}}
    space = {"rate": Range(1.0, 4.0), "rate_end_factor": Range(0.1, 0.9)}
    path = run(tmp_path / "a", hyper={}, space=space, method=explore, stop=1)
    now = {name: state(path, f"hyper/{name}") for name in ("rate", "rate_end_factor")}
    resume(path, callbacks=[Stop(2)], trust_code=True)
    share = np.array([[3, 4]]) / 6
    expected = now["rate"][:, None] * (1 - share * (1 - now["rate_end_factor"][:, None]))
    assert len(set(now["rate"])) == 4
    np.testing.assert_allclose(rates(path)[:, 2:], expected, rtol=1e-6)
