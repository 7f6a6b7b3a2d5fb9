"""The final selection: who wins it, in how many episodes, and that it beats the highest fitness."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from support.cases import others_slow
from support.messages import shown
from support.runs import Signals, rows, tiny

from shoal.core.candidates import Candidate
from shoal.core.errors import BadInput
from shoal.core.interrupts import Interrupted
from shoal.core.keys import derive
from shoal.core.run_files import FINAL_SELECTION
from shoal.environments.evaluation import EvaluationConfig
from shoal.experiment.experiment import ExchangeSettings, Experiment, Fitness
from shoal.members.acting import Policy
from shoal.members.compiled import CompiledTester
from shoal.members.gradient_trained import GradientTrainedShard
from shoal.members.protocol import Outcome
from shoal.records.callback import Callback
from shoal.records.generation import Generation
from shoal.report.page import write_report
from shoal.report.workspace import read_workspace
from shoal.run.champion import load_champion
from shoal.run.final_selection import FIRST, episodes_of, places, select_champion, sequential_halving
from shoal.run.loop import _episode_length
from shoal.run.train import resume, train
from shoal.run.workspace_selection import best_of_workers

ES = {"method": "es", "config": {"layers": [8]}}


def test_each_round_has_as_many_episodes_and_the_worse_half_leaves() -> None:
    """Of five: 5, 3, 2 and 1 are left. The third is the worst in the first round only, where it leaves; the first wins by
    the mean of all that it has played."""
    calls = []

    def play(left: Sequence[int], round_: int, each: int) -> tuple[np.ndarray, ...]:
        calls.append((list(left), round_, each))
        value = {0: (3, 9, 5), 1: (5, 5, 6), 2: (0, 99, 99), 3: (4, 3, 0), 4: (1, 99, 99)}
        return (np.array([[float(value[one][round_])] * each for one in left]),)

    winner, returns, played = sequential_halving(5, 60, play)
    assert calls == [([0, 1, 2, 3, 4], 0, 4), ([1, 3, 0], 1, 6), ([0, 1], 2, 10)]
    assert winner == 0
    assert returns.tolist() == [3.0] * 4 + [9.0] * 6 + [5.0] * 10
    assert played == 5 * 4 + 3 * 6 + 2 * 10


def test_of_equals_the_first() -> None:
    assert sequential_halving(7, 100, lambda left, _, each: (np.ones((len(left), each)),))[0] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_who_breaks_an_episode_loses(bad: float) -> None:
    def play(left: Sequence[int], round_: int, each: int) -> tuple[np.ndarray, ...]:
        return (np.array([[bad if one == 0 else -float(one)] + [1e308] * (each - 1) for one in left]),)

    assert sequential_halving(4, 64, play)[0] == 1


def test_ties_are_broken_as_in_the_run() -> None:
    """Of 10, 8 and no successes in 20 episodes, the first two do not differ by more than a standard error, and the second
    has the higher return; the third has the highest, and too few successes."""

    class Played:
        def test(self, policies: Sequence[Policy], key: Any, episodes: int, levels: str) -> Outcome:
            rows, wins = [policy.learned for policy in policies], np.zeros((3, episodes))
            wins[0, ::2] = wins[1, 2::2] = 1
            return Outcome(wins[rows], 0, np.repeat([[1.0], [2.0], [9.0]], episodes, axis=1)[rows])

        def close(self) -> None:
            pass

    candidates = [Candidate(learned=row, uid=row) for row in range(3)]
    champion, summary = select_champion(Experiment(), Played(), candidates, 3 * 2 * 8)
    assert champion.uid == 1
    assert summary["final_selection"]["champion"]["mean"] == 8 / 20


@given(st.integers(1, 300), st.integers(1, 20_000))
def test_no_more_episodes_than_there_may_be(most: int, episodes: int) -> None:
    candidates = min(most, places(episodes))
    first = []

    def play(left: Sequence[int], round_: int, each: int) -> tuple[np.ndarray, ...]:
        first.append(each)
        return (np.zeros((len(left), each)),)

    if candidates > 1:
        _, _, played = sequential_halving(candidates, episodes, play)
        assert played <= episodes
        assert min(first) >= FIRST
    assert places(episodes) <= places(episodes + 1)


def test_episodes_are_a_share_of_the_steps() -> None:
    e = Experiment(final_episodes=100, fitness=Fitness(final_selection=0.02))
    assert episodes_of(e, 10_000_000, 50.0) == 4_000
    assert episodes_of(e, 10_000, 50.0) == 100, "and at least those of the final evaluation"
    assert episodes_of(e, 10_000_000, 0.0) == 100, "where trainers tell no steps"


@pytest.mark.parametrize(
    ("source", "levels", "length"), [("training", {}, 20), ("evaluation", {}, 8), ("evaluation", {"train": (0, 1)}, 4)]
)
def test_the_length_of_an_episode_is_that_of_those_which_gave_the_fitness(
    source: Any, levels: Any, length: int
) -> None:
    """In a generation of 100 steps and 40 of evaluations, five episodes: of training, of evaluations, and as many on train
    levels again."""
    c, state, shared = MagicMock(), MagicMock(steps=300, evaluation_steps=10), MagicMock(evaluation_steps=50)
    c.plan.evaluation, c.experiment.fitness.source = EvaluationConfig(source, levels=levels), source
    for episodes, expected in (([2, 3], length), ([0, 0], 0)):
        shared.stats.episodes = np.array(episodes)
        assert _episode_length(c, state, shared, 400) == expected


def test_it_beats_the_highest_fitness() -> None:
    """32 members whose true values differ by as much as the means of eight of their episodes: the fittest of all 30
    generations is good by luck, the winner of 2,000 episodes is nearly the best there is."""
    rng = np.random.default_rng(0)
    best, won, of_fittest = [], [], []
    for _ in range(200):
        truth = rng.normal(size=32)
        generations = (
            truth + rng.normal(size=(30, 32)) + rng.normal(size=(30, 1))
        )  # luck of members, and of generations
        fittest = int(generations.argmax() % 32)

        def play(left: Sequence[int], round_: int, each: int, truth: np.ndarray = truth) -> tuple[np.ndarray, ...]:
            return (truth[np.array(left), None] + rng.normal(scale=8**0.5, size=(len(left), each)),)

        best.append(truth.max())
        won.append(truth[sequential_halving(32, 2_000, play)[0]])
        of_fittest.append(truth[fittest])
    assert np.mean(won) > 0.95 * np.mean(best)
    assert np.mean(of_fittest) < 0.85 * np.mean(best)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[list[Policy]]:
    """Policies of each call of the members' test; returns grow with the place of a policy in it."""
    calls: list[list[Policy]] = []

    def test(self: Any, policies: Sequence[Policy], key: Any, episodes: int, levels: str = "test") -> Any:
        calls.append(list(policies))
        values = np.arange(len(policies), dtype=np.float64)
        return Outcome(np.repeat(values[:, None], episodes, axis=1), 10 * episodes * len(policies))

    monkeypatch.setattr(GradientTrainedShard, "test", test)
    return calls


