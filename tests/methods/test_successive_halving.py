"""Successive halving: when members end, which of them, and what the others do between the rungs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import Said, shown

from shoal.core.errors import BadInput
from shoal.core.keys import derive
from shoal.core.population import PopulationStats
from shoal.core.space import Range, SearchSpace
from shoal.methods.components import make_method
from shoal.methods.explore import NoExploration
from shoal.methods.select import WinnerTakesAll
from shoal.methods.successive_halving import SuccessiveHalving, at_generations

SEARCH = SearchSpace({"x": Range(0.0, 100.0)}, {"x": 50.0}, {})
NO_AGENT: Any = None


def at(fitness: list[float], progress: float = 0.3, std: float = 1.0, uid: list[int] | None = None) -> PopulationStats:
    """PopulationStats of the first generation, of eight episodes each."""
    n = len(fitness)
    uids, zeros = np.arange(n) if uid is None else np.array(uid), np.zeros(n, np.int64)
    x = np.arange(n, dtype=np.float32)
    return PopulationStats(uids, zeros, zeros, np.array(fitness), zeros + std, zeros + 8, {"x": x}, progress)


def halving(**options: Any) -> SuccessiveHalving:
    return SuccessiveHalving(**{"explore": NoExploration(), "select": WinnerTakesAll()} | options)


def alive(generations: int, population: int = 8, **options: Any) -> list[int]:
    """The members of each generation of a run in which the fitness of a member is its uid."""
    evolver = halving(**options).evolver(SEARCH, population)
    state, _ = evolver.init((0,), uid := np.arange(population))
    found = []
    for generation in range(generations):
        found.append(len(uid))
        stats = at(uid.astype(float).tolist(), (generation + 1) / generations, uid=uid.tolist())
        stats = stats._replace(generation=np.full(len(uid), generation))
        state, decision = evolver.decide((0, generation), state, stats, np.arange(len(uid)))
        uid = np.delete(uid, decision.ends)
    return found


@pytest.mark.parametrize(
    ("population", "generations", "options", "sizes"),
    [
        (8, 30, {}, [8] * 2 + [4] * 4 + [2] * 9 + [1] * 15),
        (8, 8, {}, [8, 4, 2, 2, 1, 1, 1, 1]),
        (8, 4, {}, [8, 4, 2, 1]),
        (8, 2, {}, [8, 4]),
        (8, 12, {"min_members": 2}, [8] * 2 + [4] * 4 + [2] * 6),
        (9, 16, {"eta": 3}, [9] * 2 + [3] * 6 + [1] * 8),
        (6, 10, {"min_members": 2, "rungs": (0.2, 0.9)}, [6] * 2 + [3] * 7 + [2]),
        (6, 10, {"min_members": 2, "rungs": (0.2, 0.99)}, [6] * 2 + [3] * 8),
        (16, 3, {}, [16, 8, 4]),
        (8, 1, {}, [8]),
        (3, 2, {"min_members": 3}, [3, 3]),
        (1, 3, {}, [1, 1, 1]),
    ],
)
def test_rungs_come_at_shares_of_the_run(population, generations, options, sizes):
    """By default within the first half of it; each size lasts eta times as long as the one before. So plans it."""
    assert alive(generations, population, **options) == sizes
    begins = [0] + [g for g in range(1, generations) if sizes[g] != sizes[g - 1]]
    planned = at_generations(halving(**options).rung_sizes(population), generations)
    assert planned == [(g / generations, sizes[g]) for g in begins]


def test_decisions_are_those_that_were_recorded_of_the_default_before_it_had_this_name(monkeypatch) -> None:
    """Three runs of eight members and 16 generations: who goes on at each rung, and who copies whom between them, with which
    hyperparameters. Groups were formed otherwise then: by the parity of the ones in a uid."""

    def by_parity(self: SuccessiveHalving, uid: np.ndarray, population: int) -> np.ndarray:
        return np.array([int(u).bit_count() % 2 == 0 for u in uid], bool)

    monkeypatch.setattr(SuccessiveHalving, "holds_defaults", by_parity)
    space = {"learning_rate": Range(1e-5, 1e-2, "log"), "discount": Range(0.9, 0.999, "one_minus_log")}
    search = SearchSpace(space, {"learning_rate": 3e-4, "discount": 0.99}, {})
    kind = make_method("successive_halving")
    evolver, rungs = kind.evolver(search, 8), 0
    for row in json.loads(Path(__file__).with_name("halving_decisions.json").read_text()):
        seed, generation, n = row["seed"], row["generation"], len(row["fitness"])
        state = {"rungs": np.array({8: 0, 4: 1, 2: 2, 1: 3}[n])}
        stats = PopulationStats(
            np.arange(n),
            np.full(n, generation),
            np.array(row["steps"]),
            np.array(row["fitness"], float),
            np.array(row["std"]),
            np.full(n, 8),
            {name: np.array(values, np.float32) for name, values in row["hyper"].items()},
            (generation + 1) / 16,
        )
        _, decision = evolver.decide(derive((seed,), generation, "decide"), state, stats, np.arange(n))
        if "keeps" in row:
            rungs += 1
            assert sorted({*range(n)} - {*decision.ends}) == row["keeps"]
        else:
            assert not decision.ends and decision.parents.tolist() == row["parents"]
            for name, values in row["next"].items():
                np.testing.assert_array_equal(decision.hyper[name], np.array(values, np.float32))
    assert rungs == 9


def test_members_with_defaults_and_tuned_ones_end_separately() -> None:
    """By hand: 0 to 3 hold the defaults, and the others are behind all of them."""
    kept = halving().kept(at([5, 8, 6, 7, 1, 4, 2, 3]), 4, 8)
    assert np.flatnonzero(kept).tolist() == [1, 3, 5, 7]
    kept = halving().kept(at([8, 7, 1, 3], uid=[1, 3, 5, 7]), 2, 8)
    assert np.flatnonzero(kept).tolist() == [0, 3]
    kept = halving(default_members=0).kept(at([5, 8, 6, 7, 1, 4, 2, 3]), 4, 8)
    assert np.flatnonzero(kept).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fitness", "members", "uid", "left"),
    [
        ([None] * 4 + [5, 6, 7, 8], 4, None, [4, 5, 6, 7]),
        ([5, 6, 7, 8] + [None] * 4, 4, None, [0, 1, 2, 3]),
        ([None, 6, None, None, 5, 6, 7, 8], 4, None, [1, 5, 6, 7]),
        ([None, None, 7, 8], 2, [0, 1, 6, 7], [2, 3]),
        ([5, None, None, None, None, None, None, 8], 4, None, [0, 1, 4, 7]),
        ([None] * 8, 4, None, [0, 1, 4, 5]),
        ([None, 1], 1, [0, 7], [1]),
    ],
    ids=str,
)
def test_members_without_a_fitness_end_first(fitness, members, uid, left) -> None:
    """Those of either group: their places go to the other one, as far as it has members with a fitness."""
    stats = at([np.nan if x is None else x for x in fitness], uid=uid)
    assert np.flatnonzero(halving().kept(stats, members, 8)).tolist() == left


def test_members_near_the_cut_play_more() -> None:
    """Of each group those on both sides of it, from round to round half as many, and only where a rung is due."""
    stats = at([5, 8, 6, 7, 1, 4, 2, 3])
    assert sorted(halving().near_the_cut(stats, 4, 8, 0)) == [2, 3, 6, 7]
    assert not len(halving().near_the_cut(stats, 4, 8, 1))
    assert not len(halving().near_the_cut(at([5, 8, np.nan, np.nan, 1, 4, np.nan, np.nan]), 4, 8, 0)), (
        "none is in doubt"
    )
    assert sorted(halving().near_the_cut(at([np.nan, 8, np.nan, np.nan, 1, 4, 2, 3]), 4, 8, 0)) == [4, 6], (
        "one place more for the tuned members"
    )
    sixteen = at([*range(16)])
    rounds = [sorted(halving(default_members=0).near_the_cut(sixteen, 8, 16, i).tolist()) for i in range(4)]
    assert rounds == [[*range(4, 12)], [6, 7, 8, 9], [7, 8], []]
    for race, progress, many in ((True, 0.3, 4), (True, 0.01, 0), (False, 0.3, 0)):
        evolver = halving(race=race).evolver(SEARCH, 8)
        state, _ = evolver.init((0,), np.arange(8))
        assert len(evolver.in_doubt(state, stats._replace(progress=np.float64(progress)), 0)) == many


def test_between_rungs_tuned_members_copy_one_another_or_nobody() -> None:
    stats = at([5, 9, 6, 7, 1, 4, 2, 3], progress=0.01)
    for between, parents in (("pbt", [0, 1, 2, 3, 5, 5, 5, 5]), ("none", [*range(8)])):
        evolver = halving(between_rungs=between).evolver(SEARCH, 8)
        decision = evolver.decide((0, 0), {"rungs": np.array(0)}, stats, np.arange(8))[1]
        assert decision.parents.tolist() == parents and not decision.ends


@pytest.mark.parametrize(
    ("default", "tuned", "std", "left"),
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
def test_the_last_default_member_ends_only_for_a_significantly_better_one(default, tuned, std, left) -> None:
    """By hand, eight episodes of each."""
    two = at([default, tuned], std=std)
    assert np.flatnonzero(halving().kept(two, 1, 2)).tolist() == [left]
    by_fitness = np.flatnonzero(halving(last_choice="fitness").kept(two, 1, 2)).tolist()
    assert by_fitness == [int(np.nan_to_num(tuned, nan=-1) > np.nan_to_num(default, nan=-1))]


@given(
    st.integers(1, 40),
    st.integers(2, 5),
    st.integers(1, 4),
    st.floats(0, 0.99),
    st.lists(st.floats(-9, 9) | st.just(np.nan), min_size=40, max_size=40),
)
def test_as_many_go_on_as_there_are_to_be(population, eta, least, share, fitness) -> None:
    """Whatever the population and the share of defaults: the fittest of all that have a fitness is among them."""
    if least > population:
        least = population
    kind = halving(eta=eta, min_members=least, default_members=share, last_choice="fitness")
    uid = np.arange(population)
    for _, members in kind.rung_sizes(population)[1:]:
        stats = at([fitness[u] for u in uid], uid=uid.tolist())
        kept = kind.kept(stats, members, population)
        assert kept.sum() == members
        if np.isfinite(stats.fitness).any():
            assert kept[np.nanargmax(stats.fitness)]
        assert np.isfinite(stats.fitness[kept]).all() or not np.isfinite(stats.fitness[~kept]).any()
        uid = uid[kept]
    assert len(uid) == min(population, kind.min_members)


@pytest.mark.parametrize(
    "options",
    [
        {"eta": 1},
        {"min_members": 0},
        {"min_members": 9},
        {"default_members": 1.0},
        {"rungs": (0.1, 0.2)},
        {"rungs": (0.1, 0.1, 0.2)},
        {"rungs": (0.0, 0.1, 0.2)},
        {"rungs": (0.1, 0.2, 1.0)},
        {"rungs": (float("nan"), 0.1, 0.2)},
    ],
    ids=shown,
)
def test_what_it_cannot_be(options: dict[str, Any], said: Said) -> None:
    with pytest.raises(BadInput) as caught:
        halving(**options).validate(NO_AGENT, 8)
    said(caught.value)
