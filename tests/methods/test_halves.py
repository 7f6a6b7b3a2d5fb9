"""PBT in one half of a population, while the other one keeps the usual values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from support.messages import Said
from support.runs import rows, tiny

from shoal.core.errors import BadInput
from shoal.core.evolution import Cards, Range
from shoal.experiment.files import of_run
from shoal.experiment.plan import make_plan
from shoal.methods.explore import KeepValues, Perturb
from shoal.methods.pbt import Pbt
from shoal.methods.seeds import Seeds
from shoal.methods.select import Truncation, WinnerTakesAll
from shoal.run.loop import train

RANGES = {"learning_rate": Range(1e-5, 1e-2, "log")}
USUAL = [0, 3, 5, 6]  # of eight: the uids with an even number of ones among their binary digits


def at(fitness: list[float]) -> Cards:
    n = np.zeros(len(fitness), np.int64)
    hyper = {"learning_rate": np.geomspace(1e-5, 1e-2, len(n)).astype(np.float32)}
    return Cards(np.arange(len(n)), n, n, np.array(fitness), n + 1.0, n + 8, hyper)


def test_one_half_keeps_what_it_has_and_the_other_one_copies_within_itself() -> None:
    """By hand: members 1, 2, 4 and 7 copy the best of them, and never member 0, which is the best of all."""
    cards = at([9, 1, 2, 8, 3, 6, 7, 4])
    method = Pbt(first_values="half", explore=KeepValues(), select=WinnerTakesAll())
    decided = method.evolver(RANGES, {}, 4).decide((0, 0), (), cards, np.arange(8))[1]
    assert decided.parents.tolist() == [0, 7, 7, 3, 7, 5, 6, 7]
    np.testing.assert_array_equal(decided.hyper["learning_rate"], cards.hyper["learning_rate"][decided.parents])
    some = method.evolver(RANGES, {}, 4).decide((0, 0), (), cards, np.array([6, 2, 0]))[1]
    assert some.parents.tolist() == [6, 7, 0], "a process decides for its own members as all would"


@pytest.mark.parametrize("generation", range(3))
def test_whatever_becomes_of_the_others(generation: int) -> None:
    """Even where a member there has diverged, or is the worst, it neither copies nor explores."""
    evolver = Pbt(first_values="half", select=Truncation(), explore=Perturb()).evolver(RANGES, {}, 4)
    cards = at([np.nan, 1, 2, -5, 3, 0, 7, 4])._replace(generation=np.full(8, generation))
    decided = evolver.decide((0, generation), (), cards, np.arange(8))[1]
    assert decided.parents[USUAL].tolist() == USUAL
    np.testing.assert_array_equal(decided.hyper["learning_rate"][USUAL], cards.hyper["learning_rate"][USUAL])
    assert (decided.parents != np.arange(8)).any(), "the others go on evolving"


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"population": 8}, "half"),
        ({"population": 7}, "range"),
        ({"population": 8, "space": {"learning_rate": {"low": 1e-5, "high": 1e-2, "start": 1e-3}}}, "range"),
        ({"population": 8, "space": None}, "half"),
        ({"population": 2, "method": {"name": "pbt", "first_values": "half"}}, "half"),
        ({"population": 8, "method": {"name": "pbt", "first_values": "usual"}}, "usual"),
        ({"population": 8, "method": "pb2"}, "range"),
        ({"population": 8, "method": "seeds"}, "range"),
    ],
    ids=str,
)
def test_where_members_begin_by_default(changes: dict[str, Any], value: str) -> None:
    e = tiny(**{"space": {"learning_rate": [1e-5, 1e-2, "log"]}, "hyper": {}} | changes)
    plan = make_plan(e)
    assert plan.method.first_values == value
    first = plan.evolver.init((0, 0), np.arange(e.population))[1]["learning_rate"]
    there = 1e-3 if "start" in str(changes) else 3e-4
    at_once = {"half": e.population // 2, "usual": e.population, "range": e.population * (there == 1e-3)}[value]
    assert (first == np.float32(there)).sum() == at_once


def test_another_method_with_the_file_of_a_run_begins_where_it_would_by_itself() -> None:
    made = make_plan(tiny(population=8, space={"learning_rate": [1e-5, 1e-2, "log"]}, hyper={})).experiment
    plan = make_plan(replace(made, method="seeds"))
    first = plan.evolver.init((0, 0), np.arange(8))[1]["learning_rate"]
    assert not (first == np.float32(3e-4)).any()


def test_where_nothing_is_tuned_all_copy() -> None:
    method = make_plan(tiny(population=8, generations=8, space={})).method
    assert (method.first_values, method.survivors, method.halvings) == ("range", None, None)


@pytest.mark.parametrize(
    ("changes", "survivors"),
    [
        ({}, (1, (1, 2, 4))),
        ({"population": 23}, (2, (1, 2, 4))),
        ({"generations": 30}, (1, (2, 6, 15))),
        ({"population": 7}, (None, None)),
        ({"generations": 7}, (None, None)),
        ({"method": {"name": "pbt", "first_values": "half"}}, (None, None)),
        ({"method": {"name": "pbt", "survivors": 3}}, (3, (1, 4))),
        ({"method": {"name": "pbt", "survivors": 3, "halvings": [4, 5]}}, (3, (4, 5))),
        ({"shards": 2}, (None, None)),
        ({"budget": 100_000}, (None, None)),
        ({"exchange": {"name": "directory", "workspace": "w"}}, (None, None)),
        ({"agent": "support.trainers:Sound", "config": {}, "fitness": {}}, (None, None)),
    ],
    ids=str,
)
def test_an_eighth_survives_where_members_may_end(changes: dict[str, Any], survivors: tuple) -> None:
    ranges = {} if "agent" in changes else {"space": {"learning_rate": [1e-5, 1e-2, "log"]}, "hyper": {}}
    plan = make_plan(tiny(**{"population": 8, "generations": 9} | ranges | changes))
    plan.kind.close()
    assert (plan.method.survivors, plan.method.halvings) == survivors
    assert plan.sizes[-1] == (survivors[0] or plan.experiment.population)


def test_a_run_says_which_it_was(tmp_path: Path) -> None:
    train(tiny(tmp_path / "run", population=8, generations=3, space={"learning_rate": [1e-5, 1e-2, "log"]}, hyper={}))
    assert of_run(tmp_path / "run").method["first_values"] == "half"
    assert "Half of the members took no part in this" in (tmp_path / "run/method.json").read_text()
    lines = rows(tmp_path / "run/lineage.jsonl")
    usual = [row for row in lines if row["uid"] in USUAL]
    assert {row["parent"] == row["uid"] for row in usual} == {True}
    assert {np.float32(row["hyper"]["learning_rate"]) for row in usual} == {np.float32(3e-4)}
    assert any(row["parent"] != row["uid"] for row in lines)


@pytest.mark.parametrize(
    ("survivors", "words"), [(1, "until one was left"), (2, "until 2 were left"), (8, None), (None, None)]
)
@pytest.mark.parametrize("kind", [Pbt, Seeds])
def test_the_page_says_that_members_ended(kind: Any, survivors: int | None, words: str | None) -> None:
    told = kind(survivors=survivors, first_values="half").explanation(8)
    assert words in told if words else "halved" not in told


@pytest.mark.parametrize(
    ("method", "sizes"),
    [
        ("pbt", [8] * 20),
        ({"name": "pbt", "select": "keep"}, [8] * 20),
        ({"name": "seeds", "survivors": 1}, [8] * 3 + [4] * 3 + [2] * 3 + [1] * 11),
        ({"name": "seeds", "survivors": 2, "within": 10}, [8] * 4 + [4] * 3 + [2] * 13),
    ],
    ids=str,
)
def test_a_run_of_before_goes_on_as_it_began(tmp_path: Path, method: Any, sizes: list[int]) -> None:
    """When `pbt` did not say it, members began anywhere, and those of `seeds`, without a space, at the usual values;
    populations halved at equal shares of some, or of all."""
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump({"method": method, "population": 8, "generations": 12}))
    longer = make_plan(replace(of_run(tmp_path), generations=20))
    assert longer.method.first_values == ("usual" if longer.experiment.method_name == "seeds" else "range")
    assert longer.sizes.tolist() == sizes


@pytest.mark.parametrize(
    "changes",
    [
        {"method": {"name": "seeds", "survivors": "x"}},
        {"method": {"name": "seeds", "survivors": 1}, "population": [8]},
        {"method": {"name": "seeds", "survivors": 1, "within": "x"}},
        {"method": {"name": "seeds", "survivors": 1, "within": -4}},
    ],
    ids=str,
)
def test_a_forged_run_of_before_is_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], said: Said) -> None:
    values = {"method": "seeds", "population": 8, "generations": 12} | changes
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(BadInput) as caught:
        make_plan(of_run(tmp_path))
    said(caught.value)


def test_a_run_of_before_that_does_not_say_how_long_it_is_goes_on_as_new_ones(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(
        yaml.safe_dump({"method": {"name": "seeds", "survivors": 1}, "population": 8})
    )
    method = of_run(tmp_path).method
    assert (method["survivors"], method["halvings"]) == (1, None)
