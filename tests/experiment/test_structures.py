"""Choices in `config`: members of one structure train as one program, and the structures in turn."""

from __future__ import annotations

import html
import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from support.messages import Said, shown
from support.runs import CONFIG, rows, same_run, shoal, tiny

from shoal.core.errors import BadInput
from shoal.core.population import PopulationStats
from shoal.experiment.experiment import Experiment
from shoal.experiment.plan import make_closed_plan, make_plan
from shoal.experiment.structures import structures
from shoal.members.acting import Policy
from shoal.members.protocol import Outcome
from shoal.members.structured import StructuredShard
from shoal.records.callback import Callback
from shoal.report.best import single
from shoal.report.load_run import load_run
from shoal.report.run import read_run
from shoal.run.champion import load_members
from shoal.run.members import read_members
from shoal.run.train import resume, train

LAYERS: dict[str, Any] = {"layers": {"choices": [[8], [4, 4]]}}
HALVING = {"name": "successive_halving", "rungs": [0.4, 0.8], "between_rungs": "none"}


def several(run: Path | None = None, **changes: Any) -> Experiment:
    return tiny(run, **{"config": CONFIG | LAYERS, "method": "independent"} | changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two structures."""
    return train(several(tmp_path_factory.mktemp("structures") / "run", generations=2)).run_dir


@pytest.fixture
def straight(whole: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return shutil.copytree(whole, tmp_path / "straight")


class Once(Callback):
    """Ends a run after a generation."""

    def __init__(self, generation: int):
        self.last = generation

    def on_generation_end(self, event: Any) -> bool:
        return event.generation != self.last


@pytest.mark.slow
def test_members_of_two_structures(straight: Path, tmp_path: Path) -> None:
    """Each keeps its own, which is recorded; a run that goes on equals one that never stopped."""
    run = tmp_path / "run"
    train(several(run, generations=2), [Once(0)])
    resume(run)
    same_run(run, straight)
    chosen = {(row["uid"], row["hyper"]["config.layers"]) for row in rows(run / "lineage.jsonl")}
    assert len(chosen) == 4 and {place for _, place in chosen} == {0.0, 1.0}
    found = {one.uid: one.experiment.config["layers"] for one in load_members(run)}
    assert found == {uid: [[8], [4, 4]][int(place)] for uid, place in chosen}
    champion = json.loads((straight / "result.json").read_text())["champion"]
    assert found[champion["uid"]] == champion["config"]["layers"] == single(read_run(straight))["config"]["layers"]
    assert "config.layers" in read_run(straight).space


def test_a_member_of_another_structure_than_the_champion_is_exported_in_float32(straight: Path, tmp_path: Path) -> None:
    file = straight / "experiment.yaml"
    shown = yaml.safe_load(file.read_text())
    shown["config"]["precision"] = "bfloat16"
    file.write_text(yaml.safe_dump(shown))
    for member in load_members(straight):
        assert shoal("export", straight, tmp_path / f"{member.uid}.npz", "--member", str(member.uid)).err == ""
        with np.load(tmp_path / f"{member.uid}.npz") as arrays:
            layers = {x.shape for x in arrays.values() if x.ndim == 2}
        assert {width for shape in layers for width in shape} >= {*member.experiment.config["layers"]}


def test_members_are_in_the_order_of_their_uids(straight: Path) -> None:
    """As a video shows them; a checkpoint has them by structure."""
    assert read_members(straight).uid != [0, 1, 2, 3]
    assert [member.uid for member in load_members(straight)] == [0, 1, 2, 3]


def test_people_read_the_choice_and_not_its_place(straight: Path, tmp_path: Path) -> None:
    """On the page, on that of a comparison, in the champion's schedule and in figures. Records have numbers."""
    run = straight
    chosen = json.loads((run / "result.json").read_text())["champion"]["config"]["layers"]
    assert {row["hyper"]["config.layers"] for row in rows(run / "lineage.jsonl")} == {0.0, 1.0}
    shutil.copytree(run, tmp_path / "other")
    assert shoal("report", run).code == 0
    assert shoal("compare", run, tmp_path / "other", "--out", tmp_path / "c.html").code == 0
    words = (run / "report.html").read_text()
    assert "Choices: [8], [4, 4]." in words and f"The champion kept {chosen}." in words.replace("’s lineage", "")
    assert "At the end members have [8], [4, 4]." in words
    held = re.search(r'<table class="sortable">.*?</table>', words, re.DOTALL)
    assert held is not None and held[0].count("<td") > 4
    assert {*re.findall(r">(\[.*?\])</td>", held[0])} == {"[8]", "[4, 4]"}
    for axis in re.findall(r'data-chart="([^"]*)"', words):
        chart = json.loads(html.unescape(axis))
        assert (chart.get("words") == ["[8]", "[4, 4]"]) == (chart.get("members") == "config.layers")
    assert f"<td>config.layers</td><td>{chosen}</td><td>{chosen}</td>" in (tmp_path / "c.html").read_text()
    told = [row["config.layers"] for row in yaml.safe_load(shoal("schedule", run, "--format", "yaml").out)]
    assert told == [chosen, chosen] and "&id" not in shoal("schedule", run, "--format", "yaml").out
    axes = {axis.get_ylabel(): axis for axis in load_run(run).plot().axes}
    assert [tick.get_text() for tick in axes["config.layers"].get_yticklabels()] == ["[8]", "[4, 4]"]


@pytest.mark.slow
def test_structures_end_with_their_members(tmp_path: Path) -> None:
    """Their evaluations are counted on; rollouts may differ, where an interval holds whole ones of all."""
    changes: dict[str, Any] = {"method": HALVING, "generations": 5, "config": CONFIG | LAYERS}
    changes["config"] |= {"rollout_length": {"choices": [16, 32]}}
    done = train(several(tmp_path / "straight", **changes))
    train(several(tmp_path / "run", **changes), [Once(2)])
    resume(tmp_path / "run")
    same_run(tmp_path / "run", tmp_path / "straight")
    lines = rows(tmp_path / "run/lineage.jsonl")
    assert [sum(row["generation"] == g for row in lines) for g in range(5)] == [4, 4, 2, 2, 1]
    spent = [row["evaluation_steps"] for row in rows(tmp_path / "run/metrics.jsonl")]
    assert spent == sorted(spent) and done.summary["environment_steps"] == 5 * 4 * 64
    assert shoal("evaluate", tmp_path / "run", "--episodes", 2, "--generation", 5).code == 0


class OneStructure:
    """Plays episodes of one structure: the return of a policy is what it has learned."""

    def __init__(self, place: int):
        self.place, self.closed, self.asked = place, 0, list[Any]()

    def tester(self, setup: Any) -> OneStructure:
        return self

    def test(self, policies: list[Policy], key: Any, episodes: int, levels: str) -> Outcome:
        assert {policy.hyper["config.layers"] for policy in policies} == {self.place}
        self.asked.append((key, episodes, levels))
        returns = np.array([[policy.learned] * episodes for policy in policies], np.float64)
        return Outcome(returns, 10 * len(policies), -returns)

    def close(self) -> None:
        self.closed += 1


def test_a_race_is_played_by_each_with_its_own_network() -> None:
    """All on the same episodes, whatever their order; what they get is in the order in which they were asked for."""
    kinds = [OneStructure(0), OneStructure(1)]
    kind: Any = SimpleNamespace(kinds=kinds, place=lambda hyper: int(hyper["config.layers"]))
    shards = {place: SimpleNamespace(uid=np.array([place])) for place in (0, 1)}
    shard = StructuredShard(kind, shards, [1, 1], {}, SimpleNamespace(pause=None))  # type: ignore[arg-type]
    policies = [Policy(learned, {"config.layers": place}) for learned, place in ((4, 1), (3, 0), (2, 1), (1, 1))]
    played = shard.test(policies, (7,), 2, "train")
    assert played.returns.tolist() == [[4, 4], [3, 3], [2, 2], [1, 1]] == (-played.tie_breaker).tolist()
    assert played.steps == 40 and all(one.closed == 1 and one.asked == [((7,), 2, "train")] for one in kinds)


@pytest.mark.slow
def test_members_of_two_structures_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in doubt at a rung play the same new episodes, each with its own network; what they have then is their fitness,
    and the steps are counted. In CartPole these are the returns. A run that stops at the rung goes on alike."""
    raced, with_more = (
        list[tuple[PopulationStats, np.ndarray, np.ndarray, PopulationStats]](),
        PopulationStats.with_more,
    )

    def watched(self: PopulationStats, at: np.ndarray, returns: np.ndarray, tie_breaker: None) -> PopulationStats:
        less_fit_is_better = np.arange(len(at), 0, -1.0)[:, None] * -1e3 + returns * 0
        raced.append((self, at, returns, with_more(self, at, less_fit_is_better, tie_breaker)))
        return raced[-1][-1]

    monkeypatch.setattr(PopulationStats, "with_more", watched)
    changes: dict[str, Any] = {"method": HALVING | {"race": True, "default_members": 0}, "generations": 5, "seed": 1}
    run = tmp_path / "run"
    summary = train(several(run, **changes)).summary
    assert [returns.shape for _, _, returns, _ in raced] == [(2, 4), (2, 2)]
    assert {*raced[0][0].hyper["config.layers"][raced[0][1]].tolist()} == {0.0, 1.0}
    of_each = [[row for row in rows(run / "lineage.jsonl") if row["generation"] == g] for g in range(5)]
    steps = sum(row["fitness"] * row["episodes"] for g in (0, 2, 4) for row in of_each[g])
    for generation, (before, at, returns, after) in zip((1, 3), raced, strict=True):
        told = {row["uid"]: (row["fitness"], row["episodes"]) for row in of_each[generation]}
        assert told == {uid: (after.fitness[i], after.episodes[i]) for i, uid in enumerate(after.uid.tolist())}
        steps += (before.fitness * before.episodes).sum() + returns.sum()
        worse = before.uid[at[np.argmin(before.fitness[at])]]
        assert worse in [row["uid"] for row in of_each[generation + 1]]
    assert summary["evaluation_steps"] == steps + summary["champion"]["final_selection"]["steps"]
    train(several(tmp_path / "parts", **changes), [Once(1)])
    resume(tmp_path / "parts")
    same_run(run, tmp_path / "parts")


@pytest.mark.slow
def test_members_that_stand_by_structure_go_on_too(tmp_path: Path) -> None:
    """All of them, and then two, whose uids do not ascend where one structure follows another."""
    changes: dict[str, Any] = {"method": HALVING | {"rungs": [0.6, 0.9]}, "generations": 3, "seed": 1}
    train(several(tmp_path / "straight", **changes))
    train(several(tmp_path / "run", **changes), [Once(0)])
    assert json.loads((tmp_path / "run/checkpoints/00000000/manifest.json").read_text())["uids"] == [1, 2, 0, 3]
    resume(tmp_path / "run")
    same_run(tmp_path / "run", tmp_path / "straight")


@pytest.mark.slow
def test_metrics_are_of_the_members_that_they_stand_for(tmp_path: Path) -> None:
    """Also where members stand by structure: the return on validation levels is the fitness of the same member."""
    levels = {"train": 4, "validation": 4, "test": 4}
    run = read_run(train(several(tmp_path / "run", generations=1, seed=1, levels=levels)).run_dir)
    assert [row["uid"] for row in rows(tmp_path / "run/lineage.jsonl")] == [0, 1, 2, 3]
    assert len({*run.lineage.fitness[0]}) > 1
    np.testing.assert_allclose(run.metric("levels/validation"), run.lineage.fitness, rtol=1e-6)


@pytest.mark.slow
def test_members_of_unequal_rollouts_make_equal_steps() -> None:
    """Two of three members are left: half as much again would be three short rollouts and one and a half long ones."""
    halving = HALVING | {"rungs": [0.4]}
    plan = make_plan(several(config=CONFIG | {"rollout_length": {"choices": [16, 32]}}, population=3, method=halving))
    (choice,) = plan.chosen(np.arange(16)).values()
    uid = np.array([np.argmin(choice), np.argmax(choice)])
    _, hyper = plan.evolver.init((0,), uid)
    with closing(plan.kind.shard([uid], plan.setup)) as shard:
        shard.begin(hyper)
        shard.train(0, plan.length(1, members=2, steps=3 * plan.steps), chunk=1)
        assert shard.stats().steps.tolist() == [128, 128]


def test_every_policy_is_tested_by_its_own_structure() -> None:
    """In the order in which they were given; all steps are counted."""

    def made(place: int) -> Any:
        def test(policies: Any, key: Any, episodes: int, levels: str) -> Outcome:
            return Outcome(np.array([[10.0 * place + policy.learned] * episodes for policy in policies]), len(policies))

        return SimpleNamespace(tester=lambda setup: SimpleNamespace(test=test, close=lambda: None))

    kind = SimpleNamespace(place=lambda hyper: int(hyper["structure"]), kinds=[made(0), made(1)])
    policies = [Policy(row, {"structure": place}) for row, place in enumerate((1.0, 0.0, 1.0))]
    tested = StructuredShard.test(SimpleNamespace(_kind=kind, _setup=None), policies, (0,), 2, "test")  # type: ignore[arg-type]
    assert tested.returns.tolist() == [[10, 10], [1, 1], [12, 12]] and tested.steps == 3


def test_exploring_changes_no_structure() -> None:
    """Members that explore in place are recorded with the structure that they have."""
    plan = make_closed_plan(several(method={"name": "pbt", "select": {"name": "none", "explore": True}}))
    uid = np.arange(16)
    _, hyper = plan.evolver.init((0,), uid)
    stats = PopulationStats(*[uid] * 3, *[np.ones(16)] * 2, uid, hyper)
    explored = plan.evolver.decide((0,), (), stats, uid)[1].hyper
    assert (explored["learning_rate"] != hyper["learning_rate"]).any()
    assert {*hyper["config.layers"]} == {0, 1} and (explored["config.layers"] == hyper["config.layers"]).all()


def test_all_combinations_are_structures() -> None:
    config = {"layers": {"choices": [[8], [4]]}, "rollout_length": {"choices": [16, 32]}, "num_envs": 2}
    made = [(one["layers"], one["rollout_length"], one["num_envs"]) for one in structures(Experiment(config=config))]
    assert made == [([8], 16, 2), ([8], 32, 2), ([4], 16, 2), ([4], 32, 2)]


@pytest.mark.parametrize(
    "given",
    [
        {"config": {"layers": {"choices": [[8]]}}},
        {"config": {"layers": {"choices": [[8], [4]], "start": [8]}}},
        {"config": {"layers": {"choices": [[8], ["wide"]]}}},
        {"config": {"rollout_length": {"choices": [16, 24]}}, "interval": 64},
        {"method": "pbt"},
        {"method": {"name": "successive_halving"}},
        {"method": "pb2"},
        {"method": "es"},
        {"shards": 2},
        {"init_from": "runs/before"},
        {"space": {"config.layers": [1, 2]}},
        {"space": {"config.layers": {"choices": [[8], [4]]}}},
    ],
    ids=shown,
)
def test_choices_that_are_refused(given: dict[str, Any], said: Said) -> None:
    with pytest.raises(BadInput) as error:
        make_closed_plan(several(**given))
    said(error.value)


@pytest.mark.parametrize("choices", [[4, 1], [1, 4]], ids=str)
def test_limits_hold_in_all_structures(choices: list[int]) -> None:
    """`update_ratio` is at most `max_update_ratio`, of each structure."""
    replay = {"num_envs": 2, "rollout_length": 16, "buffer_size": 64, "batch_size": 4, "learning_starts": 16}
    given = {"env": "Pendulum-v1", "agent": "td3", "config": replay | {"max_update_ratio": {"choices": choices}}}
    with pytest.raises(BadInput, match=r"hyper.update_ratio = 4: must lie within \[0, 1\]"):
        make_closed_plan(several(**given, hyper={"update_ratio": 4.0}, space={}))
