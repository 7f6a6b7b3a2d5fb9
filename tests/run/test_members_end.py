"""Runs whose members end: how long the others train, and that a stop changes nothing."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.messages import Said
from support.runs import Signals, flags, rows, same_run, shoal, tiny
from support.synthetic_run import write_run

from shoal import Callback, Generation
from shoal.core.errors import BadInput
from shoal.core.interrupts import Interrupted
from shoal.core.population import PopulationStats
from shoal.experiment.experiment import Checkpoint
from shoal.experiment.plan import make_closed_plan, make_plan
from shoal.members.gradient_trained import GradientTrained, GradientTrainedShard
from shoal.members.trace_cache import trace_cache
from shoal.report.page import write_report
from shoal.report.schedule import schedule
from shoal.run import loop
from shoal.run.context import State
from shoal.run.train import resume, train
from shoal.run.warm_start import read_warm_start
from shoal.study.replay import follower

REPLAY = {
    "layers": [8],
    "rollout_length": 16,
    "num_envs": 2,
    "buffer_size": 256,
    "learning_starts": 32,
    "batch_size": 8,
}
TD3 = {"env": "gymnax:Pendulum-v1", "agent": "td3", "config": REPLAY}
HALVING = {"name": "successive_halving", "rungs": [0.4, 0.8], "default_members": 0}


class EndsAt(Callback):
    """Ends a run after a generation."""

    def __init__(self, generation: int):
        self.last = generation

    def on_generation_end(self, event: Generation) -> bool:
        return event.generation != self.last


def halving(path: Path | None, **changes: Any) -> Any:
    return tiny(path, **{"generations": 5, "method": HALVING} | changes)


@pytest.fixture(scope="module")
def to_the_last(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to the last member."""
    return train(halving(tmp_path_factory.mktemp("halving") / "run")).run_dir


