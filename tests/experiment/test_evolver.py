"""Ask and tell: the decisions of a real run, over plain dictionaries."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.messages import shown
from support.runs import rows

from shoal import BadInput, Evolver, Experiment, Range, train
from shoal.core.keys import derive
from shoal.core.population import PopulationStats
from shoal.core.space import SearchSpace
from shoal.members.rollouts.episodes import summarise
from shoal.methods.explore import EXPLORERS
from shoal.methods.pbt import Pbt
from shoal.methods.select import SELECTORS

SPACE = {"learning_rate": [1e-5, 1e-2, "log"], "epochs": {"low": 1, "high": 8, "integer": True}}
RANGES = {"learning_rate": Range(1e-5, 1e-2, "log"), "epochs": Range(1, 8, integer=True)}


def returns_of(generation: int, count: int = 6) -> np.ndarray:
    """float64 [count, 5]: of one member one return is no number."""
    returns = np.random.default_rng(generation).normal(size=(count, 5)) * [[1], [2], [3], [1], [2], [3]][:count]
    returns[generation % count, 2] = np.nan
    return returns


@pytest.mark.parametrize("select", SELECTORS)
@pytest.mark.parametrize("explore", EXPLORERS)
def test_it_decides_as_a_run_does(select, explore):
    uid, seed, burn_in = np.arange(6), 5, 150
    method = Pbt(select=SELECTORS[select](), explore=EXPLORERS[explore](), burn_in=burn_in)
    reference = method.evolver(SearchSpace(RANGES, {}, {}), 8)
    _, hyper = reference.init(derive((seed,), 0, "hyper"), uid)
    evolver = Evolver(SPACE, 6, select, explore, burn_in, seed)
    parents, copies = uid, 0
    for generation in range(5):
        asked = evolver.ask()
        assert [member["uid"] for member in asked] == uid.tolist()
        for name, x in hyper.items():
            assert np.array([member["hyper"][name] for member in asked], np.float32).tobytes() == x.tobytes()
        assert [m["uid"] if m["copy_from"] is None else m["copy_from"] for m in asked] == parents.tolist()
        assert all(m["copy_from"] != m["uid"] for m in asked)
        copies += sum(m["copy_from"] is not None for m in asked)
        returns, steps = returns_of(generation), np.full(6, 100 * (generation + 1))
        measured = summarise(returns)
        stats = PopulationStats(uid, np.full(6, generation), steps, *measured, hyper)
        _, (parents, hyper, *_) = reference.decide(derive((seed,), generation, "decide"), (), stats, uid)
        evolver.tell({u: list(returns[u]) for u in (3, 5, 0, 1, 2, 4)}, {u: int(steps[u]) for u in range(6)})
    assert (copies > 0) == (select != "none")


def test_it_decides_as_the_record_of_a_run_says(tmp_path):
    space = {"rate": [1e-3, 1.0, "log"]}
    usual = {"env": "bandit", "agent": "support.trainers:Sound", "population": 4, "interval": 8, "final_episodes": 2}
    train(Experiment(**usual, method="pbt", generations=5, seed=3, space=space, run_dir=str(tmp_path / "run")))
    lines = rows(tmp_path / "run" / "lineage.jsonl")
    evolver = Evolver(space, population=4, seed=3)
    for generation in range(5):
        now = [line for line in lines if line["generation"] == generation]
        assert [row["hyper"]["rate"] for row in now] == [member["hyper"]["rate"] for member in evolver.ask()]
        evolver.tell({row["uid"]: row["fitness"] for row in now})
        parents = [m["uid"] if m["copy_from"] is None else m["copy_from"] for m in evolver.ask()]
        assert parents == [row["parent"] for row in now]
        assert parents != [0, 1, 2, 3]


def test_a_saved_state_goes_on():
    whole, first = Evolver(SPACE, 4, seed=1), Evolver(SPACE, 4, seed=1)
    for generation in range(4):
        fitness = dict(enumerate(returns_of(generation, 4)[:, 0].tolist()))
        whole.tell(fitness)
        saved = json.loads(json.dumps(first.state_dict()))
        first = Evolver(SPACE, 4, seed=1)
        first.load_state_dict(saved)
        first.tell(fitness)
        assert first.ask() == whole.ask()
    assert whole.state_dict()["generation"] == 4


def test_plain_numbers():
    (member, *_) = Evolver(SPACE, 4).ask()
    assert {name: type(x) for name, x in member["hyper"].items()} == {"learning_rate": float, "epochs": int}
    assert type(member["uid"]) is int and member["copy_from"] is None


def test_what_is_asked_for_is_a_copy():
    evolver = Evolver(SPACE, 4)
    before = evolver.ask()
    evolver.ask()[0]["hyper"]["epochs"] = 99
    assert evolver.ask() == before


def test_a_diverged_member_copies_another_one():
    evolver = Evolver(SPACE, 3)
    evolver.tell({0: 1.0, 1: float("nan"), 2: 2.0})
    assert evolver.ask()[1]["copy_from"] == 2


@pytest.mark.parametrize(("ahead", "copied"), [(2.2, None), (2.4, 1)])
def test_the_t_test_is_that_of_the_returns(ahead, copied):
    """Five returns whose variance is 2.5, as of a sample: t is what the other is ahead, and 2.306 is needed."""
    evolver = Evolver(SPACE, 2, select="t_test")
    evolver.tell({0: range(5), 1: np.arange(5) + ahead})
    assert evolver.ask()[0]["copy_from"] == copied


@pytest.mark.parametrize(
    "options",
    [
        {"population": 0},
        {"population": 1},
        {"select": "truncate"},
        {"explore": {"name": "perturb", "factor": 2}},
        {"space": {"rate": [1.0, 0.1]}},
        {"space": {"config.layers": {"choices": [[64], [256]]}}},
        {"burn_in": -1},
        {"burn_in": "5"},
        {"population": "4"},
        {"population": 2.5},
        {"seed": -1},
        {"seed": 2**31},
        {"seed": 1.5},
    ],
    ids=shown,
)
def test_impossible_arguments(options, said):
    with pytest.raises(BadInput) as error:
        Evolver(**{"space": SPACE, "population": 4} | options)
    said(error.value)


@pytest.mark.parametrize(
    ("burn_in", "told"),
    [
        (0, ({0: 1.0, 1: 2.0},)),
        (0, ({0: 1.0, 1: 2.0, 3: 1.0},)),
        (0, ({0: 1.0, 1: 2.0, 2: 1.0}, {0: 100})),
        (0, ({0: 1.0, 1: "x", 2: 1.0},)),
        (0, ({0: 1.0, 1: [1.0, [2.0]], 2: 1.0},)),
        (0, ({0: 1.0, 1: 2.0, "2": 1.0},)),
        (0, ({0: 1.0, 1: 2.0, 2: 1.0}, {0: 100, 1: None, 2: 100})),
        (10, ({0: 1.0, 1: 2.0, 2: 1.0},)),
    ],
    ids=shown,
)
def test_what_cannot_be_told(burn_in, told, said):
    evolver = Evolver(SPACE, 3, burn_in=burn_in)
    before = evolver.state_dict()
    with pytest.raises(BadInput) as error:
        evolver.tell(*told)
    said(error.value)
    assert evolver.state_dict() == before


@pytest.mark.parametrize(
    "state",
    [
        *({}, None, {"generation": 1, "members": [{"uid": 0}]}, Evolver(SPACE, 3).state_dict()),
        Evolver(SPACE | {"noise": [0, 1]}, 4).state_dict(),
    ],
    ids=["empty", "none", "half", "of three members", "of a larger space"],
)
def test_states_of_something_else(state, said):
    evolver = Evolver(SPACE, 4)
    before = evolver.state_dict()
    with pytest.raises(BadInput) as error:
        evolver.load_state_dict(state)
    said(error.value)
    assert evolver.state_dict() == before