def test_the_last_of_two_rounds_is_the_champion(tmp_path: Path, told: list[list[Policy]]) -> None:
    """Four candidates: of the last two of the first round, whom the second sees in the order of their means, the second wins
    there. The final evaluation plays it alone."""
    run = tmp_path / "run"
    summary = train(tiny(run, generations=4, final_episodes=32)).summary
    assert [len(policies) for policies in told] == [4, 2, 1]
    champion, lineage = summary["champion"], rows(run / "lineage.jsonl")
    assert champion["final_selection"] == {
        **{"candidates": 4, "episodes": 32, "steps": 320},
        "champion": {"mean": (2 * 4 + 1 * 8) / 12, "standard_error": pytest.approx(0.1421, abs=1e-4), "episodes": 12},
    }
    assert told[2][0].learned is told[1][1].learned is told[0][2].learned is not None
    row = next(x for x in lineage if (x["uid"], x["generation"]) == (champion["uid"], champion["generation"]))
    assert champion["selection_fitness"] == row["fitness"]
    assert load_champion(run).generation == champion["generation"]
    measured = sum(row["fitness"] * row["episodes"] for row in lineage)
    assert summary["evaluation_steps"] == measured + 320


def test_a_run_that_dies_before_its_selection_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its candidates lie in the checkpoint: the members of the last generation as they were before the last copies. So does
    how long episodes are, by which the selection has more than the final evaluation."""

    def dies(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    changes = {
        "generations": 4,
        "final_episodes": 16,
        "fitness": Fitness(episodes=2, step_limit=60, final_selection=1.0),
    }
    whole = train(tiny(tmp_path / "whole", **changes)).summary
    assert whole["champion"]["final_selection"]["episodes"] > 16
    with monkeypatch.context() as patch:
        patch.setattr("shoal.run.loop.final_evaluation", dies)
        with pytest.raises(KeyboardInterrupt):
            train(tiny(tmp_path / "run", **changes))
    again = resume(tmp_path / "run").summary
    assert json.dumps(again["champion"]) == json.dumps(whole["champion"])
    assert again["evaluation_steps"] == whole["evaluation_steps"]


class Enough(Callback):
    """Ends a run after two generations."""

    def on_generation_end(self, event: Generation) -> bool:
        return event.generation != 1


def candidates_of(run: Path) -> tuple[list[Any], dict[str, np.ndarray]]:
    """The members of the last generation that are candidates, and all that candidates have learned."""
    newest = max((run / "checkpoints").iterdir())
    return json.loads((newest / "manifest.json").read_text())["last"], load_file(newest / "run.safetensors")


@pytest.mark.parametrize("changes", others_slow([{}, ES, {"shards": 2}], {}), ids=shown)
def test_a_run_that_ends_early_has_the_members_of_its_last_generation_too(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """As they were before they copied one another: where a callback ends it, and where it is stopped and then given an end
    that it has reached."""
    whole = train(tiny(tmp_path / "whole", final_episodes=32, **changes)).summary
    last, learned = candidates_of(tmp_path / "whole")
    if not changes:
        assert len(last) == 4 and rows(tmp_path / "whole/metrics.jsonl")[-1]["copies"]
    ended = train(tiny(tmp_path / "ended", generations=4, final_episodes=32, **changes), [Enough()]).summary
    with pytest.raises(Interrupted):
        train(tiny(tmp_path / "stopped", generations=4, final_episodes=32, **changes), [Signals(1, "train")])
    again = resume(tmp_path / "stopped", generations=2).summary
    for name, summary in (("ended", ended), ("stopped", again)):
        others, theirs = candidates_of(tmp_path / name)
        assert others == last and theirs.keys() == learned.keys()
        assert all(np.array_equal(theirs[key], x) for key, x in learned.items())
        assert json.dumps(summary["champion"]) == json.dumps(whole["champion"])


def test_its_steps_bring_no_budget_to_its_end(tmp_path: Path) -> None:
    """A run that was ended a step before its budget goes on, whatever its selection took."""
    train(tiny(tmp_path / "two", generations=2))
    told = rows(tmp_path / "two" / "metrics.jsonl")[-1]
    budget = told["steps"] + told["evaluation_steps"] + 1
    run = tmp_path / "run"
    summary = train(tiny(run, budget=budget), [Enough()]).summary
    assert summary["champion"]["final_selection"]["steps"] > 1
    assert (summary["status"], summary["generations"]) == ("stopped", 2)
    again = resume(run).summary
    assert (again["status"], again["generations"]) == ("done", 3)


def test_without_a_selection_the_best_so_far_is_the_champion(tmp_path: Path) -> None:
    run = tmp_path / "run"
    champion = train(tiny(run, fitness=Fitness(episodes=2, step_limit=60, final_selection=0.0))).summary["champion"]
    assert "final_selection" not in champion
    best = rows(run / "metrics.jsonl")[-1]["champion"]
    assert (champion["uid"], champion["generation"]) == (best["uid"], best["generation"])


def worker(workspace: Path, name: str, **changes: Any) -> Experiment:
    """A worker of its own name, seed and members in a workspace."""
    return tiny(exchange=ExchangeSettings("directory", workspace=str(workspace), worker=name), **changes)


def test_the_last_worker_selects_among_the_champions_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On new episodes, the same for all. Who is killed in it has its result, and whoever comes next selects: the worker that
    is started again, or the caller of a function."""
    keys: list[Any] = []

    def test(self: Any, policies: Sequence[Policy], key: Any, episodes: int, levels: str) -> Any:
        keys.append((key, len(policies), episodes))
        return Outcome(np.repeat([[float(policy is not policies[0])] for policy in policies], episodes, axis=1), 7)

    train(worker(tmp_path, "a"))
    assert not (tmp_path / FINAL_SELECTION).exists(), "one champion has no rivals"
    with monkeypatch.context() as patch:
        patch.setattr(CompiledTester, "test", lambda *arguments: sys.exit("killed"))
        with pytest.raises(SystemExit):
            train(worker(tmp_path, "b"))
    monkeypatch.setattr(CompiledTester, "test", test)
    assert train(worker(tmp_path, "b")).already
    told = json.loads((tmp_path / FINAL_SELECTION).read_text())
    champions = {name: load_champion(tmp_path / "workers" / name) for name in "ab"}
    assert told == {
        **{"worker": "b", "candidates": {name: [one.uid, one.generation] for name, one in champions.items()}},
        **{"episodes": 2 * 8, "steps": 7, "champion": {"mean": 1.0, "standard_error": 0.0, "episodes": 8}},
    }
    assert keys == [(derive((derive((0,), "final selection of workers")), 0), 2, 8)]
    page = read_workspace(tmp_path).result
    alone = [json.loads((tmp_path / "workers" / name / "result.json").read_text()) for name in "ab"]
    assert page["champion"]["uid"] == champions["b"].uid
    assert page["evaluation_steps"] == sum(one["evaluation_steps"] for one in alone) + 7
    assert "nothing was selected on the held-out episodes" in write_report(tmp_path).read_text()
    assert best_of_workers(tmp_path) == tmp_path / "workers" / "b" and len(keys) == 1, "known already"
    (tmp_path / FINAL_SELECTION).unlink()
    assert best_of_workers(tmp_path) == tmp_path / "workers" / "b" and len(keys) == 2


def test_the_file_of_a_workspace_is_no_link(tmp_path: Path) -> None:
    """As in a run: nothing is read through one."""
    for folder in ("workers", "slots"):
        (tmp_path / folder).mkdir()
    (tmp_path / "elsewhere.yaml").write_text("env: CartPole-v1\n")
    (tmp_path / "experiment.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(BadInput, match="link"):
        best_of_workers(tmp_path)
