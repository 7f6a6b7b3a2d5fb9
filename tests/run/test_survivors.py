"""A population that shrinks: who lives on, how long they train, and that a stop changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import others_slow
from support.messages import Said, shown
from support.runs import Signals, rows, same_run, tiny

from shoal.commands.retrain import follower
from shoal.core.errors import BadInput
from shoal.core.evolution import Cards
from shoal.core.interrupts import Interrupted
from shoal.methods.explore import KeepValues
from shoal.methods.pbt import Pbt
from shoal.methods.seeds import Seeds
from shoal.methods.select import WinnerTakesAll
from shoal.methods.survivors import outliving
from shoal.report.page import write_report
from shoal.report.run import schedule
from shoal.run.loop import resume, train

pytestmark = pytest.mark.usefixtures("shared_programs")
REPLAY = {"layers": [8], "rollout": 16, "environments": 2, "capacity": 256, "warm_up": 32, "batch": 8}
TD3 = {"env": "gymnax:Pendulum-v1", "agent": "td3", "config": REPLAY}


def shrinking(path: Path | None, **changes: Any) -> Any:
    return tiny(path, **{"generations": 5, "method": {"name": "pbt", "survivors": 1, "halvings": [2, 4]}} | changes)


@pytest.mark.parametrize(
    ("population", "generations", "survivors", "sizes"),
    [
        (8, 30, 1, [8] * 2 + [4] * 4 + [2] * 9 + [1] * 15),
        (8, 8, 1, [8, 4, 2, 2, 1, 1, 1, 1]),
        (8, 4, 1, [8, 4, 2, 1]),
        (8, 12, 2, [8] * 2 + [4] * 4 + [2] * 6),
        (6, 4, 2, [6, 3, 2, 2]),
        (4, 5, None, [4] * 5),
        (3, 2, 3, [3, 3]),
    ],
)
def test_the_population_halves_in_the_first_half_of_the_run(population, generations, survivors, sizes):
    """Each size lasts twice as long as the one before, as nearly as whole generations allow."""
    method = Seeds(survivors=survivors).settled(population, None, generations)
    assert method.sizes(population, generations).tolist() == sizes


def test_the_fittest_have_the_first_places_and_the_others_end():
    """By hand: of six members three live on, the fittest, which are 1, 3 and 5; 3 and 5 take the places of 0 and 2."""
    fitness = np.array([0.0, 9.0, np.nan, 7.0, 1.0, 8.0])
    hyper = {"learning_rate": np.arange(6, dtype=np.float32)}
    n = np.zeros(6, np.int64)
    cards = Cards(np.arange(6), n, n, fitness, np.zeros(6), n, hyper)
    evolver = outliving(Seeds(survivors=3).evolver({}, {"learning_rate": 1.0}, 2), np.array([6, 3]), halves=False)
    for order in (np.arange(6), np.array([3, 0, 5, 1, 4, 2])):
        decided = evolver.decide((0, 0), (), cards.take(order), np.arange(6))[1]
        parents = dict(zip(cards.uid[order].tolist(), cards.uid[order][decided.parents].tolist(), strict=True))
        assert parents == {0: 3, 1: 1, 2: 5, 3: 3, 4: 4, 5: 5}
        assert decided.hyper["learning_rate"][np.argsort(order)].tolist() == [3, 1, 5, 3, 4, 5]


def at(fitness: list[float]) -> Cards:
    """The cards of the first generation; members 1 and 2, and 4 and 7, are those that begin anywhere in the ranges."""
    n = np.zeros(len(fitness), np.int64)
    return Cards(np.arange(len(n)), n, n, np.array(fitness), n + 1.0, n + 8, {"x": np.arange(len(n), dtype=np.float32)})


def test_halves_that_begin_in_two_ways_stay_apart_until_one_of_each_is_left():
    """By hand: 0, 3, 5 and 6 begin at the usual values, and the others are behind all of them."""
    sizes, each = np.array([8, 4, 2, 1]), Pbt(first_values="half", explore=KeepValues(), select=WinnerTakesAll())
    evolver = outliving(each.evolver({}, {"x": 1.0}, 4), sizes, halves=True)
    eight = at([5, 1, 2, 8, 3, 6, 7, 4])
    first = evolver.decide((0, 0), (), eight, np.arange(8))[1]
    assert first.parents.tolist() == [6, 4, 7, 3, 4, 5, 6, 7]  # 3 and 6 are the best here, 4 and 7 there
    assert first.hyper["x"].tolist() == first.parents.tolist()
    still = outliving(each.evolver({}, {"x": 1.0}, 4), np.array([8, 8, 4, 1]), halves=True)
    assert still.decide((0, 0), (), eight, np.arange(8))[1].parents.tolist() == [0, 7, 7, 3, 7, 5, 6, 7]
    assert still.decide((0, 0), (), eight, np.array([5, 2]))[1].parents.tolist() == [5, 7]
    four = at([5, 1, 2, 8])._replace(generation=np.ones(4, np.int64))
    assert evolver.decide((0, 0), (), four, np.arange(4))[1].parents.tolist() == [3, 2, 2, 3]


@pytest.mark.parametrize(
    ("usual", "tuned", "deviation", "left"),
    [
        (5, 6, 1, 0),  # t = 1 / sqrt(1/8 + 1/8) = 2, and 2.14 is what 14 degrees of freedom ask for
        (5, 6.1, 1, 1),  # t = 2.2
        (5, 6, 0, 1),
        (5, 5, 0, 0),
        (5, 4, 0, 0),
        (5, 6, np.nan, 1),
        (5, 4, np.nan, 0),
        (np.nan, 4, 1, 1),
        (5, np.nan, 1, 0),
    ],
)
def test_the_usual_one_ends_only_for_one_that_is_proven(usual: float, tuned: float, deviation: float, left: int):
    """By hand, eight episodes of each; of the last two, member 0 began at the usual values."""
    evolver = outliving(
        Pbt(first_values="half", explore=KeepValues()).evolver({}, {"x": 1.0}, 2), np.array([2, 1]), halves=True
    )
    two = at([usual, tuned])._replace(deviation=np.full(2, deviation))
    decided = evolver.decide((0, 0), (), two, np.arange(2))[1]
    assert (decided.parents[0], decided.hyper["x"][0]) == (left, left)


def made_equal_steps(run: Path, summary: dict[str, Any]) -> None:
    lines = rows(run / "lineage.jsonl")
    of_each = [[row["uid"] for row in lines if row["generation"] == g] for g in range(5)]
    assert [*map(len, of_each)] == [4, 4, 2, 2, 1]
    steps = [line["steps"] for line in rows(run / "metrics.jsonl")]
    assert steps == [256, 512, 768, 1024, 1280]
    assert (summary["environment_steps"], [*summary["fitness"]]) == (1280, ["0"])
    assert max(row["steps"] for row in lines) == 64 + 64 + 128 + 128 + 256


@pytest.mark.slow
@pytest.mark.parametrize("changes", [TD3, {"env": "gym:CartPole-v1"}], ids=["memory", "host"])
def test_fewer_members_make_the_same_steps(tmp_path: Path, changes: dict[str, Any]):
    made_equal_steps(tmp_path / "run", train(shrinking(tmp_path / "run", **changes)).summary)


@pytest.mark.parametrize("stop", others_slow([1, 2, 3], 2))
def test_a_run_that_is_stopped_where_it_shrinks_goes_on_bit_for_bit(tmp_path: Path, stop: int):
    with pytest.raises(Interrupted):
        train(shrinking(tmp_path / "parts"), recorders=[Signals(stop, "train")])
    resume(tmp_path / "parts")
    made_equal_steps(tmp_path / "whole", train(shrinking(tmp_path / "whole")).summary)
    same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize(
    "changes",
    [
        {"method": {"name": "pbt", "survivors": 5}},
        {"method": {"name": "seeds", "survivors": 0}},
        {"generations": 2, "method": {"name": "pbt", "survivors": 1}},
        {"shards": 2},
        {"budget": 10_000},
        {"agent": "support.trainers:Sound", "config": {}, "fitness": {}},
        {"exchange": {"name": "directory", "workspace": "w"}},
        {"method": {"name": "pb2", "survivors": 1}},
        {"method": {"name": "pbt", "halvings": [1, 2]}},
        {"method": {"name": "pbt", "survivors": 1, "halvings": [1, 2, 3]}},
        {"method": {"name": "pbt", "survivors": 1, "halvings": [2, 2]}},
        {"method": {"name": "pbt", "survivors": 1, "halvings": [0, 2]}},
    ],
    ids=shown,
)
def test_what_cannot_shrink(changes: dict[str, Any], said: Said):
    with pytest.raises(BadInput) as caught:
        train(shrinking(None, **changes))
    said(caught.value)


def test_a_run_that_ended_before_it_had_shrunk_may_end_soon(tmp_path: Path):
    """With fewer generations than it began with, and than it needs to shrink."""
    with pytest.raises(Interrupted):
        train(shrinking(tmp_path / "run"), recorders=[Signals(1, "train")])
    assert len(resume(tmp_path / "run", generations=3).summary["fitness"]) == 2


def test_those_that_are_left_go_on_where_there_are_more_generations(tmp_path: Path):
    """As if the run had been that long from its start, and had shrunk as soon."""
    train(shrinking(tmp_path / "parts"))
    resume(tmp_path / "parts", generations=7)
    more = {"method": {"name": "pbt", "survivors": 1, "halvings": [2, 4]}, "generations": 7}
    train(shrinking(tmp_path / "whole", **more))
    same_run(tmp_path / "whole", tmp_path / "parts")
    alive = [sum(row["generation"] == g for row in rows(tmp_path / "parts/lineage.jsonl")) for g in range(7)]
    assert alive == [4, 4, 2, 2, 1, 1, 1]


def test_the_page_says_what_a_generation_is(tmp_path: Path):
    """The same number of steps all along, but not of each member."""
    page = write_report(train(shrinking(tmp_path / "run")).run_dir).read_text()
    assert "4 agents learned side by side, in generations of 256 environment steps of all members." in page
    page = write_report(train(tiny(tmp_path / "other")).run_dir).read_text()
    assert "4 agents learned side by side, in generations of 64 environment steps." in page


def test_a_schedule_lasts_as_long_as_its_champion_trained(tmp_path: Path):
    """By hand: 2 intervals of four members, 2 of two, which are twice as long, and one of the last, four times as long."""
    train(shrinking(tmp_path / "run"))
    found = [row["learning_rate"] for row in schedule(tmp_path / "run")]  # up to the champion's generation
    follows = follower(tmp_path / "run")
    assert [row["learning_rate"] for row in follows.method["rows"]] == [
        rate for rate, intervals in zip(found, [1, 1, 2, 2, 4], strict=False) for _ in range(intervals)
    ]
    assert follows.generations == len(follows.method["rows"]) > 2