@pytest.fixture
def ended(to_the_last: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return shutil.copytree(to_the_last, tmp_path / "run")


def alive(run: Path) -> list[int]:
    """The members of each generation."""
    lines = rows(run / "lineage.jsonl")
    return [sum(row["generation"] == g for row in lines) for g in range(lines[-1]["generation"] + 1)]


def made_equal_steps(run: Path, summary: dict[str, Any]) -> None:
    assert alive(run) == [4, 4, 2, 2, 1]
    steps = [line["steps"] for line in rows(run / "metrics.jsonl")]
    assert steps == [256, 512, 768, 1024, 1280]
    assert (summary["environment_steps"], len(summary["fitness"])) == (1280, 1)
    assert max(row["steps"] for row in rows(run / "lineage.jsonl")) == 64 + 64 + 128 + 128 + 256


def test_members_are_copied_to_the_host_once_for_a_checkpoint_and_not_between(tmp_path: Path, monkeypatch: Any):
    copied = []
    state = GradientTrainedShard.state
    monkeypatch.setattr(GradientTrainedShard, "state", lambda shard: copied.append(shard) or state(shard))
    monkeypatch.setattr(loop, "REST", 0.0)  # lines are written after every generation
    train(tiny(tmp_path / "run", generations=3, checkpoint=Checkpoint(every=3)))
    assert len(copied) == 1


@pytest.mark.slow
@pytest.mark.parametrize("changes", [TD3, {"env": "gym:CartPole-v1"}], ids=["memory", "host"])
def test_fewer_members_make_the_same_steps(tmp_path: Path, changes: dict[str, Any]):
    made_equal_steps(tmp_path / "run", train(halving(tmp_path / "run", **changes)).summary)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_run_that_is_stopped_at_a_rung_goes_on_bit_for_bit(tmp_path: Path, stop: int):
    with pytest.raises(Interrupted):
        train(halving(tmp_path / "parts"), callbacks=[Signals(stop, "train")])
    resume(tmp_path / "parts")
    made_equal_steps(tmp_path / "whole", train(halving(tmp_path / "whole")).summary)
    same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize(("changes", "programs"), [({}, 2), ({"env": "gym:CartPole-v1"}, 4)], ids=["device", "host"])
def test_sizes_share_programs_on_a_cpu(changes: dict[str, Any], programs: int):
    """One for a member on each of two devices, and one for the last member alone."""
    with trace_cache(kept := []):
        plan = make_closed_plan(halving(None, population=8, method="successive_halving", **changes))
        for _, members in plan.rung_sizes:
            plan.kind.shard([np.arange(members)], plan.setup).close()
    assert [members for _, members in plan.rung_sizes] == [8, 4, 2, 1]
    assert len(kept) == programs


def test_before_a_rung_those_in_doubt_play_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two of four, as many episodes together as all have in an evaluation, and then both of two. Who does better goes on,
    and the steps are counted; in CartPole they are the returns. What they have then is their fitness wherever there is one,
    in a run that goes on too."""
    raced, with_more = list[tuple[PopulationStats, np.ndarray, PopulationStats]](), PopulationStats.with_more

    def watched(self: PopulationStats, rows: np.ndarray, returns: np.ndarray, tie_breaker: None) -> PopulationStats:
        less_fit_is_better = np.arange(len(rows), 0, -1.0)[:, None] * -1e3 + returns * 0
        raced.append((self, returns, with_more(self, rows, less_fit_is_better, tie_breaker)))
        return raced[-1][2]

    monkeypatch.setattr(PopulationStats, "with_more", watched)
    run, method = tmp_path / "run", HALVING | {"race": True}
    summary = train(halving(run, method=method)).summary
    assert [returns.shape for _, returns, _ in raced] == [(2, 4), (2, 2)]
    of_each = [[row for row in rows(run / "lineage.jsonl") if row["generation"] == g] for g in range(5)]
    metrics = rows(run / "metrics.jsonl")
    steps = sum(row["fitness"] * row["episodes"] for g in (0, 2, 4) for row in of_each[g])
    for generation, (before, returns, after) in zip((1, 3), raced, strict=True):
        lines = of_each[generation]
        assert [row["fitness"] for row in lines] == [row["parent_fitness"] for row in lines] == after.fitness.tolist()
        assert [row["episodes"] for row in lines] == after.episodes.tolist() != before.episodes.tolist()
        assert [row["returns_std"] for row in lines] == after.std.tolist()
        assert metrics[generation]["fitness"]["best"] == after.best != before.best
        assert {*metrics[generation]["members"]["fitness/noise"]} == {None}  # it is of fewer episodes than the fitness
        steps += (before.fitness * before.episodes).sum() + returns.sum()
    assert None not in metrics[2]["members"]["fitness/noise"]
    assert summary["evaluation_steps"] == steps + summary["champion"]["final_selection"]["steps"]
    (before, _, after), left = raced[0], [row["uid"] for row in of_each[2]]
    assert sorted(left) == sorted(np.lexsort((before.uid, -before.fitness))[[0, 2]].tolist())
    ended = train(halving(tmp_path / "parts", method=method), [EndsAt(1)]).summary
    assert ended["fitness"] == {str(uid): after.fitness[uid] for uid in left}
    resume(tmp_path / "parts")
    same_run(run, tmp_path / "parts")


def test_a_race_that_spends_the_budget_makes_the_generation_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its members are candidates of the final selection, as those of any last generation."""

    def spends(c: Any, state: Any, shared: Any) -> Any:
        state.shard.count_evaluation(10**4 * (state.done == 1))
        return shared._replace(evaluation_steps=state.shard.evaluation_steps)

    monkeypatch.setattr(loop, "after_race", spends)
    train(halving(tmp_path / "run", generations=20, budget=10**4))
    assert alive(tmp_path / "run") == [4, 4]
    assert len(json.loads((tmp_path / "run/checkpoints/00000001/manifest.json").read_text())["last"]) > 1


def test_members_keep_their_names_and_nobody_is_copied_where_others_end(tmp_path: Path):
    """Those of the higher fitness go on, in their own rows of the lineage."""
    train(halving(tmp_path / "run", method=HALVING | {"between_rungs": "none"}))
    lines = rows(tmp_path / "run" / "lineage.jsonl")
    assert all(row["parent"] == row["uid"] for row in lines)
    for before, after in ((1, 2), (3, 4)):
        fitness = {row["uid"]: row["fitness"] for row in lines if row["generation"] == before}
        left = {row["uid"] for row in lines if row["generation"] == after}
        assert min(fitness[uid] for uid in left) >= max(x for uid, x in fitness.items() if uid not in left)


@pytest.mark.parametrize(("population", "generations", "rungs"), [(3, 6, [0.5]), (5, 9, [0.2, 0.5]), (9, 12, None)])
@pytest.mark.slow
def test_whatever_the_sizes_all_members_together_make_the_same_steps(tmp_path, population, generations, rungs):
    """To within one rollout of the members that are left, where sizes do not divide one another."""
    method = {"name": "successive_halving", "rungs": None if rungs is None else rungs}
    train(halving(tmp_path / "run", population=population, generations=generations, method=method))
    of_each = alive(tmp_path / "run")
    assert of_each[0] == population and len({*of_each}) > 1
    for generation, line in enumerate(rows(tmp_path / "run/metrics.jsonl")):
        assert abs(line["steps"] - 64 * population * (generation + 1)) <= 32 * of_each[generation] / 2


def test_a_budget_has_rungs_too(tmp_path: Path):
    summary = train(halving(tmp_path / "run", generations=20, budget=1500)).summary
    assert alive(tmp_path / "run")[0] == 4 and alive(tmp_path / "run")[-1] == 1
    assert 1500 <= summary["environment_steps"] + summary["evaluation_steps"] < 2 * 1500


def test_members_end_at_shares_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of 50 s, at 0.4 and 0.8: after the generations measured nearest to 20 and 40."""
    monkeypatch.setattr(State, "seconds", property(lambda state: 10.0 * state.done + 5))
    train(halving(tmp_path / "run", generations=2, time_limit=45))
    assert alive(tmp_path / "run") == [4, 4, 2, 2, 1]


def test_a_run_stops_early_and_goes_on_with_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said):
    """Bit for bit as the run that had more from the start, although a rung comes with the generation that ended it."""
    course = [10.0, 20.0, 30.0, 20.0, 20.0, 10.0]  # the best fitness of each generation
    monkeypatch.setattr(PopulationStats, "best", property(lambda stats: course[stats.generation[0]]))
    run, straight = tmp_path / "run", tmp_path / "straight"
    train(halving(straight, stop={"fitness": 30}))
    stops = "--stop-fitness", "19.5", "--stop-patience", "9"
    assert shoal(*flags(run, *stops, method=HALVING, generations=5)).code == 0
    for path, done in ((straight, 3), (run, 2)):
        result = json.loads((path / "result.json").read_text())
        assert (result["status"], result["generations"], len(alive(path))) == ("done", done, done)
    assert resume(run).already
    outcome = shoal("resume", run, "--set", "stop.fitness=20")
    assert outcome.code == 2
    said(outcome.err)
    (run / "result.json").unlink()  # killed before its end was written
    assert resume(run).summary["stopped_by"] == "stop.fitness = 19.5"
    assert shoal("resume", run, "--set", "stop.fitness=30", "stop.patience=null", "--quiet").code == 0
    same_run(run, straight)
    assert "ended by stop.fitness = 30" in (run / "report.html").read_text()


def test_a_run_that_ended_before_a_rung_can_get_more_generations(tmp_path: Path):
    """Its rungs then come at shares of the longer run; members that have ended stay so."""
    train(halving(tmp_path / "run", generations=2, method=HALVING | {"rungs": [0.9, 0.95]}))
    assert alive(tmp_path / "run") == [4, 4]
    resume(tmp_path / "run", generations=20)
    assert alive(tmp_path / "run") == [4] * 18 + [2] + [1]


def test_a_stopped_run_may_end_soon_and_go_on_later(tmp_path: Path):
    with pytest.raises(Interrupted):
        train(halving(tmp_path / "run"), callbacks=[Signals(1, "train")])
    resume(tmp_path / "run", generations=3)
    ended_soon = alive(tmp_path / "run")
    resume(tmp_path / "run", generations=8)
    assert alive(tmp_path / "run")[:3] == ended_soon and alive(tmp_path / "run")[-1] == 1


def test_members_that_are_left_start_another_run(ended: Path, tmp_path: Path):
    (left,) = {row["uid"] for row in rows(ended / "lineage.jsonl") if row["generation"] == 4}
    alone = read_warm_start(make_plan(tiny(population=1, method="independent", init_from=str(ended))))
    assert alone is not None and alone.uid == [left]
    train(halving(tmp_path / "more", generations=1, init_from=str(ended)))
    assert (tmp_path / "more/init_from.json").read_text().count(f'"parent": {left}') == 4
    assert len({row["hyper"]["learning_rate"] for row in rows(tmp_path / "more/lineage.jsonl")}) > 1


def test_the_page_says_what_a_generation_is(ended: Path, tmp_path: Path):
    """The same number of steps all along, but not of each member."""
    page = write_report(ended).read_text()
    assert "4 agents learned side by side, in generations of 256 environment steps of all members." in page
    page = write_report(write_run(tmp_path / "other", 4, 3)).read_text()
    assert "4 agents learned side by side, in generations of 32.8k environment steps." in page


def test_a_schedule_lasts_as_long_as_its_champion_trained(ended: Path):
    """By hand: 2 intervals of four members, 2 of two, which are twice as long, and one of the last, four times as long."""
    found = [row["learning_rate"] for row in schedule(ended)]  # up to the champion's generation
    follows = follower(ended)
    assert [row["learning_rate"] for row in follows.method["rows"]] == [
        rate for rate, intervals in zip(found, [1, 1, 2, 2, 4], strict=False) for _ in range(intervals)
    ]
    assert follows.generations == len(follows.method["rows"])


@pytest.mark.parametrize(
    "changed", ["steps: -64", "steps: 1000000000000", "steps: null", "rungs: x", "min_members: 1.5"]
)
def test_a_forged_run_has_no_schedule(ended: Path, changed: str):
    """What a lineage says is believed only where members could have done it; options of the method are not asked."""
    name, value = changed.split(": ")
    if name == "steps":
        lines = (ended / "lineage.jsonl").read_text().splitlines()
        forged = [
            line.replace('"steps": 64', f'"steps": {value}').replace('"steps": 128', f'"steps": {value}')
            for line in lines
        ]
        (ended / "lineage.jsonl").write_text("\n".join(forged) + "\n")
    else:
        text = (ended / "experiment.yaml").read_text()
        (ended / "experiment.yaml").write_text(text.replace(f"{name}:", f"{name}: {value} #"))
    try:
        assert follower(ended).generations
    except BadInput as error:
        assert "\n" not in str(error)


class Memory(Callback):
    """Counts the shards that are still alive when a generation has ended."""

    def __init__(self) -> None:
        self.shards: list[weakref.ref[Any]] = []
        self.alive: list[int] = []

    def on_generation_end(self, event: Generation) -> None:
        self.alive.append(sum(shard() is not None for shard in self.shards))


def test_members_that_have_ended_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    memory, make = Memory(), GradientTrained.shard

    def watched(*arguments: Any) -> Any:
        shard = make(*arguments)
        memory.shards.append(weakref.ref(shard))
        return shard

    monkeypatch.setattr(GradientTrained, "shard", watched)
    gc.disable()  # they are freed at once, by what refers to them
    try:
        train(halving(tmp_path / "run", generations=6), [memory])
    finally:
        gc.enable()
    assert alive(tmp_path / "run")[-1] == 1 and len(memory.shards) == 3
    assert memory.alive == [1] * 6


def test_a_resumed_run_makes_only_the_members_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(Interrupted):
        train(halving(tmp_path / "run"), callbacks=[Signals(2, "train")])
    made, make = [], GradientTrained.shard

    def watched(kind: GradientTrained, uids: Any, setup: Any) -> Any:
        made.append(len(uids[0]))
        return make(kind, uids, setup)

    monkeypatch.setattr(GradientTrained, "shard", watched)
    resume(tmp_path / "run")
    assert made == [2, 1]
