"""The method of an experiment that names none, and that one name is one algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.messages import Said, shown
from support.runs import CONFIG, tiny

from shoal.core.errors import BadInput
from shoal.core.population import PopulationStats
from shoal.experiment import plan_text
from shoal.experiment.plan import make_plan
from shoal.experiment.validation import check

DIRECTORY = {"exchange": {"name": "directory", "workspace": "w"}}
EXTERNAL = {"agent": "support.trainers:Sound", "env": "bandit", "config": {}, "fitness": {}}
TD3 = {"env": "Pendulum-v1", "agent": "td3", "config": {"learning_starts": 0}}
HALVING, PBT = ("successive_halving", 0.5), ("pbt", 0.5)


@pytest.mark.parametrize("population", [2, 7, 8, 64])
@pytest.mark.parametrize("generations", [1, 7, 16])
@pytest.mark.parametrize(
    ("changes", "default"),
    [
        ({}, HALVING),
        (TD3, HALVING),
        ({"env": "gym:CartPole-v1"}, HALVING),
        ({"budget": 100_000}, HALVING),
        ({"space": {}}, HALVING),
        ({"shards": 2}, PBT),
        ({"exchange": "mpi"}, PBT),
        (DIRECTORY, PBT),
        (EXTERNAL, PBT),
    ],
    ids=shown,
)
def test_the_default_method(population: int, generations: int, changes: dict[str, Any], default: tuple[str, float]):
    """It follows from who trains the members and whether they can end, and from nothing else."""
    population += population % 2 if "shards" in changes else 0
    method = check(tiny(method=None, population=population, generations=generations, **changes))
    name = {"SuccessiveHalving": "successive_halving", "Pbt": "pbt"}[type(method).__name__]
    assert (name, method.default_members) == default  # type: ignore[attr-defined]


def test_one_agent_alone_has_the_default_hyperparameters() -> None:
    plan = make_plan(tiny(method=None, population=1, hyper={}, space={"learning_rate": [1e-5, 1e-2, "log"]}))
    assert plan.experiment.method_name == "successive_halving"
    assert plan.evolver.init((0, 0), np.arange(1))[1]["learning_rate"] == np.float32(3e-4)


@pytest.mark.parametrize(
    ("method", "held"),
    [
        ({"name": "pbt", "default_members": 0.5}, 4),
        ({"name": "pbt", "initial": "default"}, 8),
        ({"name": "mf_pbt", "initial": "default", "periods": [1]}, 8),
    ],
    ids=shown,
)
def test_what_has_no_default_is_sampled_for_members_that_hold_the_defaults(method: dict[str, Any], held: int) -> None:
    space = {
        "learning_rate": [1e-5, 1e-2, "log"],
        "entropy_coefficient": {"low": 1e-4, "high": 0.1, "scale": "log", "initial": "sampled"},
    }
    plan = make_plan(tiny(hyper={}, population=8, space=space, method=method))
    first = plan.evolver.init((0, 0), np.arange(8))[1]
    assert (first["learning_rate"] == np.float32(3e-4)).sum() == held
    assert len({*first["entropy_coefficient"].tolist()}) == 8


@pytest.mark.parametrize("population", [4, 8, 16])
@pytest.mark.parametrize(
    "changes", [{}, {"budget": 100_000}, {"shards": 2}, {"exchange": "mpi"}, DIRECTORY, {"generations": 30}], ids=shown
)
def test_pbt_makes_the_same_kind_of_decisions_everywhere(population: int, changes: dict[str, Any]) -> None:
    """The bottom quarter copies the top quarter, all begin anywhere in the ranges, and nobody ends."""
    plan = make_plan(tiny(population=population, hyper={}, space={"learning_rate": [1e-5, 1e-2, "log"]}, **changes))
    assert plan.rung_sizes == [(0.0, population)]
    uid = np.arange(population)
    state, hyper = plan.evolver.init((0, 0), uid)
    assert not (hyper["learning_rate"] == np.float32(3e-4)).any()
    for generation in (0, 7):
        fitness, whole = (
            np.random.default_rng(generation).permutation(population) * 1.0,
            np.full(population, generation),
        )
        stats = PopulationStats(uid, whole, whole * 64, fitness, whole + 1.0, whole + 8, hyper, 0.5)
        _, decision = plan.evolver.decide((0, generation), state, stats, uid)
        quarter, order = population // 4, np.argsort(fitness)
        assert sorted(np.flatnonzero(decision.parents != uid)) == sorted(order[:quarter])
        assert {*decision.parents[order[:quarter]]} <= {*order[-quarter:]} and not decision.ends


@pytest.mark.parametrize(
    "changes",
    [{"shards": 2}, {"exchange": "mpi"}, DIRECTORY, EXTERNAL],
    ids=shown,
)
def test_what_cannot_end_members_refuses_to(changes: dict[str, Any], said: Said) -> None:
    with pytest.raises(BadInput) as caught:
        make_plan(tiny(method="successive_halving", **{"config": CONFIG} | changes))
    said(caught.value)


@pytest.mark.parametrize(
    ("changes", "alone"),
    [
        ({"population": 4, "method": {"name": "pbt", "default_members": 0.75}}, True),
        ({"population": 2, "method": None, "shards": 2}, True),
        ({"population": 3, "method": {"name": "pbt", "default_members": 0.5}}, False),
        ({"population": 2, "method": {"name": "pbt", "default_members": 0.5, "select": "none"}}, False),
        ({"population": 2, "method": None}, False),
        ({"population": 2, "method": None} | DIRECTORY, False),
    ],
    ids=shown,
)
def test_a_run_says_where_a_single_tuned_member_copies_nobody(changes: dict[str, Any], alone: bool) -> None:
    assert bool(plan_text.too_few_tuned(make_plan(tiny(**changes)))) == alone
